/*
 * fdtorture: dup2 and close, as fast as each of N workers can.
 *
 * Threads of a process share one descriptor table, and both calls take its lock (on Linux
 * files_struct.file_lock): the micro-benchmark of Mateusz Guzik's NetBSD report of 2017. With
 * --processes or --unshare each worker has a table of its own and nothing else changes, so the
 * difference is what the lock costs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_WORKERS 16384

enum table { SHARED, PROCESSES, UNSHARED };

/* One a worker; a pair of lines, as CPUs prefetch the neighbour. */
struct worker {
	unsigned long pairs;
	double begin;
} __attribute__((aligned(128)));

/* Shared memory, for --processes. */
struct shared {
	pthread_barrier_t start;
	_Alignas(128) atomic_bool stop;
	struct worker workers[];
};

static struct shared *shared;
static enum table table;

static void usage(FILE *out)
{
	fprintf(out,
		"usage: fdtorture [--processes | --unshare] WORKERS SECONDS\n"
		"Does dup2 and close in WORKERS threads for SECONDS and prints how many pairs a second, as ops/s.\n"
		"  --processes  each worker is a process with a descriptor table of its own\n"
		"  --unshare    each worker is a thread with a descriptor table of its own\n");
}

static void fail(const char *what, int error)
{
	fprintf(stderr, "fdtorture: %s: %s\n", what, strerror(error));
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* A worker process that ends early would leave the others waiting at the barrier for ever. */
static void worker_ended(int signal)
{
	(void)signal;
	if (!atomic_load(&shared->stop))
		_exit(1);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned long pairs = 0;

	if (table == UNSHARED && unshare(CLONE_FILES))
		fail("unshare(CLONE_FILES)", errno);
	/* A file of its own, so that the workers share no reference count. */
	int file = open("/dev/null", O_RDWR | O_CLOEXEC);
	int copy = file < 0 ? -1 : dup(file);
	if (copy < 0)
		fail("opening /dev/null twice", errno);
	pthread_barrier_wait(&shared->start);
	w->begin = now();
	while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
		if (dup2(file, copy) < 0)
			fail("dup2", errno);
		if (close(copy))
			fail("close", errno);
		pairs++;
	}
	w->pairs = pairs;
	return NULL;
}

/* A number from 1 (or just above 0) to max, or a word and exit 2. */
static double number(const char *text, const char *what, double max, int whole)
{
	char *end;
	double n = strtod(text, &end);

	if (end == text || *end || !(n > 0) || n > max || (whole && n != (int)n)) {
		fprintf(stderr, "fdtorture: %s `%s`: give a %snumber from %s to %g\n", what, text,
			whole ? "whole " : "", whole ? "1" : "0.01", max);
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
		enum table asked = !strcmp(argv[i], "--processes") ? PROCESSES :
				   !strcmp(argv[i], "--unshare") ? UNSHARED : SHARED;
		if (asked == SHARED || table != SHARED) {
			fprintf(stderr, "fdtorture: `%s`: %s\n", argv[i],
				asked == SHARED ? "no such option" : "give one of --processes and --unshare");
			usage(stderr);
			return 2;
		}
		table = asked;
	}
	if (argc - i != 2) {
		usage(stderr);
		return 2;
	}
	int n = number(argv[i], "WORKERS", MAX_WORKERS, 1);
	double seconds = number(argv[i + 1], "SECONDS", 86400, 0);

	struct rlimit files;
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	shared = mmap(NULL, sizeof(*shared) + n * sizeof(struct worker), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_t *threads = calloc(n, sizeof(*threads));
	if (shared == MAP_FAILED || !threads)
		fail("memory for the workers", errno);
	pthread_barrierattr_t attr;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->start, &attr, n + 1);

	if (table == PROCESSES)
		signal(SIGCHLD, worker_ended);
	for (int w = 0; w < n; w++) {
		if (table == PROCESSES) {
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
	pthread_barrier_wait(&shared->start);
	struct timespec length = { (time_t)seconds, (seconds - (time_t)seconds) * 1e9 };
	while (nanosleep(&length, &length) && errno == EINTR)
		;
	atomic_store(&shared->stop, 1);
	double end = now();
	for (int w = 0; w < n; w++) {
		int status = 0;
		if (table == PROCESSES)
			while (wait(&status) < 0 && errno == EINTR)
				;
		else
			pthread_join(threads[w], NULL);
		if (status) {
			fprintf(stderr, "fdtorture: a worker failed\n");
			return 1;
		}
	}

	/* With many workers the first has long begun when this thread runs again. */
	double elapsed = 0;
	unsigned long sum = 0, least = -1ul, most = 0;
	for (int w = 0; w < n; w++) {
		unsigned long pairs = shared->workers[w].pairs;
		if (pairs && end - shared->workers[w].begin > elapsed)
			elapsed = end - shared->workers[w].begin;
		sum += pairs;
		least = pairs < least ? pairs : least;
		most = pairs > most ? pairs : most;
	}
	if (sum == 0) {
		fprintf(stderr, "fdtorture: no worker began in time: give more seconds\n");
		return 1;
	}
	static const char *const what[] = { "threads, one descriptor table", "processes, a descriptor table each",
					    "threads, a descriptor table each" };
	printf("%d %s: %.0f ops/s of dup2 and close (%.0f to %.0f by worker)\n", n, what[table], sum / elapsed,
	       least / elapsed, most / elapsed);
	return 0;
}
