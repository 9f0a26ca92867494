/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Goroutines that wait for a lock: they are parked in user space, and their thread goes on with another goroutine or
 * sleeps if there is none. Probes on Go's slow path see when a goroutine is parked and when it goes on.
 */
#ifndef NCPU_GO_LOCKS_H
#define NCPU_GO_LOCKS_H

#include "settings.h"
#include "goroutines.h"
#include "cpu_states.h"
#include "threads.h"
#include "kernel_locks.h"
#include "probe_counts.h"
#include "user_locks.h"

struct go_wait {
	__u64 lock;
	__u64 begin;
	__u64 stack;
	__u32 tgid;
	__u32 kind;	/* enum user_lock */
};

/* By goroutine. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct go_wait);
} go_waits SEC(".maps");

static __always_inline void go_event(struct pt_regs *ctx, __u64 cookie)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);
	struct cpu_slot *s = slot();
	__u64 g = 0, now = bpf_ktime_get_ns();
	__u32 kind = cookie >> 8 & 0xff;

	if (!s || !r || !r->target || !observing || bpf_probe_read_kernel(&g, sizeof(g), (void *)ctx + GO_G))
		return;
	__u64 key = (__u64)p->tgid << 48 ^ g;
	struct go_wait *before = bpf_map_lookup_elem(&go_waits, &key);
	if ((cookie & 0xff) == USER_BEGIN) {
		struct go_wait w = { .begin = now, .tgid = p->tgid, .kind = kind };

		if (bpf_probe_read_kernel(&w.lock, sizeof(w.lock), (void *)ctx + GO_ARG) || !w.lock)
			return;
		if (before) {
			/* With a larger stack the function begins anew; else an end was missed. */
			if (before->lock != w.lock) {
				before->lock = w.lock;
				before->begin = now;
				before->kind = kind;
				s->drop_nest++;
			}
			return;
		}
		w.stack = walk_user_lock(ctx, s, p, now);
		if (bpf_map_update_elem(&go_waits, &key, &w, BPF_NOEXIST))
			s->drop_lock++;
		else
			__sync_fetch_and_add(&s->waiting[WAIT_ULOCK], 1);
		return;
	}
	if (!before)
		return;
	__u64 ns = now > before->begin ? now - before->begin : 0;
	__u64 lock = before->lock, stack = before->stack;

	if (bpf_map_delete_elem(&go_waits, &key))
		return;
	__sync_fetch_and_add(&s->waiting[WAIT_ULOCK], -1);
	add_lock(lock_slot(s, lock, 0, p->tgid, KIND_USER | kind), 0, ns, 1);
	if (stack)
		add_lock(lock_slot(s, lock, stack, p->tgid, KIND_USER | kind), 0, ns, 1);
}

SEC("uprobe")
int go_lock(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);

	if ((cookie & 0xff) == USER_GAUGE)
		return 0;
	__u64 begin = hit(GO_PROBES);
	go_event(ctx, cookie);
	hit_done(GO_PROBES, begin);
	return 0;
}

struct going {
	struct cpu_slot *s;
	__u64 now;
};

/* Ends a wait of unknown length: `wakes` counts such waits. */
static __always_inline void cut_wait(struct lock_slot *l, __u64 ns)
{
	if (!l)
		return;
	l->wakes++;
	l->block += ns;
}

static long let_go(void *map, __u64 *key, struct go_wait *w, struct going *going)
{
	struct go_wait wait = *w;
	__u64 ns = going->now > wait.begin ? going->now - wait.begin : 0, which = *key;

	if (bpf_map_delete_elem(&go_waits, &which))
		return 0;
	__sync_fetch_and_add(&going->s->waiting[WAIT_ULOCK], -1);
	cut_wait(lock_slot(going->s, wait.lock, 0, wait.tgid, KIND_USER | wait.kind), ns);
	if (wait.stack)
		cut_wait(lock_slot(going->s, wait.lock, wait.stack, wait.tgid, KIND_USER | wait.kind), ns);
	return 0;
}

/*
 * The probes are gone, and with them the ends of the waits in progress: these end here. Run by user space when no probe is
 * attached.
 */
SEC("raw_tp")
int let_goroutines_go(void *ctx)
{
	struct cpu_slot *s = slot();
	struct going going = { s, bpf_ktime_get_ns() };

	if (s)
		bpf_for_each_map_elem(&go_waits, let_go, &going, 0);
	return 0;
}

#endif
