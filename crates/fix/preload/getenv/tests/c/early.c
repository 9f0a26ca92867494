/* early: built twice. With -DLIBRARY it is a library with a constructor and functions that use the environment. Otherwise it
 * is a program to which the library is preloaded, or which opens it, and which forks and starts threads; it prints `ok`.
 *
 *   early LIBRARY | -
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#ifdef LIBRARY
__attribute__((constructor(101))) static void first(void)
{
	setenv("FROM_CONSTRUCTOR", getenv("PATH") ? "saw PATH" : "saw nothing", 1);
}

const char *ask(const char *name)
{
	return getenv(name);
}

int tell(const char *name, const char *value)
{
	return setenv(name, value, 1);
}
#else
static void fail(const char *why)
{
	printf("%s\n", why);
	exit(1);
}

static volatile int stop;

static void *churn(void *unused)
{
	char name[30];
	for (int i = 0; !stop; i++) {
		snprintf(name, sizeof name, "CHURN_%d", i % 300);
		setenv(name, "x", 1);
		if (i % 3)
			unsetenv(name);
		free(malloc(i % 5000));
	}
	return unused;
}

/* Threads that come and go with something in hand. */
static void *brief(void *number)
{
	char name[30];
	snprintf(name, sizeof name, "BRIEF_%ld", (long)number % 10);
	setenv(name, "x", 1);
	return getenv(name) ? NULL : number;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	if (strcmp(argv[1], "-")) {
		void *library = dlopen(argv[1], RTLD_NOW);
		if (!library)
			fail(dlerror());
		const char *(*ask)(const char *) = (const char *(*)(const char *))dlsym(library, "ask");
		int (*tell)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(library, "tell");
		if (tell("TOLD", "yes") || strcmp(getenv("TOLD"), "yes") || strcmp(ask("TOLD"), "yes"))
			fail("the library has another environment");
		dlclose(library);
		if (strcmp(getenv("TOLD"), "yes"))
			fail("gone with the library");
	}
	const char *seen = getenv("FROM_CONSTRUCTOR");
	if (!seen || strcmp(seen, "saw PATH"))
		fail("the constructor saw no environment");
	pthread_t threads[3], one;
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, churn, NULL);
	for (long i = 1; i <= 300; i++) {
		void *failed;
		if (pthread_create(&one, NULL, brief, (void *)i) || pthread_join(one, &failed) || failed)
			fail("a thread's variable was not there");
	}
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();
		if (!child) {
			alarm(100);
			int good = !setenv("CHILD", "1", 1) && getenv("CHILD") && !unsetenv("CHILD") && !getenv("CHILD") &&
				getenv("FROM_CONSTRUCTOR");
			/* exec passes the current list on. */
			if (good && i % 10 == 0)
				execlp("env", "env", "true", NULL);
			_exit(!good);
		}
		int status;
		if (waitpid(child, &status, 0) != child || status)
			fail("a child could not change its environment");
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	puts("ok");
	return 0;
}
#endif
