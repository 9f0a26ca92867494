// A small program: the cost of fork, exit and execve depends on the program, and should not depend on the
// libraries that ncpu is linked with.
//
//   small N            executes itself N - 1 times
//   small herd exit|_exit|hold
//                      does as the orders on standard input say, and answers with the number of failures; the
//                      processes end at once when all have met, or wait until they are waited for

#define _GNU_SOURCE
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORK = 1, MEET = 2, WAIT = 4 };

struct order {
	uint32_t what;
	uint32_t n;
};

struct barrier {
	atomic_uint arrived;
	atomic_uint generation;
};

static void
meet(struct barrier *b, unsigned parties)
{
	unsigned generation = atomic_load(&b->generation);

	if (atomic_fetch_add(&b->arrived, 1) + 1 == parties) {
		atomic_store(&b->arrived, 0);
		atomic_fetch_add(&b->generation, 1);
		syscall(SYS_futex, &b->generation, FUTEX_WAKE, INT32_MAX);
		return;
	}
	while (atomic_load(&b->generation) == generation)
		syscall(SYS_futex, &b->generation, FUTEX_WAIT, generation, NULL);
}

static void
give_up(const pid_t *pids, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

static int
herd(const char *how)
{
	int at_once = strcmp(how, "_exit") == 0, hold = strcmp(how, "hold") == 0;
	struct barrier *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct order order;
	pid_t *pids = NULL;
	uint32_t forked = 0;

	if (b == MAP_FAILED)
		return 1;
	while (read(STDIN_FILENO, &order, sizeof(order)) == sizeof(order)) {
		uint32_t failed = 0;

		if (order.what & FORK) {
			pid_t *more = realloc(pids, order.n * sizeof(*pids));

			pids = more ? more : pids;
			for (forked = 0; more && forked < order.n; forked++) {
				pids[forked] = fork();
				if (pids[forked] == -1)
					break;
				if (pids[forked] == 0) {
					meet(b, order.n + 1);
					if (hold)
						meet(b, order.n + 1);
					if (at_once)
						_exit(0);
					exit(0);
				}
			}
			if (forked < order.n) {
				// Those there are would wait for ever for those there are not.
				give_up(pids, forked);
				atomic_store(&b->arrived, 0);
				failed += order.n - forked;
				forked = 0;
			}
		}
		if ((order.what & MEET) && forked)
			meet(b, forked + 1);
		if (order.what & WAIT) {
			if (hold && forked)
				meet(b, forked + 1);
			for (; forked; forked--) {
				int status;

				if (waitpid(-1, &status, 0) == -1 || status != 0)
					failed++;
			}
		}
		if (write(STDOUT_FILENO, &failed, sizeof(failed)) != sizeof(failed))
			break;
	}
	give_up(pids, forked);
	return 0;
}

int
main(int argc, char **argv)
{
	char count[24];
	int left;

	if (argc > 2 && strcmp(argv[1], "herd") == 0)
		return herd(argv[2]);
	left = argc > 1 ? atoi(argv[1]) - 1 : -1;
	if (left < 0)
		return 1;
	if (left == 0)
		return 0;
	snprintf(count, sizeof(count), "%d", left);
	execv(argv[0], (char *[]){ argv[0], count, NULL });
	return 2;
}
