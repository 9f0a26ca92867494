/*
 * munmap: N threads of one process that map, touch and give back memory, as fast as each can.
 *
 * The translation of a page given back may be in the TLB of every CPU that runs a thread of the process, so
 * each munmap interrupts all of them and waits until they have answered: a TLB shootdown. With --madvise the
 * mapping stays and only its pages are given back, as allocators purge: a shootdown all the same, without
 * the lock that munmap takes. With --processes each worker has an address space of its own, which runs on
 * one CPU at a time, and with --keep the memory is only touched: the differences are what sharing and giving
 * back cost.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_WORKERS 16384
#define PAGE 4096
#define MAX_PAGES 1048576

/* One a worker; a pair of lines, as CPUs prefetch the neighbour. */
struct worker {
	unsigned long rounds;
} __attribute__((aligned(128)));

/* Shared memory, for --processes. */
struct shared {
	atomic_bool stop;
	struct worker workers[];
};

static struct shared *shared;
static enum { MUNMAP, MADVISE, KEEP } give;
static int processes;
static size_t pages = 1;

static void usage(FILE *out)
{
	fprintf(out,
		"usage: munmap [--processes] [--madvise | --keep] [--pages N] WORKERS SECONDS\n"
		"Maps, touches and unmaps N pages (1) in WORKERS threads for SECONDS; prints how often a second.\n"
		"  --processes  each worker is a process with an address space of its own\n"
		"  --madvise    map once, and give the pages back with MADV_DONTNEED\n"
		"  --keep       map once, and only touch: nothing is given back\n");
}

static void fail(const char *what, int error)
{
	fprintf(stderr, "munmap: %s: %s\n", what, strerror(error));
	exit(1);
}

static char *map(void)
{
	char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap", errno);
	return p;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned long rounds = 0;
	char *p = give == MUNMAP ? NULL : map();

	while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
		if (give == MUNMAP)
			p = map();
		for (size_t i = 0; i < pages; i++)
			((volatile char *)p)[i * PAGE] = 1;
		if (give == MUNMAP && munmap(p, pages * PAGE))
			fail("munmap", errno);
		if (give == MADVISE && madvise(p, pages * PAGE, MADV_DONTNEED))
			fail("madvise", errno);
		rounds++;
	}
	w->rounds = rounds;
	return NULL;
}

/* A number from 1 (or just above 0) to max, or a word and exit 2. */
static double number(const char *text, const char *what, double max, int whole)
{
	char *end;
	double n = strtod(text, &end);

	if (end == text || *end || !(n > 0) || n > max || (whole && n != (int)n)) {
		fprintf(stderr, "munmap: %s `%s`: give a %snumber from %s to %g\n", what, text, whole ? "whole " : "",
			whole ? "1" : "0.01", max);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	int i = 1;

	for (; i < argc && argv[i][0] == '-'; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			usage(stdout);
			return 0;
		}
		if (!strcmp(argv[i], "--processes")) {
			processes = 1;
		} else if (!strcmp(argv[i], "--keep") || !strcmp(argv[i], "--madvise")) {
			if (give != MUNMAP) {
				fprintf(stderr, "munmap: give one of --keep and --madvise\n");
				return 2;
			}
			give = argv[i][2] == 'k' ? KEEP : MADVISE;
		} else if (!strcmp(argv[i], "--pages") && i + 1 < argc) {
			pages = number(argv[++i], "N", MAX_PAGES, 1);
		} else {
			fprintf(stderr, "munmap: `%s`: no such option\n", argv[i]);
			usage(stderr);
			return 2;
		}
	}
	if (argc - i != 2) {
		usage(stderr);
		return 2;
	}
	int n = number(argv[i], "WORKERS", MAX_WORKERS, 1);
	double seconds = number(argv[i + 1], "SECONDS", 86400, 0);

	shared = mmap(NULL, sizeof(*shared) + n * sizeof(struct worker), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_t *threads = calloc(n, sizeof(*threads));
	if (shared == MAP_FAILED || !threads)
		fail("memory for the workers", errno);
	for (int w = 0; w < n; w++) {
		if (processes) {
			pid_t pid = fork();
			if (pid < 0)
				fail("fork", errno);
			if (pid == 0) {
				/* Workers end with the parent, whatever ends it. */
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				work(&shared->workers[w]);
				_exit(0);
			}
		} else {
			int error = pthread_create(&threads[w], NULL, work, &shared->workers[w]);
			if (error)
				fail("starting a thread", error);
		}
	}
	struct timespec length = { (time_t)seconds, (seconds - (time_t)seconds) * 1e9 };
	while (nanosleep(&length, &length) && errno == EINTR)
		;
	atomic_store(&shared->stop, 1);
	unsigned long sum = 0;
	for (int w = 0; w < n; w++) {
		int status = 0;
		if (processes)
			while (wait(&status) < 0 && errno == EINTR)
				;
		else
			pthread_join(threads[w], NULL);
		if (status) {
			fprintf(stderr, "munmap: a worker failed\n");
			return 1;
		}
	}
	for (int w = 0; w < n; w++)
		sum += shared->workers[w].rounds;
	static const char *const what[] = { "mapped, touched and unmapped", "touched and given back", "touched" };
	printf("%d %s: %zu page(s) %s %.0f times/s\n", n,
	       processes ? "processes, an address space each" : "threads, one address space", pages, what[give],
	       sum / seconds);
	return 0;
}
