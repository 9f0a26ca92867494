/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sleeps in system calls: which of them are waits for a user lock, and how long they asked to take.
 */
#ifndef NCPU_FUTEXES_H
#define NCPU_FUTEXES_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"
#include "kernel_locks.h"
#include "call_locks.h"

/* ns asleep by system call number, a row a CPU. */
struct calls {
	__u64 ns[SYSCALLS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct calls);
} sleep_calls SEC(".maps");

static __always_inline void add_sleep(__s16 nr, __u64 ns)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct calls *calls = bpf_map_lookup_elem(&sleep_calls, &cpu);

	if (calls && nr >= 0)
		calls->ns[MASK(nr, 511)] += ns;
}

/* Verdicts of user space on futexes, by futex_key and site_key. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct verdict);
} verdicts SEC(".maps");

static __always_inline __u64 futex_key(struct task_struct *p, __u64 futex)
{
	return (__u64)p->tgid << 48 ^ futex;
}

/* What is known of a futex, or else of it at a place; no word of the stack is looked at. */
static __always_inline struct verdict *verdict(__u64 key, __u64 site)
{
	struct verdict *v = bpf_map_lookup_elem(&verdicts, &key);

	return v && v->class == FUTEX_BY_PLACE ? bpf_map_lookup_elem(&verdicts, &site) : v;
}

static __always_inline bool is_lock(__u32 class)
{
	return class == FUTEX_LOCK || class == FUTEX_SEM_LOCK;
}

/*
 * A semaphore that is posted by a thread which waits for it at other times is a lock; job queues are not. The two words
 * of a condition lie in one unit of eight bytes.
 */
static __always_inline void judge_semaphore(struct task_rec *r, struct task_rec *waker)
{
	if (!waker || (waker->semaphore ^ r->futex) & ~7ull)
		return;
	__u64 key = r->key;
	struct verdict *v = bpf_map_lookup_elem(&verdicts, &key);
	if (v && v->class == FUTEX_SEM)
		v->class = FUTEX_SEM_LOCK;
}

/*
 * The verdict on the wait that the current thread is about to begin. `key` becomes what it is known by, or to be asked
 * for by. Not static, so that the verifier looks at it once and not once a path.
 */
APART int find_verdict(struct task_rec *r)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!r)
		return FUTEX_UNKNOWN;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	__u64 sp = regs->sp, key = futex_key(p, r->futex), site = key ^ sp * SPREAD, word = 0;

	r->site = site;
	r->key = key;
	r->place = 0;
	struct verdict *v = bpf_map_lookup_elem(&verdicts, &key);
	if (!v)
		return -1;
	if (v->class == FUTEX_BY_PLACE) {
		r->key = site;
		v = bpf_map_lookup_elem(&verdicts, &site);
		if (!v)
			return -1;
		if (v->word != NO_WORD && !bpf_probe_read_user(&word, sizeof(word), (void *)(sp + 8ull * v->word)) &&
		    word != v->value) {
			/* Another wait at this place. */
			site ^= word * SPREAD;
			r->key = site;
			v = bpf_map_lookup_elem(&verdicts, &site);
			if (!v)
				return -1;
		}
	}
	r->place = v->place;
	return v->class;
}

/* Where backends of PostgreSQL point to the number of what they wait for, by process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} wait_events SEC(".maps");

/* The same of each backend, once it is known; other threads have none. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} backends SEC(".maps");

/*
 * What the current thread, a backend of PostgreSQL, says that it waits for; 0 where it does not, or where nobody has told
 * yet where it does. A new backend is a copy of its parent. Not static, so that the verifier looks at it once.
 */
APART __u32 wait_event(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	__u64 pointer = 0;
	__u32 info = 0, key = p->tgid;

	__u64 *at = bpf_task_storage_get(&backends, p, 0, 0);
	if (!at) {
		at = bpf_map_lookup_elem(&wait_events, &key);
		if (!at) {
			key = BPF_CORE_READ(p, real_parent, tgid);
			at = bpf_map_lookup_elem(&wait_events, &key);
		}
		if (!at)
			return 0;
		bpf_task_storage_get(&backends, p, at, BPF_LOCAL_STORAGE_GET_F_CREATE);
	}
	if (bpf_probe_read_user(&pointer, sizeof(pointer), (void *)*at) ||
	    bpf_probe_read_user(&info, sizeof(info), (void *)pointer))
		return 0;
	return info;
}

