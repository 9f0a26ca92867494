// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Cross-calls: which CPU makes which others stop and do something, why, and what it costs both.
 *
 * A call is put together from what its sender's CPU traces in order: tlb:tlb_flush with the reason
 * "remote send" begins a shootdown, each csd:csd_queue_cpu adds a target, ipi:ipi_send_* tells the
 * interrupts. Counts are kept up to date at each of these, so that nothing rests on seeing an end.
 * An interrupt may make calls of its own meanwhile; so there is one record for each context.
 *
 * There is no tracepoint where a sender stops waiting. But it waits for the last of its targets to finish,
 * and the targets have a tracepoint for that (csd:csd_function_exit): each writes the time down in memory
 * of its own, and the sender looks it up when it makes its next call. Large calls are looked up seldom and
 * weighted accordingly, so that no call reads more than four other CPUs' lines on average.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "stack.h"
#include "syscall.h"
#include "crosscalls.h"
#include "target.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TLB_REMOTE_SHOOTDOWN 1
#define TLB_REMOTE_SEND_IPI 4
#define CSD_TYPE_MASK 0xf0
#define CSD_TYPE_SYNC 0x10
#define CSD_TYPE_IRQ_WORK 0x20
#define MASK_WORDS 128 /* 8192 CPUs, the most a kernel is built for */

const volatile __u32 cfg_cpus;
const volatile __u32 cfg_rows = 256;	/* a CPU's part of the table, a power of two */
const volatile __u32 cfg_csd;		/* the kernel has csd tracepoints */
const volatile __u32 cfg_ipi;		/* and ipi tracepoints */
const volatile __u64 cfg_generic;	/* generic_smp_call_function_single_interrupt */
const volatile __u64 cfg_flush[4];	/* functions that flush TLBs; 0 where there are fewer */
const volatile __u64 cfg_waits[4][2];	/* where a sender waits: begin and end of functions */

/* User space retunes these while running. */
__u32 walk_mask[CAUSES] = { 15, 15, 15, 15 }; /* walk one sender's stack in mask + 1 */
__u32 observing;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exits);
} exits SEC(".maps");

/* The package of each CPU, counted from 0. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} package_of SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3); /* by context */
	__type(key, __u32);
	__type(value, struct stack_event);
} scratch SEC(".maps");

struct known {
	__u8 known, mine;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct known);
} tasks SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct __call_single_node {
	unsigned int u_flags;
};
#pragma clang attribute pop

static __always_inline struct cpu *this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

/*
 * 0 a task, 1 a softirq, 2 an interrupt. The kernel's own count of these is a variable, which kernels
 * without KALLSYMS_ALL let no program read; so it is kept here.
 */
static __always_inline __u32 context(const struct cpu *c)
{
	return c->hard ? 2 : c->soft ? 1 : 0;
}

static __always_inline bool is_mine(struct task_struct *p)
{
	if (cfg_all)
		return !is_ncpu(p);
	if (cfg_cgroup)
		return is_target(p);
	struct known *k = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!k)
		return is_target(p);
	if (!k->known) {
		k->mine = is_target(p);
		k->known = 1;
	}
	return k->mine;
}

/* A child is the program's if its parent is, even when that ends before the child is seen. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct known *up = bpf_task_storage_get(&tasks, parent, 0, 0);

	if (!up || !up->known || !up->mine)
		return 0;
	struct known *k = bpf_task_storage_get(&tasks, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (k) {
		k->mine = 1;
		k->known = 1;
	}
	return 0;
}

/* The place of a row in this CPU's part of the table, or -1 where that is full. */
__attribute__((noinline)) int row_index(__u64 who, __u64 func, __u64 stack)
{
	return find_row(&rows, bpf_get_smp_processor_id(), cfg_rows, who, func, stack);
}

static __always_inline struct row *row_at(__u32 index)
{
	return bpf_map_lookup_elem(&rows, &index);
}

