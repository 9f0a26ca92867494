// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The engine: where every CPU is, what every thread of the program waits for, and which locks.
 *
 * Hot paths write only to the current CPU's slot, to the current CPU's part of the lock table, and
 * to the record of the thread at hand, so that observing adds no shared cache line. Sums over CPUs
 * are taken by one reader: the leader's timer (for what idle CPUs are idle for) and user space.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "engine.h"
#include "target.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define LCB_F_SPIN 1
#define LCB_F_MUTEX 32

const volatile __u32 cfg_cpus;		/* possible CPUs */
const volatile __u32 cfg_lock_slots = 1024; /* a CPU's part of the lock table, a power of two */
const volatile __u32 cfg_stacks = 1;
const volatile __u32 cfg_lock_all;	/* locks of every thread, not only the program's */
const volatile __u32 cfg_sleeps;	/* sleeps with a timeout, by call */

/* User space retunes these while running. */
__u64 observe_from = ~0ULL;		/* CLOCK_MONOTONIC, ns: CPU time counts from here */
__u64 observe_until = ~0ULL;		/* to here */
__u32 lock_walk_mask = 15;		/* walk one contention's stack in mask + 1 */
__u32 off_walk_mask;
__u32 observing;			/* 0 until everything is attached */

/* Written by the leader's timer alone. */
__u64 idle_ns[IDLE_N];
__u64 leader_last;
__u64 leader_ticks;
__u64 runnable_ns;	/* integral of waiting run-queue threads, idle CPUs or not */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_slot);
} cpu_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lock_slot);
} lock_slots SEC(".maps");

/* ns asleep by system call number; one row of SYSCALLS a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SYSCALLS);
	__type(key, __u32);
	__type(value, __u64);
} sleep_calls SEC(".maps");

struct lock_wait {
	__u64 lock;
	__u64 stack;
	__u64 begin;
	__u64 off;	/* the thread's off-CPU total when the wait began */
	__u32 kind;
};

struct task_rec {
	__u64 since;
	__u64 off;		/* ns off CPU in all */
	__u64 micro[MICRO_N];
	__u64 spin;
	__u64 vcx, icx, scl, sig;
	__u64 minf, majf;
	__u64 futex;		/* address waited for */
	__u64 off_stack;	/* hash of the stack it went off CPU with, when walked */
	__u64 asked;		/* ns it asked to sleep at most; 0: without end, or not known */
	__s16 slept_in;		/* the call it slept in last with a timeout, + 1 */
	__u32 futex_word;
	__u32 futex_value;
	__u32 off_weight;
	__s16 call;		/* system call it sleeps in */
	__u8 known;
	__u8 target;
	__u8 state;		/* enum micro now */
	__u8 on_state;		/* USR, SYS or TRP: what it returns to */
	__u8 instr;		/* the fault is an instruction fetch */
	__u8 wait;		/* enum wait, counted in some CPU's waiting[] */
	__u8 nlocks;
	__u8 on_cpu;
	__u8 off_wait;
	struct lock_wait locks[LOCK_NEST];
	struct lock_wait user;	/* a lock of libncpu; none where its lock is 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_rec);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4); /* one a level of nesting a program may be entered at, and one for user locks */
	__type(key, __u32);
	__type(value, struct stack_event);
} scratch SEC(".maps");

/* Verdicts of user space on futexes: (tgid << 48 ^ address) to enum futex_class. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u32);
} verdicts SEC(".maps");

/* Which stacks, futexes and programs user space has been sent already: a lossy filter, one a CPU. */
struct seen {
	__u64 id[512];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct seen);
} sent SEC(".maps");

/* Masks an index where the verifier sees it; clang would drop a mask it knows to be idle. */
#define MASK(i, mask) ({ __u64 __i = (i); asm volatile("%0 &= " #mask : "+r"(__i)); __i; })

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

/* A spinlock's wait is over: its time goes where it belongs, and it waits for the lock table. */
static __always_inline void end_spin(struct cpu_slot *s, __u64 now)
{
	__u64 end = s->ended;
	__u32 level = s->depth <= IRQ_NEST ? s->depth : 0;
	struct spin_wait *w = &s->spin[MASK(level, 3)];

	s->ended = 0;
	if (end == 1) { /* untimed */
		end = w->begin + s->mean_spin;
		if (end > now)
			end = now;
	}
	s->done_spin = end > w->begin ? end - w->begin : 0;
	s->done_tgid = bpf_get_current_pid_tgid() >> 32;
	s->done = *w;
	add(s, end);
	s->spinning[MASK(level, 3)] = 0;
}

/*
 * Charges the time up to now to where the CPU is. Called before every change of that, so that a
 * spinlock's wait that has ended is settled here, outside of the lock's critical section: what its end
 * costs, all waiters pay.
 */
static __always_inline void charge(struct cpu_slot *s, __u64 now)
{
	if (s->ended)
		end_spin(s, now);
	add(s, now);
}

