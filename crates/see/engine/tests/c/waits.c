/*
 * Two threads. One computes, the other waits for it: at a barrier, for a condition, for a semaphore that is a job queue,
 * for a semaphore, a mutex or a lock made of a condition that the first holds; or `phases`: a barrier for 1.8 s, then a mutex for 1.2 s.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t jobs, token;
static int turn;

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
		;
}

static void pause_ms(long ms)
{
	struct timespec t = { 0, ms * 1000000 };

	nanosleep(&t, NULL);
}

static void at_barrier(int first)
{
	/* The barrier's word passes through all small values. */
	for (int i = 0; i < 8; i++) {
		if (first)
			compute(0.15);
		pthread_barrier_wait(&barrier);
	}
}

static void at_condition(int first)
{
	for (int i = 1; i <= 8; i++) {
		if (first) {
			compute(0.15);
			pthread_mutex_lock(&mutex);
			turn = i;
			pthread_cond_signal(&cond);
			pthread_mutex_unlock(&mutex);
		} else {
			pthread_mutex_lock(&mutex);
			while (turn < i)
				pthread_cond_wait(&cond, &mutex);
			pthread_mutex_unlock(&mutex);
		}
	}
}

static void at_queue(int first)
{
	for (int i = 0; i < 8; i++) {
		if (first) {
			compute(0.15);
			sem_post(&jobs);
		} else {
			sem_wait(&jobs);
		}
	}
}

/* The memory of a mutex becomes that of a semaphore, which is a job queue. */
static union {
	pthread_mutex_t mutex;
	sem_t jobs;
} word = { PTHREAD_MUTEX_INITIALIZER };

static void in_two_uses(int first)
{
	if (!first)
		pause_ms(5);
	for (int i = 0; i < 10; i++) {
		pthread_mutex_lock(&word.mutex);
		compute(0.03);
		pthread_mutex_unlock(&word.mutex);
		pause_ms(1);
	}
	if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
		pthread_mutex_destroy(&word.mutex);
		sem_init(&word.jobs, 0, 0);
	}
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 20; i++) {
		if (first) {
			compute(0.15);
			sem_post(&word.jobs);
		} else {
			sem_wait(&word.jobs);
		}
	}
}

/* Each in turn holds it and computes, while the other waits. */
static void at_semaphore(int first)
{
	if (!first)
		pause_ms(5);
	for (int i = 0; i < 20; i++) {
		sem_wait(&token);
		compute(0.03);
		sem_post(&token);
		pause_ms(1);
	}
}

/* A lock made of a condition: the thread that posts it is the one that held it. */
static int owned;

__attribute__((noinline)) static void acquire_it(void)
{
	pthread_mutex_lock(&mutex);
	while (owned)
		pthread_cond_wait(&cond, &mutex);
	owned = 1;
	pthread_mutex_unlock(&mutex);
}

static void release_it(void)
{
	pthread_mutex_lock(&mutex);
	owned = 0;
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
}

static void at_condition_lock(int first)
{
	if (!first)
		pause_ms(5);
	for (int i = 0; i < 60; i++) {
		acquire_it();
		compute(0.02);
		release_it();
		pause_ms(1);
	}
}

static void at_mutex(int first)
{
	if (!first)
		pause_ms(5);
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&mutex);
		compute(0.03);
		pthread_mutex_unlock(&mutex);
		pause_ms(1);
	}
}

static void in_phases(int first)
{
	if (first) {
		compute(1.8);
		pthread_mutex_lock(&mutex);
		pthread_barrier_wait(&barrier);
		compute(1.2);
		pthread_mutex_unlock(&mutex);
	} else {
		pthread_barrier_wait(&barrier);
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	}
}

static void (*part)(int);

static void *second(void *unused)
{
	part(0);
	return unused;
}

int main(int count, char **args)
{
	static const struct {
		const char *name;
		void (*part)(int);
	} parts[] = {
		{ "barrier", at_barrier }, { "condition", at_condition }, { "queue", at_queue },
		{ "semaphore", at_semaphore }, { "mutex", at_mutex }, { "phases", in_phases },
		{ "reused", in_two_uses }, { "condition_lock", at_condition_lock },
	};
	pthread_t thread;

	for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (count == 2 && !strcmp(args[1], parts[i].name))
			part = parts[i].part;
	if (!part)
		return 2;
	pthread_barrier_init(&barrier, NULL, 2);
	sem_init(&jobs, 0, 0);
	sem_init(&token, 0, 1);
	if (pthread_create(&thread, NULL, second, NULL))
		return 3;
	part(1);
	pthread_join(thread, NULL);
	return 0;
}
