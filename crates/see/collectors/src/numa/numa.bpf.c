// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * CPU time of each thread by NUMA node, for `ncpu numa`; what each wants of CPUs, for `ncpu place balance`.
 *
 * A thread's times lie in its own task storage, written by the CPU it runs on, so nothing is shared between
 * CPUs on the path of a switch. The times of a thread that ends are added to its process's entry of `gone`.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NODES 64

struct cpu {
	__u64 since;
	__u32 tid, tgid;
	__u32 node, pad;
	__u64 dropped; /* ns of threads without storage, or on nodes beyond NODES */
	__u64 rest[4]; /* a cache line each */
};

struct thread {
	__u64 time[NODES];
};

struct out {
	__u32 tgid, tid;
	char comm[16]; /* of the process */
	struct thread thread;
};

struct out outs; /* never written: by it the skeleton knows the layout */

struct gone_key {
	__u32 tgid, node;
};

struct gone {
	__u64 time;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct gone_key);
	__type(value, struct gone);
} gone SEC(".maps");

static __always_inline struct cpu *mine(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline void charge(struct cpu *c, struct task_struct *task, __u64 now)
{
	__u32 node = bpf_get_numa_node_id();
	struct thread *t;

	if (!c->since || !task->pid)
		return;
	t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		c->dropped += now - c->since;
		return;
	}
	if (node >= NODES) {
		c->dropped += now - c->since;
		return;
	}
	t->time[node & (NODES - 1)] += now - c->since;
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	__u64 now = bpf_ktime_get_ns();
	struct cpu *c = mine();

	if (!c)
		return 0;
	charge(c, prev, now);
	c->since = now;
	c->tid = next->pid;
	c->tgid = next->tgid;
	c->node = bpf_get_numa_node_id();
	return 0;
}

/* Run once on every CPU: a thread that is never switched out must be known too. */
SEC("raw_tp")
int mark(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cpu *c = mine();

	if (!c || c->since)
		return 0;
	c->tid = task->pid;
	c->tgid = task->tgid;
	c->node = bpf_get_numa_node_id();
	c->since = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void leave(struct cpu *c, struct gone_key *key, const struct gone *zero, __u64 time)
{
	struct gone *g;

	bpf_map_update_elem(&gone, key, zero, BPF_NOEXIST);
	g = bpf_map_lookup_elem(&gone, key);
	if (g)
		__sync_fetch_and_add(&g->time, time);
	else
		c->dropped += time;
}

SEC("tp_btf/sched_process_exit")
int on_exit(__u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 now = bpf_ktime_get_ns();
	struct gone_key key = {};
	struct gone zero = {};
	struct cpu *c = mine();
	struct thread *t;

	key.tgid = task->tgid;
	bpf_probe_read_kernel_str(zero.comm, sizeof(zero.comm), task->group_leader->comm);
	/* It is on CPU now; what the switch away from it will charge goes with its storage. */
	if (!c)
		return 0;
	if (c->since && now > c->since) {
		key.node = bpf_get_numa_node_id();
		leave(c, &key, &zero, now - c->since);
	}
	t = bpf_task_storage_get(&threads, task, NULL, 0);
	if (!t)
		return 0;
	for (int node = 0; node < NODES; node++) {
		__u64 time = t->time[node];

		if (!time)
			continue;
		key.node = node;
		leave(c, &key, &zero, time);
		t->time[node] = 0;
	}
	return 0;
}

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

SEC("iter/task")
int dump(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct {
		__u32 tgid, tid;
		char comm[16];
	} out = {};
	struct thread *t;

	if (!task)
		return 0;
	t = bpf_task_storage_get(&threads, task, NULL, 0);
	if (!t)
		return 0;
	out.tgid = task->tgid;
	out.tid = task->pid;
	bpf_probe_read_kernel_str(out.comm, sizeof(out.comm), task->group_leader->comm);
	bpf_seq_write(seq, &out, sizeof(out));
	bpf_seq_write(seq, t, sizeof(*t));
	return 0;
}

/* The kernel's own sums, which it keeps without us: nothing is traced for them. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct___sums {
	int exit_state;
	struct sched_entity se;
	struct sched_info sched_info;
	struct thread_info thread_info;
};
/* Before 5.16 on x86. */
struct task_struct___cpu {
	unsigned int cpu;
};
#pragma clang attribute pop

struct want {
	__u32 tgid, tid, parent, cpu;
	__u64 spent; /* ns on CPU and waiting for one */
};

struct want wants_layout; /* never written: by it the skeleton knows the layout */

SEC("iter/task")
int wants(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_struct___sums *sums = (void *)task;
	struct want want = {};

	/* Those that have ended want nothing more, though their parents have yet to take note. */
	if (!task || task->flags & PF_KTHREAD || BPF_CORE_READ(sums, exit_state))
		return 0;
	want.tgid = task->tgid;
	want.tid = task->pid;
	want.parent = task->real_parent->tgid;
	want.spent = BPF_CORE_READ(sums, se.sum_exec_runtime);
	if (bpf_core_field_exists(sums->sched_info.run_delay))
		want.spent += BPF_CORE_READ(sums, sched_info.run_delay);
	if (bpf_core_field_exists(sums->thread_info.cpu))
		want.cpu = BPF_CORE_READ(sums, thread_info.cpu);
	else
		want.cpu = BPF_CORE_READ((struct task_struct___cpu *)task, cpu);
	bpf_seq_write(ctx->meta->seq, &want, sizeof(want));
	return 0;
}
