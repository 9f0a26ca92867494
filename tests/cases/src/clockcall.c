#include "case.h"
// The clock read by system call (a clock source without vDSO, or an old libc): a stamp for each item.
static void *stamp_items(void *a) { (void)a; struct timespec t; while (now() < end) for (int i = 0; i < 1000; i++) syscall(SYS_clock_gettime, CLOCK_REALTIME, &t), work(20); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, stamp_items); }
