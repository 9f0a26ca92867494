/* Blocks of 64 datagrams overflow a receive buffer of 8 KiB; the sender finds out after 50 ms. Twin "fixed": a buffer of 1 MiB. */
#include "case.h"
#include <arpa/inet.h>
enum { PARTS = 64, SIZE = 1400 };
static int receiver, sender;
static struct sockaddr_in to = {.sin_family = AF_INET};
static void *collect_parts(void *x) {
  char got[PARTS] = {0}, part[SIZE], answer[PARTS];
  struct sockaddr_in from;
  for (int left = PARTS;;) {
    socklen_t length = sizeof from;
    if (recvfrom(receiver, part, SIZE, 0, (void *)&from, &length) < 4) return x;
    int i = part[0];
    left -= !got[i];
    got[i] = 1;
    work(500);
    if (!left) {
      sendto(receiver, "all", 4, 0, (void *)&from, length);
      memset(got, 0, sizeof got);
      left = PARTS;
    } else if (i == PARTS - 1) {
      for (int k = 0; k < PARTS; k++) answer[k] = !got[k];
      sendto(receiver, answer, PARTS, 0, (void *)&from, length);
    }
  }
}
static void send_block(void) {
  char part[SIZE] = {0}, missing[PARTS], answer[PARTS];
  memset(missing, 1, sizeof missing);
  for (;;) {
    for (int i = 0; i < PARTS; i++) {
      part[0] = i;
      if (missing[i] || i == PARTS - 1) sendto(sender, part, SIZE, 0, (void *)&to, sizeof to);
    }
    int n = recv(sender, answer, PARTS, 0);
    if (n == 4) return;
    // No answer: the last part was lost, which asks for one.
    if (n == PARTS) memcpy(missing, answer, PARTS);
    else memset(missing, 0, PARTS);
  }
}
int main(int n, char **a) {
  end = now() + atof(a[1]);
  receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
  int size = n > 2 ? 1 << 20 : 8192;
  setsockopt(receiver, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
  struct timeval limit = {0, 50000};
  setsockopt(sender, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof to;
  if (bind(receiver, (void *)&to, sizeof to) || getsockname(receiver, (void *)&to, &length)) return 1;
  pthread_t t;
  pthread_create(&t, 0, collect_parts, 0);
  long blocks = 0;
  for (; now() < end; blocks++) send_block();
  printf("%ld blocks\n", blocks);
  fflush(stdout);
  _exit(0);
}
