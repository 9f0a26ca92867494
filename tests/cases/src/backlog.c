/* 32 clients connect at once to a server with listen(fd, 1): what does not fit is dropped and asked for again after a second. Twin: 512. */
#include "case.h"
#include <netinet/in.h>
static struct sockaddr_in at = {.sin_family = AF_INET};
static _Atomic long done;
static pthread_barrier_t burst;
static void *client(void *p) {
  while (now() < end) {
    char answer[16];
    pthread_barrier_wait(&burst);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!connect(fd, (void *)&at, sizeof at) && write(fd, "hello", 5) == 5 && read(fd, answer, 16) > 0) done++;
    close(fd);
  }
  return p;
}
static void serve(int listener) {
  for (;;) {
    char request[16];
    int fd = accept(listener, 0, 0);
    if (read(fd, request, 16) > 0) { usleep(20); if (write(fd, "ok", 2) != 2) abort(); }
    close(fd);
  }
}
int main(int argc, char **argv) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  socklen_t size = sizeof at;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (void *)&at, size) || listen(listener, argc > 2 ? 512 : 1)) return 1;
  getsockname(listener, (void *)&at, &size);
  end = now() + atof(argv[1]);
  pid_t server = fork();
  if (!server) serve(listener);
  pthread_barrier_init(&burst, 0, 32);
  for (int i = 0; i < 32; i++) { pthread_t t; pthread_create(&t, 0, client, 0); }
  while (now() < end) usleep(10000);
  kill(server, SIGKILL);
  printf("%ld answers\n", done);
  fflush(stdout);
  _exit(0);
}
