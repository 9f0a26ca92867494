#include "case.h"
// A process of 512 MiB forks for each snapshot, and the child has hardly anything to do.
static void take_snapshot(void) { int c = fork(); if (!c) _exit(0); waitpid(c, 0, 0); }
int main(int n, char **a) { (void)n; size_t k = 512 << 20; char *p = mmap(0, k, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); madvise(p, k, MADV_NOHUGEPAGE); memset(p, 1, k); end = now() + atof(a[1]); while (now() < end) take_snapshot(), work(10000); }
