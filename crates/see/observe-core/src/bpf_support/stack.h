/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Records of the ring buffer that carry stacks to user space, and the filter that recognises new stacks. */
#ifndef NCPU_STACK_H
#define NCPU_STACK_H

#include "table.h"

#define STACK_MAX 64	/* frames of a sample, of the kernel and of the program each */
#define CALLER_STACK 24	/* frames of a waiter or sender */

/* Kinds of records; ring.rs has the list for user space. */
enum event { EV_SAMPLE = 1, EV_EXIT, EV_LOCK_STACK, EV_OFF_CPU, EV_FUTEX, EV_USER_STACK, EV_EXEC, EV_TENANT, EV_REQUEST };

/* Head of every record in the ring buffer. */
struct event_head {
	__u32 kind;
	__u32 cpu;
	__u32 tgid, tid;
	__u64 time;
	char comm[16];
};

/* Details of a sample. */
struct sampled {
	__u16 running;		/* threads of the program; 0: the CPUs were not looked at */
	__u16 idle[3];		/* CPUs, in serial phases, for kernel locks and for user locks */
	__u16 mask;		/* stands for mask + 1 samples where the CPUs were looked at */
	__u8 at;		/* enum where */
	__u8 pauses;		/* whether the code was at a pause instruction, as spinning code is */
	__u32 registers;	/* of user code, behind the frames; 0: none */
	__u64 futex;		/* that its system call is for; 0: another call, or user code */
};

/* Details of a stack at which a thread went off CPU. */
struct went_off {
	__u64 id;		/* that of its place, or of the chain that new_place() was given */
	__u32 unplaced;		/* whether it is the latter */
	__u32 pad;
};

/* Details of a wait for a futex, or for a lock that a system call takes. */
struct asked {
	__u64 address;
	__u32 again;		/* whether it has been judged before */
	__s32 number;		/* descriptor or number by which the caller names the lock; -1: none */
};

struct stack_event {
	struct event_head head;
	union {
		__u64 id;	/* of all other kinds: the hash of the stack */
		struct sampled sample;
		struct went_off off;
		struct asked futex;
	} detail;		/* by the kind of the record */
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

/* Sends a walked stack with its frames and `more` bytes after them. Returns whether there was room. */
static __always_inline bool send_stack_with(void *ring, struct stack_event *e, __u32 more, __u64 flags)
{
	__u64 size = (__u32)(e->kernel_bytes + e->user_bytes) + more;

	size += sizeof(*e) - sizeof(e->frames);
	if (size > sizeof(*e))
		size = sizeof(*e);
	return !bpf_ringbuf_output(ring, e, size, flags);
}

static __always_inline bool send_stack(void *ring, struct stack_event *e, __u64 flags)
{
	return send_stack_with(ring, e, 0, flags);
}

/* Identity of a stack; never 0. */
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
 * Lossy per-CPU filter of the records that user space already has. Processes and programs have a separate
 * filter: they wake user space, and stacks and futexes are unlimited in number.
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
