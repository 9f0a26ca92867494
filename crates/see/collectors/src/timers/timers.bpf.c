// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * `ncpu timers`: the threads that arm timers, and the time of each CPU for the kernel's housekeeping.
 *
 * Rows are counted in the current CPU's part of a table. A timer may be armed on one CPU and expire on
 * another, so its owner stands in a table of its own, with an entry for each timer: its line is written
 * where the timer's own line is written anyway.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "stack.h"
#include "target.h"
#include "timers.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __u32 cfg_rows = 256;	/* a CPU's part of the table, a power of two */
const volatile __u64 cfg_tick[2];	/* addresses of the tick's handler */
const volatile __u64 cfg_tick_ns = 4000000;

/* User space retunes this while running. */
__u32 walk_mask = 15;			/* walk one start's stack in mask + 1 */
__u32 observing;			/* 0 until everything is attached */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct hrtimer_clock_base {
	s64 offset;
};

struct hrtimer {
	s64 _softexpires;
	void *function;
	struct hrtimer_clock_base *base;
	u8 is_soft;
};

struct timer_list {
	unsigned long expires;
	void *function;
};

#pragma clang attribute pop

struct counters {
	__u64 starts;		/* of all timers seen, to tune the sampling by */
	__u64 drop_row;		/* row table full */
	__u64 drop_armed;	/* a timer's entry given to another */
	__u64 drop_ring;	/* ring buffer full */
	/*
	 * The handlers that run, or ran last with the lowest bit set: of a hard interrupt, and of a softirq
	 * it may have interrupted.
	 */
	__u64 timer[2];
	__u64 since[2];
	__u32 row[2];
	__u32 sampled[2];
} __attribute__((aligned(128)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct timer_row);
} rows SEC(".maps");

struct bucket {
	struct armed way[ARMED_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ARMED_BUCKETS);
	__type(key, __u32);
	__type(value, struct bucket);
} armed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_doing);
} doings SEC(".maps");

/* Whether a thread is observed: 1 it is not, 2 it is. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_event);
} scratch SEC(".maps");

static __always_inline struct counters *mine(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&counters, &cpu);
}

/* ---- who arms timers ---- */

/*
 * Whether an interrupt armed the timer, not the thread it hit. Interrupts run on a stack of their own,
 * but x86's that come from user mode; those leave no system call in the registers saved on entry. A
 * tracepoint's arguments, which `ctx` points to, lie on the stack in use.
 */
static __always_inline bool in_interrupt(void *ctx, struct task_struct *p)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	__u64 low = (__u64)BPF_CORE_READ(p, stack), here = (__u64)ctx;

	if (here < low || here >= (__u64)regs)
		return true;
#ifdef __TARGET_ARCH_x86
	if (!(p->flags & PF_KTHREAD))
		return (__s64)BPF_CORE_READ(regs, orig_ax) == -1;
#endif
	return false;
}

/* The place of a row in this CPU's part of the table, or -1 where that is full. */
__attribute__((noinline)) int row_index(__u64 function, __u64 stack, __u64 who)
{
	int at = find_row(&rows, bpf_get_smp_processor_id(), cfg_rows, function, stack, who);

	if (at < 0) {
		struct counters *c = mine();
		if (c)
			c->drop_row++;
	}
	return at;
}

static __always_inline struct timer_row *row_at(__u32 key)
{
	return bpf_map_lookup_elem(&rows, &key);
}

/* The row of the same key in this CPU's part of the table. */
static __always_inline struct timer_row *here(__u32 key)
{
	struct timer_row *r = row_at(key);

	if (!r || key / cfg_rows == bpf_get_smp_processor_id())
		return r;
	struct timer_row *h = row_at(row_index(r->function, r->stack, HALVES(r->tgid, r->kind)));
	if (h && !h->comm[0])
		__builtin_memcpy(h->comm, r->comm, sizeof(h->comm));
	if (h)
		h->weight = r->weight;
	return h;
}

static __always_inline struct bucket *bucket(__u64 timer)
{
	__u32 i = (timer * SPREAD >> 40) & (ARMED_BUCKETS - 1);

	return bpf_map_lookup_elem(&armed, &i);
}

static __always_inline struct armed *find(__u64 timer)
{
	struct bucket *b = bucket(timer);

	if (!b)
		return NULL;
	for (int i = 0; i < ARMED_WAYS; i++)
		if ((b->way[i].timer & ~1ull) == timer)
			return &b->way[i];
	return NULL;
}

