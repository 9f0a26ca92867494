/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Requests of clients: what a server's threads do between the arrival of a request on a connection and the end of the answer.
 *
 * A request begins with data for the server's end of a connection, and ends with the last write to it before more is read, or
 * before the thread turns to something else. While a thread serves one, its sleeps and its waits for a CPU are put down to the request;
 * the rest is time on CPU, of which system calls are timed. The record lies with the thread. A request that the thread turns away
 * from is set aside, under its socket, until an answer is written by whatever thread.
 *
 * A connection is known by storage of its socket, which goes with it.
 */
#ifndef NCPU_SERVED_H
#define NCPU_SERVED_H

#include "rounds.h"
#include "settings.h"
#include "goroutines.h"
#include "cpu_states.h"
#include "threads.h"
#include "kernel_locks.h"
#include "lengths.h"
#include "peers.h"
#include "queues.h"
#include "thread_time.h"
#include "request_parts.h"
#include "request_kinds.h"

const volatile __u32 cfg_request_slots = 64; /* a CPU's part of the table, a power of two */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct request_slot);
} request_slots SEC(".maps");

enum end_of { END_UNKNOWN, END_SERVER, END_OTHER };

struct connection {
	__u64 arrived;	/* ns, of the first data that nobody has read yet; 0: there is none, or it is not known */
	__u64 kind;	/* of the last request */
	__u64 began;	/* and when it did; 0: there was none */
	__u64 answered;	/* the same of the last that has an answer */
	__u32 tid;	/* that read the last request */
	__u16 end;	/* enum end_of */
	__u8 http2;
	__u8 first;	/* the first byte of the last request, where no more of it has been read; 0: more, or none */
	__u64 parked;	/* what the goroutine that read it had been parked for last, as last_parked_for() has it */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

/* The request that a thread serves. */
struct serving {
	__u64 sock;	/* of its connection; 0: none */
	__u64 entered;	/* ns, when the thread entered the call that it is in; 0: it is in none */
	__u64 off;	/* ns that it had been off CPU by then */
	__u32 fd;	/* of the connection */
	__u32 aside;	/* requests that it has set aside */
	__u32 worker;	/* it answers what others read: without a connection, `request` has what it does since `free` */
	__u32 away;	/* it waits for events, and its request is set aside if it reads another */
	__u64 free;	/* ns, since when it is done with its last request, or was woken for another */
	__u64 busy_until; /* ns, when it was done with a request that took long lately */
	__u64 busy_ns;	/* ns that it worked for it, or waited with it */
	__u64 busy_with; /* enum life or enum request_wait of the longest part of that; REQUEST_WHOLE: it was on CPU */
	__u64 peer;	/* the server of which data were read last, from a connection that the program had opened, in the code of peers; 0: none */
	__u64 peer_came; /* ns, when the data came, and when it was read */
	__u64 peer_read;
	__u64 signal_read; /* ns, when it read `signal` */
	struct signal signal; /* of another thread of its process */
	__u64 stack;	/* of the function whose call is the request: the stack pointer at its entry; 0: it is no call */
	__u64 caller;	/* and the address that it returns to */
	__u64 window;	/* number of the window in which it began */
	struct client_request request;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct serving);
} serving SEC(".maps");

/* Requests that no thread serves at the moment, by socket. Those left longest are forgotten. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* the loader makes it larger */
	__type(key, __u64);
	__type(value, struct client_request);
} requests_aside SEC(".maps");

__u32 any_request;

APART int request_index(__u64 kind, __u64 what, __u64 who)
{
	__u32 part = bpf_get_smp_processor_id() + (lock_half ? cfg_cpus : 0);

	return find_row(&request_slots, part, cfg_request_slots, kind, what, who);
}

/* The bin of a latency: a quarter of its octave. */
static __always_inline __u32 request_bin(__u64 ns)
{
	if (ns < 4)
		ns = 4;
	__u32 octave = octave_of(ns);

	return octave << 2 | ((ns >> (octave - 2)) & 3);
}

/* Whether a thread that answers what others read has been woken by one that has read a request, as it seems. */
static __always_inline bool woken_for_a_request(struct task_rec *r)
{
	if (r->life != LIFE_FUTEX)
		return r->life == LIFE_EVENTS;
	if (in_user(r) || is_lock(r->futex_word >> 16))
		return false;
	/* Other workers and threads end waits that are a part of its work: for what they have, or do. */
	return !r->woken_by || r->woken_by == WAKER_UNSEEN || r->waker_reads;
}