/* The system call the sender is in, or what else it is at. */
static __always_inline int place_of(struct task_struct *p, __u32 ctx)
{
	if (ctx)
		return ctx == 2 ? AT_IRQ : AT_BH;
	if (p->flags & PF_IDLE)
		return AT_IDLE_TASK;
	if (p->flags & PF_KTHREAD)
		return AT_KTHREAD;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	__u64 nr = call_number(regs);

	return nr == NO_CALL ? AT_FAULT : (int)nr;
}

/* Walks the sender's stack, kernel and user; returns 0 if that fails. */
static __always_inline __u64 walk(void *ctx, struct cpu *c, struct task_struct *p, __u32 level, __u64 now)
{
	struct stack_event *e = bpf_map_lookup_elem(&scratch, &level);
	__s32 k, u = 0;

	if (!e)
		return 0;
	k = bpf_get_stack(ctx, e->frames, 8 * CALLER_STACK, 0);
	if (k <= 0)
		return 0;
	if (!level && !(p->flags & PF_KTHREAD))
		u = bpf_get_stack(ctx, (void *)e->frames + (k & 0xf8), 8 * CALLER_STACK, BPF_F_USER_STACK);
	if (u < 0)
		u = 0;
	__u64 id = hash_frames(e, (k + u) / 8);
	if (!first_sight(id))
		return id;
	head(&e->head, EV_LOCK_STACK, p, now);
	e->detail.id = id;
	e->kernel_bytes = k;
	e->user_bytes = u;
	/* Nobody is woken: that would be an interrupt of our own making. */
	if (!send_stack(&ring, e, BPF_RB_NO_WAKEUP))
		c->dropped_stacks++;
	return id;
}

/* Finds or makes the rows of a call: the exact one, and one by stack where it is walked. */
static __always_inline bool sender_rows(void *ctx, struct cpu *c, __u32 level, __u32 cause, __u64 func, __u64 now,
					__u32 *row, __u32 *walked)
{
	struct task_struct *p = bpf_get_current_task_btf();
	bool mine = is_mine(p);
	__u64 who = (__u64)OTHERS << 32 | (__u64)(__u16)AT_NONE << 16 | USED | cause;

	if (mine)
		who = (__u64)(__u32)p->tgid << 32 | (__u64)(__u16)place_of(p, level) << 16 | USED | cause;
	*walked = -1;
	*row = row_index(who, func, 0);
	struct row *r = row_at(*row);
	if (!r) {
		c->dropped_rows++;
		return mine;
	}
	r->calls++;
	if (!mine)
		return false;
	struct task_struct *leader = p->group_leader;
	bpf_core_read(&r->comm, sizeof(r->comm), &leader->comm);
	if (!chosen(now, walk_mask[MASK(cause, 3)]))
		return true;
	__u64 id = walk(ctx, c, p, level, now);
	if (!id)
		return true;
	*walked = row_index(who, func, id);
	struct row *w = row_at(*walked);
	if (w) {
		w->calls++;
		bpf_core_read(&w->comm, sizeof(w->comm), &leader->comm);
	} else {
		c->dropped_rows++;
	}
	return true;
}

static __always_inline void add_wait(__u32 row, __u64 ns, __u32 every)
{
	struct row *r = row_at(row);

	if (!r)
		return;
	r->wait += ns * every;
	r->timed += every;
	if (ns > r->longest)
		r->longest = ns;
}

