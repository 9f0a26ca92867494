/*
 * Processes that epoll one listener and now and then change their entry of it in every way there is: what they get the
 * events that they requested last, whatever a library does to the entry meanwhile. One client connects repeatedly.
 *
 *   entries epoll|exclusive TAKERS CONNECTIONS
 *
 * prints the results of the changes, and on standard error Jain's index of the connections that each took.
 */
#include "common.h"

static unsigned *taken; /* shared by the processes */
static int lfd, exclusive;

static void wrong(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

static void expect(const char *what, int result, int error)
{
	if (error ? result != -1 || errno != error : result != 0)
		wrong(what);
}

/* Gives the entry data of its own, in one way or another. */
static void change(int ep, unsigned nth)
{
	struct epoll_event event = { .events = EPOLLIN | (exclusive ? EPOLLEXCLUSIVE : 0), .data.u64 = nth };
	struct epoll_event none = { 0 };

	expect("add what is there", epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &event), EEXIST);
	expect("no event", epoll_ctl(ep, EPOLL_CTL_MOD, lfd, NULL), EFAULT);
	if (nth % 2 && !exclusive) {
		event.events |= nth % 4 == 1 ? EPOLLRDHUP : 0;
		expect("modify", epoll_ctl(ep, EPOLL_CTL_MOD, lfd, &event), 0);
		return;
	}
	if (exclusive)
		expect("modify an exclusive one", epoll_ctl(ep, EPOLL_CTL_MOD, lfd, &event), EINVAL);
	expect("delete", epoll_ctl(ep, EPOLL_CTL_DEL, lfd, &none), 0);
	expect("delete what is not there", epoll_ctl(ep, EPOLL_CTL_DEL, lfd, &none), ENOENT);
	expect("modify what is not there", epoll_ctl(ep, EPOLL_CTL_MOD, lfd, &event), exclusive ? EINVAL : ENOENT);
	expect("add", epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &event), 0);
}

static void serve(int me)
{
	struct epoll_event event = { .events = EPOLLIN | (exclusive ? EPOLLEXCLUSIVE : 0) };
	int ep = must(epoll_create1(0));
	unsigned nth = 0;

	must(epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &event));
	for (;;) {
		if (epoll_wait(ep, &event, 1, -1) != 1)
			wrong("wait");
		if (event.data.u64 != nth || event.events != EPOLLIN)
			wrong("another event than asked for");
		int fd = accept(lfd, NULL, NULL);
		if (fd < 0)
			continue;
		if (__atomic_add_fetch(&taken[me], 1, __ATOMIC_RELAXED) % 40 == 0)
			change(ep, ++nth);
		(void)!write(fd, "!", 1);
		close(fd);
	}
}

int main(int count, char **args)
{
	if (count != 4)
		return 2;
	exclusive = !strcmp(args[1], "exclusive");
	int takers = atoi(args[2]), connections = atoi(args[3]);
	pid_t children[16];
	char byte;

	if (takers < 1 || takers > 16)
		return 2;
	taken = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	lfd = listener(SOCK_NONBLOCK);
	for (int i = 0; i < takers; i++) {
		if (!(children[i] = must(fork()))) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			serve(i);
		}
	}
	int answered = 0;
	for (; answered < connections; answered++) {
		struct timeval patience = { 10, 0 };
		int c = connected();

		must(setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
		if (read(c, &byte, 1) != 1)
			break;
		close(c);
		sleep_us(200);
	}
	double sum = 0, squares = 0;
	int ended = 0;
	for (int i = 0; i < takers; i++) {
		int status;

		kill(children[i], SIGKILL);
		must(waitpid(children[i], &status, 0));
		ended += !WIFSIGNALED(status);
		sum += taken[i];
		squares += (double)taken[i] * taken[i];
	}
	printf("%d answered, %d ended\n", answered, ended);
	fprintf(stderr, "%.3f\n", sum * sum / (takers * squares));
	return 0;
}
