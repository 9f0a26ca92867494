/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The record of each thread: its microstates, and what it waits for.
 */
#ifndef NCPU_THREADS_H
#define NCPU_THREADS_H

#include "settings.h"
#include "in_flight.h"
#include "tenants.h"

struct lock_wait {
	__u64 lock;
	__u64 stack;
	__u64 begin;
	__u64 off;	/* the thread's off-CPU total when the wait began */
	__u64 woken;	/* ns, when it was woken first in this wait; 0: it was not */
	__u32 kind;
	__u16 first;	/* enum first */
	__u16 queue;	/* of a user lock: its place in user_queues + 1 */
	__u16 holder;	/* of a kernel lock: the holder's tenant when the wait began; 0: not known */
	__u64 queued;	/* ns that the thread had stood on run queues before */
};

enum serves {
	SERVES_NOT,
	SERVES,
	SERVES_READ,	/* a request that it has read itself */
};

#define SLEEP_PLACES 4 /* masked by 3 */

/* Where a thread has slept, and what it slept for there when it was followed last. */
struct sleep_place {
	__u32 place;	/* 0: none yet */
	__u8 wait;	/* enum wait */
	__u8 state;	/* enum micro */
};

/* The last sleep of the thread that woke another. */
struct waker_sleep {
	__u64 from, to;	/* ns; 0: nothing is known of it */
	__u64 what, futex;
	__u32 place, class, event;
	__u32 holder;	/* the thread that ended it; 0: not known */
	__u8 life;	/* enum life */
	__u8 ours;	/* the waker is a thread of the same process */
	__u8 rest;	/* enum life or enum request_wait of what the sleep leaves of a wait for it */
	__u32 waker, tgid;
};

/*
 * Whoever wakes a thread writes its record on a CPU of its own, so what wake-ups look at lies together: the first 56 bytes share a
 * line with the word by which the kernel finds the record, and `micro` has the next.
 */
