// The robust mutex when its owner, its heir or a waiter dies, in each possible state.
#include "check.h"
#include <sys/syscall.h>

enum { WAITERS = 4, WORKERS = 4, KILLS = 60 };

// In memory that all processes share.
static struct state {
	ncpu_robust_t lock;
	// Equal when the lock is free.
	volatile long a, b;
	volatile int go;
	long mended, clean;
} *s;

static ncpu_robust_t threads_lock;
static int up[2];

static void ready(void) { CHECK(write(up[1], "x", 1), 1); }

static void await(int n)
{
	char x;
	while (n--)
		CHECK(read(up[0], &x, 1), 1);
}

// Waits until a child sleeps, which must be in the futex: it sleeps nowhere else.
static void await_sleep(pid_t child)
{
	char path[64], stat[512];
	for (;;) {
		snprintf(path, sizeof path, "/proc/%d/stat", child);
		FILE *f = fopen(path, "r");
		CHECK(!f, 0);
		CHECK(!fgets(stat, sizeof stat, f), 0);
		fclose(f);
		if (strrchr(stat, ')')[2] == 'S')
			return;
		usleep(1000);
	}
}

static void end(pid_t child)
{
	CHECK(kill(child, SIGKILL), 0);
	wait_for(child, SIGKILL);
}

// A process that takes the lock with the result `wanted`, and keeps it.
static pid_t holder(int wanted)
{
	pid_t child = fork();
	if (child == 0) {
		CHECK(ncpu_robust_lock(&s->lock), wanted);
		ready();
		for (;;)
			pause();
	}
	await(1);
	return child;
}

// A process that sleeps for the lock, and reports the result of taking it by its exit status.
static pid_t waiter(void)
{
	pid_t child = fork();
	if (child == 0) {
		int got = ncpu_robust_lock(&s->lock);
		CHECK(got == 0 || got == EOWNERDEAD, 1);
		CHECK(ncpu_robust_unlock(&s->lock), 0);
		_exit(got ? 1 : 0);
	}
	await_sleep(child);
	return child;
}

static int outcome(pid_t child)
{
	int status;
	CHECK(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status), 1);
	return WEXITSTATUS(status);
}

static void is_free(void)
{
	CHECK(ncpu_robust_trylock(&s->lock), 0);
	CHECK(ncpu_robust_unlock(&s->lock), 0);
}

static void killed_holding(void)
{
	pid_t owner = holder(0);
	CHECK(ncpu_robust_trylock(&s->lock), EBUSY);
	// As a zombie, and after it was reaped.
	CHECK(kill(owner, SIGKILL), 0);
	siginfo_t info;
	CHECK(waitid(P_PID, owner, &info, WEXITED | WNOWAIT), 0);
	CHECK(ncpu_robust_trylock(&s->lock), EOWNERDEAD);
	CHECK(ncpu_robust_unlock(&s->lock), 0);
	wait_for(owner, SIGKILL);
	end(holder(0));
	CHECK(ncpu_robust_lock(&s->lock), EOWNERDEAD);
	CHECK(ncpu_robust_lock(&s->lock), EDEADLK);
	CHECK(ncpu_robust_unlock(&s->lock), 0);
	is_free();
}

static void killed_with_waiters(void)
{
	pid_t owner = holder(0), waiters[WAITERS];
	int died = 0;
	for (int i = 0; i < WAITERS; i++)
		waiters[i] = waiter();
	end(owner);
	for (int i = 0; i < WAITERS; i++)
		died += outcome(waiters[i]);
	// One of them is the heir.
	CHECK(died, 1);
	is_free();
}

static void killed_waiting(void)
{
	CHECK(ncpu_robust_lock(&s->lock), 0);
	pid_t dead = waiter(), alive = waiter();
	end(dead);
	CHECK(ncpu_robust_unlock(&s->lock), 0);
	CHECK(outcome(alive), 0);
	is_free();
	// All waiters have ended.
	CHECK(ncpu_robust_lock(&s->lock), 0);
	end(waiter());
	CHECK(ncpu_robust_unlock(&s->lock), 0);
	is_free();
}

// The heir dies before it repaired the data, and so does the next.
static void killed_as_heir(void)
{
	end(holder(0));
	end(holder(EOWNERDEAD));
	pid_t third = holder(EOWNERDEAD), last = waiter();
	end(third);
	CHECK(outcome(last), 1);
	is_free();
}

// Between freeing the word, which is done here as unlock does it, and waking a sleeper.
static void killed_before_the_wake_up(void)
{
	pid_t owner = fork();
	if (owner == 0) {
		CHECK(ncpu_robust_lock(&s->lock), 0);
		ready();
		while (!s->go)
			usleep(1000);
		__atomic_exchange_n((unsigned *)&s->lock, 0, __ATOMIC_RELEASE);
		kill(getpid(), SIGKILL);
	}
	await(1);
	pid_t sleeper = waiter();
	s->go = 1;
	wait_for(owner, SIGKILL);
	CHECK(outcome(sleeper), 0);
	is_free();
}

