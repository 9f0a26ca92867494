#include "case.h"
#include <malloc.h>
// One malloc arena for four threads that take more blocks than tcache keeps.
static void *churn(void *a) { unsigned x = (long)a; char *held[64]; while (now() < end) for (int r = 0; r < 50; r++) { for (int i = 0; i < 64; i++) x = x * 1103515245 + 12345, held[i] = malloc(1100 + (x >> 16) % 2000), held[i][0] = 1; for (int i = 0; i < 64; i++) free(held[i]); } return 0; }
int main(int n, char **a) { (void)n; mallopt(M_TRIM_THRESHOLD, 64 << 20); mallopt(M_TOP_PAD, 1 << 20); mallopt(M_ARENA_MAX, 1); end = now() + atof(a[1]); threads(4, churn); }
