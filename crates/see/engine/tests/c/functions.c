/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Calls a function in threads and times each call itself: THREADS CALLS FILE
 *
 * Of each thread's calls one in 10 sleeps, one in 10 waits for a mutex that another thread holds while it sleeps, and the others
 * burn CPU; each calls itself once. One in 25 is left by longjmp, and each thread ends in a call.
 *
 * It writes one line to FILE: calls that returned, their 50th and 99th percentile in us, their seconds in all, on CPU, asleep and waiting
 * for the mutex, and the calls that were left by longjmp and in which a thread ended.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST 100000
#define BURN 1000000
#define SLEEP 6000000
#define HELD 8000000

static double took[MOST];
static double burned, slept, waited;
static int returned, left, ended;
static pthread_mutex_t book = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t hold, held;
static int calls;
static __thread jmp_buf out;
static __thread double slept_here, waited_here;

static double clock_of(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void rest(long ns)
{
	struct timespec t = { .tv_nsec = ns };

	nanosleep(&t, NULL);
}

static void *holder(void *arg)
{
	for (;;) {
		sem_wait(&hold);
		pthread_mutex_lock(&lock);
		sem_post(&held);
		rest(HELD);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

/* The function that is followed goes on here by a jump. */
__attribute__((noinline)) int finish(int n)
{
	double began = clock_of(CLOCK_MONOTONIC);

	if (n % 10 == 3) {
		rest(SLEEP);
		slept_here += clock_of(CLOCK_MONOTONIC) - began;
	}
	return n;
}

__attribute__((noinline)) int serve(int n, int depth)
{
	if (depth && serve(n, depth - 1) < 0)
		return -1;
	if (depth)
		return finish(n);
	if (n % 25 == 1)
		longjmp(out, 1);
	if (n % 10 == 7) {
		sem_post(&hold);
		sem_wait(&held);
		double began = clock_of(CLOCK_MONOTONIC);
		pthread_mutex_lock(&lock);
		waited_here += clock_of(CLOCK_MONOTONIC) - began;
		pthread_mutex_unlock(&lock);
	} else {
		double until = clock_of(CLOCK_THREAD_CPUTIME_ID) + BURN / 1e9;
		while (clock_of(CLOCK_THREAD_CPUTIME_ID) < until)
			;
	}
	if (n < 0) {
		pthread_mutex_lock(&book);
		ended++;
		pthread_mutex_unlock(&book);
		pthread_exit(NULL);
	}
	return 0;
}

static void *worker(void *arg)
{
	for (int n = 0; n < calls; n++) {
		slept_here = waited_here = 0;
		if (setjmp(out)) {
			pthread_mutex_lock(&book);
			left++;
			pthread_mutex_unlock(&book);
			continue;
		}
		double cpu = clock_of(CLOCK_THREAD_CPUTIME_ID), began = clock_of(CLOCK_MONOTONIC);
		serve(n, 1);
		double all = clock_of(CLOCK_MONOTONIC) - began;
		cpu = clock_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
		pthread_mutex_lock(&book);
		took[returned++] = all * 1e6;
		burned += cpu;
		slept += slept_here;
		waited += waited_here;
		pthread_mutex_unlock(&book);
	}
	serve(-1, 1);
	return arg;
}

static int larger(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int threads = argc > 3 ? atoi(argv[1]) : 0;
	pthread_t of[16], other;

	calls = threads ? atoi(argv[2]) : 0;
	if (threads < 1 || threads > 16 || calls < 1 || threads * calls > MOST)
		return 2;
	sem_init(&hold, 0, 0);
	sem_init(&held, 0, 0);
	pthread_create(&other, NULL, holder, NULL);
	for (int i = 0; i < threads; i++)
		pthread_create(&of[i], NULL, worker, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(of[i], NULL);
	qsort(took, returned, sizeof(took[0]), larger);
	double sum = 0;
	for (int i = 0; i < returned; i++)
		sum += took[i] / 1e6;
	FILE *to = fopen(argv[3], "w");
	if (!to)
		return 1;
	fprintf(to, "%d %.1f %.1f %.6f %.6f %.6f %.6f %d %d\n", returned, took[returned / 2], took[returned * 99 / 100], sum,
		burned, slept, waited, left, ended);
	return fclose(to) ? 1 : 0;
}
