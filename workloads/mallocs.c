/*
 * mallocs THREADS ROUNDS: threads that allocate buffers of 40 to 600 KiB, write a byte of each page, and free them in
 * another order, as servers do with requests and answers. The kernel makes and takes back nearly every page again and
 * again where malloc gives freed memory back at once. Tells buffers a second.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define HELD 16

static int rounds;

static void *work(void *arg)
{
	unsigned long random = (unsigned long)arg + 1;
	char *held[HELD] = { NULL };

	for (int i = 0; i < rounds; i++) {
		random = random * 6364136223846793005 + 1442695040888963407;
		char **slot = &held[(random >> 40) % HELD];
		size_t size = (40 + (random >> 50) % 560) << 10;

		free(*slot);
		*slot = malloc(size);
		if (!*slot)
			abort();
		for (size_t at = 0; at < size; at += 4096)
			((volatile char *)*slot)[at] = 1;
	}
	for (int i = 0; i < HELD; i++)
		free(held[i]);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 0;
	pthread_t thread[256];
	struct timespec begin, end;

	rounds = argc > 2 ? atoi(argv[2]) : 0;
	if (threads < 1 || threads > 256 || rounds < 1) {
		fprintf(stderr, "usage: mallocs THREADS ROUNDS\n");
		return 2;
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (long i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, work, (void *)i))
			return perror("mallocs: pthread_create"), 1;
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%.0f buffers a second\n",
	       threads * (double)rounds / (end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9));
	return 0;
}
