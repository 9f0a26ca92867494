/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs of `ncpu timers` and user space share; layout.rs takes its types from the skeleton. */
#ifndef NCPU_TIMERS_H
#define NCPU_TIMERS_H

#include "kernel.h"

#define KIND_HRTIMER 1
#define KIND_WHEEL 2
#define TGID_INTERRUPT 0xffffffffu	/* armed by an interrupt, not by the process it hit */

/* One per (function, stack, process, kind) and CPU; the key is the first four members. */
struct timer_row {
	__u64 function;		/* address of the handler; 0 where the row is free */
	__u64 stack;		/* 0 in exact rows, the hash of the armer's stack in sampled rows */
	__u32 tgid;		/* of the armer */
	__u32 kind;
	__u64 starts;		/* in sampled rows these stand for all, by the sampling rate at the time */
	__u64 cancels;		/* taken off their queue: to expire, by a cancel, or to be armed anew */
	__u64 expires;
	__u64 distance;		/* ns from arming to the time asked for, summed over starts */
	__u64 distance_min;
	__u64 distance_max;
	__u64 handler;		/* ns in the handler */
	__u64 handler_max;
	char comm[16];		/* of the process */
	__u64 weight;		/* of the last start in a sampled row, for its end */
};

/* An armed timer, and its owner. */
struct armed {
	__u64 timer;		/* address, the lowest bit set once it is off its queue */
	__u32 row;		/* place of the exact row */
	__u32 sampled;		/* place of the sampled row, or none: the same */
};
#define ARMED_WAYS 4		/* together a cache line */
#define ARMED_BUCKETS 16384

/* What a CPU does. Every nanosecond is charged to exactly one of these. */
enum doing {
	DO_IDLE,
	DO_PROGRAM,	/* a thread of a program: user code and system calls */
	DO_KSOFTIRQD,
	DO_RCU,		/* RCU's threads */
	DO_KWORKER,
	DO_MIGRATION,
	DO_KTHREAD,	/* another kernel thread */
	DO_TIMER_IRQ,	/* the timer interrupt, but for the handlers below */
	DO_TICK,	/* the tick's handler */
	DO_HRTIMER,	/* other handlers of timers of high resolution */
	DO_SOFTIRQ,	/* the kernel's ten softirqs follow */
	DO_N = DO_SOFTIRQ + 10,
};

#define DO_DEPTH 8

struct cpu_doing {
	__u64 last;		/* ns, when the state below began */
	__u64 task;		/* the task the base is of */
	__u64 at[DO_N];		/* ns */
	__u32 base;
	__u32 depth;		/* nesting of interrupts */
	__u8 nest[DO_DEPTH];	/* enum doing of each level */
	__u64 ticks;		/* handlers of ticks run */
	__u64 jiffies;		/* ticks in which the kernel's time advanced */
	__u64 jiffies_before;
	__u64 drop;		/* nested deeper than the table */
} __attribute__((aligned(128)));

#endif
