#include "case.h"
// Four workers log into one pipe, whose reader takes 2 ms for each line: the workers wait until the pipe has room.
static int fd[2];
static void log_line(long i) { char b[512]; memset(b, '.', 511); snprintf(b, 512, "worker %ld", i); b[511] = '\n'; if (write(fd[1], b, 512) < 0) exit(1); }
static void *worker(void *a) { while (now() < end) burn(.0005), log_line((long)a); return 0; }
int main(int n, char **a) { (void)n; if (pipe(fd)) return 1; end = now() + atof(a[1]); if (!fork()) { close(fd[1]); char b[512]; while (read(fd[0], b, 512) > 0 && now() < end) usleep(2000); _exit(0); } close(fd[0]); signal(SIGPIPE, SIG_DFL); threads(4, worker); }
