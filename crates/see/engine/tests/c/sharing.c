// Two threads use words of one cache line, or of two. The cost of sharing the line is the time beyond that with a line each.
// usage: sharing HOW SECONDS FILE
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static struct {
	uint64_t hits, misses;
} counters[2] __attribute__((aligned(64)));
static struct {
	uint64_t hits;
} __attribute__((aligned(64))) own[2];
static uint64_t references __attribute__((aligned(64)));
static const char *how;
static double until;

struct times {
	double part, alone;
	uint64_t of_part, of_alone;
};

static __attribute__((noinline)) uint64_t work(uint64_t x)
{
	for (int i = 0; i < 15; i++)
		x = (x * 5 ^ x >> 7) + 3;
	return x;
}

static __attribute__((noinline)) uint64_t shared(uint64_t x, int me, int n)
{
	if (!strcmp(how, "false"))
		for (int i = 0; i < n; i++)
			x = work(x), x += (*(volatile uint64_t *)&counters[me].hits += x & 1) & 1;
	else if (!strcmp(how, "atomic"))
		for (int i = 0; i < n; i++)
			x = work(x), x += __atomic_fetch_add(&references, x & 1, __ATOMIC_SEQ_CST) & 1;
	else
		for (int i = 0; i < n; i++)
			x = work(x), x += __atomic_fetch_add(&own[me].hits, x & 1, __ATOMIC_SEQ_CST) & 1;
	return x;
}

static __attribute__((noinline)) uint64_t alone(uint64_t x, int me, int n)
{
	for (int i = 0; i < n; i++)
		x = work(x), x += (*(volatile uint64_t *)&own[me].hits += x & 1) & 1;
	return x;
}

static void *thread(void *arg)
{
	struct times *t = arg;
	static struct times *first;
	int me = __atomic_exchange_n(&first, t, __ATOMIC_SEQ_CST) != NULL;
	uint64_t x = me;

	while (now() < until) {
		double begin = now();
		x = shared(x, me, 20000), t->of_part += 20000;
		t->part += now() - begin;
		begin = now();
		x = alone(x, me, 2000), t->of_alone += 2000;
		t->alone += now() - begin;
	}
	own[me].hits += x;
	return NULL;
}

int main(int argc, char **argv)
{
	struct times times[2] = { 0 };
	pthread_t threads[2];

	if (argc != 4)
		return 2;
	how = argv[1];
	until = now() + atof(argv[2]);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, thread, &times[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	double each = (times[0].part + times[1].part) / (times[0].of_part + times[1].of_part);
	double without = (times[0].alone + times[1].alone) / (times[0].of_alone + times[1].of_alone);
	FILE *f = fopen(argv[3], "w");
	fprintf(f, "%f %f\n", each > without ? 1 - without / each : 0, times[0].part + times[1].part);
	return fclose(f);
}
