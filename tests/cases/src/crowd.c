/* flags: -fopenmp */
/* OMP_NUM_THREADS=16, waiting actively, on a machine of fewer CPUs: each small region ends in a barrier for which threads spin. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
static double sum[16 * 16];
static void work(int t) {
    double s = 0;
    for (int i = 1; i < 20000; i++) s += 1.0 / i;
    sum[t * 16] += s;
}
int main(int argc, char **argv) {
    double seconds = atof(argv[1]), end = omp_get_wtime() + seconds;
    long n = 0;
    while (omp_get_wtime() < end) {
#pragma omp parallel
        {
            int t = omp_get_thread_num(), all = omp_get_num_threads();
            for (int i = t; i < 16; i += all) work(t);
        }
        n++;
    }
    printf("%.1f steps/s\n", n / seconds);
}
