#include "case.h"
// One atomic counter for all threads.
static atomic_long total_requests;
static void *serve(void *a) { (void)a; while (now() < end) for (int i = 0; i < 2000; i++) atomic_fetch_add(&total_requests, 1); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, serve); }
