/*
 * Processes or threads that poll, select or epoll one listener, all but the first a little slower than it from
 * wake-up to accept, so that the first gets as many connections as possible. One client connects repeatedly.
 *
 *   herd poll|select|epoll|exclusive|threads TAKERS CONNECTIONS SLOWER_US
 *
 * prints how many connections each took, and Jain's index.
 */
#include "common.h"

static unsigned *taken; /* shared by the processes */
static int lfd, slower;
static const char *how;

static void *serve(void *arg)
{
	int me = (intptr_t)arg, ep = -1;
	struct epoll_event event = { .events = EPOLLIN };
	struct pollfd p = { .fd = lfd, .events = POLLIN };
	fd_set set;

	if (!strcmp(how, "epoll") || !strcmp(how, "exclusive")) {
		if (!strcmp(how, "exclusive"))
			event.events |= EPOLLEXCLUSIVE;
		ep = must(epoll_create1(0));
		must(epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &event));
	}
	for (;;) {
		if (ep >= 0) {
			epoll_wait(ep, &event, 1, -1);
		} else if (!strcmp(how, "select")) {
			FD_ZERO(&set);
			FD_SET(lfd, &set);
			select(lfd + 1, &set, NULL, NULL, NULL);
		} else {
			poll(&p, 1, -1);
		}
		if (me)
			sleep_us(slower);
		int fd = accept4(lfd, NULL, NULL, me % 2 ? SOCK_CLOEXEC : 0);
		if (fd < 0) {
			if (errno != EAGAIN)
				_exit(1);
			continue;
		}
		__atomic_add_fetch(&taken[me], 1, __ATOMIC_RELAXED);
		(void)!write(fd, "!", 1);
		close(fd);
	}
	return NULL;
}

int main(int count, char **args)
{
	if (count != 5)
		return 2;
	how = args[1];
	int takers = atoi(args[2]), connections = atoi(args[3]);
	pid_t children[64];
	char byte;

	slower = atoi(args[4]);
	if (takers < 1 || takers > 64)
		return 2;
	taken = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	lfd = listener(SOCK_NONBLOCK);
	for (intptr_t i = 0; i < takers; i++) {
		pthread_t thread;

		if (!strcmp(how, "threads")) {
			must(pthread_create(&thread, NULL, serve, (void *)i) ? -1 : 0);
		} else if (!(children[i] = must(fork()))) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			serve((void *)i);
		}
	}
	for (int i = 0; i < connections; i++) {
		int c = connected();

		if (read(c, &byte, 1) != 1 || byte != '!') {
			fprintf(stderr, "connection %d was not answered\n", i);
			return 1;
		}
		close(c);
		/* Time for all to wait again. */
		sleep_us(2 * slower);
	}
	double sum = 0, squares = 0;
	for (int i = 0; i < takers; i++) {
		if (strcmp(how, "threads")) {
			int status;

			kill(children[i], SIGKILL);
			must(waitpid(children[i], &status, 0));
		}
		sum += taken[i];
		squares += (double)taken[i] * taken[i];
		printf("%u ", taken[i]);
	}
	printf("\n%.3f\n", sum * sum / (takers * squares));
	fflush(stdout);
	_exit(sum == connections ? 0 : 1);
}
