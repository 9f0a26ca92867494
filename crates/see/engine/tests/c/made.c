/* Runs code that it has made at run time: an atomic increment in a loop. made SECONDS FILE; writes the seconds of user time into the file. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	/* lock incq (%rdi); dec %rsi; jnz to the beginning; ret */
	static const unsigned char code[] = {0xf0, 0x48, 0xff, 0x07, 0x48, 0xff, 0xce, 0x75, 0xf7, 0xc3};
	double end = now() + (argc > 2 ? atof(argv[1]) : 1);
	uint64_t count = 0;
	struct rusage used;
	char *page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return 1;
	/* In the middle of its mapping, as compilers put it. */
	memset(page, 0x90, 1 << 16);
	memcpy(page + 0x2345, code, sizeof(code));
	void (*made)(uint64_t *, uint64_t) = (void (*)(uint64_t *, uint64_t))(page + 0x2345);
	while (now() < end)
		made(&count, 100000);
	getrusage(RUSAGE_SELF, &used);
	FILE *out = fopen(argv[2], "w");
	if (!out)
		return 1;
	fprintf(out, "%.3f\n", used.ru_utime.tv_sec + used.ru_utime.tv_usec / 1e6);
	fclose(out);
	return count == 0;
}
