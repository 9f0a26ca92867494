/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Exact microstates: what threads do between switches, and reading their records out.
 */
#ifndef NCPU_MICROSTATES_H
#define NCPU_MICROSTATES_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"
#include "futexes.h"
#include "places.h"
#include "switches.h"
#include "thread_time.h"
#include "probe_counts.h"

#define PF_INSTR 16 /* X86_PF_INSTR of arch/x86/include/asm/trap_pf.h */

/* A thread that calls or faults is on CPU, also where its coming was not traced. */
static __always_inline void seen_to_run(struct task_rec *r)
{
	if (!r->on_cpu)
		found();
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long id)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	count_hit(ALL_CALLS);
	if (!r || !r->target || calls_off)
		return 0;
	count_hit(CALL_PROBES);
	seen_to_run(r);
	r->scl++;
	if (r->state != SYS)
		micro(r, SYS, bpf_ktime_get_ns());
	r->on_state = SYS;
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long ret)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (!r || !r->target || calls_off)
		return 0;
	if (r->state != USR)
		micro(r, USR, bpf_ktime_get_ns());
	r->on_state = USR;
	return 0;
}

/* x86 gives a thread its floating-point registers back, after others had them, right before it is in user code again. */
SEC("tp_btf/x86_fpu_regs_activated")
int user_registers(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);

	if (!r || !r->target || calls_off || r->state != USR)
		return 0;
	not_back_yet(r, p);
	if (r->state != USR)
		micro(r, USR, bpf_ktime_get_ns());
	return 0;
}

/* User code faults; `instr`: it fetched an instruction. */
static __always_inline int fault_begins(bool instr)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (!r || !r->target || calls_off)
		return 0;
	count_hit(FAULT_PROBES);
	seen_to_run(r);
	__u64 now = bpf_ktime_get_ns();
	if (r->state == TRP) {
		/* The last fault's end was not seen (perf throttles): its length is unknown. */
		struct cpu_slot *s = slot();
		if (s)
			s->lost_fault_end++;
		r->state = USR;
	}
	micro(r, TRP, now);
	r->faults++;
	r->on_state = TRP;
	r->instr = instr;
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault_user, unsigned long address, struct pt_regs *regs, unsigned long error_code)
{
	return fault_begins((error_code & PF_INSTR) != 0);
}

/*
 * arm64 has no such tracepoint. But its handler counts the fault (PERF_COUNT_SW_PAGE_FAULTS) before it takes a lock, and a CPU that
 * fetches an instruction faults at the instruction's own address.
 */
SEC("perf_event")
int fault_counted(void *ctx)
{
#if defined(__TARGET_ARCH_arm64)
	__u64 *event = ctx; /* `struct bpf_perf_event_data`: 34 words of registers, the period, the address */

	if (met_user_code(ctx))
		return fault_begins(event[35] == event[32]);
#endif
	return 0;
}

static __always_inline int fault_end(void)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (!r || !r->target || calls_off)
		return 0;
	if (r->on_state == TRP) {
		micro(r, USR, bpf_ktime_get_ns());
		r->on_state = USR;
	}
	return 0;
}

SEC("perf_event")
int fault_minor(void *ctx)
{
	return fault_end();
}

SEC("perf_event")
int fault_major(void *ctx)
{
	return fault_end();
}

SEC("tp_btf/signal_deliver")
int BPF_PROG(signal_deliver, int sig)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (r && r->target)
		r->sig++;
	return 0;
}

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

/* Threads that were there before: asleep, or on CPU since now. */
SEC("iter/task")
int seed_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (!p)
		return 0;
	struct task_rec *r = bpf_task_storage_get(&tasks, p, 0, 0);
	bool met = r != NULL;
	__u64 now = bpf_ktime_get_ns();

	if (!r)
		r = get(p, now);
	if (!r || !r->target)
		return 0;
	/* In a later round user space has offered numbers since. */
	if (cfg_tenants && (!r->css_set || r->tenant == TENANT_OTHERS))
		set_tenant_of(r, p);
	if (met)
		return 0;
	if (!p->__state && !p->on_cpu) {
		r->state = LAT;
		r->queue = task_cpu(p);
		r->throttled = is_throttled(p);
	} else if (!p->__state) {
		r->state = r->on_state;
	} else {
		sleeps_already(r, p, first_word(&ctx->task));
	}
	return 0;
}

