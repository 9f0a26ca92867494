/*
 * Prints the results of accept and accept4, a line for each case: the same with and without the library. Each case is
 * tried before a race for connections, and again while the library holds this process back.
 */
#include "common.h"

static int lfd;	/* a non-blocking listener that a child races for */
static struct sockaddr_in here; /* its address */

static int say(const char *what, int result)
{
	int error = errno;

	printf("%s: %s\n", what, result >= 0 ? "a connection" : strerrorname_np(error));
	errno = error;
	return result;
}

static void handler(int signal)
{
	(void)signal;
}

static int handled;

static void accepts(int signal)
{
	(void)signal;
	int saved = errno;
	handled = accept(lfd, NULL, NULL);
	errno = saved;
}

static void alarm_in(long us, void (*f)(int), int flags)
{
	struct sigaction action = { .sa_handler = f, .sa_flags = flags };
	struct itimerval timer = { .it_value = { 0, us } };

	must(sigaction(SIGALRM, &action, NULL));
	must(setitimer(ITIMER_REAL, &timer, NULL));
}

static int cleaned;

static void clean(void *unused)
{
	(void)unused;
	cleaned++;
}

static void *accepting(void *arg)
{
	int *how = arg;

	must(pthread_setcanceltype(how[1], NULL) ? -1 : 0);
	pthread_cleanup_push(clean, NULL);
	close(accept(how[0], NULL, NULL));
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancel(const char *what, int type)
{
	int how[] = { listener(0), type };
	pthread_t thread;
	void *result;

	cleaned = 0;
	must(pthread_create(&thread, NULL, accepting, how) ? -1 : 0);
	sleep_us(30000);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	printf("%s: %s, %d cleaned up\n", what, result == PTHREAD_CANCELED ? "cancelled" : "not cancelled", cleaned);
	close(how[0]);
	where = here;
}

static void pending_cancel(void)
{
	int how[] = { lfd, PTHREAD_CANCEL_DEFERRED };
	pthread_t thread;
	void *result;
	int c = connected();

	/* It is cancelled before, while or after it takes the connection; whatever comes, it ends. */
	must(pthread_create(&thread, NULL, accepting, how) ? -1 : 0);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	close(c);
	close(accept(lfd, NULL, NULL));
	printf("a cancelled taker ended\n");
}

static void errors(void)
{
	struct sockaddr_storage from;
	socklen_t length = sizeof(from), negative = -1;
	int pipes[2], plain = must(socket(AF_INET, SOCK_STREAM, 0)), c;

	must(pipe(pipes));
	say("closed", accept(9999, NULL, NULL));
	say("negative", accept4(-1, NULL, NULL, 0));
	say("pipe", accept(pipes[0], NULL, NULL));
	say("no listener", accept(plain, NULL, NULL));
	say("no listener, accept4", accept4(plain, NULL, NULL, SOCK_CLOEXEC));
	c = connected();
	say("wrong flags", accept4(lfd, NULL, NULL, 0x7f));
	close(say("negative length", accept(lfd, (struct sockaddr *)&from, &negative)));
	/* That took the connection and lost it; so does this. */
	close(c);
	c = connected();
	close(say("no such memory", accept(lfd, (struct sockaddr *)8, &length)));
	close(c);
	say("nothing left", accept(lfd, NULL, NULL));
	close(plain), close(pipes[0]), close(pipes[1]);
}

static void results(void)
{
	struct sockaddr_in from;
	socklen_t length;
	int c = connected(), r;

	memset(&from, 0xee, sizeof(from));
	length = sizeof(from);
	errno = 77;
	r = accept(lfd, (struct sockaddr *)&from, &length);
	say("address", r);
	printf("errno %d, length %u, family %d, from %s\n", errno, length, from.sin_family, inet_ntoa(from.sin_addr));
	close(r), close(c);

	c = connected();
	memset(&from, 0xee, sizeof(from));
	length = 4;
	r = accept4(lfd, (struct sockaddr *)&from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
	say("short address", r);
	printf("length %u, untouched %x, cloexec %d, non-blocking %d\n", length, from.sin_addr.s_addr,
	       fcntl(r, F_GETFD) & FD_CLOEXEC, !!(fcntl(r, F_GETFL) & O_NONBLOCK));
	close(r), close(c);

	c = connected();
	r = accept(lfd, NULL, NULL);
	printf("cloexec %d, non-blocking %d\n", fcntl(r, F_GETFD) & FD_CLOEXEC, !!(fcntl(r, F_GETFL) & O_NONBLOCK));
	close(r), close(c);
	errno = 77;
	r = accept(lfd, NULL, NULL);
	say("non-blocking", r);
}

static void blocking(void)
{
	int fd = listener(0), r, c;
	struct timeval brief = { 0, 20000 };
	pid_t child;

	must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof(brief)));
	for (int i = 0; i < 3; i++) {
		r = accept(fd, NULL, NULL);
		say("SO_RCVTIMEO", r);
	}
	/* With a timeout even SA_RESTART ends the wait. */
	struct timeval none = { 0, 0 };
	must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof(none)));
	alarm_in(20000, handler, 0);
	r = accept(fd, NULL, NULL);
	say("signal", r);
	alarm_in(20000, handler, SA_RESTART);
	if (!(child = must(fork()))) {
		sleep_us(60000);
		c = connected();
		(void)!read(c, &r, 1);
		_exit(0);
	}
	r = accept(fd, NULL, NULL);
	say("signal with SA_RESTART", r);
	close(r);
	must(waitpid(child, NULL, 0));
	close(fd);
	where = here;
}

