#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static char *buffer; static size_t size;
static void append_record(char c) { buffer = realloc(buffer, size + 4096); for (int i = 0; i < 64; i++) buffer[size + 64 * i] = c; size += 4096; }
int main(int argc, char **argv)
{
	time_t end = time(NULL) + atoi(argv[1]);
	long n = 0;
	while (time(NULL) < end) {
		for (int i = 0; i < 20000; i++, n++) append_record(n);
		free(buffer); buffer = NULL; size = 0;
	}
	printf("%ld\n", n);
}
