#include "case.h"
// A thread is created for each request, and joined.
static void *handle(void *a) { (void)a; work(2000); return 0; }
static void serve(void) { pthread_t t; pthread_create(&t, 0, handle, 0); pthread_join(t, 0); }
static void *client(void *a) { (void)a; while (now() < end) serve(); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, client); }