/* The timer's entry, or a free one, or one whose timer is off its queue, or else another timer's. */
static __always_inline struct armed *claim(struct counters *c, __u64 timer)
{
	struct bucket *b = bucket(timer);
	struct armed *free = NULL;

	if (!b)
		return NULL;
	for (int i = 0; i < ARMED_WAYS; i++) {
		struct armed *a = &b->way[i];

		if ((a->timer & ~1ull) == timer)
			return a;
		if (!a->timer || (!free && (a->timer & 1)))
			free = a;
	}
	if (free)
		return free;
	c->drop_armed++;
	return &b->way[MASK(timer >> 6, 3)];
}

/* Whether the current thread is observed; its answer is kept. */
static __always_inline bool observed(struct task_struct *p)
{
	if (cfg_all)
		return !is_ncpu(p);
	__u32 *known = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!known)
		return is_target(p);
	if (!*known)
		*known = is_target(p) ? 2 : 1;
	return *known == 2;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 *up = bpf_task_storage_get(&tasks, parent, 0, 0);
	__u32 *down = bpf_task_storage_get(&tasks, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	/* The parent may be gone when the child arms its first timer. */
	if (down)
		*down = child->tgid != cfg_tgid && up && *up ? *up : is_target(child) ? 2 : 1;
	return 0;
}

static __always_inline void count_start(struct timer_row *r, __u64 distance, __u64 weight)
{
	if (!r)
		return;
	if (!r->starts || distance < r->distance_min)
		r->distance_min = distance;
	if (distance > r->distance_max)
		r->distance_max = distance;
	r->starts += weight;
	r->distance += distance * weight;
	r->weight = weight;
}

/* Walks the armer's stack into a row of its own. Returns the row's index. */
static __always_inline int walk(void *ctx, struct counters *c, __u64 function, __u64 who, bool interrupt,
				__u64 distance, struct task_struct *p, __u64 now, __u64 weight)
{
	__u32 zero = 0;
	struct stack_event *e = bpf_map_lookup_elem(&scratch, &zero);

	if (!e)
		return -1;
	/* Of an interrupt not what it hit, which is another stack each time. */
	__s32 k = bpf_get_stack(ctx, e->frames, interrupt ? 8 * 10 : 8 * CALLER_STACK, 0), u = 0;
	if (k < 0)
		k = 0;
	if (!interrupt && !(p->flags & PF_KTHREAD))
		u = bpf_get_stack(ctx, (void *)e->frames + (k & 0x1f8), 8 * CALLER_STACK, BPF_F_USER_STACK);
	if (u < 0)
		u = 0;
	if (k + u == 0)
		return -1;
	__u64 id = hash_frames(e, (k + u) / 8);
	int at = row_index(function, id, who);
	struct timer_row *r = row_at(at);

	if (!r)
		return -1;
	if (!r->starts) {
		/* New in this CPU's part: user space needs the frames. */
		head(&e->head, EV_LOCK_STACK, p, now);
		e->detail.id = id;
		e->kernel_bytes = k;
		e->user_bytes = u;
		if (!send_stack(&ring, e, BPF_RB_FORCE_WAKEUP))
			c->drop_ring++;
	}
	count_start(r, distance, weight);
	return at;
}

static __always_inline void start(void *ctx, __u64 timer, __u64 function, __u32 kind, __u64 distance,
				  __u64 now)
{
	struct counters *c = mine();
	struct task_struct *p = bpf_get_current_task_btf();
	bool interrupt = in_interrupt(ctx, p);

	if (!c || !observing)
		return;
	struct armed *a = find(timer);
	/* Armed anew without having been taken off: so ends what it was armed for before. */
	if (a && a->timer == timer) {
		struct timer_row *r = here(a->row);
		if (r)
			r->cancels++;
		if (a->sampled != a->row && (r = here(a->sampled)))
			r->cancels += r->weight;
		a->timer |= 1;
	}
	/* A handler that arms its own timer, or has it armed by what it returns, goes on for whoever armed it. */
	__u32 at, sampled;
	bool periodic = a && interrupt && ((c->timer[0] & ~1ull) == timer || (c->timer[1] & ~1ull) == timer);
	if (periodic) {
		struct timer_row *r = here(a->row);
		if (!r)
			return;
		at = a->row;
		sampled = a->sampled;
		count_start(r, distance, 1);
		if (sampled != at && (r = here(sampled)))
			count_start(r, distance, r->weight);
	} else {
		if (interrupt ? !cfg_all : !observed(p)) {
			if (a)
				a->timer = 0;
			return;
		}
		__u32 tgid = interrupt ? TGID_INTERRUPT : p->tgid;
		__u64 who = HALVES(tgid, kind);
		int exact = row_index(function, 0, who);
		struct timer_row *r = row_at(exact);
		if (!r)
			return;
		if (!r->comm[0] && !interrupt) {
			struct task_struct *leader = BPF_CORE_READ(p, group_leader);
			bpf_core_read(&r->comm, sizeof(r->comm), &leader->comm);
		}
		count_start(r, distance, 1);
		at = sampled = exact;
		c->starts++;
		/* The first ones all, so that a program of few timers has their stacks. */
		__u32 mask = c->starts <= 256 ? 0 : walk_mask;
		if (((now * SPREAD >> 40) & mask) == 0) {
			int s = walk(ctx, c, function, who, interrupt, distance, p, now, mask + 1);
			if (s >= 0)
				sampled = s;
		}
	}
	a = claim(c, timer);
	if (!a)
		return;
	a->row = at;
	a->sampled = sampled;
	a->timer = timer;
}

