// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * `ncpu dose`: makes a place of the program slower by a known, small amount, and counts what the program gets done.
 *
 * A dose is a spin on the clock. It is given only to the observed program's threads, only until `dose_until`, so that a window
 * ends by itself when user space does not, and a CPU spins for at most `cfg_most_spun` of each `cfg_window`. Links go with the
 * process that holds them, so nothing stays after kill -9.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "target.h"
#include "syscall.h"
#include "table.h"
#include "doses.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile __u64 cfg_window = 100000000;
const volatile __u64 cfg_most_spun = 50000000;

/* Set by user space, window by window. */
__u32 dose_place;
__u32 dose_number;	/* the system call, softirq or interrupt */
__u32 dose_ns;
__u32 surveying;	/* calls and locks are timed */
__u64 dose_until;	/* CLOCK_MONOTONIC */
__u64 dose_lock;	/* the chosen lock; 0: those of chosen_locks */

/* A spin that has looked at the clock this often has taken longer than any dose. */
#define MOST_LOOKS 8192

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dose_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, CALLS);
	__type(key, __u32);
	__type(value, struct dose_call);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LOCKS_A_CPU);
	__type(key, __u32);
	__type(value, struct dose_lock);
} locks SEC(".maps");

/* The chosen locks, by address; written by user space alone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, CHOSEN_LOCKS);
	__type(key, __u64);
	__type(value, __u32);
} chosen_locks SEC(".maps");

/* What a survey remembers of a thread. */
struct thread_now {
	__u64 call_began;
	__u64 switches;
	__u64 lock;
	__u64 lock_began;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_now);
} threads SEC(".maps");

static __always_inline struct dose_slot *own_slot(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&slots, &cpu);
}

/*
 * Whether a thread is the program's: of a process that came to this CPU again, as it was. Locks are held meanwhile, so this is to
 * be quick.
 */
static __always_inline bool is_of_program(struct dose_slot *s, struct task_struct *p)
{
	__u32 tgid = p->tgid;

	if (s->tgid == tgid)
		return s->is_target;
	bool is = is_target(p);

	/* An interrupt that comes between leaves a number that does not fit: it must find none. */
	s->tgid = 0;
	barrier();
	s->is_target = is;
	barrier();
	s->tgid = tgid;
	return is;
}

struct spin {
	__u64 end, now;
};

static long look_at_clock(__u64 i, struct spin *spin)
{
	spin->now = bpf_ktime_get_ns();
	return spin->now >= spin->end;
}

/* A hit of the chosen place: counted, and made slower while a window is open. */
static __always_inline void hit(struct dose_slot *s)
{
	s->hits++;
	/* A dose of 0 reads the clock at least as often as any other, so that the difference is the spin alone. */
	__u32 ns = dose_ns;
	__u64 began = bpf_ktime_get_ns();
	if (began >= dose_until)
		return;
	if (began - s->window >= cfg_window) {
		s->window = began;
		s->window_spun = 0;
	}
	if (s->window_spun >= cfg_most_spun) {
		s->refused++;
		return;
	}
	struct spin spin = { .end = began + ns, .now = began };
	bpf_loop(MOST_LOOKS, look_at_clock, &spin, 0);
	s->doses++;
	s->spun += spin.now - began;
	s->window_spun += spin.now - began;
}

/* A call that lost its CPU took longer than its own time, as one that slept did. */
static __always_inline __u64 switches_of(struct task_struct *p)
{
	return p->nvcsw + p->nivcsw;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_call, struct pt_regs *regs, long nr)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!surveying || !is_target(p))
		return 0;
	struct thread_now *t = bpf_task_storage_get(&threads, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return 0;
	t->switches = switches_of(p);
	t->call_began = bpf_ktime_get_ns();
	return 0;
}

