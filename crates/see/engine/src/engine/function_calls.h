/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Calls of functions of the program (`--request`), from entry to return: each is a request of its thread.
 *
 * The return is seen at the instructions that return, and not by a uretprobe: that replaces the return address, by which the unwinders of
 * C++, Rust and Go no longer find the caller, and a program that throws an exception through the function ends. Such an instruction
 * ends the call if the stack pointer and the return address are those of the entry.
 *
 * Of calls within a call the outermost counts.
 */
#ifndef NCPU_FUNCTION_CALLS_H
#define NCPU_FUNCTION_CALLS_H

#include "probe_counts.h"
#include "served.h"

enum call_event { CALL_BEGINS, CALL_RETURNS };

/* The attach cookie of a probe is function << 8 | event. */

__u64 call_window;	/* number of the times that the probes were attached: a call that began in another one has no end */

/* The address that the function returns to, at its entry and at the instruction that returns. */
static __always_inline __u64 returns_to(struct pt_regs *ctx)
{
	__u64 to = 0;

#if defined(__TARGET_ARCH_arm64)
	to = ctx->regs[30];
#else
	if (bpf_probe_read_user(&to, sizeof(to), (void *)ctx->sp))
		return 0;
#endif
	return to;
}

static __always_inline void function_begins(struct pt_regs *ctx, __u64 function)
{
	struct task_struct *p = bpf_get_current_task_btf();
	__u64 now = bpf_ktime_get_ns(), sp = ctx->sp;
	struct task_rec *r = get(p, now);
	struct probe_counts *counts = probe_counts_here();

	if (!r || !r->target || !observing || !counts)
		return;
	struct serving *t = bpf_task_storage_get(&serving, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return;
	if (t->stack && t->window == call_window) {
		if (sp < t->stack)
			return;
		/* Its frame is gone: an exception was thrown through it, or it jumped elsewhere. */
		__sync_fetch_and_add(&counts->calls_left, 1);
	}
	__sync_fetch_and_add(&counts->calls_begun, 1);
	struct client_request *q = &t->request;
	t->stack = sp;
	t->caller = returns_to(ctx);
	t->window = call_window;
	t->entered = 0;
	q->kind = 1ull << 63 | (__u64)PROTOCOL_CALL << 56 | function;
	new_request(q, now);
	r->serves = SERVES;
}

static __always_inline void function_returns(struct pt_regs *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);
	struct probe_counts *counts = probe_counts_here();

	if (!r || !r->serves || !observing || !counts)
		return;
	struct serving *t = bpf_task_storage_get(&serving, p, 0, 0);
	if (!t || !t->stack || t->window != call_window || t->stack != ctx->sp || t->caller != returns_to(ctx))
		return;
	struct client_request *q = &t->request;
	answer_request(q, bpf_ktime_get_ns(), 0);
	t->stack = 0;
	r->serves = SERVES_NOT;
	__sync_fetch_and_add(&counts->calls_returned, 1);
	request_over(q);
}

SEC("uprobe")
int function_call(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx), begin = hit(FUNCTION_PROBES);

	if ((cookie & 0xff) == CALL_BEGINS)
		function_begins(ctx, cookie >> 8);
	else
		function_returns(ctx);
	hit_done(FUNCTION_PROBES, begin);
	return 0;
}

/* The probes are gone: calls in progress have no end. Run by user space. */
SEC("raw_tp")
int forget_calls(void *ctx)
{
	call_window++;
	return 0;
}

#endif
