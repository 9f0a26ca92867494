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

const volatile __u32 cfg_request_slots = 64; /* a CPU's part of the table, a power of two */
const volatile __u8 call_reads[SYSCALLS]; /* of system calls: enum call_reads */

enum call_reads {
	CALL_OTHER,
	CALL_READS,	/* from a descriptor into a buffer: its arguments 0 and 1 */
	CALL_READS_PARTS, /* into an array of buffers */
	CALL_READS_MESSAGE, /* struct msghdr */
	CALL_WAITS,	/* for more work: on several descriptors, or for a connection */
};

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
	__u32 pad;
	__u64 free;	/* ns, since when it is done with its last request, or was woken for another */
	__u64 busy_until; /* ns, when it was done with a request that took long lately */
	__u64 busy_ns;	/* ns of the longest part of that */
	__u64 busy_with; /* enum life or enum request_wait of this part; REQUEST_WHOLE: it was on CPU */
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
			into->futex = into->what == 1 ? 0 : r->futex;
			into->place = r->place;
			into->class = in_user(r) ? FUTEX_LOCK : r->futex_word >> 16;
			into->event = r->event;
		}
	}
	return 0;
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

/* Keeps the longest part of a request that is over: what others waited for meanwhile, which the same thread serves. */
APART int keep_busy(struct serving *t)
{
	if (!t)
		return 0;
	struct client_request *q = &t->request;
	__u64 on = q->answered - q->began, most = 0, with = REQUEST_WHOLE;

	for (int i = 0; i < REQUEST_PARTS; i++) {
		if (i >= q->parts)
			break;
		__u64 ns = q->part[i].sent;
		on = on > ns ? on - ns : 0;
		if (ns > most && q->part[i].life != REQUEST_UNREAD) {
			most = ns;
			with = q->part[i].life;
		}
	}
	if (on > most) {
		most = on;
		with = REQUEST_WHOLE;
	}
	/* Many short ones do not hide a long one before them. */
	if (most * 2 < t->busy_ns && q->answered - t->busy_until < t->busy_ns)
		return 0;
	t->busy_until = q->answered;
	t->busy_ns = most;
	t->busy_with = with;
	return 0;
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
		keep_busy(t);
		/* A worker may have begun with the next one, which it is known to serve when it answers. */
		for (int i = 0; i < REQUEST_PARTS; i++) {
			q->part[i].ns -= q->part[i].sent;
			q->part[i].sent = 0;
		}
		q->system = t->worker && q->system > q->system_sent ? q->system - q->system_sent : 0;
		if (!t->worker)
			q->parts = 0;
	} else {
		__u64 sock = t->sock;
		q->left = t->free = bpf_ktime_get_ns();
		q->events = r->by[LIFE_EVENTS];
		/* It is of the current thread. Linux 6.1 takes what lies in a map for a value, but not what a function was given. */
		struct serving *own = bpf_task_storage_get(&serving, bpf_get_current_task_btf(), 0, 0);
		if (own)
			bpf_map_update_elem(&requests_aside, &sock, &own->request, BPF_ANY);
		t->aside = 1;
		q->parts = 0;
		q->system = 0;
	}
	t->sock = 0;
	t->entered = 0;
	r->serves = t->worker ? SERVES : SERVES_NOT;
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
		__u64 events = q ? r->by[LIFE_EVENTS] - q->events : 0;
		if (events > gap)
			events = gap;
		add_request_part(into, r, LIFE_EVENTS, 1, events);
		add_request_part(into, r, REQUEST_ASIDE, 1, gap - events);
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

#define TCP 6
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

#define VERB 8	/* letters */
#define HEAD 31	/* bytes that are looked at */

static __always_inline __u64 letter(__u8 c)
{
	c |= 0x20;
	return c >= 'a' && c <= 'z' ? c - 'a' + 1 : 0;
}

static __always_inline bool between(__u8 c)
{
	return (c >= '0' && c <= '9') || c == '\r' || c == '\n' || c == '$';
}

