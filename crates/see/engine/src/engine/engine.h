/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the engine's BPF programs and user space share; layout.rs asserts what it reads of it. */
#ifndef NCPU_ENGINE_H
#define NCPU_ENGINE_H

#include "stack.h"

/* Where a CPU is. Every nanosecond of every CPU is charged to exactly one of these. */
enum where {
	AT_IDLE,
	AT_TARGET,	/* a thread of the observed program */
	AT_OTHER,	/* another program */
	AT_NCPU,	/* ncpu itself, its samplers included */
	AT_SPIN,	/* the program, in a kernel lock's slow path, on CPU */
	AT_HARDIRQ,
	AT_SOFTIRQ,
	AT_TLB,		/* answering a TLB shootdown of another CPU */
	AT_N,
};

/* Why a thread of the program is off CPU. Order is the order in which idle CPUs are explained. */
enum wait {
	WAIT_NONE,
	WAIT_RUNQ,	/* runnable, on a run queue */
	WAIT_KLOCK,	/* blocked in a kernel lock */
	WAIT_ULOCK,	/* blocked in a futex that is a lock */
	WAIT_IO,	/* in_iowait, or asleep inside a page fault */
	WAIT_SLEEP,	/* anything else: pipe, poll, timer, child, condition */
	WAIT_N,
	/* Runnable, as in WAIT_RUNQ: woken from a user lock, or from a sleep. */
	WAIT_FROM_LOCK = WAIT_N,
	WAIT_FROM_SLEEP,
	WAITS,
};

/* What an idle CPU is idle for: the first that holds, one waiting thread a CPU. */
enum idle {
	IDLE_RUNQ,	/* a thread was runnable on another CPU's queue */
	IDLE_KLOCK,
	IDLE_ULOCK,
	IDLE_IO,
	IDLE_SERIAL,	/* the program was active with fewer threads than CPUs */
	IDLE_ASLEEP,	/* no thread of the program was active */
	IDLE_N,
};

/* prstat -m's microstates. */
enum micro { USR, SYS, TRP, TFL, DFL, LCK, SLP, LAT, MICRO_N };

/* What a thread off CPU waits for. User space tells futexes apart. */
enum life {
	LIFE_REST,
	LIFE_FUTEX,
	LIFE_KLOCK,	/* a lock of the kernel */
	LIFE_FILE_LOCK,	/* flock, fcntl */
	LIFE_SEMAPHORE,	/* of System V */
	LIFE_QUEUE,	/* of messages */
	LIFE_DEVICE,
	LIFE_FAULT,	/* a page fault, or memory that is reclaimed first */
	LIFE_SOCKET,
	LIFE_PIPE,
	LIFE_EVENTS,	/* one of several descriptors */
	LIFE_TIMER,
	LIFE_CHILD,
	LIFE_STOPPED,	/* by a signal, a debugger or the freezer */
	LIFE_PASSED,	/* a sleep that was only timed, and of which its call does not tell the kind */
	LIFE_BY_FILE,	/* of calls: it depends on the file */
	LIFE_N,
};

#define LIFE_QUEUED LIFE_N /* of who woke a thread: it stood on a run queue meanwhile */

#define IRQ_NEST 3	/* softirq, interrupt, one more; arrays hold 4 so that & 3 bounds them */
#define LOCK_NEST 4

/* A spinlock waited for. It neither sleeps nor moves, so a CPU has at most one at each level. */
struct spin_wait {
	__u64 lock;
	__u64 begin;		/* ns */
	__u64 stack;		/* hash of the caller's stack, when walked */
	__u32 kind;		/* LCB_F_* */
	__u16 timed;		/* waits this one stands for; those others are only counted */
	__u16 first;		/* enum first: whether it was the first waiter when it began */
};

/* Where in a lock's queue a wait began. */
enum first {
	NOT_FIRST,
	FIRST,		/* nobody else waited: it lasts for what is left of the time that the lock is held */
	SECOND,		/* one thread waited, unseen by tracepoints: the first waiter of a spinlock where no hypervisor is */
};

/* Where a function lies. */
struct code_range {
	__u64 start, end;
};
#define LOCK_CODE 24

/* Which events have their stacks walked: one in mask + 1, by how many there were lately. */
struct walks {
	__u64 since;		/* ns, when the events below began to be counted */
	__u32 events;
	__u32 done;		/* walked since the mask was set */
	__u32 mask;
	__u32 pad;
};

