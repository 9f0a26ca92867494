// Threads execute for SECONDS code of which it is known what takes its time, each in a function of the part's name.
//
//   causes PART THREADS SECONDS [CALLS]
//
// With CALLS, each thread calls its function that many times instead, whatever SECONDS are.
// waits, pauses: they look at a word until it changes; pauses does so with the instruction that CPUs have for that.
// adds, excludes: they add to one counter, with one instruction, or with an exclusive load and store.
// divides: they divide. counts: they add up what a register holds. chases: they follow pointers through 64 KiB.
//
// An emulator of AArch64 translates a block of instructions at a time and takes interrupts between blocks alone, and no block goes
// beyond a page. So the instruction in question is the last one of its page: a timer that is due while it is executed strikes behind it,
// as it does on a processor.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__aarch64__)
#define ROUNDS 100000

struct node {
	struct node *next;
	long pad[7];
};

static int done;
static long calls;
long counter[8] __attribute__((aligned(64)));
static struct node nodes[1024];

// A function of the name, of which these many bytes lie before the end of a page.
#define FUNCTION(name, before, code)                                                                                   \
	__asm__(".text\n\t.arch_extension lse\n\t.balign 4096\n\t.skip 4096 - " #before "\n\t.type " #name             \
		", %function\n" #name ":\n\t" code "\n\tret\n\t.size " #name ", . - " #name "\n");                     \
	long name(long rounds, void *at)
#define AGAIN "\n\tsubs x0, x0, #1\n\tb.ne 1b"

FUNCTION(waits, 4, "1: ldar w2, [x1]\n\tcbz w2, 1b");
FUNCTION(pauses, 8, "1: yield\n\tldar w2, [x1]\n\tcbz w2, 1b");
FUNCTION(adds, 8, "mov x2, #1\n1: ldaddal x2, x3, [x1]" AGAIN);
FUNCTION(excludes, 12, "1: ldaxr x2, [x1]\n\tadd x2, x2, #1\n\tstlxr w3, x2, [x1]\n\tcbnz w3, 1b" AGAIN);
FUNCTION(divides, 24,
	 "mov x2, #3\n\tmov x3, #-1\n1: udiv x4, x3, x2\n\tudiv x4, x4, x2\n\tudiv x4, x4, x2\n\tudiv x4, x4, x2" AGAIN);
FUNCTION(counts, 16, "1: add x2, x2, x2, lsl #3\n\teor x2, x2, #7\n\tadd x2, x2, #1\n\tadd x2, x2, x2" AGAIN);
FUNCTION(chases, 4, "1: ldr x1, [x1]" AGAIN);

static const struct part {
	const char *name;
	long (*run)(long, void *);
	void *at;
} parts[] = {
	{"waits", waits, &done},	{"pauses", pauses, &done}, {"adds", adds, counter},   {"excludes", excludes, counter},
	{"divides", divides, counter},	{"counts", counts, counter}, {"chases", chases, nodes},
};

static void *thread(void *argument)
{
	const struct part *part = argument;

	for (long i = 0; calls ? i < calls : !__atomic_load_n(&done, __ATOMIC_ACQUIRE); i++)
		part->run(ROUNDS, part->at);
	return NULL;
}

int main(int argc, char **argv)
{
	const struct part *part = NULL;
	pthread_t threads[16];
	int n = argc >= 4 ? atoi(argv[2]) : 0;

	calls = argc >= 5 ? atol(argv[4]) : 0;
	for (size_t i = 0; argc >= 4 && i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!strcmp(argv[1], parts[i].name))
			part = &parts[i];
	if (!part || n < 1 || n > 16) {
		fprintf(stderr, "usage: causes PART THREADS SECONDS [CALLS]\n");
		return 2;
	}
	for (int i = 0; i < 1024; i++)
		nodes[i].next = &nodes[(i * 389 + 17) % 1024];
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, thread, (void *)part))
			return perror("causes: pthread_create"), 1;
	usleep((useconds_t)(atof(argv[3]) * 1e6));
	__atomic_store_n(&done, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
#else
int main(void)
{
	fprintf(stderr, "causes: has code of AArch64 alone\n");
	return 2;
}
#endif
