#include "case.h"
// A broadcast wakes 32 waiters for one job.
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c = PTHREAD_COND_INITIALIZER; static int jobs, stop;
static void *worker(void *a) { (void)a; for (;;) { pthread_mutex_lock(&m); while (!jobs && !stop) pthread_cond_wait(&c, &m); if (!jobs && stop) return pthread_mutex_unlock(&m), NULL; jobs--; pthread_mutex_unlock(&m); work(1000); } }
static void *submit(void *a) { (void)a; while (now() < end) { pthread_mutex_lock(&m); jobs++; pthread_cond_broadcast(&c); pthread_mutex_unlock(&m); work(20000); } pthread_mutex_lock(&m); stop = 1; pthread_cond_broadcast(&c); pthread_mutex_unlock(&m); return 0; }
static void *each(void *a) { return a ? worker(a) : submit(a); }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(33, each); }