static __always_inline struct task_rec *look(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

/* Whether a thread entered the kernel last by a system call; by a fault or an interrupt otherwise. */
static __always_inline bool in_call(struct task_struct *p)
{
	if (p->flags & PF_KTHREAD)
		return true;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
#if defined(__TARGET_ARCH_arm64)
	return (__s32)BPF_CORE_READ(regs, syscallno) >= 0;
#else
	return (__s64)BPF_CORE_READ(regs, orig_ax) >= 0;
#endif
}

static __always_inline struct task_rec *get(struct task_struct *p, __u64 now)
{
	struct task_rec *r = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	/* A record that could not be made now is made at the thread's next event. */
	if (!r)
		return NULL;
	if (!r->known) {
		r->known = 1;
		r->since = now;
		r->state = SLP;
		/* Off CPU it is where it entered the kernel; on CPU it may be back from there: see `settle`. */
		r->on_state = in_call(p) ? SYS : USR;
		r->call = -1;
		r->target = is_target(p);
	}
	return r;
}

/* Charges a thread's time to its state and puts it into the next. */
static __always_inline void micro(struct task_rec *r, __u32 next, __u64 now)
{
	__u64 i = MASK(r->state, 7);

	if (now > r->since) {
		__u64 d = now - r->since;
		r->micro[i] += d;
		if (i >= TFL)
			r->off += d;
	}
	r->since = now;
	r->state = next;
}

static __always_inline void end_wait(struct cpu_slot *s, struct task_rec *r)
{
	__u32 w = r->wait;

	if (w)
		s->waiting[MASK(w, 7)]--;
	r->wait = WAIT_NONE;
}

static __always_inline void begin_wait(struct cpu_slot *s, struct task_rec *r, __u32 w)
{
	end_wait(s, r);
	if (!r->target)
		return;
	r->wait = w;
	s->waiting[MASK(w, 7)]++;
}

/*
 * The place of a (lock, stack, process, kind) in this CPU's part of the table, or -1 where that is
 * full. Not static, so that the verifier looks at it once a program and not once a path.
 */
__attribute__((noinline)) int lock_index(__u64 lock, __u64 stack, __u64 who)
{
	__u32 tgid = who >> 32, kind = who;
	__u64 h = (lock ^ stack ^ who) * 0x9e3779b97f4a7c15ull;
	__u32 mask = cfg_lock_slots - 1;
	__u32 base = bpf_get_smp_processor_id() * cfg_lock_slots;
	__u32 i = (__u32)(h >> 32);

	for (int probe = 0; probe < 16; probe++) {
		__u32 key = base + ((i + probe) & mask);
		struct lock_slot *l = bpf_map_lookup_elem(&lock_slots, &key);
		if (!l)
			break;
		if (l->lock == lock && l->stack == stack && l->tgid == tgid && l->kind == kind)
			return key;
		if (l->lock == 0) {
			l->stack = stack;
			l->tgid = tgid;
			l->kind = kind;
			l->lock = lock;
			return key;
		}
	}
	return -1;
}

static __always_inline struct lock_slot *lock_slot(struct cpu_slot *s, __u64 lock, __u64 stack, __u32 tgid,
						   __u32 kind)
{
	__u32 key = lock_index(lock, stack, (__u64)tgid << 32 | kind);
	struct lock_slot *l = bpf_map_lookup_elem(&lock_slots, &key);

	if (!l)
		s->drop_lock++;
	return l;
}

static __always_inline bool first_sight(__u64 id)
{
	__u32 zero = 0;
	struct seen *seen = bpf_map_lookup_elem(&sent, &zero);

	if (!seen)
		return true;
	/* Futex words of a process lie close together: their low bits alone would collide. */
	__u64 i = id * 0x9e3779b97f4a7c15ull >> 55;
	if (seen->id[MASK(i, 511)] == id)
		return false;
	seen->id[MASK(i, 511)] = id;
	return true;
}

static __always_inline void head(struct event_head *h, __u32 kind, struct task_struct *p, __u64 now)
{
	h->kind = kind;
	h->cpu = bpf_get_smp_processor_id();
	h->tgid = BPF_CORE_READ(p, tgid);
	h->tid = BPF_CORE_READ(p, pid);
	h->time = now;
	bpf_core_read(&h->comm, sizeof(h->comm), &p->comm);
}

static __always_inline void emit_stack(struct stack_event *e, __u64 flags)
{
	__u64 size = (__u32)(e->kernel_bytes + e->user_bytes);

	size += sizeof(*e) - sizeof(e->frames);
	if (size > sizeof(*e))
		size = sizeof(*e);
	if (bpf_ringbuf_output(&ring, e, size, flags)) {
		struct cpu_slot *s = slot();
		if (s)
			s->drop_ring++;
	}
}

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

static __always_inline __u64 hash_frames(const struct stack_event *e, int n)
{
	__u64 h = 0x9e3779b97f4a7c15ull;

	for (int i = 0; i < 2 * CALLER_STACK; i++) {
		if (i >= n)
			break;
		h = (h ^ e->frames[i]) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	return h ? h : 1;
}

static __always_inline void add_lock(struct lock_slot *l, __u64 spin, __u64 block)
{
	if (!l)
		return;
	l->count++;
	l->timed++;
	l->spin += spin;
	l->block += block;
	if (spin + block > l->max)
		l->max = spin + block;
}

static __always_inline void add_spin(struct lock_slot *l, __u64 spin, bool timed)
{
	if (!l)
		return;
	if (timed)
		add_lock(l, spin, 0);
	else
		l->count++;
}

/*
 * Puts the last spinlock's wait into the lock table: before the next can take its place, and before
 * anybody else gets the CPU.
 */
static __always_inline void put_spin(struct cpu_slot *s)
{
	struct spin_wait *w = &s->done;
	__u64 spin = s->done_spin;

	if (!w->lock)
		return;
	if (w->timed)
		s->mean_spin += ((__s64)spin - (__s64)s->mean_spin) >> 4;
	struct task_rec *r = look(bpf_get_current_task_btf());
	if (r)
		r->spin += spin;
	add_spin(lock_slot(s, w->lock, 0, s->done_tgid, w->kind), spin, w->timed);
	if (w->stack)
		add_spin(lock_slot(s, w->lock, w->stack, s->done_tgid, w->kind), spin, w->timed);
	w->lock = 0;
}

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
		s->base = p->flags & PF_IDLE ? AT_IDLE : r && r->target ? AT_TARGET :
			  p->tgid == cfg_self ? AT_SELF : AT_OTHER;
	}
	charge(s, now);
	put_spin(s);
	return 0;
}

