/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Threads that come on CPU and leave it, wake up, begin and end.
 */
#ifndef NCPU_SWITCHES_H
#define NCPU_SWITCHES_H

#include "settings.h"
#include "cpu_states.h"
#include "in_flight.h"
#include "threads.h"
#include "first_waits.h"
#include "kernel_locks.h"
#include "stack_copies.h"
#include "v8.h"
#include "requests.h"
#include "call_locks.h"
#include "futexes.h"
#include "queues.h"
#include "critical_path.h"
#include "passed_over.h"
#include "places.h"
#include "lengths.h"
#include "thread_time.h"
#include "served.h"

/* Kernel then user frames, packed. */
static __always_inline void walk(void *ctx, struct stack_event *e, bool kernel, bool user)
{
	__s32 k = 0, u = 0;

	if (kernel)
		k = bpf_get_stack(ctx, e->frames, 8 * (STACK_MAX - 1), 0);
	if (k < 0)
		k = 0;
	if (user)
		u = bpf_get_stack(ctx, (void *)e->frames + (k & 0x1f8), 8 * (STACK_MAX - 1), BPF_F_USER_STACK);
	e->kernel_bytes = k;
	e->user_bytes = u < 0 ? 0 : u;
}

#define ASK_WINDOW 1000000000 /* ns, in which the futexes handed over on a CPU are limited: a program may have any number */
#define WAKE_EVERY 2000000 /* ns; user space is woken no more often on a CPU for futexes to be judged */

static __always_inline bool may_ask(struct cpu_slot *s, __u64 now)
{
	if (now - s->asked > ASK_WINDOW) {
		s->asked = now;
		s->asks = 0;
	}
	return s->asks < cfg_asks;
}

/*
 * Whether to judge a futex again that has been judged for all places: its memory may have been freed, and hold
 * something else now. A verdict from the operation or from PostgreSQL needs no stack.
 */
static __always_inline bool ask_again(struct cpu_slot *s, struct task_struct *p, struct task_rec *r, __u64 now)
{
	if (r->ask || r->event || r->futex <= SYSCALLS || r->key != futex_key(p, r->futex) ||
	    now - s->asked_again < cfg_ask_again)
		return false;
	s->asked_again = now;
	return true;
}

/*
 * Whether `in_iowait` says nothing of this thread. io_uring sets it for whatever a ring waits for, a message of a peer too;
 * and its own threads stand in for one that waits itself, or does not.
 */
static __always_inline bool says_nothing(struct task_rec *r, struct task_struct *p, __u32 state)
{
	return cfg_io && ((p->flags & PF_IO_WORKER) ||
			  (r->call == NR_io_uring_enter && (state & TASK_INTERRUPTIBLE)));
}

/* In the first calls a thread waits for what it has asked for; in the others, where it has asked for requests. */
static __always_inline bool may_wait_for_requests(struct task_rec *r)
{
	if (r->call < 0)
		return false;
	if (waits_in_ring(r->call))
		return true;
	switch (r->call) {
	case NR_epoll_wait:
	case NR_epoll_pwait:
	case NR_epoll_pwait2:
	case NR_poll:
	case NR_ppoll:
	case NR_select:
	case NR_pselect6:
		return r->asks_ahead;
	}
	return false;
}

/* A thread of the program falls asleep, as far as the scheduler knows for no device. */
static __always_inline void sleep_for_requests(struct task_rec *r, struct task_struct *p)
{
	if (!io_used || r->wait != WAIT_SLEEP || (p->flags & PF_IO_WORKER) || !may_wait_for_requests(r))
		return;
	int process = io_process(p->tgid);
	/* A ring is for devices where the thread has asked them for something, or io_uring's own threads have in its stead. */
	if (process < 0 || (r->call == NR_io_uring_enter && !r->asks_ahead && !io_by_workers[MASK(process, 63)]))
		return;
	count_asleep(process, 1);
	r->io_process = process + 1;
}

#define TRIED_AGAIN 10000 /* ns */

/*
 * A thread falls asleep in a futex that is a lock. A thread that was woken and did not get the lock has waited before. Some
 * locks keep queues of their own, in which each thread sleeps in a futex of its own: it is alone there, and whether it is
 * first is not known. So a wait counts only where another thread slept in the same futex before.
 */