struct task_rec {
	__u64 since;
	__u64 futex;		/* address waited for */
	__u64 off_stack;	/* hash of the stack it went off CPU with, when walked */
	__u64 asked;		/* ns it asked to sleep at most; 0: without end, or not known */
	__u32 state;		/* enum micro now */
	__u32 wait;		/* enum wait, counted in some CPU's waiting[] */
	__u16 queue;		/* the CPU on whose run queue it stands */
	__u8 runnable;		/* enum wait: what its wait was that has ended; WAIT_RUNQ: it was preempted; WAIT_NONE: it is new */
	__u8 stands;		/* waits that its wait stands for; 0: only the time is followed */
	__s16 call;		/* system call it sleeps in */
	__u16 asleep_in;	/* place of its futex, a lock, in user_queues + 1; 0: it sleeps in none */
	__u8 known;
	__u8 target;
	__u8 on_cpu;
	__u8 on_state;		/* USR, SYS or TRP: what it returns to */
	__u8 nlocks;
	__u8 in_user;		/* it waits for `user` below */
	__u8 io_process;	/* while it sleeps until requests are done: its process's row in io_processes + 1 */
	__u8 latches;		/* of PostgreSQL, which waits for its locks in epoll_wait */
	__u64 micro[MICRO_N];
	/* What a thread that falls asleep looks at and changes lies in a line. */
	__u64 vcx, icx;
	__u64 slept;		/* ns, when it fell asleep last */
	struct sleep_place places[SLEEP_PLACES];
	__u8 last_place;	/* of its last sleep that was followed */
	__u8 new_place;		/* the next to be overwritten */
	__u64 spin;
	__u64 scl, sig;
	__u64 minf, majf;	/* the kernel's counts of its faults when the record was made */
	__u64 faults;		/* traced */
	__u64 untraced;		/* ns of USR that are to be divided by the ticks: calls and faults were not traced */
	__u32 ticks[4];		/* of a timer, by USR, SYS and TRP */
	__u64 site;		/* the futex at its place, as a key of `verdicts` */
	__u64 key;		/* by which its verdict was found, or is asked for */
	__u64 slept_in[8];	/* a bit for each call that it has slept in with a timeout in an interval */
	__u32 slept_interval;	/* that interval */
	__u64 semaphore;	/* the last it waited for */
	__u64 unjudged;		/* futex of its last waits, where they ended without a verdict */
	__u64 unjudged_site;
	__u64 unjudged_ns;	/* of those waits, charged to SLP */
	__u64 locked;		/* ns charged to SLP that a verdict came too late for: LCK */
	__u32 futex_word;
	__u32 place;		/* what user space calls such waits */
	__u32 fd;		/* or number, by which its caller knows the lock that its call waits for */
	__u32 event;		/* the lock that PostgreSQL says it waits for, as EVENT of engine.h; 0: none */
	__u32 off_weight;
	__u8 instr;		/* the fault is an instruction fetch */
	__u8 off_wait;
	__u8 ask;		/* nobody has said yet what its futex is */
	__u8 asks_ahead;	/* it has asked for requests that it did not wait for in the call */
	__u8 first;		/* nobody else slept in its futex, a lock, when it fell asleep */
	__u64 peer_sock;	/* the socket in which a thread woke it last that was known to be the other end */
	__u32 peer;		/* that thread's process */
	__u32 peer_cause;	/* enum cause */
	__u64 woken_in;		/* the futex, a lock, that it was woken in last */
	__u64 slept_ns;		/* how long its last wait was */
	__u32 woken_by;		/* the thread that wakes it, where another CPU completes that; 0: not known */
	__u32 lock_epoch;	/* when the waits below began */
	__u64 css_set;		/* its control groups, when its tenant was found */
	__u64 exec_id;		/* and its program */
	__u64 dirtied, read;	/* the kernel's counts of bytes when the record was made */
	__u64 freeing;		/* ns, when it began to free memory for others; 0: it does not */
	__u64 freeing_queued;	/* ns that it had stood on run queues before */
	__u64 held;		/* of its ns on run queues, those for which the limit of its group held it back */
	__u32 holds;		/* and how often that ended */
	__u16 tenant;
	__u16 waits_as;		/* the tenant that its wait is counted for */
	__u8 throttled;		/* it was taken off its CPU because its group's limit is used up */
	__u8 io_device;		/* place of the device that it asked last + 1, and the class of what it asked */
	__u8 io_class;
	__u8 limit;		/* enum limit: whose limit makes it free memory */
	__u8 told;		/* it has ended, and its last record is on the way: a zombie does nothing more */
	struct lock_wait locks[LOCK_NEST];
	struct lock_wait user;	/* a lock of libncpu, while `in_user` */
	/* What follows is written by the thread's own CPU, when it falls asleep and when it comes back. */
	__u64 came;		/* ns, when it came on CPU last; 0: that was not seen */
	__u64 slept_all;	/* ns asleep in all whose reason is known */
	__u64 what;		/* that it waits for, in the code of its enum life */
	__u64 what_futex;	/* the futex that `what` is of; 0: none */
	__u64 role;
	__u64 comm[2];		/* its name when the role was found */
	__u8 life;		/* enum life of the wait at hand, or of the last */
	__u8 waker_life;	/* of who woke it: of its last sleep */
	__u8 waker_reads;	/* its waker had read a request for other threads to answer, or was itself woken by such a thread */
	__s16 waker_call;
	__u32 timed_call;	/* number of the call that it is in + 1, where that is timed */
	__u64 by[LIFE_N];	/* ns off CPU, but for run queues */
	__u64 file_what;	/* what its last wait for a file was, by descriptor and call: it is looked up one time in several */
	__u32 file;
	__s16 file_call;
	__u8 file_life;
	__u8 file_uses;
	__u64 call_began;	/* ns, of `timed_call` */
	__u64 held_asleep;	/* ns that who woke it had slept meanwhile */
	__u64 came_from;	/* ns, when it was put on the queue from which it came */
	__u64 slept_until;	/* ns, when it was woken last */
	__u8 serves;		/* enum serves: it answers a request, and has a record in `serving` */
	__u8 sets_aside;	/* it has turned away from requests before they had an answer: its wakers are of interest */
	__u8 came_held;		/* its group's limit held it back before it came on CPU last */
	struct waker_sleep waker;
};
_Static_assert(__builtin_offsetof(struct task_rec, micro) == 56, "what wake-ups look at is one line");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_rec);
} tasks SEC(".maps");