/*
 * Another CPU is about to come online: since it went offline it was nowhere. An offline CPU runs no
 * tracepoint, so this is told by the CPU that brings it up, and the first event there finds no beginning.
 */
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
	return 0;
}

/* ---- threads on and off CPU ---- */

static __always_inline void classify_futex(struct task_rec *r, struct task_struct *p)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	__u64 nr, addr, op, val;

	r->futex = 0;
	r->call = -1;
#if defined(__TARGET_ARCH_arm64)
	nr = (__u32)BPF_CORE_READ(regs, syscallno);
	if (nr != 98) {
		r->call = nr < SYSCALLS ? nr : -1;
		return;
	}
	addr = BPF_CORE_READ(regs, orig_x0);
	op = BPF_CORE_READ(regs, regs[1]);
	val = BPF_CORE_READ(regs, regs[2]);
#else
	nr = BPF_CORE_READ(regs, orig_ax);
	if (nr >= SYSCALLS)
		return; /* not in a system call: a fault, or an interrupted program */
	r->call = nr;
	if (nr != 202)
		return;
	addr = BPF_CORE_READ(regs, di);
	op = BPF_CORE_READ(regs, si);
	val = BPF_CORE_READ(regs, dx);
#endif
	r->call = nr;
	__u32 cmd = op & 127, private = (op >> 7) & 1, class = FUTEX_UNKNOWN;
	__u64 key = ((__u64)BPF_CORE_READ(p, tgid) << 48) ^ addr;
	__u32 *verdict = bpf_map_lookup_elem(&verdicts, &key);

	if (verdict)
		class = *verdict;
	else if (cmd == 6 || cmd == 13) /* FUTEX_LOCK_PI, FUTEX_LOCK_PI2 */
		class = FUTEX_LOCK;
	else if ((cmd == 0 || cmd == 9) && val == 2) /* "locked, with waiters": glibc's and Rust's mutex */
		class = FUTEX_LOCK;
	else if (cmd == 9 && val == 0 && !private) /* sem_wait of a process-shared semaphore */
		class = FUTEX_SEM;
	r->futex = addr;
	r->futex_value = val;
	r->futex_word = cmd | private << 8 | class << 16;
}

#if defined(__TARGET_ARCH_arm64)
#define ARG(regs, n) BPF_CORE_READ(regs, regs[n])
#define ARG1 ARG(regs, 1)
#define ARG2 ARG(regs, 2)
#define ARG3 ARG(regs, 3)
#define ARG4 ARG(regs, 4)
#define ARG0 BPF_CORE_READ(regs, orig_x0)
enum { NR_nanosleep = 101, NR_clock_nanosleep = 115, NR_poll = -1, NR_ppoll = 73, NR_select = -2, NR_pselect6 = 72,
       NR_epoll_wait = -3, NR_epoll_pwait = 22, NR_epoll_pwait2 = 441, NR_futex = 98, NR_sigtimedwait = 137,
       NR_io_getevents = 4, NR_semtimedop = 192 };
#else
#define ARG0 BPF_CORE_READ(regs, di)
#define ARG1 BPF_CORE_READ(regs, si)
#define ARG2 BPF_CORE_READ(regs, dx)
#define ARG3 BPF_CORE_READ(regs, r10)
#define ARG4 BPF_CORE_READ(regs, r8)
enum { NR_nanosleep = 35, NR_clock_nanosleep = 230, NR_poll = 7, NR_ppoll = 271, NR_select = 23, NR_pselect6 = 270,
       NR_epoll_wait = 232, NR_epoll_pwait = 281, NR_epoll_pwait2 = 441, NR_futex = 202, NR_sigtimedwait = 128,
       NR_io_getevents = 208, NR_semtimedop = 220 };
#endif

/*
 * How long the current thread, which leaves its CPU in call `nr`, asked to sleep at most, in ns; 0 where it did
 * not. Not static, so that the verifier looks at it once and not once a path.
 */
__attribute__((noinline)) __u64 asked_ns(int nr)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__s64 time[2] = {}, ms = 0;
	__u64 from = 0, micro = 0, now = 0;

	switch (nr) {
	case NR_poll:
		ms = (__s32)ARG2;
		break;
	case NR_epoll_wait:
	case NR_epoll_pwait:
		ms = (__s32)ARG3;
		break;
	case NR_nanosleep:
		from = ARG0;
		break;
	case NR_clock_nanosleep:
		from = ARG2;
		if (ARG1 & 1) { /* TIMER_ABSTIME: the clock must be the one we read */
			if (ARG0 != 1)
				return 0;
			now = bpf_ktime_get_ns();
		}
		break;
	case NR_ppoll:
	case NR_sigtimedwait:
		from = ARG2;
		break;
	case NR_select:
		micro = 1;
		from = ARG4;
		break;
	case NR_pselect6:
	case NR_io_getevents:
		from = ARG4;
		break;
	case NR_epoll_pwait2:
	case NR_semtimedop:
		from = ARG3;
		break;
	case NR_futex: {
		__u64 op = ARG1;

		if ((op & 127) == 9) { /* FUTEX_WAIT_BITSET: a moment, of CLOCK_MONOTONIC or not */
			if (op & 256)
				return 0;
			now = bpf_ktime_get_ns();
		} else if ((op & 127) != 0) {
			return 0;
		}
		from = ARG3;
		break;
	}
	default:
		return 0;
	}
	if (ms > 0)
		return ms * 1000000;
	/* The thread leaves its CPU now, so its memory is still the one mapped. */
	if (!from || bpf_probe_read_user(time, sizeof(time), (void *)from) || time[0] < 0 || time[0] > 1000000000)
		return 0;
	__s64 ns = time[0] * 1000000000 + (micro ? time[1] * 1000 : time[1]);
	return ns > (__s64)now ? ns - now : 0;
}

