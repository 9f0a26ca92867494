#include "case.h"
// Eight threads create and remove files in one directory of tmpfs: the kernel has one lock for its entries.
static char dir[] = "/dev/shm/onedir-case-XXXXXX";
static void spool_message(long who, int i) { char p[99]; snprintf(p, 99, "%s/%ld-%d", dir, who, i); int f = open(p, O_CREAT | O_WRONLY | O_EXCL, 0600); if (f < 0) exit(1); close(f); unlink(p); }
static void *worker(void *a) { for (int i = 0; now() < end;) for (int k = 0; k < 20; k++) spool_message((long)a, i++); return 0; }
int main(int n, char **a) { (void)n; if (!mkdtemp(dir)) return 1; end = now() + atof(a[1]); threads(8, worker); rmdir(dir); }