#define POSTGRES 0x7365726774736f70ull /* its name, as it lies in memory */

/* Whether a thread waits for a lock of libncpu, as far as is known. */
static __always_inline bool in_user(struct task_rec *r)
{
	return r->in_user && !user_locks_off;
}

static __always_inline struct task_rec *look(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

/* The first argument of a tracepoint as a number: the verifier lets nobody reckon with a pointer. */
static __always_inline __u64 first_word(void *ctx)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), ctx);
	return word;
}

/* Whether a thread entered the kernel last by a system call; by a fault or an interrupt otherwise. */
static __always_inline bool in_call(struct task_struct *p)
{
	if (p->flags & PF_KTHREAD)
		return true;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
#if defined(__TARGET_ARCH_arm64)
	return (__s32)regs->syscallno >= 0;
#else
	return (__s64)regs->orig_ax >= 0;
#endif
}

/* Bytes of files that a thread has written, and had read from devices; 0 where the kernel does not count them. */
static __always_inline __u64 bytes_dirtied(struct task_struct *p)
{
	struct task_struct *task = p; /* a macro has a `p` of its own */

	return bpf_core_field_exists(task->ioac.write_bytes) ? BPF_CORE_READ(task, ioac.write_bytes) : 0;
}

static __always_inline __u64 bytes_read(struct task_struct *p)
{
	struct task_struct *task = p;

	return bpf_core_field_exists(task->ioac.read_bytes) ? BPF_CORE_READ(task, ioac.read_bytes) : 0;
}

/* `is_target` of a task's address as a number: the verifier passes no pointers to functions. */
APART int is_of_program(__u64 task)
{
	return is_target((void *)task);
}

/* Begins the record of a thread that was not seen before. `task` is its address as a number. */
APART int begin_record(struct task_rec *r, __u64 task, __u64 now)
{
	struct task_struct *p = (void *)task;

	if (!r)
		return 0;
	__u64 comm[2] = {};
	r->known = 1;
	r->since = now;
	r->state = SLP;
	r->call = -1;
	bpf_core_read(comm, sizeof(comm), &p->comm);
	r->latches = comm[0] == POSTGRES;
	r->target = is_of_program(task) || (calibrating && BPF_CORE_READ(p, tgid) == calibrating);
	r->minf = BPF_CORE_READ(p, min_flt);
	r->majf = BPF_CORE_READ(p, maj_flt);
	if (cfg_tenants) {
		r->dirtied = bytes_dirtied(p);
		r->read = bytes_read(p);
	}
	return 0;
}

static __always_inline struct task_rec *get(struct task_struct *p, __u64 now)
{
	struct task_rec *r = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	/* A record that could not be made now is made at the thread's next event. */
	if (!r)
		return NULL;
	if (!r->known) {
		/* Off CPU it is where it entered the kernel; on CPU it may be back from there: see `settle`. */
		r->on_state = in_call(p) ? SYS : USR;
		r->css_set = (__u64)p;
		begin_record(r, *(volatile __u64 *)&r->css_set, now);
		r->css_set = 0;
	}
	return r;
}

/* Whether anybody asks what this thread does. Of the others it is known that they run, and no more. */
static __always_inline bool followed(struct task_rec *r)
{
	return r->target || cfg_all || cfg_lock_all;
}

