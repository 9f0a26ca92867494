/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Waits for kernel locks, and the table that all waits are counted in.
 */
#ifndef NCPU_KERNEL_LOCKS_H
#define NCPU_KERNEL_LOCKS_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"
#include "first_waits.h"
#include "lengths.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lock_slot);
} lock_slots SEC(".maps");

/* This CPU's part of a table's half that is written now. */
static __always_inline __u32 lock_part(void)
{
	return bpf_get_smp_processor_id() + (lock_half ? cfg_cpus : 0);
}

/*
 * The place of a (lock, stack, process and kind) in this CPU's part of the table, or -1 where that is full. The table
 * has two halves: user space reads and empties one while the other is written.
 */
APART int lock_index(__u64 lock, __u64 stack, __u64 who)
{
	return find_row(&lock_slots, lock_part(), cfg_lock_slots, lock, stack, who);
}

/* Rows for what finds no place: one for each kind, whatever the lock and the process. Two halves as above. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lock_slot);
} other_slots SEC(".maps");

APART int other_index(__u64 call, __u64 stack, __u32 kind)
{
	return find_row(&other_slots, lock_part(), OTHER_ROWS, call, stack, HALVES(0, kind));
}

static __always_inline struct lock_slot *lock_slot(struct cpu_slot *s, __u64 lock, __u64 stack, __u32 tgid,
						   __u32 kind)
{
	__u32 key = lock_index(lock, stack, HALVES(tgid, kind));
	struct lock_slot *l = bpf_map_lookup_elem(&lock_slots, &key);

	if (l)
		return l;
	/* Calls are few, and have rows of their own here too; of a stack only that there was one. */
	key = other_index(kind & KIND_SLEEP ? lock : OTHERS, stack ? OTHERS : 0, kind);
	l = bpf_map_lookup_elem(&other_slots, &key);
	if (!l)
		s->drop_lock++;
	return l;
}

/* A wait that stands for `weight`; those others are counted elsewhere. */
static __always_inline void add_lock(struct lock_slot *l, __u64 spin, __u64 block, __u32 weight)
{
	if (!l)
		return;
	l->count++;
	l->spin += spin * weight;
	l->block += block;
	if (spin + block > l->max)
		l->max = spin + block;
}

/* Charges a wait, without the time in which the thread was runnable, to the tenant that held the lock at its beginning. */
static __always_inline void blame_holder(struct cpu_slot *s, struct task_rec *r, struct lock_wait *w, __u64 all)
{
	if (!cfg_tenants || !r->target)
		return;
	__u64 queued = r->micro[LAT] - w->queued, ns = all > queued ? all - queued : 0;
	struct lock_slot *l = lock_slot(s, w->holder ? (__u64)w->holder + 2 : OTHERS, w->lock, r->tenant, KIND_LEDGER | LOSS_LOCK);

	add_lock(l, 0, ns, 1);
}

/*
 * Puts the last spinlock's wait into the lock table: before the next can take its place, and before
 * anybody else gets the CPU.
 */
APART int put_done(struct cpu_slot *s)
{
	if (!s)
		return 0;
	struct spin_wait *w = &s->done;
	__u64 spin = s->done_spin;

	struct task_rec *r = look(bpf_get_current_task_btf());
	if (r)
		r->spin += spin * w->timed;
	add_lock(lock_slot(s, w->lock, 0, s->done_tgid, w->kind), spin, 0, w->timed);
	add_length_of(w->lock, HALVES(0, LENGTH_KLOCK), spin, w->timed);
	if (w->stack)
		add_lock(lock_slot(s, w->lock, w->stack, s->done_tgid, w->kind), spin, 0, w->timed);
	if (w->first)
		add_first(w->lock, spin, HALVES(0, w->kind), w->first);
	w->lock = 0;
	return 0;
}

static __always_inline void put_spin(struct cpu_slot *s)
{
	if (s->done.lock)
		put_done(s);
}


