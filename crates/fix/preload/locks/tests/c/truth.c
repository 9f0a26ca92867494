/*
 * Waits of known length, which this program measures itself or sleeps through; a line for each: kind, waits,
 * ns. Holders' thread numbers are printed as "holder KIND TID". The library's file is read by the test.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier, ready;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t turnstile, work;
static int go;

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void ms(long n)
{
	struct timespec t = {n / 1000, n % 1000 * 1000000};
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

static void must(int is)
{
	if (!is) {
		perror("must");
		abort();
	}
}

struct wait {
	const char *kind;
	long long waits, ns;
	int (*take)(void);
};

__attribute__((noinline)) static int take_mutex(void) { return pthread_mutex_lock(&mutex) || pthread_mutex_unlock(&mutex); }
__attribute__((noinline)) static int take_read(void) { return pthread_rwlock_rdlock(&rwlock) || pthread_rwlock_unlock(&rwlock); }
__attribute__((noinline)) static int take_write(void) { return pthread_rwlock_wrlock(&rwlock) || pthread_rwlock_unlock(&rwlock); }
__attribute__((noinline)) static int take_barrier(void) { return pthread_barrier_wait(&barrier) > 0; }
__attribute__((noinline)) static int take_work(void) { return sem_wait(&work) != 0; }
__attribute__((noinline)) static int take_turnstile(void) { return sem_wait(&turnstile) != 0; }

__attribute__((noinline)) static int take_condition(void)
{
	must(!pthread_mutex_lock(&mutex));
	while (!go)
		must(!pthread_cond_wait(&condition, &mutex));
	go = 0;
	return pthread_mutex_unlock(&mutex);
}

static void *waiter(void *p)
{
	struct wait *w = p;
	pthread_barrier_wait(&ready);
	long long from = now();
	must(!w->take());
	w->ns += now() - from;
	w->waits++;
	return NULL;
}

/* A thread waits, at least `n` ms, until `let` releases it. */
static void one(struct wait *w, long n, void (*let)(void))
{
	pthread_t t;
	must(!pthread_create(&t, NULL, waiter, w));
	pthread_barrier_wait(&ready);
	ms(n);
	let();
	must(!pthread_join(t, NULL));
	printf("%s %lld %lld\n", w->kind, w->waits, w->ns);
}

static void let_mutex(void) { must(!pthread_mutex_unlock(&mutex)); }
static void let_rwlock(void) { must(!pthread_rwlock_unlock(&rwlock)); }
static void let_barrier(void) { pthread_barrier_wait(&barrier); }
static void let_work(void) { must(!sem_post(&work)); }

static void let_condition(void)
{
	must(!pthread_mutex_lock(&mutex));
	go = 1;
	must(!pthread_cond_signal(&condition));
	must(!pthread_mutex_unlock(&mutex));
}

/* A semaphore as a lock: each takes it and gives it back. */
static _Atomic long long turn_ns, turns;

static void *turn(void *p)
{
	(void)p;
	for (int i = 0; i < 20; i++) {
		long long from = now();
		must(!take_turnstile());
		turn_ns += now() - from;
		turns++;
		ms(1);
		must(!sem_post(&turnstile));
	}
	return NULL;
}

static void *end_with_it(void *m)
{
	must(!pthread_mutex_lock(m));
	return NULL;
}

static void unlock(void *m) { pthread_mutex_unlock(m); }

static void *cancelled(void *p)
{
	(void)p;
	must(!pthread_mutex_lock(&mutex));
	pthread_cleanup_push(unlock, &mutex);
	for (;;)
		pthread_cond_wait(&condition, &mutex);
	pthread_cleanup_pop(1);
	return NULL;
}

static void *cancelled_semaphore(void *p)
{
	(void)p;
	sem_wait(&work);
	return NULL;
}

static int relock(int type, int (*lock)(pthread_mutex_t *))
{
	pthread_mutexattr_t a;
	pthread_mutex_t m;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, type);
	pthread_mutex_init(&m, &a);
	must(!lock(&m));
	int second = lock(&m);
	if (!second)
		must(!pthread_mutex_unlock(&m));
	must(!pthread_mutex_unlock(&m));
	must(!pthread_mutex_destroy(&m));
	return second;
}

static int timed(pthread_mutex_t *m)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return pthread_mutex_timedlock(m, &t);
}

