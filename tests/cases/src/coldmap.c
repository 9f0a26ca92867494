// A file is read through a mapping, at random places, after its pages have been dropped from the page cache.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#define SIZE (256L << 20)
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static volatile long sum;
static void lookup_record(const char *base, long at) { sum += base[at]; }
int main(int argc, char **argv) {
	char name[] = "/var/tmp/coldmap-case-XXXXXX"; int fd = mkstemp(name); unlink(name);
	char *block = calloc(1, 1 << 20);
	for (long i = 0; i < SIZE >> 20; i++) if (write(fd, block, 1 << 20) < 0) return 1;
	fsync(fd);
	double end = now() + atof(argv[1]); unsigned long x = 1; (void)argc;
	char *base = mmap(0, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	madvise(base, SIZE, MADV_RANDOM);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	for (long n = 0; now() < end; n++) {
		if (n % 4000 == 3999) { madvise(base, SIZE, MADV_DONTNEED); posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }
		x = x * 6364136223846793005UL + 1; lookup_record(base, (x >> 33) % (SIZE / 4096) * 4096);
	}
	return 0;
}