/*
 * Charges the time up to now, and puts a wait that is over into its table: what `charge` and `put_spin` do, with one branch where no
 * interrupt or lock is to be settled.
 */
static __always_inline void settle_here(struct cpu_slot *s, __u64 now)
{
	__u64 last = s->last;

	if ((s->ended | s->done.lock | s->waits | s->depth | s->spinning[0] | (s->lock_epoch ^ *(volatile __u32 *)&lock_epoch)) ||
	    last < observe_from || now > observe_until || now < last) {
		charge(s, now);
		put_spin(s);
		return;
	}
	s->at[MASK(s->base, 7)] += now - last;
	s->last = now;
}

/* How many waits are timed follows their rate: all of them below 10,000 a second on this CPU. */
static __always_inline void count_waits(struct cpu_slot *s, __u64 now)
{
	if (now - s->window < WALK_WINDOW)
		return;
	__u32 n = s->window_waits;
	s->time_mask = walk_all_locks ? 0 : n > 3000 ? 63 : n > 1000 ? 31 : n > 300 ? 7 : n > 100 ? 3 : 0;
	s->window_waits = 0;
	s->window = now;
}

/*
 * Whether a spinlock's wait is only counted. That is done before the waiter queues up, so that nobody waits for it;
 * and not even the clock is read, which drains the pipeline.
 */
static __always_inline bool only_counted(struct cpu_slot *s, __u64 lock, __u32 flags)
{
	s->lock_events++;
	s->window_waits++;
	if (!s->time_mask)
		return false;
	if (!throw_dice(s, s->time_mask))
		return false;
	struct lock_slot *l = lock_slot(s, lock, 0, bpf_get_current_pid_tgid() >> 32, flags);
	if (l)
		l->count++;
	return true;
}

/* Walks the stack of one contention in `mask + 1`; the hash is its key in the lock table. */
static __always_inline __u64 walk_lock(void *ctx, struct cpu_slot *s, __u32 flags, __u64 now)
{
	if (!cfg_stacks || !observing)
		return 0;
	__u32 weight = walk_all_locks ? 1 : walk_now(&s->lock_walks, now, WALK_WINDOW);
	struct stack_event *e = weight ? scratch_of(s->depth ? 1 : 0) : NULL;
	if (!e)
		return 0;
	__s32 k = bpf_get_stack(ctx, e->frames, 8 * CALLER_STACK, 0);
	if (k <= 0)
		return 0;
	__u64 id = stack_id(e, k / 8);
	if (first_sight(id)) {
		head(&e->head, EV_LOCK_STACK, bpf_get_current_task_btf(), now);
		e->detail.id = id;
		e->kernel_bytes = k;
		e->user_bytes = 0;
		emit_stack(e, BPF_RB_NO_WAKEUP);
	}
	return id;
}

/* Functions in which threads sleep for kernel locks, by address; the rest is 0. Written by user space before the first window ends. */
struct code_range lock_code[LOCK_CODE];

#define SLEEP_FRAMES 12	/* from the switch to the function that sleeps, and a few to spare */

APART int is_lock_code(__u64 frame)
{
	for (int i = 0; i < LOCK_CODE; i++)
		if (frame > lock_code[i].start && frame <= lock_code[i].end)
			return 1;
	return 0;
}

/* Whether one of the frames in this CPU's scratch lies there. */
APART int in_lock_code(void)
{
	struct stack_event *e = scratch_of(0);

	if (!e)
		return 0;
	for (int f = 0; f < SLEEP_FRAMES; f++)
		if (is_lock_code(e->frames[f]))
			return 1;
	return 0;
}

/*
 * Whether the current thread waits for a mutex, where the kernel says so (since Linux 6.17). Apart, since the verifier looks through
 * all types of the kernel, for most of a millisecond, on each way to a place that reads a pointer.
 */
APART int waits_for_mutex(void)
{
	struct task_struct *p = bpf_get_current_task_btf();

	return bpf_core_field_exists(p->blocked_on) && p->blocked_on;
}

