/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Servers of requests that wait for other threads and programs, with a client in a process of its own:
 * SERVER REQUESTS MS FILE
 *
 * SERVER is eventfd or pair (one loop reads and answers; helpers take items from a queue, and tell the loop by an eventfd or a
 * socket pair; a slow request's helper takes a mutex that "holder" holds while it sleeps), upstream (a loop that passes requests on to
 * another process, which sleeps for slow ones), or fresh (a connection and a thread for each request; slow ones sleep).
 *
 * One request in SLOW takes MS longer. It writes one line to FILE: requests, the 99th percentile in us of its own log, the slow
 * requests, and the mean ms that the cause took in these.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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
#define HELPERS 4
#define SLOW 25
#define MOST 100000
#define FDS 1024

static const char *server;
static long unit; /* ns */
static int wanted;
static double log_us[MOST];
static atomic_int logged, slow_ones;
static atomic_llong slow_ns;

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void rest(long ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static void took(long long ns)
{
	atomic_fetch_add(&slow_ns, ns);
	atomic_fetch_add(&slow_ones, 1);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Answers a request, and logs it. */
static void answer(int fd, long long began)
{
	CHECK(write(fd, "ok\n", 3) == 3);
	log_us[atomic_fetch_add(&logged, 1)] = (now() - began) / 1e3;
}

static int listen_at(struct sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CHECK(bind(fd, (void *)address, sizeof(*address)) == 0 && listen(fd, 64) == 0);
	CHECK(getsockname(fd, (void *)address, &length) == 0);
	return fd;
}

static int connect_to(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	CHECK(connect(fd, (void *)address, sizeof(*address)) == 0);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void watch(int poller, int fd)
{
	struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };

	CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e) == 0);
}

/* Helpers of a loop. */
struct item {
	int fd, slow;
	long long began;
};
static struct item queue[64], done[64];
static int queue_first, queue_last, done_first, done_last, tell;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER, done_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static int to_holder[2], from_holder[2];

static void *holder(void *arg)
{
	char c;

	pthread_setname_np(pthread_self(), "holder");
	while (read(to_holder[0], &c, 1) == 1) {
		pthread_mutex_lock(&held);
		CHECK(write(from_holder[1], &c, 1) == 1);
		rest(unit);
		pthread_mutex_unlock(&held);
	}
	return arg;
}

static void *helper(void *arg)
{
	unsigned long long one = 1;

	pthread_setname_np(pthread_self(), "helper");
	for (;;) {
		pthread_mutex_lock(&queue_lock);
		while (queue_first == queue_last)
			pthread_cond_wait(&filled, &queue_lock);
		struct item item = queue[queue_first++ % 64];
		pthread_mutex_unlock(&queue_lock);
		if (item.slow) {
			char c = 'x';
			CHECK(write(to_holder[1], &c, 1) == 1 && read(from_holder[0], &c, 1) == 1);
			long long from = now();
			pthread_mutex_lock(&held);
			took(now() - from);
			pthread_mutex_unlock(&held);
		}
		pthread_mutex_lock(&done_lock);
		done[done_last++ % 64] = item;
		pthread_mutex_unlock(&done_lock);
		CHECK(write(tell, &one, sizeof(one)) == sizeof(one));
	}
	return arg;
}

