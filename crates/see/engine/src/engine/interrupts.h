/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Interrupts, softirqs and shootdowns, and CPUs as observing begins and ends.
 */
#ifndef NCPU_INTERRUPTS_H
#define NCPU_INTERRUPTS_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"
#include "kernel_locks.h"
#include "switches.h"

/* enum tlb_flush_reason of include/linux/mm_types.h */
#define TLB_REMOTE_SHOOTDOWN 1
#define TLB_REMOTE_SEND_IPI 4

/* include/linux/interrupt.h */
#define TIMER_SOFTIRQ 1
#define NET_TX_SOFTIRQ 2
#define NET_RX_SOFTIRQ 3
#define HRTIMER_SOFTIRQ 8

/* Run on each CPU when observing begins and ends: learns what it is at, and charges up to now. */
SEC("raw_tp")
int mark(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct cpu_slot *s = slot();
	__u64 now = bpf_ktime_get_ns();

	if (!s)
		return 0;
	if (!s->last) {
		s->task = (__u64)p;
		struct task_rec *r = p->flags & PF_IDLE ? NULL : get(p, now);
		if (r) {
			r->on_cpu = 1;
			r->state = r->on_state;
		}
		s->kernel_thread = (p->flags & PF_KTHREAD) != 0;
		s->base = p->flags & PF_IDLE ? AT_IDLE : r && r->target ? AT_TARGET :
			  is_ncpu(p) ? AT_NCPU : AT_OTHER;
		if (r && cfg_tenants)
			tenant_comes(s, r, p);
	}
	charge(s, now);
	put_spin(s);
	return 0;
}

/*
 * Another CPU is about to come online: it had no state since it went offline. An offline CPU runs no
 * tracepoint, so the CPU that brings it up reports this, and the first event there finds no beginning.
 */
__u64 comings; /* of all CPUs, so that user space need not look at each */

SEC("tp_btf/cpuhp_enter")
int BPF_PROG(cpu_comes, unsigned int cpu, int target, int step)
{
	struct cpu_slot *s = bpf_map_lookup_elem(&cpu_slots, &cpu);

	if (!s || cpu == bpf_get_smp_processor_id() || target <= step)
		return 0;
	s->last = 0;
	s->base = AT_IDLE;
	s->depth = 0;
	s->waits = 0;
	s->ended = 0;
	s->task = 0;
	s->comings++;
	__sync_fetch_and_add(&comings, 1);
	return 0;
}

/* Vectors of arch/x86/include/asm/irq_vectors.h: the argument of their tracepoints. */
#define RESCHEDULE_VECTOR 0xfd
#define CALL_FUNCTION_VECTOR 0xfc
#define CALL_FUNCTION_SINGLE_VECTOR 0xfb

static __always_inline void own_work_comes(struct cpu_slot *s)
{
	if (s->own_work) {
		s->own_work = 0;
		own_interrupt(s);
	}
}

static __always_inline void irq_enter(__u32 where, bool timer, __u32 kind)
{
	struct cpu_slot *s = slot();

	/* Before everything is attached an entry might have no exit. */
	if (!s || !observing)
		return;
	__u32 d = s->depth;
	__u64 now = bpf_ktime_get_ns(), entering = 0;

	/* What ran until an interrupt did not run while the CPU entered it. An idle CPU had nothing to lose. */
	if (where == AT_HARDIRQ && (d || s->base != AT_IDLE)) {
		__u64 most = s->last && now > s->last ? now - s->last : 0;

		entering = timer ? timer_entry_ns : call_entry_ns;
		if (entering > most)
			entering = most;
	}
	charge(s, now - entering);
	s->depth = d + 1;
	/* An interrupt may come while a softirq begins: it must not write this level after it was begun. */
	barrier();
	if (d >= IRQ_NEST) {
		s->drop_nest++;
		return;
	}
	s->irq[MASK(d, 3)] = where;
	s->timer[MASK(d, 3)] = timer;
	s->kind[MASK(d, 3)] = kind;
	s->at_entry[MASK(d, 3)] = s->at[where];
	s->entering[MASK(d, 3)] = entering;
	s->spinning[MASK(d + 1, 3)] = 0;
	if (kind == IRQ_WORK)
		own_work_comes(s);
}

/* This hangs on the tracepoints of several vectors: the loader has the list. */
SEC("raw_tp")
int hardirq_in(void *ctx)
{
	__u32 vector = *(__u32 *)ctx;

	irq_enter(AT_HARDIRQ, false, vector == RESCHEDULE_VECTOR ? IRQ_RESCHEDULE :
		  vector == CALL_FUNCTION_VECTOR || vector == CALL_FUNCTION_SINGLE_VECTOR ? IRQ_CALL : IRQ_WORK);
	return 0;
}