static __always_inline void sleep_in_lock(struct task_rec *r, struct task_struct *p, __u64 woken_in, __u64 now)
{
	bool first, alone;

	r->asleep_in = join_queue(p, r->futex, &first, &alone);
	r->first = first && !alone && !(woken_in == r->futex && now - r->since < TRIED_AGAIN);
}

/* Whether it sleeps as the first in a lock's queue. */
static __always_inline bool sleeps_first(struct task_rec *r)
{
	struct lock_wait *w = &r->locks[MASK(r->nlocks - 1, 3)];

	if (r->nlocks)
		return w->first && !w->woken;
	return r->asleep_in ? r->first : in_user(r) && r->user.first && !r->user.woken;
}

/* Who wakes another thread now; 0: a timer or signal, which wake from interrupt context, where nobody held it up. */
static __always_inline __u32 waker(struct cpu_slot *s)
{
	return s->depth ? 0 : (__u32)bpf_get_current_pid_tgid();
}

/* It was woken. */
static __always_inline void woken(struct cpu_slot *s, struct task_rec *r, struct task_struct *p, __u64 now)
{
	if (r->nlocks && !r->locks[MASK(r->nlocks - 1, 3)].woken)
		r->locks[MASK(r->nlocks - 1, 3)].woken = now;
	if (in_user(r) && !r->user.woken)
		r->user.woken = now;
	if (!r->asleep_in)
		return;
	leave_queue(r->asleep_in);
	r->asleep_in = 0;
	r->woken_in = r->futex;
	if (r->first && now > r->since && waker(s))
		add_first(r->futex, now - r->since, HALVES(p->tgid, KIND_FUTEX), FIRST);
}

