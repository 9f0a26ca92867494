/*
 * twins: programs with one cause each, and their repaired twins, for `ncpu dose`: what it predicts of the program is held to what
 * the twin does.
 *
 *   twins CASE [--repaired] THREADS SECONDS
 *
 * Each prints how many operations a second it did, as ops/s.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST 256

static int repaired;
static atomic_bool stop;
static pthread_barrier_t start;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int shared_file = -1, shared_pipe[2];
static _Atomic unsigned long shared_counter;

struct worker {
	unsigned long done;
	int file, disk, pipe[2];
	char *memory;
	pthread_mutex_t mutex;
	unsigned long seed;
} __attribute__((aligned(128)));

static struct worker workers[MOST];

static void fail(const char *what)
{
	fprintf(stderr, "twins: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* About n ns of computing. */
static void __attribute__((noinline)) compute(struct worker *w, int n)
{
	unsigned long x = w->seed;

	for (int i = 0; i < n; i++)
		x = x * 6364136223846793005ul + 1442695040888963407ul;
	w->seed = x;
}

static int own_file(void)
{
	int fd = open("/dev/shm", O_TMPFILE | O_RDWR, 0600);

	if (fd < 0)
		fail("a file in /dev/shm");
	return fd;
}

/* One descriptor for all, or one each: writes to a file exclude each other (inode.i_rwsem). */
static void one_file(struct worker *w)
{
	char bytes[256] = { 0 };

	if (pwrite(repaired ? w->file : shared_file, bytes, sizeof(bytes), 0) < 0)
		fail("pwrite");
	compute(w, 200);
}

/* A pipe for all, or one each: writers and readers exclude each other (pipe_inode_info.mutex). */
static void one_pipe(struct worker *w)
{
	int *pipe = repaired ? w->pipe : shared_pipe;
	char byte = 0;

	if (write(pipe[1], &byte, 1) != 1 || read(pipe[0], &byte, 1) != 1)
		fail("pipe");
}

/* A byte a call, or sixteen. */
static void bytes(struct worker *w)
{
	char bytes[16] = { 0 };

	compute(w, 300);
	if (!repaired || w->done % 16 == 0)
		if (pwrite(w->file, bytes, repaired ? 16 : 1, 0) < 0)
			fail("pwrite");
}

/* A call whose answer could be kept. */
static void calls(struct worker *w)
{
	compute(w, 150);
	if (!repaired || w->done == 0)
		w->seed += syscall(SYS_getppid);
	/* What the work is counted by. */
	if (w->done % 8 == 0)
		w->seed += syscall(SYS_getuid);
}

#define CHURN (16 * 4096)

/* Memory given back and taken anew, or kept. */
static void faults(struct worker *w)
{
	if (!repaired && madvise(w->memory, CHURN, MADV_DONTNEED))
		fail("madvise");
	for (int at = 0; at < CHURN; at += 4096)
		w->memory[at] = 1;
	compute(w, 2000);
	w->seed += syscall(SYS_getuid);
}

/* Mappings of one address space, made and dropped, or kept (mm_struct.mmap_lock). */
static void mappings(struct worker *w)
{
	if (!repaired) {
		char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED || munmap(p, 4096))
			fail("mmap");
	}
	compute(w, 500);
	w->seed += syscall(SYS_getuid);
}

/* A mutex for all, or one each. */
static void locked(struct worker *w)
{
	pthread_mutex_t *m = repaired ? &w->mutex : &mutex;

	pthread_mutex_lock(m);
	compute(w, 6000);
	pthread_mutex_unlock(m);
	compute(w, 2000);
	w->seed += syscall(SYS_getuid);
}

/* A counter that all threads add to, or one each. */
static void __attribute__((noinline)) count(struct worker *w)
{
	for (int i = 0; i < 100; i++) {
		if (repaired)
			atomic_fetch_add_explicit((_Atomic unsigned long *)&w->seed, 1, memory_order_relaxed);
		else
			atomic_fetch_add_explicit(&shared_counter, 1, memory_order_relaxed);
	}
}

static void counter(struct worker *w)
{
	count(w);
	compute(w, 3000);
	w->seed += syscall(SYS_getuid);
}

/* A program for each piece of work, or none. */
static void processes(struct worker *w)
{
	char *argv[] = { "/bin/true", NULL };
	pid_t child;

	compute(w, 500000);
	if (!repaired && (posix_spawn(&child, argv[0], NULL, NULL, argv, argv + 1) || waitpid(child, NULL, 0) != child))
		fail(argv[0]);
	w->seed += syscall(SYS_getuid);
}

/* A record of a file of the current directory made safe by itself, or with fifteen others. */
static void journal(struct worker *w)
{
	char record[200] = { 1 };

	if (w->done == 0)
		w->disk = open(".", O_TMPFILE | O_RDWR, 0600);
	compute(w, 2000);
	if (write(w->disk, record, sizeof(record)) != sizeof(record))
		fail("a file in the current directory");
	if ((!repaired || w->done % 16 == 0) && fdatasync(w->disk))
		fail("fdatasync");
}

/* All of these, each so seldom that it costs nothing. */
static void idle(struct worker *w)
{
	compute(w, 20000);
	if (w->done % 100 == 0) {
		int kept = repaired;
		repaired = 0;
		one_file(w);
		one_pipe(w);
		mappings(w);
		repaired = kept;
	}
	w->seed += syscall(SYS_getuid);
}

static const struct {
	const char *name;
	void (*operation)(struct worker *);
} cases[] = {
	{ "file", one_file }, { "pipe", one_pipe }, { "bytes", bytes }, { "calls", calls }, { "faults", faults },
	{ "mappings", mappings }, { "mutex", locked }, { "counter", counter }, { "processes", processes },
	{ "journal", journal }, { "idle", idle },
};

static void (*operation)(struct worker *);

static void *work(void *arg)
{
	struct worker *w = arg;

	pthread_barrier_wait(&start);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		operation(w);
		w->done++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	repaired = argc > 2 && !strcmp(argv[2], "--repaired");
	if (argc != 4 + repaired) {
		fprintf(stderr, "usage: twins CASE [--repaired] THREADS SECONDS\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!strcmp(cases[i].name, argv[1]))
			operation = cases[i].operation;
	int threads = atoi(argv[2 + repaired]);
	double seconds = atof(argv[3 + repaired]);
	if (!operation || threads < 1 || threads > MOST || !(seconds > 0)) {
		fprintf(stderr, "twins: unknown case, or a number out of range\n");
		return 2;
	}
	shared_file = own_file();
	if (pipe(shared_pipe) || pthread_barrier_init(&start, NULL, threads + 1))
		fail("a pipe");
	pthread_t ids[MOST];
	for (int i = 0; i < threads; i++) {
		struct worker *w = &workers[i];
		w->seed = i + 1;
		w->file = own_file();
		w->memory = mmap(NULL, CHURN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_mutex_init(&w->mutex, NULL);
		if (pipe(w->pipe) || w->memory == MAP_FAILED || pthread_create(&ids[i], NULL, work, w))
			fail("a thread");
	}
	pthread_barrier_wait(&start);
	struct timespec begin, end, length = { (time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9) };
	clock_gettime(CLOCK_MONOTONIC, &begin);
	nanosleep(&length, NULL);
	atomic_store(&stop, 1);
	unsigned long done = 0;
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		done += workers[i].done;
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%s%s: %.0f ops/s\n", argv[1], repaired ? ", repaired" : "",
	       done / (end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) / 1e9));
	return 0;
}
