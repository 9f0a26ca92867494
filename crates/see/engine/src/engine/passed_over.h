/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sleeps that are only timed.
 *
 * Where following all switches would take too much, wake-ups are traced in short windows. Between these, of the sleeps of a thread that
 * sleeps often one in several is followed, by chance, and stands for the others, which are passed over: their time is charged to what the
 * thread slept for at this place when it was followed last. That is done at each switch of a program that does little else, so what the
 * CPU has to do for it is kept short.
 */
#ifndef NCPU_PASSED_OVER_H
#define NCPU_PASSED_OVER_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"
#include "queues.h"
#include "lengths.h"
#include "thread_time.h"

#define LONG_SLEEP 10000000 /* ns */

/*
 * Whether a thread sleeps often, and now for what is known to the scheduler as nothing but an event: not all such sleeps need be
 * followed. Sleeps for devices and for locks of the kernel are uninterruptible, as a rule.
 */
static __always_inline bool sleeps_often(struct task_rec *r, __u32 state, __u64 now)
{
	/* What a request waits for is always followed. */
	if (cfg_requests && r->serves)
		return false;
	return now - r->slept < LONG_SLEEP && state & TASK_INTERRUPTIBLE && !r->nlocks && !in_user(r) &&
	       r->places[MASK(r->last_place, 3)].place;
}

/*
 * The place of a sleep that begins: its call, what that is for, and how deep the stack is. Threads that take a lock of the same
 * condition in two ways do so at different depths. Never 0. `call` becomes the call's number, or NO_CALL.
 */
static __always_inline __u32 sleep_place(struct task_struct *p, __u64 *call)
{
	/* The registers of a kernel thread are no call's. */
	if (p->flags & PF_KTHREAD) {
		*call = NO_CALL;
		return 1;
	}
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	__u64 nr = call_number(regs), hash = ((regs->sp + nr) * SPREAD ^ ARG0(regs)) * SPREAD;

	*call = nr;
	return hash >> 32 | 1;
}

APART int find_place(struct task_rec *r, __u32 place)
{
	if (!r)
		return -1;
	for (int i = 0; i < SLEEP_PLACES; i++)
		if (r->places[i].place == place)
			return i;
	return -1;
}

/* Which of the thread's places that is; -1: none, or one that was forgotten. */
static __always_inline int known_place(struct task_rec *r, __u32 place)
{
	__u32 last = MASK(r->last_place, 3);

	return r->places[last].place == place ? (int)last : find_place(r, place);
}

/* A sleep that begins there is followed. */
APART int learn_place(struct task_rec *r, __u32 place, __u32 wait, __u32 state)
{
	int i = find_place(r, place);

	if (!r)
		return 0;
	if (i < 0)
		i = r->new_place++;
	i = MASK(i, 3);
	r->places[i].place = place;
	r->places[i].wait = wait;
	r->places[i].state = state;
	r->last_place = i;
	return 0;
}

#define NEW_PLACE 500000 /* ns; on a CPU, a sleep at a place that is not known is followed for certain once in this time */

/*
 * For how many sleeps one that begins now is to stand, by the place it is at; 0: it is passed over. Where a thread sleeps at
 * more places than are remembered, not all are looked into.
 */
static __always_inline __u32 stands_for(struct cpu_slot *s, struct task_rec *r, int known, __u32 mask, __u64 now)
{
	if (known < 0 && now - s->new_place > NEW_PLACE) {
		s->new_place = now;
		return 1;
	}
	return throw_dice(s, mask) ? 0 : mask + 1;
}

/*
 * Such a thread is taken to sleep for what it slept for when it was followed at this place last: a sleep that was chosen by
 * chance. Another place would not do: a lock that is waited for often and for a short time would stand for long sleeps.
 */
static __always_inline void pass_over(struct cpu_slot *s, struct task_rec *r, int known, __u64 call, __u64 now)
{
	struct sleep_place *like = &r->places[MASK(known < 0 ? r->last_place : known, 3)];
	__u32 wait = like->wait;

	r->on_cpu = 0;
	r->vcx++;
	r->futex = 0;
	r->off_stack = 0;
	r->asked = 0;
	r->call = -1;
	r->stands = 0;
	r->slept = now;
	micro(r, MASK(like->state, 7), now);
	passed_over(r, call, known >= 0 && known == r->last_place);
	begin_wait(s, r, MASK(wait, 7));
}

