/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What threads of the program wait for while they are off CPU, by role.
 *
 * Each thread's record adds up its time off CPU by what it waited for: exact, and summing to its microstates. Rows of a table
 * divide that by object: a lock, a peer, a call. Of sleeps that are only timed, those that were chosen by chance tell the
 * division of the others' time: their rows stand apart.
 */
#ifndef NCPU_THREAD_TIME_H
#define NCPU_THREAD_TIME_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"
#include "kernel_locks.h"
#include "call_locks.h"
#include "futexes.h"
#include "lengths.h"
#include "in_flight.h"
#include "peers.h"
#include "devices.h"

const volatile __u32 cfg_time_slots = 64;	/* a CPU's part of the table, a power of two */
const volatile __u8 call_life[SYSCALLS];	/* enum life of sleeps in each call: user space knows its name */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct time_slot);
} time_slots SEC(".maps");

APART int time_index(__u64 what, __u64 role, __u64 who)
{
	return find_row(&time_slots, lock_part(), cfg_time_slots, what, role, who);
}

/* A hash of a name in which a number counts as one character. User space has the same: `role_hash`. */
APART __u64 role_hash(__u64 low, __u64 high)
{
	__u64 hash = 0, digit = 0;

	for (int i = 0; i < 16; i++) {
		__u64 c = (i < 8 ? low : high) >> 8 * (i & 7) & 0xff, is = ((c - '0' - 10) & ~(c - '0')) >> 63;
		__u64 counts = is_not_0(c) & ~(is & digit), next = (hash ^ c ^ ((c ^ '#') & -is)) * SPREAD;

		next ^= next >> 32;
		hash ^= (hash ^ next) & -counts;
		digit = is;
	}
	return hash;
}

#define NAMED_BY 16	/* sleeps, before which a thread's name is looked at each time; later it is one time in NAME_EVERY + 1 */
#define NAME_EVERY 15

static __always_inline void find_role(struct task_rec *r, struct task_struct *p)
{
	__u64 comm[2] = {};

	/* Threads get their names when they begin. */
	if (r->role && r->vcx > NAMED_BY && r->vcx & NAME_EVERY)
		return;
	bpf_core_read(comm, sizeof(comm), &p->comm);
	if (r->role && comm[0] == r->comm[0] && comm[1] == r->comm[1])
		return;
	r->comm[0] = comm[0];
	r->comm[1] = comm[1];
	r->role = role_hash(comm[0], comm[1]) ^ (p->pid == p->tgid);
}

#define CALL_CODE 2 /* the code of call 0: 1 stands for nothing */

/* Codes of peers: the kind in the highest byte, a port in the lowest two, an address of IPv4 above it. */
#define PEER(kind, address, port) ((__u64)(kind) << 56 | (__u64)(address) << 16 | (port))
enum peer { PEER_UNKNOWN = 1, PEER_OTHER, PEER_LISTENS, PEER_CLIENTS, PEER_SERVER };

/* Who is at the other end of the socket that is a descriptor of a thread: its port where that is the server's. */
APART __u64 peer_of(__u64 task, __u32 fd)
{
	struct ends ends = {};

	if (!ends_of(task, fd, &ends))
		return PEER(PEER_OTHER, 0, 0);
	if (ends.listens)
		return PEER(PEER_LISTENS, 0, ends.port);
	if (ends.peer_port && ends.port < ends.peer_port)
		return PEER(PEER_CLIENTS, 0, ends.port);
	if (!ends.peer_port)
		return PEER(PEER_UNKNOWN, 0, ends.port);
	return PEER(PEER_SERVER, __builtin_bswap32(ends.peer_address), ends.peer_port);
}

/* The type of a file, S_IFMT of its inode; 0: anonymous, or none. */
APART int type_of_file(__u64 task, __u32 fd)
{
	struct file *file = file_of(task, fd);

	if (!file)
		return 0;
	return BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
}

#define S_IFIFO 0010000
#define S_IFREG 0100000
#define S_IFBLK 0060000

