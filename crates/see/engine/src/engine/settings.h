/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What user space sets, before the programs are loaded and while they run; what all parts of the engine stand on. */
#ifndef NCPU_SETTINGS_H
#define NCPU_SETTINGS_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "stack.h"
#include "syscall.h"
#include "locks.h"
#include "target.h"
#include "engine.h"

const volatile __u32 cfg_cpus;		/* possible CPUs */
const volatile __u32 cfg_lock_slots = 1024; /* a CPU's part of the lock table, a power of two */
const volatile __u32 cfg_walks = 200;	/* stacks walked a second on a CPU, of contentions and of waits off CPU each */
const volatile __u32 cfg_asks = 200;	/* futexes handed over a second on a CPU to be judged */
const volatile __u64 cfg_ask_again = 100000000; /* ns between futexes of a CPU that are handed over to be judged again */
const volatile __u32 cfg_stacks = 1;
const volatile __u64 cfg_copy_every;	/* ns between copies of sampled stacks on a CPU; 0: none are copied */
const volatile __u32 cfg_registers;	/* of user code that a timer meets */
const volatile __u32 cfg_lock_all;	/* locks of every thread, not only the program's */
const volatile __u32 cfg_micro;	/* calls and faults are traced */
const volatile __u32 cfg_timer_irq;	/* number of the interrupt of a CPU's timer, where that is as a device's (arm64) */
const volatile __u32 cfg_rq_clock;	/* the scheduler's clock runs with CLOCK_MONOTONIC, and is as fine */
const volatile __u32 cfg_requests;	/* requests of clients are followed */
const volatile __u32 cfg_sleeps;	/* sleeps with a timeout, by call */

/* User space retunes these while running. */
__u64 observe_from = ~0ULL;		/* CLOCK_MONOTONIC, ns: CPU time counts from here */
__u64 observe_until = ~0ULL;		/* to here */
__u32 lock_half;				/* of the lock table: the half that is written now */
__u32 interval;				/* number of the interval at hand */
__u32 walk_all_locks;			/* every contention's stack, whatever it costs */
__u32 calibrating;			/* a process of ncpu that is the program too, to measure what tracing costs; 0: none */
__u32 calls_off;			/* calls and faults are traced no more: a timer samples what threads do */
__u32 user_locks_off;			/* libncpu's locks are traced no more: waits in progress have no end */
__u32 observing;			/* 0 until everything is attached */
__u64 tlb_code;				/* address of the function in which CPUs flush their TLB for others; 0: not known */
/*
 * Contentions are counted while this is even. Where tracing all of them would cost too much, user space attaches the programs
 * for short windows only: it makes this even when they are attached, and odd before it detaches them.
 */
__u32 lock_epoch;
__u64 lock_closed;			/* ns, when it became odd last */
/*
 * Where following all switches would cost too much, user space attaches the programs at wake-ups for short windows only. Outside of
 * them, of a thread that sleeps often one sleep in several is followed, by chance, and stands for the others, which are only timed.
 */
__u32 wakes_off;			/* outside of the windows */
__u32 pass_mask;			/* outside, one sleep in mask + 1 is followed */
__u32 look_weight;			/* a look of the leader in a window stands for this many */
__u64 switch_ns;			/* ns that the kernel takes to call the program at a switch, and those at a wake-up */
__u64 wake_ns;

/*
 * ns from the moment at which an interrupt stops what runs to its handler: of the CPU's own timer, and of others. A virtual CPU leaves
 * its guest meanwhile. 0: not known.
 */
__u64 timer_entry_ns;
__u64 call_entry_ns;
__u32 gauge_tid;			/* the thread of ncpu by which they are measured; 0: none */
__u32 gauge_hits;			/* interrupts that it met */
__u64 gauge_at;				/* ns, when the handler of the last began, and how long it took */
__u64 gauge_ns;

struct tenant_event tenant_events; /* as the one below */
struct request_event slow_requests; /* as the one below */
struct exit_event exits; /* never written: by it the skeleton knows the record's layout */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring SEC(".maps");

#endif
