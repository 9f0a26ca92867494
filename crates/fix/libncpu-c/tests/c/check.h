// Helpers of the C tests.
#ifndef CHECK_H
#define CHECK_H
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ncpu.h"

#define CHECK(expression, wanted) do { \
	long long got_ = (expression), wanted_ = (wanted); \
	if (got_ != wanted_) { \
		fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #expression, got_, wanted_); \
		exit(1); \
	} \
} while (0)

static inline struct timespec in_ms(long ms)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += ms % 1000 * 1000000;
	t.tv_sec += ms / 1000 + t.tv_nsec / 1000000000;
	t.tv_nsec %= 1000000000;
	return t;
}

// Memory that forked processes share.
static inline void *shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(p == MAP_FAILED, 0);
	return p;
}

static inline void wait_for(pid_t child, int signal)
{
	int status;
	CHECK(waitpid(child, &status, 0), child);
	if (signal)
		CHECK(WIFSIGNALED(status) ? WTERMSIG(status) : -1, signal);
	else
		CHECK(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}
#endif
