#include "case.h"
// Two threads meet after each step; the first has twelve times the work of the other.
static pthread_barrier_t step_end;
static void relax_rows(long rows) { work(rows); }
static void *worker(void *a) { for (int i = 0; i < 1 << 30; i++) { int stop = now() > end; relax_rows((long)a ? 50000 : 600000); if (pthread_barrier_wait(&step_end), stop && (long)a == 2) return 0; if (now() > end + 0.3) exit(0); } return 0; }
int main(int n, char **a) { (void)n; pthread_barrier_init(&step_end, 0, 2); end = now() + atof(a[1]); threads(2, worker); }
