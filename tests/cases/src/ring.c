#include "case.h"
#include <sys/prctl.h>
// Eight processes hand a token round by pipes.
static int p[8][2];
static void pass_on(int k) { char b; if (read(p[k][0], &b, 1) != 1 || write(p[(k + 1) % 8][1], &b, 1) != 1) exit(0); }
int main(int n, char **a) {
  (void)n; end = now() + atof(a[1]); for (int i = 0; i < 8; i++) if (pipe(p[i])) return 1;
  for (int k = 1; k < 8; k++) if (!fork()) { prctl(PR_SET_PDEATHSIG, SIGKILL); while (now() < end) pass_on(k); exit(0); }
  if (write(p[0][1], "t", 1) != 1) return 1;
  while (now() < end) pass_on(0);
}
