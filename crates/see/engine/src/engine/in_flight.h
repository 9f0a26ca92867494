/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Requests that processes have in flight without waiting for them, and threads that sleep until some are done. Included
 * by engine.bpf.c.
 *
 * Such a thread is not `in_iowait`: to the scheduler it sleeps as if for a timer. It waits for a device only while its
 * process has requests in flight, which begin and end on any CPU. So each CPU counts what it saw begin less what it saw
 * end, and the leader's timer, which asks what idle CPUs are idle for, takes the sums.
 */
#ifndef NCPU_IN_FLIGHT_H
#define NCPU_IN_FLIGHT_H

#include "settings.h"
#include "cpu_states.h"

const volatile __u32 cfg_io;	/* requests to block devices are traced */

/* Process numbers, 0 where a row is free. User space frees those of processes that have ended. */
__u32 io_processes[IO_PROCESSES];
__u32 io_used;	/* rows that were ever used: the first ones */
/* Threads of io_uring have asked for requests in their stead. User space sets it back with the row: here verifiers lose the loop's bound. */
__u8 io_by_workers[IO_PROCESSES];
__u64 io_left_out; /* processes that found no row */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader makes it one a CPU */
	__type(key, __u32);
	__type(value, struct io_counts);
} io_counts SEC(".maps");

/* A process's row, or -1. */
APART int io_process(__u32 tgid)
{
	__u32 used = *(volatile __u32 *)&io_used;

	for (__u32 i = 0; i < IO_PROCESSES && i < used; i++)
		if (io_processes[i] == tgid)
			return i;
	return -1;
}

/* The same, but one without a row gets one; -1: there is none left. */
APART int io_new_process(__u32 tgid)
{
	int has = io_process(tgid);

	if (has >= 0)
		return has;
	for (__u32 i = 0; i < IO_PROCESSES; i++) {
		__u32 was = io_processes[i];
		if (!was)
			was = __sync_val_compare_and_swap(&io_processes[i], 0, tgid);
		if (was && was != tgid)
			continue;
		/* Another CPU may set it back at the same moment: then the row is found here again. */
		if (*(volatile __u32 *)&io_used <= i)
			*(volatile __u32 *)&io_used = i + 1;
		return i;
	}
	__sync_fetch_and_add(&io_left_out, 1);
	return -1;
}

/* Calls in which a thread waits for what it has asked for: requests to devices, or anything else. */
static __always_inline bool waits_in_ring(int nr)
{
	return nr == NR_io_uring_enter || nr == NR_io_getevents || nr == NR_io_pgetevents;
}

static __always_inline struct io_counts *own_io_counts(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&io_counts, &cpu);
}

/* An interrupt may come in between and end a request: so in one instruction. */
static __always_inline void count_in_flight(int process, int n)
{
	struct io_counts *c = own_io_counts();

	if (c && process >= 0)
		__sync_fetch_and_add(&c->of[MASK(process, 63)].in_flight, n);
}

/* Threads fall asleep and wake with interrupts off. */
static __always_inline void count_asleep(int process, int n)
{
	struct io_counts *c = own_io_counts();

	if (c && process >= 0)
		c->of[MASK(process, 63)].asleep += n;
}

/* Written by the leader's timer alone. */
struct io_counts io_sum;

APART int add_io_of(__u32 cpu)
{
	struct io_counts *c = bpf_map_lookup_elem(&io_counts, &cpu);

	if (!c)
		return 0;
	for (__u32 i = 0; i < IO_PROCESSES && i < io_used; i++) {
		io_sum.of[i].in_flight += c->of[i].in_flight;
		io_sum.of[i].asleep += c->of[i].asleep;
	}
	return 0;
}

/* Threads that wait for requests: of each process no more than it has requests in flight. Empties the sums. */
APART int waiting_for_requests(void)
{
	int n = 0;

	for (__u32 i = 0; i < IO_PROCESSES && i < io_used; i++) {
		__s64 asleep = io_sum.of[i].asleep, in_flight = io_sum.of[i].in_flight;
		if (asleep > in_flight)
			asleep = in_flight;
		if (asleep > 0)
			n += asleep;
		io_sum.of[i].in_flight = 0;
		io_sum.of[i].asleep = 0;
	}
	return n;
}

#endif