/*
 * Adds the time of an interrupt. ncpu's own part is moved to another state for several interrupts at once, so the time of that one
 * may be negative.
 */
static __always_inline void add_signed(__u64 *sum, __s64 ns)
{
	*sum = ns < 0 && *sum < (__u64)-ns ? 0 : *sum + ns;
}

/* The row of a device's interrupt, in this CPU's slot: one of four. */
static __always_inline __u32 device_row(struct cpu_slot *s, __u32 number)
{
	for (__u32 i = 0; i < 4; i++) {
		__u32 at = IRQ_DEVICE + MASK(number + i, 15);
		struct irq_row *row = &s->irqs[MASK(at, 31)];

		if (!row->number)
			row->number = number + 1;
		if (row->number == number + 1)
			return at;
	}
	return IRQ_REST;
}

/* A tick that comes from user mode shows that a thread which was on CPU when first seen was not in its last call. */
static __always_inline void ticks(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct cpu_slot *s = slot();

	/* Without samples nothing else looks while a thread is in user code. */
	if (s && observing)
		look_who_runs(s);
	struct task_rec *r = look(p);
	if (r && r->on_state == SYS && !in_call(p)) {
		r->on_state = USR;
		if (r->state == SYS)
			r->state = USR;
	}
}

/* arm64's timer is one of these, and its cross-calls are, whose kind `ipi_begins` tells. */
SEC("raw_tp")
int handler_in(void *ctx)
{
	struct cpu_slot *s = slot();
	__u32 number = *(__u32 *)ctx;
	bool timer = cfg_timer_irq && number == cfg_timer_irq;

	if (!s)
		return 0;
	irq_enter(AT_HARDIRQ, timer, timer ? IRQ_TIMER : device_row(s, number));
	if (timer && cfg_micro)
		ticks();
	return 0;
}

/* Within arm64's handler of cross-calls; `args` is a string: "Rescheduling interrupts", "Function call ...", "IRQ work ...". */
SEC("raw_tp")
int ipi_begins(__u64 *args)
{
	struct cpu_slot *s = slot();
	char first = 0;

	if (!s || !observing || !s->depth || s->depth > IRQ_NEST)
		return 0;
	bpf_probe_read_kernel(&first, 1, (void *)args[0]);
	__u32 kind = first == 'R' ? IRQ_RESCHEDULE : first == 'I' ? IRQ_WORK : IRQ_CALL;
	s->kind[MASK(s->depth - 1, 3)] = kind;
	if (kind == IRQ_WORK)
		own_work_comes(s);
	return 0;
}

/* The timer's interrupt alone: a thread that it wakes is known to have waited for a time. */
SEC("raw_tp")
int timer_in(void *ctx)
{
	irq_enter(AT_HARDIRQ, true, IRQ_TIMER);
	return 0;
}

#define AT_ONCE 2000 /* ns from an interrupt's end to the softirq that it raised */

/* Whether the softirq that begins was raised by an interrupt of a device or another CPU, which has just ended. */
static __always_inline bool came_with_interrupt(struct cpu_slot *s)
{
	__u32 kind = s->last_kind;

	return !s->depth && (kind == IRQ_CALL || kind == IRQ_REST || kind >= IRQ_DEVICE) &&
	       bpf_ktime_get_ns() - s->last_irq < AT_ONCE;
}

static __always_inline bool of_network(__u32 vector)
{
	return vector == NET_RX_SOFTIRQ || vector == NET_TX_SOFTIRQ;
}

SEC("raw_tp")
int softirq_in(void *ctx)
{
	struct cpu_slot *s = slot();

	__u32 vector = *(__u32 *)ctx;

	if (s) {
		s->vector = vector;
		s->raised_ns = cfg_tenants && of_network(vector) && came_with_interrupt(s) ? s->last_irq_ns : 0;
	}
	irq_enter(AT_SOFTIRQ, vector == TIMER_SOFTIRQ || vector == HRTIMER_SOFTIRQ,
		  IRQ_SOFT + (vector < IRQ_DEVICE - IRQ_SOFT ? vector : 0));
	return 0;
}