static __always_inline void cancel(__u64 timer)
{
	struct armed *a = find(timer);

	if (!a || (a->timer & 1))
		return;
	struct timer_row *r = here(a->row);
	if (r)
		r->cancels++;
	if (a->sampled != a->row && (r = here(a->sampled)))
		r->cancels += r->weight;
	a->timer |= 1;
}

/* `level` is 0 for a handler in a hard interrupt and 1 for one in a softirq. */
static __always_inline void begin_handler(__u64 timer, __u32 level)
{
	struct counters *c = mine();
	struct armed *a = find(timer);

	if (!c || !a)
		return;
	struct timer_row *r = here(a->row);
	if (r)
		r->expires++;
	if (a->sampled != a->row && (r = here(a->sampled)))
		r->expires += r->weight;
	c->row[level] = a->row;
	c->sampled[level] = a->sampled;
	c->timer[level] = timer;
	c->since[level] = bpf_ktime_get_ns();
}

static __always_inline void end_handler(__u64 timer, __u32 level)
{
	struct counters *c = mine();

	if (!c || c->timer[level] != timer)
		return;
	__u64 ns = bpf_ktime_get_ns() - c->since[level];
	c->timer[level] |= 1;
	/* Not the time of the handler it interrupted. */
	if (level == 0 && c->timer[1] && !(c->timer[1] & 1))
		c->since[1] += ns;
	struct timer_row *r = here(c->row[level]);
	if (r) {
		r->handler += ns;
		if (ns > r->handler_max)
			r->handler_max = ns;
	}
	if (c->sampled[level] != c->row[level] && (r = here(c->sampled[level]))) {
		r->handler += ns * r->weight;
		if (ns > r->handler_max)
			r->handler_max = ns;
	}
}

/* Longer than any timeout that is meant: KTIME_MAX and the like are not. */
#define FAR (1ull << 50)

static __always_inline __u64 bounded(__s64 ns)
{
	return ns < 0 ? 0 : ns > (__s64)FAR ? FAR : ns;
}

SEC("raw_tp/hrtimer_start")
int on_hrtimer_start(__u64 *ctx)
{
	struct hrtimer *t = (void *)ctx[0];
	__u64 now = bpf_ktime_get_ns();
	__s64 at = BPF_CORE_READ(t, _softexpires) - BPF_CORE_READ(t, base, offset);

	start(ctx, (__u64)t, (__u64)BPF_CORE_READ(t, function), KIND_HRTIMER, bounded(at - (__s64)now), now);
	return 0;
}

SEC("raw_tp/hrtimer_cancel")
int on_hrtimer_cancel(__u64 *ctx)
{
	cancel(ctx[0]);
	return 0;
}

SEC("raw_tp/hrtimer_expire_entry")
int on_hrtimer_entry(__u64 *ctx)
{
	begin_handler(ctx[0], BPF_CORE_READ((struct hrtimer *)ctx[0], is_soft) != 0);
	return 0;
}

/* The timer may already be freed, so only its address says which of the two it was. */
SEC("raw_tp/hrtimer_expire_exit")
int on_hrtimer_exit(__u64 *ctx)
{
	struct counters *c = mine();

	end_handler(ctx[0], c && c->timer[0] != ctx[0]);
	return 0;
}

SEC("raw_tp/timer_start")
int on_timer_start(__u64 *ctx)
{
	struct timer_list *t = (void *)ctx[0];
	__s64 ticks = BPF_CORE_READ(t, expires) - bpf_jiffies64();

	start(ctx, (__u64)t, (__u64)BPF_CORE_READ(t, function), KIND_WHEEL,
	      ticks < 0 ? 0 : ticks > (1 << 24) ? FAR : ticks * cfg_tick_ns, bpf_ktime_get_ns());
	return 0;
}

SEC("raw_tp/timer_cancel")
int on_timer_cancel(__u64 *ctx)
{
	cancel(ctx[0]);
	return 0;
}

