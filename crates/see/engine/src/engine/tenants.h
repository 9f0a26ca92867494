/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whose each thread is: its control group, program and user, which have a number. User space puts these together to tenants.
 *
 * A thread's number is looked for when it comes on CPU for the first time, and again when its control groups or its program
 * have changed. The time of a CPU is charged to it when another tenant's thread comes on CPU there.
 */
#ifndef NCPU_TENANTS_H
#define NCPU_TENANTS_H

#include "settings.h"
#include "cpu_states.h"

const volatile __u32 cfg_tenants; /* numbers, a power of two; 0: no accounts by tenant */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
	freezer_cgrp_id = 6,
	pids_cgrp_id = 11,
};

struct cgroup_root {
	int hierarchy_id;
};

/* Before 6.15 the member was `parent`. */
struct kernfs_node___old {
	struct kernfs_node *parent;
};
#pragma clang attribute pop

/* Keys of numbers, an open-addressed hash table with two rows for each number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tenant_key);
} tenant_keys SEC(".maps");

/* Numbers that nobody has: a ring, of which user space offers and threads take. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} tenant_free SEC(".maps");

/* One per number and CPU; behind those of all CPUs the waits that user space has judged. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tenant_slot);
} tenant_slots SEC(".maps");

/* Numbers of threads, by the lower half of the thread's own number: holders of locks are known by that. Written when it changes. */
#define TENANT_PIDS 65536
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TENANT_PIDS);
	__type(key, __u32);
	__type(value, __u32);
} tenant_pids SEC(".maps");

__u32 tenants_taken;	/* numbers taken from the ring so far */
__u32 tenants_offered;	/* and offered */
__u64 tenants_missed;	/* threads for which there was no number */

static __always_inline struct tenant_slot *tenant_slot(__u32 cpu, __u32 tenant)
{
	__u32 key = cpu * cfg_tenants + (tenant & (cfg_tenants - 1));

	return bpf_map_lookup_elem(&tenant_slots, &key);
}

/* A thread begins or ends a wait: counted where the CPU's own counts are, as a net number. */
static __always_inline void tenant_waits(__u32 cpu, __u32 tenant, __u32 wait, __s32 n)
{
	struct tenant_slot *t = cfg_tenants ? tenant_slot(cpu, tenant) : NULL;

	if (t)
		t->waiting[MASK(wait, 7)] += n;
}

/*
 * The control group of a thread's tenant: the deepest of those of version 2, of CPU time and of the number of threads, and where
 * another is deeper than these, of freezing. Runtimes may leave some of these alone, and what they leave is a parent's; Slurm makes
 * groups of version 1 that freeze and leaves CPU time alone.
 */
static __always_inline struct cgroup *tenant_group(struct task_struct *p)
{
	struct css_set *set = BPF_CORE_READ(p, cgroups);
	struct cgroup *found = BPF_CORE_READ(set, dfl_cgrp);
	int level = BPF_CORE_READ(found, level);
	__u64 controllers[3] = {
		bpf_core_enum_value_exists(enum cgroup_subsys_id, cpu_cgrp_id) ?
			bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id) : 64,
		bpf_core_enum_value_exists(enum cgroup_subsys_id, pids_cgrp_id) ?
			bpf_core_enum_value(enum cgroup_subsys_id, pids_cgrp_id) : 64,
		bpf_core_enum_value_exists(enum cgroup_subsys_id, freezer_cgrp_id) ?
			bpf_core_enum_value(enum cgroup_subsys_id, freezer_cgrp_id) : 64,
	};

#pragma unroll
	for (int i = 0; i < 3; i++) {
		struct cgroup_subsys_state___tenant *css = NULL;
		if (controllers[i] >= 64)
			continue;
		bpf_core_read(&css, sizeof(css), &set->subsys[controllers[i] & 63]);
		struct cgroup *group = css ? BPF_CORE_READ(css, cgroup) : NULL;
		int depth = group ? BPF_CORE_READ(group, level) : 0;
		/* In a hierarchy of version 1 a container's own group may be no deeper than the service that runs it. */
		if (depth > 0 && (depth > level || (depth == level && i < 2))) {
			found = group;
			level = depth;
		}
	}
	return found;
}

