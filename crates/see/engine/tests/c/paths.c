/*
 * Programs with a known critical path; each goes round until its time is over. Work is counted in CPU time, so that
 * the parts keep their proportions on a machine that has other things to do.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define APART __attribute__((noinline))
static const double seconds = 1.5;

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static double end;

static int over(void)
{
	return now(CLOCK_MONOTONIC) > end;
}

/* Not a tail call: the caller stays on the stack. */
#define BURN(ms) do { burn(ms); __asm__ volatile(""); } while (0)

APART static void burn(double ms)
{
	double until = now(CLOCK_THREAD_CPUTIME_ID) + ms / 1e3;

	do {
		for (volatile int i = 0; i < 20000; i++)
			;
	} while (now(CLOCK_THREAD_CPUTIME_ID) < until);
}

/* As much on average, and never the same twice: 99 samples a second would fall on the same moments of rounds that last 40 ms. */
static double about(double ms)
{
	static unsigned random = 12345;

	random = random * 1664525 + 1013904223;
	return ms * (0.6 + 0.8 * (random >> 8) / (1 << 24));
}

/* A pipeline of threads with room for one between stages: the slow one holds all others up. */
#define MOST 8
static int stages = 4; /* or the port to connect to */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int item; /* 0: none, -1: the end */
} slots[MOST];

static void put(int slot, int item)
{
	pthread_mutex_lock(&slots[slot].mutex);
	while (slots[slot].item)
		pthread_cond_wait(&slots[slot].changed, &slots[slot].mutex);
	slots[slot].item = item;
	pthread_cond_broadcast(&slots[slot].changed);
	pthread_mutex_unlock(&slots[slot].mutex);
}

static int get(int slot)
{
	pthread_mutex_lock(&slots[slot].mutex);
	while (!slots[slot].item)
		pthread_cond_wait(&slots[slot].changed, &slots[slot].mutex);
	int item = slots[slot].item;
	slots[slot].item = 0;
	pthread_cond_broadcast(&slots[slot].changed);
	pthread_mutex_unlock(&slots[slot].mutex);
	return item;
}

APART static void quick_stage(void)
{
	BURN(1);
}

APART static void slow_stage(void)
{
	BURN(15);
}

static void *stage(void *which)
{
	int n = (int)(long)which, item = 1;

	while (item != -1) {
		item = n ? get(n - 1) : over() ? -1 : 1;
		if (item == 1)
			n == stages / 2 ? slow_stage() : quick_stage();
		if (n < stages - 1)
			put(n, item);
	}
	return NULL;
}

static void threads(int n, void *(*function)(void *))
{
	pthread_t all[MOST];

	for (long i = 0; i < n; i++)
		pthread_create(&all[i], NULL, function, (void *)i);
	for (int i = 0; i < n; i++)
		pthread_join(all[i], NULL);
}

static void pipeline(void)
{
	for (int i = 0; i < MOST; i++) {
		pthread_mutex_init(&slots[i].mutex, NULL);
		pthread_cond_init(&slots[i].changed, NULL);
	}
	threads(stages, stage);
}

/* A serial part of 30 ms, then two halves of 10 and 20 ms: three quarters to one. */
APART static void serial_part(void)
{
	BURN(30);
}

APART static void long_half(void)
{
	BURN(20);
}

static void *half(void *which)
{
	if (which)
		long_half();
	else
		BURN(10);
	__asm__ volatile("");
	return NULL;
}

static void fork_join(void);

/* The same beside 10,000 threads that wait all the time. */
#define CROWD 10000
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;

static void *stand(void *unused)
{
	pthread_mutex_lock(&door);
	return unused;
}

static void crowd(void)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	pthread_mutex_lock(&door);
	for (int i = 0; i < CROWD; i++)
		if (pthread_create(&thread, &small, stand, NULL))
			exit(3);
	end = now(CLOCK_MONOTONIC) + seconds;
	fork_join();
	_exit(0);
}

static void fork_join(void)
{
	while (!over()) {
		serial_part();
		threads(2, half);
	}
}

/* Two processes map, of 20 and 60 ms; what they write into pipes is reduced in 40 ms: half to half. */
APART static void long_map(void)
{
	BURN(60);
}

APART static void reduce(void)
{
	BURN(40);
}

