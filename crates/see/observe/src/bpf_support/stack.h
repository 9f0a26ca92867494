/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Stacks on their way to user space: the records of the ring buffer, and what tells new stacks from old ones. */
#ifndef NCPU_STACK_H
#define NCPU_STACK_H

#include "table.h"

#define STACK_MAX 64	/* frames of a sample, of the kernel and of the program each */
#define CALLER_STACK 24	/* frames of a waiter or sender */

/* Kinds of records; ring.rs has the list for user space. */
enum event { EV_SAMPLE = 1, EV_EXIT, EV_LOCK_STACK, EV_OFF_CPU, EV_FUTEX, EV_USER_STACK, EV_EXEC };

/* Head of every record in the ring buffer. */
struct event_head {
	__u32 kind;
	__u32 cpu;
	__u32 tgid, tid;
	__u64 time;
	char comm[16];
};

struct stack_event {
	struct event_head head;
	__u64 id;		/* lock: hash; off-CPU: hash; futex: address */
	__u32 where;		/* sample: enum where; off-CPU: whether its place is not known; futex: op|private|class */
	__u32 weight;		/* events this one stands for; futex: the value expected */
	__s32 kernel_bytes;
	__s32 user_bytes;
	__u64 frames[2 * STACK_MAX]; /* kernel, then user from frames[kernel_bytes / 8] */
};

static __always_inline void head(struct event_head *h, __u32 kind, struct task_struct *p, __u64 now)
{
	h->kind = kind;
	h->cpu = bpf_get_smp_processor_id();
	h->tgid = p->tgid;
	h->tid = p->pid;
	h->time = now;
	bpf_core_read(&h->comm, sizeof(h->comm), &p->comm);
}

/* Sends a walked stack, as many frames as it has; whether there was room. */
static __always_inline bool send_stack(void *ring, struct stack_event *e, __u64 flags)
{
	__u64 size = (__u32)(e->kernel_bytes + e->user_bytes);

	size += sizeof(*e) - sizeof(e->frames);
	if (size > sizeof(*e))
		size = sizeof(*e);
	return !bpf_ringbuf_output(ring, e, size, flags);
}

/* What a stack is known by: never 0. */
static __always_inline __u64 hash_frames(const struct stack_event *e, int n)
{
	__u64 h = SPREAD;

	for (int i = 0; i < 2 * CALLER_STACK; i++) {
		if (i >= n)
			break;
		h = (h ^ e->frames[i]) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	return h ? h : 1;
}

/*
 * What user space has been sent already: a lossy filter, one a CPU. Processes and programs have one of their own, since
 * user space is woken for them, and stacks and futexes may be without number.
 */
struct seen {
	__u64 id[512];
	__u64 process[128];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader makes it one a CPU */
	__type(key, __u32);
	__type(value, struct seen);
} sent SEC(".maps");

static __always_inline bool first_sight(__u64 id)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct seen *seen = bpf_map_lookup_elem(&sent, &cpu);

	if (!seen)
		return true;
	/* Futex words of a process lie close together: their low bits alone would collide. */
	__u64 i = id * SPREAD >> 55;
	if (seen->id[MASK(i, 511)] == id)
		return false;
	seen->id[MASK(i, 511)] = id;
	return true;
}

static __always_inline bool first_meeting(__u64 id)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct seen *seen = bpf_map_lookup_elem(&sent, &cpu);

	if (!seen)
		return true;
	__u64 i = id * SPREAD >> 57;
	if (seen->process[MASK(i, 127)] == id)
		return false;
	seen->process[MASK(i, 127)] = id;
	return true;
}

#endif