/* The sleep of a thread that serves a request is over. */
static __always_inline void request_slept(struct task_struct *p, struct task_rec *r, __u64 ns)
{
	struct serving *t = bpf_task_storage_get(&serving, p, 0, 0);

	if (!t)
		return;
	if (!t->sock && !t->stack && woken_for_a_request(r)) {
		t->request.parts = 0;
		t->request.system = 0;
		t->free = r->came_from;
		return;
	}
	add_request_part(&t->request, r, r->life, r->what ?: 1, ns);
}

/* The process that ran most of the time on a queue while a thread stood there. */
struct runner {
	__u64 from, end;
	__u64 last;
	__u32 cpu;
	__u32 tgid;
	__u64 vote;
};

static long ran_meanwhile(__u32 n, struct runner *w)
{
	struct cpu_slot *q = bpf_map_lookup_elem(&cpu_slots, &w->cpu);

	if (!q || w->end <= w->from)
		return 1;
	struct span *span = &q->spans[MASK(w->last - n, 31)];
	__u64 since = span->since, begin = since > w->from ? since : w->from, ns;
	__u32 tgid = span->base == AT_IDLE ? 0 : span->tgid;
	if (!since || begin >= w->end)
		return 0;
	ns = w->end - begin;
	VOTE(w->tgid = tgid, w->vote, w->tgid == tgid, ns);
	w->end = begin;
	return 0;
}

ROUNDS_OF(ran_meanwhile, struct runner, SPANS)

APART int runner_of(__u32 cpu, __u64 from, __u64 to)
{
	struct cpu_slot *q = bpf_map_lookup_elem(&cpu_slots, &cpu);

	if (!q || to <= from || to - from < LEAST_QUEUED)
		return 0;
	struct runner w = { .from = from, .end = to, .last = q->span, .cpu = cpu };
	ROUNDS(ran_meanwhile, &w, SPANS);
	return w.tgid;
}

/* A thread that serves a request comes on CPU after it stood on a run queue. */
static __always_inline void request_queued(struct task_struct *p, __u32 cpu, __u64 since, __u64 now, bool throttled)
{
	struct serving *t = bpf_task_storage_get(&serving, p, 0, 0);
	struct task_rec *r = look(p);

	if (!t || !r || now <= since)
		return;
	if (throttled)
		add_request_part(&t->request, r, REQUEST_HELD, 1, now - since);
	else
		add_request_part(&t->request, r, REQUEST_QUEUED, (__u64)(__u32)runner_of(cpu, since, now) + 2, now - since);
}

#define SLOW_WINDOW 100000000 /* ns */
#define SLOW_MOST 16	/* requests of a CPU that are sent in that time, before only slower ones are */

/* Whether a request is one of the slowest lately. */
static __always_inline bool is_slow(struct cpu_slot *s, __u64 now, __u64 ns)
{
	if (now - s->slow_window > SLOW_WINDOW) {
		s->slow_window = now;
		s->slow_sent = 0;
		s->slow_from -= s->slow_from >> 3;
	}
	if (ns <= s->slow_from)
		return false;
	if (++s->slow_sent > SLOW_MOST)
		s->slow_from = ns;
	return true;
}

