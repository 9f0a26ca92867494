#include "case.h"
// sscanf on a long text measures the whole rest of it for each number.
static double load_numbers(char *text) { double sum = 0, x; for (char *p = text; *p; p = strchr(p, ',') + 1) if (sscanf(p, "%lf,", &x) == 1) sum += x; return sum; }
int main(int n, char **a) { (void)n; char *t = malloc(400000), *p = t; for (int i = 0; i < 40000; i++) p += sprintf(p, "%d.5,", i % 1000); end = now() + atof(a[1]); while (now() < end) if (load_numbers(t) < 1) return 1; }