/* The last call of this context was waited for: until when? */
static __always_inline void settle(struct sent *s)
{
	__u32 n = s->targets;
	__u64 end = 0;

	if (!s->open || !s->sync || !s->mine)
		return;
	s->sync = 0;
	if (n > WAITED_FOR)
		n = WAITED_FOR;
	__u32 every = n <= 4 ? 1 : n <= 8 ? 2 : n <= 16 ? 4 : 8;
	if (!chosen(s->begin, every - 1))
		return;
	for (int i = 0; i < WAITED_FOR; i++) {
		if (i >= n)
			break;
		__u32 cpu = s->waits[i].cpu;
		__u64 csd = s->waits[i].csd;
		struct exits *e = bpf_map_lookup_elem(&exits, &cpu);
		if (!e)
			return;
		__u64 at = MASK(csd * SPREAD >> 56, 255);
		if (e->last[at].csd != csd || e->last[at].time < s->begin)
			return; /* another's has taken its place */
		if (e->last[at].time > end)
			end = e->last[at].time;
	}
	add_wait(s->row, end - s->begin, every);
	add_wait(s->walked, end - s->begin, every);
}

static __always_inline void begin_call(void *ctx, struct cpu *c, struct sent *s, __u32 level, __u32 cause,
				       __u64 func, __u64 callsite)
{
	__u64 now = bpf_ktime_get_ns();

	settle(s);
	s->begin = now;
	s->func = func;
	s->callsite = callsite;
	s->targets = 0;
	s->last_cpu = 0;
	s->open = 1;
	s->cause = cause;
	s->sync = 0;
	s->gone = 0;
	s->bucket = 0;
	s->packages[0] = s->packages[1] = s->packages[2] = s->packages[3] = 0;
	s->mine = sender_rows(ctx, c, level, cause, func, now, &s->row, &s->walked);
	if (s->mine)
		c->fanout[MASK(cause, 3)][0]++;
}

static __always_inline void add_to(__u32 row, __u32 targets, __u32 packages, __u32 ipis, __u32 all)
{
	struct row *r = row_at(row);

	if (!r)
		return;
	r->targets += targets;
	r->packages += packages;
	r->ipis += ipis;
	if (all > r->max)
		r->max = all;
}

static __always_inline void add_target(struct cpu *c, struct sent *s, __u32 cpu, __u64 csd, bool sync)
{
	__u32 before = s->targets, fresh = 0;
	__u32 *package = bpf_map_lookup_elem(&package_of, &cpu);

	s->targets = before + 1;
	s->last_cpu = cpu;
	if (package) {
		__u64 *word = &s->packages[MASK(*package >> 6, 3)], bit = 1ull << (*package & 63);
		fresh = !(*word & bit);
		*word |= bit;
	}
	__u64 i = MASK(before, 31);
	s->waits[i].cpu = cpu;
	s->waits[i].csd = csd;
	add_to(s->row, 1, fresh, 0, before + 1);
	add_to(s->walked, 1, fresh, 0, before + 1);
	if (!before && sync) {
		s->sync = 1;
		struct row *r = row_at(s->row);
		if (r)
			r->waited++;
		r = row_at(s->walked);
		if (r)
			r->waited++;
	}
	/* The next bucket begins behind each power of two. */
	if (s->mine && (before & (before - 1)) == 0 && s->bucket < BUCKETS - 1) {
		__u64 cause = MASK(s->cause, 3), b = MASK(s->bucket, 15);
		if (b < BUCKETS - 1) {
			c->fanout[cause][b]--;
			c->fanout[cause][b + 1]++;
			s->bucket = b + 1;
		}
	}
}

/* A call of one target without a function to wait for. */
static __always_inline void count_one(void *ctx, struct cpu *c, __u32 cause, __u64 func)
{
	__u32 row, walked;

	if (sender_rows(ctx, c, context(c), cause, func, bpf_ktime_get_ns(), &row, &walked))
		c->fanout[MASK(cause, 3)][1]++;
	add_to(row, 1, 1, 1, 1);
	add_to(walked, 1, 1, 1, 1);
}

static __always_inline bool flushes_tlbs(__u64 func)
{
	for (int i = 0; i < 4; i++)
		if (func && func == cfg_flush[i])
			return true;
	return false;
}

