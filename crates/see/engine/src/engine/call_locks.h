/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Locks that system calls take: of files, of System V's semaphores and queues. Looked at when a thread falls asleep in one of
 * these calls, so a call that need not wait costs nothing.
 */
#ifndef NCPU_CALL_LOCKS_H
#define NCPU_CALL_LOCKS_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"

/* include/uapi/asm-generic/fcntl.h */
#define F_SETLKW 7
#define F_OFD_SETLKW 38

#define KERNEL_HALF (1ull << 63) /* addresses from here on are the kernel's: no futex lies there */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct inode___held;

struct file___held {
	struct inode___held *f_inode;
};

struct fdtable___held {
	unsigned int max_fds;
	struct file___held **fd;
};

struct files_struct___held {
	struct fdtable___held *fdt;
};

struct task_struct___held {
	struct files_struct___held *files;
};

#pragma clang attribute pop

/* The file that a descriptor of the current thread is of, by its inode; 0: of none. */
static __always_inline __u64 inode_of(__u32 fd)
{
	struct task_struct___held *p = (void *)bpf_get_current_task();
	struct file___held *file = NULL;
	struct fdtable___held *table = BPF_CORE_READ(p, files, fdt);

	if (!table || fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	struct file___held **files = BPF_CORE_READ(table, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), files + fd) || !file)
		return 0;
	return (__u64)BPF_CORE_READ(file, f_inode);
}

/*
 * The current thread, which leaves its CPU in call `nr`, waits for a lock of such a kind: what it waits for stands for a futex.
 * Its class, or FUTEX_UNKNOWN where the call is none of these. Not static, so that the verifier looks at it once.
 */
APART int waits_in_call(struct task_rec *r, int nr)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(p);
	__u32 class = FUTEX_UNKNOWN, cmd;
	__u64 what = 0;

	if (!r)
		return FUTEX_UNKNOWN;
	switch (nr) {
	case NR_fcntl:
		cmd = ARG1(regs);
		if (cmd != F_SETLKW && cmd != F_OFD_SETLKW)
			return FUTEX_UNKNOWN;
		/* fall through */
	case NR_flock:
		class = FUTEX_LOCK;
		r->fd = ARG0(regs);
		what = inode_of(r->fd);
		break;
	case NR_mq_timedsend:
	case NR_mq_timedreceive:
		class = FUTEX_COND;
		r->fd = ARG0(regs);
		what = inode_of(r->fd);
		break;
	case NR_semop:
	case NR_semtimedop:
		/* Mutexes and counters alike: which, nothing tells. */
		class = FUTEX_SEM;
		r->fd = ARG0(regs);
		what = KERNEL_HALF | (__u32)ARG0(regs);
		break;
	case NR_msgsnd:
	case NR_msgrcv:
		class = FUTEX_COND;
		r->fd = ARG0(regs);
		what = KERNEL_HALF | 1ull << 32 | (__u32)ARG0(regs);
		break;
	}
	if (!(what & KERNEL_HALF))
		return FUTEX_UNKNOWN;
	r->futex = what;
	r->key = (__u64)p->tgid << 48 ^ what;
	r->place = 0;
	r->ask = 1;
	r->futex_word = class << 16;
	return class;
}

#endif