static void map_reduce(void)
{
	while (!over()) {
		int pipes[2][2];
		char done;

		for (int i = 0; i < 2; i++) {
			if (pipe(pipes[i]))
				exit(1);
			if (fork())
				continue;
			if (i)
				long_map();
			else
				BURN(20);
			_exit(write(pipes[i][1], "x", 1) != 1);
		}
		for (int i = 0; i < 2; i++) {
			if (read(pipes[i][0], &done, 1) != 1)
				exit(1);
			close(pipes[i][0]);
			close(pipes[i][1]);
		}
		reduce();
		while (wait(NULL) > 0)
			;
	}
}

/* A client that thinks for 10 ms and asks a server for what takes 30. */
APART static void serve(void)
{
	BURN(about(30));
}

APART static void think(void)
{
	BURN(about(10));
}

/* The same in a hurry: shorter than the leader's looks are apart. */
APART static void serve_soon(void)
{
	BURN(about(0.6));
}

APART static void think_fast(void)
{
	BURN(about(0.2));
}

static struct sockaddr_in address = { .sin_family = AF_INET };
static const socklen_t length = sizeof(address);

/* A socket that clients connect to, at a free port. */
static int listening(void)
{
	int door = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t size = length;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(door, (struct sockaddr *)&address, length) || listen(door, 1) ||
	    getsockname(door, (struct sockaddr *)&address, &size))
		exit(1);
	return door;
}

static void answer(int client, void (*work)(void))
{
	char word;

	while (recv(client, &word, 1, 0) == 1) {
		work();
		if (send(client, &word, 1, MSG_NOSIGNAL) != 1)
			break;
	}
}

static void (*thought)(void) = think;

static void ask(int server, int polled)
{
	struct pollfd ready = { .fd = server, .events = POLLIN };
	char word;

	while (!over()) {
		thought();
		if (send(server, "x", 1, 0) != 1 || (polled && poll(&ready, 1, -1) != 1) ||
		    recv(server, &word, 1, 0) != 1)
			exit(1);
	}
	close(server);
}

static int connected(void)
{
	int server = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(server, (struct sockaddr *)&address, length))
		exit(1);
	return server;
}

static void pair_over_loopback(void (*work)(void), int polled)
{
	int door = listening();

	if (!fork()) {
		answer(accept(door, NULL, NULL), work);
		_exit(0);
	}
	ask(connected(), polled);
	wait(NULL);
}

static void loopback(void)
{
	pair_over_loopback(serve, 0);
}

static void hurried(void)
{
	thought = think_fast;
	pair_over_loopback(serve_soon, 0);
}

static void polled(void)
{
	pair_over_loopback(serve, 1);
}

/* The server sleeps for 30 ms, as for an answer of its own: both CPUs idle then, and one of two for the 10 of the client. */
APART static void look_up(void)
{
	struct timespec t = { 0, 30000000 };

	nanosleep(&t, NULL);
	__asm__ volatile("");
}

static void chain(void)
{
	pair_over_loopback(look_up, 0);
}

static void local(void)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		exit(1);
	if (!fork()) {
		close(ends[0]);
		answer(ends[1], serve);
		_exit(0);
	}
	close(ends[1]);
	ask(ends[0], 0);
	wait(NULL);
}

/* Both in PID and mount namespaces of their own, as in containers, where each is process 2. */
static void contained(void)
{
	int door = listening();

	for (int i = 0; i < 2; i++) {
		if (fork())
			continue;
		if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC))
			_exit(1);
		if (!fork()) {
			if (!fork()) {
				i ? ask(connected(), 0) : answer(accept(door, NULL, NULL), serve);
				_exit(0);
			}
			wait(NULL);
			_exit(0);
		}
		wait(NULL);
		_exit(0);
	}
	wait(NULL);
	wait(NULL);
}

/* The two halves of it as programs of their own: the server tells its port and serves one client after another. */
static void server(void)
{
	int door = listening();

	prctl(PR_SET_NAME, "server");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;) {
		int client = accept(door, NULL, NULL);

		answer(client, serve);
		close(client);
	}
}

/* Reaps ended children at once, so that their CPU time is counted as this process's. */
static void reap(int signal)
{
	(void)signal;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

/* Each answer comes from a process that has ended when it arrives. */
static void errands(void)
{
	struct sigaction reaps = { .sa_handler = reap, .sa_flags = SA_RESTART };
	int door = listening();
	char word;

	prctl(PR_SET_NAME, "server");
	sigaction(SIGCHLD, &reaps, NULL);
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;) {
		int client = accept(door, NULL, NULL);

		while (recv(client, &word, 1, 0) == 1)
			if (!fork()) {
				serve();
				_exit(send(client, &word, 1, MSG_NOSIGNAL) != 1);
			}
		close(client);
	}
}

static void client(int polls)
{
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons(stages);
	ask(connected(), polls);
}

