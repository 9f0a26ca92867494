// Block copy and block zero from C.
#include "check.h"

enum { PAGE = 4096, PAGES = 5, BYTES = PAGES * PAGE, LARGE = 40 << 20 };

// Pages between two inaccessible ones.
static unsigned char *between_guards(size_t bytes)
{
	unsigned char *p = mmap(NULL, bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p == MAP_FAILED, 0);
	CHECK(mprotect(p + PAGE, bytes, PROT_READ | PROT_WRITE), 0);
	return p + PAGE;
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (i * 2654435761u + seed) >> 13;
}

static void edges(void)
{
	unsigned char *from = between_guards(BYTES), *to = between_guards(BYTES), *none = calloc(1, BYTES);
	fill(from, BYTES, 1);
	for (int n = 0; n <= BYTES; n += n < 4097 ? 1 : 241) {
		for (int ends = 0; ends < 4; ends++) {
			unsigned char *source = ends & 1 ? from + BYTES - n : from;
			unsigned char *target = ends & 2 ? to + BYTES - n : to;
			CHECK(ncpu_zero(target, n), 0);
			CHECK(memcmp(target, none, n), 0);
			CHECK(ncpu_copy(target, source, n), 0);
			CHECK(memcmp(target, source, n), 0);
		}
	}
	free(none);
}

static void large(void)
{
	unsigned char *from = between_guards(LARGE), *to = between_guards(LARGE);
	fill(from, LARGE, 7);
	for (unsigned threads = 0; threads < 4; threads++) {
		memset(to, 0, LARGE);
		CHECK(ncpu_copy_parallel(to, from + 1, LARGE - 1, threads), 0);
		CHECK(memcmp(to, from + 1, LARGE - 1), 0);
		CHECK(to[LARGE - 1], 0);
	}
	CHECK(ncpu_zero(to, LARGE), 0);
	CHECK(to[0] | to[LARGE / 2] | to[LARGE - 2], 0);
}

// A process that can create no threads still copies.
static void no_threads(void)
{
	pid_t child = fork();
	if (child == 0) {
		struct rlimit none = { 0, 0 };
		unsigned char *from = between_guards(LARGE), *to = between_guards(LARGE);
		fill(from, LARGE, 3);
		// This limit does not apply to root.
		if (geteuid() == 0)
			CHECK(setuid(65534), 0);
		CHECK(setrlimit(RLIMIT_NPROC, &none), 0);
		CHECK(ncpu_copy_parallel(to, from, LARGE, 8), 0);
		CHECK(memcmp(to, from, LARGE), 0);
		_exit(0);
	}
	wait_for(child, 0);
}

static void misuse(void)
{
	char x[200] = "x", y[200] = "y";
	CHECK(ncpu_copy(NULL, x, 1), EINVAL);
	CHECK(ncpu_copy(x, NULL, 1), EINVAL);
	CHECK(ncpu_copy_parallel(NULL, x, 1, 0), EINVAL);
	CHECK(ncpu_copy_parallel(x, NULL, 200, 2), EINVAL);
	CHECK(ncpu_zero(NULL, 1), EINVAL);
	// A length of 0 is accepted with any pointer.
	CHECK(ncpu_copy(NULL, NULL, 0), 0);
	CHECK(ncpu_copy_parallel(NULL, NULL, 0, 0), 0);
	CHECK(ncpu_zero(NULL, 0), 0);
	CHECK(ncpu_copy(x, y, sizeof x), 0);
	CHECK(x[0], 'y');
}

int main(void)
{
	const char *vectors = ncpu_copy_vectors();
	CHECK(!strcmp(vectors, "avx512") || !strcmp(vectors, "avx2") || !strcmp(vectors, "sse2") ||
	      !strcmp(vectors, "neon"), 1);
	misuse();
	edges();
	large();
	no_threads();
	puts("ok");
	return 0;
}
