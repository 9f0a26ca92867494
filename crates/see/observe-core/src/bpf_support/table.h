/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Separate counts: a table of rows with a part for each CPU, so that CPUs share no cache line, and the choice
 * of every Nth event.
 */
#ifndef NCPU_TABLE_H
#define NCPU_TABLE_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

/* The bits of the golden ratio. Multiplying by it spreads a difference in any bit over the upper bits. */
#define SPREAD 0x9e3779b97f4a7c15ull

/* Masks an index visibly to the verifier; clang would drop a mask that it knows to be redundant. */
#define MASK(i, mask) ({ __u64 __i = (i); asm volatile("%0 &= " #mask : "+r"(__i)); __i; })

/* 1 where a number is not 0. With a jump, the verifier would look at all that follows for both outcomes. */
static __always_inline __u64 is_not_0(__u64 n)
{
	__u64 negative = -n;

	asm volatile("" : "+r"(negative));
	return (n | negative) >> 63;
}

/* The highest bit that is set; 0 of 0. */
static __always_inline __u32 octave_of(__u64 ns)
{
	__u64 octave = is_not_0(ns >> 32) << 5, rest = ns >> octave, by;

	by = is_not_0(rest >> 16) << 4, octave += by, rest >>= by;
	by = is_not_0(rest >> 8) << 3, octave += by, rest >>= by;
	by = is_not_0(rest >> 4) << 2, octave += by, rest >>= by;
	by = is_not_0(rest >> 2) << 1, octave += by, rest >>= by;
	return octave + (rest >> 1);
}

/* A row begins with its key. The key's first word is 0 if the row is free. */
struct row_key {
	__u64 first, second, third;
};

/* A key word from two halves, as they lie in memory. */
#define HALVES(low, high) ((__u64)(__u32)(high) << 32 | (__u32)(low))

/* Rows probed before a CPU's part counts as full. */
#define PROBES 8

/*
 * The index of a key's row in a part of a table, normally this CPU's part. A part has `rows` rows (a power of
 * two). Returns -1 if the part is full. Call it from a function that is not static, so that the verifier
 * checks it once per program instead of once per path.
 */
static __always_inline int find_row(void *table, __u32 part, __u32 rows, __u64 first, __u64 second, __u64 third)
{
	__u32 i = (first ^ (second << 7) ^ third) * SPREAD >> 32;
	__u32 base = part * rows;

	for (int probe = 0; probe < PROBES; probe++) {
		__u32 key = base + ((i + probe) & (rows - 1));
		struct row_key *r = bpf_map_lookup_elem(table, &key);
		if (!r)
			break;
		if (r->first == first && r->second == second && r->third == third)
			return key;
		if (r->first == 0) {
			r->second = second;
			r->third = third;
			/* User space treats a row with this word as complete. */
			barrier();
			r->first = first;
			return key;
		}
	}
	return -1;
}

/* Whether this event is the one chosen of mask + 1. The clock decides, since events alternate. */
static __always_inline bool chosen(__u64 now, __u32 mask)
{
	return ((now * SPREAD >> 40) & mask) == 0;
}

#endif
