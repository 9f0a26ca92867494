/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The goroutine that the current thread of a Go program runs, and what it was last parked for: `runtime.g` remembers it.
 */
#ifndef NCPU_GOROUTINES_H
#define NCPU_GOROUTINES_H

#include "settings.h"
#include "cpu_states.h"

/* Go's calling convention: the goroutine, and the first argument. */
#if defined(__TARGET_ARCH_arm64)
#define GO_G (28 * 8)
#define GO_ARG 0
#else
#define GO_G (1 * 8)	/* r14 */
#define GO_ARG (10 * 8) /* rax */
#endif

/* Programs of Go, by process: user space knows them by their files. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} go_programs SEC(".maps");

/* From runtime2.go, Go 1.17 and later. */
struct go_g {
	__u32 status;
	__u32 stack_lock;
	__u64 id;
	__u64 next;
	__u64 wait_since;
	__u8 wait_reason;
} __attribute__((packed));

/* `status` in `runtime.g`. One word more lies before it from Go 1.23, and one less from 1.25. */
static const __u32 go_status_at[] = { 144, 152 };

#define GO_RUNNING 2
#define GO_IN_CALL 3
#define GO_SCANNED 0x1000 /* beside another: the collector reads its stack */

enum { NO_GO, GO_UNKNOWN, GO_REASON }; /* not of Go; no reason is known; 2 + runtime.waitReason */

/* Whether the current thread's program is of Go, as far as it has been looked at. */
static __always_inline bool is_of_go(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	return bpf_map_lookup_elem(&go_programs, &tgid);
}

/* What the goroutine that makes the current system call was last parked for: GO_REASON and more, or that nothing is known. */
APART __u64 last_parked_for(void)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	struct go_g found;
	__u64 g;

	if (!is_of_go())
		return NO_GO;
	if (bpf_probe_read_kernel(&g, sizeof(g), (void *)regs + GO_G) || !g)
		return GO_UNKNOWN;
	for (int i = 0; i < 2; i++) {
		if (bpf_probe_read_user(&found, sizeof(found), (void *)(g + go_status_at[i])))
			return GO_UNKNOWN;
		/* Numbers of goroutines and statuses are small; a pointer in the place of one is large. */
		__u32 status = found.status & ~GO_SCANNED;
		if ((status == GO_RUNNING || status == GO_IN_CALL) && found.id && !(found.id >> 40))
			return GO_REASON + found.wait_reason;
	}
	return GO_UNKNOWN;
}

#endif