/* Charges a thread's time to its state, which it gives, and puts it into the next. */
static __always_inline __u32 micro(struct task_rec *r, __u32 next, __u64 now)
{
	__u64 i = MASK(r->state, 7);

	/* Reading the records may take long. */
	if (now > observe_until)
		now = observe_until;
	/* The scheduler's clock may lag behind the one by which the state began: no time is charged twice. */
	if (now > r->since) {
		r->micro[i] += now - r->since;
		if (calls_off && i == USR)
			r->untraced += now - r->since;
		if (i == LAT && r->throttled)
			r->held += now - r->since;
		r->since = now;
	}
	r->state = next;
	return i;
}

/* ns asleep in all. */
static __always_inline __u64 asleep_in_all(struct task_rec *r)
{
	return r->micro[TFL] + r->micro[DFL] + r->micro[LCK] + r->micro[SLP];
}

/* ns off CPU in all. */
static __always_inline __u64 off_in_all(struct task_rec *r)
{
	return asleep_in_all(r) + r->micro[LAT];
}

/*
 * The return of a call is traced before the kernel is done with it: it may switch to another thread there. A thread that
 * entered the kernel last by a call and is in it has not been in user code since.
 */
static __always_inline void not_back_yet(struct task_rec *r, struct task_struct *p)
{
	/* What is not traced is divided by samples, wherever it ends. */
	if (!calls_off && r->state == USR && in_call(p))
		r->state = SYS;
}

/*
 * A wait for a futex of which nobody has said yet what it is has ended. It is kept
 * until the verdict comes, or another futex is waited for.
 */
static __always_inline void keep_unjudged(struct task_rec *r, __u64 ns)
{
	if (r->unjudged == r->futex && r->unjudged_site == r->site) {
		__sync_fetch_and_add(&r->unjudged_ns, ns);
		return;
	}
	/* `correct_waits` takes no time while this is 0. */
	*(volatile __u64 *)&r->unjudged = 0;
	__sync_lock_test_and_set(&r->unjudged_ns, ns);
	r->unjudged_site = r->site;
	*(volatile __u64 *)&r->unjudged = r->futex;
}

/* Changes of waiting[] by user space, which runs one program at a time. */
__s32 judged[8];

static __always_inline void leave_wait(struct cpu_slot *s, struct task_rec *r)
{
	/* A wait for a futex may just be judged on another CPU: see `correct_waits`. */
	__u32 w = r->futex ? __sync_lock_test_and_set(&r->wait, WAIT_NONE) : r->wait;

	if (w) {
		s->waiting[MASK(w, 7)]--;
		tenant_waits(bpf_get_smp_processor_id(), r->waits_as, w, -1);
	}
	r->wait = WAIT_NONE;
	if (r->io_process) {
		count_asleep(r->io_process - 1, -1);
		r->io_process = 0;
	}
}

APART int end_wait(struct cpu_slot *s, struct task_rec *r)
{
	if (s && r)
		leave_wait(s, r);
	return 0;
}

APART int begin_wait(struct cpu_slot *s, struct task_rec *r, __u32 w)
{
	if (!s || !r)
		return 0;
	leave_wait(s, r);
	if (!r->target)
		return 0;
	r->wait = w;
	s->waiting[MASK(w, 7)]++;
	r->waits_as = r->tenant;
	tenant_waits(bpf_get_smp_processor_id(), r->tenant, w, 1);
	return 0;
}

/* Finds the tenant of a thread that is new, or whose control groups or program have changed. */
APART int set_tenant(struct task_rec *r, __u64 task)
{
	struct task_struct *p = (void *)task;

	if (!r)
		return 0;
	r->css_set = (__u64)BPF_CORE_READ(p, cgroups);
	r->exec_id = BPF_CORE_READ(p, self_exec_id);
	r->tenant = BPF_CORE_READ(p, flags) & PF_KTHREAD ? TENANT_KERNEL : find_tenant(task);
	__u32 pid = BPF_CORE_READ(p, pid), key = pid & (TENANT_PIDS - 1);
	__u32 *known = bpf_map_lookup_elem(&tenant_pids, &key);
	if (known)
		*known = pid >> 16 << 16 | r->tenant;
	return 0;
}