static __always_inline void send_slow(struct cpu_slot *s, struct client_request *q)
{
	struct request_event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	struct task_struct *p = bpf_get_current_task_btf();

	if (!e) {
		s->drop_ring++;
		return;
	}
	head(&e->head, EV_REQUEST, p, q->answered);
	e->head.tgid = q->tgid;
	e->head.tid = q->tid;
	__builtin_memcpy(&e->request, q, sizeof(*q));
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* A request is over: it is counted by its latency. */
APART int request_over(struct client_request *q)
{
	struct cpu_slot *s = slot();

	if (!s || !q || !q->answered || q->answered <= q->began || q->began < observe_from)
		return 0;
	__u64 ns = q->answered - q->began, off = 0;
	__u32 bin = request_bin(ns);

	add_length_of(q->kind, HALVES(q->tgid, LENGTH_REQUEST), ns, 1);
	for (int i = 0; i < REQUEST_PARTS; i++) {
		struct request_part *p = &q->part[i];
		if (i >= q->parts)
			break;
		/* Two threads may have worked for it at the same time. */
		__u64 part = p->sent < ns - off ? p->sent : ns - off;
		if (!part)
			continue;
		off += part;
		__u32 key = request_index(q->kind, p->what, HALVES(q->tgid, bin | p->life << 8));
		struct request_slot *row = bpf_map_lookup_elem(&request_slots, &key);
		if (!row) {
			s->drop_requests++;
			continue;
		}
		row->count++;
		row->ns += part;
		if (part > row->max)
			row->max = part;
		row->futex = p->futex;
		row->place = p->place;
		row->class = p->class;
		row->event = p->event;
		__u32 by = p->holder;
		if (by)
			VOTE(row->holder = by, row->vote, row->holder == by, part);
	}
	__u32 key = request_index(q->kind, 1, HALVES(q->tgid, bin | REQUEST_WHOLE << 8));
	struct request_slot *row = bpf_map_lookup_elem(&request_slots, &key);
	if (row) {
		__u64 on = ns - off, system = q->system_sent < on ? q->system_sent : on;
		row->count++;
		row->ns += ns;
		row->system += system;
		row->user += on - system;
		if (ns > row->max)
			row->max = ns;
	} else {
		s->drop_requests++;
	}
	if (is_slow(s, q->answered, ns))
		send_slow(s, q);
	return 0;
}

/* Keeps the longest part of a request that is over or left at `until`: what others waited for meanwhile, which the same thread serves. */
APART int keep_busy(struct serving *t, __u64 until)
{
	if (!t || until <= t->request.began)
		return 0;
	struct client_request *q = &t->request;
	__u64 on = until - q->began, most = 0, all = 0, with = REQUEST_WHOLE;

	for (int i = 0; i < REQUEST_PARTS; i++) {
		struct request_part *p = &q->part[i];
		if (i >= q->parts)
			break;
		__u64 ns = q->answered ? p->sent : p->ns;
		on = on > ns ? on - ns : 0;
		/* In these the thread did something else. */
		if (p->life >= REQUEST_UNREAD && p->life < REQUEST_WHOLE)
			continue;
		all += ns;
		if (ns > most) {
			most = ns;
			with = p->life;
		}
	}
	all += on;
	if (on > most)
		with = REQUEST_WHOLE;
	/* Many short ones do not hide a long one before them. */
	if (all * 2 < t->busy_ns && until - t->busy_until < t->busy_ns)
		return 0;
	t->busy_until = until;
	t->busy_ns = all;
	t->busy_with = with;
	return 0;
}

/* What a request waited for from `since` on for `ns` while its thread did something else: the longest part of a request before it + 2, or 1. */
static __always_inline __u64 busy_since(struct serving *t, __u64 since, __u64 ns)
{
	return t->busy_until > since && t->busy_ns * 2 >= ns ? t->busy_with + 2 : 1;
}

/* Keeps the request of the current thread, which has no answer yet, for the thread that will answer it. */
static __always_inline void set_aside(struct serving *t, struct task_rec *r)
{
	struct client_request *q = &t->request;
	__u64 sock = t->sock;

	q->left = t->free = bpf_ktime_get_ns();
	q->events = r->by[LIFE_EVENTS];
	/* It is of the current thread. Linux 6.1 takes what lies in a map for a value, but not what a function was given. */
	struct serving *own = bpf_task_storage_get(&serving, bpf_get_current_task_btf(), 0, 0);
	if (own)
		bpf_map_update_elem(&requests_aside, &sock, &own->request, BPF_ANY);
	t->aside = 1;
	r->sets_aside = 1;
	any_aside = 1;
}

/*
 * The thread waits for events, and its request has no answer yet. It may go on with the request then, which waited for those events; so do
 * threads for a connection, and loops that have nothing else to do.
 */
APART int turn_away(struct serving *t, struct task_rec *r)
{
	if (!t || !r || t->away)
		return 0;
	set_aside(t, r);
	t->away = 1;
	return 0;
}

/* The thread goes on with a request from which it had turned away. */
static __always_inline void turn_back(struct serving *t)
{
	__u64 sock = t->sock;

	if (!t->away)
		return;
	bpf_map_delete_elem(&requests_aside, &sock);
	t->away = 0;
}

/* The thread turns to something else: its request is over if there is an answer, and is set aside otherwise. */
APART int leave_request(struct serving *t, struct task_rec *r)
{
	if (!t || !r || !t->sock)
		return 0;
	struct client_request *q = &t->request;

	if (q->answered) {
		t->free = q->answered;
		request_over(q);
		keep_busy(t, q->answered);
		/* A worker may have begun with the next one, which it is known to serve when it answers. */
		for (int i = 0; i < REQUEST_PARTS; i++) {
			q->part[i].ns -= q->part[i].sent;
			q->part[i].sent = 0;
		}
		q->system = t->worker && q->system > q->system_sent ? q->system - q->system_sent : 0;
		if (!t->worker)
			q->parts = 0;
	} else {
		if (!t->away) {
			set_aside(t, r);
			keep_busy(t, q->left);
		}
		q->parts = 0;
		q->system = 0;
	}
	t->sock = 0;
	t->away = 0;
	t->entered = 0;
	r->serves = t->worker ? SERVES : SERVES_NOT;
	return 0;
}

/*
 * The current thread has served others from `left` to `now`, and goes on with a request that it had set aside; `events` ns of that it slept for
 * events. The server or the thread of which the loop heard last is what the request waited for.
 */
APART int waited_elsewhere(struct serving *t, struct task_rec *r, __u64 left, __u64 now, __u64 events)
{
	if (!t || !r || now <= left)
		return 0;
	struct client_request *q = &t->request;
	__u64 gap = now - left, came = 0;

	if (t->peer && t->peer_read >= r->slept_until && t->peer_read > left && t->peer_read > t->signal_read) {
		came = t->peer_came > left ? t->peer_came : left;
		add_request_part(q, r, LIFE_SOCKET, t->peer, came - left);
		t->peer = 0;
	} else if (t->signal.at > left && t->signal_read >= r->slept_until) {
		came = t->signal.at;
		waited_for_thread(q, r, &t->signal.by, left, came);
	} else {
		came = left + (events < gap ? events : gap);
		add_request_part(q, r, LIFE_EVENTS, 1, came - left);
	}
	gap = now - came;
	add_request_part(q, r, REQUEST_ASIDE, busy_since(t, came, gap), gap);
	return 0;
}

/*
 * The current thread goes on with a request that it has set aside, or that another thread has read. `q` is the request when it was set
 * aside; nothing where its reader has not turned to something else yet. The time in between is a part of it, but for the work of a worker
 * since that was woken for it.
 */
APART int go_on_with(struct serving *t, struct task_rec *r, struct client_request *q, struct connection *c, __u64 now)
{
	if (!t || !r || !c)
		return 0;
	struct client_request *into = &t->request;
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 left = q ? q->left : c->began;

	__u64 since = now, parked = last_parked_for();
	if (parked != NO_GO) {
		/* The thread came for this goroutine, or turned to it when it was done with others. */
		since = r->came > t->free ? r->came : t->free;
		if (since < left || since > now)
			since = now;
	} else if (t->worker && t->free < now) {
		/* What it did before the request came is none of it. Where that was little, its time since then is the request's. */
		if (t->free >= c->began)
			since = t->free;
		else if (c->began - t->free < (now - c->began) / 16)
			since = c->began;
	}
	if (since == now || parked != NO_GO) {
		into->parts = 0;
		into->system = 0;
	}
	__u64 gap = since > left ? since - left : 0;
	if (parked != NO_GO) {
		__u64 from = r->came_from > left ? r->came_from : left;
		__u64 queued = since == r->came && since > from ? since - from : 0;

		if (queued)
			add_request_part(into, r, REQUEST_QUEUED, (__u64)(__u32)runner_of(r->queue, from, since) + 2, queued);
		/* Nothing tells whether it was parked once more for the reason that it had been parked for before. */
		add_request_part(into, r, REQUEST_ASIDE, parked == c->parked ? GO_UNKNOWN : parked, gap - queued);
	} else if (c->tid == tid) {
		waited_elsewhere(t, r, left, now, q ? r->by[LIFE_EVENTS] - q->events : 0);
	} else {
		add_request_part(into, r, REQUEST_HANDED, 1, gap);
		t->worker = 1;
	}
	into->kind = c->kind;
	into->began = c->began;
	into->answered = 0;
	into->tgid = bpf_get_current_pid_tgid() >> 32;
	into->tid = tid;
	if (!q)
		return 0;
	into->system += q->system;
	for (int i = 0; i < REQUEST_PARTS; i++)
		if (i < q->parts)
			add_request_part(into, r, q->part[i].life, q->part[i].what, q->part[i].ns);
	return 0;
}

/* Takes up a request of a connection that the current thread does not serve. Whether there is one. */
APART int take_up_request(struct serving *t, struct task_rec *r, struct connection *c, __u64 sock)
{
	if (!t || !r || !c || !c->began)
		return 0;
	struct client_request *q = bpf_map_lookup_elem(&requests_aside, &sock);
	__u32 tid = bpf_get_current_pid_tgid();

	/* It is the last but one, or was answered before its reader turned to something else. */
	if (q && (q->began != c->began || c->answered == c->began)) {
		bpf_map_delete_elem(&requests_aside, &sock);
		return 0;
	}
	/* It has been answered, or was never read. */
	if (!q && (c->answered == c->began || c->tid == tid))
		return 0;
	__u64 now = bpf_ktime_get_ns();
	leave_request(t, r);
	go_on_with(t, r, q, c, now);
	if (q)
		bpf_map_delete_elem(&requests_aside, &sock);
	t->sock = sock;
	r->serves = SERVES;
	return 1;
}

#define SOCK_STREAM 1

/* Which end of a connection a socket is. One that a listening socket gave birth to has its length of the queue. */
static __always_inline __u32 end_of(struct sock *sk)
{
	__u16 family = sk->__sk_common.skc_family;

	if (family == AF_INET || family == AF_INET6) {
		if (sk->sk_protocol != TCP || sk->__sk_common.skc_state == TCP_LISTEN)
			return END_OTHER;
		return sk->sk_max_ack_backlog ? END_SERVER : END_OTHER;
	}
	if (family != AF_UNIX || sk->sk_type != SOCK_STREAM)
		return END_OTHER;
	/* The name is that of the socket which listened. */
	return BPF_CORE_READ((struct unix_sock *)sk, addr) ? END_SERVER : END_OTHER;
}

/* A request of the current thread begins. */
static __always_inline void new_request(struct client_request *q, __u64 began)
{
	__u64 pid = bpf_get_current_pid_tgid();

	q->began = began;
	q->answered = 0;
	q->system = 0;
	q->system_sent = 0;
	q->tgid = pid >> 32;
	q->tid = pid;
	q->parts = 0;
}

/* A request has its answer for now, after `system` ns more of system calls. */
static __always_inline void answer_request(struct client_request *q, __u64 now, __u64 system)
{
	q->answered = now;
	q->system_sent = q->system + system;
	for (int i = 0; i < REQUEST_PARTS; i++)
		q->part[i].sent = q->part[i].ns;
}

/* Names a request by what the current call has read of it. */
APART int name_request(struct client_request *q, struct connection *c, __u32 bytes, __u32 port)
{
	if (!q || !c)
		return 0;
	__u64 buffer = read_into();
	__u8 before = c->first;

	q->kind = request_kind(buffer, bytes, port, before);
	if ((q->kind >> 56 & 0x7f) == PROTOCOL_HTTP2)
		c->http2 = 1;
	if (c->http2)
		q->kind = 1ull << 63 | (__u64)PROTOCOL_HTTP2 << 56 | (__u64)port << 40;
	c->kind = q->kind;
	if (before || bytes != 1 || bpf_probe_read_user(&c->first, 1, (void *)buffer))
		c->first = 0;
	return 0;
}

/* The rest of a request of which one byte has been read: in Go's HTTP server another goroutine does that, which answers nothing. */
static __always_inline void more_of_first(struct client_request *q, struct connection *c, __u32 bytes, __u32 port)
{
	name_request(q, c, bytes, port);
	c->parked = last_parked_for();
}

/* Data has been read by the current thread: a request begins. */
static __always_inline void begin_request(struct serving *t, struct task_rec *r, struct connection *c, __u64 sock,
					  __u32 port, __u32 bytes, __u64 now)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	struct client_request *q = &t->request;
	__u64 arrived = c->arrived, pid = bpf_get_current_pid_tgid();

	c->tid = pid;
	c->parked = last_parked_for();
	any_request = 1;
	t->sock = sock;
	t->fd = ARG0(regs);
	t->entered = now;
	t->off = off_in_all(r);
	new_request(q, arrived && arrived < now ? arrived : now);
	c->first = 0;
	name_request(q, c, bytes, port);
	c->began = q->began;
	r->serves = SERVES_READ;
	if (q->began == now)
		return;
	/* Between, the thread was woken for it and stood on a queue, or did something else. */
	__u64 from = r->came_from > q->began ? r->came_from : q->began, queued = 0;
	if (r->came > from) {
		queued = r->came - from;
		if (r->came_held)
			add_request_part(q, r, REQUEST_HELD, 1, queued);
		else
			add_request_part(q, r, REQUEST_QUEUED, (__u64)(__u32)runner_of(r->queue, from, r->came) + 2, queued);
	}
	/* One that slept when the request came has been on the way to this call since, unless it served others first. */
	bool slept = r->slept_until >= q->began;
	__u64 work = t->free > q->began && (!slept || t->free > r->came) ? t->free : slept ? r->came : now;
	if (work > now)
		work = now;
	if (work <= q->began + queued)
		return;
	__u64 unread = work - q->began - queued;
	/* Another thread looks for requests, and woke this one to read it. */
	if (slept && work == r->came && r->waker.ours) {
		r->waker.rest = REQUEST_UNREAD;
		waited_for_thread(q, r, &r->waker, work - queued - unread, work - queued);
		return;
	}
	add_request_part(q, r, REQUEST_UNREAD, busy_since(t, q->began, unread), unread);
}

