#include <stdlib.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static volatile int sum;
static void handle(void) { char *p = calloc(1, 32 << 20); for (int i = 0; i < 32 << 20; i += 4096) p[i] = 1; sum += p[4096]; free(p); }
int main(int argc, char **argv) { double end = now() + atof(argv[1]); while (now() < end) handle(); return argc < 0; }