static void unix_domain(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = must(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)), c = must(socket(AF_UNIX, SOCK_STREAM, 0)), r;

	/* Without a file: the name begins with a zero. */
	snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "ncpu-accept-%d", getpid());
	must(bind(fd, (struct sockaddr *)&name, sizeof(name)));
	must(listen(fd, 8));
	r = accept(fd, NULL, NULL);
	say("unix, none", r);
	must(connect(c, (struct sockaddr *)&name, sizeof(name)));
	r = accept(fd, NULL, NULL);
	say("unix", r);
	close(r), close(c), close(fd);
}

static void processes(char *self)
{
	int c = connected(), status, r;
	pid_t child = must(fork());

	if (!child) {
		r = accept(lfd, NULL, NULL);
		_exit(r >= 0 ? 11 : 1);
	}
	must(waitpid(child, &status, 0));
	printf("a child's: %d\n", WEXITSTATUS(status));
	close(c);

	c = connected();
	if (!(child = must(fork()))) {
		char fd[12];

		snprintf(fd, sizeof(fd), "%d", lfd);
		execl(self, self, "exec", fd, NULL);
		_exit(1);
	}
	must(waitpid(child, &status, 0));
	printf("after exec: %d\n", WEXITSTATUS(status));
	close(c);
}

static void others(char *plugin)
{
	void *library = dlopen(plugin, RTLD_NOW);
	int (*take)(int), r, c;

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	take = (int (*)(int))dlsym(library, "take");
	c = connected();
	r = take(lfd);
	say("from a library that was opened", r);
	close(r), close(c);
	dlclose(library);

	c = connected();
	handled = -1;
	alarm_in(1000, accepts, 0);
	while (handled == -1)
		pause();
	say("in a signal handler", handled);
	close(handled), close(c);
}

static void all(char *self, char *plugin)
{
	errors();
	results();
	blocking();
	unix_domain();
	cancel("cancelled where it blocks", PTHREAD_CANCEL_DEFERRED);
	cancel("cancelled at any time", PTHREAD_CANCEL_ASYNCHRONOUS);
	pending_cancel();
	processes(self);
	others(plugin);
}

/* This process takes every connection; a child is too late for each. So it is held back from the next epoch on. */
static void race(int connections)
{
	int to[2], from[2];
	char byte = 0;
	pid_t child;

	must(pipe(to));
	must(pipe(from));
	if (!(child = must(fork()))) {
		close(to[1]);
		while (read(to[0], &byte, 1) == 1) {
			if (accept(lfd, NULL, NULL) >= 0)
				_exit(1);
			(void)!write(from[1], &byte, 1);
		}
		_exit(0);
	}
	close(to[0]);
	for (int i = 0; i < connections; i++) {
		int c = connected();

		close(must(accept(lfd, NULL, NULL)));
		close(c);
		must(write(to[1], &byte, 1));
		must(read(from[0], &byte, 1));
	}
	close(to[1]);
	int status;
	must(waitpid(child, &status, 0));
	printf("raced: %d\n", status);
	close(from[0]), close(from[1]);
}

int main(int count, char **args)
{
	if (count == 3 && !strcmp(args[1], "exec"))
		return accept(atoi(args[2]), NULL, NULL) >= 0 ? 12 : 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	lfd = listener(SOCK_NONBLOCK);
	here = where;
	all(args[0], args[1]);
	race(200);
	all(args[0], args[1]);
	return 0;
}
