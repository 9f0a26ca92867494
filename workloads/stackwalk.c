/*
 * stackwalk THREADS ROUNDS [SECONDS]: each thread puts a node that lies on its stack into a list and sleeps, as waiters of a
 * queue lock do; then one thread walks the list. Tells the nanoseconds of a node, the best of ROUNDS. Stacks begin alike, so all
 * nodes compete for one set of the first-level cache. Threads and 20 locks that compete for another set stay for SECONDS
 * more, to be looked at.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct node {
	struct node *next;
	long value;
};

/* A page each, and so at one offset of a page. */
struct page {
	pthread_mutex_t lock;
	char rest[4096 - sizeof(pthread_mutex_t)];
};
#define PLANTED(n) __attribute__((aligned(4096))) struct page planted_##n = { .lock = PTHREAD_MUTEX_INITIALIZER };
PLANTED(0) PLANTED(1) PLANTED(2) PLANTED(3) PLANTED(4) PLANTED(5) PLANTED(6) PLANTED(7) PLANTED(8) PLANTED(9)
PLANTED(10) PLANTED(11) PLANTED(12) PLANTED(13) PLANTED(14) PLANTED(15) PLANTED(16) PLANTED(17) PLANTED(18) PLANTED(19)

static struct node *list;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;

static void *wait_in_line(void *arg)
{
	struct node node = { .value = (long)arg };

	pthread_mutex_lock(&mutex);
	node.next = list;
	list = &node;
	pthread_mutex_unlock(&mutex);
	pthread_barrier_wait(&all);
	pthread_barrier_wait(&all);
	return NULL;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 0, rounds = argc > 2 ? atoi(argv[2]) : 0;
	const int walks = 20000;
	double best = 1e30;
	pthread_t thread;

	if (threads < 1 || rounds < 1) {
		fprintf(stderr, "usage: stackwalk THREADS ROUNDS [SECONDS]\n");
		return 2;
	}
	pthread_barrier_init(&all, NULL, threads + 1);
	for (long i = 0; i < threads; i++)
		if (pthread_create(&thread, NULL, wait_in_line, (void *)i))
			return perror("stackwalk: pthread_create"), 1;
	pthread_barrier_wait(&all);
	for (int round = 0; round < rounds; round++) {
		double begin = now();

		for (int walk = 0; walk < walks; walk++)
			/* Read again each time, one after the other. */
			for (struct node *volatile *at = (struct node *volatile *)&list; *at;)
				at = (struct node *volatile *)&(*at)->next;
		double ns = (now() - begin) / walks / threads;
		if (ns < best)
			best = ns;
	}
	printf("%.2f ns a node\n", best);
	fflush(stdout);
	usleep(argc > 3 ? atof(argv[3]) * 1e6 : 0);
	pthread_barrier_wait(&all);
	return 0;
}
