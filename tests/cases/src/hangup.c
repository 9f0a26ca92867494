#include "case.h"
#include <sys/epoll.h>
// An epoll loop keeps a socket whose peer is gone: epoll_wait returns at once, for nothing.
int main(int n, char **a) {
  (void)n; int gone[2], live[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, gone); socketpair(AF_UNIX, SOCK_STREAM, 0, live); end = now() + atof(a[1]);
  if (!fork()) { close(live[0]); close(gone[0]); close(gone[1]); struct timespec ms = {0, 1000000}; while (now() < end && write(live[1], "x", 1) == 1) nanosleep(&ms, 0); _exit(0); }
  close(live[1]); int ep = epoll_create1(0); struct epoll_event e = {.events = EPOLLIN, .data.fd = live[0]}; epoll_ctl(ep, EPOLL_CTL_ADD, live[0], &e);
  e.events = 0; e.data.fd = gone[0]; epoll_ctl(ep, EPOLL_CTL_ADD, gone[0], &e); close(gone[1]); char b[64];
  for (int open = 1; open;) { struct epoll_event got[8]; int k = epoll_wait(ep, got, 8, -1); for (int i = 0; i < k; i++) if (got[i].data.fd == live[0] && read(live[0], b, 64) <= 0) open = 0; }
}
