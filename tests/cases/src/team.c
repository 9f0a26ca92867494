/* flags: -fopenmp */
#include "case.h"
// OpenMP: 15 ms in one thread, then 5 ms in each: the other waits in libgomp's barrier, spinning or asleep.
static void prepare(void) { burn(.015); }
static void compute(void) { burn(.005); }
int main(int n, char **a) {
  (void)n; end = now() + atof(a[1]);
  while (now() < end) { prepare();
    #pragma omp parallel num_threads(2)
    compute(); }
}
