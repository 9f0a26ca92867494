/* storms KIND SECONDS [FILE...]: a program that an observer must not be led astray, filled up or held up by.
 * names: threads whose names are escapes, other alphabets' marks and an observer's own; renames: names that change all the time.
 * threads, forks: as many short ones as the machine makes. futexes: a million words that threads wait at.
 * chains: frame pointers that lead through ever other return addresses; cycle: one that leads to itself.
 * execs: becomes itself again and again, with another name and megabytes of environment; passing: locks at ever new addresses;
 * unnamed, memfds: code at ever new places, in memory and in files without a path; deep: stacks of 60,000 frames.
 * servers FILE...: processes that call themselves postgres, have these files mapped, and wait for locks.
 * nothing: unmaps the files of its program and its libraries, and runs on in memory without a name. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long work;

static void burn(int rounds)
{
	while (rounds--)
		work += rounds;
}

static const char *const names[] = {"\033]0;owned\007", "\033[2J\033[1;1H", "a\nb\nc", "\xe2\x80\xaegpj.exe", "\r\rroot 0",
	"\xc2\x9b" "31m", "%s%n%x", "{\"a\":1}", "<b>x</b>", "a\",b=\"c", "\xff\xfe\x80", "a\tb;c d", "ncpu-reader", "=1+1", " "};

static void *named(void *i)
{
	prctl(PR_SET_NAME, names[(uintptr_t)i]);
	for (;; usleep(500))
		burn(1000000);
}

static void *renamed(void *unused)
{
	char name[16];
	for (unsigned long i = 0;; i++) {
		snprintf(name, sizeof(name), "\033[%lum%lx", i % 50, i * 2654435761);
		prctl(PR_SET_NAME, name);
		burn(10000);
	}
}

static void *shortly(void *unused)
{
	burn(1000);
	return 0;
}

enum { WORDS = 1 << 20, LINE = 16 };
static unsigned *words;

static void *waits(void *seed)
{
	const struct timespec soon = {0, 20000};
	for (unsigned s = (uintptr_t)seed;;) {
		s = s * 1103515245 + 12345;
		unsigned *word = &words[(s >> 4) % WORDS * LINE];
		if (__sync_lock_test_and_set(word, 1)) {
			syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 1, &soon, 0, 0);
		} else {
			__sync_lock_release(word);
			syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
		}
	}
}

/* Spins with a frame pointer. */
static void spin_at(uint64_t frame, unsigned rounds)
{
	__asm__ volatile("push %%rbp\n mov %0, %%rbp\n1: dec %%ecx\n jnz 1b\n pop %%rbp" : "+r"(frame), "+c"(rounds) : : "memory");
}