static __always_inline void off_cpu(void *ctx, struct cpu_slot *s, struct task_struct *p, struct task_rec *r,
				    bool runnable, __u32 state, __u64 now)
{
	__u32 wait = WAIT_SLEEP, next = SLP;
	struct task_struct *task = p; /* a macro has a `p` of its own */

	r->on_cpu = 0;
	if (runnable) {
		leave_cut_wait(s, r, now, p->tgid);
		r->icx++;
		micro(r, LAT, now);
		r->queue = bpf_get_smp_processor_id();
		r->runnable = WAIT_RUNQ;
		r->throttled = (cfg_tenants || r->target) && is_throttled(p);
		begin_wait(s, r, WAIT_RUNQ);
		return;
	}
	__u32 mask = wakes_off ? pass_mask : 0, place = 0;
	if (pass_mask) {
		__u64 call;
		place = sleep_place(p, &call);
		r->stands = may_pass_over(s, r, state, place, call, now);
		if (!r->stands)
			return;
	} else {
		r->stands = 1;
	}
	__u64 woken_in = r->woken_in; /* in the sleep before this one */
	r->woken_in = 0;
	r->woken_by = 0;
	r->waker.to = 0;
	r->waker.ours = 0;
	r->held_asleep = 0;
	r->vcx++;
	r->futex = 0;
	r->off_stack = 0;
	r->asked = 0;
	bool untraced = (!r->nlocks || was_cut(r)) && sleeps_untraced(ctx, p, state);
	/* One that still waits goes on to do so; it ends when the thread comes on CPU. */
	if (!untraced)
		leave_cut_wait(s, r, now, p->tgid);
	if (r->nlocks || untraced) {
		wait = WAIT_KLOCK;
		next = LCK;
		r->call = -1;
		if (r->nlocks && !untraced)
			s->lock_sleeps++;
	} else if (r->on_state == TRP || (calls_off && !in_call(p))) {
		wait = WAIT_IO;
		next = r->instr ? TFL : DFL;
		r->call = -1;
	} else {
		classify_futex(r);
		__u32 class = !r->futex ? FUTEX_UNKNOWN : in_user(r) ? FUTEX_LOCK : r->futex_word >> 16;
		if (is_lock(class)) {
			wait = WAIT_ULOCK;
			next = LCK;
			/* Calls that stand for futexes, locks of files, and the semaphores of PostgreSQL's backends, serve many locks. */
			if (r->target && !in_user(r) && !r->event && r->futex > SYSCALLS && r->futex < KERNEL_HALF && !mask)
				sleep_in_lock(r, p, woken_in, now);
		} else if (BPF_CORE_READ_BITFIELD(task, in_iowait) && !says_nothing(r, p, state)) {
			wait = WAIT_IO;
		} else if (cfg_sleeps && r->target && may_time_out(r->call)) {
			r->asked = asked_ns(r->call);
		}
	}
	micro(r, next, now);
	begin_wait(s, r, wait);
	if (place && state & TASK_INTERRUPTIBLE)
		learn_place(r, place, wait, next);
	if (r->futex || r->sets_aside || sleeps_first(r))
		blamed_sleepers[MASK(p->pid, 4095)] = 1;
	if (r->target)
		sleeps_for(r, wait, state);
	if (!r->target || !observing)
		return;
	sleep_for_requests(r, p);
	if (r->io_process)
		r->life = LIFE_DEVICE;

	/* The futex of a lock with tracepoints of its own need not be judged. */
	bool again = r->futex && !in_user(r) && ask_again(s, p, r, now);
	bool fresh = again || (r->futex && r->ask && !in_user(r) && may_ask(s, now) && first_sight(r->key));
	/*
	 * A long sleep may be the only one: it is not to be passed over because many short ones came before, nor to stand for
	 * those. So sleeps are chosen among their like. A thread's first sleep after a while is either rare or long.
	 */
	bool seldom = now - r->slept >= LONG_SLEEP;
	struct walks *walks = seldom ? &s->seldom_walks : r->asked >= LONG_SLEEP ? &s->long_walks : &s->off_walks;
	r->slept = now;
	__u32 walked = cfg_stacks ? walk_now(walks, now, seldom ? LONG_WALK_WINDOW : WALK_WINDOW) : 0;
	if (!fresh && !walked)
		return;
	struct copied_stack *c = copy_room();
	if (!c)
		return;
	struct stack_event *e = &c->e;
	__u64 copied = 0;
	head(&e->head, EV_FUTEX, p, now);
	/* Its stack of C is the same wherever in a script it waits. */
	__u64 script = script_frames();
	if (fresh) {
		/* User space judges by the waiter's stack what kind of futex this is. */
		copied = (__u32)copy_stack();
		walk(ctx, e, false, true);
		e->detail.futex.address = r->futex;
		e->detail.futex.again = again;
		e->detail.futex.number = r->futex >= KERNEL_HALF ? (__s32)r->fd : -1;
		/* It waits, and until then for what is not known. */
		bool wake = now - s->woke > WAKE_EVERY;
		s->asks++;
		if (wake)
			s->woke = now;
		emit_copied(c, 0, copied, wake ? wake_user_space() : BPF_RB_NO_WAKEUP);
	}
	if (walked) {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);

		walk(ctx, e, true, true);
		r->off_stack = stack_id(e, (e->kernel_bytes + e->user_bytes) / 8);
		e->detail.off.unplaced = 0;
		if (e->user_bytes) {
			/* The depth is the same for threads whose stacks begin on a page. */
			__u64 chain = (r->off_stack ^ (regs->sp & 0xfff) * SPREAD ^ script) | 2;
			__u64 place = place_of(chain, regs->sp);
			e->detail.off.unplaced = !place;
			r->off_stack = place ? place : new_place(chain, now);
		}
		e->head.kind = EV_OFF_CPU;
		e->detail.off.id = r->off_stack;
		r->off_weight = walked * r->stands;
		r->off_wait = wait;
		if (first_sight(r->off_stack)) {
			if (!copied && e->user_bytes)
				copied = (__u32)copy_stack();
			emit_copied(c, 0, copied, BPF_RB_NO_WAKEUP);
		}
	}
}

/* A walked thread is on CPU again: its stack is worth the time it was off. */
static __always_inline void off_done(struct cpu_slot *s, __u32 tgid, struct task_rec *r, __u64 ns)
{
	if (!r->off_stack)
		return;
	add_lock(lock_slot(s, 1, r->off_stack, tgid, KIND_OFF | r->off_wait), r->off_weight, ns * r->off_weight, 1);
	r->off_stack = 0;
}

/* A sleep of `ns` of a thread of `tgid` is over. Not static, so that the verifier looks at it once. */
APART int sleep_over(struct cpu_slot *s, struct task_rec *r, __u64 ns, __u32 tgid)
{
	if (!s || !r)
		return 0;
	if (r->futex && (r->target || cfg_lock_all))
		r->slept_ns = ns;
	else if (r->wait == WAIT_SLEEP && r->call >= 0)
		add_sleep(r->call, ns * r->stands);
	/* A futex with a timeout is a sleep as well, unless it is a lock. */
	if (r->wait == WAIT_SLEEP && r->call >= 0)
		slept(s, tgid, r, ns);
	off_done(s, tgid, r, ns);
	if (r->state == SLP && r->target && r->futex && !in_user(r) && r->futex_word >> 16 == FUTEX_UNKNOWN)
		keep_unjudged(r, ns);
	return 0;
}

