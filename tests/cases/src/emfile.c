#include "case.h"
#include <netinet/in.h>
#include <sys/epoll.h>
// Connections wait, accept fails with EMFILE, and epoll says at once that they wait.
int main(int n, char **a) {
  (void)n; struct rlimit r = {16, 16}; int l = socket(AF_INET, SOCK_STREAM, 0); struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}; socklen_t k = sizeof at;
  bind(l, (void *)&at, k); listen(l, 64); getsockname(l, (void *)&at, &k); end = now() + atof(a[1]);
  pid_t client = fork();
  if (!client) { for (int i = 0; i < 40; i++) connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&at, k); pause(); }
  setrlimit(RLIMIT_NOFILE, &r); fcntl(l, F_SETFL, O_NONBLOCK); int ep = epoll_create1(0); struct epoll_event e = {.events = EPOLLIN, .data.fd = l}; epoll_ctl(ep, EPOLL_CTL_ADD, l, &e);
  while (now() < end) if (epoll_wait(ep, &e, 1, 100) > 0) accept(l, 0, 0);
  kill(client, 9);
}
