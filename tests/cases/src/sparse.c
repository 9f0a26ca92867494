#include "case.h"
// One byte in each 2 MB, with huge pages: the kernel zeroes 2 MB for each.
int main(int n, char **a) {
  end = now() + atof(a[1]); size_t H = 2 << 20, N = 400;
  while (now() < end) {
    char *p = mmap(0, (N + 1) * H, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *q = (char *)(((size_t)p + H - 1) & ~(H - 1));
    if (n < 3) madvise(q, N * H, MADV_HUGEPAGE);
    for (size_t i = 0; i < N; i++) q[i * H] = 1;
    munmap(p, (N + 1) * H);
  }
}
