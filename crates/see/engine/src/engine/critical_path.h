/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The threads that idle CPUs waited for. While threads of the program run, these are the running threads, and timer
 * samples show what they do: each sample is sent with the number of idle CPUs by reason at that moment. While none
 * runs, it is the wait that ends next: the leader leaves its idle time here, and the next wake-up of a thread takes it.
 */
#ifndef NCPU_CRITICAL_PATH_H
#define NCPU_CRITICAL_PATH_H

#include "settings.h"
#include "cpu_states.h"
#include "in_flight.h"
#include "threads.h"
#include "kernel_locks.h"
#include "peers.h"

/* Read at every wake-up, so it is on lines of its own, and written at the leader's looks and when it is taken. */
struct pending {
	__u32 any;
	__u64 idle[IDLE_N];	/* ns of idle CPUs by reason */
	__u64 time[IDLE_N];	/* ns for which there were any */
};
struct pending pending __attribute__((aligned(128))) = {};

/* Idle time while threads of the program ran, or stood on a run queue: ns of CPUs by reason, and for how long. */
__u64 busy_idle[IDLE_N] __attribute__((aligned(128)));
__u64 busy_time[IDLE_N];
__u64 queue_idle[IDLE_N];

/* What the leader saw, for `dt` ns. */
static __always_inline void leave_idle(const struct look *look, bool queued, __u64 dt)
{
	const __u32 *n = look->of, running = look->running;
	bool any = false;

	queue_idle[IDLE_RUNQ] += n[IDLE_RUNQ] * dt;
	for (int i = IDLE_KLOCK; i < IDLE_N; i++) {
		__u64 ns = n[i] * dt;

		if (!ns)
			continue;
		if (i != IDLE_IO && running) {
			busy_idle[i] += ns;
			busy_time[i] += dt;
		} else if (i != IDLE_IO && queued) {
			queue_idle[i] += ns;
		} else {
			__sync_fetch_and_add(&pending.idle[i], ns);
			__sync_fetch_and_add(&pending.time[i], dt);
			any = true;
		}
	}
	if (any)
		pending.any = 1;
}

/*
 * The cause that ends a thread's wait. An idle CPU puts a thread that another CPU has woken on its own queue, so this
 * runs where the waker is. In an interrupt the waker is not known, unless the interrupt is the timer's, or a softirq in
 * which a message arrives; if the sender of that message is not seen, it is the last sender to this socket.
 */
static __always_inline __u32 cause_of(struct cpu_slot *s, struct task_rec *r, __u64 task, __u32 fd, __u32 *waker)
{
	struct task_struct *by = bpf_get_current_task_btf();
	bool softirq = s->depth == 1 && s->irq[0] == AT_SOFTIRQ && s->vector == NET_RX_SOFTIRQ;
	__u64 sock = 0;

	*waker = 0;
	if (softirq && !sent_by_current(task, r->call, fd, &sock)) {
		if (!sock || r->peer_sock != sock)
			return CAUSE_UNKNOWN;
		*waker = r->peer;
		return r->peer_cause;
	}
	if (s->depth && !softirq)
		return s->timer[MASK(s->depth - 1, 3)] ? CAUSE_TIMER : CAUSE_UNKNOWN;
	if (by->flags & PF_IDLE)
		return CAUSE_UNKNOWN;
	if (by->flags & PF_KTHREAD)
		return CAUSE_KERNEL;
	*waker = by->tgid;
	struct task_rec *sender = look(by);
	__u32 cause = sender && sender->target ? CAUSE_PROGRAM : CAUSE_OTHER;
	if (sock) {
		r->peer_sock = sock;
		r->peer = by->tgid;
		r->peer_cause = cause;
	}
	return cause;
}

/* A thread, `who` by its numbers, wakes up: idle time that waited for a thread is charged to its
 * wait. */
APART int take_idle(struct cpu_slot *s, struct task_rec *r, __u64 task, __u64 who, __u32 fd)
{
	if (!s || !r)
		return 0;
	__u32 tgid = who >> 32, tid = who;
	__u32 waker, cause = cause_of(s, r, task, fd, &waker);
	__u64 what = (__u64)cause << 48 | (__u64)(__u16)(r->call + 1) << 32 | waker;
	/* For requests it does not wait in iowait. */
	bool io = r->wait == WAIT_IO || r->io_process;
	__u32 wait = io ? WAIT_IO : r->wait;

	/* Time that is left while this runs is taken by the next. */
	pending.any = !io && pending.idle[IDLE_IO];
	for (int i = IDLE_KLOCK; i < IDLE_N; i++) {
		if ((i == IDLE_IO && !io) || !pending.idle[i])
			continue;
		__u64 idle = __sync_lock_test_and_set(&pending.idle[i], 0);
		__u64 time = __sync_lock_test_and_set(&pending.time[i], 0);
		struct lock_slot *l = lock_slot(s, what, r->off_stack, tgid, KIND_PATH | wait << 8 | i);
		if (!l)
			continue;
		l->count++;
		l->spin += time;
		l->block += idle;
		l->holder = tid;
	}
	return 0;
}

/*
 * One sample in look_mask + 1 takes a look at all CPUs, and stands for the others: on a large machine a look takes longer
 * than the rest of a sample. The number of samples depends on how many threads run, so the leader sets this anew at each
 * of its looks. Where few threads run, and the others wait for these, each sample counts.
 */
const volatile __u32 cfg_looks = 1500; /* a second on the whole machine */
__u32 sample_hz;	/* of each CPU */
__u32 look_mask;

static __always_inline void choose_looks(__u32 running)
{
	__u64 n = (__u64)running * sample_hz / cfg_looks;

	n |= n >> 1;
	n |= n >> 2;
	n |= n >> 4;
	n |= n >> 8;
	look_mask = MASK(n, 0xffff);
}

#define AT_MOST_16(n) ((n) > 0xffff ? 0xffff : (n))

/* Running threads, and CPUs idle in serial phases, for kernel locks, for user locks. */
static __always_inline void tell_look(struct sampled *sample, const struct look *look)
{
	const __u32 *of = look->of;

	sample->running = AT_MOST_16(look->running);
	sample->idle[0] = AT_MOST_16(of[IDLE_SERIAL]);
	sample->idle[1] = AT_MOST_16(of[IDLE_KLOCK]);
	sample->idle[2] = AT_MOST_16(of[IDLE_ULOCK]);
}

#endif
