// Ports for connections: blocks of consecutive ports, each handed out once, none overlooked.
//
//     gcc -pthread ports.c $(pkg-config --cflags --libs ncpu) -o ports && ./ports
#include <ncpu.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WORKERS = 8, ROUNDS = 10000, FIRST = 49152, COUNT = 16384, BLOCK = 4 };

static ncpu_vmem_t *ports;

static void *work(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t port, block;
		int error = ncpu_vmem_alloc(ports, 1, &port);
		if (error == 0) {
			error = ncpu_vmem_alloc(ports, BLOCK, &block);
			if (error == 0)
				error = ncpu_vmem_free(ports, block, BLOCK);
			ncpu_vmem_free(ports, port, 1);
		}
		if (error) {
			fprintf(stderr, "ports: %s\n", strerror(error));
			return "";
		}
	}
	return unused;
}

int main(void)
{
	pthread_t workers[WORKERS];
	ncpu_vmem_options_t options = { .quantum = 1, .cache_to = BLOCK };
	ncpu_vmem_statistics_t statistics;
	int error, failed = 0;

	ports = ncpu_vmem_create(&options, NULL);
	if (!ports) {
		perror("ports");
		return 1;
	}
	error = ncpu_vmem_add(ports, FIRST, COUNT);
	for (int i = 0; i < WORKERS && !error; i++)
		error = pthread_create(&workers[i], NULL, work, NULL);
	if (error) {
		fprintf(stderr, "ports: %s\n", strerror(error));
		return 1;
	}
	for (int i = 0; i < WORKERS; i++) {
		void *result;
		pthread_join(workers[i], &result);
		failed += result != NULL;
	}
	ncpu_vmem_reap(ports);
	ncpu_vmem_statistics(ports, &statistics);
	printf("%llu ports, %llu free, %llu side by side\n", (unsigned long long)statistics.total,
	       (unsigned long long)statistics.free, (unsigned long long)statistics.largest);
	ncpu_vmem_destroy(ports);
	return failed != 0;
}
