#include "case.h"
// A thread spins on a flag until the other has the next batch ready.
static volatile int ready, stop;
__attribute__((noinline)) static void wait_ready(void) { while (!ready && !stop) { } }
static void *consume(void *a) { (void)a; while (!stop) wait_ready(), work(2000), ready = 0; return 0; }
static void prepare_batch(void) { work(2000000); }
static void *produce(void *a) { (void)a; while (now() < end) { prepare_batch(); ready = 1; while (ready) { } } stop = 1; return 0; }
static void *each(void *a) { return a ? consume(a) : produce(a); }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, each); }
