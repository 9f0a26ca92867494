#include "case.h"
// Each worker binds itself to CPU 0.
static void *worker(void *a) { (void)a; cpu_set_t s; CPU_ZERO(&s); CPU_SET(0, &s); pthread_setaffinity_np(pthread_self(), sizeof s, &s); while (now() < end) work(1000); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(4, worker); }