#define JUST_NOW 20000 /* ns */

/* When a thread was put on a queue whose wake-up was not seen, between its falling asleep and now. */
static __always_inline __u64 queued_since(struct task_struct *p, struct task_rec *r, __u64 now)
{
	__u64 queued = queued_at(p);

	if (!queued)
		return now;
	return queued < r->since ? r->since : queued > now ? now : queued;
}

/* A thread of ncpu comes on CPU: what called the CPU to run it is ncpu's, and where wake-ups are not traced, the timer that woke it. */
APART int called_for_us(struct cpu_slot *s, __u64 queued, __u64 now)
{
	if (!s)
		return 0;
	bool timer = s->last_kind == IRQ_TIMER;
	struct irq_row *row = &s->irqs[timer ? IRQ_TIMER : IRQ_RESCHEDULE];
	__u64 ns = s->last_irq_ns;

	if ((!timer && s->last_kind != IRQ_RESCHEDULE) || now - s->last_irq > JUST_NOW || !row->count || ns > row->ns)
		return 0;
	if (timer && (!queued || queued + ns < s->last_irq || queued > s->last_irq))
		return 0;
	row->count--;
	row->own++;
	row->ns -= ns;
	row->own_ns += ns;
	s->last_kind = IRQ_REST;
	if (s->last_irq - ns >= observe_from && s->last_irq < observe_until)
		move(s, AT_HARDIRQ, AT_NCPU, ns);
	return 0;
}

/* How long the CPU whose queue the current thread has come from idled from `since` to `now` while it woke up for this
 * thread. */
static __always_inline __u64 idled_on(struct cpu_slot *s, struct task_rec *r, __u64 since, __u64 now)
{
	__u32 cpu = r->queue;
	struct cpu_slot *q = cpu == bpf_get_smp_processor_id() ? s : bpf_map_lookup_elem(&cpu_slots, &cpu);

	if (!q)
		return 0;
	__u64 from = q->idle_from > since ? q->idle_from : since;
	__u64 to = q->base == AT_IDLE || q->idle_to > now ? now : q->idle_to;

	return to > from ? to - from : 0;
}

/*
 * A thread of the program, or any whose locks are counted, was runnable and comes on CPU. `who`: the process in the upper half, the
 * thread in the lower.
 */
APART int was_runnable(struct cpu_slot *s, struct task_rec *r, __u64 who, __u64 now)
{
	if (!s || !r)
		return 0;
	__u64 since = r->since;

	if (since < observe_from)
		since = observe_from;
	__u64 ns = now > since && now <= observe_until ? now - since : 0;
	__u64 waking = ns ? idled_on(s, r, since, now) : 0;
	/* The verdict on a futex may have come while it was waited for. */
	bool late = r->runnable == WAIT_SLEEP && r->futex && is_lock(r->futex_word >> 16);
	__u32 reason = late ? WAIT_ULOCK : r->runnable;
	struct runnable *runnable = &s->runnable[MASK(reason, 7)];

	if (r->target && observing) {
		runnable->count++;
		runnable->queued += ns - waking;
		runnable->waking += waking;
		runnable->wakings += waking != 0;
		add_some_lengths(s, LENGTH_QUEUED, ns);
		if (waking)
			add_some_lengths(s, LENGTH_WAKING, waking);
	}
	if (r->futex && r->runnable >= WAIT_ULOCK)
		futex_done(s, who, r, ns - waking, waking);
	return 0;
}

