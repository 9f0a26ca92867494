#define _GNU_SOURCE
/*
 * Programs that know what their locks cost them.
 * usage: lock_costs calls|convoy FILE|pool|turns
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		exit(2);
}

/* Three of four calls are for one word, the fourth for another. */
int often __attribute__((aligned(64))), seldom __attribute__((aligned(64)));

static int calls(void)
{
	double end = now() + 1.5;

	while (now() < end)
		for (int i = 0; i < 1000; i++)
			syscall(SYS_futex, i & 3 ? &often : &seldom, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	return 0;
}

pthread_mutex_t convoy_lock = PTHREAD_MUTEX_INITIALIZER;
static int begin[2];
static volatile int done, over;

/* ns that the current thread has stood on run queues. */
static long stood(void)
{
	char text[128] = "";
	int file = open("/proc/thread-self/schedstat", O_RDONLY);
	long ran, waited;

	if (file < 0 || read(file, text, sizeof text - 1) <= 0 || sscanf(text, "%ld %ld", &ran, &waited) != 2)
		exit(3);
	close(file);
	return waited;
}

static void *hog(void *arg)
{
	run_on(0);
	while (!over)
		;
	return arg;
}

#define ROUNDS 60

static void *waiter(void *arg)
{
	long in_read = 0, in_lock = 0;
	char byte;

	run_on(0);
	/* The scheduler lets a thread that wakes go before others of its weight. */
	if (setpriority(PRIO_PROCESS, syscall(SYS_gettid), 5))
		exit(8);
	for (int i = 1; i <= ROUNDS; i++) {
		long at = stood();
		if (read(begin[0], &byte, 1) != 1)
			exit(4);
		long then = stood();
		in_read += then - at;
		pthread_mutex_lock(&convoy_lock);
		in_lock += stood() - then;
		pthread_mutex_unlock(&convoy_lock);
		done = i;
	}
	FILE *out = fopen(arg, "w");
	fprintf(out, "%ld %ld\n", in_read, in_lock);
	return fclose(out) ? arg : NULL;
}

/* A thread waits for a lock on a CPU that others use. */
static int convoy(char *out)
{
	pthread_t hogs[3], waits;

	run_on(1);
	if (pipe(begin))
		return 5;
	for (int i = 0; i < 3; i++)
		pthread_create(&hogs[i], NULL, hog, NULL);
	pthread_create(&waits, NULL, waiter, out);
	for (int i = 1; i <= ROUNDS; i++) {
		usleep(2000);
		pthread_mutex_lock(&convoy_lock);
		if (write(begin[1], "x", 1) != 1)
			return 6;
		usleep(20000);
		pthread_mutex_unlock(&convoy_lock);
		while (done < i)
			usleep(200);
	}
	over = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(hogs[i], NULL);
	pthread_join(waits, NULL);
	return 0;
}

#define WORKERS 6
static struct worker {
	pthread_mutex_t mutex;
	pthread_cond_t work;
	int jobs, end;
	char apart[64];
} *workers[WORKERS];

__attribute__((noinline)) static void await_work(struct worker *w)
{
	while (!w->jobs && !w->end)
		pthread_cond_wait(&w->work, &w->mutex);
	w->jobs = 0;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	pthread_mutex_lock(&w->mutex);
	while (!w->end)
		await_work(w);
	pthread_mutex_unlock(&w->mutex);
	return NULL;
}

/* Each worker has a condition of its own, and waits in it for work. */
static int pool(void)
{
	pthread_t threads[WORKERS];

	for (int i = 0; i < WORKERS; i++) {
		workers[i] = calloc(1, sizeof(struct worker));
		pthread_mutex_init(&workers[i]->mutex, NULL);
		pthread_cond_init(&workers[i]->work, NULL);
		pthread_create(&threads[i], NULL, work, workers[i]);
	}
	for (int round = 0; round <= 100; round++) {
		usleep(10000);
		for (int i = 0; i < WORKERS; i++) {
			pthread_mutex_lock(&workers[i]->mutex);
			workers[i]->jobs = 1;
			workers[i]->end = round == 100;
			pthread_mutex_unlock(&workers[i]->mutex);
			pthread_cond_signal(&workers[i]->work);
		}
	}
	for (int i = 0; i < WORKERS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

static int there[2], back[2];

static void *answer(void *arg)
{
	char byte;

	run_on(1);
	while (read(there[0], &byte, 1) == 1 && byte == 'x')
		if (write(back[1], &byte, 1) != 1)
			exit(7);
	return arg;
}

/* Two threads take turns, each on a CPU of its own: neither ever stands behind another. */
static int turns(void)
{
	pthread_t other;
	char byte = 'x';
	double end = now() + 1;

	run_on(0);
	if (pipe(there) || pipe(back))
		return 5;
	pthread_create(&other, NULL, answer, NULL);
	while (now() < end)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			return 6;
	if (write(there[1], "e", 1) != 1)
		return 6;
	pthread_join(other, NULL);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "calls"))
		return calls();
	if (argc == 3 && !strcmp(argv[1], "convoy"))
		return convoy(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "pool"))
		return pool();
	if (argc == 2 && !strcmp(argv[1], "turns"))
		return turns();
	return 1;
}
