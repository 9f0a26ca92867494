#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static char scratch[8 << 20];
static long count_words(const char *s) { memset(scratch, 0, sizeof(scratch)); long n = 0; for (; *s; s++) { scratch[(unsigned char)*s * 4096L % sizeof(scratch)]++; n += *s == ' '; } return n; }
int main(int argc, char **argv)
{
	time_t end = time(NULL) + atoi(argv[1]);
	long n = 0;
	while (time(NULL) < end) n += count_words("a short text of a few words");
	printf("%ld\n", n);
}