/* What the current thread, which falls asleep, waits for. */
APART int classify_futex(struct task_rec *r)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!r)
		return 0;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	__u64 nr = call_number(regs);

	r->futex = 0;
	r->key = 0;
	r->event = 0;
	r->call = -1;
	/* The registers of a kernel thread are no call's. */
	if (nr == NO_CALL || p->flags & PF_KTHREAD)
		return 0;
	r->call = nr;
	__u32 info = r->latches ? wait_event() : 0, told = FUTEX_UNKNOWN;
	if (info) {
		told = PG_CLASS(info) == PG_LWLOCK || PG_CLASS(info) == PG_LOCK ? FUTEX_LOCK : FUTEX_COND;
		r->event = told == FUTEX_LOCK ? EVENT(info) : 0;
	}
	if (r->latches && (nr == NR_epoll_wait || nr == NR_epoll_pwait || nr == NR_poll)) {
		if (told == FUTEX_COND)
			return 0;
		/* The call stands for a futex: it is a lock at some places. */
		r->futex = nr + 1;
		__s32 found = find_verdict(r);

		r->ask = found < 0;
		if (told == FUTEX_LOCK)
			found = FUTEX_LOCK;
		r->futex_word = found < 0 ? 0 : FUTEX_LOCK << 16;
		if (found >= 0 && !is_lock(found))
			r->futex = 0;
		return 0;
	}
	if (nr != NR_futex) {
		waits_in_call(r, nr);
		return 0;
	}
	__u64 addr = ARG0(regs), op = ARG1(regs);
	__u32 cmd = op & FUTEX_CMD, private = (op >> FUTEX_PRIVATE_SHIFT) & 1, class = FUTEX_UNKNOWN;

	r->futex = addr;
	if (cmd == FUTEX_LOCK_PI || cmd == FUTEX_LOCK_PI2) {
		class = FUTEX_LOCK;
		r->place = 0;
		r->ask = 0;
	} else {
		__s32 found = find_verdict(r);

		r->ask = found < 0;
		if (found > 0)
			class = found;
		if (told)
			class = told;
	}
	if (class == FUTEX_SEM || class == FUTEX_SEM_LOCK)
		r->semaphore = addr;
	r->futex_word = cmd | private << 8 | class << 16;
	return 0;
}

/*
 * How long the current thread, which leaves its CPU in call `nr`, asked to sleep at most, in ns; 0 where it did
 * not. Not static, so that the verifier looks at it once and not once a path.
 */
APART __u64 asked_ns(int nr)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__s64 time[2] = {}, ms = 0;
	__u64 from = 0, micro = 0, now = 0, least = 0;

	switch (nr) {
	case NR_poll:
		ms = (__s32)ARG2(regs);
		break;
	case NR_epoll_wait:
	case NR_epoll_pwait:
		ms = (__s32)ARG3(regs);
		break;
	/* A sleep of no time, or until a moment that has been, has a timer all the same. */
	case NR_nanosleep:
		from = ARG0(regs);
		least = 1;
		break;
	case NR_clock_nanosleep:
		from = ARG2(regs);
		least = 1;
		if (ARG1(regs) & TIMER_ABSTIME) { /* the clock must be the one we read */
			if (ARG0(regs) != CLOCK_MONOTONIC)
				return 0;
			now = bpf_ktime_get_ns();
		}
		break;
	case NR_ppoll:
	case NR_sigtimedwait:
		from = ARG2(regs);
		break;
	case NR_select:
		micro = 1;
		from = ARG4(regs);
		break;
	case NR_pselect6:
	case NR_io_getevents:
		from = ARG4(regs);
		break;
	case NR_epoll_pwait2:
	case NR_semtimedop:
		from = ARG3(regs);
		break;
	case NR_futex: {
		__u64 op = ARG1(regs);

		if ((op & FUTEX_CMD) == FUTEX_WAIT_BITSET) { /* a moment, of CLOCK_MONOTONIC or not */
			if (op & FUTEX_CLOCK_REALTIME)
				return 0;
			now = bpf_ktime_get_ns();
		} else if ((op & FUTEX_CMD) != FUTEX_WAIT) {
			return 0;
		}
		from = ARG3(regs);
		break;
	}
	default:
		return 0;
	}
	if (ms > 0)
		return ms * 1000000;
	/* The thread leaves its CPU now, so its memory is still the one mapped. */
	if (!from || bpf_probe_read_user(time, sizeof(time), (void *)from) || time[0] < 0 || time[0] > 1000000000)
		return 0;
	__s64 ns = time[0] * 1000000000 + (micro ? time[1] * 1000 : time[1]);
	return ns > (__s64)now ? ns - now : least;
}

