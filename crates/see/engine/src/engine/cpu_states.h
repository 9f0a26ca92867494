/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where every CPU is: the state it is in, and the time charged to each.
 */
#ifndef NCPU_CPU_STATES_H
#define NCPU_CPU_STATES_H

#include "settings.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_slot);
} cpu_slots SEC(".maps");

/* Not static, so that the verifier looks at it once a program and not once a path. */
#define APART __attribute__((noinline))

static __always_inline struct cpu_slot *slot(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpu_slots, &cpu);
}

/* The state of a CPU is its innermost interrupt, or its task; waiting on CPU there is spinning. */
static __always_inline __u32 at(const struct cpu_slot *s)
{
	__u32 depth = s->depth;

	if (depth == 0 || depth > IRQ_NEST)
		return (s->waits || s->spinning[0]) && s->base == AT_TARGET ? AT_SPIN : s->base;
	if (s->spinning[MASK(depth, 3)])
		return AT_SPIN;
	return s->irq[MASK(depth - 1, 3)];
}

/* Only what lies in the observed time counts, so that on every CPU the states sum to just that. */
static __always_inline void add(struct cpu_slot *s, __u64 now)
{
	__u64 from = s->last, to = now;

	if (from < observe_from)
		from = observe_from;
	if (to > observe_until)
		to = observe_until;
	if (s->last && to > from)
		s->at[MASK(at(s), 7)] += to - from;
	if (now > s->last)
		s->last = now;
}

/* Moves time from one state to another after it was charged, at most what there is. */
static __always_inline void move(struct cpu_slot *s, __u32 from, __u32 to, __u64 ns)
{
	__u64 *have = &s->at[MASK(from, 7)];

	if (ns > *have)
		ns = *have;
	*have -= ns;
	s->at[MASK(to, 7)] += ns;
}

/* Programs that run often read the clock once more at one of OWN_MASK + 1 runs, to measure their own time. */
#define OWN_MASK 63

#define CLOCK_AGE 2000000 /* ns for which two clocks keep their distance: they differ by 500 ns a millisecond at most */
#define CLOCK_DRIFT 11	/* a power of two: one part in 2048 */
#define CLOCK_TRIES 8	/* before the distance is relied on */

/* The last time that both clocks were read: of all CPUs, so that they agree. */
struct {
	__u64 ahead;	/* ns, CLOCK_MONOTONIC less the scheduler's clock */
	__u64 read;	/* ns of the scheduler's clock */
	__u64 reads;
} distance __attribute__((aligned(128))) = {};

/*
 * The time at a switch or a wake-up. Reading the clock takes half of the time there, with the lock of the run
 * queue held, and the scheduler has just read its own for that queue. The distance of the two clocks is the
 * least of those seen: the scheduler may have read its own some time ago. `p` stands on the queue, or has just run there.
 */
static __always_inline __u64 scheduler_time(struct cpu_slot *s, struct task_struct *p)
{
	if (!cfg_rq_clock || !bpf_core_field_exists(p->se.cfs_rq) || !bpf_core_field_exists(struct cfs_rq, rq))
		return bpf_ktime_get_ns();
	__u64 clock = p->se.cfs_rq->rq->clock;
	__s64 age = clock - distance.read;

	if (age < CLOCK_AGE && distance.reads >= CLOCK_TRIES) {
		__u64 now = clock + distance.ahead;
		/* An event of this CPU that has looked at the clock itself may lie in between. */
		return now > s->last ? now : s->last;
	}
	__u64 now = bpf_ktime_get_ns(), ahead = now - clock;
	__u64 drifted = distance.ahead + (age > 0 ? age >> CLOCK_DRIFT : 0);

	distance.ahead = !distance.reads || (__s64)(ahead - drifted) < 0 ? ahead : drifted;
	distance.read = clock;
	distance.reads++;
	return now;
}

/*
 * What one of those runs took since `now` stands for all: it is taken out of the state the CPU was left in. So is what the kernel
 * takes to call it, `around`.
 */
APART int own(struct cpu_slot *s, __u64 now, __u64 around)
{
	__u64 end = bpf_ktime_get_ns(), ns = end > now ? end - now : 0;

	if (!s)
		return 0;
	s->own_ns += ns;
	s->own_runs++;
	ns += around;
	if (now >= observe_from && end < observe_until)
		move(s, at(s), AT_NCPU, ns * (OWN_MASK + 1));
	return 0;
}

/* Whether contentions are not counted at the moment. */
static __always_inline bool between_windows(__u32 epoch)
{
	return epoch & 1;
}

/*
 * A window has closed, or another has opened, since this CPU's last event: the ends of waits in progress are not seen. Up to
 * there the CPU waited, and samples show what it did afterwards.
 */
static __always_inline void leave_window(struct cpu_slot *s, __u32 epoch)
{
	__u64 closed = lock_closed;

	if (s->spinning[0] || s->spinning[1] || s->spinning[2] || s->spinning[3] || s->waits)
		add(s, closed);
	__builtin_memset(s->spinning, 0, sizeof(s->spinning));
	s->waits = 0;
	s->lock_epoch = epoch;
}

