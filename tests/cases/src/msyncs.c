#include "case.h"
// A mapped file is brought to the disk for each record.
static void commit_record(char *m, int i) { memset(m + i % 4000 * 16, i, 16); if (msync(m, 65536, MS_SYNC)) exit(1); }
int main(int n, char **a) {
  (void)n; char p[] = "/var/tmp/msyncs-case-XXXXXX"; int f = mkstemp(p); if (ftruncate(f, 65536)) return 1;
  char *m = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0); end = now() + atof(a[1]);
  for (int i = 0; now() < end; i++) commit_record(m, i), work(2000);
  unlink(p);
}
