#include "case.h"
// A journal opened with O_DSYNC is written line by line.
static void append_record(int f, int i) { char b[100]; memset(b, 'a' + i % 26, 100); if (write(f, b, 100) < 0) exit(1); }
int main(int n, char **a) { (void)n; char p[] = "/var/tmp/osync-case-XXXXXX"; int f = mkstemp(p); close(f); f = open(p, O_WRONLY | O_DSYNC | O_APPEND); end = now() + atof(a[1]); for (int i = 0; now() < end; i++) append_record(f, i), work(1000); unlink(p); }
