/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How long those waited that were first in a lock's queue. Such a wait lasts for what is left of the time the lock is
 * held, so the density of these waits near zero is one over the mean time it is held.
 *
 * Kernel locks say themselves whether anybody waits. Reading that costs no shared line: the waiter has just read it.
 */
#ifndef NCPU_FIRST_WAITS_H
#define NCPU_FIRST_WAITS_H

#include "settings.h"
#include "cpu_states.h"

const volatile __u32 cfg_first_slots = 64; /* a CPU's part of the table, a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct first_slot);
} first_slots SEC(".maps");

APART int first_index(__u64 lock, __u64 octave, __u64 who)
{
	__u32 part = bpf_get_smp_processor_id() + (lock_half ? cfg_cpus : 0);

	return find_row(&first_slots, part, cfg_first_slots, lock, octave, who);
}

/* Counts the wait of a lock's first waiter. `who`: its process in the lower half, the lock's kind in the upper. */
APART int add_first(__u64 lock, __u64 ns, __u64 who, int first)
{
	if (ns < 4)
		ns = 4;
	__u32 octave = octave_of(ns);
	__u32 key = first_index(lock, octave | (__u64)first << 8, who);
	struct first_slot *row = bpf_map_lookup_elem(&first_slots, &key);
	if (row) {
		row->count[MASK(ns >> (octave - 2), 3)]++;
		return 0;
	}
	struct cpu_slot *s = slot();
	if (s)
		s->other_first++;
	return 0;
}

/* A spinlock: the thread that is about to wait is not in its queue yet. */
static __always_inline __u32 first_of_spinlock(__u64 lock, __u32 flags)
{
	__u32 word = 0;

	/* Those for reading and writing have another word. */
	if (flags != LCB_F_SPIN || bpf_probe_read_kernel(&word, sizeof(word), (void *)lock))
		return NOT_FIRST;
	/* The bytes are: the holder's, the next waiter's, and the queue's tail. */
	return !(word >> 8) ? FIRST : !(word >> 16) ? SECOND : NOT_FIRST;
}

/* A lock that sleeps. */
static __always_inline __u32 first_of_sleeping(__u64 lock, __u32 flags)
{
	if (flags & LCB_F_MUTEX) {
		struct mutex *m = (void *)lock;
		__s32 spinners = 0;

		if (bpf_core_field_exists(m->osq))
			spinners = BPF_CORE_READ(m, osq.tail.counter);
		/* The lowest bit: the list of sleeping waiters is not empty. */
		return BPF_CORE_READ(m, owner.counter) & 1 || spinners ? NOT_FIRST : FIRST;
	}
	/* Who waits for a semaphore of readers and writers is in its list already. */
	if (flags == LCB_F_READ || flags == LCB_F_WRITE) {
		struct rw_semaphore *w = (void *)lock;
		struct rw_semaphore___circle *c = (void *)lock;

		if (bpf_core_field_exists(c->first_waiter)) {
			struct rwsem_waiter *waiter = BPF_CORE_READ(c, first_waiter);
			return waiter && BPF_CORE_READ(waiter, list.next) == &waiter->list ? FIRST : NOT_FIRST;
		}
		if (bpf_core_field_exists(w->wait_list))
			return BPF_CORE_READ(w, wait_list.next) == BPF_CORE_READ(w, wait_list.prev) ? FIRST : NOT_FIRST;
	}
	return NOT_FIRST;
}

/* User locks do not say it: so threads are counted that wait for each, or for others with the same place. */
#define USER_QUEUES 1024
struct {
	__u32 waiting;
	__u32 last;	/* the thread that joined last */
} user_queues[USER_QUEUES];

/* Joins a queue; its place + 1. */
static __always_inline __u16 join_queue(struct task_struct *p, __u64 lock, bool *first, bool *alone)
{
	__u64 place = MASK(((__u64)p->tgid << 48 ^ lock) * SPREAD >> 54, 1023);

	*first = __sync_fetch_and_add(&user_queues[place].waiting, 1) == 0;
	*alone = user_queues[place].last == p->pid;
	user_queues[place].last = p->pid;
	return place + 1;
}

static __always_inline void leave_queue(__u16 place)
{
	if (place)
		__sync_fetch_and_add(&user_queues[MASK(place - 1, 1023)].waiting, -1);
}

/*
 * Threads that sleep in futexes or as the first in a lock's queue, by the lower bits of their numbers. For these the waker
 * and the time of the wake-up must be known: their own CPU may be idle, and completes the wake-up later without a current
 * thread. For the wake-ups of all other threads one byte is read.
 */
#define BLAMED_SLEEPERS 4096
__u8 blamed_sleepers[BLAMED_SLEEPERS];

#endif
