/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Behind whom threads of the program stand on run queues.
 *
 * Each CPU keeps what it ran last. When a thread comes on CPU, its wait is divided among what ran meanwhile where it stood.
 * A thread that was moved to another queue while it stood is charged to the first: that one held it up, until the
 * scheduler took it away.
 */
#ifndef NCPU_QUEUES_H
#define NCPU_QUEUES_H

#include "rounds.h"
#include "settings.h"
#include "cpu_states.h"
#include "kernel_locks.h"

const volatile __u32 cfg_queues;

/* Waits below this are what waking up and switching take: too many, and too short, to ask behind whom. */
#define LEAST_QUEUED 20000 /* ns */

/* Of waits below this one in eight is divided, and stands for the others: a server's threads have thousands a second. */
#define LONG_QUEUED 1000000 /* ns */
#define FEW_QUEUED 7

#define QUEUE_UNKNOWN 0xff /* in place of enum where */

static __always_inline __u32 task_cpu(struct task_struct *p)
{
	return bpf_core_field_exists(p->thread_info.cpu) ? p->thread_info.cpu : bpf_get_smp_processor_id();
}

/* Whether the wait of a thread that came on CPU is to be divided. */
static __always_inline bool to_be_divided(__u64 since, __u64 now)
{
	if (now <= since || now - since <= LEAST_QUEUED)
		return false;
	return now - since >= LONG_QUEUED || chosen(now, FEW_QUEUED);
}

/* Threads on the queue that one comes from, but for that one; where this is not known 0. */
static __always_inline __u32 waiting_beside(struct task_struct *next)
{
	if (!bpf_core_field_exists(next->se.cfs_rq) || !bpf_core_field_exists(struct cfs_rq, rq))
		return 0;
	__u32 all = next->se.cfs_rq->rq->nr_running;

	return all > 1 ? all - 1 : 0;
}

/* In place of a tenant's number. */
#define TENANT_UNKNOWN 0xffffffffu
#define TENANT_SOFTIRQS 0xfffffffeu	/* a thread of the kernel that serves softirqs, whosoever they are for */

#define KSOFTIRQ 0x71726974666f736bull /* the beginning of its name, as it lies in memory */

static __always_inline bool serves_softirqs(struct task_struct *p)
{
	__u64 name = 0;

	if (!cfg_tenants || (p->flags & (PF_KTHREAD | PF_IDLE)) != PF_KTHREAD)
		return false;
	bpf_core_read(&name, sizeof(name), &p->comm);
	return name == KSOFTIRQ;
}

/* A thread came on this CPU, which is in the state `s->base` from now on. */
static __always_inline void begin_span(struct cpu_slot *s, struct task_struct *next, __u64 now)
{
	__u64 i = s->span + 1;
	struct span *span = &s->spans[MASK(i, 31)];

	span->tgid = next->tgid;
	span->base = s->base;
	span->tenant = serves_softirqs(next) ? TENANT_SOFTIRQS : s->tenant;
	span->waiting = cfg_tenants ? waiting_beside(next) : 0;
	span->since = now;
	s->span = i;
}

/* A wait on the queue of a CPU, of which the part from `from` to `end` is still to be divided. */
struct stand {
	__u64 from, end;	/* ns */
	__u64 last;		/* number of that CPU's last span */
	__u32 cpu;
	__u32 weight;		/* waits that it stands for */
	__u32 tenant;		/* that lost the time */
	__u32 pad;
};

static __always_inline void add_stand(struct lock_slot *l, const struct stand *w, __u64 ns)
{
	if (!l)
		return;
	l->count += w->weight;
	l->block += ns * w->weight;
	if (ns > l->max)
		l->max = ns;
}

/*
 * A wait is charged to the tenant that ran meanwhile: as time of CPUs it is shared by all that stood there. `where` is the CPU + 1 for
 * what is not known.
 */
static __always_inline void blame_runner(struct cpu_slot *s, const struct stand *w, __u32 who, __u64 where, __u64 ns,
					 __u32 waiting)
{
	__u32 cause = who == TENANT_SOFTIRQS ? LOSS_SOFTIRQ : LOSS_QUEUE;
	__u64 code = who == TENANT_UNKNOWN ? OTHERS : who == TENANT_SOFTIRQS ? TENANT_KERNEL + 2 : (__u64)who + 2;
	struct lock_slot *l = lock_slot(s, code, where, w->tenant, KIND_LEDGER | cause);

	if (!l)
		return;
	l->count += w->weight;
	l->block += ns * w->weight;
	l->spin += ns * w->weight / (waiting ?: 1);
}

static long behind_one(__u32 n, struct stand *w)
{
	struct cpu_slot *s = slot(), *q = bpf_map_lookup_elem(&cpu_slots, &w->cpu);

	if (!s || !q || w->end <= w->from)
		return 1;
	struct span *span = &q->spans[MASK(w->last - n, 31)];
	__u64 since = span->since, begin = since > w->from ? since : w->from;
	__u32 base = span->base, tgid = span->tgid;
	if (!since || begin >= w->end)
		return 0;
	add_stand(lock_slot(s, base == AT_OTHER ? (__u64)tgid + 2 : OTHERS, 0, 0, KIND_QUEUE | base), w, w->end - begin);
	if (cfg_tenants)
		blame_runner(s, w, span->tenant, 0, w->end - begin, span->waiting);
	w->end = begin;
	return 0;
}

ROUNDS_OF(behind_one, struct stand, SPANS)

/*
 * Divides the wait of the current CPU's next thread, on the queue of `cpu` from one moment to another. That CPU may go on
 * meanwhile: what it then writes over is behind the others and looks too young.
 */
APART int stood(__u32 cpu, __u64 from, __u64 to, __u32 tenant)
{
	struct cpu_slot *s = slot(), *q = bpf_map_lookup_elem(&cpu_slots, &cpu);

	if (!s || !q)
		return 0;
	struct stand w = { .from = from, .end = to, .last = q->span, .cpu = cpu, .tenant = tenant };
	w.weight = to - from < LONG_QUEUED ? FEW_QUEUED + 1 : 1;
	ROUNDS(behind_one, &w, SPANS);
	/* So long ago that it is not known any more. */
	if (w.end > from) {
		add_stand(lock_slot(s, OTHERS, 0, 0, KIND_QUEUE | QUEUE_UNKNOWN), &w, w.end - from);
		if (cfg_tenants)
			blame_runner(s, &w, TENANT_UNKNOWN, w.cpu + 1, w.end - from, 0);
	}
	return 0;
}

#endif
