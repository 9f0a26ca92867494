#include "case.h"
// Useful work on all CPUs, each thread with its own data.
static void *multiply(void *a) { (void)a; enum { N = 96 }; double *x = calloc(3 * N * N, sizeof *x), *y = x + N * N, *z = y + N * N; for (int i = 0; i < N * N; i++) x[i] = i % 7, y[i] = i % 5; while (now() < end) for (int i = 0; i < N; i++) for (int k = 0; k < N; k++) for (int j = 0; j < N; j++) z[i * N + j] += x[i * N + k] * y[k * N + j]; free(x); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(sysconf(_SC_NPROCESSORS_ONLN), multiply); }
