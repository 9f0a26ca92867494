/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Flags of lock:contention_begin: LCB_F_* of include/trace/events/lock.h. */
#ifndef NCPU_LOCKS_H
#define NCPU_LOCKS_H

#define LCB_F_SPIN 1
#define LCB_F_READ 2
#define LCB_F_WRITE 4
#define LCB_F_RT 8
#define LCB_F_PERCPU 16
#define LCB_F_MUTEX 32

#endif