#define SPANS 32 /* a power of two */

/*
 * Kinds of interrupts. Each device has a row of its own, found by its interrupt's number; which row differs between CPUs.
 */
enum irq_kind {
	IRQ_TIMER,
	IRQ_RESCHEDULE,
	IRQ_CALL,	/* a function call of another CPU */
	IRQ_WORK,	/* of the CPU's own, deferred by code that may not do it where it runs */
	IRQ_TLB,
	IRQ_REST,	/* devices for which there was no row */
	IRQ_SOFT,	/* softirqs by number */
	IRQ_DEVICE = IRQ_SOFT + 10,
	IRQ_KINDS = 32,
};

struct irq_row {
	__u64 ns;
	__u64 own_ns;	/* in those that ncpu itself raised: in AT_NCPU */
	__u64 entry_ns;	/* of both, before the handlers */
	__u32 count;
	__u32 own;	/* that ncpu itself raised; not in `count` */
	__u32 number;	/* of the device's interrupt + 1; 0: the row is free */
	__u32 pad;
};

/* What a CPU ran, until the span after it begins. */
struct span {
	__u64 since;	/* ns */
	__u32 tgid;
	__u32 base;	/* enum where */
	__u32 tenant;
	__u32 waiting;	/* threads on its queue when it began, but for the one that ran */
};

/* What all CPUs were at when one of them looked. */
struct look {
	__s32 waiting[8];	/* threads of the program, by enum wait */
	__u32 idle;		/* CPUs */
	__u32 running;		/* threads of the program */
	__u32 of[8];		/* the idle CPUs, by enum idle */
};

/* Between a thread's wake-up, or the end of its time slice, and its next run. */
struct runnable {
	__u64 count;
	__u64 queued;	/* ns, while its CPU ran something else */
	__u64 waking;	/* ns, while its CPU idled: until that had woken */
	__u64 wakings;	/* threads for which a CPU woke so */
};

