/*
 * Eight threads that do nothing but allocate and free. Writes into the file named last how long they were off CPU and did
 * not stand on a run queue, in seconds.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS 8
#define BLOCKS 2000

static double clock_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static double ends;
static double off[THREADS];
static int moves;

static double on_queues(void)
{
	unsigned long long ran, stood = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "r");

	if (!f || fscanf(f, "%llu %llu", &ran, &stood) != 2)
		exit(2);
	fclose(f);
	return stood * 1e-9;
}

static void *work(void *arg)
{
	unsigned n = (unsigned long)arg * 2654435761u;
	char *blocks[BLOCKS];
	double stood = on_queues();
	double began = clock_of(CLOCK_MONOTONIC), cpu = clock_of(CLOCK_THREAD_CPUTIME_ID);

	while (clock_of(CLOCK_MONOTONIC) < ends) {
		if (moves) {
			/* glibc copies what it moves under its lock. */
			for (int i = 0; i < 20; i++) {
				n = n * 1664525 + 1013904223;
				blocks[0] = malloc(20000 + (n >> 20));
				blocks[1] = malloc(100);
				blocks[0][0] = 1;
				blocks[0] = realloc(blocks[0], 60000 + (n >> 18));
				free(blocks[0]);
				free(blocks[1]);
			}
			continue;
		}
		for (int i = 0; i < BLOCKS; i++) {
			n = n * 1664525 + 1013904223;
			blocks[i] = malloc(2000 + (n >> 18));
		}
		for (int i = 0; i < BLOCKS; i++)
			free(blocks[i]);
	}
	double wall = clock_of(CLOCK_MONOTONIC) - began;
	off[(unsigned long)arg - 1] = wall - (clock_of(CLOCK_THREAD_CPUTIME_ID) - cpu) - (on_queues() - stood);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	double sum = 0;

	moves = argc > 2;
	ends = clock_of(CLOCK_MONOTONIC) + 1;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		sum += off[i];
	}
	FILE *out = fopen(argv[argc - 1], "w");
	if (!out)
		return 2;
	fprintf(out, "%.6f\n", sum);
	return fclose(out);
}
