/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Frames of JavaScript in V8, as Node.js has it: code made at run time has no symbols, and the interpreter's is the same for all
 * functions. But each frame keeps the function that it is of, at a fixed place.
 */
#ifndef NCPU_V8_H
#define NCPU_V8_H

#include "rounds.h"
#include "settings.h"
#include "stack_copies.h"
#include "python.h"

#define JS_DEPTH 96 /* frames looked at, those of C++ among them */
#define HEAP_OBJECT 1 /* the lowest bit of what points to one */

/* Where a process has what tells its functions: offsets in objects. */
struct v8 {
	__u32 shared;	/* in a function: what all its closures share */
	__u32 name;	/* in that: its name */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct v8);
} v8s SEC(".maps");

/* A walk from a frame to its callers. */
struct js_walk {
	struct v8 *at;
	struct copied_stack *c;
	__u64 frame;	/* the next */
	__u64 pc;	/* where its code is */
	__u64 hash;
};

static long next_js(__u32 i, struct js_walk *w)
{
	__u64 words[4]; /* the function, its context, the caller's frame, and where that goes on */
	__u64 n = w->c->codes;

	if (w->frame & 7 || n > SCRIPT_WORDS - 2 || bpf_probe_read_user(words, sizeof(words), (void *)(w->frame - 16)))
		return 1;
	/* Frames of other kinds have a small number for the context. What only looks like one, user space tells. */
	if (words[0] & words[1] & HEAP_OBJECT) {
		__u64 shared = user_word(words[0] - HEAP_OBJECT + w->at->shared);

		if (shared & HEAP_OBJECT) {
			/* What tells it from another that comes to lie there. */
			__u64 tag = user_word(shared - HEAP_OBJECT + w->at->name) * SPREAD & TAG;

			shared = (shared & ~TAG) | tag;
			w->c->code[MASK(n, 127)] = w->pc;
			w->c->code[MASK(n + 1, 127)] = shared;
			w->c->codes = n + 2;
			w->hash = (w->hash ^ w->pc ^ shared) * SPREAD;
		}
	}
	if (words[2] <= w->frame)
		return 1;
	w->frame = words[2];
	w->pc = words[3];
	return 0;
}

ROUNDS_OF(next_js, struct js_walk, JS_DEPTH)

/* Notes the functions of JavaScript of the current thread with its copy, each behind the address of its code. Returns a hash that
 * identifies them, or 0 if there are none. */
APART __u64 js_frames(void)
{
	struct copied_stack *c = copy_room();
	struct task_struct *p = bpf_get_current_task_btf();
	__u32 key = p->tgid;
	struct v8 *at = bpf_map_lookup_elem(&v8s, &key);

	if (!c || !at || p->flags & PF_KTHREAD)
		return 0;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	struct js_walk w = { .at = at, .c = c };
#if defined(__TARGET_ARCH_arm64)
	w.frame = regs->regs[29];
	w.pc = regs->pc;
#else
	w.frame = regs->bp;
	w.pc = regs->ip;
#endif
	c->codes = 0;
	ROUNDS(next_js, &w, JS_DEPTH);
	return w.hash;
}

/* The functions of a language whose frames the stack of C does not tell. */
static __always_inline __u64 script_frames(void)
{
	return python_frames() ?: js_frames();
}

#endif
