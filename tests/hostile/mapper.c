/* mapper [-s SECONDS] [-u] [-c] [-m COUNT] [-j] FILE...: maps each FILE and runs the loop at 0x1000 of it in a thread of its own.
 * -u: unlinks it then; -c: cuts it to a page; -m: maps its code COUNT times; -j: spins in memory that a perf map may name. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *spin(void *code)
{
	((void (*)(void))code)();
	return 0;
}

int main(int argc, char **argv)
{
	int c, unlinks = 0, cuts = 0, count = 1, made = 0;
	unsigned seconds = 40;
	while ((c = getopt(argc, argv, "s:ucm:j")) != -1)
		switch (c) {
		case 's': seconds = atoi(optarg); break;
		case 'u': unlinks = 1; break;
		case 'c': cuts = 1; break;
		case 'm': count = atoi(optarg); break;
		case 'j': made = 1; break;
		default: return 2;
		}
	alarm(seconds);
	pthread_t thread;
	if (made) {
		unsigned char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(code, "\xeb\xfe", 2);
		pthread_create(&thread, 0, spin, code);
	}
	for (; optind < argc; optind++) {
		int fd = open(argv[optind], O_RDONLY);
		char *code = MAP_FAILED;
		for (int i = 0; i < count; i++) {
			char *at = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0x1000);
			if (at == MAP_FAILED)
				break;
			code = at;
			/* The kernel makes one mapping of neighbours. */
			if (count > 1)
				mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		}
		if (code == MAP_FAILED) {
			perror(argv[optind]);
			return 1;
		}
		if (pthread_create(&thread, 0, spin, code))
			spin(code);
		usleep(300000);
		if (unlinks)
			unlink(argv[optind]);
		if (cuts && truncate(argv[optind], 0x1002))
			perror("truncate");
	}
	for (;;)
		pause();
}
