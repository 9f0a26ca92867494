/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Frames of Python, which the stack of C does not tell: its functions run in one loop. They are followed as the stack is
 * taken, from what the process keeps of its threads. Included by engine.bpf.c.
 */
#ifndef NCPU_PYTHON_H
#define NCPU_PYTHON_H

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

static __always_inline __u64 user_word(__u64 at)
{
	__u64 word = 0;

	return bpf_probe_read_user(&word, sizeof(word), (void *)at) ? 0 : word;
}

#if defined(__TARGET_ARCH_arm64)
#define thread_pointer(p) 0ull
#else
#define thread_pointer(p) BPF_CORE_READ(p, thread.fsbase)
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

/* The current thread's state in the interpreter; 0 where it has none. */
APART __u64 python_thread(struct task_rec *r)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct python *at = python_of(p);
	__u64 self = thread_pointer(p);

	if (!r || !at || !self)
		return 0;
	if (r->python && user_word(r->python + at->thread_id) == self)
		return r->python;
	r->python = 0;
	__u64 thread = user_word(user_word(at->main) + at->threads);
	for (int i = 0; i < PYTHON_THREADS; i++) {
		if (!thread)
			return 0;
		if (user_word(thread + at->thread_id) == self) {
			r->python = thread;
			return thread;
		}
		thread = user_word(thread + at->next);
	}
	return 0;
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

/* Notes the frames of Python of the current thread with its copy; what tells them from others, 0 where there are none. */
APART __u64 python_frames(struct task_rec *r)
{
	struct copied_stack *c = copy_room();
	struct task_struct *p = bpf_get_current_task_btf();

	if (!c)
		return 0;
	c->codes = 0;
	struct python *at = python_of(p);
	if (!at || !r)
		return 0;
	__u64 frame = python_thread(r), hash = 0, n = 0;
	if (!frame)
		return 0;
	frame = user_word(frame + at->frame);
	if (frame && at->cframe != NO_CFRAME)
		frame = user_word(frame + at->cframe);
	for (int i = 0; i < PYTHON_FRAMES; i++) {
		if (!frame)
			break;
		__u8 entry = 0;
		__u64 code = user_word(frame + at->code);

		bpf_probe_read_user(&entry, sizeof(entry), (void *)(frame + at->entry));
		code = (code & ~TAG) | tag_of(code, at) | (entry == at->is_entry);
		c->code[i] = code;
		hash = (hash ^ code) * SPREAD;
		frame = user_word(frame + at->previous);
		n = i + 1;
	}
	c->codes = n;
	return hash;
}

#endif