/* A sleep with a timeout has ended. */
static __always_inline void slept(struct cpu_slot *s, struct task_struct *p, struct task_rec *r, __u64 ns)
{
	if (!r->asked)
		return;
	struct lock_slot *l = lock_slot(s, r->call + 1, 0, BPF_CORE_READ(p, tgid), KIND_SLEEP);
	if (!l)
		return;
	l->count++;
	l->timed++;
	l->spin += r->asked;
	l->block += ns;
	if (ns > l->max)
		l->max = ns;
	if (r->slept_in != r->call + 1) {
		r->slept_in = r->call + 1;
		l->wakes++;
	}
	r->asked = 0;
}

static __always_inline void thread_out(struct thread_out *t, struct task_rec *r, struct task_struct *p)
{
	t->tgid = BPF_CORE_READ(p, tgid);
	t->tid = BPF_CORE_READ(p, pid);
	t->ppid = BPF_CORE_READ(p, real_parent, tgid);
	t->target = r->target;
	t->start = BPF_CORE_READ(p, start_time);
	for (int i = 0; i < MICRO_N; i++)
		t->micro[i] = r->micro[i];
	t->spin = r->spin;
	t->vcx = r->vcx;
	t->icx = r->icx;
	t->scl = r->scl;
	t->sig = r->sig;
	t->minf = r->minf;
	t->majf = r->majf;
	bpf_core_read(&t->comm, sizeof(t->comm), &p->comm);
	struct task_struct *leader = BPF_CORE_READ(p, group_leader);
	bpf_core_read(&t->group, sizeof(t->group), &leader->comm);
}

static __always_inline void off_cpu(void *ctx, struct cpu_slot *s, struct task_struct *p, struct task_rec *r,
				    bool runnable, __u32 state, __u64 now)
{
	__u32 wait = WAIT_SLEEP, next = SLP;

	r->on_cpu = 0;
	if (runnable) {
		r->icx++;
		micro(r, LAT, now);
		begin_wait(s, r, WAIT_RUNQ);
		return;
	}
	r->vcx++;
	r->futex = 0;
	r->off_stack = 0;
	r->asked = 0;
	if (r->nlocks) {
		wait = WAIT_KLOCK;
		next = LCK;
		r->call = -1;
	} else if (r->on_state == TRP) {
		wait = WAIT_IO;
		next = r->instr ? TFL : DFL;
		r->call = -1;
	} else {
		classify_futex(r, p);
		__u32 class = !r->futex ? FUTEX_UNKNOWN : r->user.lock ? FUTEX_LOCK : r->futex_word >> 16;
		if (class == FUTEX_LOCK || class == FUTEX_SEM) {
			wait = WAIT_ULOCK;
			next = LCK;
		} else if (BPF_CORE_READ_BITFIELD_PROBED(p, in_iowait)) {
			wait = WAIT_IO;
		} else if (cfg_sleeps && r->target && r->call >= 0) {
			r->asked = asked_ns(r->call);
		}
	}
	micro(r, next, now);
	begin_wait(s, r, wait);
	if (!r->target || !cfg_stacks || !observing)
		return;

	__u64 key = ((__u64)BPF_CORE_READ(p, tgid) << 48) ^ r->futex;
	/* What a lock sleeps on that tells of itself need not be judged. */
	bool fresh = r->futex && !r->user.lock && first_sight(key);
	bool walked = (s->off_walk++ & off_walk_mask) == 0;
	if (!fresh && !walked)
		return;
	__u32 zero = 0;
	struct stack_event *e = bpf_map_lookup_elem(&scratch, &zero);
	if (!e)
		return;
	walk(ctx, e, walked, true);
	head(&e->head, fresh ? EV_FUTEX : EV_OFF_CPU, p, now);
	if (fresh) {
		/* User space judges by the waiter's stack what kind of futex this is. */
		e->id = r->futex;
		e->where = r->futex_word;
		e->weight = r->futex_value;
		emit_stack(e, BPF_RB_NO_WAKEUP);
	}
	if (walked) {
		r->off_stack = hash_frames(e, (e->kernel_bytes + e->user_bytes) / 8);
		e->head.kind = EV_OFF_CPU;
		e->id = r->off_stack;
		e->where = wait;
		e->weight = r->off_weight = off_walk_mask + 1;
		r->off_wait = wait;
		if (first_sight(r->off_stack))
			emit_stack(e, BPF_RB_NO_WAKEUP);
	}
}

/* A walked thread is on CPU again: its stack is worth the time it was off. */
static __always_inline void off_done(struct cpu_slot *s, struct task_struct *p, struct task_rec *r, __u64 ns)
{
	if (!r->off_stack)
		return;
	add_lock(lock_slot(s, 1, r->off_stack, BPF_CORE_READ(p, tgid), KIND_OFF | r->off_wait), 0,
		 ns * r->off_weight);
	r->off_stack = 0;
}

