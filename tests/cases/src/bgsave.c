#include "case.h"
// A store forks to save its 64 MiB and writes all of them meanwhile: each page is copied.
static char *store; enum { SIZE = 64 << 20 };
static void update_all(void) { for (long i = 0; i < SIZE; i += 4096) store[i]++; }
static void save(void) { pid_t c = fork(); if (!c) { usleep(60000); _exit(0); } update_all(); waitpid(c, 0, 0); }
int main(int n, char **a) { (void)n; store = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); madvise(store, SIZE, MADV_NOHUGEPAGE); update_all(); end = now() + atof(a[1]); while (now() < end) save(); }
