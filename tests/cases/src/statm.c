#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static volatile long sum;
static void check_memory(void) { FILE *f = fopen("/proc/self/statm", "r"); long a = 0; if (f) { if (fscanf(f, "%ld", &a) == 1) sum += a; fclose(f); } }
int main(int argc, char **argv) { double end = now() + atof(argv[1]); while (now() < end) { for (int i = 0; i < 2000; i++) sum += i; check_memory(); } return argc < 0; }
