#include "case.h"
#include <sys/time.h>
// A profiler's timers interrupt each thread 20,000 times a second by signals.
static volatile long ticks; static void on_tick(int s) { (void)s; ticks++; work(200); }
static void *compute(void *a) { (void)a; timer_t t; struct sigevent e = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF}; e._sigev_un._tid = (int)syscall(SYS_gettid); timer_create(CLOCK_MONOTONIC, &e, &t); struct itimerspec i = {{0, 50000}, {0, 50000}}; timer_settime(t, 0, &i, 0); burn(end - now()); timer_delete(t); return 0; }
int main(int n, char **a) { (void)n; signal(SIGPROF, on_tick); end = now() + atof(a[1]); threads(2, compute); }
