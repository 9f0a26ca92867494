/* Sleeps for a microsecond after each item, of which the kernel makes 55. Twin "fixed": after a thousand. */
#include "case.h"
static void pace(long item, int fixed) {
  if (!fixed || item % 1000 == 0) usleep(1);
}
int main(int n, char **a) {
  end = now() + atof(a[1]);
  long items = 0;
  for (; now() < end; items++) {
    work(300);
    pace(items, n > 2);
  }
  printf("%ld items\n", items);
}
