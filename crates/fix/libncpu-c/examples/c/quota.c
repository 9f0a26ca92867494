// A quota that workers share: at most LIMIT units are in use, and no worker is refused while enough are free.
//
//     gcc -pthread quota.c $(pkg-config --cflags --libs ncpu) -o quota && ./quota
#include <ncpu.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WORKERS = 8, ROUNDS = 10000, LIMIT = 20 };

static ncpu_bounded_t *quota;
static ncpu_counter_t *refused;
static ncpu_mutex_t lock; // Zeroed is initialised.
static long log_lines;

static void *work(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		int n = 1 + i % 4;
		if (ncpu_bounded_take(quota, n) != 0) {
			ncpu_counter_add(refused, 1);
			continue;
		}
		ncpu_mutex_lock(&lock);
		log_lines++;
		ncpu_mutex_unlock(&lock);
		ncpu_bounded_give(quota, n);
	}
	return unused;
}

int main(void)
{
	pthread_t workers[WORKERS];
	quota = ncpu_bounded_create(LIMIT);
	refused = ncpu_counter_create();
	if (!quota || !refused) {
		perror("quota");
		return 1;
	}
	for (int i = 0; i < WORKERS; i++) {
		int error = pthread_create(&workers[i], NULL, work, NULL);
		if (error) {
			fprintf(stderr, "quota: thread %d: %s\n", i, strerror(error));
			return 1;
		}
	}
	for (int i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
	printf("%ld granted, %ld refused, %llu in use\n", log_lines, (long)ncpu_counter_sum(refused),
	       (unsigned long long)ncpu_bounded_read(quota));
	ncpu_bounded_destroy(quota);
	ncpu_counter_destroy(refused);
	return 0;
}