/* One per CPU, written by that CPU alone; user space reads it by mmap. */
struct cpu_slot {
	__u64 last;		/* ns, when the state below began */
	__u64 at[AT_N];		/* ns */
	__u32 base;		/* enum where of the current task */
	__u32 depth;		/* interrupt nesting */
	__u8 irq[4];		/* enum where of each nested level */
	__u8 timer[4];		/* whether that is the timer's interrupt or softirq */
	__u8 kind[4];		/* enum irq_kind */
	__u64 at_entry[4];	/* what was charged to the level's state when it began */
	__u64 entering[4];	/* ns before its handler */
	__u8 spinning[4];	/* whether a spinlock is waited for at each level; 0 is the task's */
	__s32 waiting[8];	/* net threads of the program this CPU saw begin less end a wait */
	__u64 switches;
	__u64 tlb_sent;
	__u64 tlb_received;
	__u64 lock_events;
	__u64 wakeups;
	struct walks lock_walks, off_walks, long_walks, seldom_walks;
	__u64 asked;		/* ns, when the futexes below began to be counted */
	__u64 asks;		/* futexes handed over to be judged */
	__u64 woke;		/* ns, when user space was woken last for one */
	__u64 new_place;	/* ns, when a sleep was followed because its place was not known */
	__u64 asked_again;	/* ns, when one that has been judged was handed over again */
	__u64 drop_lock;	/* lock table full */
	__u64 drop_nest;	/* locks or interrupts nested deeper than the tables */
	__u64 drop_task;	/* no memory for a task's record */
	__u64 drop_ring;	/* ring buffer full */
	__u64 lost_fault_end;	/* a fault whose end was not seen; its time went to USR */
	struct irq_row irqs[IRQ_KINDS];
	__u64 last_irq;		/* ns, when the last interrupt ended */
	__u64 last_irq_ns;	/* what was charged to it */
	__u64 raised_ns;	/* what was charged to the interrupt that the softirq at hand came with */
	__u32 last_kind;	/* enum irq_kind */
	__u32 own_work;		/* a wake-up of user space has been asked for, which an IRQ_WORK does */
	__u64 struck;		/* times a timer met a thread of the program */
	__u64 struck_user;	/* of those, in user code */
	__u64 idle_from, idle_to;	/* ns, when it idled last */
	struct runnable runnable[8];	/* threads of the program that came on CPU, by enum wait: what each had waited for before */
	__u64 waits;		/* sleeping locks the current task waits for */
	__u64 ended;		/* ns when the wait timed at the current level ended; 0: it has not */
	__u64 window;		/* ns, when the count of waits below began */
	__u32 window_waits;
	__u32 time_mask;	/* one spinlock's wait in mask + 1 is timed */
	__u64 dice;		/* chooses the waits that are timed, and the sleeps that are followed */
	struct spin_wait done;	/* a wait not yet in the lock table; none where its lock is 0 */
	__u64 done_spin;	/* ns */
	__u64 done_tgid;
	struct spin_wait spin[4];
	__u64 task;		/* the task seen to run last */
	__u64 unseen;		/* switches that the kernel did not trace */
	__u64 copied;		/* ns, when a sample's stack was copied last */
	struct span spans[SPANS];
	__u64 span;		/* number of the last */
	__u64 other_first;	/* waits of who was first in a queue, for whose lengths the table had no room */
	__u64 drop_io;		/* requests for which there was no row, or of which something was not seen */
	__u32 vector;		/* number of the softirq that began last */
	__u32 kernel_thread;	/* whether the current task is one */
	__u64 own_ns;		/* that programs took at switches and wake-ups, in those runs that were timed */
	__u64 own_runs;		/* those runs */
	__u64 lock_sleeps;	/* of threads whose waits for a kernel lock were counted */
	__u64 tlb_number;	/* of the flush that this CPU asked others for last */
	__u32 tlb_asked;	/* and the last CPU that it asked */
	__u32 lock_epoch;	/* of the waits above: `spinning` and `waits` */
	struct look look;	/* the last that this CPU took */
	__u64 charged[8];	/* of `at`, what tenants have been charged */
	__u32 tenant;		/* of the current task */
	__u32 thin;		/* whether the switch at hand is between windows */
	__u64 timed_from;	/* ns, when the program at this switch or wake-up began, where it measures its own time; else 0 */
	__u64 length_stands;	/* for how many short lengths one at this switch stands; 0: it is not counted */
	__u64 drop_lengths;	/* lengths for which there was no row */
	__u64 drop_requests;	/* requests of clients for which there was no row, or that were forgotten before the answer came */
	__u64 slow_window;	/* ns, when the count of slow requests that were sent to user space began */
	__u64 slow_from;	/* ns; faster requests are not sent */
	__u32 slow_sent;
	__u32 slow_pad;
	__u64 comings;		/* changes whenever the CPU comes online; written by the one that brings it up */
} __attribute__((aligned(128)));

/* One per (lock, stack) and CPU; the key is the first three members. */
struct lock_slot {
	__u64 lock;		/* address; a user address where kind says futex */
	__u64 stack;		/* 0 in exact rows, the hash of the caller's stack in sampled rows; of futexes the place */
	__u32 tgid;		/* of the waiter */
	__u32 kind;		/* LCB_F_* flags, or KIND_FUTEX */
	__u64 count;
	__u64 spin;		/* ns on CPU; of futexes the variance of `count` */
	__u64 block;		/* ns off CPU */
	__u64 max;		/* ns, longest wait */
	__u32 holder;		/* tid that most of the wait is blamed on (majority vote) */
	__u32 futex;		/* op | private << 8 | class << 16 of the last futex wait */
	__u64 vote;		/* ns, weight of the vote */
	__u64 wakes;
	__u64 queued;		/* ns that its waiters then stood on run queues */
	__u64 waking;		/* ns until idle CPUs had woken for them */
	__u64 threads;		/* a bit for each waiter: the lowest bits of its number */
};

/*
 * How long those waited that were first in a lock's queue: a row for each octave of ns and CPU; the key is the first three
 * members.
 */
struct first_slot {
	__u64 lock;
	__u64 octave;		/* the highest bit of the wait's ns, | enum first << 8 */
	__u32 tgid;		/* of user locks; 0: a kernel lock, for any waiter */
	__u32 kind;		/* as of a lock_slot */
	__u32 count[4];		/* by the next two bits */
};

/*
 * Time off CPU by what was waited for: one per (object, role, process, enum life) and CPU; the key is the first four members.
 */
