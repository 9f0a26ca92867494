#include "case.h"
// Four threads draw numbers by rand(), which has one state and one lock for all.
static volatile long inside;
static void throw_dart(void) { double x = rand() / (double)RAND_MAX, y = rand() / (double)RAND_MAX; if (x * x + y * y < 1) inside++; }
static void *worker(void *a) { (void)a; while (now() < end) for (int k = 0; k < 1000; k++) throw_dart(); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(4, worker); }
