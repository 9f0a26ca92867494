/* falseshare: two programs from one source, alike but for the padding that `ncpu lines` proposes.
 *
 * As found, a queue's two locks and its two counts lie in one line, and so do the counters of four
 * threads; built with -DPADDED each has a line of its own. A thread only ever writes what is its own, so
 * no word is shared, only lines are.
 *
 *   falseshare [MILLISECONDS]     prints a line for each of the two: name and million operations a second
 *
 * Threads work in bursts that they begin together, and the median is told of those that did begin within
 * 2 us of each other: so it also holds where other programs take the CPUs.
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
#define BURST 20000
#define BURSTS 20000

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

struct burst {
	double begin, seconds;
};

/* What starts bursts, away from what is measured. */
struct start {
	void (*work)(unsigned long);
	unsigned long me;
	int cpu, threads;
	size_t bursts;
	struct burst *burst;
	atomic_ulong ready __attribute__((aligned(128)));
} __attribute__((aligned(128)));
static struct start starts[MOST];
static struct {
	atomic_int run;
} control __attribute__((aligned(128)));

static void count(unsigned long me)
{
	struct worker *w = &workers[me];
	for (int i = 0; i < BURST; i++)
		atomic_fetch_add_explicit(&w->done, 1, memory_order_relaxed);
}

static void queue(unsigned long me)
{
	pthread_spinlock_t *lock = me % 2 ? &get_lock : &put_lock;
	atomic_ulong *ops = me % 2 ? &get_count : &put_count;
	for (int i = 0; i < BURST; i++) {
		pthread_spin_lock(lock);
		atomic_fetch_add_explicit(ops, 1, memory_order_relaxed);
		pthread_spin_unlock(lock);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Waits until all are here for the nth time; false when it is over. */
static int together(struct start *me, unsigned long nth)
{
	atomic_store(&me->ready, nth);
	for (int i = 0; i < me->threads; i++)
		while (atomic_load(&starts[i].ready) < nth)
			if (!atomic_load(&control.run))
				return 0;
	return 1;
}

static void *thread(void *arg)
{
	struct start *me = arg;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(me->cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
	for (unsigned long n = 1; me->bursts < BURSTS && together(me, n); n++) {
		double begin = now();
		me->work(me->me);
		me->burst[me->bursts++] = (struct burst){ begin, now() - begin };
	}
	return NULL;
}

static int ascending(const void *a, const void *b)
{
	const struct burst *x = a, *y = b;
	return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Keeps the bursts that all threads began together; how many those are. */
static size_t side_by_side(int n)
{
	size_t kept = 0, bursts = starts[0].bursts;
	for (int i = 1; i < n; i++)
		if (starts[i].bursts < bursts)
			bursts = starts[i].bursts;
	for (size_t b = 0; b < bursts; b++) {
		double first = starts[0].burst[b].begin, last = first;
		for (int i = 1; i < n; i++) {
			double begin = starts[i].burst[b].begin;
			first = begin < first ? begin : first;
			last = begin > last ? begin : last;
		}
		if (last - first > 2e-6)
			continue;
		for (int i = 0; i < n; i++)
			starts[i].burst[kept] = starts[i].burst[b];
		kept++;
	}
	return kept;
}

/* Runs the work on `n` CPUs, a thread each; prints what all did together in the median burst. */
static void run(const char *name, void (*work)(unsigned long), int n, const int *cpus, long ms)
{
	pthread_t threads[MOST];
	double ops = 0;
	atomic_store(&control.run, 1);
	for (int i = 0; i < n; i++) {
		struct burst *burst = malloc(BURSTS * sizeof *burst);
		starts[i] = (struct start){ .work = work, .me = i, .cpu = cpus[i], .threads = n, .burst = burst };
	}
	for (int i = 0; i < n; i++)
		if (!starts[i].burst || pthread_create(&threads[i], NULL, thread, &starts[i])) {
			fprintf(stderr, "falseshare: cannot start a thread\n");
			exit(1);
		}
	usleep(ms * 1000);
	atomic_store(&control.run, 0);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	size_t bursts = side_by_side(n);
	if (bursts == 0) {
		fprintf(stderr, "falseshare: the threads never met: give it more time\n");
		exit(1);
	}
	for (int i = 0; i < n; i++) {
		qsort(starts[i].burst, bursts, sizeof(struct burst), ascending);
		ops += BURST / starts[i].burst[bursts / 2].seconds;
		free(starts[i].burst);
	}
	printf("%s %.1f\n", name, ops / 1e6);
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
	run("counters", count, n, cpus, ms);
	/* Two threads: a lock each, so that nobody ever waits for one. */
	run("queue", queue, 2, cpus, ms);
	return 0;
}
