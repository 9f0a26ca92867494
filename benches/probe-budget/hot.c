/*
 * The hottest programs of three kinds: system calls, page faults, requests to a block device. Prints operations a second.
 * Usage: hot calls|faults SECONDS [THREADS]; hot requests SECONDS FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int stop;
static const char *what, *file;

static void *work(void *unused)
{
	const size_t bytes = 16 << 20;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = file ? open(file, O_RDONLY | O_DIRECT) : -1;
	unsigned long n = 0;

	(void)unused;
	if (memory == MAP_FAILED || (file && fd < 0))
		exit(1);
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	while (!stop) {
		if (what[0] == 'c') {
			for (int i = 0; i < 1000; i++)
				syscall(SYS_getppid);
			n += 1000;
		} else if (what[0] == 'f') {
			for (size_t i = 0; i < bytes; i += 4096)
				memory[i] = 1;
			n += bytes / 4096;
			madvise(memory, bytes, MADV_DONTNEED);
		} else {
			if (pread(fd, memory, 4096, n % 256 * 4096) != 4096)
				exit(1);
			n++;
		}
	}
	return (void *)n;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	double seconds = argc > 2 ? atof(argv[2]) : 1;
	int count = argc > 3 && argv[1][0] != 'r' ? atoi(argv[3]) : 1;
	unsigned long all = 0;
	struct timespec from, to, length = { (time_t)seconds, (long)((seconds - (long)seconds) * 1e9) };

	if (argc < 3 || count < 1 || count > 64)
		return 1;
	what = argv[1];
	file = what[0] == 'r' ? argv[3] : NULL;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	nanosleep(&length, NULL);
	stop = 1;
	for (int i = 0; i < count; i++) {
		void *n;
		pthread_join(threads[i], &n);
		all += (unsigned long)n;
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("%.0f\n", all / (to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9));
	return 0;
}
