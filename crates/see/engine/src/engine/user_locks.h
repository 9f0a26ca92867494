/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * User locks with static tracepoints, and the programs that may bring some.
 */
#ifndef NCPU_USER_LOCKS_H
#define NCPU_USER_LOCKS_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"
#include "first_waits.h"
#include "kernel_locks.h"
#include "peers.h"
#include "switches.h"
#include "probe_counts.h"

/* Walks the waiter's user stack, for one wait in `mask + 1`, as with kernel locks. */
static __always_inline __u64 walk_user_lock(void *ctx, struct cpu_slot *s, struct task_struct *p, __u64 now)
{
	if (!cfg_stacks)
		return 0;
	__u32 weight = walk_all_locks ? 1 : walk_now(&s->lock_walks, now, WALK_WINDOW);
	struct stack_event *e = weight ? scratch_of(2) : NULL;
	if (!e)
		return 0;
	__s32 n = bpf_get_stack(ctx, e->frames, 8 * CALLER_STACK, BPF_F_USER_STACK);
	if (n <= 0)
		return 0;
	__u64 id = stack_id(e, n / 8) ^ p->tgid;
	if (first_sight(id)) {
		head(&e->head, EV_USER_STACK, p, now);
		e->detail.id = id;
		e->kernel_bytes = 0;
		e->user_bytes = n;
		emit_stack(e, BPF_RB_NO_WAKEUP);
	}
	return id;
}

/* A wait for a lock of libncpu begins or ends. The thread's time off CPU meanwhile is its blocked time, as
 * with other locks. */
static __always_inline void user_event(struct pt_regs *ctx, __u64 cookie)
{
	struct task_struct *p = bpf_get_current_task_btf();
	/* A thread that has not been switched yet is met later. */
	struct task_rec *r = look(p);
	struct cpu_slot *s = slot();

	if (!observing || !r || !s || !(r->target || cfg_lock_all))
		return;
	__u64 lock = 0, now = bpf_ktime_get_ns();
	__u32 kind = cookie >> 8 & 0xff, at = cookie >> 16;
	struct lock_wait *w = &r->user;

	if (bpf_probe_read_kernel(&lock, sizeof(lock), (void *)ctx + at) || !lock)
		return;
	if ((cookie & 0xff) == USER_BEGIN) {
		/* An rwlock's wait for its mutex is a part of its own. */
		if (r->in_user && (w->kind == USER_READ || w->kind == USER_WRITE) && kind == USER_MUTEX)
			return;
		if (r->in_user)
			s->drop_nest++; /* its end was missed */
		bool first, alone;
		leave_queue(w->queue);
		w->queue = join_queue(p, lock, &first, &alone);
		w->first = first;
		w->woken = 0;
		w->begin = now;
		w->off = off_in_all(r);
		w->kind = kind;
		w->stack = walk_user_lock(ctx, s, p, now);
		w->lock = lock;
		r->in_user = 1;
		return;
	}
	/* Not of one whose begin was missed, nor of the mutex in an rwlock. */
	if (!r->in_user || w->lock != lock || w->kind != kind)
		return;
	__u64 all = now > w->begin ? now - w->begin : 0;
	__u64 off = off_in_all(r) - w->off;
	__u64 block = off < all ? off : all;

	r->in_user = 0;
	leave_queue(w->queue);
	w->queue = 0;
	__u64 until = w->woken ?: now;
	if (w->first && until > w->begin)
		add_first(lock, until - w->begin, HALVES(p->tgid, KIND_USER | kind), FIRST);
	add_lock(lock_slot(s, lock, 0, p->tgid, KIND_USER | kind), all - block, block, 1);
	if (w->stack)
		add_lock(lock_slot(s, lock, w->stack, p->tgid, KIND_USER | kind), all - block, block, 1);
}

SEC("uprobe")
int user_lock(struct pt_regs *ctx)
{
	__u64 begin = hit(USER_PROBES);

	user_event(ctx, bpf_get_attach_cookie(ctx));
	hit_done(USER_PROBES, begin);
	return 0;
}

struct linux_binprm {
	struct file *file;
} __attribute__((preserve_access_index));

/*
 * A program that was not seen before may bring a file with tracepoints. Only new programs are reported: a build
 * farm begins thousands of processes a second, of few programs.
 */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *p, pid_t old, struct linux_binprm *bprm)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_rec *r = get(p, now);

	if (!r)
		return 0;
	/* A wait of the old program never ends. */
	r->in_user = 0;
	leave_queue(r->user.queue);
	r->user.queue = 0;
	if (!r->target && !cfg_all)
		return 0;
	struct inode *inode = BPF_CORE_READ(bprm, file, f_inode);
	__u64 device = (__u64)BPF_CORE_READ(inode, i_sb, s_dev) << 32;
	if (!first_meeting(BPF_CORE_READ(inode, i_ino) ^ device ^ (__u64)BPF_CORE_READ(inode, i_generation) << 24))
		return 0;
	struct event_head *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	if (!e) {
		struct cpu_slot *s = slot();
		if (s)
			s->drop_ring++;
		return 0;
	}
	head(e, EV_EXEC, p, now);
	bpf_ringbuf_submit(e, wake_user_space());
	return 0;
}

#endif
