#include "case.h"
#include <dlfcn.h>
// A plugin's function is looked up by its name for each call.
static double call_plugin(const char *name, double x) { double (*f)(double) = (double (*)(double))dlsym(RTLD_DEFAULT, name); return f ? f(x) : x; }
int main(int n, char **a) { (void)n; volatile double x = 1; end = now() + atof(a[1]); while (now() < end) for (int i = 0; i < 100; i++) x = call_plugin(i % 2 ? "strtod_not_there" : "getpid_not_there", x); }
