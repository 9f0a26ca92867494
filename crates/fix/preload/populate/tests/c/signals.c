// Maps, locks and frees memory while signals come whose handlers do the same or leave by siglongjmp, while
// another thread forks, and from a thread that is cancelled. Prints ok.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, SIZE = 24 * MIB };

static volatile sig_atomic_t ticks, leave;
static volatile int stop;
static sigjmp_buf out;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

// Map, touch, lock if allowed, free: the work of a program.
static void once(void)
{
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p == MAP_FAILED)
		die("mmap");
	for (size_t i = 0; i < SIZE; i += 4096) {
		if (p[i])
			die("not zero");
		p[i] = 1;
	}
	if (mlock(p, SIZE) == 0 && munlock(p, SIZE))
		die("munlock");
	if (munmap(p, SIZE))
		die("munmap");
}

static void tick(int signal)
{
	int before = errno;
	(void)signal;
	ticks++;
	if (ticks % 16 == 0)
		once();
	errno = before;
	if (leave && ticks % 3 == 0)
		siglongjmp(out, 1);
}

static void *forks(void *unused)
{
	while (!stop) {
		pid_t pid = fork();
		int status;
		if (pid == 0) {
			once();
			_exit(0);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			die("child");
	}
	return unused;
}

static void *forever(void *unused)
{
	for (;;) {
		once();
		pthread_testcancel();
	}
	return unused;
}

int main(void)
{
	pthread_t forker, cancelled;
	timer_t timer;
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerspec each = { { 0, 5000000 }, { 0, 5000000 } };
	sigset_t signals;
	sigaction(SIGALRM, &action, NULL);
	// Only this thread takes the signals.
	sigemptyset(&signals);
	sigaddset(&signals, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	if (pthread_create(&forker, NULL, forks, NULL) || pthread_create(&cancelled, NULL, forever, NULL))
		die("pthread_create");
	pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
	if (timer_create(CLOCK_MONOTONIC, NULL, &timer) || timer_settime(timer, 0, &each, NULL))
		die("timer");
	for (int i = 0; i < 10 || ticks < 32; i++)
		once();
	// Handlers that never return: memory mapped at that time is lost, as without the library.
	for (volatile int i = 0; i < 12; i++)
		if (sigsetjmp(out, 1) == 0) {
			leave = 1; /* no sooner: there is a way out now */
			once();
		}
	leave = 0;
	timer_delete(timer);
	pthread_cancel(cancelled);
	stop = 1;
	pthread_join(cancelled, NULL);
	pthread_join(forker, NULL);
	once();
	puts("ok");
	return 0;
}
