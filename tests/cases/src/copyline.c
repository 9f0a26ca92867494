#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static volatile unsigned sum;
static void answer(int fd, char *buffer) { if (pread(fd, buffer, 4096, 0) > 0) for (int i = 0; i < 3000; i++) sum += buffer[i & 4095] * i; }
int main(int argc, char **argv) {
	double end = now() + atof(argv[1]); char buffer[4096]; int fd = open("/bin/sh", O_RDONLY);
	long n = 0; while (now() < end) { answer(fd, buffer); n++; }
	fprintf(stderr, "%ld reads\n", n);
	return argc < 0;
}
