#include "case.h"
#include <dlfcn.h>
// A library is loaded and unloaded for each request.
static void with_plugin(void) { void *h = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL); if (!h) exit(1); dlsym(h, "sqlite3_libversion"); dlclose(h); }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); while (now() < end) with_plugin(), work(2000); }
