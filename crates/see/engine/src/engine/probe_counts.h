/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How often probes of each group were hit, and how long their programs took: by this user space keeps them within their
 * budget.
 */
#ifndef NCPU_PROBE_COUNTS_H
#define NCPU_PROBE_COUNTS_H

#include "settings.h"

/* Of calls, those of the program and those of all programs, which pay for the tracing too. */
enum probe_group { GO_PROBES, USER_PROBES, FUNCTION_PROBES, CALL_PROBES, FAULT_PROBES, ALL_CALLS, PROBE_GROUPS };

#define LONGEST_HIT 20000 /* ns */
#define TIMED_HITS 15 /* one hit in TIMED_HITS + 1 is timed */

struct probe_count {
	__u64 hits;
	__u64 timed;	/* hits of which the time is below */
	__u64 ns;
};

/* A CPU's. Programs of probes may be preempted by others of the same CPU, so they add atomically. */
struct probe_counts {
	struct probe_count of[PROBE_GROUPS];
	/* Calls of functions that are followed: that began, that returned, and that were left in another way. */
	__u64 calls_begun;
	__u64 calls_returned;
	__u64 calls_left;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the loader makes it one a CPU */
	__type(key, __u32);
	__type(value, struct probe_counts);
} probe_hits SEC(".maps");

static __always_inline struct probe_counts *probe_counts_here(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&probe_hits, &cpu);
}

/* Counts a hit; where it is to be timed, its beginning. */
static __always_inline __u64 hit(enum probe_group group)
{
	struct probe_counts *all = probe_counts_here();

	if (!all)
		return 0;
	return __sync_fetch_and_add(&all->of[group].hits, 1) & TIMED_HITS ? 0 : bpf_ktime_get_ns();
}

/* Counts what cannot be preempted by another. */
static __always_inline void count_hit(enum probe_group group)
{
	struct probe_counts *all = probe_counts_here();

	if (all)
		all->of[group].hits++;
}

/* The hit is over. */
static __always_inline void hit_done(enum probe_group group, __u64 begin)
{
	struct probe_counts *all = begin ? probe_counts_here() : NULL;
	__u64 ns = bpf_ktime_get_ns() - begin;

	/* Preempted: that is another's time. */
	if (!all || ns > LONGEST_HIT)
		return;
	__sync_fetch_and_add(&all->of[group].ns, ns);
	__sync_fetch_and_add(&all->of[group].timed, 1);
}

#endif
