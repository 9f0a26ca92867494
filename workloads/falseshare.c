/* falseshare: two programs from one source, alike but for the padding that `ncpu lines` proposes.
 *
 * As found, a queue's two locks and its two counts lie in one line, and so do the counters of four
 * threads; built with -DPADDED each has a line of its own. A thread only ever writes what is its own, so
 * no word is shared, only lines are.
 *
 *   falseshare [MILLISECONDS]     prints a line for each of the two: name and million operations a second
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#ifdef PADDED
#define OWN_LINE __attribute__((aligned(64)))
#else
#define OWN_LINE
#endif

#define MOST 64

/* What each thread has done, by its number. */
struct worker {
	atomic_ulong done;
	unsigned long id;
} OWN_LINE;
static struct worker workers[MOST];

/* The two ends of a queue, each with its lock and its count: used by different threads. */
static pthread_spinlock_t put_lock OWN_LINE;
static atomic_ulong put_count OWN_LINE;
static pthread_spinlock_t get_lock OWN_LINE;
static atomic_ulong get_count OWN_LINE;

/* Read by all in the loop, written twice: away from what is measured. */
static struct {
	atomic_int run;
	char rest[124];
} control __attribute__((aligned(128)));

static void count(unsigned long me)
{
	struct worker *w = &workers[me];
	while (atomic_load_explicit(&control.run, memory_order_relaxed))
		atomic_fetch_add_explicit(&w->done, 1, memory_order_relaxed);
}

static void queue(unsigned long me)
{
	pthread_spinlock_t *lock = me % 2 ? &get_lock : &put_lock;
	atomic_ulong *ops = me % 2 ? &get_count : &put_count;
	while (atomic_load_explicit(&control.run, memory_order_relaxed)) {
		pthread_spin_lock(lock);
		atomic_fetch_add_explicit(ops, 1, memory_order_relaxed);
		pthread_spin_unlock(lock);
	}
}

struct start {
	void (*work)(unsigned long);
	unsigned long me;
	int cpu;
};

static void *thread(void *arg)
{
	struct start *start = arg;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(start->cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
	start->work(start->me);
	return NULL;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Runs the work on `n` CPUs, a thread each; seconds it took. */
static double run(void (*work)(unsigned long), int n, const int *cpus, long ms)
{
	pthread_t threads[MOST];
	struct start starts[MOST];
	atomic_store(&control.run, 1);
	double begin = now();
	for (int i = 0; i < n; i++) {
		starts[i] = (struct start){ work, i, cpus[i] };
		if (pthread_create(&threads[i], NULL, thread, &starts[i])) {
			perror("falseshare: pthread_create");
			exit(1);
		}
	}
	usleep(ms * 1000);
	atomic_store(&control.run, 0);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return now() - begin;
}

int main(int argc, char **argv)
{
	long ms = argc > 1 ? atol(argv[1]) : 500;
	int cpus[MOST], n = 0;
	cpu_set_t allowed;
	if (ms <= 0 || argc > 2) {
		fprintf(stderr, "usage: falseshare [MILLISECONDS]\n");
		return 2;
	}
	sched_getaffinity(0, sizeof allowed, &allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE && n < 4; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			cpus[n++] = cpu;
	if (n < 2) {
		fprintf(stderr, "falseshare: takes two CPUs\n");
		return 1;
	}
	pthread_spin_init(&put_lock, 0);
	pthread_spin_init(&get_lock, 0);

	double seconds = run(count, n, cpus, ms);
	unsigned long ops = 0;
	for (int i = 0; i < n; i++)
		ops += atomic_load(&workers[i].done);
	printf("counters %.1f\n", ops / seconds / 1e6);

	/* Two threads: a lock each, so that nobody ever waits for one. */
	seconds = run(queue, 2, cpus, ms);
	printf("queue %.1f\n", (atomic_load(&put_count) + atomic_load(&get_count)) / seconds / 1e6);
	return 0;
}
