/*
 * logger [--cached] THREADS SECONDS: threads that make lines of a log, each with the local time, as servers do.
 *
 * localtime_r takes glibc's one lock for all time zones. With --cached a thread asks for the local time once a second, and adds
 * seconds itself meanwhile: what one does about it.
 *   cc -O2 -pthread -o logger workloads/logger.c
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 256

static int cached;
static double ends;
static long made[MOST];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* The local time of an instant. */
static void local_time(time_t at, struct tm *out)
{
	static _Thread_local struct tm last;
	static _Thread_local time_t last_at = -1;

	if (!cached) {
		localtime_r(&at, out);
		return;
	}
	if (last_at != at) {
		localtime_r(&at, &last);
		last_at = at;
	}
	*out = last;
}

/* A line of the log; what becomes of it does not matter here. */
static unsigned log_line(char *line, size_t size, unsigned request)
{
	struct timespec t;
	struct tm tm;
	unsigned sum = 0;

	clock_gettime(CLOCK_REALTIME, &t);
	local_time(t.tv_sec, &tm);
	size_t length = strftime(line, size, "%Y-%m-%dT%H:%M:%S%z", &tm);
	length += snprintf(line + length, size - length, " GET /orders/%u 200", request % 100000);
	for (size_t i = 0; i < length; i++)
		sum = sum * 31 + line[i];
	return sum;
}

static void *serve(void *count)
{
	char line[128];
	unsigned request = 0, sum = 0;

	while (now() < ends)
		for (int i = 0; i < 100; i++)
			sum += log_line(line, sizeof(line), request++);
	*(long *)count = request;
	return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv)
{
	pthread_t threads[MOST];
	long all = 0;

	cached = argc > 1 && !strcmp(argv[1], "--cached");
	argv += cached;
	if (argc - cached != 3 || atoi(argv[1]) < 1 || atoi(argv[1]) > MOST || atof(argv[2]) <= 0) {
		fprintf(stderr, "usage: logger [--cached] THREADS SECONDS\n");
		return 2;
	}
	int count = atoi(argv[1]);
	setenv("TZ", "Europe/Berlin", 0);
	tzset();
	ends = now() + atof(argv[2]);
	double begin = now();
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i], 0, serve, &made[i])) {
			perror("pthread_create");
			return 1;
		}
	for (int i = 0; i < count; i++) {
		pthread_join(threads[i], 0);
		all += made[i];
	}
	printf("%d threads: %.0f lines/s\n", count, all / (now() - begin));
	return 0;
}
