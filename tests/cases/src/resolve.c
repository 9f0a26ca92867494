#include "case.h"
#include <netdb.h>
// A name is looked up for each request; the resolver opens and reads its files each time.
static void connect_backend(void) { struct addrinfo h = {.ai_socktype = SOCK_STREAM}, *r; if (!getaddrinfo("localhost", "80", &h, &r)) freeaddrinfo(r); }
static void serve(void) { connect_backend(); work(2000); }
int main(int n, char **a) { (void)n; end = now() + atof(a[1]); while (now() < end) serve(); }