#define FILE_USES 15 /* waits for a descriptor before its file is looked up again: a look takes half as long as the rest */

/* Sleeps in a call that is none of a lock: what for. `task` is that thread. */
APART int sleeps_in_call(struct task_rec *r, __u64 task, __u32 fd, int nr)
{
	if (!r)
		return 0;
	__u32 life = nr >= 0 ? call_life[MASK(nr, 511)] : LIFE_REST;

	r->what = nr + CALL_CODE;
	if (life != LIFE_BY_FILE && life != LIFE_SOCKET) {
		r->life = life;
		return 0;
	}
	if (r->file_uses && r->file == fd && r->file_call == nr) {
		r->file_uses--;
		r->life = r->file_life;
		r->what = r->file_what;
		return 0;
	}
	if (life == LIFE_BY_FILE) {
		int type = type_of_file(task, fd);
		life = type == S_IFSOCK ? LIFE_SOCKET : type == S_IFIFO ? LIFE_PIPE : !type ? LIFE_EVENTS :
		       type == S_IFREG || type == S_IFBLK ? LIFE_DEVICE : LIFE_REST;
	}
	if (life == LIFE_SOCKET)
		r->what = peer_of(task, fd);
	r->life = life;
	r->file = fd;
	r->file_call = nr;
	r->file_life = life;
	r->file_what = r->what;
	r->file_uses = FILE_USES;
	return 0;
}

/*
 * The current thread, of the program, leaves its CPU to wait for what `wait` says, an enum wait. Its call and futex are
 * known. Not static, so that the verifier looks at it once.
 */
APART int sleeps_for(struct task_rec *r, int wait, int state)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!r)
		return 0;
	find_role(r, p);
	r->what = 0;
	r->what_futex = r->futex;
	r->life = LIFE_REST;
	if (p->flags & PF_KTHREAD)
		return 0;
	if (state & (TASK_STOPPED | TASK_TRACED | TASK_FROZEN)) {
		r->life = LIFE_STOPPED;
	} else if (wait == WAIT_KLOCK) {
		r->life = LIFE_KLOCK;
		if (r->nlocks && !was_cut(r))
			r->what = r->locks[MASK(r->nlocks - 1, 3)].lock;
	} else if (in_user(r)) {
		r->life = LIFE_FUTEX;
		r->what = r->user.lock;
	} else if (p->flags & PF_MEMALLOC || (r->call < 0 && !(p->flags & PF_EXITING))) {
		/* Outside of calls a thread sleeps in faults: for a device, or for a program that serves them. */
		r->life = LIFE_FAULT;
	} else if (wait == WAIT_IO) {
		r->life = LIFE_DEVICE;
		r->what = r->call + CALL_CODE;
	} else if (r->call == NR_futex) {
		r->life = LIFE_FUTEX;
		/* At places that decide, one futex is waited for for several reasons. */
		r->what = r->place ? r->futex ^ r->place * SPREAD : r->futex;
	} else if (r->futex > SYSCALLS) {
		r->what = r->futex;
		r->life = r->call == NR_flock || r->call == NR_fcntl ? LIFE_FILE_LOCK :
			  r->call == NR_semop || r->call == NR_semtimedop ? LIFE_SEMAPHORE : LIFE_QUEUE;
	} else if (r->futex && r->event) {
		r->life = LIFE_FUTEX;
		r->what = r->futex ^ r->event * SPREAD;
	} else {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
		sleeps_in_call(r, bpf_get_current_task(), ARG0(regs), r->call);
	}
	return 0;
}

/* A thread that slept when the observation began: what its call tells. `task` is the thread as a number. */
static __always_inline void sleeps_already(struct task_rec *r, struct task_struct *p, __u64 task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);

	if (p->flags & PF_KTHREAD)
		return;
	find_role(r, p);
	r->stands = 1;
	__u64 nr = call_number(regs);
	if (nr == NO_CALL)
		return;
	sleeps_in_call(r, task, ARG0(regs), nr);
	/* Locks that it slept for before are not known. */
	if (r->life == LIFE_FUTEX || r->life == LIFE_FILE_LOCK || r->life == LIFE_SEMAPHORE || r->life == LIFE_QUEUE)
		r->what = 0;
}

