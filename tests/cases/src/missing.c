#include "case.h"
// A search path of 40 directories for a file that is in none of them, again for each request.
static int find_module(const char *name) { char p[256]; struct stat s; for (int i = 0; i < 40; i++) { snprintf(p, 256, "/usr/lib/app/plugins-%d/%s.so", i, name); if (!stat(p, &s)) return i; } return -1; }
static void *serve(void *a) { (void)a; while (now() < end) find_module("mod_auth"), work(200); return 0; }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); threads(2, serve); }