/*
 * Whether the current thread, which falls asleep, does so for a kernel lock, when that need not have been traced. The kernel
 * says so of mutexes (since Linux 6.17). The stack says so of the others, which all sleep uninterruptibly.
 */
static __always_inline bool sleeps_untraced(void *ctx, struct task_struct *p, __u32 state)
{
	if (!lock_epoch)
		return false;
	if (waits_for_mutex())
		return true;
	if (bpf_core_field_exists(p->blocked_on) && !(state & TASK_UNINTERRUPTIBLE))
		return false;
	struct stack_event *e = scratch_of(0);
	if (!e)
		return false;
	__s32 n = bpf_get_stack(ctx, e->frames, 8 * SLEEP_FRAMES, 0);
	/* The verifier wants a bound for each. */
	for (int f = 0; f < SLEEP_FRAMES; f++)
		if (8 * f >= n)
			e->frames[f] = 0;
	return in_lock_code();
}

/*
 * A window has closed since a thread, the current one or the next, began to wait for a lock. If it slept then, it has waited
 * until it came on CPU. If it was on CPU, it has waited until the window's end at most. `who` is its process.
 */
APART int end_cut_wait(struct cpu_slot *s, struct task_rec *r, __u64 now, __u32 who)
{
	if (!s || !r)
		return 0;
	__u32 n = r->nlocks;

	r->nlocks = 0;
	if (!n || n > LOCK_NEST)
		return 0;
	struct lock_wait *w = &r->locks[MASK(n - 1, 3)];
	__u64 closed = lock_closed;
	__u64 all = now > w->begin ? now - w->begin : 0, off = off_in_all(r) - w->off;
	__u64 block = off < all ? off : all, spin = all - block;
	__u64 until = closed > w->begin ? closed - w->begin : 0;

	if (spin > until)
		spin = until;
	r->spin += spin;
	add_lock(lock_slot(s, w->lock, 0, who, w->kind), spin, block, 1);
	blame_holder(s, r, w, spin + block);
	if (w->stack)
		add_lock(lock_slot(s, w->lock, w->stack, who, w->kind), spin, block, 1);
	if (w->first && w->woken > w->begin)
		add_first(w->lock, w->woken - w->begin, HALVES(0, w->kind), w->first);
	return 0;
}

static __always_inline bool was_cut(struct task_rec *r)
{
	return r->nlocks && r->lock_epoch != *(volatile __u32 *)&lock_epoch;
}

static __always_inline void leave_cut_wait(struct cpu_slot *s, struct task_rec *r, __u64 now, __u32 who)
{
	if (was_cut(r))
		end_cut_wait(s, r, now, who);
}

/* Locks that sleep: the wait belongs to the task, which may move or go off CPU. */
static __always_inline void begin_sleeping(void *ctx, struct cpu_slot *s, __u64 lock, __u32 flags, __u32 epoch)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (!r || !(r->target || cfg_lock_all))
		return;
	leave_cut_wait(s, r, s->last, bpf_get_current_pid_tgid() >> 32);
	__u32 n = r->nlocks;
	/* A mutex that stops spinning begins again: the same wait, another phase. */
	if (n && n <= LOCK_NEST && r->locks[MASK(n - 1, 3)].lock == lock)
		return;
	if (n >= LOCK_NEST) {
		s->drop_nest++;
		return;
	}
	__u64 now = bpf_ktime_get_ns();
	struct lock_wait *w = &r->locks[MASK(n, 3)];
	charge(s, now);
	if (s->lock_epoch != epoch)
		return;
	w->lock = lock;
	w->begin = now;
	w->off = off_in_all(r);
	w->kind = flags & LCB_F_MUTEX ? LCB_F_MUTEX : flags; /* a mutex may or may not spin first */
	w->woken = 0;
	w->first = first_of_sleeping(lock, flags);
	w->queued = r->micro[LAT];
	w->holder = cfg_tenants ? tenant_of_holder(lock, flags) : 0;
	r->nlocks = n + 1;
	r->lock_epoch = epoch;
	s->waits = n + 1;
	s->lock_events++;
	w->stack = walk_lock(ctx, s, flags, now);
}