/* A thread's wait for a futex has ended: blame whoever woke it. */
static __always_inline void futex_done(struct cpu_slot *s, struct task_struct *p, struct task_rec *r, __u64 ns,
				       __u32 waker)
{
	__u64 lock = r->user.lock;
	struct lock_slot *l = lock_slot(s, lock ?: r->futex, 0, BPF_CORE_READ(p, tgid),
					lock ? KIND_USER | r->user.kind : KIND_FUTEX);

	if (!l)
		return;
	/* The wait for a lock that tells of itself is counted when it is over. */
	if (!lock) {
		l->count++;
		l->block += ns;
		if (ns > l->max)
			l->max = ns;
		l->futex = r->futex_word;
	}
	if (!waker)
		return;
	l->wakes++;
	if (l->holder == waker) {
		l->vote += ns;
	} else if (l->vote < ns) {
		l->holder = waker;
		l->vote = ns - l->vote;
	} else {
		l->vote -= ns;
	}
}

/* A thread comes on CPU. */
static __always_inline void arrive(struct cpu_slot *s, struct task_struct *next, __u64 now)
{
	s->task = (__u64)next;
	s->waits = 0;
	s->spinning[0] = 0;
	if (next->flags & PF_IDLE) {
		s->base = AT_IDLE;
		return;
	}
	struct task_rec *r = get(next, now);
	if (!r) {
		s->base = is_target(next) ? AT_TARGET : AT_OTHER;
		return;
	}
	if (r->on_cpu)
		r->state = SLP; /* its leaving was not traced */
	__u32 was = r->state;
	if (was >= TFL && was != LAT && r->wait == WAIT_SLEEP && r->call >= 0) {
		/* Woken without sched_wakeup seen; the sleep ends here. */
		__u32 nr = r->call;
		__u64 *ns = bpf_map_lookup_elem(&sleep_calls, &nr);
		if (ns && now > r->since)
			*ns += now - r->since;
		slept(s, next, r, now > r->since ? now - r->since : 0);
	}
	if (was != LAT)
		off_done(s, next, r, now > r->since ? now - r->since : 0);
	micro(r, r->on_state, now);
	end_wait(s, r);
	r->on_cpu = 1;
	s->waits = r->nlocks;
	s->base = r->target ? AT_TARGET : next->tgid == cfg_self ? AT_SELF : AT_OTHER;
}

/*
 * The thread on CPU is not the one that was seen to come: kernels leave switches out of their traces
 * (a hypervisor's or sandbox's own threads). It has run, as far as anyone can tell, since the last event.
 * Not static, so that the verifier looks at it once and not once a program.
 */
__attribute__((noinline)) int found(void)
{
	struct cpu_slot *s = slot();

	if (!s)
		return 0;
	__u64 at = s->last;
	charge(s, at);
	put_spin(s);
	s->unseen++;
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
	__u64 now = bpf_ktime_get_ns();
	struct cpu_slot *s = slot();

	if (!s)
		return 0;
	look_who_runs(s);
	charge(s, now);
	put_spin(s);
	s->switches++;
	s->depth = 0;

	if (!(prev->flags & PF_IDLE)) {
		struct task_rec *r = get(prev, now);
		if (!r && !preempt && (prev_state & TASK_DEAD)) {
			s->drop_task++; /* it ends without ever having had one */
		} else if (r) {
			r->on_cpu = 0;
			if (!preempt && (prev_state & TASK_DEAD)) {
				micro(r, SLP, now);
				if (r->target || cfg_all) {
					struct exit_event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
					if (e) {
						head(&e->head, EV_EXIT, prev, now);
						thread_out(&e->thread, r, prev);
						bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
					} else {
						s->drop_ring++;
					}
				}
			} else {
				off_cpu(ctx, s, prev, r, preempt || prev_state == TASK_RUNNING, prev_state, now);
			}
		}
	}

	arrive(s, next, now);
	return 0;
}

static __always_inline int wakeup(struct task_struct *p)
{
	__u64 now = bpf_ktime_get_ns();
	struct cpu_slot *s = slot();
	struct task_rec *r = s ? look(p) : NULL;

	if (!r || r->on_cpu || r->state == LAT)
		return 0;
	__u64 ns = now > r->since ? now - r->since : 0;
	if (r->futex && (r->target || cfg_lock_all)) {
		/* A timer or signal wakes from interrupt context: nobody held it up. */
		__u32 waker = s->depth ? 0 : (__u32)bpf_get_current_pid_tgid();
		futex_done(s, p, r, ns, waker);
	} else if (r->wait == WAIT_SLEEP && r->call >= 0) {
		__u32 nr = r->call;
		__u64 *all = bpf_map_lookup_elem(&sleep_calls, &nr);
		if (all)
			*all += ns;
	}
	/* A futex with a timeout is a sleep as well, unless it is a lock. */
	if (r->wait == WAIT_SLEEP && r->call >= 0)
		slept(s, p, r, ns);
	off_done(s, p, r, ns);
	micro(r, LAT, now);
	begin_wait(s, r, WAIT_RUNQ);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *p)
{
	return wakeup(p);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	return wakeup(p);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_rec *up = look(parent), *r = get(child, now);

	if (r) {
		r->on_state = SYS;
		r->state = SLP;
		if (up && up->known && !cfg_cgroup && child->tgid != cfg_tgid)
			r->target = up->target;
	}
	return 0;
}

/* ---- interrupts ---- */