SEC("tp_btf/tlb_flush")
int BPF_PROG(tlb_flush, int reason, unsigned long pages)
{
	struct cpu *c = this_cpu();

	if (!c || !observing)
		return 0;
	__u64 i = MASK(reason, 7);
	c->flushes[i]++;
	if (pages == -1ul)
		c->whole[i]++;
	else
		c->pages[i] += pages;
	if (reason == TLB_REMOTE_SEND_IPI) {
		__u32 level = context(c);
		begin_call(ctx, c, &c->sent[level], level, TLB, 0, 0);
	} else if (reason == TLB_REMOTE_SHOOTDOWN && c->since) {
		c->cause = TLB;
	}
	return 0;
}

/* tp_btf does not let a program read an argument that is a pointer to a function; raw_tp takes it for a
 * number. */
SEC("raw_tp/csd_queue_cpu")
int BPF_PROG(csd_queue_cpu, unsigned int cpu, unsigned long callsite, __u64 func, struct __call_single_node *csd)
{
	struct cpu *c = this_cpu();

	if (!c || !observing)
		return 0;
	__u32 level = context(c), cause = CALL;
	struct sent *s = &c->sent[level];
	__u32 type = BPF_CORE_READ(csd, u_flags) & CSD_TYPE_MASK;

	if (flushes_tlbs(func))
		cause = TLB;
	else if (type == CSD_TYPE_IRQ_WORK)
		cause = IRQ_WORK;
	bool joins = s->open && !s->gone && s->cause == cause;
	if (joins && s->targets)
		joins = s->callsite == callsite && s->func == func && cpu > s->last_cpu;
	else if (joins)
		joins = cause == TLB; /* the first target of a shootdown that tlb_flush began */
	if (!joins)
		begin_call(ctx, c, s, level, cause, cause == TLB ? 0 : func, callsite);
	s->callsite = callsite;
	s->func = func;
	add_target(c, s, cpu, (__u64)csd, type == CSD_TYPE_SYNC);
	/* The wait begins behind our own work. */
	if (s->targets == 1)
		s->begin = bpf_ktime_get_ns();
	return 0;
}

/* Without csd tracepoints a shootdown's targets are the interrupts sent after tlb_flush. `func` is that of irq work. */
static __always_inline void sent_to(void *ctx, struct cpu *c, __u32 n, __u64 callsite, __u32 cause, __u64 func)
{
	__u32 level = context(c);
	struct sent *s = &c->sent[level];

	if (cause == RESCHEDULE) {
		count_one(ctx, c, RESCHEDULE, 0);
		return;
	}
	if (cfg_csd ? s->open && !s->gone && s->callsite == callsite : cause == CALL) {
		if (!cfg_csd) {
			if (!s->open || s->gone || s->cause != TLB)
				begin_call(ctx, c, s, level, CALL, 0, callsite);
			add_to(s->row, n, 0, 0, n);
			add_to(s->walked, n, 0, 0, n);
			if (s->mine) {
				__u64 b = n > 1 ? 2 : 1;
				for (__u32 m = 2; b < BUCKETS - 1 && m < n; m *= 2)
					b++;
				c->fanout[MASK(s->cause, 3)][0]--;
				if (b < BUCKETS)
					c->fanout[MASK(s->cause, 3)][b]++;
			}
		}
		add_to(s->row, 0, 0, n, 0);
		add_to(s->walked, 0, 0, n, 0);
		s->gone = 1;
		return;
	}
	count_one(ctx, c, cause, func);
}

/* The interrupt handler that ipi_send_* names. */
static __always_inline void sent_for(void *ctx, struct cpu *c, __u32 n, __u64 callsite, __u64 callback)
{
	__u32 cause = !callback ? RESCHEDULE : callback == cfg_generic ? CALL : IRQ_WORK;

	sent_to(ctx, c, n, callsite, cause, cause == IRQ_WORK ? callback : 0);
}

