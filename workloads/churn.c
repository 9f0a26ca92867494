/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What a tracer remembers things by, ever new: short processes of many programs, short threads, kernel locks of many
 * files, user locks without number. For benches/endurance.sh.
 * usage: churn SECONDS [PROCESSES [THREADS [FILES [LOCKS]]]]
 *   PROCESSES started a second at most (0: none), from 64 copies of true(1) under ever new names
 *   THREADS   at a time that begin, contend and end
 *   FILES     that threads append to in pairs, so that each inode's lock is contended
 *   LOCKS     mutexes that threads go through in pairs, sleeping while they hold one
 * Prints what it did. Works in the current directory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double until;
static long processes = 200, threads = 16, files = 2000, locks = 100000;
static pthread_mutex_t *mutexes;
static atomic_long started, begun, appended, locked, turn;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void pause_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

/* Two threads share a number of `turn`, so that they meet at the same file and the same lock. */
static void *contend(void *unused)
{
	static const char text[4096];
	char name[32];

	for (int i = 0; i < 200 && now() < until; i++) {
		long at = atomic_fetch_add(&turn, 1) / 2;
		snprintf(name, sizeof name, "f%ld", at % files);
		int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
		if (fd >= 0) {
			for (int n = 0; n < 8; n++)
				appended += write(fd, text, sizeof text) > 0;
			/* It must not fill the disk. */
			if (ftruncate(fd, 0))
				break;
			close(fd);
		}
		pthread_mutex_lock(&mutexes[at % locks]);
		pause_us(50);
		pthread_mutex_unlock(&mutexes[at % locks]);
		locked++;
	}
	return unused;
}

static void *pair(void *unused)
{
	while (now() < until) {
		pthread_t two[2];
		int n = 0;

		while (n < 2 && !pthread_create(&two[n], NULL, contend, NULL))
			n++;
		while (n > 0) {
			pthread_join(two[--n], NULL);
			begun++;
		}
	}
	return unused;
}

static void spawn(void)
{
	static long next;
	char old[32], name[32], *argv[] = { name, NULL };
	pid_t pid;

	/* The same file under a new name is another program to who knows programs by name. */
	snprintf(old, sizeof old, "p%ld", next % 64);
	snprintf(name, sizeof name, "p%ld", next % 64 + 1000 + next / 64);
	if (!link(old, name)) {
		char path[40];
		snprintf(path, sizeof path, "./%s", name);
		if (!posix_spawn(&pid, path, NULL, NULL, argv, NULL))
			started += waitpid(pid, NULL, 0) == pid;
		unlink(name);
	}
	next++;
}

int main(int argc, char **argv)
{
	pthread_t all[4096];
	long *numbers[] = { &processes, &threads, &files, &locks };

	if (argc < 2)
		return 2;
	until = now() + atof(argv[1]);
	for (int i = 2; i < argc && i < 6; i++)
		*numbers[i - 2] = atol(argv[i]);
	for (int i = 0; i < 64; i++) {
		char command[64];
		snprintf(command, sizeof command, "cp -f /bin/true p%d", i);
		if (system(command))
			return 1;
	}
	mutexes = calloc(locks, sizeof *mutexes);
	if (threads > 8192 || !mutexes || files < 1 || locks < 1)
		return 2;
	for (int i = 0; i < threads / 2; i++)
		if (pthread_create(&all[i], NULL, pair, NULL))
			return 1;
	double next = now();
	while (now() < until) {
		if (!processes) {
			pause_us(100000);
			continue;
		}
		spawn();
		next += 1.0 / processes;
		double wait = next - now();
		if (wait > 0)
			pause_us(wait * 1e6);
		else
			next = now();
	}
	for (int i = 0; i < threads / 2; i++)
		pthread_join(all[i], NULL);
	printf("%ld processes, %ld threads, %ld appends, %ld locks\n", started, begun, appended, locked);
	return 0;
}
