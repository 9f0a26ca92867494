/* flags: -fopenmp */
/* schedule(dynamic,1) hands out iterations of a few instructions each. "fixed": static. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#define N 2000000
static float in[N], out[N];
static void scale_dynamic(void) {
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < N; i++) out[i] = in[i] * 1.5f + 2;
}
static void scale_static(void) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < N; i++) out[i] = in[i] * 1.5f + 2;
}
int main(int argc, char **argv) {
    double seconds = atof(argv[1]), end = omp_get_wtime() + seconds;
    long n = 0;
    while (omp_get_wtime() < end) { argc > 2 ? scale_static() : scale_dynamic(); n++; }
    printf("%.1f passes/s %f\n", n / seconds, out[7]);
}
