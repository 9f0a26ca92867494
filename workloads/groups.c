/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tenants that come and go: each is a control group with one short process. For benches/tenants-churn.sh.
 * usage: groups DIR COUNT [WORKERS]
 *   DIR      a control group, in which the others are made
 *   COUNT    groups in all
 *   WORKERS  that make them, a process each [default: 2]
 * Prints the number of groups that are done, every thousandth.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_long *done;

static void die(const char *what, const char *where)
{
	fprintf(stderr, "groups: %s %s: %s\n", what, where, strerror(errno));
	_exit(1);
}

static void pause_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

/* The life of a tenant: it enters the group, comes on CPU there some times, and ends. */
static void live(const char *group)
{
	char procs[4200];

	snprintf(procs, sizeof procs, "%s/cgroup.procs", group);
	int fd = open(procs, O_WRONLY);
	if (fd < 0 || write(fd, "0", 1) != 1)
		die("entering", group);
	close(fd);
	for (int i = 0; i < 3; i++) {
		for (volatile int n = 0; n < 20000; n++)
			;
		pause_us(200);
	}
	_exit(0);
}

static void work(const char *dir, long from, long to)
{
	char group[4096];
	int status;

	for (long i = from; i < to; i++) {
		snprintf(group, sizeof group, "%s/job-%ld", dir, i);
		if (mkdir(group, 0755))
			die("making", group);
		pid_t pid = fork();
		if (pid < 0)
			die("forking in", group);
		if (!pid)
			live(group);
		if (waitpid(pid, &status, 0) < 0 || status)
			die("a process of", group);
		/* The kernel may need a moment more to let a process go. */
		for (int n = 0; rmdir(group); n++) {
			if (errno != EBUSY || n == 5000)
				die("removing", group);
			pause_us(1000);
		}
		long all = ++*done;
		if (all % 1000 == 0) {
			printf("%ld\n", all);
			fflush(stdout);
		}
	}
}

int main(int argc, char **argv)
{
	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: groups DIR COUNT [WORKERS]\n");
		return 2;
	}
	long count = atol(argv[2]), workers = argc > 3 ? atol(argv[3]) : 2;
	int status, failed = 0;

	if (count < 1 || workers < 1 || workers > 1000) {
		fprintf(stderr, "groups: expected COUNT of at least 1 and WORKERS from 1 to 1000\n");
		return 2;
	}
	done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (done == MAP_FAILED)
		die("mapping", "memory");
	for (long w = 0; w < workers; w++) {
		pid_t pid = fork();
		if (pid < 0)
			die("forking", "a worker");
		if (!pid) {
			work(argv[1], count * w / workers, count * (w + 1) / workers);
			_exit(0);
		}
	}
	while (wait(&status) > 0)
		failed |= status;
	return failed != 0;
}