static void loop(int listening, const struct sockaddr_in *upstream)
{
	int poller = epoll_create1(0), heard = -1, pair[2], is_slow = 0;
	static int back[FDS]; /* of a connection to the upstream: the client's */
	static long long began[FDS];
	static char slow[FDS];
	struct epoll_event ready[16];
	char text[512];
	pthread_t thread;

	watch(poller, listening);
	if (!upstream) {
		heard = tell = eventfd(0, EFD_NONBLOCK);
		if (server[0] == 'p') {
			CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
			heard = pair[0];
			tell = pair[1];
		}
		watch(poller, heard);
		CHECK(pipe(to_holder) == 0 && pipe(from_holder) == 0);
		pthread_create(&thread, NULL, holder, NULL);
		for (int i = 0; i < HELPERS; i++)
			pthread_create(&thread, NULL, helper, NULL);
	}
	while (atomic_load(&logged) < wanted) {
		int n = epoll_wait(poller, ready, 16, -1);
		for (int i = 0; i < n; i++) {
			int fd = ready[i].data.fd;
			if (fd == listening) {
				int client = accept(listening, NULL, NULL);
				CHECK(client >= 0 && client < FDS);
				watch(poller, client);
				continue;
			}
			ssize_t bytes = read(fd, text, fd == heard ? 8 : sizeof(text));
			if (bytes <= 0) {
				close(fd);
			} else if (fd == heard) {
				pthread_mutex_lock(&done_lock);
				while (done_first < done_last) {
					struct item item = done[done_first++ % 64];
					answer(item.fd, item.began);
				}
				pthread_mutex_unlock(&done_lock);
			} else if (upstream && back[fd]) {
				int client = back[fd];
				if (slow[fd])
					took(now() - began[fd]);
				answer(client, began[fd]);
				back[fd] = 0;
				close(fd);
			} else {
				is_slow = (is_slow + 1) % SLOW;
				struct item item = { fd, is_slow == 0, now() };
				if (upstream) {
					int other = connect_to(upstream);
					back[other] = fd;
					slow[other] = item.slow;
					began[other] = now();
					CHECK(write(other, item.slow ? "slow\n" : "fast\n", 5) == 5);
					watch(poller, other);
					continue;
				}
				pthread_mutex_lock(&queue_lock);
				queue[queue_last++ % 64] = item;
				pthread_cond_signal(&filled);
				pthread_mutex_unlock(&queue_lock);
			}
		}
	}
}

static void *pass_on(void *arg)
{
	int fd = (long)arg;
	char text[16];

	while (read(fd, text, sizeof(text)) > 0) {
		if (text[0] == 's')
			rest(unit);
		CHECK(write(fd, "ok\n", 3) == 3);
	}
	close(fd);
	return NULL;
}

static void *once(void *arg)
{
	static atomic_int number;
	int fd = (long)arg;
	char text[512];

	CHECK(read(fd, text, sizeof(text)) > 0);
	long long began = now();
	if (atomic_fetch_add(&number, 1) % SLOW == SLOW - 1) {
		rest(unit);
		took(now() - began);
	}
	answer(fd, began);
	close(fd);
	return NULL;
}

static void accept_all(int listening, void *(*serve)(void *), int most)
{
	pthread_t thread;

	for (int i = 0; i < most; i++) {
		int fd = accept(listening, NULL, NULL);
		CHECK(fd >= 0);
		pthread_create(&thread, NULL, serve, (void *)(long)fd);
		pthread_detach(thread);
	}
}

static struct sockaddr_in address;

static void *client(void *arg)
{
	char text[512];
	int fd = -1, fresh = server[0] == 'f';

	for (long i = 0; i < (long)arg; i++) {
		if (fd < 0)
			fd = connect_to(&address);
		CHECK(write(fd, "GET / HTTP/1.1\r\n\r\n", 18) == 18);
		CHECK(read(fd, text, sizeof(text)) > 0);
		if (fresh) {
			close(fd);
			fd = -1;
		}
		rest(1500000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in upstream;
	pthread_t threads[CLIENTS];

	if (argc != 5)
		return 2;
	server = argv[1];
	wanted = atoi(argv[2]) / CLIENTS * CLIENTS;
	unit = atof(argv[3]) * 1e6;
	CHECK(wanted > 0 && wanted <= MOST);
	int listening = listen_at(&address), passes_on = server[0] == 'u';
	pid_t other = 0, clients;
	if (passes_on) {
		int behind = listen_at(&upstream);
		other = fork();
		if (other == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			accept_all(behind, pass_on, MOST);
		}
		close(behind);
	}
	clients = fork();
	CHECK(clients >= 0 && other >= 0);
	if (clients == 0) {
		for (int i = 0; i < CLIENTS; i++)
			pthread_create(&threads[i], NULL, client, (void *)(long)(wanted / CLIENTS));
		for (int i = 0; i < CLIENTS; i++)
			pthread_join(threads[i], NULL);
		_exit(0);
	}
	if (server[0] == 'f')
		accept_all(listening, once, wanted);
	else
		loop(listening, passes_on ? &upstream : NULL);
	waitpid(clients, NULL, 0);
	while (atomic_load(&logged) < wanted)
		rest(1000000);
	if (other)
		kill(other, SIGKILL);
	qsort(log_us, wanted, sizeof(*log_us), by_size);
	int slow = atomic_load(&slow_ones);
	FILE *out = fopen(argv[4], "w");
	CHECK(out != NULL);
	fprintf(out, "%d %.1f %d %.3f\n", wanted, log_us[wanted * 99 / 100], slow, slow ? slow_ns / 1e6 / slow : 0);
	return 0;
}
