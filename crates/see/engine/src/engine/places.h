/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Places where threads go to sleep. Chains of frame pointers end early in code that keeps none, and are then alike for
 * callers that are not. User space, which unwinds the first such stack, says in which words of it the return addresses
 * lie: a stack is from the same place if it has the same there.
 */
#ifndef NCPU_PLACES_H
#define NCPU_PLACES_H

#include "settings.h"
#include "cpu_states.h"

#define PLACE_WORDS 16
#define PLACES_ALIKE 4
#define NO_PLACE_WORD 0xffff

struct place_key {
	__u64 chain;	/* hash of what is known without user space */
	__u64 which;	/* index among places with the same chain, below PLACES_ALIKE */
};

struct place {
	__u64 id;
	__u64 fold;	/* of the words below */
	__u16 words[PLACE_WORDS]; /* from the stack pointer on; NO_PLACE_WORD: there are no more */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct place_key);
	__type(value, struct place);
} places SEC(".maps");

/* What the place of the current thread's sleep is known by, or 0. */
APART __u64 place_of(__u64 chain, __u64 sp)
{
	for (int which = 0; which < PLACES_ALIKE; which++) {
		struct place_key key = { chain, which };
		struct place *place = bpf_map_lookup_elem(&places, &key);
		if (!place)
			return 0;
		__u64 fold = 0;
		for (int i = 0; i < PLACE_WORDS; i++) {
			__u64 at = place->words[i], word = 0;
			if (at == NO_PLACE_WORD)
				break;
			bpf_probe_read_user(&word, sizeof(word), (void *)(sp + 8 * at));
			fold = (fold ^ word) * SPREAD;
			fold ^= fold >> 32;
		}
		if (fold == place->fold)
			return place->id;
	}
	return 0;
}

/* What a place is known by from now on: by it and the time user space finds the chain again. */
static __always_inline __u64 new_place(__u64 chain, __u64 now)
{
	return (chain ^ now * SPREAD) | 2;
}

#endif
