/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few kernel types the programs read, relocated by CO-RE on load, so that one object runs on
 * every kernel from 5.15 on. Only the members used are listed; order and padding do not matter.
 */
#ifndef NCPU_KERNEL_H
#define NCPU_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
typedef int pid_t;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0,
	BPF_F_USER_STACK = 1U << 8,
	BPF_RB_NO_WAKEUP = 1U << 0,
	BPF_RB_FORCE_WAKEUP = 1U << 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
	struct kernfs_node *__parent;
	const char *name;
};

struct cgroup_root;

struct cgroup {
	struct kernfs_node *kn;
	int level;
	struct cgroup_root *root;
	struct cgroup *ancestors[];
};

struct cgroup_subsys_state___tenant {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup *dfl_cgrp;
	struct cgroup_subsys_state___tenant *subsys[64];
};

typedef struct {
	u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
};


struct thread_info {
	unsigned int cpu;
};

struct mm_struct {
	unsigned long start_stack;
};

struct cpumask___first {
	unsigned long bits[1];
};

struct thread_struct {
#if defined(__TARGET_ARCH_arm64)
	struct {
		unsigned long tp_value;
	} uw;
#else
	unsigned long fsbase;
#endif
};

struct rq {
	u64 clock;
	unsigned int nr_running;
};

/* Only where groups of tasks are scheduled. */
struct cfs_rq {
	struct rq *rq;
	int throttle_count;
};

struct sched_entity {
	u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_queued;
};

struct task_io_accounting {
	u64 read_bytes;
	u64 write_bytes;
};

struct task_struct {
	struct sched_entity se;
	struct sched_info sched_info;
	struct thread_struct thread;
	struct thread_info thread_info;
	int pid;
	int tgid;
	unsigned int flags;
	unsigned int __state;
	int prio;
	int nr_cpus_allowed;
	struct cpumask___first cpus_mask;
	/* `int` before 7.1, a byte since: only unsigned ones are loaded in the size the kernel has. */
	unsigned int on_cpu;
	int exit_code;
	unsigned in_iowait : 1;
	char comm[16];
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct mm_struct *mm;
	struct mutex *blocked_on;
	void *stack;
	struct css_set *cgroups;
	const struct cred *cred;
	u64 self_exec_id;
	bool throttled;
	u64 start_time;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned long min_flt;
	unsigned long maj_flt;
	u64 utime;
	u64 stime;
	struct task_io_accounting ioac;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	long counter;
} atomic_long_t;

struct list_head {
	struct list_head *next, *prev;
};

struct optimistic_spin_queue {
	atomic_t tail;
};

struct mutex {
	atomic_long_t owner;
	struct optimistic_spin_queue osq;
};

struct rw_semaphore {
	atomic_long_t owner;
	struct list_head wait_list;
};

/* In newer kernels (7.3) those that wait are a circle without a head. */
struct rwsem_waiter {
	struct list_head list;
};

struct rw_semaphore___circle {
	struct rwsem_waiter *first_waiter;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	u64 start_time_ns;
};

/* Before 5.14 the member was `state`. */
struct task_struct___old {
	long state;
};

struct pt_regs {
#if defined(__TARGET_ARCH_arm64)
	unsigned long regs[31];
	unsigned long sp;
	unsigned long pc;
	unsigned long orig_x0;
	int syscallno;
#else
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax;
	unsigned long ip, cs, flags, sp, ss;
#endif
};

#pragma clang attribute pop

#define PF_IDLE 0x00000002
#define PF_IO_WORKER 0x00000010
#define PF_EXITING 0x00000004
#define PF_MEMALLOC 0x00000800
#define PF_KTHREAD 0x00200000

#define TASK_RUNNING 0
#define TASK_INTERRUPTIBLE 1
#define TASK_UNINTERRUPTIBLE 2
#define TASK_STOPPED 0x04
#define TASK_TRACED 0x08
#define TASK_DEAD 0x80
#define TASK_FROZEN 0x8000

#endif
