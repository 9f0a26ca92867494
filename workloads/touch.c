/*
 * touch: maps 256 MiB, touches all of it or little of it, and gives it back; as often as it can.
 *
 *   touch dense|sparse SECONDS
 *
 * dense writes to each page of 4 KiB, sparse to one byte in each 2 MiB. Both fault fresh memory and nothing else, so a
 * report of either has the same cause, and huge pages make one faster and the other slower. Prints rounds/s.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define ROOM (256ul << 20)

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int count, char **args)
{
	if (count != 3 || (strcmp(args[1], "dense") && strcmp(args[1], "sparse"))) {
		fprintf(stderr, "usage: touch dense|sparse SECONDS\n");
		return 2;
	}
	size_t step = strcmp(args[1], "dense") ? 2ul << 20 : 4096;
	double begin = now(), seconds = atof(args[2]);
	long rounds = 0;

	while (now() - begin < seconds) {
		volatile char *room = mmap(0, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (room == MAP_FAILED)
			return 1;
		for (size_t at = 0; at < ROOM; at += step)
			room[at] = 1;
		munmap((void *)room, ROOM);
		rounds++;
	}
	printf("%.2f rounds/s\n", rounds / (now() - begin));
	return 0;
}