/* Whether a process returns from the call that made it, or as a program starts in it. */
static __always_inline bool begins_process(struct task_struct *p, __u64 nr, long ret)
{
	if (nr == NR_execve || nr == NR_execveat)
		return true;
	return ret == 0 && p->pid == p->tgid &&
	       (nr == NR_clone || nr == NR_clone3 || (int)nr == NR_fork || (int)nr == NR_vfork);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_call_end, struct pt_regs *regs, long ret)
{
	struct task_struct *p = bpf_get_current_task_btf();
	__u64 nr = call_number(regs);

	struct dose_slot *s = own_slot();
	if (nr >= CALLS || !s || !is_of_program(s, p))
		return 0;
	s->calls++;
	__u32 key = bpf_get_smp_processor_id() * CALLS + nr;
	struct dose_call *c = bpf_map_lookup_elem(&calls, &key);
	if (!c)
		return 0;
	c->count++;
	if (surveying) {
		struct thread_now *t = bpf_task_storage_get(&threads, p, NULL, 0);
		if (t && t->call_began) {
			__u64 took = bpf_ktime_get_ns() - t->call_began;
			c->whole++;
			c->whole_ns += took;
			if (t->switches == switches_of(p)) {
				c->awake++;
				c->ns += took;
			}
			t->call_began = 0;
		}
	}
	if (dose_place == PLACE_CALL && dose_number == nr)
		hit(s);
	else if (dose_place == PLACE_PROCESS && begins_process(p, nr, ret))
		hit(s);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_process_end, struct task_struct *p)
{
	struct dose_slot *s = own_slot();

	if (s && dose_place == PLACE_PROCESS && p->pid == p->tgid && is_of_program(s, p))
		hit(s);
	return 0;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(on_contention, void *lock, unsigned int flags)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!surveying || !is_target(p))
		return 0;
	/* No storage is made here: an interrupt may have come between. A thread that makes calls has some. */
	struct thread_now *t = bpf_task_storage_get(&threads, p, NULL, 0);
	if (t && t->lock != (__u64)lock) {
		t->lock = (__u64)lock;
		t->lock_began = bpf_ktime_get_ns();
	}
	return 0;
}

static __always_inline struct dose_lock *lock_row(__u64 lock)
{
	__u32 base = bpf_get_smp_processor_id() * LOCKS_A_CPU;
	__u32 i = lock * SPREAD >> 32;

	for (int probe = 0; probe < PROBES; probe++) {
		__u32 key = base + ((i + probe) & (LOCKS_A_CPU - 1));
		struct dose_lock *l = bpf_map_lookup_elem(&locks, &key);
		if (!l)
			return NULL;
		if (!l->lock)
			l->lock = lock;
		if (l->lock == lock)
			return l;
	}
	return NULL;
}

SEC("tp_btf/contention_end")
int BPF_PROG(on_contention_end, void *lock, int ret)
{
	__u64 address = (__u64)lock;
	struct task_struct *p = bpf_get_current_task_btf();

	if (surveying) {
		struct dose_slot *s = own_slot();
		if (!s || !is_target(p))
			return 0;
		struct dose_lock *l = lock_row(address);
		if (!l) {
			s->drop_lock++;
			return 0;
		}
		l->count++;
		struct thread_now *t = bpf_task_storage_get(&threads, p, NULL, 0);
		if (t && t->lock == address) {
			l->wait += bpf_ktime_get_ns() - t->lock_began;
			t->lock = 0;
		}
		return 0;
	}
	/* An acquisition that failed holds nothing. */
	if (dose_place != PLACE_LOCK || ret)
		return 0;
	if (dose_lock ? dose_lock != address : !bpf_map_lookup_elem(&chosen_locks, &address))
		return 0;
	struct dose_slot *s = own_slot();
	if (s && is_of_program(s, p))
		hit(s);
	return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_fault)
{
	if (!is_target(bpf_get_current_task_btf()))
		return 0;
	struct dose_slot *s = own_slot();
	if (!s)
		return 0;
	s->faults++;
	if (dose_place == PLACE_FAULT)
		hit(s);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *woken)
{
	if (!is_target(woken))
		return 0;
	struct dose_slot *s = own_slot();
	if (!s)
		return 0;
	s->wakeups++;
	if (dose_place == PLACE_WAKEUP)
		hit(s);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_end, unsigned int number)
{
	struct dose_slot *s = own_slot();

	if (s && dose_place == PLACE_SOFTIRQ && dose_number == number)
		hit(s);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_end, int number)
{
	struct dose_slot *s = own_slot();

	if (s && dose_place == PLACE_IRQ && dose_number == (__u32)number)
		hit(s);
	return 0;
}

static __always_inline int of_function(void)
{
	struct dose_slot *s = own_slot();

	if (s && dose_place == PLACE_FUNCTION && is_of_program(s, bpf_get_current_task_btf()))
		hit(s);
	return 0;
}

SEC("uprobe")
int on_function(void *ctx)
{
	return of_function();
}

SEC("uretprobe")
int on_function_end(void *ctx)
{
	return of_function();
}


/* The function by which the program's work is counted. */
SEC("uprobe")
int on_progress(void *ctx)
{
	struct dose_slot *s = is_target(bpf_get_current_task_btf()) ? own_slot() : NULL;

	if (s)
		s->progress++;
	return 0;
}
