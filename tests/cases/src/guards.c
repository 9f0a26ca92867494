/* A script engine asks for the bounds of its stack at each call into it: for the first thread of a program
   pthread_getattr_np reads and parses /proc/self/maps. twin: asked once. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static int fixed; static uintptr_t known;
static uintptr_t stack_limit(void)
{
	if (fixed && known) return known;
	pthread_attr_t attr; void *low; size_t size;
	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstack(&attr, &low, &size);
	pthread_attr_destroy(&attr);
	return known = (uintptr_t)low + 65536;
}
static unsigned long evaluate(unsigned long x, int depth)
{
	char here;
	if ((uintptr_t)&here < known) abort();
	for (int i = 0; i < 400; i++) x = x * 6364136223846793005UL + depth;
	return depth ? evaluate(x, depth - 1) ^ x : x;
}
static unsigned long call_script(unsigned long x) { stack_limit(); return evaluate(x, 20); }
int main(int argc, char **argv)
{
	double s = argc > 1 ? atof(argv[1]) : 3, end = now() + s; fixed = argc > 2 && !strcmp(argv[2], "twin");
	/* Modules of the engine. */
	for (int i = 0; i < 200; i++) mmap(0, 8192, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long calls = 0; unsigned long x = 1;
	for (; now() < end; calls++) x = call_script(x);
	printf("%.0f calls/s (%lu)\n", calls / s, x % 10);
	return 0;
}
