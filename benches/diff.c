// Workers that each do the same for so long, one of five ways: plain, slower, call, hotter, fewer.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int stop;
static long ops[64 * 16];
static int slower, call, hotter;

__attribute__((noinline)) static void parse(void)
{
	for (volatile int i = 0; i < (slower ? 900 : 600); i++)
		;
}

__attribute__((noinline)) static void reckon(void)
{
	for (volatile int i = 0; i < 900; i++)
		;
}

// A descriptor table that all share: its lock is the kernel's.
__attribute__((noinline)) static void open_and_close(int to)
{
	for (int i = 0; i < (hotter ? 4 : 1); i++) {
		dup2(0, to);
		close(to);
	}
}

static void *work(void *p)
{
	long me = (long)p, n = 0;
	while (!stop) {
		parse();
		reckon();
		open_and_close(100 + (int)me);
		if (call)
			for (int i = 0; i < 6; i++)
				syscall(SYS_getppid);
		n++;
	}
	ops[16 * me] = n;
	return NULL;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "plain";
	int threads = argc > 2 ? atoi(argv[2]) : 2;
	double seconds = argc > 3 ? atof(argv[3]) : 1;
	slower = !strcmp(how, "slower");
	call = !strcmp(how, "call");
	hotter = !strcmp(how, "hotter");
	if (!strcmp(how, "fewer"))
		threads--;
	pthread_t t[64];
	for (long i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, work, (void *)i);
	nanosleep(&(struct timespec){(long)seconds, (long)((seconds - (long)seconds) * 1e9)}, NULL);
	stop = 1;
	long sum = 0;
	for (long i = 0; i < threads; i++) {
		pthread_join(t[i], NULL);
		sum += ops[16 * i];
	}
	printf("%.0f ops/s\n", sum / seconds);
	return 0;
}
