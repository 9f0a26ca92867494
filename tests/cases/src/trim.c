#include "case.h"
#include <malloc.h>
// The top of the heap is given back after each batch, and grown again: brk, faults and zeroing.
static void handle_batch(void) { char *p[60]; for (int i = 0; i < 60; i++) p[i] = malloc(16000), memset(p[i], i, 16000); for (int i = 60; i--;) free(p[i]); }
int main(int n, char **a) { (void)n; mallopt(M_TRIM_THRESHOLD, 0); mallopt(M_TOP_PAD, 0); end = now() + atof(a[1]); while (now() < end) handle_batch(), work(2000); }