/* A number from the ring; 0 where it is empty. */
static __always_inline __u32 take_tenant(void)
{
	for (int i = 0; i < 4; i++) {
		__u32 taken = *(volatile __u32 *)&tenants_taken;
		if (taken == *(volatile __u32 *)&tenants_offered)
			return 0;
		if (__sync_val_compare_and_swap(&tenants_taken, taken, taken + 1) != taken)
			continue;
		__u32 key = taken & (cfg_tenants - 1);
		__u64 *number = bpf_map_lookup_elem(&tenant_free, &key);
		return number ? *number : 0;
	}
	return 0;
}

/*
 * Takes a number for a tenant and sends it with the path of the tenant's group, innermost component first, each with a 0 behind it.
 * Returns 0 if no number is left or the ring has no room: otherwise a tenant whose name was never sent would stay without a name
 * until it ends.
 */
APART int name_tenant(__u64 group, __u64 task)
{
	struct tenant_event *e = bpf_ringbuf_reserve(&ring, sizeof(*e), 0);
	struct task_struct *p = (void *)task;
	struct cgroup *c = (void *)group;

	if (!e) {
		struct cpu_slot *s = slot();
		if (s)
			s->drop_ring++;
		return 0;
	}
	__u32 tenant = take_tenant();
	if (!tenant) {
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
		return 0;
	}
	e->head.kind = EV_TENANT;
	e->head.cpu = bpf_get_smp_processor_id();
	e->head.tgid = BPF_CORE_READ(p, tgid);
	e->head.tid = BPF_CORE_READ(p, pid);
	e->head.time = bpf_ktime_get_ns();
	struct task_struct *leader = BPF_CORE_READ(p, group_leader);
	bpf_core_read(&e->head.comm, sizeof(e->head.comm), &leader->comm);
	e->tenant = tenant;
	e->uid = BPF_CORE_READ(p, cred, uid.val);
	struct kernfs_node *node = BPF_CORE_READ(c, kn);
	__u32 bytes = 0;
	for (int i = 0; i < TENANT_DEPTH; i++) {
		struct kernfs_node *parent;
		if (bpf_core_field_exists(node->__parent))
			parent = BPF_CORE_READ(node, __parent);
		else
			parent = BPF_CORE_READ((struct kernfs_node___old *)node, parent);
		if (!parent || bytes > TENANT_PATH)
			break;
		const char *name = BPF_CORE_READ(node, name);
		long n = bpf_probe_read_kernel_str(e->path + bytes, TENANT_NAME, name);
		if (n <= 0 || n > TENANT_NAME)
			break;
		bytes += n;
		node = parent;
	}
	e->bytes = bytes;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return tenant;
}

/* The number of a thread's control group, program and user. */
APART int find_tenant(__u64 task)
{
	struct task_struct *p = (void *)task, *leader = BPF_CORE_READ(p, group_leader);
	struct cgroup *group = tenant_group(p);
	__u64 program[2] = {}, id = BPF_CORE_READ(group, kn, id);
	__u32 hierarchy = BPF_CORE_READ(group, root, hierarchy_id), uid = BPF_CORE_READ(p, cred, uid.val);

	bpf_core_read(program, sizeof(program), &leader->comm);
	__u64 hash = (id ^ (__u64)hierarchy << 56 ^ (__u64)uid << 24 ^ program[0] * SPREAD ^ program[1]) * SPREAD;
	for (__u32 probe = 0; probe < TENANT_PROBES; probe++) {
		__u32 row = ((hash >> 32) + probe) & (2 * cfg_tenants - 1);
		struct tenant_key *k = bpf_map_lookup_elem(&tenant_keys, &row);
		if (!k)
			break;
		__u32 state = *(volatile __u32 *)&k->state;
		if (state == TENANT_KNOWN && k->cgroup == id && k->hierarchy == hierarchy && k->uid == uid &&
		    k->program[0] == program[0] && k->program[1] == program[1])
			return k->tenant;
		if (state != TENANT_NONE || __sync_val_compare_and_swap(&k->state, TENANT_NONE, TENANT_WRITTEN) != TENANT_NONE)
			continue;
		__u32 tenant = name_tenant((__u64)group, task);
		if (!tenant) {
			k->state = TENANT_NONE;
			break;
		}
		k->cgroup = id;
		k->hierarchy = hierarchy;
		k->uid = uid;
		k->program[0] = program[0];
		k->program[1] = program[1];
		k->tenant = tenant;
		barrier();
		*(volatile __u32 *)&k->state = TENANT_KNOWN;
		return tenant;
	}
	__sync_fetch_and_add(&tenants_missed, 1);
	return TENANT_OTHERS;
}

