/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Durations of frequent events, as counts in bins. A bin is a thirty-second of its octave or narrower, so its middle is off
 * by 1.6 % at most, and bins of several observations add up exactly.
 *
 * Each kind that every switch counts has an array on each CPU. Lengths by lock, device or call are in a table, with a row
 * for each octave that occurs.
 */
#ifndef NCPU_LENGTHS_H
#define NCPU_LENGTHS_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lengths);
} lengths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct length_slot);
} length_slots SEC(".maps");

const volatile __u32 cfg_length_slots = 64; /* a CPU's part of the table, a power of two */

/* Counts a length of a kind that has an array, `weight` times. */
APART int add_lengths(__u32 of, __u64 ns, __u32 weight)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct lengths *own = bpf_map_lookup_elem(&lengths, &cpu);

	if (!own || of >= LENGTHS_OF)
		return 0;
	if (ns > LONGEST_LENGTH)
		ns = LONGEST_LENGTH;
	__u32 octave = octave_of(ns | 1), row = 0, part = ns;
	if (octave >= LENGTH_BITS) {
		row = octave - LENGTH_BITS + 1;
		part = ns >> (octave - LENGTH_BITS);
	}
	if (row < LENGTH_OCTAVES)
		own->count[of][row][MASK(part, 31)] += weight;
	return 0;
}

static __always_inline void add_length(__u32 of, __u64 ns)
{
	add_lengths(of, ns, 1);
}

APART int length_index(__u64 what, __u64 which, __u64 who)
{
	__u32 part = bpf_get_smp_processor_id() + (lock_half ? cfg_cpus : 0);

	return find_row(&length_slots, part, cfg_length_slots, what, which, who);
}

/* Counts `weight` lengths by what they are of, an enum length_of in `who`'s upper half, and the process in its lower. */
APART int add_length_of(__u64 what, __u64 who, __u64 ns, __u32 weight)
{
	if (ns > LONGEST_LENGTH)
		ns = LONGEST_LENGTH;
	if (ns < LENGTH_PARTS)
		ns = LENGTH_PARTS;
	__u32 octave = octave_of(ns);
	__u32 key = length_index(what ?: 1, octave, who);
	struct length_slot *row = bpf_map_lookup_elem(&length_slots, &key);
	if (row) {
		row->count[MASK(ns >> (octave - LENGTH_BITS), 31)] += weight;
		if (weight > 1)
			row->unseen += weight - 1;
		return 0;
	}
	struct cpu_slot *s = slot();
	if (s)
		s->drop_lengths += weight;
	return 0;
}

/* Calls that are timed from entry to return, a bit each; the programs are loaded where there are any. */
const volatile __u64 cfg_timed_calls[SYSCALLS / 64];

SEC("tp_btf/sys_enter")
int BPF_PROG(timed_call_begins, struct pt_regs *regs, long id)
{
	__u64 nr = id;

	if (nr >= SYSCALLS || !(cfg_timed_calls[MASK(nr >> 6, 7)] >> (nr & 63) & 1))
		return 0;
	struct task_rec *r = look(bpf_get_current_task_btf());
	if (!r || !r->target || !observing)
		return 0;
	r->timed_call = nr + 1;
	r->call_began = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(timed_call_ends, struct pt_regs *regs, long ret)
{
	struct task_rec *r = look(bpf_get_current_task_btf());

	if (!r || !r->timed_call)
		return 0;
	__u64 now = bpf_ktime_get_ns(), call = r->timed_call;
	r->timed_call = 0;
	if (now > r->call_began)
		add_length_of(call + 1, HALVES(0, LENGTH_CALL), now - r->call_began, 1);
	return 0;
}

#endif
