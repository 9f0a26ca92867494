/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Frames of Python, which the stack of C does not tell: its functions run in one loop. They are followed as the stack is
 * taken, from what the process keeps of its threads.
 */
#ifndef NCPU_PYTHON_H
#define NCPU_PYTHON_H

#include "rounds.h"
#include "settings.h"
#include "cpu_states.h"
#include "stack_copies.h"

#define PYTHON_THREADS 256 /* looked at for the current one, once */
#define NO_CFRAME 0xffffffffu
#define TAG 0xffff000000000000ull

/* Where a process keeps them: an address, and offsets in structures. */
struct python {
	__u64 main;	/* the pointer to the main interpreter */
	__u32 threads;	/* in that: its first thread */
	__u32 next;	/* in a thread: the next */
	__u32 thread_id; /* in a thread: its thread pointer */
	__u32 frame;	/* in a thread: its frame, or what has that */
	__u32 cframe;	/* in the latter: the frame; or NO_CFRAME */
	__u32 previous;	/* in a frame: the caller's */
	__u32 code;	/* in a frame: its code object */
	__u32 entry;	/* in a frame: the byte that says whether the loop was called for it */
	__u32 is_entry;	/* the value it has then */
	__u32 name;	/* in a code object: its name */
	__u32 line;	/* in a code object: its first line */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct python);
} pythons SEC(".maps");

/* The state in the interpreter of each thread that has run Python; others have none. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} interpreters SEC(".maps");

static __always_inline __u64 user_word(__u64 at)
{
	__u64 word = 0;

	return bpf_probe_read_user(&word, sizeof(word), (void *)at) ? 0 : word;
}

#if defined(__TARGET_ARCH_arm64)
#define thread_pointer(p) BPF_CORE_READ(p, thread.uw.tp_value)
/* A thread's number in the C library is the address of its `struct pthread`, which ends where the thread pointer points. */
#define is_thread(id, pointer) ((pointer) - (id) < 4096)
#else
#define thread_pointer(p) BPF_CORE_READ(p, thread.fsbase)
#define is_thread(id, pointer) ((id) == (pointer))
#endif

static __always_inline __u64 stack_of(struct task_struct *p)
{
	struct mm_struct *mm = BPF_CORE_READ(p, mm);

	return mm ? BPF_CORE_READ(mm, start_stack) : 0;
}

/* Where the frames of a process are. One that was forked has them where its parent has, until it begins a program. */
static __always_inline struct python *python_of(struct task_struct *task)
{
	__u32 key = task->tgid;
	struct python *at = bpf_map_lookup_elem(&pythons, &key);

	if (at)
		return at;
	struct task_struct *parent = BPF_CORE_READ(task, real_parent);
	key = BPF_CORE_READ(parent, tgid);
	at = bpf_map_lookup_elem(&pythons, &key);
	return at && stack_of(task) == stack_of(parent) ? at : NULL;
}

/* A search through the threads of a process. */
struct thread_search {
	struct python *at;
	__u64 self;	/* the thread pointer looked for */
	__u64 thread;	/* looked at; 0: there is none */
};

static long next_thread(__u32 i, struct thread_search *s)
{
	if (!s->thread || is_thread(user_word(s->thread + s->at->thread_id), s->self))
		return 1;
	s->thread = user_word(s->thread + s->at->next);
	return 0;
}

ROUNDS_OF(next_thread, struct thread_search, PYTHON_THREADS)

/*
 * The current thread's state in the interpreter; 0 where it has none. The verifier would follow a loop of this file through all its
 * rounds, in each program that walks stacks: more than all else that it looks at.
 */
APART __u64 python_thread(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct python *at = python_of(p);
	__u64 self = thread_pointer(p);

	if (!at || !self)
		return 0;
	__u64 *known = bpf_task_storage_get(&interpreters, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (known && *known && is_thread(user_word(*known + at->thread_id), self))
		return *known;
	struct thread_search s = { .at = at, .self = self, .thread = user_word(user_word(at->main) + at->threads) };
	/* The thread is known, or known to be absent, only once the search has ended. */
	__u64 found = ROUNDS(next_thread, &s, PYTHON_THREADS) < PYTHON_THREADS ? s.thread : 0;
	if (known)
		*known = found;
	return found;
}

/*
 * What tells a code object from another that comes to lie where it lay: of its name and first line, above the bits that
 * addresses have.
 */
static __always_inline __u64 tag_of(__u64 code, struct python *at)
{
	__u32 line = 0;

	bpf_probe_read_user(&line, sizeof(line), (void *)(code + at->line));
	return (user_word(code + at->name) ^ (__u64)line << 40) * SPREAD & TAG;
}

/* A walk from a frame to its callers. */
struct frame_walk {
	struct python *at;
	struct copied_stack *c;
	__u64 frame;	/* the next; 0: there is none */
	__u64 hash;
};

static long next_frame(__u32 i, struct frame_walk *w)
{
	__u8 entry = 0;

	if (!w->frame)
		return 1;
	/* Since 3.14 its lowest bits say who counts references to it. */
	__u64 code = user_word(w->frame + w->at->code) & ~3ull;
	bpf_probe_read_user(&entry, sizeof(entry), (void *)(w->frame + w->at->entry));
	code = (code & ~TAG) | tag_of(code, w->at) | (entry == w->at->is_entry);
	w->c->code[MASK(i, 127)] = code;
	w->c->codes = i + 1;
	w->hash = (w->hash ^ code) * SPREAD;
	w->frame = user_word(w->frame + w->at->previous);
	return 0;
}

ROUNDS_OF(next_frame, struct frame_walk, SCRIPT_WORDS)

/* Notes the Python frames of the current thread with its copy. Returns a hash that identifies them, or 0 if there are
 * none. */
APART __u64 python_frames(void)
{
	struct copied_stack *c = copy_room();
	struct task_struct *p = bpf_get_current_task_btf();

	if (!c)
		return 0;
	c->codes = 0;
	struct python *at = python_of(p);
	if (!at)
		return 0;
	__u64 frame = python_thread();
	if (!frame)
		return 0;
	frame = user_word(frame + at->frame);
	if (frame && at->cframe != NO_CFRAME)
		frame = user_word(frame + at->cframe);
	struct frame_walk w = { .at = at, .c = c, .frame = frame };
	ROUNDS(next_frame, &w, SCRIPT_WORDS);
	return w.hash;
}

#endif
