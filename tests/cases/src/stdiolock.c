#include "case.h"
// Four threads write short lines to one FILE: each call takes the stream's lock.
static FILE *audit;
static void audit_event(long who, int i) { fprintf(audit, "%ld %d login\n", who, i); }
static void *worker(void *a) { for (int i = 0; now() < end;) for (int k = 0; k < 100; k++) audit_event((long)a, i++); return 0; }
int main(int n, char **a) { (void)n; audit = fopen("/dev/null", "w"); end = now() + atof(a[1]); threads(4, worker); }