/*
 * Verdicts have come: waits in progress for futexes that had no verdict when they began are charged by their new
 * verdict. The waiter may be woken meanwhile; the first to change `wait` decides.
 */
SEC("iter/task")
int correct_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (!p)
		return 0;
	struct task_rec *r = bpf_task_storage_get(&tasks, p, 0, 0);
	if (!r)
		return 0;
	/* Waits that are over: their own CPU goes on to write the record, so time that was SLP is counted as
	 * LCK. */
	__u64 over = *(volatile __u64 *)&r->unjudged;
	struct verdict *late = over ? verdict(futex_key(p, over), r->unjudged_site) : NULL;
	if (late && late->class != FUTEX_UNKNOWN) {
		__u64 ns = __sync_lock_test_and_set(&r->unjudged_ns, 0);
		if (is_lock(late->class) && *(volatile __u64 *)&r->unjudged == over)
			r->locked += ns;
	}
	if (r->on_cpu || !r->futex || r->futex_word >> 16 != FUTEX_UNKNOWN)
		return 0;
	struct verdict *v = verdict(futex_key(p, r->futex), r->site);
	if (!v)
		return 0;
	__u32 class = v->class;
	r->place = v->place;
	r->key = v->word == NO_WORD ? futex_key(p, r->futex) : r->site;
	if (class == FUTEX_UNKNOWN)
		return 0;
	r->futex_word |= class << 16;
	if (class == FUTEX_SEM)
		r->semaphore = r->futex;
	if (!is_lock(class) || __sync_val_compare_and_swap(&r->wait, WAIT_SLEEP, WAIT_ULOCK) != WAIT_SLEEP)
		return 0;
	judged[WAIT_SLEEP]--;
	judged[WAIT_ULOCK]++;
	tenant_waits(cfg_cpus, r->waits_as, WAIT_SLEEP, -1);
	tenant_waits(cfg_cpus, r->waits_as, WAIT_ULOCK, 1);
	/* What was not told to anybody yet is charged with the rest, when it is over. */
	__sync_val_compare_and_swap(&r->state, SLP, LCK);
	return 0;
}

struct thread_out telling; /* user space reads one thread after another */

SEC("iter/task")
int dump_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct seq_file *seq = ctx->meta->seq;

	if (!p)
		return 0;
	struct task_rec *r = bpf_task_storage_get(&tasks, p, 0, 0);
	if (!r || !r->target || r->told)
		return 0;
	/* It has not come on CPU since the observation began. */
	if (cfg_tenants && !r->css_set)
		set_tenant_of(r, p);
	struct thread_out *t = &telling;
	__builtin_memset(t, 0, sizeof(*t));
	/* Its CPU may put it into another state meanwhile: then once more. */
	__u64 since = 0;
	for (int i = 0; i < 3; i++) {
		since = *(volatile __u64 *)&r->since;
		thread_out(t, r, p);
		if (*(volatile __u64 *)&r->since == since)
			break;
	}
	/* The state it is in now, up to now, without touching the record its CPU writes. */
	__u64 now = bpf_ktime_get_ns();
	if (now > observe_until)
		now = observe_until;
	/* Its wake-up may not have been seen. */
	__u64 until = now;
	if (r->state >= TFL && r->state != LAT && r->wait)
		until = queued_since(p, r, now);
	__u64 state = MASK(r->state, 7);
	/* One that has been woken has not put its sleep down before it is on CPU. */
	__s64 asleep = asleep_in_all(r) - r->slept_all;
	if (until > since) {
		t->micro[state] += until - since;
		if (state >= TFL && state < LAT)
			asleep += until - since;
		if (state == LAT && r->throttled)
			t->held += until - since;
	}
	if (asleep > 0)
		tell_wait(t, r, asleep);
	if (now > until)
		t->micro[LAT] += now - until;
	if (now > since && calls_off && r->state == USR)
		t->untraced += now - since;
	bpf_seq_write(seq, t, sizeof(*t));
	return 0;
}

#endif
