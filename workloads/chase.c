/*
 * chase MIB MILLIONS: reads that depend on each other all over MIB of malloc's memory, MILLIONS times a million of them: each
 * misses the TLB where pages are small. Tells the nanoseconds of a read.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LINE 64

int main(int argc, char **argv)
{
	size_t lines = argc > 1 ? (size_t)atoi(argv[1]) * (1 << 20) / LINE : 0;
	long reads = argc > 2 ? atof(argv[2]) * 1e6 : 0;
	struct timespec begin, end;

	if (lines < 2 || lines & (lines - 1) || reads < 1) {
		fprintf(stderr, "usage: chase MIB MILLIONS (a power of two of MIB)\n");
		return 2;
	}
	struct { uint64_t next; char rest[LINE - 8]; } *memory = malloc(lines * LINE);
	if (!memory)
		return perror("chase"), 1;
	/* A permutation with one cycle: a full-period generator modulo a power of two. */
	for (size_t i = 0; i < lines; i++)
		memory[i].next = (i * 6364136223846793005u + 1442695040888963407u) & (lines - 1);
	uint64_t at = 0;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (long i = 0; i < reads; i++)
		at = ((volatile uint64_t *)&memory[at].next)[0];
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%.1f ns a read\n", ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / reads + 0 * at);
	return 0;
}