SEC("tp_btf/ipi_send_cpu")
int BPF_PROG(ipi_send_cpu, unsigned int cpu, unsigned long callsite, void *callback)
{
	struct cpu *c = this_cpu();

	if (c && observing)
		sent_for(ctx, c, 1, callsite, (__u64)callback);
	return 0;
}

static __always_inline __u32 ones(__u64 w)
{
	w -= (w >> 1) & 0x5555555555555555ULL;
	w = (w & 0x3333333333333333ULL) + ((w >> 2) & 0x3333333333333333ULL);
	return (((w + (w >> 4)) & 0x0f0f0f0f0f0f0f0fULL) * 0x0101010101010101ULL) >> 56;
}

static __always_inline __u32 cpus_in(const void *mask)
{
	__u32 words = (cfg_cpus + 63) / 64;
	__u32 n = 0;
	__u64 w;

	for (int i = 0; i < MASK_WORDS && i < words; i++)
		if (!bpf_probe_read_kernel(&w, 8, mask + i * 8))
			n += ones(w);
	return n;
}

SEC("tp_btf/ipi_send_cpumask")
int BPF_PROG(ipi_send_cpumask, const void *mask, unsigned long callsite, void *callback)
{
	struct cpu *c = this_cpu();

	if (!c || !observing)
		return 0;
	__u32 n = cpus_in(mask);
	if (n)
		sent_for(ctx, c, n, callsite, (__u64)callback);
	return 0;
}

/* The cause behind arm64's string for an interrupt: "Rescheduling interrupts", "Function call ...", "IRQ work ..."; else CAUSES. */
static __always_inline __u32 cause_of(const char *reason)
{
	char first = 0;

	bpf_probe_read_kernel(&first, 1, reason);
	return first == 'R' ? RESCHEDULE : first == 'F' ? CALL : first == 'I' ? IRQ_WORK : CAUSES;
}

/* arm64 traces its senders by this one before Linux 6.4. */
SEC("tp_btf/ipi_raise")
int BPF_PROG(ipi_raise, const void *mask, const char *reason)
{
	struct cpu *c = this_cpu();

	if (!c || !observing)
		return 0;
	__u32 n = cpus_in(mask), cause = cause_of(reason);
	if (n && cause != CAUSES)
		sent_to(ctx, c, n, 0, cause, 0);
	return 0;
}

/* ---- receivers ---- */

/* Time since the last mark was spent answering this. */
static __always_inline void answered(struct cpu *c, __u32 cause, __u64 func, __u64 now, __u32 count)
{
	__u64 who = (__u64)(__u16)AT_NONE << 16 | USED | RECEIVED | cause;
	struct row *r = row_at(row_index(who, cause == TLB ? 0 : func, 0));

	if (!r) {
		c->dropped_rows++;
		return;
	}
	r->calls += count;
	if (now > c->since)
		r->wait += now - c->since;
}

static __always_inline int vector_in(__u32 cause)
{
	struct cpu *c = this_cpu();

	if (!c || !observing)
		return 0;
	c->hard++;
	c->cause = cause;
	c->func = 0;
	c->counted = 0;
	c->since = bpf_ktime_get_ns();
	return 0;
}

/* What is left of an interrupt goes to the last function it ran. */
static __always_inline int vector_out(void)
{
	struct cpu *c = this_cpu();

	if (!c || !c->since)
		return 0;
	if (c->hard)
		c->hard--;
	answered(c, MASK(c->cause, 3), c->func, bpf_ktime_get_ns(), !c->counted);
	c->since = 0;
	return 0;
}

