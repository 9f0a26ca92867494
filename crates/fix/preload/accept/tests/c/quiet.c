/*
 * Servers that have no herd, under a filter that allows only the system calls of their own: one more kills them.
 *
 *   quiet alone|until-empty|ticks|blocking|threads CONNECTIONS [unfiltered]
 */
#include "common.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

static void only_own_calls(void)
{
	static const int allowed[] = {
		SYS_accept, SYS_accept4, SYS_close, SYS_write, SYS_epoll_pwait, SYS_exit_group, SYS_exit,
		SYS_nanosleep, SYS_clock_nanosleep, SYS_rt_sigreturn, SYS_restart_syscall,
#ifdef SYS_poll
		SYS_poll, SYS_epoll_wait,
#endif
	};
	enum { N = sizeof(allowed) / sizeof(*allowed) };
	struct sock_filter code[N + 3];

	code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < N; i++)
		code[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], N - i, 0);
	code[N + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[N + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { N + 3, code };
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static int lfd;
static const char *how;
static int filtered;
static volatile unsigned *taken;

static void answer(int fd)
{
	__atomic_add_fetch(taken, 1, __ATOMIC_RELAXED);
	(void)!write(fd, "!", 1);
	close(fd);
}

static void wait_for_one(int ep)
{
	struct epoll_event event;
	struct pollfd p = { .fd = lfd, .events = POLLIN };

	if (ep >= 0)
		epoll_wait(ep, &event, 1, -1);
	else
		poll(&p, 1, -1);
}

static void *serve(void *unused)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd, ep = -1;

	(void)unused;
	if (!strcmp(how, "until-empty")) {
		ep = must(epoll_create1(0));
		must(epoll_ctl(ep, EPOLL_CTL_ADD, lfd, &event));
	}
	if (filtered)
		only_own_calls();
	for (;;) {
		if (!strcmp(how, "ticks")) {
			struct timespec tick = { 0, 100000 };

			nanosleep(&tick, NULL);
		} else if (strcmp(how, "blocking") && strcmp(how, "threads")) {
			wait_for_one(ep);
		}
		while ((fd = accept(lfd, NULL, NULL)) >= 0) {
			answer(fd);
			if (strcmp(how, "until-empty"))
				break;
		}
	}
	return NULL;
}

int main(int count, char **args)
{
	if (count < 3)
		return 2;
	filtered = count == 3;
	how = args[1];
	int connections = atoi(args[2]), takers = 1, threads = !strcmp(how, "threads"), status = 0;
	pid_t children[4];

	if (threads || !strcmp(how, "blocking"))
		takers = 4;
	taken = must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	lfd = listener(threads || !strcmp(how, "blocking") ? 0 : SOCK_NONBLOCK);
	if (threads) {
		if (!(children[0] = must(fork()))) {
			pthread_t thread[4];

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (int i = 0; i < takers; i++)
				must(pthread_create(&thread[i], NULL, serve, NULL) ? -1 : 0);
			pthread_join(thread[0], NULL);
		}
		takers = 1;
	} else {
		for (int i = 0; i < takers; i++) {
			if (!(children[i] = must(fork()))) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				serve(NULL);
			}
		}
	}
	for (int i = 0; i < connections; i++) {
		struct timeval patience = { 10, 0 };
		int c = connected();
		char byte;

		must(setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)));
		if (read(c, &byte, 1) != 1)
			break;
		close(c);
		sleep_us(300);
	}
	for (int i = 0; i < takers; i++) {
		int end;

		/* Those that the filter killed are dead already. */
		kill(children[i], SIGKILL);
		must(waitpid(children[i], &end, 0));
		if (!WIFSIGNALED(end) || WTERMSIG(end) != SIGKILL)
			status = WIFSIGNALED(end) ? WTERMSIG(end) : 255;
	}
	printf("%u of %d taken; ended by %d\n", *taken, connections, status);
	return status;
}
