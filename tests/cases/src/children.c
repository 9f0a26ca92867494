// A supervisor with a thousand children that live on waits for any child (waitpid -1): the kernel looks at all of them each time.
// `twin` waits for the one that it started.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static unsigned work(unsigned x) { for (int i = 0; i < 5000; i++) x = x * 1664525 + 1013904223 + (x >> 7); return x; }
static int reap_any(void) { int status; return waitpid(-1, &status, WNOHANG); }
static int reap_one(int pid) { int status; return waitpid(pid, &status, WNOHANG); }
int main(int argc, char **argv) {
    int twin = argc > 2 && !strcmp(argv[2], "twin"), last = 0;
    static int all[1000];
    for (int i = 0; i < 1000; i++) if (!(all[i] = last = fork())) { prctl(PR_SET_PDEATHSIG, SIGKILL); for (;;) pause(); }
    double end = now() + atof(argv[1]);
    long n = 0; unsigned x = 1;
    while (now() < end) { x = work(x); if ((twin ? reap_one(last) : reap_any()) > 0) break; n++; }
    printf("%.0f turns/s %u\n", n / atof(argv[1]), x & 1);
    fflush(stdout);
    for (int i = 0; i < 1000; i++) kill(all[i], SIGKILL);
    while (wait(0) > 0);
}
