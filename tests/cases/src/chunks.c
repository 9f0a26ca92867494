#include "case.h"
#include <sys/sendfile.h>
// A file is sent in pieces of 64 bytes.
static int file, to;
static void send_chunk(off_t at) { if (sendfile(to, file, &at, 64) < 0) exit(1); }
int main(int n, char **a) {
  (void)n; char p[] = "/dev/shm/chunks-case-XXXXXX"; file = mkstemp(p); unlink(p); if (ftruncate(file, 1 << 20)) return 1;
  to = open("/dev/null", O_WRONLY); end = now() + atof(a[1]); for (off_t at = 0; now() < end;) for (int k = 0; k < 100; k++) send_chunk(at = (at + 64) % (1 << 20));
}
