#include "case.h"
// An allocator gives a buffer's pages back by madvise after each use.
static void release(char *p) { madvise(p, 1 << 20, MADV_DONTNEED); }
static void *serve(void *a) { (void)a; char *p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); madvise(p, 1 << 20, MADV_NOHUGEPAGE); while (now() < end) memset(p, 1, 1 << 20), work(20000), release(p); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, serve); }
