#include "case.h"
// Records are read one at a time from places that are not in memory (O_DIRECT).
static void read_record(int f, char *b) { if (pread(f, b, 4096, (off_t)(rand() % 20000) * 4096) < 0) exit(1); }
int main(int n, char **a) { (void)n; char p[] = "/var/tmp/coldreads-case-XXXXXX", *b = aligned_alloc(4096, 1 << 20); memset(b, 1, 1 << 20); int f = mkstemp(p); for (int i = 0; i < 80; i++) if (write(f, b, 1 << 20) < 0) return 1; fsync(f); close(f); f = open(p, O_RDONLY | O_DIRECT); end = now() + atof(a[1]); while (now() < end) read_record(f, b), work(1000); unlink(p); }
