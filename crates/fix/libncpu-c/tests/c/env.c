// The environment from C: results compared with glibc's, readers beside writers, lists that the program owns,
// fork.
#include "check.h"

extern char **environ;

enum { READERS = 4, ROUNDS = 400 };
static _Atomic int done;

static void *read_on(void *unused)
{
	while (!done) {
		const char *value = ncpu_getenv("STAYS");
		CHECK(value && !strcmp(value, "as it was"), 1);
		value = ncpu_getenv("CHANGES");
		CHECK(value && (!strcmp(value, "one") || !strcmp(value, "two")), 1);
		// glibc's functions and loops in the program read the same list.
		CHECK(getenv("STAYS") != NULL, 1);
		int seen = 0;
		for (char **entry = environ; *entry; entry++)
			seen += !strncmp(*entry, "STAYS=", 6);
		CHECK(seen >= 1, 1);
	}
	return unused;
}

static void update(int rounds)
{
	char name[32];
	for (int round = 0; round < rounds; round++) {
		CHECK(ncpu_setenv("CHANGES", round % 2 ? "one" : "two", 1), 0);
		for (int i = 0; i < 100; i++) {
			snprintf(name, sizeof name, "V%d", i);
			CHECK(ncpu_setenv(name, "x", 1), 0);
		}
		for (int i = 0; i < 100; i++) {
			snprintf(name, sizeof name, "V%d", i);
			CHECK(ncpu_unsetenv(name), 0);
			CHECK(ncpu_getenv(name) == NULL, 1);
		}
	}
}

static void *update_always(void *unused)
{
	while (!done)
		update(1);
	return unused;
}

static void results(void)
{
	CHECK(ncpu_setenv("A", "1", 0), 0);
	CHECK(ncpu_setenv("A", "2", 0), 0);
	CHECK(strcmp(ncpu_getenv("A"), "1"), 0);
	CHECK(strcmp(getenv("A"), "1"), 0);
	CHECK(ncpu_setenv("A", "", 1), 0);
	CHECK(strcmp(ncpu_getenv("A"), ""), 0);
	CHECK(ncpu_unsetenv("A"), 0);
	CHECK(ncpu_unsetenv("A"), 0);
	CHECK(getenv("A") == NULL, 1);
	static char own[] = "OWN=1";
	CHECK(ncpu_putenv(own), 0);
	CHECK(ncpu_getenv("OWN") == own + 4, 1);
	own[4] = '2';
	CHECK(strcmp(ncpu_getenv("OWN"), "2"), 0);
	CHECK(ncpu_putenv("OWN"), 0);
	CHECK(ncpu_getenv("OWN") == NULL, 1);
	CHECK(ncpu_secure_getenv("PATH") == ncpu_getenv("PATH"), 1);
	// Misuse.
	CHECK(ncpu_setenv(NULL, "1", 1), EINVAL);
	CHECK(ncpu_setenv("", "1", 1), EINVAL);
	CHECK(ncpu_setenv("A=B", "1", 1), EINVAL);
	CHECK(ncpu_setenv("A", NULL, 1), EINVAL);
	CHECK(ncpu_unsetenv(NULL), EINVAL);
	CHECK(ncpu_unsetenv(""), EINVAL);
	CHECK(ncpu_unsetenv("A=B"), EINVAL);
	CHECK(ncpu_putenv(NULL), EINVAL);
	CHECK(ncpu_getenv(NULL) == NULL, 1);
	CHECK(ncpu_secure_getenv(NULL) == NULL, 1);
	CHECK(ncpu_getenv("") == NULL, 1);
}

static void lists_of_the_program(void)
{
	char *list[] = {"D=1", "E=1", "D=2", NULL};
	environ = list;
	CHECK(ncpu_unsetenv("E"), 0);
	CHECK(strcmp(ncpu_getenv("D"), "1"), 0);
	// Code that kept the list's beginning does not see removed variables.
	for (char **entry = list; *entry; entry++)
		CHECK(**entry, 'D');
	CHECK(ncpu_setenv("F", "1", 1), 0);
	CHECK(strcmp(ncpu_getenv("D"), "1"), 0);
	CHECK(ncpu_unsetenv("D"), 0);
	CHECK(ncpu_getenv("D") == NULL, 1);
	CHECK(environ < list || environ > list + 3, 1);
	CHECK(strcmp(ncpu_getenv("F"), "1"), 0);
}

int main(void)
{
	pthread_t readers[READERS], writer;
	results();
	lists_of_the_program();
	CHECK(ncpu_setenv("STAYS", "as it was", 1), 0);
	CHECK(ncpu_setenv("CHANGES", "one", 1), 0);
	for (int i = 0; i < READERS; i++)
		CHECK(pthread_create(&readers[i], NULL, read_on, NULL), 0);
	update(ROUNDS);
	// A child may change its environment, whatever the other threads were doing.
	CHECK(pthread_create(&writer, NULL, update_always, NULL), 0);
	for (int i = 0; i < 50; i++) {
		pid_t child = fork();
		if (child == 0) {
			alarm(100);
			CHECK(ncpu_setenv("CHILD", "1", 1), 0);
			CHECK(ncpu_unsetenv("STAYS"), 0);
			CHECK(!ncpu_getenv("STAYS") && ncpu_getenv("CHILD"), 1);
			_exit(0);
		}
		wait_for(child, 0);
	}
	done = 1;
	CHECK(pthread_join(writer, NULL), 0);
	for (int i = 0; i < READERS; i++)
		CHECK(pthread_join(readers[i], NULL), 0);
	CHECK(ncpu_clearenv(), 0);
	CHECK(!environ && !ncpu_getenv("STAYS"), 1);
	CHECK(ncpu_setenv("AGAIN", "1", 1), 0);
	CHECK(strcmp(getenv("AGAIN"), "1"), 0);
	puts("ok");
	return 0;
}
