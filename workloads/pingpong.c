#define _GNU_SOURCE
/*
 * Two processes pass a byte to and fro through two pipes for SECONDS: two switches and four system calls a round trip.
 * On one CPU a trip takes a fraction of what it takes where each has to wake the other's CPU, and the scheduler chooses:
 * with CPUs given, each runs on its own.
 * usage: pingpong [SECONDS [CPU CPU]]
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void run_on(const char *cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(cpu), &set);
	if (sched_setaffinity(0, sizeof set, &set)) {
		perror("sched_setaffinity");
		_exit(1);
	}
}

int main(int count, char **args)
{
	double seconds = count > 1 ? atof(args[1]) : 2, start, end;
	int there[2], back[2];
	long trips = 0;
	char byte = 0;

	if (pipe(there) || pipe(back))
		return 1;
	pid_t child = fork();
	if (child < 0)
		return 1;
	if (count > 3)
		run_on(args[child ? 2 : 3]);
	if (!child) {
		close(there[1]);
		while (read(there[0], &byte, 1) == 1)
			if (write(back[1], &byte, 1) != 1)
				break;
		_exit(0);
	}
	close(there[0]);
	close(back[1]);
	start = now();
	do {
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			return 1;
		/* The clock is read seldom: it is not what is measured. */
		end = ++trips % 64 ? 0 : now();
	} while (!end || end - start < seconds);
	printf("%.0f round trips/s\n", trips / (end - start));
	close(there[1]);
	wait(NULL);
	return 0;
}
