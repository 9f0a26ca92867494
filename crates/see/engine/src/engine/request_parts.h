/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The parts of a request of a client: what it waited for, and which thread ended that.
 */
#ifndef NCPU_REQUEST_PARTS_H
#define NCPU_REQUEST_PARTS_H

#include "settings.h"
#include "threads.h"
#include "kernel_locks.h"
#include "peers.h"
#include "thread_time.h"

#define TCP 6
#define NOT_IPV4 0x7f000006 /* 127.0.0.6, as in peers.h */

#define SAME_KIND 2 /* parts of one kind that are kept apart: small ones of it leave room for other kinds */

/* Adds time to a request's part: the one of the same object, a free one, or the least of the same kind. */
APART int add_request_part(struct client_request *q, struct task_rec *r, __u32 life, __u64 what, __u64 ns)
{
	if (!q || !r || !ns)
		return 0;
	struct request_part *into = NULL, *kind = NULL;
	__u32 kinds = 0;

	for (int i = 0; i < REQUEST_PARTS; i++) {
		struct request_part *p = &q->part[i];
		if (into)
			break;
		if (i >= q->parts || !p->ns) {
			if (kinds >= SAME_KIND)
				break;
			into = p;
			if (i >= q->parts)
				q->parts = i + 1;
			p->what = what;
			p->life = life;
			p->ns = 0;
			p->sent = 0;
			p->longest = 0;
			p->futex = 0;
			p->place = 0;
			p->class = 0;
			p->event = 0;
			p->holder = 0;
		} else if (p->life == life && p->what == what) {
			into = p;
		} else if (p->life == life) {
			kinds++;
			if (!kind || p->ns < kind->ns)
				kind = p;
		}
	}
	if (!into) {
		/* Of several things the sum counts, and has a name where nearly all of it is one thing's. */
		into = kind ?: &q->part[REQUEST_PARTS - 1];
		if (into->life != life) {
			into->life = LIFE_REST;
			into->what = 1;
			into->futex = 0;
		} else if (ns >> 3 >= into->ns) {
			into->what = what;
			into->longest = 0;
		} else if (into->ns >> 3 < ns) {
			into->what = 1;
			into->futex = 0;
		}
	}
	into->ns += ns;
	__u64 us = ns / 1000;
	if (us >= into->longest) {
		into->longest = us;
		if (life < LIFE_N) {
			into->holder = r->woken_by == WAKER_UNSEEN ? 0 : r->woken_by;
			into->futex = into->what == 1 ? 0 : r->what_futex;
			into->place = r->place;
			into->class = in_user(r) ? FUTEX_LOCK : r->futex_word >> 16;
			into->event = r->event;
		}
	}
	return 0;
}

/*
 * A request waited from `from` to `to` for another thread: for what that slept for last, as far as the sleep lies in that time, and
 * else for the thread itself.
 */
APART int waited_for_thread(struct client_request *q, struct task_rec *r, struct waker_sleep *w, __u64 from, __u64 to)
{
	if (!q || !r || !w || to <= from)
		return 0;
	__u64 begin = w->from > from ? w->from : from, end = w->to < to ? w->to : to;
	/* Objects are those of the process. */
	bool same = w->tgid == (__u32)(bpf_get_current_pid_tgid() >> 32);
	__u64 slept = same && end > begin ? end - begin : 0, what = w->what ?: 1;

	/* Another process has written to a pipe. */
	__u32 rest = same ? w->rest : LIFE_PIPE;

	add_request_part(q, r, rest, 1, to - from - slept);
	if (slept)
		add_request_part(q, r, w->life, what, slept);
	for (int i = 0; i < REQUEST_PARTS; i++) {
		struct request_part *p = &q->part[i];
		if (i >= q->parts)
			break;
		if (p->life == rest && p->what == 1 && rest != REQUEST_UNREAD) {
			p->holder = w->waker;
		} else if (slept && p->life == w->life && p->what == what) {
			p->holder = w->holder;
			p->futex = what == 1 ? 0 : w->futex;
			p->place = w->place;
			p->class = w->class;
			p->event = w->event;
		}
	}
	return 0;
}

/*
 * Threads tell an event loop of their process that they are done by writing to an eventfd or a pipe, or a socket whose other end the
 * loop has. The last write is kept by the eventfd, pipe or socket that is read.
 */
struct signal {
	__u64 at;	/* ns; 0: nothing was written */
	struct waker_sleep by;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* the loader makes it larger */
	__type(key, __u64);
	__type(value, struct signal);
} signals SEC(".maps");

__u32 any_aside; /* a thread has set a request aside */

static __always_inline void write_signal(struct task_rec *r, __u64 key)
{
	struct signal now = { .at = bpf_ktime_get_ns() };

	keep_sleep(&now.by, r);
	now.by.ours = 1;
	now.by.rest = REQUEST_THREAD;
	bpf_map_update_elem(&signals, &key, &now, BPF_ANY);
}

/* What an eventfd or a pipe that is a descriptor of a thread is known by; 0: it is neither. */
APART __u64 signal_of(__u64 task, __u32 fd)
{
	struct file *file = file_of(task, fd);

	if (!file)
		return 0;
	__u32 type = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
	return !type || type == S_IFIFO ? (__u64)BPF_CORE_READ(file, private_data) : 0;
}

/* The other end of a connection that the program has opened. 0: it is none. */
static __always_inline __u64 opened_to(struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	if (family == AF_UNIX)
		return PEER(PEER_UNKNOWN, 0, 0);
	if ((family != AF_INET && family != AF_INET6) || sk->sk_protocol != TCP)
		return 0;
	__u32 address = family == AF_INET6 ? 0 : __builtin_bswap32(sk->__sk_common.skc_daddr);
	return PEER(PEER_SERVER, address ?: NOT_IPV4, __builtin_bswap16(sk->__sk_common.skc_dport));
}

#endif
