/* Shared code of these tests' C programs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define must(x)                                                                                                        \
	({                                                                                                             \
		__typeof__(x) r_ = (x);                                                                                \
		if ((long)r_ == -1) {                                                                                  \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, strerror(errno));                   \
			exit(1);                                                                                       \
		}                                                                                                      \
		r_;                                                                                                    \
	})

static struct sockaddr_in where;

/* A listener on a free port of the loopback device. */
static inline int listener(int flags)
{
	socklen_t length = sizeof(where);
	int fd = must(socket(AF_INET, SOCK_STREAM | flags, 0));

	memset(&where, 0, sizeof(where));
	where.sin_family = AF_INET;
	where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	must(bind(fd, (struct sockaddr *)&where, sizeof(where)));
	must(listen(fd, 128));
	must(getsockname(fd, (struct sockaddr *)&where, &length));
	return fd;
}

static inline int connected(void)
{
	int fd = must(socket(AF_INET, SOCK_STREAM, 0));
	struct linger linger = { 1, 0 };

	must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)));
	must(connect(fd, (struct sockaddr *)&where, sizeof(where)));
	return fd;
}

static inline void sleep_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}
