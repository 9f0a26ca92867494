/*
 * Threads of one process map, populate and unmap memory, as fast as they can: they sleep for its lock.
 * Prints mappings a second, and the seconds that the threads slept by their own clocks: the time that they neither ran nor stood
 * on a run queue.
 * usage: sleepers THREADS SECONDS
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define BYTES (1 << 20)

static double until;
static unsigned long maps;
static pthread_mutex_t sums = PTHREAD_MUTEX_INITIALIZER;
static double slept;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Seconds that this thread ran or stood on a run queue. */
static double ran(void)
{
	unsigned long long on = 0, queued = 0;
	FILE *f = fopen("/proc/thread-self/schedstat", "r");

	if (!f || fscanf(f, "%llu %llu", &on, &queued) != 2)
		exit(1);
	fclose(f);
	return (on + queued) / 1e9;
}

static void *work(void *unused)
{
	double began = now(), before = ran();
	unsigned long n = 0;

	for (; now() < until; n++) {
		void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (at == MAP_FAILED)
			exit(1);
		munmap(at, BYTES);
	}
	pthread_mutex_lock(&sums);
	maps += n;
	slept += now() - began - (ran() - before);
	pthread_mutex_unlock(&sums);
	return unused;
}

int main(int argc, char **argv)
{
	int threads = argc > 2 ? atoi(argv[1]) : 0;
	double seconds = argc > 2 ? atof(argv[2]) : 0;
	pthread_t *t = threads > 0 ? calloc(threads, sizeof(*t)) : NULL;

	if (!t || seconds <= 0) {
		fprintf(stderr, "usage: sleepers THREADS SECONDS\n");
		return 2;
	}
	until = now() + seconds;
	for (int i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, work, NULL))
			return 1;
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	printf("%.0f maps/s, %.3f s asleep\n", maps / seconds, slept);
	return 0;
}
