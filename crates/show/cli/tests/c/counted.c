/*
 * counted THREADS SECONDS: threads whose units of work take one mutex four times each. Tells units a second, how often the
 * mutex was taken for each, and how much CPU time passed while it was held, as the threads themselves counted and timed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TURNS 4

static pthread_mutex_t counted_lock = PTHREAD_MUTEX_INITIALIZER;
/* Of all threads, under the mutex. */
static unsigned long taken;
static double held;
static atomic_ulong units;
static atomic_int over;

static double cpu_time(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Never twice for as long: threads that compute for equal times come to a lock in turn, and hardly ever wait. */
static void compute(unsigned *seed, unsigned n)
{
	*seed = *seed * 1664525 + 1013904223;
	n = (unsigned long)n * 2 * (*seed >> 8) >> 24;
	for (volatile unsigned i = 0; i < n; i++)
		;
}

static void *work(void *arg)
{
	unsigned seed = (unsigned long)pthread_self() >> 12;

	while (!atomic_load(&over)) {
		for (int i = 0; i < TURNS; i++) {
			compute(&seed, 40000);
			pthread_mutex_lock(&counted_lock);
			double begin = cpu_time();
			compute(&seed, 20000);
			taken++;
			held += cpu_time() - begin;
			pthread_mutex_unlock(&counted_lock);
		}
		atomic_fetch_add(&units, 1);
	}
	return arg;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 0;
	double seconds = argc > 2 ? atof(argv[2]) : 0;
	pthread_t thread[64];

	if (threads < 1 || threads > 64 || seconds <= 0) {
		fprintf(stderr, "usage: counted THREADS SECONDS\n");
		return 2;
	}
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, work, NULL))
			return perror("counted: pthread_create"), 1;
	usleep(seconds * 1e6);
	atomic_store(&over, 1);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("%.1f units/s, %.3f turns, %.1f ns held\n", units / seconds, (double)taken / units,
	       held / taken * 1e9);
	return 0;
}
