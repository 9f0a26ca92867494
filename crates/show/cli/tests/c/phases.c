/*
 * Three phases, each as long as told: one thread computes; two fight for a mutex, which each holds most of the time; two
 * touch fresh memory. Says when each began and ended, in seconds since it started.
 *
 *   phases SECONDS
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define CHUNK (4 << 20)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static double began, until;
static volatile unsigned long sum;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void compute(double seconds)
{
	double end = now() + seconds;

	while (now() < end)
		for (int i = 0; i < 1000; i++)
			sum += i;
}

static void *fight(void *unused)
{
	while (now() < until) {
		pthread_mutex_lock(&mutex);
		compute(20e-6);
		pthread_mutex_unlock(&mutex);
		compute(2e-6);
	}
	return NULL;
}

static void *touch(void *unused)
{
	while (now() < until) {
		char *memory = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (memory == MAP_FAILED)
			exit(1);
		madvise(memory, CHUNK, MADV_NOHUGEPAGE);
		for (long i = 0; i < CHUNK && now() < until; i += 4096)
			memory[i] = 1;
		munmap(memory, CHUNK);
	}
	return NULL;
}

static void both(const char *name, void *(*work)(void *), double seconds)
{
	double from = now();
	pthread_t other;

	until = from + seconds;
	if (pthread_create(&other, NULL, work, NULL))
		exit(1);
	work(NULL);
	pthread_join(other, NULL);
	printf("%s %.3f %.3f\n", name, from - began, now() - began);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;

	began = now();
	compute(seconds);
	printf("serial %.3f %.3f\n", 0.0, now() - began);
	both("lock", fight, seconds);
	both("memory", touch, seconds);
	return 0;
}
