/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The current system call of a thread: number and arguments, from the registers saved on entry. */
#ifndef NCPU_SYSCALL_H
#define NCPU_SYSCALL_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define SYSCALLS 512	/* numbers below this are counted separately */
#define NO_CALL (~0ULL)	/* a fault, or an interrupted program */

#if defined(__TARGET_ARCH_arm64)
#define ARG0(regs) (regs)->orig_x0
#define ARG1(regs) (regs)->regs[1]
#define ARG2(regs) (regs)->regs[2]
#define ARG3(regs) (regs)->regs[3]
#define ARG4(regs) (regs)->regs[4]
/* include/uapi/asm-generic/unistd.h; those below 0 are not in it. */
enum { NR_nanosleep = 101, NR_clock_nanosleep = 115, NR_poll = -1, NR_ppoll = 73, NR_select = -2, NR_pselect6 = 72,
       NR_epoll_wait = -3, NR_epoll_pwait = 22, NR_epoll_pwait2 = 441, NR_futex = 98, NR_sigtimedwait = 137,
       NR_io_getevents = 4, NR_semtimedop = 192,
       NR_write = 64, NR_io_submit = 2, NR_io_pgetevents = 292, NR_io_uring_enter = 426, NR_flock = 32, NR_fcntl = 25,
       NR_semop = 193, NR_msgsnd = 189, NR_msgrcv = 188, NR_mq_timedsend = 182, NR_mq_timedreceive = 183,
       NR_clone = 220, NR_clone3 = 435, NR_fork = -4, NR_vfork = -5, NR_execve = 221, NR_execveat = 281 };
#else
#define ARG0(regs) (regs)->di
#define ARG1(regs) (regs)->si
#define ARG2(regs) (regs)->dx
#define ARG3(regs) (regs)->r10
#define ARG4(regs) (regs)->r8
/* arch/x86/entry/syscalls/syscall_64.tbl */
enum { NR_nanosleep = 35, NR_clock_nanosleep = 230, NR_poll = 7, NR_ppoll = 271, NR_select = 23, NR_pselect6 = 270,
       NR_epoll_wait = 232, NR_epoll_pwait = 281, NR_epoll_pwait2 = 441, NR_futex = 202, NR_sigtimedwait = 128,
       NR_io_getevents = 208, NR_semtimedop = 220,
       NR_write = 1, NR_io_submit = 209, NR_io_pgetevents = 333, NR_io_uring_enter = 426, NR_flock = 73, NR_fcntl = 72,
       NR_semop = 65, NR_msgsnd = 69, NR_msgrcv = 70, NR_mq_timedsend = 242, NR_mq_timedreceive = 243,
       NR_clone = 56, NR_clone3 = 435, NR_fork = 57, NR_vfork = 58, NR_execve = 59, NR_execveat = 322 };
#endif

/* include/uapi/linux/futex.h */
#define FUTEX_CMD 127		/* the operation, without its flags */
#define FUTEX_PRIVATE_SHIFT 7	/* of FUTEX_PRIVATE_FLAG */
#define FUTEX_CLOCK_REALTIME 256
enum { FUTEX_WAIT = 0, FUTEX_LOCK_PI = 6, FUTEX_WAIT_BITSET = 9, FUTEX_LOCK_PI2 = 13 };

/* include/uapi/linux/time.h */
#define CLOCK_MONOTONIC 1
#define TIMER_ABSTIME 1

/* The number of the call; NO_CALL if the kernel was not entered by a system call. */
static __always_inline __u64 call_number(struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_arm64)
	__u64 nr = (__u32)(regs)->syscallno;
#else
	__u64 nr = (regs)->orig_ax;
#endif
	return nr < SYSCALLS ? nr : NO_CALL;
}

#endif
