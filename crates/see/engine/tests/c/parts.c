// Loops of two parts, and the same loop without one of them, timed in turns: the share of that part is known.
// usage: parts HOW SECONDS FILE
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

#define BYTES (256ull << 20)
static uint64_t *ring;

static void make_ring(void)
{
	uint64_t lines = BYTES / 64, *order = malloc(lines * 8), seed = 88172645463325252ull;

	ring = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(ring, BYTES, MADV_HUGEPAGE);
	for (uint64_t i = 0; i < lines; i++)
		order[i] = i;
	for (uint64_t i = lines - 1; i; i--) {
		seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
		uint64_t j = seed % i, t = order[i];
		order[i] = order[j], order[j] = t;
	}
	for (uint64_t i = 0; i < lines; i++)
		ring[order[i] * 8] = order[(i + 1) % lines] * 8;
	free(order);
}

/* Each part depends on what the one before it gives, so that none hides behind another. */
static inline __attribute__((always_inline)) uint64_t arithmetic(uint64_t x, int n)
{
	for (int i = 0; i < n; i++)
		x = (x * 5 ^ x >> 7) + 3;
	return x;
}

static inline __attribute__((always_inline)) uint64_t division(uint64_t x, int n)
{
	uint64_t by;

	for (int i = 0; i < n; i++) {
		by = (x & 0xff) | 0x10001;
		__asm__ volatile("xor %%edx, %%edx; div %1" : "+a"(x) : "r"(by) : "rdx");
		x |= 0xffffffff00000000ull;
	}
	return x;
}

/* Divisions that do not wait for each other: the divider takes one after the other. */
static inline __attribute__((always_inline)) uint64_t quotient(uint64_t x)
{
	uint64_t by = 0x10001;

	__asm__ volatile("xor %%edx, %%edx; div %1" : "+a"(x) : "r"(by) : "rdx");
	return x;
}

static uint64_t word[8] __attribute__((aligned(64)));
static inline __attribute__((always_inline)) uint64_t atomic(uint64_t x, int n)
{
	for (int i = 0; i < n; i++)
		x += __atomic_fetch_add(&word[0], x & 1, __ATOMIC_SEQ_CST) & 1;
	return x;
}

/* The same with an exchange of registers in place of the atomic operation. */
static inline __attribute__((always_inline)) uint64_t plain(uint64_t x, int n)
{
	for (int i = 0; i < n; i++) {
		uint64_t bit = x & 1;
		__asm__ volatile("" : "+r"(bit));
		x += bit & 1;
	}
	return x;
}

#define LOOP(name, a, b)                                              \
	static __attribute__((noinline)) uint64_t name(uint64_t x, int rounds) \
	{                                                             \
		/* Where it was before: the first rounds alone fit a core's caches. */ \
		static uint64_t before;                               \
		uint64_t at = before;                                 \
		for (int i = 0; i < rounds; i++) {                    \
			a;                                            \
			b;                                            \
		}                                                     \
		before = at;                                          \
		return x + at;                                        \
	}
#define CHASE (at = ring[at + (x & 0)])
#define LINK (x += at & 1)
LOOP(chase_alone, CHASE, LINK)
LOOP(chase_and_40, (CHASE, LINK), x = arithmetic(x, 40))
LOOP(only_40, at = x & 1, x = arithmetic(x, 40))
LOOP(divide_and_60, x = division(x, 4), x = arithmetic(x, 60))
#define HIGH 0xffffffff00000000ull
LOOP(divide_apart, x += quotient(HIGH | i) + quotient(HIGH - i), at = i)
LOOP(only_quotients, (quotient(HIGH | i), quotient(HIGH - i)), at = i)
LOOP(plain_and_10, x = plain(x, 3), x = arithmetic(x, 10))
LOOP(only_60, at = x & 1, x = arithmetic(x, 60))
LOOP(atomic_and_10, x = atomic(x, 3), x = arithmetic(x, 10))

struct how {
	const char *name;
	uint64_t (*mixed)(uint64_t, int), (*rest)(uint64_t, int);
	/* `rest` is the part itself, which takes all the time if the others hide behind it. */
	int is_part;
} hows[] = {
	{ "chase", chase_alone, 0 },
	{ "chase40", chase_and_40, only_40 },
	{ "divide60", divide_and_60, only_60 },
	{ "apart", divide_apart, only_quotients, 1 },
	{ "atomic10", atomic_and_10, plain_and_10 },
	{ "arithmetic", only_60, only_60 },
};

int main(int argc, char **argv)
{
	volatile uint64_t sink = 1;

	if (argc != 4)
		return 2;
	if (!strncmp(argv[1], "chase", 5))
		make_ring();
	for (unsigned i = 0; i < sizeof(hows) / sizeof(*hows); i++) {
		struct how *h = &hows[i];
		double rest = 0, mixed = 0, until = now() + atof(argv[2]);
		uint64_t of_rest = 0, of_mixed = 0;

		if (strcmp(h->name, argv[1]))
			continue;
		/* In turns, since other machines share the processor: little of the part alone. */
		while (now() < until) {
			double t = now();
			sink = h->mixed(sink | 1, 20000), of_mixed += 20000;
			mixed += now() - t;
			if (!h->rest)
				continue;
			t = now();
			sink = h->rest(sink | 1, 2000), of_rest += 2000;
			rest += now() - t;
		}
		double each = mixed / of_mixed, without = of_rest ? rest / of_rest : 0;
		double part = h->is_part ? without : each - without;
		FILE *f = fopen(argv[3], "w");
		fprintf(f, "%f %f\n", part < 0 ? 0 : part > each ? 1 : part / each, mixed);
		return fclose(f);
	}
	return 2;
}