static __always_inline void irq_enter(__u32 where)
{
	struct cpu_slot *s = slot();

	/* Before everything is attached an entry might have no exit. */
	if (!s || !observing)
		return;
	__u32 d = s->depth;
	if (d == 0)
		look_who_runs(s);
	charge(s, bpf_ktime_get_ns());
	s->depth = d + 1;
	if (d >= IRQ_NEST) {
		s->drop_nest++;
		return;
	}
	s->irq[MASK(d, 3)] = where;
	s->spinning[MASK(d + 1, 3)] = 0;
	if (where == AT_SOFTIRQ)
		s->softirqs++;
	else
		s->irqs++;
}

static __always_inline void irq_exit(void)
{
	struct cpu_slot *s = slot();

	if (!s || !s->depth)
		return;
	charge(s, bpf_ktime_get_ns());
	s->depth--;
}

#define VECTOR(name)                                                        \
	SEC("tp_btf/" #name "_entry") int name##_in(void *ctx)              \
	{                                                                   \
		irq_enter(AT_HARDIRQ);                                      \
		return 0;                                                   \
	}                                                                   \
	SEC("tp_btf/" #name "_exit") int name##_out(void *ctx)              \
	{                                                                   \
		irq_exit();                                                 \
		return 0;                                                   \
	}

VECTOR(local_timer)
/* A tick that comes from user mode shows that a thread which was on CPU when first seen was not in its last call. */
SEC("tp_btf/local_timer_entry")
int settle(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);

	if (r && r->on_state == SYS && !in_call(p)) {
		r->on_state = USR;
		if (r->state == SYS)
			r->state = USR;
	}
	return 0;
}

VECTOR(reschedule)
VECTOR(call_function)
VECTOR(call_function_single)
VECTOR(irq_work)
VECTOR(irq_handler)

SEC("tp_btf/softirq_entry")
int softirq_in(void *ctx)
{
	irq_enter(AT_SOFTIRQ);
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_out(void *ctx)
{
	irq_exit();
	return 0;
}

SEC("tp_btf/tlb_flush")
int BPF_PROG(tlb_flush, int reason, unsigned long pages)
{
	struct cpu_slot *s = slot();

	if (!s)
		return 0;
	if (reason == 4) { /* TLB_REMOTE_SEND_IPI */
		s->tlb_sent++;
	} else if (reason == 1) { /* TLB_REMOTE_SHOOTDOWN */
		s->tlb_received++;
		/* Nothing was charged since the interrupt began, so all of it becomes a shootdown. */
		if (s->depth && s->depth <= IRQ_NEST)
			s->irq[MASK(s->depth - 1, 3)] = AT_TLB;
	}
	return 0;
}

/* ---- kernel locks ---- */

/* Whether this event is one of the 1 in mask + 1 chosen; not every so manieth, since calls alternate. */
static __always_inline bool chosen(__u64 now, __u32 mask)
{
	return ((now * 0x9e3779b97f4a7c15ull >> 40) & mask) == 0;
}

/* How many waits are timed follows their rate: all of them below 10,000 a second on this CPU. */
static __always_inline void count_wait(struct cpu_slot *s, __u64 now)
{
	s->lock_events++;
	s->window_waits++;
	if (now - s->window < 10000000)
		return;
	__u32 n = s->window_waits;
	s->time_mask = n > 3000 ? 63 : n > 1000 ? 31 : n > 300 ? 7 : n > 100 ? 3 : 0;
	s->window_waits = 0;
	s->window = now;
}

/* One contention in so many has its stack walked; the hash is what the lock table knows it by. */
static __always_inline __u64 walk_lock(void *ctx, struct cpu_slot *s, __u32 flags, __u64 now)
{
	if (!cfg_stacks || !observing || !chosen(now, lock_walk_mask))
		return 0;
	__u32 which = s->depth ? 2 : 1;
	struct stack_event *e = bpf_map_lookup_elem(&scratch, &which);
	if (!e)
		return 0;
	__s32 k = bpf_get_stack(ctx, e->frames, 8 * CALLER_STACK, 0);
	if (k <= 0)
		return 0;
	__u64 id = hash_frames(e, k / 8);
	if (first_sight(id)) {
		head(&e->head, EV_LOCK_STACK, bpf_get_current_task_btf(), now);
		e->id = id;
		e->where = flags;
		e->weight = lock_walk_mask + 1;
		e->kernel_bytes = k;
		e->user_bytes = 0;
		emit_stack(e, BPF_RB_NO_WAKEUP);
	}
	return id;
}

/* Locks that sleep: the wait belongs to the task, which may move or go off CPU. */
static __always_inline void begin_sleeping(void *ctx, struct cpu_slot *s, __u64 lock, __u32 flags)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (!r || !(r->target || cfg_lock_all))
		return;
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
	w->lock = lock;
	w->begin = now;
	w->off = r->off;
	w->kind = flags & LCB_F_MUTEX ? LCB_F_MUTEX : flags; /* a mutex may or may not spin first */
	r->nlocks = n + 1;
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
	__u64 off = r->off - w->off;
	__u64 all = now > w->begin ? now - w->begin : 0;
	__u64 block = off < all ? off : all;
	__u64 spin = all - block;
	charge(s, now);
	r->nlocks = n - 1;
	s->waits = n - 1;
	r->spin += spin;
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	add_lock(lock_slot(s, w->lock, 0, tgid, w->kind), spin, block);
	if (w->stack)
		add_lock(lock_slot(s, w->lock, w->stack, tgid, w->kind), spin, block);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	struct cpu_slot *s = slot();

	if (!s)
		return 0;
	if (!(flags & LCB_F_SPIN) || (flags & LCB_F_MUTEX)) {
		begin_sleeping(ctx, s, (__u64)lock, flags);
		return 0;
	}
	if (s->base != AT_TARGET && !cfg_lock_all)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	charge(s, now);
	put_spin(s);
	__u32 level = s->depth <= IRQ_NEST ? s->depth : 0;
	struct spin_wait *w = &s->spin[MASK(level, 3)];
	/* An interrupt that comes while a program runs cannot run that program: its end was missed. */
	if (s->spinning[MASK(level, 3)])
		s->drop_nest++;
	w->lock = (__u64)lock;
	w->begin = now;
	w->kind = flags;
	s->spinning[MASK(level, 3)] = 1;
	w->timed = chosen(now >> 3, s->time_mask);
	count_wait(s, now);
	w->stack = walk_lock(ctx, s, flags, now);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int ret)
{
	struct cpu_slot *s = slot();

	if (!s)
		return 0;
	__u32 level = s->depth <= IRQ_NEST ? s->depth : 0;
	/*
	 * The lock is held now, and all who wait for it wait for this: settle later, and read the clock,
	 * which drains the pipeline, no more often than need be.
	 */
	if (s->spinning[MASK(level, 3)] && s->spin[MASK(level, 3)].lock == (__u64)lock)
		s->ended = s->spin[MASK(level, 3)].timed ? bpf_ktime_get_ns() : 1;
	else
		end_sleeping(s, (__u64)lock);
	return 0;
}

/* ---- user locks with static tracepoints ---- */

/* The waiter's user stack, one in as many as of kernel locks. */
static __always_inline __u64 walk_user_lock(void *ctx, struct task_struct *p, __u64 now)
{
	if (!cfg_stacks || !chosen(now, lock_walk_mask))
		return 0;
	__u32 which = 3;
	struct stack_event *e = bpf_map_lookup_elem(&scratch, &which);
	if (!e)
		return 0;
	__s32 n = bpf_get_stack(ctx, e->frames, 8 * CALLER_STACK, BPF_F_USER_STACK);
	if (n <= 0)
		return 0;
	__u64 id = hash_frames(e, n / 8) ^ p->tgid;
	if (first_sight(id)) {
		head(&e->head, EV_USER_STACK, p, now);
		e->id = id;
		e->where = 0;
		e->weight = lock_walk_mask + 1;
		e->kernel_bytes = 0;
		e->user_bytes = n;
		emit_stack(e, BPF_RB_NO_WAKEUP);
	}
	return id;
}

/* A lock of libncpu: what its wait begins and ends with. Blocked is, as ever, who is off CPU meanwhile. */
SEC("uprobe")
int user_lock(struct pt_regs *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	/* A thread that has not been switched yet is met later. */
	struct task_rec *r = look(p);
	struct cpu_slot *s = slot();

	if (!observing || !r || !s || !(r->target || cfg_lock_all))
		return 0;
	__u64 cookie = bpf_get_attach_cookie(ctx), lock = 0, now = bpf_ktime_get_ns();
	__u32 kind = cookie >> 8 & 0xff, at = cookie >> 16;
	struct lock_wait *w = &r->user;

	if (bpf_probe_read_kernel(&lock, sizeof(lock), (void *)ctx + at) || !lock)
		return 0;
	if ((cookie & 0xff) == USER_BEGIN) {
		/* An rwlock's wait for its mutex is a part of its own. */
		if (w->lock && (w->kind == USER_READ || w->kind == USER_WRITE) && kind == USER_MUTEX)
			return 0;
		if (w->lock)
			s->drop_nest++; /* its end was missed */
		s->lock_events++;
		w->begin = now;
		w->off = r->off;
		w->kind = kind;
		w->stack = walk_user_lock(ctx, p, now);
		w->lock = lock;
		return 0;
	}
	/* Not of one whose begin was missed, nor of the mutex in an rwlock. */
	if (w->lock != lock || w->kind != kind)
		return 0;
	__u64 all = now > w->begin ? now - w->begin : 0;
	__u64 off = r->off - w->off;
	__u64 block = off < all ? off : all;

	w->lock = 0;
	add_lock(lock_slot(s, lock, 0, p->tgid, KIND_USER | kind), all - block, block);
	if (w->stack)
		add_lock(lock_slot(s, lock, w->stack, p->tgid, KIND_USER | kind), all - block, block);
	return 0;
}

struct super_block {
	u32 s_dev;
} __attribute__((preserve_access_index));
struct inode {
	unsigned long i_ino;
	u32 i_generation;
	struct super_block *i_sb;
} __attribute__((preserve_access_index));
struct file {
	struct inode *f_inode;
} __attribute__((preserve_access_index));
struct linux_binprm {
	struct file *file;
} __attribute__((preserve_access_index));

/*
 * A program that was not seen before may bring a file with tracepoints. Only such are told: a build farm begins
 * thousands of processes a second, of few programs.
 */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *p, pid_t old, struct linux_binprm *bprm)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_rec *r = get(p, now);

	if (!r)
		return 0;
	/* A wait of the old program never ends. */
	r->user.lock = 0;
	if (!r->target && !cfg_all)
		return 0;
	struct inode *inode = BPF_CORE_READ(bprm, file, f_inode);
	__u64 device = (__u64)BPF_CORE_READ(inode, i_sb, s_dev) << 32;
	if (!first_sight(BPF_CORE_READ(inode, i_ino) ^ device ^ (__u64)BPF_CORE_READ(inode, i_generation) << 24))
		return 0;
	struct event_head *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	if (!e) {
		struct cpu_slot *s = slot();
		if (s)
			s->drop_ring++;
		return 0;
	}
	head(e, EV_EXEC, p, now);
	bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* ---- exact microstates (threads) ---- */

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long id)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (!r || !r->target)
		return 0;
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

	if (!r || !r->target)
		return 0;
	if (r->state != USR)
		micro(r, USR, bpf_ktime_get_ns());
	r->on_state = USR;
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(page_fault_user, unsigned long address, struct pt_regs *regs, unsigned long error_code)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (!r || !r->target)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	if (r->state == TRP) {
		/* The last fault's end was not seen (perf throttles): its length is unknown. */
		struct cpu_slot *s = slot();
		if (s)
			s->lost_fault_end++;
		r->state = USR;
	}
	micro(r, TRP, now);
	r->on_state = TRP;
	r->instr = (error_code & 16) != 0;
	return 0;
}

