/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A server that logs each request's time itself, and a client of it in a process of its own: SERVER CAUSE REQUESTS [MS [FILE]]
 *
 * SERVER is threads (one a connection), epoll (one loop), pool (a loop reads, workers answer), or local (threads, on a local socket).
 * CAUSE is what one request in SLOW does longer for: quiet (nothing), timer, lock (a mutex that another thread holds while it
 * sleeps), file (eight semaphores in turn, and a lock of a file that another thread holds), disk (fsync), spin, pipe (a peer), or mixed
 * (spin, timer and pipe, one after another).
 *
 * It writes one line to FILE, or prints it: requests, the 50th and 99th percentile in us of its own log, the slow requests, and the
 * mean ms that the cause took in these: on the clock, and of spinning on a CPU.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                                           \
	do {                                                                                                  \
		if (!(what)) {                                                                                \
			perror(#what);                                                                        \
			exit(1);                                                                              \
		}                                                                                             \
	} while (0)

#define CLIENTS 4
#define SLOW 25
#define MOST 1000000

static const char *cause, *server;
static double *log_us;
static atomic_int logged, slow_ones, number;
static atomic_llong slow_ns;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static int to_holder[2], from_holder[2], file;
static long unit = 20000000; /* ns */
#define SHORT 8
static sem_t posted[SHORT];
static char path[] = "/tmp/ncpu-server-XXXXXX";

static long long ns_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static long long now(void)
{
	return ns_of(CLOCK_MONOTONIC);
}

static void rest(long ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

/* Takes a lock, says so, and lets it go later. Or answers after a while. */
static void *holder(void *arg)
{
	char c;

	pthread_setname_np(pthread_self(), "holder");
	while (read(to_holder[0], &c, 1) == 1) {
		if (c >= '0' && c < '0' + SHORT) {
			rest(100000);
			sem_post(&posted[c - '0']);
			continue;
		}
		if (c == 'l')
			pthread_mutex_lock(&held);
		if (c == 'f')
			CHECK(flock(file, LOCK_EX) == 0);
		if (c == 'l' || c == 'f')
			CHECK(write(from_holder[1], &c, 1) == 1);
		rest(unit);
		if (c == 'l')
			pthread_mutex_unlock(&held);
		else if (c == 'f')
			CHECK(flock(file, LOCK_UN) == 0);
		else
			CHECK(write(from_holder[1], &c, 1) == 1);
	}
	return arg;
}

/* What makes a request slow. */
static void slow(void)
{
	char c = cause[0] == 'l' ? 'l' : 'p';
	long long until;
	int other;

	switch (cause[0]) {
	case 't':
		rest(unit);
		break;
	case 'l':
		CHECK(write(to_holder[1], &c, 1) == 1 && read(from_holder[0], &c, 1) == 1);
		pthread_mutex_lock(&held);
		pthread_mutex_unlock(&held);
		break;
	case 'f':
		for (c = '0'; c < '0' + SHORT; c++) {
			CHECK(write(to_holder[1], &c, 1) == 1);
			sem_wait(&posted[c - '0']);
		}
		c = 'f';
		CHECK((other = open(path, O_RDWR)) >= 0);
		CHECK(write(to_holder[1], &c, 1) == 1 && read(from_holder[0], &c, 1) == 1);
		CHECK(flock(other, LOCK_EX) == 0);
		close(other);
		break;
	case 'p':
		CHECK(write(to_holder[1], &c, 1) == 1 && read(from_holder[0], &c, 1) == 1);
		break;
	case 'd':
		for (int i = 0; i < 8; i++)
			CHECK(pwrite(file, &c, 1, i * 4096) == 1 && fsync(file) == 0);
		break;
	case 's':
		until = now() + unit;
		while (now() < until)
			;
		break;
	case 'm':
		until = now() + unit;
		while (now() < until)
			;
		rest(unit);
		CHECK(write(to_holder[1], &c, 1) == 1 && read(from_holder[0], &c, 1) == 1);
		break;
	}
}

static void answer(int fd, long long began)
{
	static const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
	int is_slow = strcmp(cause, "quiet") != 0;

	is_slow = is_slow && atomic_fetch_add(&number, 1) % SLOW == SLOW - 1;
	if (is_slow) {
		clockid_t clock = cause[0] == 's' ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
		long long from = ns_of(clock);
		slow();
		atomic_fetch_add(&slow_ns, ns_of(clock) - from);
		atomic_fetch_add(&slow_ones, 1);
	}
	CHECK(write(fd, text, sizeof(text) - 1) == sizeof(text) - 1);
	long long ns = now() - began;
	int at = atomic_fetch_add(&logged, 1);
	if (at < MOST)
		log_us[at] = ns / 1e3;
}

static void *connection(void *arg)
{
	int fd = (long)arg;
	char text[512];

	while (read(fd, text, sizeof(text)) > 0)
		answer(fd, now());
	close(fd);
	return NULL;
}

struct item {
	int fd;
	long long began;
};
static struct item items[64];
static int first, last;
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;

static void *worker(void *arg)
{
	for (;;) {
		pthread_mutex_lock(&queue);
		while (first == last)
			pthread_cond_wait(&filled, &queue);
		struct item item = items[first++ % 64];
		pthread_mutex_unlock(&queue);
		answer(item.fd, item.began);
	}
	return arg;
}

static void loop(int listening, int pool)
{
	int poller = epoll_create1(0), open = CLIENTS;
	struct epoll_event e = { .events = EPOLLIN, .data.fd = listening }, ready[16];
	char text[512];
	pthread_t thread;

	CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, listening, &e) == 0);
	for (int i = 0; pool && i < 2; i++)
		pthread_create(&thread, NULL, worker, NULL);
	while (open) {
		int n = epoll_wait(poller, ready, 16, -1);
		for (int i = 0; i < n; i++) {
			int fd = ready[i].data.fd;
			if (fd == listening) {
				e.data.fd = accept(listening, NULL, NULL);
				CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, e.data.fd, &e) == 0);
				continue;
			}
			if (read(fd, text, sizeof(text)) <= 0) {
				close(fd);
				open--;
				continue;
			}
			if (!pool) {
				answer(fd, now());
				continue;
			}
			pthread_mutex_lock(&queue);
			items[last++ % 64] = (struct item){ fd, now() };
			pthread_cond_signal(&filled);
			pthread_mutex_unlock(&queue);
		}
	}
}