struct time_slot {
	__u64 what;		/* the object, in the code of its enum life; 1 where there is none */
	__u64 role;		/* hash of the thread's name with digits folded, and whether it is the first of its process */
	__u32 tgid;
	__u32 life;		/* enum life, | STANDS where each wait stands for others that were only timed */
	__u64 count;
	__u64 ns;
	__u64 max;		/* ns */
	__u64 futex;		/* as in a lock_slot: its address, place, class, and PostgreSQL's event */
	__u32 place;
	__u32 class;
	__u32 event;
	__u32 holder;		/* tid that most of it is blamed on (majority vote) */
	__u64 vote;		/* ns, weight of the vote */
	__u64 held;		/* ns of waits that a known thread ended */
	__u64 held_asleep;	/* of it, ns that this thread slept itself or stood on a run queue, the last time that it did */
	__u64 asleep_vote;
	__u32 asleep_life;	/* enum life of most of that, or LIFE_QUEUED */
	__u32 asleep_call;	/* and its call + 1 */
};

#define STANDS 0x100

/* Lengths are counted in bins: 32 an octave, ns below that. */
#define LENGTH_BITS 5
#define LENGTH_PARTS (1 << LENGTH_BITS)
#define LONGEST_LENGTH ((1ull << 36) - 1) /* ns; longer ones are in the last bin */
#define LENGTH_OCTAVES (36 - LENGTH_BITS + 1)

/* The first have arrays, in which all of the program's are. */
enum length_of {
	LENGTH_QUEUED,	/* from a thread's wake-up, or the end of its time slice, to its next run */
	LENGTH_WAKING,	/* of that, while the CPU that it was given to idled and had not woken yet */
	LENGTH_SLICE,	/* on CPU */
	LENGTH_LATE,	/* from the end of a timeout until the thread was woken */
	LENGTHS_OF,
	LENGTH_KLOCK = LENGTHS_OF,
	LENGTH_ULOCK,
	LENGTH_FILE_LOCK,
	LENGTH_SEMAPHORE,
	LENGTH_DEVICE,
	LENGTH_CALL,
	LENGTH_REQUEST, /* of a client, from its arrival to the end of the answer */
};

/* Of a CPU. They only grow, and begin again from 0. */
struct lengths {
	__u32 count[LENGTHS_OF][LENGTH_OCTAVES][LENGTH_PARTS];
};

/* One per (what, octave, process, enum length_of) and CPU; the key is the first four members. */
struct length_slot {
	__u64 what;		/* 1: nothing */
	__u64 octave;
	__u32 tgid;
	__u32 of;		/* enum length_of */
	__u32 count[LENGTH_PARTS];
	__u64 unseen;		/* of those, the ones that others stand for */
};

/* Parts of a request's time that are kept apart; shorter ones of the same kind are added to them. */
#define REQUEST_PARTS 8

/* What a request waited for, beside enum life. */
enum request_wait {
	REQUEST_QUEUED = LIFE_N, /* on a run queue: `what` is the process that ran there + 2 */
	REQUEST_HELD,	/* its thread might not run: the quota of its control group was used up */
	REQUEST_UNREAD,	/* in the socket: its thread did something else: `what` is the longest part of the request before + 2 */
	REQUEST_ASIDE,	/* its thread had read it and did something else: `what` as above */
	REQUEST_HANDED,	/* from the thread that had read it to the one that answered */
	REQUEST_THREAD,	/* for another thread of its process, which did not sleep meanwhile */
	REQUEST_WHOLE,	/* of rows: all of the request */
};

struct request_part {
	__u64 what;		/* the object, in the code of its enum life; 1 where there is none */
	__u64 ns;
	__u64 sent;		/* ns of it before the answer was last written to */
	__u64 futex;		/* as in a time_slot */
	__u32 place;
	__u32 class;
	__u32 event;
	__u32 holder;		/* tid that ended the longest wait */
	__u32 life;		/* enum life or enum request_wait */
	__u32 longest;		/* us, of those waits */
};

/* A request of a client that is being answered, or a call of a function of the program. */
struct client_request {
	__u64 kind;		/* protocol << 56 | port << 40 | the verb, five bits a letter */
	__u64 began;		/* ns, when it arrived, or was read where that is not known */
	__u64 answered;		/* ns, when the answer was last written to; 0: not yet */
	__u64 system;		/* ns in system calls, without waits */
	__u64 system_sent;	/* of it, before `answered` */
	__u64 left;		/* ns, when its thread turned to something else */
	__u64 events;		/* ns that this thread had waited for events by then */
	__u32 tgid, tid;
	__u32 parts;
	__u32 pad;
	struct request_part part[REQUEST_PARTS];
};