/*
 * A sleep of which only the time is taken: its call gives the kind of wait. It is taken to be for the same object as the last that was
 * followed, if that was at the same place, and else nothing is known of that.
 */
static __always_inline void passed_over(struct task_rec *r, __u64 nr, bool same_place)
{
	r->woken_by = 0;
	if (cfg_requests) {
		r->waker.to = 0;
		r->waker.ours = 0;
	}
	if (!same_place) {
		r->what = 0;
		r->what_futex = 0;
	}
	__u32 life = nr < SYSCALLS && !r->latches ? call_life[MASK(nr, 511)] : LIFE_PASSED;

	r->life = life == LIFE_BY_FILE || (io_used && waits_in_ring(nr)) ? LIFE_PASSED : life;
}

/* A thread that slept to its timeout, as far as timers are exact, waited for time to pass. */
static __always_inline bool timed_out(struct task_rec *r, __u64 ns)
{
	return r->asked && ns + (r->asked >> 6) + 50000 >= r->asked;
}

/* A majority vote for one of several. */
#define VOTE(sum, weight, for_it, ns)                                                                         \
	do {                                                                                                  \
		if (for_it)                                                                                   \
			(weight) += (ns);                                                                     \
		else if ((weight) < (ns)) {                                                                   \
			(weight) = (ns) - (weight);                                                           \
			sum;                                                                                  \
		} else                                                                                        \
			(weight) -= (ns);                                                                     \
	} while (0)

/* Its length, where it was for a lock or for a timer. */
static __always_inline void length_of_sleep(struct task_rec *r, __u64 ns, __u32 tgid)
{
	if (r->life == LIFE_TIMER) {
		/* Where it is known when it was to be woken. */
		if (r->asked)
			add_length(LENGTH_LATE, ns > r->asked ? ns - r->asked : 0);
	} else if (r->life == LIFE_FUTEX) {
		if (in_user(r))
			add_length_of(r->user.lock, HALVES(tgid, LENGTH_ULOCK), ns, r->stands);
		else if (is_lock(r->futex_word >> 16))
			add_length_of(r->futex, HALVES(tgid, LENGTH_ULOCK), ns, r->stands);
	} else if (r->life == LIFE_FILE_LOCK || r->life == LIFE_SEMAPHORE) {
		add_length_of(r->what, HALVES(tgid, r->life == LIFE_SEMAPHORE ? LENGTH_SEMAPHORE : LENGTH_FILE_LOCK), ns,
			      r->stands);
	}
}

/* A sleep of `ns` of a thread of the program is over. */
APART int slept_for(struct task_rec *r, __u64 ns, __u32 tgid)
{
	if (!r)
		return 0;
	if ((r->life == LIFE_EVENTS || r->life == LIFE_FUTEX) && timed_out(r, ns)) {
		r->life = LIFE_TIMER;
		r->what = r->call + CALL_CODE;
	}
	if (!observing)
		return 0;
	length_of_sleep(r, ns, tgid);
	__u32 life = r->life | (r->stands > 1 ? STANDS : 0);
	__u32 key = time_index(r->what ?: 1, r->role, HALVES(tgid, life));
	struct time_slot *t = bpf_map_lookup_elem(&time_slots, &key);
	if (!t)
		return 0;
	t->count += r->stands;
	t->ns += ns * r->stands;
	if (ns > t->max)
		t->max = ns;
	t->futex = r->futex;
	t->place = r->place;
	t->class = in_user(r) ? FUTEX_LOCK : r->futex_word >> 16;
	t->event = r->event;
	__u32 by = r->woken_by;
	if (!by || by == WAKER_UNSEEN)
		return 0;
	VOTE(t->holder = by, t->vote, t->holder == by, ns);
	__u64 asleep = r->held_asleep < ns ? r->held_asleep : ns;
	t->held += ns;
	t->held_asleep += asleep;
	__u32 why = r->waker_life, call = r->waker_call + 1;
	if (asleep)
		VOTE({ t->asleep_life = why; t->asleep_call = call; }, t->asleep_vote,
		     t->asleep_life == why && t->asleep_call == call, asleep);
	return 0;
}

