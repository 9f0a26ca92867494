#include "case.h"
// Large buffers are written and read: few calls of many bytes, work between them.
static void *copy(void *a) { (void)a; char *b = malloc(1 << 20); int z = open("/dev/zero", O_RDONLY), f = open("/dev/null", O_WRONLY); while (now() < end) { if (read(z, b, 4096) < 0 || write(f, b, 1 << 20) < 0) return 0; unsigned long s = 0; for (int r = 0; r < 20; r++) for (int i = 0; i < 1 << 20; i++) s = s * 31 + b[i]; b[0] = s; } return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, copy); }
