/* After each scan a table is dropped from the page cache, and is scanned again at once. Twin "fixed": it stays. */
#include "case.h"
static char part[1 << 16];
static long scan_table(int fd, int fixed) {
  long sum = 0;
  ssize_t size;
  lseek(fd, 0, SEEK_SET);
  while ((size = read(fd, part, sizeof part)) > 0)
    for (int i = 0; i < size; i += 64) sum += part[i];
  if (!fixed) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  return sum;
}
int main(int argc, char **argv) {
  char path[64];
  long n = 0;
  // Not in /tmp, which may lie in memory.
  snprintf(path, sizeof path, "/var/tmp/dropped-%d", getpid());
  int fd = open(path, O_CREAT | O_RDWR, 0600);
  memset(part, 3, sizeof part);
  for (int i = 0; i < 64; i++) if (write(fd, part, sizeof part) < 0) return 1;
  fsync(fd);
  end = now() + atof(argv[1]);
  for (; now() < end; n++) scan_table(fd, argc > 2);
  unlink(path);
  printf("%ld scans\n", n);
}
