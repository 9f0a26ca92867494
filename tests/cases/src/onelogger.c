// Four workers put lines into a queue of 64; one thread formats and writes them, and is the bottleneck.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t room = PTHREAD_COND_INITIALIZER, items = PTHREAD_COND_INITIALIZER;
static int queue[64], inside, over; static double end;
static volatile unsigned sums[5][64];
static void format_line(int item) { for (int i = 0; i < 60000; i++) sums[4][0] += item * i; }
static void *logger(void *x) {
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!inside && !over) pthread_cond_wait(&items, &lock);
		if (over) { pthread_mutex_unlock(&lock); return x; }
		int item = queue[--inside];
		pthread_cond_signal(&room);
		pthread_mutex_unlock(&lock);
		format_line(item);
	}
}
static void submit_line(int item) {
	pthread_mutex_lock(&lock);
	while (inside == 64 && now() < end) pthread_cond_wait(&room, &lock);
	if (inside < 64) queue[inside++] = item;
	pthread_cond_signal(&items);
	pthread_mutex_unlock(&lock);
}
static void *worker(void *x) { long k = (long)x; while (now() < end) { for (int i = 0; i < 3000; i++) sums[k][0] += i; submit_line(1); } pthread_cond_broadcast(&room); return x; }
int main(int argc, char **argv) {
	pthread_t t[5]; end = now() + atof(argv[1]); (void)argc;
	pthread_create(&t[4], 0, logger, 0);
	for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, worker, (void *)(long)i);
	for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
	over = 1; pthread_cond_broadcast(&items); pthread_join(t[4], 0);
	return 0;
}
