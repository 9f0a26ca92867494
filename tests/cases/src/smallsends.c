#include "case.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
// A stream of 8 bytes a send over loopback TCP, with TCP_NODELAY.
static void send_tick(int s, long i) { if (send(s, &i, 8, 0) < 0) exit(1); }
int main(int n, char **a) { (void)n; struct sockaddr_in at = {.sin_family = AF_INET}; socklen_t k = sizeof at; int l = socket(AF_INET, SOCK_STREAM, 0), on = 1; bind(l, (void *)&at, k); listen(l, 1); getsockname(l, (void *)&at, &k); end = now() + atof(a[1]);
  if (!fork()) { int c = accept(l, 0, 0); char b[65536]; while (read(c, b, 65536) > 0) { } _exit(0); }
  int s = socket(AF_INET, SOCK_STREAM, 0); connect(s, (void *)&at, k); setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); for (long i = 0; now() < end; i++) send_tick(s, i); close(s); wait(0); }
