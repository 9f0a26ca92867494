#include "case.h"
#include <netinet/in.h>
// A client asks a service that is not there, every millisecond.
static int connect_service(void) {
  int s = socket(AF_INET, SOCK_STREAM, 0); struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int r = connect(s, (struct sockaddr *)&to, sizeof to); close(s); return r;
}
static void *worker(void *a) { (void)a; while (now() < end) while (now() < end && connect_service()) usleep(20); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(4, worker); }
