// Timers from C: expiry, cancelling, periods, callbacks that free, misuse, fork, no descriptors, no threads.
#include <stdatomic.h>
#include <sys/resource.h>
#include "check.h"

enum { MS = 1000000 };

static ncpu_timers_t *timers;
static atomic_long calls;

static long long now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void until(long wanted)
{
	while (calls < wanted)
		usleep(200);
}

static void count(ncpu_timer_t *timer, void *data, uint64_t expirations)
{
	CHECK(timer == NULL || expirations == 0, 0);
	if (data)
		*(long long *)data = now_ns();
	calls++;
}

static void free_it(ncpu_timer_t *timer, void *data, uint64_t expirations)
{
	CHECK(data != NULL || expirations != 1, 0);
	free(timer);
	calls++;
}

static void three_times(ncpu_timer_t *timer, void *data, uint64_t expirations)
{
	long *left = data;
	CHECK(expirations >= 1, 1);
	CHECK(ncpu_timer_is_armed(timers, timer), 1);
	CHECK(ncpu_timers_destroy(timers), EDEADLK);
	if (--*left == 0) {
		CHECK(ncpu_timer_cancel_wait(timers, timer), EDEADLK);
		CHECK(ncpu_timer_is_armed(timers, timer), 0);
	}
	calls++;
}

static void again(ncpu_timer_t *timer, void *data, uint64_t expirations)
{
	long *left = data;
	CHECK(expirations, 1);
	if (--*left > 0)
		CHECK(ncpu_timer_arm(timers, timer, 1000, 0), 0);
	calls++;
}

static void slow(ncpu_timer_t *timer, void *data, uint64_t expirations)
{
	CHECK(timer == NULL || expirations != 1, 0);
	calls++;
	usleep(10000);
	*(atomic_int *)data = 1;
}

static void expiry(void)
{
	ncpu_timer_t timer, others[10];
	long long fired = 0, before;
	struct timespec at = in_ms(5);
	CHECK(ncpu_timer_init(&timer, count, &fired), 0);
	for (unsigned long after = 0; after < 100 * MS; after = after * 10 + 1000) {
		calls = 0;
		before = now_ns();
		CHECK(ncpu_timer_arm(timers, &timer, after, after / 8), 0);
		until(1);
		CHECK(ncpu_timer_cancel_wait(timers, &timer), ENOENT);
		CHECK(fired - before >= (long long)after, 1);
	}
	calls = 0;
	CHECK(ncpu_timer_arm_at(timers, &timer, &at, 0), 0);
	until(1);
	CHECK(ncpu_timer_cancel_wait(timers, &timer), ENOENT);
	CHECK(fired >= at.tv_sec * 1000000000ll + at.tv_nsec, 1);
	// Arming twice is arming once.
	calls = 0;
	for (int i = 0; i < 10; i++) {
		CHECK(ncpu_timer_init(&others[i], count, NULL), 0);
		CHECK(ncpu_timer_arm(timers, &others[i], 3600ull * 1000 * MS, 0), 0);
		CHECK(ncpu_timer_is_armed(timers, &others[i]), 1);
		if (i % 2)
			CHECK(ncpu_timer_arm(timers, &others[i], 10, 0), 0);
		else
			CHECK(ncpu_timer_cancel(timers, &others[i]), 0);
	}
	until(5);
	for (int i = 0; i < 10; i++)
		CHECK(ncpu_timer_cancel_wait(timers, &others[i]), ENOENT);
	CHECK(calls, 5);
}

static void callbacks(void)
{
	ncpu_timer_t timer;
	long left = 3;
	atomic_int done = 0;
	calls = 0;
	for (int i = 0; i < 100; i++) {
		ncpu_timer_t *own = malloc(sizeof *own);
		CHECK(ncpu_timer_init(own, free_it, NULL), 0);
		CHECK(ncpu_timer_arm(timers, own, i * 10000, 0), 0);
	}
	until(100);
	calls = 0;
	CHECK(ncpu_timer_init(&timer, three_times, &left), 0);
	CHECK(ncpu_timer_arm_every(timers, &timer, MS, MS, 0), 0);
	until(3);
	CHECK(ncpu_timer_cancel_wait(timers, &timer), ENOENT);
	CHECK(calls, 3);
	left = 50;
	calls = 0;
	CHECK(ncpu_timer_init(&timer, again, &left), 0);
	CHECK(ncpu_timer_arm(timers, &timer, 0, 0), 0);
	until(50);
	CHECK(ncpu_timer_cancel_wait(timers, &timer), ENOENT);
	calls = 0;
	CHECK(ncpu_timer_init(&timer, slow, &done), 0);
	CHECK(ncpu_timer_arm(timers, &timer, 0, 0), 0);
	until(1);
	CHECK(ncpu_timer_cancel(timers, &timer), ENOENT);
	CHECK(ncpu_timer_cancel_wait(timers, &timer), ENOENT);
	CHECK(done, 1);
}