/* The events for which the current thread slept, while it had turned away from a request, are known: takes these sleeps out. */
static __always_inline __u64 take_event_sleeps(struct serving *t)
{
	struct client_request *q = &t->request;
	__u64 ns = 0;

	if (!t->sock || !t->away)
		return 0;
	for (int i = 0; i < REQUEST_PARTS; i++) {
		struct request_part *p = &q->part[i];
		if (i >= q->parts || p->life != LIFE_EVENTS)
			continue;
		ns += p->ns;
		p->ns = 0;
	}
	return ns;
}

/* The current thread, which sets requests aside, reads what another thread of its process may have written. */
APART int read_signal(struct serving *t, struct task_rec *r, __u64 key)
{
	struct signal *s = bpf_map_lookup_elem(&signals, &key);

	if (!t || !r || !s)
		return 0;
	t->signal = *s;
	t->signal_read = bpf_ktime_get_ns();
	__u64 until = t->signal.at, ns = take_event_sleeps(t);
	if (ns)
		waited_for_thread(&t->request, r, &t->signal.by, until - ns, until);
	return 1;
}

/* The current thread has read data from a server: requests that it had set aside, or turned away from, may have waited for that. */
static __always_inline void server_answered(struct task_rec *r, struct sock *sk, __u64 sock, struct connection *c, __u64 now)
{
	struct serving *t = bpf_task_storage_get(&serving, bpf_get_current_task_btf(), 0, 0);
	__u64 peer = opened_to(sk);

	if (!t || !peer || (sk->__sk_common.skc_family == AF_UNIX && read_signal(t, r, sock)))
		return;
	t->peer = peer;
	t->peer_came = c->arrived ?: now;
	t->peer_read = now;
	add_request_part(&t->request, r, LIFE_SOCKET, peer, take_event_sleeps(t));
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(request_read, struct sock *sk, int bytes, int flags)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);

	if (!r || !r->target || !observing || flags & 2 /* MSG_PEEK */)
		return 0;
	__u64 sock = first_word(ctx);
	if (bytes <= 0) {
		/* There is no more: the answer was all. */
		struct serving *t = r->serves ? bpf_task_storage_get(&serving, p, 0, 0) : NULL;
		if (t && t->sock == sock && t->request.answered)
			leave_request(t, r);
		return 0;
	}
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!c)
		return 0;
	if (c->end == END_UNKNOWN)
		c->end = end_of(sk);
	__u64 now = bpf_ktime_get_ns();
	if (c->end != END_SERVER) {
		if (r->sets_aside)
			server_answered(r, sk, sock, c, now);
		c->arrived = 0;
		return 0;
	}
	struct serving *t = bpf_task_storage_get(&serving, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return 0;
	__u32 port = sk->__sk_common.skc_family == AF_UNIX ? 0 : sk->__sk_common.skc_num;
	/* More of the same request. */
	if (t->sock == sock && !t->request.answered && c->answered != c->began) {
		turn_back(t);
		if (c->first)
			more_of_first(&t->request, c, bytes, port);
		c->arrived = 0;
		return 0;
	}
	leave_request(t, r);
	/* It was set aside until there is more of it. */
	if ((c->tid != p->pid || t->aside) && take_up_request(t, r, c, sock)) {
		if (c->first)
			more_of_first(&t->request, c, bytes, port);
		c->arrived = 0;
		c->tid = p->pid;
		t->entered = now;
		t->off = off_in_all(r);
		return 0;
	}
	begin_request(t, r, c, sock, port, bytes, now);
	c->arrived = 0;
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(request_answered, struct sock *sk, int bytes, int flags)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);

	if (!any_request || !r || !r->target || !observing || bytes <= 0)
		return 0;
	__u64 sock = first_word(ctx);
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);
	if (!c || c->end != END_SERVER || !c->began) {
		if (any_aside && sk->__sk_common.skc_family == AF_UNIX && (!c || c->end != END_SERVER))
			write_signal(r, (__u64)BPF_CORE_READ((struct unix_sock *)sk, peer));
		return 0;
	}
	struct serving *t = bpf_task_storage_get(&serving, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t || ((t->sock != sock || t->request.began != c->began) && !take_up_request(t, r, c, sock)))
		return 0;
	__u64 now = bpf_ktime_get_ns();
	if (t->away) {
		/* Another thread has answered it meanwhile. */
		if (c->answered == c->began)
			return 0;
		turn_back(t);
	}
	c->answered = c->began;
	if (!t->entered) {
		t->entered = now;
		t->off = off_in_all(r);
	}
	struct client_request *q = &t->request;
	__u64 off = off_in_all(r) - t->off, in = t->entered && now > t->entered ? now - t->entered : 0;
	answer_request(q, now, in > off ? in - off : 0);
	return 0;
}