/* The kind of a request, by its first bytes. `before`: the byte that was read before these; 0: none. */
APART __u64 request_kind(__u64 buffer, __u32 bytes, __u32 port, __u32 before)
{
	__u8 b[HEAD + 2] = { before };
	__u32 from = before ? 1 : 0;
	__u64 protocol = PROTOCOL_UNKNOWN, verb = 0;
	__u32 letters = 0, end = 0;

	if (!buffer || bpf_probe_read_user(b + from, MASK(bytes < HEAD ? bytes : HEAD, 31), (void *)buffer))
		return (__u64)port << 40 | 1ull << 63;
	bool redis = b[0] == '*', skips = redis;
	__u32 size = (__u32)b[1] << 24 | b[2] << 16 | b[3] << 8 | b[4];
	if ((b[0] == 0x16 || b[0] == 0x17) && b[1] == 3) {
		protocol = PROTOCOL_TLS;
	} else if ((b[0] == 'Q' || b[0] == 'P' || b[0] == 'B') && size >= 4 && size < bytes && !b[1]) {
		protocol = PROTOCOL_POSTGRES;
		/* A query; statements with parameters, prepared in the same message or before. */
		verb = b[0] == 'Q' ? 1 : b[0] == 'P' ? 2 : 3;
	} else {
		for (int i = 0; i < HEAD; i++) {
			__u64 l = letter(b[i]);
			if (end || (i == 0 && redis))
				continue;
			if (skips && between(b[i]))
				continue;
			skips = false;
			if (l && letters < VERB) {
				verb = verb << 5 | l;
				letters++;
			} else {
				end = i ?: HEAD;
			}
		}
		__u8 after = b[MASK(end + 1, 15)];
		if (redis && letters)
			protocol = PROTOCOL_REDIS;
		else if (letters >= 3 && b[MASK(end, 15)] == ' ' && (after == '/' || after == '*' || after == 'h'))
			protocol = verb == (16ull << 10 | 18 << 5 | 9) ? PROTOCOL_HTTP2 : PROTOCOL_HTTP; /* PRI */
		else
			verb = 0;
	}
	return 1ull << 63 | protocol << 56 | (__u64)port << 40 | verb;
}

/* Where a call that reads puts what it has read. */
static __always_inline __u64 read_into(void)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u64 nr = call_number(regs), at = ARG1(regs);

	if (nr == NO_CALL)
		return 0;
	__u32 reads = call_reads[MASK(nr, 511)];
	if (reads == CALL_READS)
		return at;
	/* The third member of struct msghdr is the array. */
	if (reads == CALL_READS_MESSAGE && bpf_probe_read_user(&at, sizeof(at), (void *)(at + 16)))
		return 0;
	if (reads == CALL_READS_MESSAGE || reads == CALL_READS_PARTS)
		return bpf_probe_read_user(&at, sizeof(at), (void *)at) ? 0 : at;
	return 0;
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
	bool behind = t->busy_until > q->began && t->busy_ns * 2 >= unread;
	add_request_part(q, r, REQUEST_UNREAD, behind ? t->busy_with + 2 : 1, unread);
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
	if (c->end != END_SERVER)
		return 0;
	struct serving *t = bpf_task_storage_get(&serving, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	__u32 port = sk->__sk_common.skc_family == AF_UNIX ? 0 : sk->__sk_common.skc_num;
	/* More of the same request. */
	if (t->sock == sock && !t->request.answered && c->answered != c->began) {
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
	if (!c || c->end != END_SERVER || !c->began)
		return 0;
	struct serving *t = bpf_task_storage_get(&serving, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t || ((t->sock != sock || t->request.began != c->began) && !take_up_request(t, r, c, sock)))
		return 0;
	__u64 now = bpf_ktime_get_ns();
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

	if (c && c->end == END_SERVER && !c->arrived)
		c->arrived = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(request_calls, struct pt_regs *regs, long id)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_rec *r = look(p);
	__u64 nr = id;

	if (!r || !r->serves)
		return 0;
	struct serving *t = bpf_task_storage_get(&serving, p, 0, 0);
	if (!t)
		return 0;
	__u32 reads = nr < SYSCALLS ? call_reads[MASK(nr, 511)] : CALL_OTHER;
	bool answered = t->request.answered;
	/* It waits for more work, from this connection or another, or from another thread; one of Go for any goroutine. */
	if (t->sock && (reads == CALL_WAITS || (reads && answered && t->fd == (__u32)ARG0(regs)) ||
			(nr == NR_futex && (answered ? t->worker : is_of_go())))) {
		leave_request(t, r);
		return 0;
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