/* Each kind of lock must return the same results as without the library. */
static void answers(void)
{
	pthread_mutexattr_t a;
	pthread_mutex_t robust, inherits;
	pthread_t t;
	struct timespec past = {1, 0};
	printf("answers %d %d %d %d", relock(PTHREAD_MUTEX_RECURSIVE, pthread_mutex_lock),
	       relock(PTHREAD_MUTEX_ERRORCHECK, pthread_mutex_lock), relock(PTHREAD_MUTEX_NORMAL, timed),
	       relock(PTHREAD_MUTEX_ADAPTIVE_NP, timed));
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &a);
	pthread_create(&t, NULL, end_with_it, &robust);
	pthread_join(t, NULL);
	printf(" robust %d", pthread_mutex_lock(&robust));
	pthread_mutex_consistent(&robust);
	pthread_mutex_unlock(&robust);
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&inherits, &a);
	must(!pthread_mutex_lock(&inherits));
	printf(" pi %d", timed(&inherits));
	must(!pthread_mutex_unlock(&inherits));
	must(!pthread_rwlock_wrlock(&rwlock));
	printf(" rwlock %d %d %d", pthread_rwlock_wrlock(&rwlock), pthread_rwlock_rdlock(&rwlock),
	       pthread_rwlock_timedrdlock(&rwlock, &past));
	must(!pthread_rwlock_unlock(&rwlock));
	errno = 0;
	int r = sem_timedwait(&work, &past);
	printf(" semaphore %d %d", r, errno);
	errno = 77;
	must(!pthread_mutex_lock(&mutex));
	must(!pthread_mutex_unlock(&mutex));
	printf(" errno %d\n", errno);

	must(!pthread_create(&t, NULL, cancelled, NULL));
	ms(20);
	must(!pthread_cancel(t));
	void *how;
	must(!pthread_join(t, &how) && how == PTHREAD_CANCELED);
	must(!pthread_mutex_trylock(&mutex));
	must(!pthread_mutex_unlock(&mutex));
	must(!pthread_create(&t, NULL, cancelled_semaphore, NULL));
	ms(20);
	must(!pthread_cancel(t));
	must(!pthread_join(t, &how) && how == PTHREAD_CANCELED);
	puts("cancelled");
}

int main(int argc, char **argv)
{
	pthread_barrier_init(&ready, NULL, 2);
	pthread_barrier_init(&barrier, NULL, 2);
	sem_init(&turnstile, 0, 1);
	sem_init(&work, 0, 0);
	if (argc > 1 && !strcmp(argv[1], "again")) {
		struct wait w = {"mutex", 0, 0, take_mutex};
		must(!pthread_mutex_lock(&mutex));
		one(&w, 30, let_mutex);
		return 0;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("holder %ld\n", syscall(SYS_gettid));
	struct wait waits[] = {
		{"mutex", 0, 0, take_mutex},	     {"rwlock read", 0, 0, take_read}, {"rwlock write", 0, 0, take_write},
		{"condition", 0, 0, take_condition}, {"barrier", 0, 0, take_barrier},  {"semaphore", 0, 0, take_work},
	};
	must(!pthread_mutex_lock(&mutex));
	one(&waits[0], 120, let_mutex);
	must(!pthread_rwlock_wrlock(&rwlock));
	one(&waits[1], 60, let_rwlock);
	must(!pthread_rwlock_wrlock(&rwlock));
	one(&waits[2], 70, let_rwlock);
	one(&waits[3], 80, let_condition);
	one(&waits[4], 50, let_barrier);
	one(&waits[5], 40, let_work);
	pthread_t t[3];
	for (int i = 0; i < 3; i++)
		must(!pthread_create(&t[i], NULL, turn, NULL));
	for (int i = 0; i < 3; i++)
		must(!pthread_join(t[i], NULL));
	printf("turnstile %lld %lld\n", (long long)turns, (long long)turn_ns);
	answers();
	/* A child that goes on, and one that becomes the program anew: files of their own. */
	for (int i = 0; i < 2; i++) {
		fflush(stdout);
		pid_t pid = fork();
		if (!pid) {
			if (i)
				execl(argv[0], argv[0], "again", NULL);
			must(relock(PTHREAD_MUTEX_RECURSIVE, pthread_mutex_lock) == 0);
			must(relock(PTHREAD_MUTEX_ERRORCHECK, pthread_mutex_lock) == EDEADLK);
			struct wait w = {"mutex", 0, 0, take_mutex};
			must(!pthread_mutex_lock(&mutex));
			one(&w, 30, let_mutex);
			fflush(stdout);
			_exit(0);
		}
		int status;
		must(waitpid(pid, &status, 0) == pid && status == 0);
	}
	return 0;
}