static __always_inline void irq_exit(void)
{
	struct cpu_slot *s = slot();

	if (!s || !s->depth)
		return;
	__u64 now = bpf_ktime_get_ns();
	charge(s, now);
	__u32 level = s->depth - 1;
	__u32 where = s->irq[MASK(level, 3)], kind = s->kind[MASK(level, 3)];
	__u64 entering = s->entering[MASK(level, 3)];
	/* What nested in it lies in states of its own; what was moved to another is not its time either. */
	__s64 ns = s->at[MASK(where, 7)] - s->at_entry[MASK(level, 3)];

	/* An interrupt may come at a softirq's end. It writes this level once the level is free, so all of it is read before. */
	barrier();
	s->depth = level;
	if (level >= IRQ_NEST)
		return;
	if (where == AT_TLB)
		kind = IRQ_TLB;
	struct irq_row *row = &s->irqs[MASK(kind, 31)];
	row->entry_ns += entering;
	if (where == AT_NCPU) {
		row->own++;
		add_signed(&row->own_ns, ns);
	} else {
		row->count++;
		add_signed(&row->ns, ns);
	}
	ns &= ~(ns >> 63);
	if (cfg_tenants && where == AT_SOFTIRQ && s->base == AT_TARGET && of_network(kind - IRQ_SOFT)) {
		__u64 lost = ns + s->raised_ns;

		add_lock(lock_slot(s, OTHERS, 0, s->tenant, KIND_LEDGER | LOSS_NETWORK), lost, lost, 1);
	}
	if (cfg_tenants && where == AT_HARDIRQ && s->base == AT_TARGET && kind == IRQ_CALL)
		add_lock(lock_slot(s, OTHERS, 0, s->tenant, KIND_LEDGER | LOSS_CALL), ns, ns, 1);
	s->last_irq = now;
	s->last_irq_ns = ns;
	s->last_kind = kind;
}

/*
 * Two programs, for the kernel does not run a program inside itself: an interrupt that comes while the program for the
 * end of a softirq runs would have no end.
 */
SEC("raw_tp")
int hardirq_out(void *ctx)
{
	irq_exit();
	return 0;
}

SEC("raw_tp")
int softirq_out(void *ctx)
{
	irq_exit();
	return 0;
}

SEC("tp_btf/local_timer_entry")
int settle(void *ctx)
{
	ticks();
	return 0;
}

/* How long an interrupt's handler takes that one thread of ncpu meets, while what entering interrupts takes is measured. */
SEC("raw_tp")
int gauge_in(void *ctx)
{
	if ((__u32)bpf_get_current_pid_tgid() == gauge_tid)
		gauge_at = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tp")
int gauge_out(void *ctx)
{
	if ((__u32)bpf_get_current_pid_tgid() != gauge_tid)
		return 0;
	gauge_ns = bpf_ktime_get_ns() - gauge_at;
	gauge_hits++;
	return 0;
}

static __always_inline void shot_down(struct cpu_slot *s)
{
	s->tlb_received++;
	/* Nothing was charged since the interrupt began, so all of it becomes a shootdown. */
	if (s->depth && s->depth <= IRQ_NEST) {
		s->irq[MASK(s->depth - 1, 3)] = AT_TLB;
		s->at_entry[MASK(s->depth - 1, 3)] = s->at[AT_TLB];
	}
}

/* Comes at each switch to another process as well, until the two programs below can stand in for it. */
SEC("tp_btf/tlb_flush")
int BPF_PROG(tlb_flush, int reason, unsigned long pages)
{
	if (reason != TLB_REMOTE_SEND_IPI && reason != TLB_REMOTE_SHOOTDOWN)
		return 0;
	struct cpu_slot *s = slot();

	if (!s || tlb_code)
		return 0;
	if (reason == TLB_REMOTE_SEND_IPI)
		s->tlb_sent++;
	else
		shot_down(s);
	return 0;
}

/* A call begins; `args` are its function and its data. Without data it is the asking CPU's own part, and nothing has arrived. */
SEC("raw_tp")
int call_begins(__u64 *args)
{
	struct cpu_slot *s = tlb_code && args[0] == tlb_code && args[1] ? slot() : NULL;

	if (s)
		shot_down(s);
	return 0;
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct __call_single_data {
	void *info;
};
struct flush_tlb_info {
	u64 new_tlb_gen;
};
#pragma clang attribute pop

/*
 * This CPU asks another for a call: `args` are that CPU, where it was asked, the function and its data. A flush asks several
 * CPUs, in rising order. Each of a process's memory has a number of its own.
 */
SEC("raw_tp")
int call_is_asked(__u64 *args)
{
	struct cpu_slot *s = tlb_code ? slot() : NULL;
	struct __call_single_data *call = (void *)args[3];
	__u32 cpu = args[0];

	if (!s)
		return 0;
	if (args[2] != tlb_code) {
		struct tenant_slot *t = cfg_tenants && !s->depth ? tenant_slot(bpf_get_smp_processor_id(), s->tenant) : NULL;

		if (t)
			t->called++;
		return 0;
	}
	struct flush_tlb_info *flush = BPF_CORE_READ(call, info);
	__u64 number = BPF_CORE_READ(flush, new_tlb_gen);
	if (cpu <= s->tlb_asked || number != s->tlb_number)
		s->tlb_sent++;
	s->tlb_asked = cpu;
	s->tlb_number = number;
	return 0;
}

#endif