/* Data for a connection has come. */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(request_arrives, struct sock *sk)
{
	struct connection *c = bpf_sk_storage_get(&connections, sk, 0, 0);

	if (c && c->end != END_UNKNOWN && !c->arrived)
		c->arrived = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(request_calls, struct pt_regs *regs, long id)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);
	__u64 nr = id, signal = 0;

	if (!r || (!r->serves && !r->sets_aside && !(any_aside && nr == NR_write)))
		return 0;
	if (any_aside && nr == NR_write && !r->sets_aside && r->target) {
		signal = signal_of(bpf_get_current_task(), ARG0(regs));
		if (signal)
			write_signal(r, signal);
	}
	if (!r->serves && !r->sets_aside)
		return 0;
	struct serving *t = bpf_task_storage_get(&serving, p, 0, 0);
	if (!t)
		return 0;
	__u32 reads = nr < SYSCALLS ? call_reads[MASK(nr, 511)] : CALL_OTHER;
	if (r->sets_aside && reads == CALL_READS) {
		signal = signal_of(bpf_get_current_task(), ARG0(regs));
		if (signal)
			read_signal(t, r, signal);
	}
	if (!r->serves)
		return 0;
	bool answered = t->request.answered;
	/* It waits for more work, from this connection or another, or from another thread; one of Go for any goroutine. */
	if (t->sock && (reads == CALL_WAITS || (reads && answered && t->fd == (__u32)ARG0(regs)) ||
			(nr == NR_futex && (answered ? t->worker : is_of_go())))) {
		if (answered || reads != CALL_WAITS || t->worker || is_of_go()) {
			leave_request(t, r);
			return 0;
		}
		turn_away(t, r);
	}
	t->entered = bpf_ktime_get_ns();
	t->off = off_in_all(r);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(request_call_over, struct pt_regs *regs, long ret)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);

	if (!r || !r->serves)
		return 0;
	struct serving *t = bpf_task_storage_get(&serving, p, 0, 0);
	if (!t || !t->entered)
		return 0;
	__u64 now = bpf_ktime_get_ns(), off = off_in_all(r) - t->off, in = now > t->entered ? now - t->entered : 0;
	t->entered = 0;
	if (in > off)
		t->request.system += in - off;
	return 0;
}

#endif
