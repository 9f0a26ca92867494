/*
 * placed HOW MIB SECONDS PERIOD [FILE]: memory placed in a known way, then read by a thread on each core
 * (or on those that HOW says) until the time is up, for 1 ms of CPU time every PERIOD ms, so that many
 * of them, and who looks at them, fit on slow CPUs. Says "ready" once every page is touched.
 *
 *   local        each thread touches its own part first
 *   interleaved  dealt out over all nodes (MPOL_INTERLEAVE)
 *   cyclops      all touched by one thread on the last CPU
 *   misplaced    touched on the last CPU, read by a thread on CPU 0
 *   late         touched on the last CPU, then asked to be interleaved
 *   sysv-late    the same with a SysV segment
 *   bound        asked to be on node 1, and there before it is touched
 *   file         FILE, touched on the last CPU
 *   huge         of 2 MiB hugetlb pages, touched on the last CPU
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MPOL_BIND 2
#define MPOL_INTERLEAVE 3

static char *memory;
static size_t bytes;
static int threads, step, own, period;
static volatile int stop;
static pthread_barrier_t ready;

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		perror("sched_setaffinity");
}

static void *worker(void *arg)
{
	long me = (long)arg;
	size_t part = bytes / threads, at = me * part;
	volatile char sum = 0;
	struct timespec next, began, now;
	long used = 0;

	pin(me * step);
	if (own)
		memset(memory + at, 1, part);
	pthread_barrier_wait(&ready);
	/*
	 * To absolute times, so that all threads get as many turns; what was missed is not made up for. What a turn took
	 * too much, the next ones take less: all have used as much CPU time.
	 */
	clock_gettime(CLOCK_MONOTONIC, &next);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
	for (size_t i = at; !stop;) {
		used += 1000000;
		do {
			for (int n = 0; n < 256; n++, i = (i + 64) % bytes)
				sum += memory[own ? at + i % part : i];
			clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
		} while ((now.tv_sec - began.tv_sec) * 1000000000L + now.tv_nsec - began.tv_nsec < used);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > next.tv_sec + 1)
			next = now;
		next.tv_nsec += period * 1000000L;
		next.tv_sec += next.tv_nsec / 1000000000L;
		next.tv_nsec %= 1000000000L;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
	return NULL;
}

static int nodes(void)
{
	int n = 0;
	char dir[64];

	for (;; n++) {
		snprintf(dir, sizeof(dir), "/sys/devices/system/node/node%d", n);
		if (access(dir, F_OK))
			return n;
	}
}

static void mbind(int mode, unsigned long mask)
{
	if (syscall(SYS_mbind, memory, bytes, mode, &mask, 64, 0))
		perror("mbind");
}

int main(int argc, char **argv)
{
	const char *how = argc > 4 ? argv[1] : "";
	int online = sysconf(_SC_NPROCESSORS_ONLN), fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	unsigned long all = (1UL << nodes()) - 1;

	if (argc < 5)
		return fprintf(stderr, "placed HOW MIB SECONDS PERIOD [FILE]\n"), 2;
	bytes = (size_t)atoi(argv[2]) << 20;
	period = atoi(argv[4]);
	/* Two threads a core. */
	step = online > 1 ? 2 : 1;
	threads = strcmp(how, "misplaced") ? online / step : 1;
	own = !strcmp(how, "local");
	if (!strcmp(how, "file")) {
		fd = argc > 5 ? open(argv[5], O_RDWR | O_CREAT, 0600) : -1;
		if (fd < 0 || ftruncate(fd, bytes))
			return perror(how), 1;
		flags = MAP_SHARED;
	}
	if (!strcmp(how, "huge"))
		flags |= MAP_HUGETLB;
	if (!strcmp(how, "sysv-late"))
		memory = shmat(shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600), NULL, 0);
	else
		memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (memory == MAP_FAILED)
		return perror(how), 1;
	if (!strcmp(how, "interleaved"))
		mbind(MPOL_INTERLEAVE, all);
	if (!strcmp(how, "bound"))
		mbind(MPOL_BIND, 2);
	pin(online - 1);
	if (!own)
		memset(memory, 1, bytes);
	if (strstr(how, "late"))
		mbind(MPOL_INTERLEAVE, all);
	pthread_barrier_init(&ready, NULL, threads + 1);
	for (long i = 0; i < threads; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, worker, (void *)i))
			return perror("pthread_create"), 1;
	}
	pthread_barrier_wait(&ready);
	puts("ready");
	fflush(stdout);
	sleep(atoi(argv[3]));
	stop = 1;
	return 0;
}
