#include "case.h"
#include <sys/prctl.h>
// An agent reads smaps_rollup of a program that maps and unmaps: it holds mmap_lock for tens of milliseconds.
int main(int n, char **a) {
  (void)n; size_t big = 1000ul << 20; char *p = mmap(0, big, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); madvise(p, big, MADV_NOHUGEPAGE);
  for (size_t i = 0; i < big; i += 4096) p[i] = 1;
  pid_t me = getpid(), agent = fork();
  if (!agent) { prctl(PR_SET_NAME, "monitor"); madvise(p, big, MADV_DONTNEED); char f[64]; static char b[1 << 16]; snprintf(f, 64, "/proc/%d/smaps_rollup", me);
    for (;;) { int d = open(f, O_RDONLY); while (read(d, b, sizeof b) > 0); close(d); } }
  end = now() + atof(a[1]);
  while (now() < end) { void *q = mmap(0, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); munmap(q, 65536); burn(.001); }
  kill(agent, 9);
}
