/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the programs of `doses.bpf.c` share with user space. */
#ifndef NCPU_DOSES_H
#define NCPU_DOSES_H

#include "kernel.h"

/* The place that is made slower. */
enum place {
	PLACE_NONE,
	PLACE_LOCK,	/* the end of a contended acquisition of a kernel lock: it is held then */
	PLACE_CALL,	/* the exit of a system call */
	PLACE_FAULT,	/* a page fault of a program */
	PLACE_WAKEUP,	/* a wake-up, by the thread that wakes */
	PLACE_FUNCTION,	/* a function of a program: its entry, or its return */
	PLACE_SOFTIRQ,	/* the end of a softirq */
	PLACE_IRQ,	/* the end of a device's interrupt */
	PLACE_PROCESS,	/* a process: its first return from the kernel, as a program starts in it, and its end */
};

#define CALLS 512	/* system calls below this number are counted apart */
#define LOCKS_A_CPU 1024	/* locks that a survey counts on a CPU */
#define CHOSEN_LOCKS 4096	/* locks that a dose is for */

/* What a CPU counts. */
struct dose_slot {
	__u64 hits;		/* events of the chosen place by the program */
	__u64 doses;		/* of those: made slower */
	__u64 spun;		/* ns that took */
	__u64 refused;		/* doses left out because the CPU had had its most */
	__u64 faults;
	__u64 wakeups;
	__u64 calls;
	__u64 progress;		/* calls of the function that counts the program's work */
	__u64 drop_lock;	/* contentions of locks that found no room */
	__u32 tgid;		/* the last process that came here, and whether it is the program's */
	__u32 is_target;
	__u64 window;		/* since when `window_spun` is counted */
	__u64 window_spun;
} __attribute__((aligned(128)));

/* A system call, on a CPU. */
struct dose_call {
	__u64 count;
	__u64 awake;		/* calls of a survey in which the thread kept its CPU */
	__u64 ns;		/* time they took */
	__u64 whole;		/* calls of a survey from their beginning to their end, those that slept too */
	__u64 whole_ns;		/* time those took */
};

/* A contended lock, on a CPU. */
struct dose_lock {
	__u64 lock;
	__u64 count;
	__u64 wait;		/* ns, all waits */
};

#endif