enum protocol {
	PROTOCOL_UNKNOWN,
	PROTOCOL_HTTP,
	PROTOCOL_REDIS,
	PROTOCOL_POSTGRES,
	PROTOCOL_TLS,
	PROTOCOL_HTTP2,
	PROTOCOL_CALL,	/* of a function of the program, by its number */
};

/*
 * Requests that were answered, by kind, latency and process: all of a request, or one thing that it waited for. The key is the
 * first four members.
 */
struct request_slot {
	__u64 kind;
	__u64 what;		/* 1 of all of a request, as in a request_part otherwise */
	__u32 tgid;
	__u32 bin;		/* of the whole latency: octave << 2 | the next two bits, | enum request_wait << 8 */
	__u64 count;
	__u64 ns;
	__u64 max;		/* ns */
	__u64 user, system;	/* ns, of all of a request */
	__u64 futex;
	__u32 place;
	__u32 class;
	__u32 event;
	__u32 holder;		/* tid that most of it is blamed on (majority vote) */
	__u64 vote;		/* ns, weight of the vote */
};

/* One of the slowest, with all of its parts. */
struct request_event {
	struct event_head head;
	struct client_request request;
};

#define KIND_FUTEX 0x80000000u /* | what PostgreSQL says that it waits for: EVENT */

/* PostgreSQL's own numbers of waits: a class in the highest byte, and the lock in the lower two. */
#define PG_CLASS(info) ((info) >> 24)
#define PG_LWLOCK 1
#define PG_LOCK 3
/* Those of locks as they are kept in a row's kind. */
#define EVENT(info) (PG_CLASS(info) << 16 | ((info) & 0xffff))

#define KIND_USER 0x10000000u /* | enum user_lock: a lock of libncpu; holder, vote and wakes as of a futex */
#define KIND_OFF 0x40000000u /* | enum wait: time off CPU by stack */
#define KIND_QUEUE 0x08000000u /* | enum where: time on run queues behind what ran there; lock is its process + 2, or
				* OTHERS where that does not matter */
#define KIND_SLEEP 0x20000000u /* sleeps with a timeout: lock is the call's number + 1, spin the time asked for,
				* block the time slept, wakes the threads */

#define KIND_PATH 0x04000000u /* | enum wait << 8 | enum idle: idle time charged to the thread whose wake-up ended it. lock is
			       * the cause << 48, its call + 1 << 32 and the waker's process, stack that of its wait,
			       * block the time of CPUs, spin for how long, holder the thread */

/* What woke it. */
enum cause {
	CAUSE_UNKNOWN = 1,	/* an interrupt, or a thread on another CPU */
	CAUSE_PROGRAM,		/* a thread of the program */
	CAUSE_OTHER,		/* of another program */
	CAUSE_KERNEL,		/* a thread of the kernel */
	CAUSE_TIMER,		/* its timeout, or a timer that it waits for */
};

/* Lock, or stack, of the rows that stand for many: those for which the table had no room. */
#define OTHERS 1
#define OTHER_ROWS 64	/* a CPU has of these; a power of two */

/* Locks whose waits are reported by static tracepoints, and by the functions of Go that park
 * goroutines. */
enum user_lock { USER_NONE, USER_MUTEX, USER_QUEUE, USER_READ, USER_WRITE, GO_MUTEX, GO_READ, GO_WRITE };
/* USER_GAUGE is hit by ncpu itself, to measure what a hit costs. */
enum user_event { USER_BEGIN, USER_END, USER_GAUGE };

/* The attach cookie of such a tracepoint: the offset in struct pt_regs of the register that holds the lock. */
#define USER_COOKIE(register, lock, event) ((__u64)(register) << 16 | (lock) << 8 | (event))

/* Futex classes: unknown until user space has judged a waiter's stack, but for operations that only locks use. */
enum futex_class {
	FUTEX_UNKNOWN,
	FUTEX_LOCK,
	FUTEX_SEM,	/* a semaphore that may stand for anything, or a condition in a function that sounds like a lock */
	FUTEX_COND,
	FUTEX_SEM_LOCK,	/* a semaphore or condition that its waiters post: a lock */
	FUTEX_BY_PLACE,	/* many a thread sleeps in one futex of its own for all that it ever waits for: see `place` */
};