/*
 * A spinlock's wait is over: its time goes where it belongs, and it waits for the lock table. It stands for those that
 * were only counted.
 */
static __always_inline void end_spin(struct cpu_slot *s)
{
	__u64 end = s->ended;
	__u32 level = s->depth <= IRQ_NEST ? s->depth : 0;
	struct spin_wait *w = &s->spin[MASK(level, 3)];

	s->ended = 0;
	s->done_spin = end > w->begin ? end - w->begin : 0;
	s->done_tgid = bpf_get_current_pid_tgid() >> 32;
	s->done = *w;
	add(s, end);
	s->spinning[MASK(level, 3)] = 0;
	if (w->timed > 1 && end >= observe_from && end < observe_until)
		move(s, at(s), AT_SPIN, s->done_spin * (w->timed - 1));
}

/*
 * Charges the time up to now to where the CPU is. Called before every change of that, so that a
 * spinlock's wait that has ended is settled here, outside of the lock's critical section: what its end
 * costs, all waiters pay.
 */
APART int charge(struct cpu_slot *s, __u64 now)
{
	if (!s)
		return 0;
	__u32 epoch = *(volatile __u32 *)&lock_epoch;

	if (s->ended)
		end_spin(s);
	if (s->lock_epoch != epoch)
		leave_window(s, epoch);
	add(s, now);
	return 0;
}

/* Where stacks are put together: one a level of nesting a program may be entered at, and one for user locks. */
#define SCRATCHES 3
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct stack_event);
} scratch SEC(".maps");

static __always_inline struct stack_event *scratch_of(__u32 which)
{
	__u32 key = bpf_get_smp_processor_id() * SCRATCHES + which;

	return bpf_map_lookup_elem(&scratch, &key);
}

/* Identity of the stack of `n` frames; never 0. */
APART __u64 stack_id(struct stack_event *e, int n)
{
	return e ? hash_frames(e, n) : 1;
}

/* 0 in one of mask + 1 throws. By the clock instead, threads that keep step would be chosen together, or not at all. */
static __always_inline __u64 throw_dice(struct cpu_slot *s, __u32 mask)
{
	s->dice = s->dice * 6364136223846793005ull + 1442695040888963407ull;
	return s->dice >> 40 & mask;
}

#define WALK_WINDOW 10000000	/* ns */
#define LONG_WALK_WINDOW 100000000 /* for what is seldom, so that a single event does not look like a hundred a second */
#define WALKS_AT_ONCE 4		/* in a window, before fewer are walked, where `cfg_walks` allows no more in it */
#define WALK_MASK 0xffff

/*
 * Whether to walk this event's stack, and for how many events that stack then stands. A walk costs ten times the rest,
 * so user space sets how many are walked, by the rate of the last window. Fewer are walked at once where a program
 * begins to do much more.
 */
static __always_inline __u32 walk_now(struct walks *w, __u64 now, __u64 window)
{
	__u64 dt = now - w->since;

	w->events++;
	if (dt > window) {
		__u64 n = w->events * 1000000000ull / dt / cfg_walks;

		n |= n >> 1;
		n |= n >> 2;
		n |= n >> 4;
		n |= n >> 8;
		w->mask = n & WALK_MASK;
		w->since = now;
		w->events = 0;
		w->done = 0;
	}
	__u32 mask = w->mask;
	if (!chosen(now, mask))
		return 0;
	__u64 at_once = cfg_walks * window / 1000000000ull;
	if (++w->done > (at_once > WALKS_AT_ONCE ? at_once : WALKS_AT_ONCE)) {
		w->done = 0;
		w->mask = (mask * 2 + 1) & WALK_MASK;
	}
	return mask + 1;
}

/*
 * ncpu itself raised the interrupt that is served: nothing was charged since it began, so all of it is ncpu's. A tick that
 * is due in the same moment is served with it, and counted as ncpu's as well.
 */
static __always_inline void own_interrupt(struct cpu_slot *s)
{
	__u32 level = s->depth - 1;

	if (level >= IRQ_NEST || s->irq[MASK(level, 3)] != AT_HARDIRQ)
		return;
	s->irq[MASK(level, 3)] = AT_NCPU;
	s->at_entry[MASK(level, 3)] = s->at[AT_NCPU];
}

/* Has user space woken, by an interrupt of this CPU that is ncpu's. */
static __always_inline __u64 wake_user_space(void)
{
	struct cpu_slot *s = slot();

	if (s)
		s->own_work = 1;
	return BPF_RB_FORCE_WAKEUP;
}

/* Sends a stack to user space, or counts that there was no room. */
static __always_inline void emit_stack(struct stack_event *e, __u64 flags)
{
	if (send_stack(&ring, e, flags))
		return;
	struct cpu_slot *s = slot();
	if (s)
		s->drop_ring++;
}

/* Whether an event of perf has met user code. */
static __always_inline bool met_user_code(void *ctx)
{
	/* `struct pt_regs` as user space has it. */
#if defined(__TARGET_ARCH_arm64)
	return (((__u64 *)ctx)[33] & 15) == 0; /* pstate */
#else
	return (((__u64 *)ctx)[17] & 3) == 3; /* cs */
#endif
}

#endif
