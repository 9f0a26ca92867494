/*
 * mutex THREADS SECONDS: THREADS threads take turns with one pthread mutex, `planted_lock`, and sleep a millisecond
 * with it, so that all but one of them wait at any time.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_mutex_t planted_lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *turns(void *end)
{
	const struct timespec millisecond = { .tv_nsec = 1000000 };

	while (now() < *(double *)end) {
		pthread_mutex_lock(&planted_lock);
		nanosleep(&millisecond, NULL);
		pthread_mutex_unlock(&planted_lock);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 0;
	double seconds = argc > 2 ? atof(argv[2]) : 0;

	if (threads < 1 || seconds <= 0) {
		fprintf(stderr, "usage: mutex THREADS SECONDS\n");
		return 2;
	}
	double end = now() + seconds;
	pthread_t thread[threads];
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, turns, &end))
			return perror("mutex: pthread_create"), 1;
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	return 0;
}