static struct sockaddr_un local = { .sun_family = AF_UNIX };
static struct sockaddr_in address = { .sin_family = AF_INET };

static void *client(void *arg)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
	int is_local = server[0] == 'l', fd = socket(is_local ? AF_UNIX : AF_INET, SOCK_STREAM, 0), one = 1;
	char answer[512];

	if (is_local)
		CHECK(connect(fd, (void *)&local, sizeof(local)) == 0);
	else
		CHECK(connect(fd, (void *)&address, sizeof(address)) == 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	for (long i = 0; i < (long)arg; i++) {
		CHECK(write(fd, text, sizeof(text) - 1) == sizeof(text) - 1);
		CHECK(read(fd, answer, sizeof(answer)) > 0);
		rest(1000000);
	}
	close(fd);
	return NULL;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	server = argv[1];
	cause = argv[2];
	long requests = atol(argv[3]) / CLIENTS;
	if (argc > 4)
		unit = atof(argv[4]) * 1e6;
	log_us = malloc(MOST * sizeof(*log_us));
	for (int i = 0; i < SHORT; i++)
		sem_init(&posted[i], 0, 0);
	CHECK((file = mkstemp(path)) >= 0);
	CHECK(pipe(to_holder) == 0 && pipe(from_holder) == 0);
	socklen_t length = sizeof(address);
	int listening = socket(server[0] == 'l' ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
	if (server[0] == 'l') {
		snprintf(local.sun_path, sizeof(local.sun_path), "%s.sock", path);
		CHECK(bind(listening, (void *)&local, sizeof(local)) == 0);
	} else {
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		CHECK(bind(listening, (void *)&address, sizeof(address)) == 0);
		CHECK(getsockname(listening, (void *)&address, &length) == 0);
	}
	CHECK(listen(listening, 16) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	pthread_t threads[CLIENTS], other;
	if (child == 0) {
		for (long i = 0; i < CLIENTS; i++)
			pthread_create(&threads[i], NULL, client, (void *)requests);
		for (int i = 0; i < CLIENTS; i++)
			pthread_join(threads[i], NULL);
		_exit(0);
	}
	pthread_create(&other, NULL, holder, NULL);
	if (server[0] == 't' || server[0] == 'l') {
		for (int i = 0; i < CLIENTS; i++) {
			int fd = accept(listening, NULL, NULL);
			CHECK(fd >= 0);
			pthread_create(&threads[i], NULL, connection, (void *)(long)fd);
		}
		for (int i = 0; i < CLIENTS; i++)
			pthread_join(threads[i], NULL);
	} else {
		loop(listening, server[0] == 'p');
	}
	waitpid(child, NULL, 0);
	unlink(path);
	if (server[0] == 'l')
		unlink(local.sun_path);
	int n = atomic_load(&logged), s = atomic_load(&slow_ones);
	qsort(log_us, n, sizeof(*log_us), by_size);
	FILE *out = argc > 5 ? fopen(argv[5], "w") : stdout;
	CHECK(out != NULL);
	fprintf(out, "%d %.1f %.1f %d %.3f\n", n, log_us[n / 2], log_us[n * 99 / 100], s, s ? slow_ns / 1e6 / s : 0);
	return 0;
}
