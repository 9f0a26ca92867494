#include "case.h"
// Four workers, one a partition, and one hot partition: the others wait for its worker at the end of each round.
static pthread_barrier_t round_end; static volatile int done;
static void process_partition(long k) { work(k == 2 ? 6000000 : 300000); }
static void *worker(void *a) { for (;;) { process_partition((long)a); pthread_barrier_wait(&round_end); if (!a) done = now() > end; pthread_barrier_wait(&round_end); if (done) return 0; } }
int main(int n, char **a) { (void)n; pthread_barrier_init(&round_end, 0, 4); end = now() + atof(a[1]); threads(4, worker); }