#define VECTOR(name, cause)                                                 \
	SEC("tp_btf/" #name "_entry") int name##_in(void *ctx)              \
	{                                                                   \
		return vector_in(cause);                                    \
	}                                                                   \
	SEC("tp_btf/" #name "_exit") int name##_out(void *ctx)              \
	{                                                                   \
		return vector_out();                                        \
	}

VECTOR(reschedule, RESCHEDULE)
VECTOR(call_function, CALL)
VECTOR(call_function_single, CALL)
VECTOR(irq_work, IRQ_WORK)

/* Other interrupts and softirqs are followed only for what they send. */
static __always_inline int other_in(bool hard)
{
	struct cpu *c = this_cpu();

	if (!c || !observing)
		return 0;
	if (hard)
		c->hard++;
	else
		c->soft++;
	return 0;
}

static __always_inline int other_out(bool hard)
{
	struct cpu *c = this_cpu();

	if (!c)
		return 0;
	if (hard && c->hard)
		c->hard--;
	else if (!hard && c->soft)
		c->soft--;
	return 0;
}

SEC("tp_btf/local_timer_entry")
int timer_in(void *ctx)
{
	return other_in(true);
}

SEC("tp_btf/local_timer_exit")
int timer_out(void *ctx)
{
	return other_out(true);
}

SEC("tp_btf/irq_handler_entry")
int device_in(void *ctx)
{
	return other_in(true);
}

SEC("tp_btf/irq_handler_exit")
int device_out(void *ctx)
{
	return other_out(true);
}

SEC("tp_btf/softirq_entry")
int softirq_in(void *ctx)
{
	return other_in(false);
}

SEC("tp_btf/softirq_exit")
int softirq_out(void *ctx)
{
	return other_out(false);
}

/* arm64 has one pair of tracepoints for all. */
SEC("tp_btf/ipi_entry")
int BPF_PROG(ipi_in, const char *reason)
{
	__u32 cause = cause_of(reason);

	return cause != CAUSES ? vector_in(cause) : 0;
}

SEC("tp_btf/ipi_exit")
int BPF_PROG(ipi_out, const char *reason)
{
	return vector_out();
}

/* Without a csd the sender runs its own part itself. */
SEC("tp_btf/csd_function_entry")
int BPF_PROG(csd_function_entry, void *func, void *csd)
{
	struct cpu *c = this_cpu();

	/* An idle CPU that polls gets the call without an interrupt. */
	if (csd && c && observing && !c->since) {
		c->since = bpf_ktime_get_ns();
		c->cause = CAUSES;
	}
	return 0;
}

SEC("raw_tp/csd_function_exit")
int BPF_PROG(csd_function_exit, __u64 func, __u64 csd)
{
	struct cpu *c = this_cpu();
	__u32 cpu = bpf_get_smp_processor_id();
	struct exits *e = bpf_map_lookup_elem(&exits, &cpu);

	if (!csd || !c || !e || !observing)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	__u64 i = MASK(csd * SPREAD >> 56, 255);
	e->last[i].csd = csd;
	e->last[i].time = now;
	if (!c->since)
		return 0;
	__u32 cause = flushes_tlbs(func) ? TLB : CALL;
	bool polled = c->cause == CAUSES;
	answered(c, cause, func, now, 1);
	c->counted = 1;
	c->func = func;
	c->cause = polled ? CAUSES : cause;
	c->since = polled ? 0 : now;
	return 0;
}

/* ---- the second estimate: a timer on every CPU ---- */

SEC("perf_event")
int sample(void *ctx)
{
	struct cpu *c = this_cpu();
	struct task_struct *p = bpf_get_current_task_btf();
	__u64 ips[12] = {};
	__s32 n;

	if (!c || !observing || p->flags & PF_IDLE || !is_mine(p))
		return 0;
	c->samples++;
	/*
	 * The timer cannot strike while the sender flushes its own TLB with interrupts off, and strikes
	 * right behind: without a target that is not waiting.
	 */
	if (cfg_csd && !c->sent[0].sync)
		return 0;
	n = bpf_get_stack(ctx, ips, sizeof(ips), 0);
	for (int f = 0; f < 12 && f * 8 < n; f++)
		for (int i = 0; i < 4; i++)
			if (ips[f] >= cfg_waits[i][0] && ips[f] < cfg_waits[i][1]) {
				c->waiting++;
				return 0;
			}
	return 0;
}