static void misuse(void)
{
	ncpu_timer_t timer, zero = {{0}};
	ncpu_timers_activity_t activity;
	struct timespec wrong = {0, -1};
	CHECK(ncpu_timer_init(NULL, count, NULL), EINVAL);
	CHECK(ncpu_timer_init(&timer, NULL, NULL), EINVAL);
	CHECK(ncpu_timer_init(&timer, count, NULL), 0);
	CHECK(ncpu_timer_arm(NULL, &timer, 1, 0), EINVAL);
	CHECK(ncpu_timer_arm(timers, NULL, 1, 0), EINVAL);
	CHECK(ncpu_timer_arm(timers, &zero, 1, 0), EINVAL);
	CHECK(ncpu_timer_arm_at(timers, &timer, NULL, 0), EINVAL);
	CHECK(ncpu_timer_arm_at(timers, &timer, &wrong, 0), EINVAL);
	CHECK(ncpu_timer_cancel(NULL, &timer), EINVAL);
	CHECK(ncpu_timer_cancel(timers, NULL), EINVAL);
	CHECK(ncpu_timer_cancel(timers, &zero), ENOENT);
	CHECK(ncpu_timer_cancel_wait(timers, &timer), ENOENT);
	CHECK(ncpu_timer_is_armed(NULL, &timer), 0);
	CHECK(ncpu_timer_is_armed(timers, NULL), 0);
	CHECK(ncpu_timers_activity(NULL, &activity), EINVAL);
	CHECK(ncpu_timers_activity(timers, NULL), EINVAL);
	CHECK(ncpu_timers_destroy(NULL), 0);
}

// A child does not have the parent's timers, and can arm its own.
static void forks(void)
{
	ncpu_timer_t inherited, fresh;
	ncpu_timers_activity_t activity;
	calls = 0;
	CHECK(ncpu_timer_init(&inherited, count, NULL), 0);
	CHECK(ncpu_timer_init(&fresh, count, NULL), 0);
	CHECK(ncpu_timer_arm(timers, &inherited, 3600ull * 1000 * MS, 0), 0);
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		CHECK(child == -1, 0);
		if (child == 0) {
			alarm(60);
			CHECK(ncpu_timer_is_armed(timers, &inherited), 0);
			CHECK(ncpu_timer_cancel(timers, &inherited), ENOENT);
			if (i == 1)
				CHECK(ncpu_timer_cancel_wait(timers, &inherited), ENOENT);
			if (i == 2) // Numbers of descriptors mean something else then.
				for (int fd = 3; fd < 64; fd++)
					close(fd);
			CHECK(ncpu_timer_arm(timers, &inherited, 100, 0), 0);
			CHECK(ncpu_timer_arm(timers, &fresh, MS, 0), 0);
			until(2);
			CHECK(ncpu_timers_activity(timers, &activity), 0);
			CHECK(activity.fired, 2);
			CHECK(activity.armed, 0);
			CHECK(ncpu_timers_destroy(timers), 0);
			_exit(0);
		}
		wait_for(child, 0);
	}
	CHECK(calls, 0);
	CHECK(ncpu_timer_is_armed(timers, &inherited), 1);
	CHECK(ncpu_timer_arm(timers, &inherited, 100, 0), 0);
	until(1);
	CHECK(ncpu_timer_cancel_wait(timers, &inherited), ENOENT);
}

// The first timer of a CPU needs a descriptor and a thread: without them an error, and success later.
static void exhausted(int resource, int error)
{
	pid_t child = fork();
	CHECK(child == -1, 0);
	if (child == 0) {
		struct rlimit old, none;
		ncpu_timer_t timer;
		alarm(60);
		calls = 0;
		// The number of threads is limited by user, but for root.
		if (resource == RLIMIT_NPROC && geteuid() == 0 && setreuid(65534, 65534) != 0)
			_exit(0);
		CHECK(ncpu_timer_init(&timer, count, NULL), 0);
		CHECK(getrlimit(resource, &old), 0);
		none = old;
		none.rlim_cur = 0;
		CHECK(setrlimit(resource, &none), 0);
		CHECK(ncpu_timer_arm(timers, &timer, 1000, 0), error);
		CHECK(setrlimit(resource, &old), 0);
		CHECK(ncpu_timer_is_armed(timers, &timer), 0);
		CHECK(ncpu_timer_arm(timers, &timer, 1000, 0), 0);
		until(1);
		_exit(0);
	}
	wait_for(child, 0);
}

int main(void)
{
	timers = ncpu_timers_create();
	CHECK(timers == NULL, 0);
	misuse();
	expiry();
	callbacks();
	forks();
	exhausted(RLIMIT_NOFILE, EMFILE);
	exhausted(RLIMIT_NPROC, EAGAIN);
	CHECK(ncpu_timers_destroy(timers), 0);
	puts("ok");
	return 0;
}
