#include "case.h"
// A loop reads a socket that does not block, and asks again at once when there is nothing (EAGAIN).
static int receive(int s) { char b[64]; return (int)recv(s, b, 64, MSG_DONTWAIT); }
int main(int n, char **a) { (void)n; int s[2]; socketpair(AF_UNIX, SOCK_STREAM, 0, s); end = now() + atof(a[1]); if (!fork()) { while (now() < end && write(s[1], "x", 1) == 1) usleep(2000); _exit(0); } while (now() < end) receive(s[0]); wait(0); }
