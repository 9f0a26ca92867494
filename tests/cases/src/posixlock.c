#include "case.h"
// Four processes take turns for a POSIX lock on a range of a file.
static void update_page(int f) { struct flock k = {.l_type = F_WRLCK, .l_start = 4096, .l_len = 4096}; fcntl(f, F_SETLKW, &k); burn(.006); k.l_type = F_UNLCK; fcntl(f, F_SETLK, &k); }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); for (int i = 0; i < 4; i++) if (!fork()) { int f = open("/tmp/posixlock-case", O_RDWR | O_CREAT, 0600); while (now() < end) update_page(f), burn(.0005); _exit(0); } while (wait(0) > 0) { } unlink("/tmp/posixlock-case"); }