/* A thread comes on CPU. */
static __always_inline void arrive(struct cpu_slot *s, struct task_struct *next, __u64 now)
{
	bool idled = s->base == AT_IDLE;

	s->task = (__u64)next;
	s->kernel_thread = (next->flags & PF_KTHREAD) != 0;
	s->waits = 0;
	s->spinning[0] = 0;
	if (next->flags & PF_IDLE) {
		if (!idled)
			s->idle_from = now;
		s->base = AT_IDLE;
		if (cfg_tenants && s->tenant)
			change_tenant(s, TENANT_IDLE);
		return;
	}
	if (idled)
		s->idle_to = now;
	struct task_rec *r = get(next, now);
	if (!r) {
		s->base = is_of_program(*(volatile __u64 *)&s->task) ? AT_TARGET : AT_OTHER;
		return;
	}
	s->base = r->target ? AT_TARGET : is_ncpu(next) ? AT_NCPU : AT_OTHER;
	if (cfg_tenants)
		tenant_comes(s, r, next);
	if (s->thin && comes_back(s, r, queued_at(next), now))
		return;
	if (s->base == AT_NCPU)
		called_for_us(s, wakes_off ? queued_at(next) : 0, now);
	if (!followed(r)) {
		r->on_cpu = 1;
		return;
	}
	if (r->on_cpu)
		r->state = SLP; /* its leaving was not traced */
	if (r->asleep_in) {
		leave_queue(r->asleep_in); /* nor its waking */
		r->asleep_in = 0;
	}
	if (r->state >= TFL && r->state != LAT && r->wait) {
		/* Woken without sched_wakeup seen. */
		__u64 woken = queued_since(next, r, now);
		if (r->stands)
			sleep_over(s, r, woken > r->since ? woken - r->since : 0, next->tgid);
		if (!r->woken_by)
			r->woken_by = WAKER_UNSEEN;
		micro(r, LAT, woken);
		r->queue = bpf_get_smp_processor_id();
		r->runnable = r->wait;
	}
	if (r->target) {
		r->came_from = r->state == LAT ? r->since : now;
		if (r->runnable != WAIT_RUNQ)
			r->slept_until = r->came_from;
	}
	bool held = r->state == LAT && r->throttled;
	r->holds += held;
	if (r->state == LAT && !held && cfg_queues && r->target && observing && to_be_divided(r->since, now))
		stood(r->queue, r->since, now, r->tenant);
	if (r->state == LAT && (r->target || cfg_lock_all))
		was_runnable(s, r, HALVES(next->pid, next->tgid), now);
	__u64 slept = r->target ? woke(r, next) : 0;
	if (cfg_requests && r->serves && slept)
		request_slept(next, r, slept);
	if (cfg_requests && r->serves && r->state == LAT)
		request_queued(next, r->queue, r->since, now, held);
	if (calls_off)
		r->on_state = USR;
	micro(r, r->on_state, now);
	r->throttled = 0;
	r->came_held = held;
	leave_cut_wait(s, r, now, next->tgid);
	end_wait(s, r);
	r->on_cpu = 1;
	r->came = now;
	s->waits = r->nlocks;
}

/*
 * The thread on CPU is not the one that was seen to come: kernels leave switches out of their traces
 * (a hypervisor's or sandbox's own threads). It has run, as far as anyone can tell, since the last event.
 * Not static, so that the verifier looks at it once and not once a program.
 */
APART int found(void)
{
	struct cpu_slot *s = slot();

	if (!s)
		return 0;
	__u64 at = s->last;
	charge(s, at);
	put_spin(s);
	s->unseen++;
	s->thin = 0;
	s->length_stands = 1;
	arrive(s, bpf_get_current_task_btf(), at);
	return 0;
}

static __always_inline void look_who_runs(struct cpu_slot *s)
{
	if (s->task && s->task != (__u64)bpf_get_current_task_btf())
		found();
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct cpu_slot *s = slot();

	if (!s)
		return 0;
	s->timed_from = ++s->switches & OWN_MASK ? 0 : bpf_ktime_get_ns();
	__u64 now = scheduler_time(s, prev);
	if (s->task && s->task != (__u64)prev)
		found();
	settle_here(s, now);
	s->depth = 0;
	s->thin = pass_mask && wakes_off && !cfg_requests && !cfg_micro;
	s->length_stands = s->thin ? length_stands(s) : 1;

	if (!(prev->flags & PF_IDLE)) {
		struct task_rec *r = get(prev, now);
		if (!r && !preempt && (prev_state & TASK_DEAD)) {
			s->drop_task++; /* it ends without ever having had one */
		} else if (r) {
			r->on_cpu = 0;
			if (r->target && observing && r->came >= observe_from && now > r->came)
				add_some_lengths(s, LENGTH_SLICE, now - r->came);
			if (cfg_micro)
				not_back_yet(r, prev);
			if (!preempt && (prev_state & TASK_DEAD)) {
				micro(r, SLP, now);
				leave_queue(r->user.queue);
				r->user.queue = 0;
				if (r->target || cfg_all) {
					struct exit_event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
					if (e) {
						head(&e->head, EV_EXIT, prev, now);
						thread_out(&e->thread, r, prev);
						bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
						r->told = 1;
					} else {
						s->drop_ring++;
					}
				}
			} else if (followed(r)) {
				off_cpu(ctx, s, prev, r, preempt || prev_state == TASK_RUNNING, prev_state, now);
			}
		}
	}

	arrive(s, next, now);
	if (cfg_queues)
		begin_span(s, next, now);
	if (s->timed_from)
		own(s, s->timed_from, switch_ns);
	return 0;
}

