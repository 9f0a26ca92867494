#include "case.h"
// Six threads append to one file of tmpfs: its inode's lock is taken for each write.
static int log_file;
static void append_entry(long who) { char b[2000]; memset(b, 'a' + who, sizeof b); if (write(log_file, b, sizeof b) < 0) exit(1); }
static void *worker(void *a) { while (now() < end) for (int k = 0; k < 20; k++) { append_entry((long)a); if (!(long)a && k == 0 && lseek(log_file, 0, SEEK_CUR) > 200 << 20 && ftruncate(log_file, 0)) exit(1); } return 0; }
int main(int n, char **a) { (void)n; char p[] = "/dev/shm/appendone-case-XXXXXX"; int f = mkstemp(p); close(f); log_file = open(p, O_WRONLY | O_APPEND); unlink(p); end = now() + atof(a[1]); threads(6, worker); }
