/*
 * cyclops SHARED OWN SECONDS PROCESSES: a database as it begins without regard to nodes. All of it starts on the first two
 * CPUs: SHARED MiB of shared memory that one process touches, and processes that touch OWN MiB each of their own and
 * all of the shared. Says "ready PID..." then, lets go of the CPUs, and the processes are busy reading both until the time
 * is up.
 *
 * With PROCESSES negative there are as many threads instead, of one process, which read what is then private; OWN is not
 * used.
 *
 * Says how many thousand reads all have done at the end.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile char *shared;
static size_t bytes, own_bytes;
/* Seen by all: when the time is up, and then the reads done, in tens of thousands. */
static volatile double *until;
static unsigned long *done;
static cpu_set_t all;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static char *memory(size_t length, int flags)
{
	char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		perror("cyclops: mmap");
		exit(1);
	}
	return at;
}

static void read_both(unsigned long at, volatile char *own)
{
	while (now() < *until) {
		for (int i = 0; i < 10000; i++) {
			at = at * 6364136223846793005 + 1442695040888963407;
			(void)shared[(at >> 20) % bytes];
			if (own)
				(void)own[(at >> 20) % own_bytes];
		}
		__atomic_add_fetch(done, 1, __ATOMIC_RELAXED);
	}
}

static void *thread(void *arg)
{
	/* A thread begins with the CPUs of its creator. */
	while (*until == 0)
		usleep(1000);
	sched_setaffinity(0, sizeof(all), &all);
	read_both((unsigned long)arg, NULL);
	return NULL;
}

int main(int argc, char **argv)
{
	int count = argc > 4 ? atoi(argv[4]) : 0, ready[2];
	int threads = count < 0 ? -count : 0;
	cpu_set_t first;
	char byte;

	if (argc < 5 || count == 0 || threads > 256) {
		fprintf(stderr, "usage: cyclops SHARED OWN SECONDS PROCESSES\n");
		return 2;
	}
	bytes = (size_t)atoi(argv[1]) << 20;
	own_bytes = (size_t)atoi(argv[2]) << 20;
	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&first);
	for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) < 2; cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &first);
	sched_setaffinity(0, sizeof(first), &first);
	until = (volatile double *)memory(4096, MAP_SHARED);
	done = (unsigned long *)until + 64;
	shared = memory(bytes, threads ? MAP_PRIVATE : MAP_SHARED);
	memset((void *)shared, 1, bytes);
	if (pipe(ready))
		return 1;
	if (threads) {
		pthread_t all_threads[256];

		for (long i = 0; i < threads; i++)
			pthread_create(&all_threads[i], NULL, thread, (void *)(i * 7919));
		printf("ready %d\n", getpid());
		fflush(stdout);
		sched_setaffinity(0, sizeof(all), &all);
		*until = now() + atof(argv[3]);
		for (int i = 0; i < threads; i++)
			pthread_join(all_threads[i], NULL);
		printf("did %lu\n", *done * 10);
		return 0;
	}
	printf("ready");
	fflush(stdout);
	for (long i = 0; i < count; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			char *own = memory(own_bytes, MAP_PRIVATE);

			memset(own, 1, own_bytes);
			for (size_t at = 0; at < bytes; at += 4096)
				(void)shared[at];
			if (write(ready[1], "", 1) != 1)
				_exit(1);
			while (*until == 0)
				usleep(1000);
			sched_setaffinity(0, sizeof(all), &all);
			read_both(i * 7919, own);
			_exit(0);
		}
		printf(" %d", pid);
		fflush(stdout);
	}
	for (int i = 0; i < count; i++)
		if (read(ready[0], &byte, 1) != 1)
			return 1;
	sched_setaffinity(0, sizeof(all), &all);
	puts("");
	fflush(stdout);
	*until = now() + atof(argv[3]);
	while (wait(NULL) > 0)
		;
	printf("did %lu\n", *done * 10);
	return 0;
}
