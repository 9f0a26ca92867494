#include "case.h"
#include <sys/epoll.h>
// A server at rest: an event loop, a timer ten times a second, a pool of idle workers.
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static void *idle_worker(void *a) { (void)a; pthread_mutex_lock(&m); for (;;) pthread_cond_wait(&c, &m); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); pthread_t t; for (int i = 0; i < 8; i++) pthread_create(&t, 0, idle_worker, 0); int p[2]; if (pipe(p)) return 1; int ep = epoll_create1(0); struct epoll_event e = {.events = EPOLLIN}; epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e); while (now() < end) epoll_wait(ep, &e, 1, 100); _exit(0); }
