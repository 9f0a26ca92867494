/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Threads that each wait for one kind of thing, all of them at the same time and for at least the time that is asked for: the
 * first thread lets go only when it has seen each of them asleep in its call. With "work SECONDS FILE" threads that compete for
 * CPUs instead, which write what the kernel says of their lives to FILE.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                                           \
	do {                                                                                                  \
		if (!(what)) {                                                                                \
			perror(#what);                                                                        \
			exit(1);                                                                              \
		}                                                                                             \
	} while (0)

static char path[] = "/tmp/ncpu-lives-XXXXXX";
static int ends[2], sockets[2], hold[2], parts[2], semaphores;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t held_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int work;
static atomic_int locked;
static pid_t child;

static void rest(double seconds)
{
	struct timespec t = { seconds, (seconds - (long)seconds) * 1e9 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

/* Holds the file and a mutex until a byte comes through `hold`. */
static void *holder(void *arg)
{
	char c;
	int fd = open(path, O_RDWR);

	pthread_setname_np(pthread_self(), "holder");
	CHECK(flock(fd, LOCK_EX) == 0);
	pthread_mutex_lock(&held_mutex);
	atomic_store(&locked, 1);
	CHECK(read(hold[0], &c, 1) == 1);
	pthread_mutex_unlock(&held_mutex);
	CHECK(flock(fd, LOCK_UN) == 0);
	return arg;
}

static void *waits_for_file(void *arg)
{
	int fd = open(path, O_RDWR);

	CHECK(flock(fd, LOCK_EX) == 0);
	/* The child of a vfork has the file as well: closing it is not enough. */
	CHECK(flock(fd, LOCK_UN) == 0);
	close(fd);
	return arg;
}

static void *waits_for_mutex(void *arg)
{
	pthread_mutex_lock(&held_mutex);
	pthread_mutex_unlock(&held_mutex);
	return arg;
}

static void *waits_for_work(void *arg)
{
	pthread_mutex_lock(&mutex);
	while (!work)
		pthread_cond_wait(&cond, &mutex);
	pthread_mutex_unlock(&mutex);
	return arg;
}

static void *waits_for_pipe(void *arg)
{
	char c;

	CHECK(read(ends[0], &c, 1) == 1);
	return arg;
}

static void *waits_for_socket(void *arg)
{
	char c;

	CHECK(recv(sockets[0], &c, 1, 0) == 1);
	return arg;
}

static void *waits_for_child(void *arg)
{
	CHECK(waitpid(child, NULL, 0) == child);
	return arg;
}

static void *waits_for_semaphore(void *arg)
{
	struct sembuf take = { 0, -1, 0 };

	CHECK(syscall(SYS_semtimedop, semaphores, &take, 1, NULL) == 0);
	return arg;
}

static void *waits_for_signal(void *arg)
{
	struct timespec t = { 100, 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(sigtimedwait(&set, NULL, &t) == SIGUSR1);
	return arg;
}

/* Stands still until its child, which has its memory, ends. */
static void *waits_in_vfork(void *arg)
{
	pid_t id = vfork();

	if (id == 0) {
		char c;

		_exit(read(parts[0], &c, 1) != 1);
	}
	CHECK(id > 0 && waitpid(id, NULL, 0) == id);
	return arg;
}

static volatile char *page; /* one that comes when `faults` says so */
static int faults;

static void *waits_in_fault(void *arg)
{
	CHECK(*page == 0);
	return arg;
}

/* Whether there are faults that programs serve. */
static int serves_faults(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = { .range.len = 4096, .mode = UFFDIO_REGISTER_MODE_MISSING };

	faults = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api))
		return 0;
	page = mmap(NULL, area.range.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	area.range.start = (unsigned long)page;
	return ioctl(faults, UFFDIO_REGISTER, &area) == 0;
}

#ifndef SYS_vfork
#define SYS_vfork SYS_clone
#endif

static struct thread {
	const char *name;
	void *(*does)(void *);
	int call;
	pthread_t id;
	atomic_int tid;
} threads[] = {
	{ "w-1", waits_for_file, SYS_flock, 0, 0 },
	{ "w-2", waits_for_file, SYS_flock, 0, 0 },
	{ "m-1", waits_for_mutex, SYS_futex, 0, 0 },
	{ "pool-1", waits_for_work, SYS_futex, 0, 0 },
	{ "pool-2", waits_for_work, SYS_futex, 0, 0 },
	{ "pool-30", waits_for_work, SYS_futex, 0, 0 },
	{ "piper", waits_for_pipe, SYS_read, 0, 0 },
	{ "socket", waits_for_socket, SYS_recvfrom, 0, 0 },
	{ "parent", waits_for_child, SYS_wait4, 0, 0 },
	{ "semaphore", waits_for_semaphore, SYS_semtimedop, 0, 0 },
	{ "signal", waits_for_signal, SYS_rt_sigtimedwait, 0, 0 },
	{ "vforker", waits_in_vfork, SYS_vfork, 0, 0 },
	{ "faulter", waits_in_fault, -1, 0, 0 }, /* the last: not every kernel has such faults */
};

static void *named(void *arg)
{
	struct thread *t = arg;

	pthread_setname_np(pthread_self(), t->name);
	atomic_store(&t->tid, gettid());
	return t->does(NULL);
}

/* Whether a thread sleeps in a call, as the kernel says. */
static int sleeps(int tid, int call)
{
	char name[64];
	int nr = -1;

	snprintf(name, sizeof(name), "/proc/self/task/%d/syscall", tid);
	FILE *f = fopen(name, "r");
	if (!f)
		return 0;
	/* "running", or the number of the call; -1 outside of calls. */
	int n = fscanf(f, "%d", &nr);
	fclose(f);
	return n == 1 && nr == call;
}

static int waits(double seconds)
{
	pthread_t keeps;
	int fd = mkstemp(path);
	size_t all = sizeof(threads) / sizeof(*threads) - !serves_faults();
	sigset_t set;

	/* One of the threads waits for it. */
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	CHECK(fd >= 0 && pipe(ends) == 0 && pipe(hold) == 0 && pipe(parts) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	semaphores = semget(IPC_PRIVATE, 1, 0600);
	CHECK(semaphores >= 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		char c;

		close(hold[1]);
		/* Ends when its parent does, or closes the pipe. */
		_exit(read(hold[0], &c, 1) < 0);
	}
	CHECK(pthread_create(&keeps, NULL, holder, NULL) == 0);
	while (!atomic_load(&locked))
		rest(0.001);
	for (size_t i = 0; i < all; i++)
		CHECK(pthread_create(&threads[i].id, NULL, named, &threads[i]) == 0);
	for (size_t i = 0; i < all; i++)
		while (!atomic_load(&threads[i].tid) || !sleeps(threads[i].tid, threads[i].call))
			rest(0.001);
	rest(seconds);
	CHECK(write(hold[1], "xx", 2) == 2); /* one is the holder's, one the child's */
	CHECK(write(ends[1], "x", 1) == 1 && send(sockets[1], "x", 1, 0) == 1);
	struct sembuf give = { 0, 1, 0 };
	CHECK(semop(semaphores, &give, 1) == 0);
	CHECK(kill(getpid(), SIGUSR1) == 0 && write(parts[1], "x", 1) == 1);
	struct uffdio_zeropage zero = { .range = { (unsigned long)page, 4096 } };
	CHECK(page == NULL || ioctl(faults, UFFDIO_ZEROPAGE, &zero) == 0);
	pthread_mutex_lock(&mutex);
	work = 1;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
	for (size_t i = 0; i < all; i++)
		pthread_join(threads[i].id, NULL);
	pthread_join(keeps, NULL);
	semctl(semaphores, 0, IPC_RMID);
	unlink(path);
	return 0;
}

static double until;
static pthread_mutex_t sum = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long ran, queued;
static double user, kernel;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void *works(void *arg)
{
	unsigned long long cpu = 0, delay = 0;
	struct rusage usage;
	volatile int n = 0;

	while (now() < until) {
		for (int i = 0; i < 1000000; i++)
			n++;
		for (int i = 0; i < 2000; i++)
			syscall(SYS_getppid);
	}
	FILE *f = fopen("/proc/thread-self/schedstat", "r");
	CHECK(f && fscanf(f, "%llu %llu", &cpu, &delay) == 2);
	fclose(f);
	getrusage(RUSAGE_THREAD, &usage);
	pthread_mutex_lock(&sum);
	ran += cpu;
	queued += delay;
	user += usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6;
	kernel += usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
	pthread_mutex_unlock(&sum);
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t ids[6];

	CHECK(argc >= 3);
	if (strcmp(argv[1], "work"))
		return waits(atof(argv[2]));
	CHECK(argc >= 4);
	until = now() + atof(argv[2]);
	for (int i = 0; i < 6; i++)
		CHECK(pthread_create(&ids[i], NULL, works, NULL) == 0);
	for (int i = 0; i < 6; i++)
		pthread_join(ids[i], NULL);
	FILE *f = fopen(argv[3], "w");
	CHECK(f);
	fprintf(f, "%.6f %.6f %.6f %.6f\n", ran / 1e9, queued / 1e9, user, kernel);
	fclose(f);
	return 0;
}