/*
 * A thread comes on CPU. Its sleep, if that was one, is put down here and not where it was woken: its record is this CPU's now. Returns
 * how long it slept, 0 if it did not.
 */
static __always_inline __u64 woke(struct task_rec *r, struct task_struct *p)
{
	__u64 all = asleep_in_all(r);
	__s64 ns = all - r->slept_all;

	r->slept_all = all;
	/* Who wakes it on another CPU adds to the same sums: now and then one of two additions is lost. */
	if (ns <= 0)
		return 0;
	if (r->stands && !(p->flags & PF_KTHREAD)) {
		slept_for(r, ns, p->tgid);
		if (cfg_tenants && observing && (r->life == LIFE_DEVICE || r->life == LIFE_FAULT) && !r->freeing)
			waited_for_device(r, r->slept, r->slept + ns);
	}
	r->by[MASK(r->life, 15)] += ns;
	return ns;
}

/* Keeps what the current thread, which wakes another, slept for last: a request may have waited for that. */
static __always_inline void keep_sleep(struct waker_sleep *w, struct task_rec *by)
{
	w->from = by->slept;
	w->to = by->slept_until;
	w->life = by->life;
	w->what = by->what;
	w->futex = by->what_futex;
	w->place = by->place;
	w->class = in_user(by) ? FUTEX_LOCK : by->futex_word >> 16;
	w->event = by->event;
	w->holder = by->woken_by == WAKER_UNSEEN ? 0 : by->woken_by;
	__u64 pid = bpf_get_current_pid_tgid();
	w->waker = pid;
	w->tgid = pid >> 32;
}

/* A thread wakes this one. If it is what was waited for, its last sleep, where it fell into this wait, held both up. */
static __always_inline void woken_by_a_thread(struct task_rec *r, struct task_rec *by)
{
	if (!by)
		return;
	if (cfg_requests && r->target)
		keep_sleep(&r->waker, by);
	r->waker_reads = by->serves ? by->serves == SERVES_READ : by->waker_reads;
	if (by->since <= by->slept || by->since <= r->since)
		return;
	/* It was woken then, and may have been preempted later: it held this wait up on its run queue, too. */
	bool known = by->came_from && by->slept_until;
	__u64 woken = known && by->slept_until < by->since ? by->slept_until : by->since;
	__u64 slept = by->slept > r->since ? by->slept : r->since;
	__u64 left = by->came_from > r->since ? by->came_from : r->since;
	__u64 asleep = woken > slept ? woken - slept : 0;
	__u64 queued = known && by->since > left ? by->since - left : 0;
	/* It stood in the same queue before, and has not slept since it got the lock. */
	if (by->life == r->life && by->what == r->what) {
		asleep = 0;
		queued = by->came_from > by->slept_until ? queued : 0;
	}
	r->held_asleep = asleep > queued ? asleep : queued;
	r->waker_life = asleep > queued ? by->life : LIFE_QUEUED;
	r->waker_call = by->call;
}

/* The wait that a thread is in, so far. */
static __always_inline void tell_wait(struct thread_out *t, struct task_rec *r, __u64 ns)
{
	__u64 life = MASK(r->life, 15);

	t->by[life] += ns;
	t->asleep = ns;
	t->life = life;
	t->what = r->what ?: 1;
	t->futex = r->futex;
	t->place = r->place;
	t->class = in_user(r) ? FUTEX_LOCK : r->futex_word >> 16;
	t->event = r->event;
}

#endif