/*
 * What user space says of waits: for a futex, or for a futex at a place of the stack. There the word of the stack that
 * decided, a return address, must have its value again.
 */
struct verdict {
	__u32 class;		/* enum futex_class */
	__u32 place;		/* what user space calls such waits; 0: nothing */
	__u32 word;		/* of the stack, from its top; NO_WORD where none decided */
	__u32 pad;
	__u64 value;		/* of that word */
};

#define NO_WORD 0xffffffffu

/* Who asked for a request to a block device, and whether that thread waits for it in the same call. */
enum io_by {
	IO_BY_CALL,	/* it sleeps in its call until the request is done: `in_iowait` tells */
	IO_BY_AHEAD,	/* it goes on, and asks later: io_submit, io_uring */
	IO_BY_KERNEL,	/* a kernel thread or an interrupt asked, for an unknown process */
	IO_BY_OTHERS,	/* another program: counted nowhere */
};

/* A request that is queued or in flight. */
struct io_request {
	__u64 request;	/* the kernel's `struct request`; 0: the row is free */
	__u64 issued;	/* ns, when the device was given it; 0: not yet */
	__u64 queued;	/* ns it stood in queues before */
	__u32 tgid;	/* of the process; 0: not known */
	__u16 process;	/* the process's place in io_processes + 1, where it is counted there; else 0 */
	__u16 by;	/* enum io_by */
	/* For tenants. */
	__u64 began;	/* ns, when it was queued */
	__u32 nth;	/* of its device */
	__u16 tenant;
	__u8 device;	/* its place in io_devices + 1; 0: not known */
	__u8 class;	/* by operation and size */
	__u8 alone;	/* whether the device had nothing else to do when it was queued */
};

#define IO_DEVICES 16	/* block devices that tenants share */
#define IO_SPANS 64	/* requests that each has completed last */

struct io_span {
	__u64 from, to;	/* ns */
	__u32 tenant;
	__u32 pad;
};

struct io_device {
	__u64 device;	/* major << 32 | minor << 1 | 1; 0: the row is free */
	__u64 last;	/* ns, when it completed a request last, or began to have one */
	__u32 in_flight;
	__u32 begun;	/* requests */
	__u32 span;	/* number of the next */
	__u32 pad;
	struct io_span spans[IO_SPANS];
	__u64 alone[16];	/* ns that a request of each class takes when it is alone; 0: not known */
	__u64 least[16];	/* ns of the shortest of all its requests */
};

/* One per (device, process, operation) and CPU; the key is the first three members. */
struct io_row {
	__u64 device;	/* major << 32 | minor << 1 | 1 */
	__u64 operation; /* REQ_OP_* << 8 | enum io_by */
	__u64 tgid;
	__u64 count;
	__u64 bytes;
	__u64 queued;	/* ns before the device was given them */
	__u64 time;	/* ns in the device */
	__u64 max;	/* ns, longest in the device */
};

#define IO_REQUESTS 8192 /* rows, a power of two: requests queued and in flight at a time */
#define IO_ROWS 64	/* a CPU's; a power of two */
#define IO_OTHERS 16	/* for all processes that have found no room among those, behind all of them */
#define IO_OTHER 0xffffffffull /* stands for such processes */
#define IO_PROCESSES 64	/* that have requests in flight which they do not wait for in the call */

/* What a CPU adds to each of those processes. Only the sum over CPUs means anything. */
struct io_counts {
	struct {
		__s32 in_flight;	/* requests that nobody waits for in the call that asked */
		__s32 asleep;		/* threads that sleep until requests are done */
	} of[IO_PROCESSES];
};

/* Numbers of tenants that are always the same. */
enum tenant {
	TENANT_IDLE,	/* nobody: the CPU idles, or what it runs is not known yet */
	TENANT_KERNEL,	/* the kernel's own threads */
	TENANT_OTHERS,	/* those for which there was no number */
	TENANT_NCPU,
	TENANT_FIRST,	/* the first that is given away */
};

