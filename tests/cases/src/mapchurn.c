#include "case.h"
#include <malloc.h>
// A buffer of 1 MB from malloc for each request: mapped, touched, unmapped.
static void *handle_request(void *a) { (void)a; while (now() < end) { char *p = malloc(1 << 20); for (int i = 0; i < 1 << 20; i += 4096) p[i] = 1; free(p); } return 0; }
int main(int n, char **a) { (void)n; mallopt(M_MMAP_THRESHOLD, 128 << 10); end = now() + atof(a[1]); threads(2, handle_request); }
