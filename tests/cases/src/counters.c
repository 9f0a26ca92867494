#include "case.h"
// Each thread has a counter of its own, and all lie in one line.
static volatile long hits[8];
static void *count_hits(void *a) { while (now() < end) for (int i = 0; i < 2000; i++) hits[(long)a]++; return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, count_hits); }
