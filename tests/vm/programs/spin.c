/* spin THREADS SECONDS: keeps THREADS threads on CPU for SECONDS of elapsed time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double seconds;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *spin(void *end)
{
	while (now() < *(double *)end)
		for (volatile int i = 0; i < 10000; i++)
			;
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 0;
	pthread_t thread;

	seconds = argc > 2 ? atof(argv[2]) : 0;
	if (threads < 1 || seconds <= 0) {
		fprintf(stderr, "usage: spin THREADS SECONDS\n");
		return 2;
	}
	double end = now() + seconds;
	for (int i = 1; i < threads; i++)
		if (pthread_create(&thread, NULL, spin, &end))
			return perror("spin: pthread_create"), 1;
	spin(&end);
	return 0;
}
