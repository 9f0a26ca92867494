/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What crosscalls.bpf.c and user space share; layout.rs takes its types from the skeleton. */
#ifndef NCPU_CROSSCALLS_H
#define NCPU_CROSSCALLS_H

#include "kernel.h"

enum cause {
	TLB,		/* other CPUs are to drop translations */
	RESCHEDULE,	/* another CPU is to look at its run queue */
	CALL,		/* another CPU is to run a function */
	IRQ_WORK,	/* this CPU or another is to run deferred work */
	CAUSES,
};

#define RECEIVED 0x100u	/* | enum cause: what this CPU answered, not what it sent */
#define USED 0x8000u

/* Where the sender was, in place of a system call's number. */
enum place { AT_NONE = -1, AT_IRQ = -2, AT_BH = -3, AT_FAULT = -4, AT_KTHREAD = -5, AT_IDLE_TASK = -6 };

#define OTHERS 0xffffffffu /* tgid of senders that are not the program's */

/* One per (who, function, stack) and CPU; the key is the first three members. */
struct row {
	__u64 who;	/* tgid << 32 | system call or enum place << 16 | USED | RECEIVED | enum cause */
	__u64 func;	/* what is run; 0 for a TLB flush and a reschedule */
	__u64 stack;	/* 0 in exact rows, the hash of the sender's stack in sampled rows */
	__u64 calls;
	__u64 targets;	/* CPUs asked, of all calls */
	__u64 ipis;	/* interrupts sent: none to a CPU that is polling or has one pending */
	__u64 packages;	/* distinct packages among the targets, of all calls */
	__u64 wait;	/* ns: sent, until the last target had answered; received, in the handler */
	__u64 timed;	/* calls that wait is the time of */
	__u64 waited;	/* calls whose sender waits */
	__u64 max;	/* most targets of a call */
	__u64 longest;	/* ns, of the waits that were timed */
	char comm[16];
};

#define BUCKETS 14	/* of targets a call: 0, 1, 2, 3-4, 5-8 ... 2049-4096 and more */
#define REASONS 8	/* enum tlb_flush_reason has six */
#define WAITED_FOR 32

/* The cross-call a CPU is sending, or the last it sent. */
struct sent {
	__u64 begin;
	__u64 func;
	__u64 callsite;
	__u32 row, walked; /* indices, or -1 */
	__u32 targets;
	__u32 last_cpu;
	__u8 open, cause, sync, gone; /* gone: its interrupts are sent, so it is complete */
	__u8 bucket, mine, pad[2];
	__u64 packages[4];
	struct {
		__u64 cpu, csd;
	} waits[WAITED_FOR];
};

/* One per CPU, written by that CPU alone. */
struct cpu {
	__u64 since;	/* ns, when the interrupt at hand began, or its last function ended; 0 in none */
	__u64 func;	/* the last function it ran */
	__u32 cause;	/* of it; RECEIVED until known */
	__u32 counted;
	__u32 hard, soft;	/* interrupts and softirqs the CPU is in */
	__u64 dropped_rows;
	__u64 dropped_stacks;
	__u64 samples;	/* of the timer, the program's */
	__u64 waiting;	/* those that found it waiting for other CPUs */
	__u64 fanout[CAUSES][BUCKETS];	/* calls */
	__u64 flushes[REASONS];
	__u64 pages[REASONS];	/* but for flushes of everything */
	__u64 whole[REASONS];	/* flushes of everything */
	struct sent sent[3];	/* by a task, a softirq, an interrupt */
} __attribute__((aligned(128)));

#define EXITS 256

/* When a CPU last finished each function that another waited for; the waiting CPU reads it. */
struct exits {
	struct {
		__u64 csd, time;
	} last[EXITS];
};

#endif
