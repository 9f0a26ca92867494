/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Threads that free memory before they get some: because the machine has none, or because their control group may have no more.
 */
#ifndef NCPU_RECLAIM_H
#define NCPU_RECLAIM_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"
#include "kernel_locks.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct page_counter {
	atomic_long_t usage;
	unsigned long max;
	unsigned long high;
	struct page_counter *parent;
};

struct mem_cgroup {
	struct page_counter memory;
};

enum cgroup_subsys_id___memory {
	memory_cgrp_id = 4,
};
#pragma clang attribute pop

enum limit {
	LIMIT_NONE,	/* the machine's memory */
	LIMIT_OWN,	/* of the thread's own group */
	LIMIT_ABOVE,	/* of a group that is not known, or + N of the group above it that is N levels below the root: others may have used it
			 * up */
};

#define LIMIT_LEVELS 8 /* above its own, that are looked at */

/* Whether a group's memory is up to its limit, as far as those who charge it at the same moment let it be seen. */
static __always_inline bool is_full(struct page_counter *c)
{
	__u64 used = BPF_CORE_READ(c, usage.counter), max = BPF_CORE_READ(c, max), high = max;

	if (bpf_core_field_exists(c->high))
		high = BPF_CORE_READ(c, high);
	if (high < max)
		max = high;
	/* Huge pages of files are charged as a whole: 512 small ones. */
	return used + used / 64 + 600 >= max;
}

/* Whose limit makes the current thread free memory. */
APART int limit_reached(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct css_set *set = BPF_CORE_READ(p, cgroups);
	struct mem_cgroup *group = NULL;

	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id___memory, memory_cgrp_id) ||
	    !bpf_core_field_exists(group->memory))
		return LIMIT_ABOVE;
	__u32 number = bpf_core_enum_value(enum cgroup_subsys_id___memory, memory_cgrp_id);
	/* A group begins with what all controllers have of one. */
	bpf_core_read(&group, sizeof(group), &set->subsys[number & 63]);
	if (!group)
		return LIMIT_ABOVE;
	struct page_counter *own = __builtin_preserve_access_index(&group->memory);
	if (is_full(own))
		return LIMIT_OWN;
	/* Groups that have this controller have it up to the root, one level after the other. */
	struct cgroup_subsys_state___tenant *css = (void *)group;
	int level = BPF_CORE_READ(css, cgroup, level);
	for (int i = 0; i < LIMIT_LEVELS; i++) {
		own = BPF_CORE_READ(own, parent);
		level--;
		if (!own || level <= 0 || level > 64)
			break;
		if (is_full(own))
			return LIMIT_ABOVE + level;
	}
	return LIMIT_ABOVE;
}

static __always_inline void begin_freeing(__u32 limit)
{
	struct cpu_slot *s = slot();
	struct task_rec *r = s && !s->depth ? look(bpf_get_current_task_btf()) : NULL;

	if (!r || !r->target || !observing)
		return;
	r->freeing = bpf_ktime_get_ns();
	r->freeing_queued = r->micro[LAT];
	r->limit = limit;
}

/* The time that it stood on run queues meanwhile is lost to whoever ran there. */
static __always_inline void end_freeing(void)
{
	struct cpu_slot *s = slot();
	struct task_rec *r = s ? look(bpf_get_current_task_btf()) : NULL;

	if (!r || !r->freeing)
		return;
	__u64 now = bpf_ktime_get_ns(), all = now - r->freeing, queued = r->micro[LAT] - r->freeing_queued;
	__u64 who = r->limit == LIMIT_OWN ? (__u64)r->tenant + 2 : OTHERS;
	__u32 cause = r->limit == LIMIT_NONE ? LOSS_RECLAIM : LOSS_LIMIT;
	__u64 level = r->limit > LIMIT_ABOVE ? r->limit - LIMIT_ABOVE : 0;

	r->freeing = 0;
	if (observing && all > queued)
		add_lock(lock_slot(s, who, level, r->tenant, KIND_LEDGER | cause), 0, all - queued, 1);
}

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int reclaim_begins(void *ctx)
{
	begin_freeing(LIMIT_NONE);
	return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int reclaim_ends(void *ctx)
{
	end_freeing();
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int limit_reclaim_begins(void *ctx)
{
	begin_freeing(limit_reached());
	return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int limit_reclaim_ends(void *ctx)
{
	end_freeing();
	return 0;
}

#endif
