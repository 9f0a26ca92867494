#include "case.h"
// localtime_r takes glibc's one lock for all time zones.
static void *stamp(void *a) { (void)a; char b[64]; struct tm m; for (time_t t = 1.7e9; now() < end;) for (int i = 0; i < 50; i++, t++) localtime_r(&t, &m), strftime(b, 64, "%F %T", &m); return 0; }
int main(int n, char **a) { (void)n; setenv("TZ", "Europe/Berlin", 1); tzset(); end = now() + atof(a[1]); threads(4, stamp); }
