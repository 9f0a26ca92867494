/* calls: makes the calls that standard input names, one per line, and prints the result of each and the environment
 * after it. Words are separated by tabs; `~` is a null pointer. Entries are printed in the order of their bytes, once
 * for each string: their order in `environ` is unspecified.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static char *put[1000];
static int puts_made;
static char **kept;

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void print_all(char **list)
{
	static char *sorted[10000];
	int n = 0;
	for (; list && *list; list++) {
		/* In the one environment and not in the other. */
		int again = !strncmp(*list, "LD_PRELOAD=", 11);
		for (int i = 0; i < n; i++)
			again |= sorted[i] == *list;
		if (!again)
			sorted[n++] = *list;
	}
	qsort(sorted, n, sizeof *sorted, compare);
	for (int i = 0; i < n; i++)
		printf(" [%s]", sorted[i]);
}

static const char *shown(const char *value)
{
	return value ? value : "(null)";
}

static char *copy(const char *s)
{
	char *new = malloc(100);
	return new ? strcpy(new, s) : NULL;
}

int main(void)
{
	static char line[4096];
	while (fgets(line, sizeof line, stdin)) {
		char *word[40] = {0}, *rest = line;
		int words = 0;
		line[strcspn(line, "\n")] = 0;
		while (words < 39 && (word[words] = strsep(&rest, "\t"))) {
			if (!strcmp(word[words], "~"))
				word[words] = NULL;
			words++;
		}
		const char *call = word[0];
		int result = 0;
		errno = 0;
		if (!strcmp(call, "setenv"))
			result = setenv(word[1], word[2], atoi(word[3]));
		else if (!strcmp(call, "unsetenv"))
			result = unsetenv(word[1]);
		else if (!strcmp(call, "clearenv"))
			result = clearenv();
		else if (!strcmp(call, "putenv"))
			result = putenv(put[puts_made++] = copy(word[1]));
		else if (!strcmp(call, "change") && puts_made) {
			/* The program's own string, in its place. */
			char *value = strchr(put[atoi(word[1]) % puts_made], '=');
			if (value)
				strcpy(value + 1, word[2]);
		} else if (!strcmp(call, "own")) {
			kept = malloc(50 * sizeof *kept);
			for (int i = 1; i < words; i++)
				kept[i - 1] = copy(word[i]);
			kept[words - 1] = NULL;
			environ = kept;
		} else if (!strcmp(call, "back") && kept)
			environ = kept;
		else if (!strcmp(call, "null"))
			environ = NULL;
		else if (!strcmp(call, "cut") && environ) {
			environ[0] = NULL;
			kept = NULL;
		}
		printf("%s: %d %d\n  environ", call, result, result ? errno : 0);
		print_all(environ);
		/* As main's envp would be: what was removed is not in it. */
		printf("\n  kept");
		print_all(kept);
		printf("\n ");
		static const char *const names[] = {"A", "AB", "ABC", "B", "C", "", "=", "A=B", "=x", "LONG_NAME"};
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			printf(" %s=%s,%s", names[i], shown(getenv(names[i])), shown(secure_getenv(names[i])));
		puts("");
	}
	return 0;
}
