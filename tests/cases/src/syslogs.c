#include "case.h"
#include <syslog.h>
// A message to syslog for each request; no daemon listens.
static void handle_request(int i) { syslog(LOG_INFO, "request %d done", i); }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); for (int i = 0; now() < end; i++) handle_request(i), work(500); }
