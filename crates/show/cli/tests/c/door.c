/*
 * Four threads and a lock of its own, made of a futex: each holds it for a millisecond of computing, again and again, for a
 * second. Linked statically and stripped, nothing says what they wait for.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic int door; /* 0: open, 1: shut, 2: shut, and somebody waits */
static double end;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline)) static void pass_the_door(void)
{
	int open = 0;

	if (atomic_compare_exchange_strong(&door, &open, 1))
		return;
	while (atomic_exchange(&door, 2))
		syscall(SYS_futex, &door, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

static void leave(void)
{
	if (atomic_exchange(&door, 0) == 2)
		syscall(SYS_futex, &door, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *work(void *unused)
{
	while (now() < end) {
		pass_the_door();
		for (double until = now() + 1e-3; now() < until;)
			;
		leave();
	}
	return unused;
}

int main(void)
{
	pthread_t threads[4];

	end = now() + 1.5;
	for (int i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, work, NULL))
			return 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