static void stopped_is_not_dead(void)
{
	pid_t owner = holder(0);
	int status;
	struct timespec soon = in_ms(120);
	CHECK(kill(owner, SIGSTOP), 0);
	CHECK(waitpid(owner, &status, WUNTRACED), owner);
	CHECK(ncpu_robust_trylock(&s->lock), EBUSY);
	CHECK(ncpu_robust_timedlock(&s->lock, &soon), ETIMEDOUT);
	CHECK(ncpu_robust_unlock(&s->lock), EPERM);
	end(owner);
	CHECK(ncpu_robust_lock(&s->lock), EOWNERDEAD);
	CHECK(ncpu_robust_unlock(&s->lock), 0);
}

// execve keeps the thread: it holds the lock until it ends.
static void another_program(void)
{
	pid_t owner = fork();
	if (owner == 0) {
		CHECK(ncpu_robust_lock(&s->lock), 0);
		ready();
		execlp("sleep", "sleep", "1000", NULL);
		_exit(1);
	}
	await(1);
	await_sleep(owner);
	CHECK(ncpu_robust_trylock(&s->lock), EBUSY);
	end(owner);
	CHECK(ncpu_robust_trylock(&s->lock), EOWNERDEAD);
	CHECK(ncpu_robust_unlock(&s->lock), 0);
}

static void *returns(void *unused)
{
	CHECK(ncpu_robust_lock(&threads_lock), 0);
	return unused;
}

static void *exits(void *unused)
{
	CHECK(ncpu_robust_lock(&threads_lock), 0);
	pthread_exit(unused);
}

// Bypasses libc.
static void *ends_in_the_kernel(void *unused)
{
	CHECK(ncpu_robust_lock(&threads_lock), 0);
	syscall(SYS_exit, 0);
	return unused;
}

static void *is_cancelled(void *unused)
{
	CHECK(ncpu_robust_lock(&threads_lock), 0);
	ready();
	for (;;)
		pause();
	return unused;
}

static void *inherits(void *main_thread)
{
	pthread_join(*(pthread_t *)main_thread, NULL);
	CHECK(ncpu_robust_lock(&threads_lock), EOWNERDEAD);
	CHECK(ncpu_robust_unlock(&threads_lock), 0);
	_exit(0);
}

static void threads_end(void)
{
	void *(*ways[])(void *) = { returns, exits, ends_in_the_kernel, is_cancelled };
	for (int i = 0; i < 4; i++) {
#ifdef __SANITIZE_ADDRESS__
		// It finds its old state in a thread's memory when that is used again.
		if (ways[i] == ends_in_the_kernel)
			continue;
#endif
		pthread_t t;
		CHECK(pthread_create(&t, NULL, ways[i], NULL), 0);
		if (ways[i] == is_cancelled) {
			await(1);
			CHECK(ncpu_robust_trylock(&threads_lock), EBUSY);
			CHECK(pthread_cancel(t), 0);
		}
		CHECK(pthread_join(t, NULL), 0);
		CHECK(ncpu_robust_lock(&threads_lock), EOWNERDEAD);
		CHECK(ncpu_robust_unlock(&threads_lock), 0);
	}
	// The first thread of a process whose other threads continue.
	pid_t child = fork();
	if (child == 0) {
		static pthread_t self;
		pthread_t t;
		self = pthread_self();
		CHECK(ncpu_robust_lock(&threads_lock), 0);
		CHECK(pthread_create(&t, NULL, inherits, &self), 0);
		pthread_exit(NULL);
	}
	wait_for(child, 0);
}

static void work(void)
{
	for (;;) {
		int got = ncpu_robust_lock(&s->lock);
		if (got == EOWNERDEAD) {
			s->b = s->a;
			s->mended++;
		} else {
			CHECK(got, 0);
			CHECK(s->a == s->b, 1);
			s->clean++;
		}
		s->a++;
		for (volatile int i = 0; i < 50; i++)
			;
		s->b++;
		CHECK(ncpu_robust_unlock(&s->lock), 0);
	}
}

// Killed anywhere: the data are repaired, and the other processes continue.
static void killed_anywhere(void)
{
	pid_t workers[WORKERS] = { 0 };
	s->mended = s->clean = 0;
	srand(1);
	for (int i = 0; i < KILLS + WORKERS; i++) {
		pid_t *worker = &workers[i % WORKERS];
		if (*worker) {
			usleep(rand() % 3000);
			end(*worker);
		}
		*worker = fork();
		if (*worker == 0)
			work();
	}
	// With all but one killed, that one still makes progress.
	for (int i = 1; i < WORKERS; i++)
		end(workers[i]);
	long before = *(volatile long *)&s->clean;
	while (*(volatile long *)&s->clean < before + 100)
		usleep(1000);
	end(workers[0]);
	int got = ncpu_robust_lock(&s->lock);
	CHECK(got == 0 || got == EOWNERDEAD, 1);
	if (got == 0)
		CHECK(s->a == s->b, 1);
	CHECK(ncpu_robust_unlock(&s->lock), 0);
	is_free();
}

int main(void)
{
	s = shared(sizeof *s);
	CHECK(pipe(up), 0);
	killed_holding();
	killed_with_waiters();
	killed_waiting();
	killed_as_heir();
	killed_before_the_wake_up();
	stopped_is_not_dead();
	another_program();
	threads_end();
	killed_anywhere();
	puts("ok");
	return 0;
}
