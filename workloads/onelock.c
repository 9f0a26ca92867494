/*
 * onelock THREADS SECONDS: threads that take one mutex for a few instructions and do as little between, as a program does
 * that has one lock in its midst. Tells millions of turns a second.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long turns;
static atomic_int over;

static void *work(void *arg)
{
	while (!atomic_load_explicit(&over, memory_order_relaxed)) {
		pthread_mutex_lock(&lock);
		turns++;
		pthread_mutex_unlock(&lock);
		for (volatile int i = 0; i < 5; i++)
			;
	}
	return arg;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 0;
	double seconds = argc > 2 ? atof(argv[2]) : 0;
	pthread_t thread[256];

	if (threads < 1 || threads > 256 || seconds <= 0) {
		fprintf(stderr, "usage: onelock THREADS SECONDS\n");
		return 2;
	}
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, work, NULL))
			return perror("onelock: pthread_create"), 1;
	usleep(seconds * 1e6);
	atomic_store(&over, 1);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("%.2f million turns a second\n", turns / seconds / 1e6);
	return 0;
}
