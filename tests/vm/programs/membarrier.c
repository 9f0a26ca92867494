/*
 * membarrier: N threads of one process that compute, and its main thread, which makes each of their CPUs pass a memory barrier, ROUNDS
 * times. The kernel interrupts each CPU that runs a thread of the process for that, on every architecture.
 */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int started;

static void *work(void *arg)
{
	(void)arg;
	atomic_fetch_add(&started, 1);
	for (;;)
		atomic_signal_fence(memory_order_seq_cst);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc == 3 ? atoi(argv[1]) : 0, rounds = argc == 3 ? atoi(argv[2]) : 0;
	pthread_t thread;

	if (threads < 1 || rounds < 1) {
		fprintf(stderr, "usage: membarrier THREADS ROUNDS\n");
		return 2;
	}
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread, NULL, work, NULL)) {
			fprintf(stderr, "membarrier: cannot start a thread\n");
			return 1;
		}
	while (atomic_load(&started) < threads)
		usleep(1000);
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)) {
		perror("membarrier");
		return 1;
	}
	for (int i = 0; i < rounds; i++) {
		if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0)) {
			perror("membarrier");
			return 1;
		}
		usleep(2000);
	}
	printf("%d\n", rounds);
	return 0;
}
