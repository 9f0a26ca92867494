#define _GNU_SOURCE
// What a lock and its unlock take, and how many several threads do: locks KIND | locks torture THREADS THINK.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MANY = 8000000, MOST = 64 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;
static int think;
static long ops[MOST * 16];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *work(void *p)
{
	long n = 0;
	while (!stop) {
		pthread_mutex_lock(&mutex);
		for (volatile int k = 0; k < 20; k++)
			;
		pthread_mutex_unlock(&mutex);
		for (volatile int k = 0; k < think; k++)
			;
		n++;
	}
	ops[16 * (long)p] = n;
	return NULL;
}

static void *nothing(void *p) { return p; }

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	pthread_t t[MOST];
	if (!strcmp(kind, "torture") && argc > 3) {
		int threads = atoi(argv[2]);
		think = atoi(argv[3]);
		long sum = 0;
		for (long i = 0; i < threads && i < MOST; i++)
			pthread_create(&t[i], NULL, work, (void *)i);
		nanosleep(&(struct timespec){1, 0}, NULL);
		stop = 1;
		for (long i = 0; i < threads && i < MOST; i++) {
			pthread_join(t[i], NULL);
			sum += ops[16 * i];
		}
		printf("%ld\n", sum);
		return 0;
	}
	// libc does without atomic instructions until there is a second thread.
	if (strcmp(kind, "alone")) {
		pthread_create(&t[0], NULL, nothing, NULL);
		pthread_join(t[0], NULL);
	}
	pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
	pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	sem_t semaphore;
	sem_init(&semaphore, 0, 1);
	double from = now();
	for (long i = 0; i < MANY; i++) {
		switch (kind[0]) {
		case 'm': case 'a': pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex); break;
		case 'r': pthread_mutex_lock(&recursive); pthread_mutex_unlock(&recursive); break;
		case 's': pthread_rwlock_rdlock(&rwlock); pthread_rwlock_unlock(&rwlock); break;
		case 'w': pthread_rwlock_wrlock(&rwlock); pthread_rwlock_unlock(&rwlock); break;
		case 'c': sem_wait(&semaphore); sem_post(&semaphore); break;
		default: return 2;
		}
	}
	printf("%.3f\n", (now() - from) / MANY);
	return 0;
}
