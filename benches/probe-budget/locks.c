/*
 * Threads that take one mutex of libncpu as fast as they can. Prints how often a second.
 * Usage: locks THREADS SECONDS
 */
#include <ncpu.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static ncpu_mutex_t mutex;
static unsigned long counter;
static volatile int stop;

static void *work(void *unused)
{
	(void)unused;
	while (!stop) {
		ncpu_mutex_lock(&mutex);
		for (volatile int i = 0; i < 20; i++)
			;
		counter++;
		ncpu_mutex_unlock(&mutex);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int count = argc > 2 ? atoi(argv[1]) : 0;
	double seconds = argc > 2 ? atof(argv[2]) : 0;
	struct timespec from, to, length = { (time_t)seconds, (long)((seconds - (long)seconds) * 1e9) };

	if (count < 1 || count > 64)
		return 1;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	nanosleep(&length, NULL);
	stop = 1;
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%.0f\n", counter / (to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9));
	return 0;
}