/* From now on the CPU runs another tenant's thread: what it has been at until now is charged to the one before. */
APART int change_tenant(struct cpu_slot *s, __u32 next)
{
	struct tenant_slot *t = s ? tenant_slot(bpf_get_smp_processor_id(), s->tenant) : NULL;

	if (!s)
		return 0;
	for (int i = 0; i < AT_N; i++) {
		__u64 now = s->at[i];
		if (t)
			t->at[i] += now - s->charged[i];
		s->charged[i] = now;
	}
	s->tenant = next;
	return 0;
}

/* A packet for a socket of this machine, by way of loopback or a virtual pair. Those that an interrupt forwards have no sender here. */
SEC("tp_btf/netif_rx")
int packet_sent(void *ctx)
{
	struct cpu_slot *s = slot();
	struct tenant_slot *t = s && !s->depth ? tenant_slot(bpf_get_smp_processor_id(), s->tenant) : NULL;

	if (t)
		t->sent++;
	return 0;
}

/* A packet is read from a socket. */
SEC("tp_btf/skb_copy_datagram_iovec")
int packet_received(void *ctx)
{
	struct cpu_slot *s = slot();
	struct tenant_slot *t = s && !s->depth ? tenant_slot(bpf_get_smp_processor_id(), s->tenant) : NULL;

	if (t)
		t->received++;
	return 0;
}

/*
 * The tenant of the thread that holds a kernel lock, as the lock's own word has it; 0: not known. A semaphore of readers and
 * writers keeps the reader that took it last.
 */
static __always_inline __u32 tenant_of_holder(__u64 lock, __u32 flags)
{
	__u64 owner = 0;

	if (flags & LCB_F_MUTEX) {
		struct mutex *m = (void *)lock;
		owner = BPF_CORE_READ(m, owner.counter);
	} else if (flags == LCB_F_READ || flags == LCB_F_WRITE) {
		struct rw_semaphore *w = (void *)lock;
		if (bpf_core_field_exists(w->owner))
			owner = BPF_CORE_READ(w, owner.counter);
	}
	struct task_struct *p = (void *)(owner & ~7ull);
	if (!p)
		return 0;
	__u32 pid = BPF_CORE_READ(p, pid), key = pid & (TENANT_PIDS - 1);
	__u32 *known = bpf_map_lookup_elem(&tenant_pids, &key);
	return known && *known >> 16 == pid >> 16 ? *known & 0xffff : 0;
}

/* A look at tenants takes this long at most, as a part of the time: rows that are looked at in a second. */
#define TENANT_LOOKS 200000
#define TENANT_LOOK_EVERY 10000000 /* ns, at least */

/* What the threads of each tenant wait for, and what CPUs idle for it: by the leader alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tenant_look);
} tenant_looks SEC(".maps");

__u32 tenants_high;	/* numbers below this one may be in use */
__u64 tenants_looked;	/* ns, when the leader looked at tenants last */
__u64 tenants_looks;	/* how often */
struct {
	__s64 waiting[8];	/* threads of all tenants */
	__u64 active;		/* tenants with a thread that runs or waits for something but an event */
	__u64 dt;
	__u32 idle[8];		/* CPUs, by enum idle */
} tenant_sum;

static long clear_running(__u32 i, void *none)
{
	struct tenant_look *l = bpf_map_lookup_elem(&tenant_looks, &i);

	if (l)
		l->running = 0;
	return 0;
}