static __always_inline void end_sleeping(struct cpu_slot *s, __u64 lock)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);

	if (!r || !r->nlocks)
		return;
	leave_cut_wait(s, r, s->last, p->tgid);
	if (!r->nlocks)
		return;
	/* The innermost wait for this lock; those above it have had their ends missed. */
	__u32 n = r->nlocks;
	struct lock_wait *w = &r->locks[MASK(n - 1, 3)];
	for (int i = 0; i < LOCK_NEST && w->lock != lock; i++) {
		if (n <= 1)
			return; /* its begin was missed */
		n--;
		w = &r->locks[MASK(n - 1, 3)];
	}
	if (w->lock != lock)
		return;
	s->drop_nest += r->nlocks - n;

	__u64 now = bpf_ktime_get_ns();
	__u64 off = off_in_all(r) - w->off;
	__u64 all = now > w->begin ? now - w->begin : 0;
	__u64 block = off < all ? off : all;
	__u64 spin = all - block;
	charge(s, now);
	r->nlocks = n - 1;
	s->waits = n - 1;
	r->spin += spin;
	add_length_of(w->lock, HALVES(0, LENGTH_KLOCK), all, 1);
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	add_lock(lock_slot(s, w->lock, 0, tgid, w->kind), spin, block, 1);
	blame_holder(s, r, w, all);
	if (w->stack)
		add_lock(lock_slot(s, w->lock, w->stack, tgid, w->kind), spin, block, 1);
	/* The holder wakes a sleeping waiter when the lock is free; the waiter gets a CPU later. */
	__u64 until = w->woken ?: now;
	if (w->first && until > w->begin)
		add_first(w->lock, until - w->begin, HALVES(0, w->kind), w->first);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	__u32 epoch = *(volatile __u32 *)&lock_epoch;
	struct cpu_slot *s = slot();

	if (!s || between_windows(epoch))
		return 0;
	if (!(flags & LCB_F_SPIN) || (flags & LCB_F_MUTEX)) {
		begin_sleeping(ctx, s, (__u64)lock, flags, epoch);
		return 0;
	}
	if (s->base != AT_TARGET && !cfg_lock_all)
		return 0;
	if (only_counted(s, (__u64)lock, flags))
		return 0;
	__u64 now = bpf_ktime_get_ns();
	charge(s, now);
	if (s->lock_epoch != epoch)
		return 0;
	put_spin(s);
	__u32 level = s->depth <= IRQ_NEST ? s->depth : 0;
	struct spin_wait *w = &s->spin[MASK(level, 3)];
	/* An interrupt that comes while a program runs cannot run that program: its end was missed. */
	if (s->spinning[MASK(level, 3)])
		s->drop_nest++;
	w->lock = (__u64)lock;
	w->begin = now;
	w->kind = flags;
	w->timed = s->time_mask + 1;
	w->first = first_of_spinlock((__u64)lock, flags);
	s->spinning[MASK(level, 3)] = 1;
	count_waits(s, now);
	w->stack = walk_lock(ctx, s, flags, now);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int ret)
{
	struct cpu_slot *s = slot();

	if (!s || between_windows(*(volatile __u32 *)&lock_epoch))
		return 0;
	__u32 level = s->depth <= IRQ_NEST ? s->depth : 0;
	/*
	 * The lock is held now, and all its waiters wait for this CPU: settle later, and read the clock as seldom as
	 * possible.
	 */
	if (s->spinning[MASK(level, 3)] && !s->ended && s->spin[MASK(level, 3)].lock == (__u64)lock)
		s->ended = bpf_ktime_get_ns();
	else if (s->waits)
		end_sleeping(s, (__u64)lock);
	return 0;
}

#endif
