/*
 * held KIND FILE: two threads that take one lock, each time after a pause of its own length, until they have waited some
 * hundred times, or for 5 s; writes how long it is held on average, in microseconds, to FILE.
 *   mutex   a mutex of pthreads, held asleep: the time is measured while it is held
 *   file    the kernel's mutex of a file's position, held through a read: measured while nobody else reads
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Read to the beginning of a page: some processors are ten times slower at filling memory that begins elsewhere. */
#define AT_ONCE (512 << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double held, taken, end;
static int file, of_file;
static volatile int waited;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void sleep_us(double us)
{
	struct timespec t = { 0, (long)(us * 1e3) };

	nanosleep(&t, NULL);
}

static void take_mutex(void)
{
	if (pthread_mutex_trylock(&lock)) {
		waited++;
		pthread_mutex_lock(&lock);
	}
	double from = now();
	sleep_us(400);
	held += now() - from;
	taken++;
	pthread_mutex_unlock(&lock);
}

static void take_file(char *buffer)
{
	double from = now();

	if (read(file, buffer, AT_ONCE) != AT_ONCE)
		exit(1);
	waited += held > 0 && now() - from > 1.3 * held;
}

static void *work(void *arg)
{
	unsigned seed = *(int *)arg + 1;
	char *buffer = aligned_alloc(4096, AT_ONCE);

	memset(buffer, 1, AT_ONCE);
	while (now() < end && waited < 600) {
		double pause = rand_r(&seed) / (RAND_MAX + 1.0);
		if (of_file) {
			/* On its CPU: who sleeps wakes with the other. */
			double until = now() + pause * 400e-6;
			while (now() < until)
				;
			take_file(buffer);
		} else {
			sleep_us(50 + pause * 1500);
			take_mutex();
		}
	}
	free(buffer);
	return NULL;
}

/* Time of a read by a single thread. */
static double alone(void)
{
	char *buffer = aligned_alloc(4096, AT_ONCE);
	double all = 0;

	memset(buffer, 1, AT_ONCE);
	for (int i = 0; i < 200; i++) {
		double from = now();
		take_file(buffer);
		all += now() - from;
	}
	free(buffer);
	return all / 200;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	of_file = !strcmp(argv[1], "file");
	if (of_file) {
		/* A file of zeros without end; opened by its name, so that its position has a lock. */
		char name[64];
		int memory = memfd_create("zeros", 0);
		if (memory < 0 || ftruncate(memory, 1ll << 42))
			return 1;
		snprintf(name, sizeof name, "/proc/self/fd/%d", memory);
		file = open(name, O_RDONLY);
		if (file < 0)
			return 1;
	}
	pthread_t threads[2];
	int numbers[2] = { 0, 1 };
	double before = of_file ? alone() : 0;
	if (of_file)
		held = before;
	end = now() + 5;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, work, &numbers[i]))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	waited = 0;
	double us = 1e6 * (of_file ? (before + alone()) / 2 : held / taken);
	FILE *out = fopen(argv[2], "w");
	return !out || fprintf(out, "%f\n", us) < 0 || fclose(out);
}
