/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Recognises the threads of the observed program; each loader makes the settings (Target). */
#ifndef NCPU_TARGET_H
#define NCPU_TARGET_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

const volatile __u32 cfg_all;		/* every thread is the program */
const volatile __u32 cfg_tgid;		/* or this process and what it starts */
const volatile __u64 cfg_cgroup;	/* or this cgroup (v2 inode) */
const volatile __u32 cfg_cgroup_level;
const volatile __u32 cfg_self;		/* ncpu's own process */
const volatile __u32 cfg_readers;	/* its child; the children of that child read other users' files; 0: none */

/* Whether a process is ncpu or one of its file readers, by its number and its parent's. */
#define NCPU_IS(tgid, parent) ((tgid) == cfg_self || (cfg_readers && ((tgid) == cfg_readers || (parent) == cfg_readers)))

static __always_inline bool is_ncpu(struct task_struct *p)
{
	return NCPU_IS(p->tgid, p->real_parent->tgid);
}

static __always_inline bool cgroup_holds(struct task_struct *p)
{
	struct cgroup *c = BPF_CORE_READ(p, cgroups, dfl_cgrp);
	int level = BPF_CORE_READ(c, level);

	if (level < (int)cfg_cgroup_level)
		return false;
	struct cgroup *a = NULL;
	if (bpf_core_field_exists(c->ancestors)) {
		bpf_core_read(&a, sizeof(a), &c->ancestors[cfg_cgroup_level & 63]);
		return BPF_CORE_READ(a, kn, id) == cfg_cgroup;
	}
	return BPF_CORE_READ(c, kn, id) == cfg_cgroup;
}

/* Whether a thread seen for the first time belongs to the program. Threads older than the observation are
 * recognised by their ancestors. `p` may be made of a number. */
static __always_inline bool is_target(struct task_struct *p)
{
	__u32 tgid = BPF_CORE_READ(p, tgid);

	if (NCPU_IS(tgid, BPF_CORE_READ(p, real_parent, tgid)))
		return false;
	if (cfg_all)
		return !(BPF_CORE_READ(p, flags) & PF_IDLE);
	if (cfg_cgroup)
		return cgroup_holds(p);
	for (int i = 0; i < 12; i++) {
		if (tgid == cfg_tgid)
			return true;
		if (tgid <= 1)
			return false;
		p = BPF_CORE_READ(p, real_parent);
		tgid = BPF_CORE_READ(p, tgid);
	}
	return false;
}

#endif
