/* envtorture: threads that read the environment beside threads that change it.
 *
 *   envtorture [READERS [WRITERS [SECONDS [VARIABLES]]]]     default 2 1 5 40
 *
 * Readers ask for variables that are there all the time and check what they get; writers add variables of their own,
 * change and remove them, and use memory as programs do. Prints look-ups, updates, and how often a reader was told
 * something wrong, which makes the exit status 1. Under glibc before 2.41 it soon ends with a segmentation fault.
 * With 0 writers it measures what reading costs, at 1 and more readers.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define NAMES 8
#define MOST 256

static char names[NAMES][32], values[NAMES][32];
static atomic_int run;
static struct result {
	unsigned long done, wrong;
} __attribute__((aligned(128))) readers[MOST], writers[MOST];

static void *reader(void *result)
{
	struct result *mine = result;
	unsigned long done = 0;
	while (!run)
		;
	while (run == 1) {
		for (int i = 0; i < NAMES; i++) {
			const char *value = getenv(names[i]);
			if (!value || strcmp(value, values[i]))
				mine->wrong++;
		}
		done += NAMES;
	}
	mine->done = done;
	return NULL;
}

static void *writer(void *result)
{
	struct result *mine = result;
	int me = mine - writers;
	unsigned long done = 0;
	char name[32];
	while (!run)
		;
	for (unsigned round = 1; run == 1; round++) {
		int count = 1 + round % 200;
		for (int i = 0; i < count; i++) {
			snprintf(name, sizeof name, "CHURN_%d_%d", me, i);
			if (setenv(name, i % 2 ? "short" : "a value that is somewhat longer", 1) || !getenv(name))
				mine->wrong++;
			/* Memory that was a list may come back as this. */
			size_t size = 64 + round * 24 % 4096;
			char *memory = malloc(size);
			if (memory)
				memset(memory, 0x5a, size);
			free(memory);
		}
		for (int i = 0; i < count; i++) {
			snprintf(name, sizeof name, "CHURN_%d_%d", me, round % 2 ? i : count - 1 - i);
			if (unsetenv(name) || getenv(name))
				mine->wrong++;
		}
		done += 2 * count;
	}
	mine->done = done;
	return NULL;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static double number(int argc, char **argv, int at, double otherwise, double least, double most)
{
	if (at >= argc)
		return otherwise;
	char *end;
	double value = strtod(argv[at], &end);
	if (*end || end == argv[at] || !(value >= least && value <= most)) {
		fprintf(stderr, "envtorture: %s: a number from %g to %g is wanted\n"
			"usage: envtorture [READERS [WRITERS [SECONDS [VARIABLES]]]]\n", argv[at], least, most);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	int reading = number(argc, argv, 1, 2, 0, MOST), writing = number(argc, argv, 2, 1, 0, MOST);
	double seconds = number(argc, argv, 3, 5, 0.001, 1e6);
	int variables = number(argc, argv, 4, 40, NAMES, 100000);
	pthread_t threads[2 * MOST];
	clearenv();
	/* Those that are asked for lie evenly among the others. */
	for (int i = 0, named = 0; i < variables; i++) {
		char name[32], value[32];
		snprintf(name, sizeof name, "%c_VARIABLE_%d", 'A' + i % 26, i);
		snprintf(value, sizeof value, "value of %d", i);
		if (setenv(name, value, 1)) {
			perror("setenv");
			return 2;
		}
		if (named < NAMES && i >= (2 * named + 1) * variables / (2 * NAMES)) {
			strcpy(names[named], name);
			strcpy(values[named++], value);
		}
	}
	for (int i = 0; i < reading + writing; i++) {
		int failed = i < reading ? pthread_create(&threads[i], NULL, reader, &readers[i])
			: pthread_create(&threads[i], NULL, writer, &writers[i - reading]);
		if (failed) {
			fprintf(stderr, "envtorture: thread %d: %s\n", i, strerror(failed));
			return 2;
		}
	}
	double begin = now();
	run = 1;
	struct timespec left = {seconds, (seconds - (long)seconds) * 1e9};
	nanosleep(&left, NULL);
	run = 2;
	double elapsed = now() - begin;
	unsigned long looked_up = 0, updated = 0, wrong = 0;
	for (int i = 0; i < reading + writing; i++) {
		pthread_join(threads[i], NULL);
		struct result *one = i < reading ? &readers[i] : &writers[i - reading];
		*(i < reading ? &looked_up : &updated) += one->done;
		wrong += one->wrong;
	}
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	printf("%.3f million look-ups/s, %.3f million updates/s, %lu wrong, %.1f CPU-seconds, %ld KiB\n",
		looked_up / elapsed / 1e6, updated / elapsed / 1e6, wrong, cpu, usage.ru_maxrss);
	return wrong != 0;
}
