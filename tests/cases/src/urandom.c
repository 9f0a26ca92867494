#include "case.h"
// An identifier opens and reads /dev/urandom each time.
static void new_id(unsigned char *b) { int f = open("/dev/urandom", O_RDONLY); if (read(f, b, 16) != 16) exit(1); close(f); }
static void *serve(void *a) { (void)a; unsigned char b[16]; while (now() < end) new_id(b), work(200); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, serve); }