static __always_inline int fault_end(bool major)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (!r || !r->target)
		return 0;
	if (major)
		r->majf++;
	else
		r->minf++;
	if (r->on_state == TRP) {
		micro(r, USR, bpf_ktime_get_ns());
		r->on_state = USR;
	}
	return 0;
}

SEC("perf_event")
int fault_minor(void *ctx)
{
	return fault_end(false);
}

SEC("perf_event")
int fault_major(void *ctx)
{
	return fault_end(true);
}

SEC("tp_btf/signal_deliver")
int BPF_PROG(signal_deliver, int sig)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (r && r->target)
		r->sig++;
	return 0;
}

/* ---- timers ---- */

/* cpu-clock on every CPU: what the CPU is executing. */
SEC("perf_event")
int sample(void *ctx)
{
	struct cpu_slot *s = slot();
	struct task_struct *p = bpf_get_current_task_btf();

	if (!s || !observing)
		return 0;
	/* The timer's own interrupt is not what the CPU was at. */
	__u32 depth = s->depth, state;
	if (depth && depth <= IRQ_NEST && s->irq[MASK(depth - 1, 3)] == AT_HARDIRQ) {
		s->depth = depth - 1;
		state = at(s);
		s->depth = depth;
	} else {
		state = at(s);
	}
	if (state == AT_IDLE || state == AT_SELF)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	charge(s, now);
	__u32 zero = 0;
	struct stack_event *e = bpf_map_lookup_elem(&scratch, &zero);
	if (e) {
		head(&e->head, EV_SAMPLE, p, now);
		e->where = state;
		e->id = 0;
		e->weight = 1;
		walk(ctx, e, true, e->head.tgid != 0 && state != AT_OTHER);
		__u64 key = (__u64)e->head.tgid << 48 ^ 0x5a5a;
		emit_stack(e, first_sight(key) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	}
	/* Walking was our doing, not the interrupt's. */
	__u64 end = bpf_ktime_get_ns();
	s->at[AT_SELF] += end - now;
	s->last = end;
	return 0;
}

struct sum {
	__s32 waiting[8];
	__u32 idle;
	__u32 running;
};

static long add_cpu(__u32 cpu, struct sum *sum)
{
	struct cpu_slot *s = bpf_map_lookup_elem(&cpu_slots, &cpu);

	if (!s)
		return 1;
	if (!s->last)
		return 0; /* never seen: offline */
	for (int i = 0; i < WAIT_N; i++)
		sum->waiting[i] += s->waiting[i];
	if (s->base == AT_IDLE)
		sum->idle++;
	else if (s->base == AT_TARGET)
		sum->running++;
	return 0;
}

/* One CPU's timer looks at all CPUs: what are the idle ones idle for? */
SEC("perf_event")
int leader(void *ctx)
{
	struct sum sum = {};
	__u64 now = bpf_ktime_get_ns();
	__u64 before = leader_last;

	leader_last = now;
	if (!observing || !before || now <= before)
		return 0;
	bpf_loop(cfg_cpus, add_cpu, &sum, 0);
	__u64 dt = now - before;
	__u32 idle = sum.idle;
	__u32 active = sum.running;

	for (int w = WAIT_RUNQ; w <= WAIT_IO; w++) {
		__u32 n = sum.waiting[w] > 0 ? sum.waiting[w] : 0;
		active += n;
		if (n > idle)
			n = idle;
		idle_ns[w - 1] += (__u64)n * dt;
		idle -= n;
	}
	idle_ns[active ? IDLE_SERIAL : IDLE_ASLEEP] += (__u64)idle * dt;
	if (sum.waiting[WAIT_RUNQ] > 0)
		runnable_ns += (__u64)sum.waiting[WAIT_RUNQ] * dt;
	leader_ticks++;
	return 0;
}

/* ---- reading out ---- */

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

	if (!p || bpf_task_storage_get(&tasks, p, 0, 0))
		return 0;
	__u64 now = bpf_ktime_get_ns();
	struct task_rec *r = get(p, now);
	if (r && r->target && !p->__state)
		r->state = p->on_cpu ? r->on_state : LAT;
	return 0;
}

SEC("iter/task")
int dump_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct seq_file *seq = ctx->meta->seq;

	if (!p)
		return 0;
	struct task_rec *r = bpf_task_storage_get(&tasks, p, 0, 0);
	if (!r || !r->target)
		return 0;
	struct thread_out t = {};
	thread_out(&t, r, p);
	/* The state it is in now, up to now, without touching the record its CPU writes. */
	__u64 now = bpf_ktime_get_ns();
	__u64 since = r->since;
	if (now > since)
		t.micro[MASK(r->state, 7)] += now - since;
	bpf_seq_write(seq, &t, sizeof(t));
	return 0;
}
