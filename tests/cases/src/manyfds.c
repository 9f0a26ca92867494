#include "case.h"
#include <poll.h>
// poll looks at 2,000 descriptors for each event of one.
static struct pollfd all[2000]; static int to;
static void next_event(void) { char b = 1; if (write(to, &b, 1) != 1 || poll(all, 2000, -1) < 1 || read(all[1999].fd, &b, 1) != 1) exit(1); }
int main(int n, char **a) {
  (void)n; struct rlimit r = {9000, 9000}; setrlimit(RLIMIT_NOFILE, &r);
  for (int i = 0; i < 2000; i++) { int p[2]; if (pipe(p)) return 1; all[i] = (struct pollfd){.fd = p[0], .events = POLLIN}; to = p[1]; }
  end = now() + atof(a[1]); while (now() < end) next_event();
}
