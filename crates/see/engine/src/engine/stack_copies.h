/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Copies of the top of user stacks, which user space unwinds by the tables of the program: C libraries and most
 * distributions' programs keep no frame pointers.
 */
#ifndef NCPU_STACK_COPIES_H
#define NCPU_STACK_COPIES_H

#include "settings.h"
#include "cpu_states.h"

#define COPY_PAGES 3 /* whole ones, behind the rest of the page that the stack pointer is in */

#define SCRIPT_WORDS 128

/*
 * A stack as any, and behind the room for its frames the registers, the frames of a script and the stack from its pointer on.
 */
struct copied_stack {
	struct stack_event e;
	__u64 ip, sp, bp, lr;		/* lr: the link register of arm64 */
	__u64 codes;			/* how many of the following */
	__u64 code[SCRIPT_WORDS];	/* what they are of; see python.h and v8.h */
	__u8 bytes[(COPY_PAGES + 1) * 4096];
};

/* Interrupts are off where stacks are copied, so one a CPU will do. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* the loader makes it one a CPU */
	__type(key, __u32);
	__type(value, struct copied_stack);
} copies SEC(".maps");

static __always_inline struct copied_stack *copy_room(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&copies, &cpu);
}

/* Copies the current thread's registers and stack, page by page up to its end; how many bytes of it. */
APART int copy_stack(void)
{
	struct copied_stack *c = copy_room();
	struct task_struct *p = bpf_get_current_task_btf();

	if (!c || p->flags & PF_KTHREAD)
		return 0;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
#if defined(__TARGET_ARCH_arm64)
	c->ip = regs->pc;
	c->bp = regs->regs[29];
	c->lr = regs->regs[30];
#else
	c->ip = regs->ip;
	c->bp = regs->bp;
	c->lr = 0;
#endif
	__u64 sp = regs->sp;
	__u64 n = MASK(-sp, 0xfff);

	c->sp = sp;
	if (bpf_probe_read_user(c->bytes, n, (void *)sp))
		return 0;
	for (int i = 0; i < COPY_PAGES; i++) {
		if (bpf_probe_read_user(c->bytes + MASK(n, 0x3fff), 4096, (void *)(sp + n)))
			break;
		n += 4096;
	}
	return n;
}

/* Sends a stack with `registers` behind its frames, its frames of Python and `n` bytes of its copy. */
static __always_inline void emit_copied(struct copied_stack *c, __u32 registers, __u64 n, __u64 flags)
{
	__u64 size = __builtin_offsetof(struct copied_stack, bytes) + MASK(n, 0x3fff);
	bool sent;

	if (!n && !c->codes)
		sent = send_stack_with(&ring, &c->e, 8 * registers, flags);
	else
		sent = !bpf_ringbuf_output(&ring, c, size, flags);
	if (!sent) {
		struct cpu_slot *s = slot();
		if (s)
			s->drop_ring++;
	}
}

/* Whether to copy the stack of a timer sample: at most one every cfg_copy_every ns on each CPU. */
static __always_inline bool may_copy(struct cpu_slot *s, __u64 now)
{
	if (!cfg_copy_every || now - s->copied < cfg_copy_every)
		return false;
	s->copied = now;
	return true;
}

#endif
