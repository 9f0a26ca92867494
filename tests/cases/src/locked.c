#include "case.h"
// Work in a function whose name says "locked"; each thread has its own lock.
__attribute__((noinline)) static void update_stats_locked(void) { work(100000); }
static void *compute(void *a) { (void)a; pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; while (now() < end) pthread_mutex_lock(&m), update_stats_locked(), pthread_mutex_unlock(&m); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, compute); }