/* By which a tenant's number is found. */
struct tenant_key {
	__u64 cgroup;		/* the number of its group in its hierarchy */
	__u64 program[2];	/* name of the process */
	__u32 hierarchy;
	__u32 uid;
	__u32 state;		/* TENANT_NONE, ... */
	__u32 tenant;
};
#define TENANT_NONE 0
#define TENANT_WRITTEN 1
#define TENANT_KNOWN 2
#define TENANT_PROBES 16	/* rows looked at before the table counts as full */

/* Of a tenant on a CPU, written by that CPU alone. */
struct tenant_slot {
	__u64 at[8];		/* ns by enum where, while one of its threads was the current task */
	__s32 waiting[8];	/* net threads that this CPU saw begin less end a wait, by enum wait */
	__u64 sent;		/* packets to sockets of this machine */
	__u64 received;		/* and those that were read from sockets */
	__u64 called;		/* calls that it asked other CPUs for, without TLB shootdowns */
};

/* Of a tenant, written by the leader alone. */
struct tenant_look {
	__u64 idle[8];		/* ns of idle CPUs, by enum idle */
	__s32 waiting[8];	/* threads at the last look */
	__u32 running;
	__u32 active;
};

#define TENANT_DEPTH 16	/* components of a path, from the innermost on */
#define TENANT_NAME 256	/* bytes of one, at most */
#define TENANT_PATH 2047 /* bytes after which no more components are taken */

struct tenant_event {
	struct event_head head;
	__u32 tenant;
	__u32 uid;
	__u32 bytes;	/* of the path */
	__u32 pad;
	char path[TENANT_PATH + TENANT_NAME + 1];
};

#define KIND_LEDGER 0x02000000u /* | enum loss: time that a tenant lost to another. lock is the other's number + 2, or OTHERS where
				 * it is not known; tgid the number of the one that lost, stack the kernel lock, the device, a CPU + 1 or the level of the
				 * group whose limit it was, block the time
				 * of threads, spin that of CPUs */

enum loss {
	LOSS_QUEUE,	/* on run queues, while the other's thread ran there */
	LOSS_SOFTIRQ,	/* on run queues, while a thread of the kernel served softirqs there */
	LOSS_LOCK,	/* for a kernel lock that the other held when the wait began */
	LOSS_NETWORK,	/* to softirqs of the network; the sender of their packets is not known there */
	LOSS_DEVICE,	/* while a device served the other's requests; where that is not known, all of the wait, and as time of CPUs what the
			 * request takes alone */
	LOSS_RECLAIM,	/* freeing memory because the machine has none */
	LOSS_LIMIT,	/* freeing memory because its group may have no more */
	LOSS_CALL,	/* to calls of other CPUs; it is not known there which thread asked */
};

struct thread_out {
	__u32 tgid, tid, ppid;
	__u32 target;
	__u64 start;		/* ns since boot, the task's start_time */
	__u64 micro[MICRO_N];	/* ns */
	__u64 spin;		/* ns spun in kernel locks, part of SYS */
	__u64 vcx, icx, scl, sig;
	__u64 minf, majf;
	__u64 faults;		/* of minf and majf those that were traced */
	__u64 untraced;		/* ns of USR that are to be divided by the ticks */
	__u32 ticks[4];		/* of a timer, by USR, SYS and TRP */
	__u64 unjudged;		/* futex of its last waits, where they have ended without a verdict */
	__u64 unjudged_place;	/* and the place */
	__u64 unjudged_ns;	/* how long those were, part of SLP */
	__u64 cpus;		/* a bit for each of the first 64 CPUs that it may use */
	__u32 allowed;		/* CPUs that it may use; 0 of threads of the kernel */
	__u32 tenant;
	__u32 queue;		/* the CPU on whose queue it stands + 1; 0: on none */
	__u32 holds;		/* how often the limit of its group held it back, without what goes on */
	__u64 held;		/* of its ns on run queues, those for which the limit of its group held it back */
	__u64 by[LIFE_N];	/* ns off CPU, but for run queues, by enum life */
	__u64 utime, stime;	/* ns on CPU by the kernel's ticks */
	__u64 dirtied, read;	/* bytes of files that it wrote and that it had read from devices */
	__u64 what;		/* of the wait at hand */
	__u64 asleep;		/* ns of it so far; 0: there is none */
	__u64 futex;
	__u32 place, class, event;
	__u32 life;
	char comm[16];
	char group[16];		/* the thread group leader's comm */
};

struct exit_event {
	struct event_head head;
	struct thread_out thread;
};

#endif
