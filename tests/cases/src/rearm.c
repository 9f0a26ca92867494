#include "case.h"
#include <sys/epoll.h>
// A connection is added to an epoll instance and taken from it for each request.
static int ep, p[2];
static void wait_once(void) { struct epoll_event e = {.events = EPOLLIN}; epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e); epoll_wait(ep, &e, 1, 0); epoll_ctl(ep, EPOLL_CTL_DEL, p[0], 0); }
int main(int n, char **a) { (void)n; ep = epoll_create1(0); if (pipe(p) || write(p[1], "x", 1) != 1) return 1; end = now() + atof(a[1]); while (now() < end) for (int i = 0; i < 100; i++) wait_once(); }