static void chains(void)
{
	enum { FRAMES = 1 << 20 };
	uint64_t *frames = mmap(0, 16ul * FRAMES, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (;;) {
		for (unsigned i = 0; i < FRAMES; i++) {
			frames[2 * i] = (uint64_t)&frames[2 * ((i + 1 + random() % 5) % FRAMES)];
			frames[2 * i + 1] = (uint64_t)chains + random() % (1 << 24);
		}
		for (int i = 0; i < 2000; i++)
			spin_at((uint64_t)&frames[2 * (random() % FRAMES)], 40000);
	}
}

static void nothing(void)
{
	struct { uint64_t at, length; } *all;
	unsigned char *page = mmap(0, 8192, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[600];
	uint32_t count = 0;
	unsigned long from, to;
	all = (void *)(page + 4096);
	while (fgets(line, sizeof(line), maps) && count < 200)
		if (strchr(line, '/') && sscanf(line, "%lx-%lx", &from, &to) == 2) {
			all[count].at = from;
			all[count++].length = to - from;
		}
	/* lea all, %r12; mov count, %r13d; 1: munmap(each); jnz 1b; jmp . */
	unsigned char code[] = {0x4c, 0x8d, 0x25, 0xf9, 0x0f, 0, 0, 0x41, 0xbd, 0, 0, 0, 0, 0x49, 0x8b, 0x3c, 0x24, 0x49, 0x8b, 0x74,
		0x24, 8, 0xb8, 11, 0, 0, 0, 0x0f, 5, 0x49, 0x83, 0xc4, 0x10, 0x41, 0xff, 0xcd, 0x75, 0xe7, 0xeb, 0xfe};
	memcpy(code + 9, &count, 4);
	memcpy(page, code, sizeof(code));
	((void (*)(void))page)();
}

static void execs(char *seconds)
{
	static char variable[120000];
	const char *so_far = getenv("EXECS");
	int count = so_far ? atoi(so_far) + 1 : 0;
	char name[32], times[32], *environment[16] = {times}, *arguments[200] = {name, "execs", seconds};

	snprintf(times, sizeof(times), "EXECS=%d", count);
	snprintf(name, sizeof(name), "\033]0;%d\007<b>", count);
	memcpy(variable, "A=\033[2J<script>", 15);
	memset(variable + 15, 'E', sizeof(variable) - 16);
	for (int i = 1; i < 15; i++)
		environment[i] = variable;
	for (int i = 3; i < 199; i++)
		arguments[i] = "\n\t\x9b\xff";
	burn(2000000);
	execve("/proc/self/exe", arguments, environment);
}

static void *passing(void *unused)
{
	const struct timespec soon = {0, 1000};
	for (;;) {
		unsigned *words = mmap(0, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int i = 0; i < 1000; i++)
			syscall(SYS_futex, &words[i * 100], FUTEX_WAIT_PRIVATE, 0, &soon, 0, 0);
		munmap(words, 1 << 20);
	}
}

static void servers(char **files)
{
	const struct timespec soon = {0, 1000000};
	static unsigned words[100];
	for (char **file = files;; file = file[1] ? file + 1 : files) {
		int pid = fork();
		if (!pid) {
			mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, open(*file, O_RDONLY), 0x1000);
			prctl(PR_SET_NAME, "postgres");
			for (int i = 0; i < 300; i++)
				syscall(SYS_futex, &words[i % 100], FUTEX_WAIT_PRIVATE, 0, &soon, 0, 0);
			_exit(0);
		}
		usleep(50000);
		while (waitpid(-1, 0, WNOHANG) > 0)
			;
	}
}

/* mov $0x10000, %ecx; 1: dec %ecx; jnz 1b; ret */
static const unsigned char counts_down[] = {0xb9, 0, 0, 1, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3};

static void *unnamed(void *unused)
{
	for (unsigned long i = 0;; i++) {
		unsigned char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(code + i % 4000, counts_down, sizeof(counts_down));
		((void (*)(void))(code + i % 4000))();
		munmap(code, 4096);
	}
}

static void *memfds(void *unused)
{
	for (unsigned long i = 0;; i++) {
		char name[64];
		snprintf(name, sizeof(name), "\033[31m\n%lu", i);
		int file = syscall(SYS_memfd_create, name, 0);
		if (write(file, counts_down, sizeof(counts_down)) != sizeof(counts_down))
			exit(1);
		void *code = mmap(0, 4096, 5, MAP_PRIVATE, file, 0);
		close(file);
		((void (*)(void))code)();
		munmap(code, 4096);
	}
}

static void deep(int frames)
{
	volatile char here[64];
	here[0] = frames;
	if (frames)
		deep(frames - 1);
	else
		for (;;)
			burn(100000);
	work += here[0];
}

int main(int argc, char **argv)
{
	pthread_t thread;
	if (argc < 3)
		return 2;
	const char *kind = argv[1];
	/* What is left of it outlives an exec. */
	if (!getenv("EXECS"))
		alarm(atoi(argv[2]));
	if (!strcmp(kind, "names"))
		for (uintptr_t i = 0; i < sizeof(names) / sizeof(*names); i++)
			pthread_create(&thread, 0, named, (void *)i);
	else if (!strcmp(kind, "renames"))
		for (int i = 0; i < 4; i++)
			pthread_create(&thread, 0, renamed, 0);
	else if (!strcmp(kind, "execs"))
		execs(argv[2]);
	else if (!strcmp(kind, "passing"))
		for (int i = 0; i < 4; i++)
			pthread_create(&thread, 0, passing, 0);
	else if (!strcmp(kind, "unnamed"))
		unnamed(0);
	else if (!strcmp(kind, "memfds"))
		memfds(0);
	else if (!strcmp(kind, "servers") && argc > 3)
		servers(argv + 3);
	else if (!strcmp(kind, "deep"))
		deep(60000);
	else if (!strcmp(kind, "threads"))
		for (;;)
			if (!pthread_create(&thread, 0, shortly, 0))
				pthread_detach(thread);
			else
				usleep(1000);
	else if (!strcmp(kind, "forks"))
		for (signal(SIGCHLD, SIG_IGN);;)
			if (!fork())
				_exit(0);
			else
				usleep(200);
	else if (!strcmp(kind, "futexes")) {
		words = mmap(0, sizeof(*words) * WORDS * LINE, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (uintptr_t i = 1; i <= 16; i++)
			pthread_create(&thread, 0, waits, (void *)i);
	} else if (!strcmp(kind, "chains"))
		chains();
	else if (!strcmp(kind, "cycle")) {
		uint64_t frame[2] = {(uint64_t)frame, (uint64_t)main};
		for (;;)
			spin_at((uint64_t)frame, 1000000);
	} else if (!strcmp(kind, "nothing"))
		nothing();
	else
		return 2;
	pause();
}
