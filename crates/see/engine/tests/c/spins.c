// Two threads: one works, the other waits for it as the part says. Writes the CPU time of each into FILE, in seconds.
//
//   spins pause|names SECONDS FILE
//
// pause: the other spins with the instruction that CPUs have for that, in a function of no telling name.
// names: nobody waits for anything; the functions that work have names which hold those of locks.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static int done;

__attribute__((noinline)) static void turn(void)
{
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
#if defined(__aarch64__)
		__asm__ volatile("yield");
#else
		__builtin_ia32_pause();
#endif
}

#define WORK(name)                                                                                                     \
	__attribute__((noinline)) void name(volatile double *x)                                                        \
	{                                                                                                              \
		for (int i = 0; i < 100000; i++)                                                                       \
			*x = *x * 1.0000001 + 1e-9;                                                                    \
	}
WORK(update_stats_locked)
WORK(unlock_slow)
WORK(spin_lock_table)

static double end, of_other;
static int spins;

static void *other(void *unused)
{
	volatile double x = 1;

	(void)unused;
	if (spins)
		turn();
	else
		while (seconds(CLOCK_MONOTONIC) < end) {
			unlock_slow(&x);
			spin_lock_table(&x);
		}
	of_other = seconds(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

int main(int count, char **args)
{
	pthread_t thread;
	volatile double x = 1;

	if (count != 4)
		return 2;
	spins = !strcmp(args[1], "pause");
	end = seconds(CLOCK_MONOTONIC) + atof(args[2]);
	if (pthread_create(&thread, NULL, other, NULL))
		return 1;
	while (seconds(CLOCK_MONOTONIC) < end)
		update_stats_locked(&x);
	double own = seconds(CLOCK_THREAD_CPUTIME_ID);
	__atomic_store_n(&done, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	FILE *out = fopen(args[3], "w");

	return !out || fprintf(out, "%f %f\n", own, of_other) < 0 || fclose(out);
}