/*
 * A thread falls asleep between windows, in `call`, at `place`. Returns 0 where it is passed over, else for how many sleeps this one
 * is to stand.
 */
static __always_inline __u32 may_pass_over(struct cpu_slot *s, struct task_rec *r, __u32 state, __u32 place, __u64 call, __u64 now)
{
	__u32 mask = pass_mask;

	if (!wakes_off || !sleeps_often(r, state, now))
		return 1;
	int known = known_place(r, place);
	__u32 stands = stands_for(s, r, known, mask, now);
	if (!stands)
		pass_over(s, r, known, call, now);
	return stands;
}

/* When a thread that is about to run was put on a queue, or moved to this one: the scheduler keeps the time. 0: not known. */
static __always_inline __u64 queued_at(struct task_struct *p)
{
	if (!cfg_rq_clock || !bpf_core_field_exists(p->sched_info.last_queued))
		return 0;
	__u64 queued = p->sched_info.last_queued;

	return queued ? queued + distance.ahead : 0;
}

/*
 * Of lengths that every switch counts, between windows one in this many + 1 short ones is counted, by chance, and stands for the others.
 * Long ones are fewer, and may be what is looked for: all of them are counted.
 */
#define FEW_LENGTHS 7
#define SHORT_LENGTH LEAST_QUEUED

/* For how many short lengths one at this switch stands; 0: it is not counted. */
static __always_inline __u32 length_stands(struct cpu_slot *s)
{
	return throw_dice(s, FEW_LENGTHS) ? 0 : FEW_LENGTHS + 1;
}

static __always_inline void add_some_lengths(struct cpu_slot *s, __u32 of, __u64 ns)
{
	__u32 weight = ns > SHORT_LENGTH ? 1 : s->length_stands;

	if (weight)
		add_lengths(of, ns, weight);
}

/*
 * A thread comes on CPU that was passed over when it fell asleep, and whose wake-up was not traced. Most switches between windows end
 * here: it does what `arrive` does, but for the cases that take more. Returns false, and has done nothing, in those.
 */
static __always_inline bool comes_back(struct cpu_slot *s, struct task_rec *r, __u64 queued, __u64 now)
{
	__u64 since = r->since;
	__u32 state = r->state, wait = r->wait;

	/* No comparison is made a number here: for both of its values the verifier would look at all that follows. */
	__u64 more = r->stands | r->on_cpu | r->asleep_in | r->nlocks | r->io_process | r->throttled | r->futex;

	if (more || !r->target || !wait || state == LAT || queued < since || queued > now)
		return false;
	__u64 slept = queued - since, stood = now - queued;
	if (stood > LEAST_QUEUED || since < observe_from || now > observe_until)
		return false;
	__u64 from = s->idle_from > queued ? s->idle_from : queued, to = s->idle_to, waking = to > from ? to - from : 0;

	r->micro[MASK(state, 7)] += slept;
	r->micro[LAT] += stood;
	r->slept_all += slept;
	r->by[MASK(r->life, 15)] += slept;
	r->since = now;
	r->state = r->on_state;
	r->queue = bpf_get_smp_processor_id();
	r->runnable = wait;
	r->wait = WAIT_NONE;
	r->came_held = 0;
	r->on_cpu = 1;
	r->came = now;
	struct runnable *runnable = &s->runnable[MASK(wait, 7)];
	runnable->count++;
	runnable->queued += stood - waking;
	runnable->waking += waking;
	runnable->wakings += waking != 0;
	s->waiting[MASK(wait, 7)]--;
	tenant_waits(bpf_get_smp_processor_id(), r->waits_as, wait, -1);
	if (s->length_stands) { /* both are short */
		add_lengths(LENGTH_QUEUED, stood, s->length_stands);
		if (waking)
			add_lengths(LENGTH_WAKING, waking, s->length_stands);
	}
	return true;
}

#endif
