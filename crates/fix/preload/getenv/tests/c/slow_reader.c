/* slow_reader: the result of a thread in the middle of getenv() while another changes the environment.
 *
 *   slow_reader grow|shift|clear      prints what it found, which at every moment was `right`
 *
 * No chance is involved: an entry in the reader's way lies in a page that it may not read, so it stops there, as it
 * might for a page that has to be fetched from disk. Then the other thread does its part, and the reader goes on.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern char **environ;

static pthread_t reader;
static sem_t stopped, go_on;
static char *page;
static const char *name;

static void touched(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if ((char *)info->si_addr < page || (char *)info->si_addr >= page + getpagesize()) {
		static const char crash[] = "crashed\n";
		(void)!write(1, crash, sizeof crash - 1);
		_exit(128 + signal);
	}
	if (pthread_equal(pthread_self(), reader)) {
		sem_post(&stopped);
		sem_wait(&go_on);
	}
	mprotect(page, getpagesize(), PROT_READ | PROT_WRITE);
}

static void *read_one(void *unused)
{
	reader = pthread_self();
	const char *value = getenv(name);
	puts(value ? value : "(not found)");
	return unused;
}

/* Allocates memory and writes to it, as any program does. If the list was freed, this is its memory. */
static void use_memory(size_t size)
{
	static char one[] = "TARGET_1=memory that was freed", two[] = "TARGET_2=memory that was freed";
	for (long off = -4; off <= 4; off++)
		for (int times = 0; times < 8; times++) {
			size_t bytes = size + off * (long)sizeof(char *);
			char **memory = malloc(bytes);
			for (size_t i = 0; memory && i < bytes / sizeof *memory; i++)
				memory[i] = i % 2 ? one : two;
			/* Or the compiler would leave all of it out. */
			__asm__ volatile("" : : "r"(memory) : "memory");
		}
}

static size_t list_size(void)
{
	size_t n = 1;
	for (char **entry = environ; *entry; entry++)
		n++;
	return n * sizeof *environ;
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";
	struct sigaction action = {.sa_sigaction = touched, .sa_flags = SA_SIGINFO};
	sem_init(&stopped, 0, 0);
	sem_init(&go_on, 0, 0);
	page = mmap(NULL, getpagesize(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || sigaction(SIGSEGV, &action, NULL))
		return 3;
	/* Both ways round, since the order of an environment is the library's affair. */
	clearenv();
	setenv("VICTIM_1", "x", 1);
	setenv("TARGET_1", "right", 1);
	putenv(strcpy(page, "TRAP=x"));
	setenv("TARGET_2", "right", 1);
	setenv("VICTIM_2", "x", 1);
	int upwards = !strncmp(environ[0], "VICTIM_1", 8);
	name = upwards ? "TARGET_2" : "TARGET_1";
	size_t size = list_size();
	mprotect(page, getpagesize(), PROT_NONE);

	pthread_t thread;
	if (pthread_create(&thread, NULL, read_one, NULL))
		return 3;
	sem_wait(&stopped);
	if (!strcmp(what, "grow")) {
		for (int i = 0; i < 100; i++) {
			char more[20];
			snprintf(more, sizeof more, "MORE_%d", i);
			setenv(more, "x", 1);
			use_memory(size);
		}
	} else if (!strcmp(what, "shift")) {
		unsetenv(upwards ? "VICTIM_1" : "VICTIM_2");
	} else if (!strcmp(what, "clear")) {
		clearenv();
		use_memory(size);
	} else {
		fprintf(stderr, "usage: slow_reader grow|shift|clear\n");
		_exit(2);
	}
	sem_post(&go_on);
	pthread_join(thread, NULL);
	return 0;
}
