/*
 * load OP THREADS SECONDS [THINK_US]: threads that each serve one request after another, thinking THINK_US (half to one and
 * a half of it, asleep) before each, and prints requests a second. A request is some ten microseconds of one thing:
 *   compute  arithmetic                         memory   reads 1 MB of 64 MB of its own
 *   malloc   allocates and frees small buffers  getpid   100 system calls
 *   fd       dup2 and close, 20 times, in the one table of descriptors
 *   pipe     writes and reads 4 KB, 20 times, through a pipe of its own
 *   mmap     maps 256 KB, writes each page, unmaps
 *   mutex    takes one pthread mutex 20 times, holds it for a fifth of the request's work
 *   rwlock   takes one pthread rwlock 20 times, once in ten to write
 *   stat     20 times stat of one file          futex    wakes nobody, 100 times
 * For benches/foresee-here.py, which foretells the same for other loads.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST 4096

static atomic_bool stop;
static double think;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

struct worker {
	unsigned long done, random;
	int file, copy, pipe[2];
	char *memory;
	size_t at;
	int word;
} __attribute__((aligned(128)));

static struct worker workers[MOST];
static void (*op)(struct worker *);

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static unsigned long spin(unsigned long x, int rounds)
{
	for (int i = 0; i < rounds; i++)
		x = x * 6364136223846793005ul + 1442695040888963407ul;
	return x;
}

static void compute(struct worker *w)
{
	w->random = spin(w->random, 20000);
}

static void memory(struct worker *w)
{
	unsigned long sum = 0;

	for (size_t i = 0; i < 1 << 20; i += 64)
		sum += *(unsigned long *)(w->memory + ((w->at + i) & ((64ul << 20) - 1)));
	w->at += 1 << 20;
	w->random += sum;
}

static void allocate(struct worker *w)
{
	void *held[64];

	for (int i = 0; i < 64; i++) {
		w->random = spin(w->random, 1);
		held[i] = malloc(16 + (w->random >> 54));
		if (!held[i])
			fail("malloc");
		memset(held[i], 1, 16);
	}
	for (int i = 0; i < 64; i++)
		free(held[i]);
}

static void getpids(struct worker *w)
{
	for (int i = 0; i < 100; i++)
		w->random += syscall(SYS_getppid);
}

static void fd(struct worker *w)
{
	for (int i = 0; i < 20; i++)
		if (dup2(w->file, w->copy) < 0 || close(w->copy))
			fail("dup2");
}

static void pipes(struct worker *w)
{
	char buffer[4096] = { 0 };

	for (int i = 0; i < 20; i++)
		if (write(w->pipe[1], buffer, sizeof buffer) < 0 || read(w->pipe[0], buffer, sizeof buffer) < 0)
			fail("pipe");
}

static void map(struct worker *w)
{
	size_t size = 256 << 10;
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)w;
	if (at == MAP_FAILED)
		fail("mmap");
	for (size_t i = 0; i < size; i += 4096)
		at[i] = 1;
	munmap(at, size);
}

static void locked(struct worker *w)
{
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&mutex);
		w->random = spin(w->random, 300);
		pthread_mutex_unlock(&mutex);
		w->random = spin(w->random, 1200);
	}
}

static void shared(struct worker *w)
{
	for (int i = 0; i < 20; i++) {
		if (i % 10 == 0)
			pthread_rwlock_wrlock(&rwlock);
		else
			pthread_rwlock_rdlock(&rwlock);
		w->random = spin(w->random, 300);
		pthread_rwlock_unlock(&rwlock);
		w->random = spin(w->random, 1200);
	}
}

static void stats(struct worker *w)
{
	struct stat s;

	for (int i = 0; i < 20; i++)
		w->random += stat("/proc/self/exe", &s);
}

static void futexes(struct worker *w)
{
	for (int i = 0; i < 100; i++)
		syscall(SYS_futex, &w->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static const struct {
	const char *name;
	void (*op)(struct worker *);
} ops[] = {
	{ "compute", compute }, { "memory", memory }, { "malloc", allocate }, { "getpid", getpids }, { "fd", fd },
	{ "pipe", pipes }, { "mmap", map }, { "mutex", locked }, { "rwlock", shared }, { "stat", stats },
	{ "futex", futexes },
};

static void *work(void *arg)
{
	struct worker *w = arg;

	/* Sleeps are as long as asked for, as far as the machine can. */
	prctl(PR_SET_TIMERSLACK, 1);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		if (think > 0) {
			w->random = spin(w->random, 1);
			double ns = think * 1e3 * (0.5 + (w->random >> 40) / 16777216.0);
			struct timespec t = { (time_t)(ns / 1e9), (long)ns % 1000000000 };
			nanosleep(&t, NULL);
		}
		op(w);
		w->done++;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 3 && i < sizeof ops / sizeof *ops; i++)
		if (!strcmp(argv[1], ops[i].name))
			op = ops[i].op;
	int threads = argc > 2 ? atoi(argv[2]) : 0;
	double seconds = argc > 3 ? atof(argv[3]) : 0;
	think = argc > 4 ? atof(argv[4]) : 0;
	if (!op || threads < 1 || threads > MOST || seconds <= 0 || think < 0) {
		fprintf(stderr, "usage: load OP THREADS SECONDS [THINK_US]; OP is compute, memory, malloc, getpid, fd, pipe, mmap, mutex, "
				"rwlock, stat or futex\n");
		return 2;
	}
	static pthread_t ids[MOST];
	for (int i = 0; i < threads; i++) {
		struct worker *w = &workers[i];
		w->random = i + 1;
		w->file = open("/dev/null", O_RDWR | O_CLOEXEC);
		w->copy = dup(w->file);
		if (w->copy < 0 || pipe(w->pipe))
			fail("opening files");
		if (op == memory) {
			w->memory = malloc(64 << 20);
			if (!w->memory)
				fail("malloc");
			memset(w->memory, 1, 64 << 20);
		}
	}
	double begin = now();
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, work, &workers[i]))
			fail("pthread_create");
	struct timespec length = { (time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9) };
	nanosleep(&length, NULL);
	atomic_store(&stop, 1);
	unsigned long done = 0;
	for (int i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		done += workers[i].done;
	}
	printf("%.1f requests/s\n", done / (now() - begin));
	return 0;
}