/*
 * A thread is woken, by the current one where `ctx` is of sched_waking: whatever idled until then waited for that. Where all
 * of the machine is observed, threads of the kernel are part of it. But what they do by themselves, programs do not wait for.
 */
static __always_inline void ends_idling(void *ctx, struct cpu_slot *s, struct task_struct *p, struct task_rec *r)
{
	if (!pending.any || !r->target || !observing || p->flags & PF_KTHREAD)
		return;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	take_idle(s, r, first_word(ctx), (__u64)p->tgid << 32 | p->pid, ARG0(regs));
}

/* The current thread wakes it. */
static __always_inline void woken_here(struct cpu_slot *s, struct task_rec *r, struct task_struct *p)
{
	r->woken_by = waker(s);
	r->waker.ours = r->woken_by && p->tgid == (__u32)(bpf_get_current_pid_tgid() >> 32);
	if (r->woken_by)
		woken_by_a_thread(r, look(bpf_get_current_task_btf()));
	if (r->woken_by && r->futex && r->futex_word >> 16 == FUTEX_SEM)
		judge_semaphore(r, look(bpf_get_current_task_btf()));
}

static __always_inline int wakeup(void *ctx, struct task_struct *p)
{
	struct cpu_slot *s = slot();
	struct task_rec *r = s ? look(p) : NULL;

	/* A timer of ncpu's, or a call to this CPU, which wakes it. */
	if (s && is_ncpu(p))
		own_interrupt(s);
	if (!r || !followed(r) || r->on_cpu || r->state == LAT)
		return 0;
	s->timed_from = ++s->wakeups & OWN_MASK ? 0 : bpf_ktime_get_ns();
	__u64 now = scheduler_time(s, p);
	__u64 ns = now > r->since ? now - r->since : 0;
	ends_idling(ctx, s, p, r);
	woken(s, r, p, now);
	if ((r->futex || r->sets_aside) && (r->target || cfg_lock_all) && !r->woken_by)
		woken_here(s, r, p);
	if (r->stands)
		sleep_over(s, r, ns, p->tgid);
	micro(r, LAT, now);
	r->queue = task_cpu(p);
	__u8 from = r->wait ?: WAIT_SLEEP;
	r->runnable = from;
	begin_wait(s, r, from == WAIT_ULOCK ? WAIT_FROM_LOCK : from == WAIT_SLEEP ? WAIT_FROM_SLEEP : WAIT_RUNQ);
	if (s->timed_from)
		own(s, s->timed_from, wake_ns);
	return 0;
}

/* Where the waker is: the wake-up itself may be done by the CPU that the thread is to run on, when that has woken. */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	__u8 *sleeps = &blamed_sleepers[MASK(p->pid, 4095)];

	if (!*sleeps && !pending.any)
		return 0;
	struct cpu_slot *s = slot();
	struct task_rec *r = s ? look(p) : NULL;
	if (!r || r->on_cpu || r->state == LAT)
		return 0;
	ends_idling(ctx, s, p, r);
	if (!*sleeps)
		return 0;
	*sleeps = 0;
	woken_here(s, r, p);
	if (sleeps_first(r))
		woken(s, r, p, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *p)
{
	return wakeup(ctx, p);
}

/* A thread that has never run waits for nothing but a CPU. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	__u64 now = bpf_ktime_get_ns();
	struct cpu_slot *s = slot();
	struct task_rec *r = s ? look(p) : NULL;

	if (!r || !followed(r) || r->on_cpu || r->state == LAT)
		return 0;
	micro(r, LAT, now);
	r->queue = task_cpu(p);
	r->runnable = WAIT_NONE;
	begin_wait(s, r, WAIT_RUNQ);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_rec *up = look(parent), *r = get(child, now);

	if (r) {
		r->on_state = SYS;
		r->state = SLP;
		if (up)
			r->tenant = up->tenant;
		if (up && up->known && !cfg_cgroup && child->tgid != cfg_tgid)
			r->target = up->target;
	}
	return 0;
}

#endif
