/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What keeping counts apart takes: a table of rows of which each CPU has a part of its own, so that no line is
 * shared, and the choice of one event in so many.
 */
#ifndef NCPU_TABLE_H
#define NCPU_TABLE_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

/* The golden ratio's bits: multiplying by it spreads what differs in any bit over the upper ones. */
#define SPREAD 0x9e3779b97f4a7c15ull

/* Masks an index where the verifier sees it; clang would drop a mask it knows to be idle. */
#define MASK(i, mask) ({ __u64 __i = (i); asm volatile("%0 &= " #mask : "+r"(__i)); __i; })

/* A row begins with its key, of which the first word is 0 where the row is free. */
struct row_key {
	__u64 first, second, third;
};

/* Two halves of a word of a key, as they lie in memory. */
#define HALVES(low, high) ((__u64)(__u32)(high) << 32 | (__u32)(low))

/* Rows looked at before a CPU's part counts as full. */
#define PROBES 8

/*
 * The place of a key in a part of a table, this CPU's as a rule, `rows` long (a power of two), or -1 where that is
 * full. To be called from a function that is not static, so that the verifier looks at it once a program and not once a path.
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
			/* User space takes a row with this word for a whole one. */
			barrier();
			r->first = first;
			return key;
		}
	}
	return -1;
}

/* Whether this event is the one of mask + 1 that is chosen: by the clock, since events alternate. */
static __always_inline bool chosen(__u64 now, __u32 mask)
{
	return ((now * SPREAD >> 40) & mask) == 0;
}

#endif