/* The calls above, a bit each: most calls that sleep are not among them. */
#define BIT_OF(nr, word) ((nr) >= 0 && (nr) / 64 == (word) ? 1ULL << ((nr) & 63) : 0)
#define TIMED(word)                                                                                           \
	(BIT_OF(NR_poll, word) | BIT_OF(NR_epoll_wait, word) | BIT_OF(NR_epoll_pwait, word) |                 \
	 BIT_OF(NR_nanosleep, word) | BIT_OF(NR_clock_nanosleep, word) | BIT_OF(NR_ppoll, word) |             \
	 BIT_OF(NR_sigtimedwait, word) | BIT_OF(NR_select, word) | BIT_OF(NR_pselect6, word) |                \
	 BIT_OF(NR_io_getevents, word) | BIT_OF(NR_epoll_pwait2, word) | BIT_OF(NR_semtimedop, word) |        \
	 BIT_OF(NR_futex, word))
const volatile __u64 timed_calls[SYSCALLS / 64] = { TIMED(0), TIMED(1), TIMED(2), TIMED(3),
						     TIMED(4), TIMED(5), TIMED(6), TIMED(7) };

static __always_inline bool may_time_out(__s16 nr)
{
	return nr >= 0 && timed_calls[MASK(nr >> 6, 7)] >> (nr & 63) & 1;
}

/* A sleep with a timeout has ended. */
static __always_inline void slept(struct cpu_slot *s, __u32 tgid, struct task_rec *r, __u64 ns)
{
	if (!r->asked)
		return;
	struct lock_slot *l = lock_slot(s, r->call + 1, 0, tgid, KIND_SLEEP);
	if (!l)
		return;
	l->count += r->stands;
	l->spin += r->asked * r->stands;
	l->block += ns * r->stands;
	if (ns > l->max)
		l->max = ns;
	/* Each thread counts once in an interval, however it alternates between calls. */
	if (r->slept_interval != interval) {
		r->slept_interval = interval;
		__builtin_memset(r->slept_in, 0, sizeof(r->slept_in));
	}
	__u64 *seen = &r->slept_in[MASK(r->call >> 6, 7)], bit = 1ull << (r->call & 63);
	if (!(*seen & bit)) {
		*seen |= bit;
		l->wakes++;
	}
}

#define WAKER_UNSEEN 0xffffffff /* in place of a thread's number: wake-ups were not traced */

/*
 * A thread whose wait for a futex has ended is on CPU again: blame its waker. The thread stood on a run queue since then,
 * and a CPU woke for it.
 */
static __always_inline void futex_done(struct cpu_slot *s, __u64 who, struct task_rec *r, __u64 queued, __u64 waking)
{
	__u64 ns = r->slept_ns;
	__u32 waker = r->woken_by;
	__u64 lock = in_user(r) ? r->user.lock : 0;
	struct lock_slot *l = lock_slot(s, lock ?: r->futex, lock ? 0 : r->place, who >> 32,
					lock ? KIND_USER | r->user.kind : KIND_FUTEX | r->event);

	if (!l)
		return;
	/* A wait for a lock with tracepoints of its own is counted when it is over. */
	if (!lock) {
		l->count += r->stands;
		l->block += ns * r->stands;
		/* It was chosen with a chance of 1 / stands. */
		if (r->stands > 1)
			l->spin += (__u64)r->stands * (r->stands - 1);
		if (ns > l->max)
			l->max = ns;
		l->futex = r->futex_word;
	}
	l->queued += queued * r->stands;
	l->waking += waking * r->stands;
	l->threads |= 1ull << (who & 63);
	/* A timeout may have ended one whose wake-up was not traced. */
	if (!waker || waker == WAKER_UNSEEN)
		return;
	l->wakes += r->stands;
	if (l->holder == waker) {
		l->vote += ns;
	} else if (l->vote < ns) {
		l->holder = waker;
		l->vote = ns - l->vote;
	} else {
		l->vote -= ns;
	}
}

#endif
