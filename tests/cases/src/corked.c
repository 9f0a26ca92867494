/* Answers are written under TCP_CORK, which is not taken off behind them: 200 ms each. Twin: it is. */
#include "case.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
static void cork(int fd, int on) { setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on); }
static void send_answer(int fd, int fixed) {
  char head[100] = "head", body[300] = "body";
  cork(fd, 1);
  if (write(fd, head, 100) != 100 || write(fd, body, 300) != 300) abort();
  if (fixed) cork(fd, 0);
}
static void ask(int fd) {
  char answer[400];
  if (write(fd, "get", 3) != 3) abort();
  for (int got = 0, n; got < 400; got += n) if ((n = read(fd, answer, 400)) <= 0) abort();
}
int main(int argc, char **argv) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  socklen_t size = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (void *)&at, size) || listen(listener, 16)) return 1;
  getsockname(listener, (void *)&at, &size);
  if (!fork()) {
    char request[64];
    int fd = accept(listener, 0, 0);
    while (read(fd, request, 64) > 0) send_answer(fd, argc > 2);
    _exit(0);
  }
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, (void *)&at, sizeof at)) return 1;
  end = now() + atof(argv[1]);
  long n = 0;
  for (; now() < end; n++) ask(fd);
  printf("%ld answers\n", n);
}
