/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the engine's BPF programs and user space share; mirrored by src/engine/raw.rs. */
#ifndef NCPU_ENGINE_H
#define NCPU_ENGINE_H

/* Where a CPU is. Every nanosecond of every CPU is charged to exactly one of these. */
enum where {
	AT_IDLE,
	AT_TARGET,	/* a thread of the observed program */
	AT_OTHER,	/* another program */
	AT_SELF,	/* ncpu itself, its samplers included */
	AT_SPIN,	/* the program, in a kernel lock's slow path, on CPU */
	AT_HARDIRQ,
	AT_SOFTIRQ,
	AT_TLB,		/* answering a TLB shootdown of another CPU */
	AT_N,
};

/* Why a thread of the program is off CPU. Order is the order in which idle CPUs are explained. */
enum wait {
	WAIT_NONE,
	WAIT_RUNQ,	/* runnable, on a run queue */
	WAIT_KLOCK,	/* blocked in a kernel lock */
	WAIT_ULOCK,	/* blocked in a futex that is a lock */
	WAIT_IO,	/* in_iowait, or asleep inside a page fault */
	WAIT_SLEEP,	/* anything else: pipe, poll, timer, child, condition */
	WAIT_N,
};

/* What an idle CPU is idle for: the first that holds, one waiting thread a CPU. */
enum idle {
	IDLE_RUNQ,	/* a thread was runnable on another CPU's queue */
	IDLE_KLOCK,
	IDLE_ULOCK,
	IDLE_IO,
	IDLE_SERIAL,	/* the program was active with fewer threads than CPUs */
	IDLE_ASLEEP,	/* no thread of the program was active */
	IDLE_N,
};

/* prstat -m's microstates. */
enum micro { USR, SYS, TRP, TFL, DFL, LCK, SLP, LAT, MICRO_N };

#define IRQ_NEST 3	/* softirq, interrupt, one more; arrays hold 4 so that & 3 bounds them */
#define LOCK_NEST 4
#define SYSCALLS 512
#define STACK_MAX 64
#define CALLER_STACK 24

/* A spinlock waited for. It neither sleeps nor moves, so a CPU has at most one at each level. */
struct spin_wait {
	__u64 lock;
	__u64 begin;		/* ns */
	__u64 stack;		/* hash of the caller's stack, when walked */
	__u32 kind;		/* LCB_F_* */
	__u32 timed;
};

/* One per CPU, written by that CPU alone; user space reads it by mmap. */
struct cpu_slot {
	__u64 last;		/* ns, when the state below began */
	__u64 at[AT_N];		/* ns */
	__u32 base;		/* enum where of the current task */
	__u32 depth;		/* interrupt nesting */
	__u8 irq[4];		/* enum where of each nested level */
	__u8 spinning[4];	/* whether a spinlock is waited for at each level; 0 is the task's */
	__s32 waiting[8];	/* net threads of the program this CPU saw begin less end a wait */
	__u64 switches;
	__u64 tlb_sent;
	__u64 tlb_received;
	__u64 lock_events;
	__u64 off_walk;
	__u64 drop_lock;	/* lock table full */
	__u64 drop_nest;	/* locks or interrupts nested deeper than the tables */
	__u64 drop_task;	/* no memory for a task's record */
	__u64 drop_ring;	/* ring buffer full */
	__u64 lost_fault_end;	/* a fault whose end was not seen; its time went to USR */
	__u64 irqs;
	__u64 softirqs;
	__u64 waits;		/* sleeping locks the current task waits for */
	__u64 ended;		/* ns when the spinlock's wait of the current level ended; 0: it has not,
				 * 1: it has, untimed */
	__u64 window;		/* ns, when the count of waits below began */
	__u32 window_waits;
	__u32 time_mask;	/* one spinlock's wait in mask + 1 is timed */
	__u64 mean_spin;	/* ns, of the waits timed lately */
	struct spin_wait done;	/* a wait not yet in the lock table; none where its lock is 0 */
	__u64 done_spin;	/* ns */
	__u64 done_tgid;
	struct spin_wait spin[4];
	__u64 task;		/* the task seen to run last */
	__u64 unseen;		/* switches that the kernel did not trace */
} __attribute__((aligned(128)));

/* One per (lock, stack) and CPU; the key is the first three members. */
struct lock_slot {
	__u64 lock;		/* address; a user address where kind says futex */
	__u64 stack;		/* 0 in exact rows, the hash of the caller's stack in sampled rows */
	__u32 tgid;		/* of the waiter */
	__u32 kind;		/* LCB_F_* flags, or KIND_FUTEX */
	__u64 count;
	__u64 spin;		/* ns on CPU */
	__u64 block;		/* ns off CPU */
	__u64 max;		/* ns, longest wait */
	__u32 holder;		/* tid that most of the wait is blamed on (majority vote) */
	__u32 futex;		/* op | private << 8 | class << 16 of the last futex wait */
	__u64 vote;		/* ns, weight of the vote */
	__u64 wakes;
	__u64 timed;		/* waits that spin is the time of; fewer than count where there are many */
};

#define KIND_FUTEX 0x80000000u
#define KIND_USER 0x10000000u /* | enum user_lock: a lock of libncpu; holder, vote and wakes as of a futex */
#define KIND_OFF 0x40000000u /* | enum wait: time off CPU by stack */
#define KIND_SLEEP 0x20000000u /* sleeps with a timeout: lock is the call's number + 1, spin the time asked for,
				* block the time slept, wakes the threads */

/* Locks that tell of their waits by static tracepoints, and what these tell. */
enum user_lock { USER_NONE, USER_MUTEX, USER_QUEUE, USER_READ, USER_WRITE };
enum user_event { USER_BEGIN, USER_END };

/* The attach cookie of such a tracepoint: the offset in struct pt_regs of the register that holds the lock. */
#define USER_COOKIE(register, lock, event) ((__u64)(register) << 16 | (lock) << 8 | (event))

/* Futex classes, told by arguments or by a verdict of user space. */
enum futex_class { FUTEX_UNKNOWN, FUTEX_LOCK, FUTEX_SEM, FUTEX_COND };

struct thread_out {
	__u32 tgid, tid, ppid;
	__u32 target;
	__u64 start;		/* ns since boot, the task's start_time */
	__u64 micro[MICRO_N];	/* ns */
	__u64 spin;		/* ns spun in kernel locks, part of SYS */
	__u64 vcx, icx, scl, sig;
	__u64 minf, majf;
	char comm[16];
	char group[16];		/* the thread group leader's comm */
};

enum event { EV_SAMPLE = 1, EV_EXIT, EV_LOCK_STACK, EV_OFF_CPU, EV_FUTEX, EV_USER_STACK, EV_EXEC };

/* Head of every record in the ring buffer. */
struct event_head {
	__u32 kind;
	__u32 cpu;
	__u32 tgid, tid;
	__u64 time;
	char comm[16];
};

struct stack_event {
	struct event_head head;
	__u64 id;		/* lock: hash; off-CPU: ns; futex: address */
	__u32 where;		/* sample: enum where; off-CPU: enum wait; futex: op|private|class */
	__u32 weight;		/* events this one stands for; futex: the value expected */
	__s32 kernel_bytes;
	__s32 user_bytes;
	__u64 frames[2 * STACK_MAX]; /* kernel, then user from frames[kernel_bytes / 8] */
};

struct exit_event {
	struct event_head head;
	struct thread_out thread;
};

#endif
