/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Loops with a known number of rounds. */
#ifndef NCPU_ROUNDS_H
#define NCPU_ROUNDS_H

#include "loop.h"

#define MOST_ROUNDS 256

/* Without bpf_loop, a loop has a round for each element of this array. The values are unused. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_ROUNDS + 1);
	__type(key, __u32);
	__type(value, __u64);
} rounds SEC(".maps");

/* `long callback(__u32 round, context *)`, which returns 1 to end the loop, can be called in up to `n` rounds. */
#define ROUNDS_OF(callback, context, n)							\
	_Static_assert((n) <= MOST_ROUNDS, "there is an element for each round");	\
	static long callback##_of_element(void *map, __u32 *round, void *value, context *c)	\
	{										\
		return *round < (n) ? callback(*round, c) : 1;				\
	}

/* The number of rounds; more than `n` without bpf_loop, if no callback ended the loop. */
#define ROUNDS(callback, c, n) \
	(HAS_LOOP ? bpf_loop(n, callback, c, 0) : bpf_for_each_map_elem(&rounds, callback##_of_element, c, 0))

#endif