/* The same of a thread that need not be on CPU. As a number: the verifier passes no pointers to functions. */
static __always_inline void set_tenant_of(struct task_rec *r, struct task_struct *p)
{
	r->css_set = (__u64)p;
	set_tenant(r, *(volatile __u64 *)&r->css_set);
}

/* A thread comes on CPU. */
static __always_inline void tenant_comes(struct cpu_slot *s, struct task_rec *r, struct task_struct *p)
{
	if (s->base == AT_NCPU)
		r->tenant = TENANT_NCPU;
	else if (r->css_set != (__u64)p->cgroups || r->exec_id != p->self_exec_id ||
		 (r->tenant == TENANT_OTHERS && !(s->switches & 63))) /* there may be a free number by now */
		set_tenant(r, *(volatile __u64 *)&s->task); /* `p` as a number: the verifier passes no pointers to functions */
	if (s->tenant != r->tenant)
		change_tenant(s, r->tenant);
}

/* Whether a thread that is taken off its CPU, runnable, may not go on because its group has used up its CPU time. */
static __always_inline bool is_throttled(struct task_struct *p)
{
	struct task_struct *task = p; /* a macro has a `p` of its own */

	/* Since Linux 6.18 threads are taken off their queue one by one. */
	if (bpf_core_field_exists(task->throttled))
		return BPF_CORE_READ(task, throttled);
	if (!bpf_core_field_exists(p->se.cfs_rq) || !bpf_core_field_exists(struct cfs_rq, throttle_count))
		return false;
	return p->se.cfs_rq->throttle_count > 0;
}

/* Writes the record of a thread for user space. */
static __always_inline void thread_out(struct thread_out *t, struct task_rec *r, struct task_struct *p)
{
	t->tgid = p->tgid;
	t->tid = p->pid;
	t->ppid = BPF_CORE_READ(p, real_parent, tgid);
	t->target = r->target;
	t->start = p->start_time;
	for (int i = 0; i < MICRO_N; i++)
		t->micro[i] = r->micro[i];
	/* What came too late to be charged, after the observation's end, is not in it. */
	__u64 locked = r->locked < t->micro[SLP] ? r->locked : t->micro[SLP];
	t->micro[SLP] -= locked;
	t->micro[LCK] += locked;
	t->unjudged = r->unjudged;
	t->unjudged_place = r->unjudged_site;
	t->unjudged_ns = r->unjudged_ns;
	t->spin = r->spin;
	t->vcx = r->vcx;
	t->icx = r->icx;
	t->scl = r->scl;
	t->sig = r->sig;
	/* The kernel's own counts hold the faults that no trap began too: MADV_POPULATE_WRITE, mlock, GUP. */
	t->minf = BPF_CORE_READ(p, min_flt) - r->minf;
	t->majf = BPF_CORE_READ(p, maj_flt) - r->majf;
	t->faults = r->faults;
	t->untraced = r->untraced;
	for (int i = 0; i < 4; i++)
		t->ticks[i] = r->ticks[i];
	t->cpus = BPF_CORE_READ(p, cpus_mask.bits[0]);
	t->tenant = r->tenant;
	t->queue = r->state == LAT && !r->throttled ? r->queue + 1 : 0;
	t->held = r->held;
	t->holds = r->holds;
	t->allowed = p->flags & PF_KTHREAD ? 0 : p->nr_cpus_allowed;
	for (int i = 0; i < LIFE_N; i++)
		t->by[i] = r->by[i];
	t->utime = BPF_CORE_READ(p, utime);
	t->stime = BPF_CORE_READ(p, stime);
	t->dirtied = cfg_tenants ? bytes_dirtied(p) - r->dirtied : 0;
	t->read = cfg_tenants ? bytes_read(p) - r->read : 0;
	bpf_core_read(&t->comm, sizeof(t->comm), &p->comm);
	struct task_struct *leader = BPF_CORE_READ(p, group_leader);
	bpf_core_read(&t->group, sizeof(t->group), &leader->comm);
}

#endif