SEC("raw_tp/timer_expire_entry")
int on_timer_entry(__u64 *ctx)
{
	begin_handler(ctx[0], 1);
	return 0;
}

SEC("raw_tp/timer_expire_exit")
int on_timer_exit(__u64 *ctx)
{
	end_handler(ctx[0], 1);
	return 0;
}

/* ---- what each CPU does ---- */

static __always_inline struct cpu_doing *doing(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&doings, &cpu);
}

static __always_inline void charge(struct cpu_doing *d, __u64 now)
{
	__u32 depth = d->depth;
	__u32 at = depth && depth <= DO_DEPTH ? d->nest[MASK(depth - 1, 7)] : d->base;

	if (d->last && now > d->last && at < DO_N)
		d->at[at] += now - d->last;
	d->last = now;
}

static __always_inline bool starts(const char *name, const char *with, int n)
{
	for (int i = 0; i < n; i++)
		if (name[i] != with[i])
			return false;
	return true;
}

static __always_inline __u32 task_doing(struct task_struct *p)
{
	char comm[16] = {};

	if (p->flags & PF_IDLE)
		return DO_IDLE;
	if (!(p->flags & PF_KTHREAD))
		return DO_PROGRAM;
	bpf_core_read(&comm, sizeof(comm), &p->comm);
	if (starts(comm, "kworker", 7))
		return DO_KWORKER;
	if (starts(comm, "ksoftirqd", 9))
		return DO_KSOFTIRQD;
	if (starts(comm, "migration", 9))
		return DO_MIGRATION;
	if (starts(comm, "rcu", 3))
		return DO_RCU;
	return DO_KTHREAD;
}

static __always_inline void enter(__u32 what)
{
	struct cpu_doing *d = doing();

	if (!d || !observing)
		return;
	struct task_struct *p = bpf_get_current_task_btf();
	__u32 depth = d->depth;

	charge(d, bpf_ktime_get_ns());
	/* Not every switch is traced. */
	if (!depth && d->task != (__u64)p) {
		d->task = (__u64)p;
		d->base = task_doing(p);
	}
	if (depth < DO_DEPTH)
		d->nest[MASK(depth, 7)] = what;
	else
		d->drop++;
	d->depth = depth + 1;
}

static __always_inline void leave(void)
{
	struct cpu_doing *d = doing();

	if (!d || !observing || !d->depth)
		return;
	charge(d, bpf_ktime_get_ns());
	d->depth--;
}

SEC("raw_tp")
int mark(void *ctx)
{
	struct cpu_doing *d = doing();
	struct task_struct *p = bpf_get_current_task_btf();

	if (!d)
		return 0;
	charge(d, bpf_ktime_get_ns());
	d->task = (__u64)p;
	d->base = task_doing(p);
	return 0;
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *next = (void *)ctx[2];
	struct cpu_doing *d = doing();

	if (!d || !observing)
		return 0;
	charge(d, bpf_ktime_get_ns());
	d->task = (__u64)next;
	d->base = task_doing(next);
	d->depth = 0; /* nothing switches in an interrupt: an exit was missed */
	return 0;
}

SEC("tp_btf/softirq_entry")
int on_softirq_entry(__u64 *ctx)
{
	__u32 n = ctx[0];

	enter(DO_SOFTIRQ + (n < 10 ? n : 0));
	return 0;
}

SEC("tp_btf/softirq_exit")
int on_softirq_exit(__u64 *ctx)
{
	leave();
	return 0;
}

SEC("tp_btf/local_timer_entry")
int on_local_timer_entry(__u64 *ctx)
{
	enter(DO_TIMER_IRQ);
	return 0;
}

SEC("tp_btf/local_timer_exit")
int on_local_timer_exit(__u64 *ctx)
{
	leave();
	return 0;
}

SEC("raw_tp/hrtimer_expire_entry")
int on_expiry_entry(__u64 *ctx)
{
	struct hrtimer *t = (void *)ctx[0];
	__u64 function = (__u64)BPF_CORE_READ(t, function);
	bool tick = function == cfg_tick[0] || function == cfg_tick[1];

	enter(tick ? DO_TICK : DO_HRTIMER);
	struct cpu_doing *d = doing();
	if (d && tick && observing) {
		d->ticks++;
		d->jiffies_before = bpf_jiffies64();
	}
	return 0;
}

SEC("raw_tp/hrtimer_expire_exit")
int on_expiry_exit(__u64 *ctx)
{
	struct cpu_doing *d = doing();

	leave();
	/* On the CPU in charge of the time it advances in every tick; on others where two ticks overlap. */
	if (d && d->jiffies_before) {
		d->jiffies += bpf_jiffies64() - d->jiffies_before;
		d->jiffies_before = 0;
	}
	return 0;
}