static long count_running(__u32 cpu, void *none)
{
	struct cpu_slot *s = bpf_map_lookup_elem(&cpu_slots, &cpu);

	if (!s || !s->last || s->base != AT_TARGET || s->kernel_thread)
		return 0;
	__u32 tenant = s->tenant;
	struct tenant_look *l = bpf_map_lookup_elem(&tenant_looks, &tenant);
	if (l)
		l->running++;
	return 0;
}

struct tenant_adding {
	struct tenant_look *look;
	__u32 tenant;
	__u32 pad;
};

static long add_waits(__u32 cpu, struct tenant_adding *adding)
{
	struct tenant_slot *t = tenant_slot(cpu, adding->tenant);
	struct tenant_look *l = adding->look;

	if (!t || !l)
		return 1;
	for (int i = 0; i < WAITS; i++)
		l->waiting[i] += t->waiting[i];
	return 0;
}

static long look_at_tenant(__u32 i, void *none)
{
	struct tenant_look *l = bpf_map_lookup_elem(&tenant_looks, &i);

	struct tenant_adding adding = { .look = l, .tenant = i };

	if (!l)
		return 1;
	for (int w = 0; w < WAITS; w++)
		l->waiting[w] = 0;
	/* One more part than CPUs: the judged ones. */
	bpf_loop(cfg_cpus + 1, add_waits, &adding, 0);
	l->waiting[WAIT_RUNQ] += l->waiting[WAIT_FROM_LOCK] + l->waiting[WAIT_FROM_SLEEP];
	bool active = l->running;
	for (int w = WAIT_RUNQ; w <= WAIT_IO; w++) {
		__s64 n = l->waiting[w];
		if (n <= 0)
			continue;
		active = true;
		tenant_sum.waiting[w] += n;
	}
	tenant_sum.active += active;
	l->active = active;
	return 0;
}

/* Gives a tenant its part of the idle CPUs: in proportion to its waiting threads for each reason that has waiting threads, else an equal
 * part among active tenants. */
static long give_idle(__u32 i, void *none)
{
	struct tenant_look *l = bpf_map_lookup_elem(&tenant_looks, &i);

	if (!l)
		return 1;
	if (!l->active)
		return 0;
	for (int w = WAIT_RUNQ; w <= WAIT_IO; w++) {
		__s64 n = l->waiting[w], all = tenant_sum.waiting[w];
		__u64 ns = tenant_sum.idle[w - 1] * tenant_sum.dt;
		if (all > 0)
			l->idle[w - 1] += n > 0 ? ns * n / (__u64)all : 0;
		else
			l->idle[w - 1] += ns / (tenant_sum.active ?: 1);
	}
	l->idle[IDLE_SERIAL] += tenant_sum.idle[IDLE_SERIAL] * tenant_sum.dt / (tenant_sum.active ?: 1);
	return 0;
}

/* The leader has looked at all CPUs: whom do the idle ones idle for? As often as the number of tenants and CPUs allows. */
APART int look_at_tenants(const struct cpu_slot *own, __u64 now)
{
	__u32 high = tenants_high;
	__u64 rows = (__u64)high * (cfg_cpus + 1), since = now - tenants_looked;

	if (!own || !cfg_tenants)
		return 0;
	__u64 every = rows * (1000000000 / TENANT_LOOKS);
	if (since < TENANT_LOOK_EVERY || since < every)
		return 0;
	tenant_sum.dt = tenants_looked ? since : 0;
	tenants_looked = now;
	tenants_looks++;
	for (int i = 0; i < 8; i++) {
		tenant_sum.waiting[i] = 0;
		tenant_sum.idle[i] = i < IDLE_N ? own->look.of[i] : 0;
	}
	tenant_sum.active = 0;
	bpf_loop(high, clear_running, NULL, 0);
	bpf_loop(cfg_cpus, count_running, NULL, 0);
	bpf_loop(high, look_at_tenant, NULL, 0);
	bpf_loop(high, give_idle, NULL, 0);
	return 0;
}

#endif