static void client_in_recv(void)
{
	client(0);
}

static void client_in_poll(void)
{
	client(1);
}

/* Two threads meet; one is slow. */
static pthread_barrier_t meet;

APART static void slow_thread(void)
{
	BURN(20);
}

static void *round_by_round(void *which)
{
	for (int i = 0; i < 60; i++) {
		if (which)
			slow_thread();
		else
			BURN(4);
		pthread_barrier_wait(&meet);
	}
	return NULL;
}

static void barriers(void)
{
	pthread_barrier_init(&meet, NULL, 2);
	threads(2, round_by_round);
}

/* A ring of waits: each waits for the one before, and the first for the last. 5, 10 and 25 ms: an eighth, a quarter, the rest. */
static pthread_mutex_t ring_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ring_turns = PTHREAD_COND_INITIALIZER;
static long turn;

APART static void second_of_ring(void)
{
	BURN(10);
}

APART static void last_of_ring(void)
{
	BURN(25);
}

static void *in_ring(void *which)
{
	for (int i = 0; i < 35; i++) {
		pthread_mutex_lock(&ring_mutex);
		while (turn != (long)which)
			pthread_cond_wait(&ring_turns, &ring_mutex);
		pthread_mutex_unlock(&ring_mutex);
		if ((long)which == 2)
			last_of_ring();
		else if (which)
			second_of_ring();
		else
			BURN(5);
		pthread_mutex_lock(&ring_mutex);
		turn = (turn + 1) % 3;
		pthread_cond_broadcast(&ring_turns);
		pthread_mutex_unlock(&ring_mutex);
	}
	return NULL;
}

static void ring(void)
{
	threads(3, in_ring);
}

/* Two threads each hold what the other waits for, until one gives up after 40 ms: a timer ends the cycle. */
static pthread_mutex_t held[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };

APART static void give_up_later(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 40000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	if (!pthread_mutex_timedlock(&held[1], &until))
		exit(1);
	__asm__ volatile("");
}

static void *crosswise(void *which)
{
	for (int i = 0; i < 30; i++) {
		pthread_mutex_lock(&held[(long)which]);
		pthread_barrier_wait(&meet);
		if (which) {
			pthread_mutex_lock(&held[0]);
			pthread_mutex_unlock(&held[0]);
		} else {
			give_up_later();
		}
		pthread_mutex_unlock(&held[(long)which]);
		pthread_barrier_wait(&meet);
		BURN(3);
	}
	return NULL;
}

static void cycle(void)
{
	pthread_barrier_init(&meet, NULL, 2);
	threads(2, crosswise);
}

/* Nothing but sleep, in a function of its own; and now and then work. */
APART static void nap(void)
{
	struct timespec t = { 0, 40000000 };

	nanosleep(&t, NULL);
	__asm__ volatile("");
}

static void naps(void)
{
	while (!over()) {
		BURN(5);
		nap();
	}
}

/* The same beside two threads that wait for each other for ever. */
static void *for_ever(void *which)
{
	pthread_mutex_lock(&held[(long)which]);
	pthread_barrier_wait(&meet);
	pthread_mutex_lock(&held[!which]);
	return NULL;
}

static void deadlock(void)
{
	pthread_t thread;

	pthread_barrier_init(&meet, NULL, 2);
	for (long i = 0; i < 2; i++)
		pthread_create(&thread, NULL, for_ever, (void *)i);
	naps();
}

/* The same in a call that waits for other things as well. */
APART static void poll_nothing(void)
{
	poll(NULL, 0, 40);
	__asm__ volatile("");
}

static void timeouts(void)
{
	while (!over()) {
		BURN(5);
		poll_nothing();
	}
}

int main(int count, char **args)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{ "pipeline", pipeline }, { "fork_join", fork_join }, { "map_reduce", map_reduce },
		{ "loopback", loopback }, { "hurried", hurried }, { "barriers", barriers }, { "naps", naps },
		{ "timeouts", timeouts }, { "polled", polled }, { "chain", chain }, { "local", local }, { "server", server },
		{ "contained", contained }, { "errands", errands }, { "ring", ring }, { "cycle", cycle }, { "deadlock", deadlock },
		{ "crowd", crowd },
		{ "client_in_recv", client_in_recv }, { "client_in_poll", client_in_poll },
	};

	end = now(CLOCK_MONOTONIC) + seconds;
	if (count > 2)
		stages = atoi(args[2]);
	for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (count > 1 && !strcmp(args[1], parts[i].name)) {
			parts[i].run();
			return 0;
		}
	return 2;
}
