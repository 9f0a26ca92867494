#include "case.h"
#include <netinet/in.h>
#include <sys/epoll.h>
// Forty workers wait for one listener, each with an epoll instance of its own: each connection wakes them all, and one gets it.
static int l; static struct sockaddr_in at = {.sin_family = AF_INET};
static void *accept_loop(void *a) { (void)a; int ep = epoll_create1(0); struct epoll_event e = {.events = EPOLLIN}; epoll_ctl(ep, EPOLL_CTL_ADD, l, &e);
  while (now() < end) if (epoll_wait(ep, &e, 1, 100) > 0) { int c = accept4(l, 0, 0, SOCK_NONBLOCK); if (c >= 0) work(3000), close(c); }
  return 0; }
static void *client(void *a) { (void)a; while (now() < end) { int s = socket(AF_INET, SOCK_STREAM, 0); char b; if (!connect(s, (void *)&at, sizeof at)) if (read(s, &b, 1)) break; close(s); } return 0; }
static void *each(void *a) { return a ? accept_loop(a) : client(a); }
int main(int n, char **a) { (void)n; socklen_t k = sizeof at; l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0); bind(l, (void *)&at, k); listen(l, 512); getsockname(l, (void *)&at, &k); end = now() + atof(a[1]); threads(41, each); }
