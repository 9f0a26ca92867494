// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What kernel objects lie at given addresses. Nothing is attached: user space hands over a batch of
 * addresses and runs a program once.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MAX_CPUS 8192
#define MAX_NODES 1024
#define MAX_HASHES 4096
#define NAME_LEN 32
#define COMM_LEN 16

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kmem_cache_order_objects {
	unsigned int x;
};

struct kmem_cache {
	unsigned int size;
	unsigned int object_size;
	unsigned int red_left_pad;
	struct kmem_cache_order_objects oo;
	struct kmem_cache_order_objects min;
	const char *name;
};

struct rq___names {
	int cpu;
};

struct cfs_rq___names {
	struct rq___names *rq;
};

struct sched_entity___names {
	struct cfs_rq___names *cfs_rq;
};

struct pglist_data___names {
	int node_id;
};

struct lruvec___names {
	struct pglist_data___names *pgdat;
};

struct mem_cgroup_per_node___names {
	struct lruvec___names lruvec;
};

struct cgroup_subsys_state___names {
	int id;
};

struct mem_cgroup___names {
	struct cgroup_subsys_state___names css;
	struct mem_cgroup_per_node___names *nodeinfo[];
};

struct css_set___names {
	struct cgroup_subsys_state___names *subsys[1];
};

enum cgroup_subsys_id___names {
	memory_cgrp_id___names = 1,
};

struct slab___names {
	struct kmem_cache *slab_cache;
};

struct page___names {
	unsigned long flags;
	unsigned long compound_head;
	struct kmem_cache *slab_cache;	/* before 5.17 */
};

enum pageflags___names {
	PG_slab___names = 7,
};

struct vm_struct___names {
	struct page___names **pages;
};

/* Since 6.16. */
struct futex_hash_bucket___names {
	int waiters;
};

struct futex_private_hash___names {
	unsigned int hash_mask;
	struct futex_hash_bucket___names queues[];
};

struct mm_struct___names {
	struct futex_private_hash___names *futex_phash;
};

struct task_struct___names {
	int tgid;
	char comm[COMM_LEN];
	void *mm;
	void *files;
	void *fs;
	void *signal;
	void *sighand;
	struct task_struct___names *group_leader;
	struct sched_entity___names se;
	struct css_set___names *cgroups;
	struct vm_struct___names *stack_vm_area;
};

struct bpf_iter__task {
	struct task_struct *task;
};

#pragma clang attribute pop

/* Since 6.13. */
extern struct kmem_cache *bpf_get_kmem_cache(__u64 addr) __ksym __weak;

struct slab_object {
	char name[NAME_LEN];
	__u32 size;
	__u32 object_size;
	__u32 red_left_pad;
	__u32 oo;	/* order << 16 | objects */
	__u32 min;	/* the same, when memory was fragmented */
	__u32 found;
};

struct owner {
	__u32 tgid;
	char comm[COMM_LEN];
};

/* One address a run: a loop here would cost the verifier more than the runs cost. */
__u64 addr;
struct slab_object object;
__u32 have_slabs;

/* The starts of the direct map and of the array of pages, or where x86-64 kernels keep them, if known. */
__u64 direct_map_at;
__u64 pages_at;
__u32 without_kfunc;	/* for tests: do as older kernels must */
__u64 direct_map;
__u64 pages;
__u32 page_bits = 12;

/* What bpf_get_kmem_cache does, for kernels that do not have it. */
static struct kmem_cache *slab_of_page(void)
{
	struct kmem_cache *cache = NULL;
	struct page___names *page;
	unsigned long head = 0;

	if (direct_map_at)
		bpf_probe_read_kernel(&direct_map, sizeof(direct_map), (void *)direct_map_at);
	if (pages_at)
		bpf_probe_read_kernel(&pages, sizeof(pages), (void *)pages_at);
	if (!direct_map || !pages)
		return NULL;
	have_slabs = 1;
	/* Kernels that encode heads in another way (7.1) have the function. A missing field must not even be
	 * reachable for the verifier. */
	if (addr < direct_map || addr >= pages || !bpf_core_field_exists(struct page___names, compound_head))
		return NULL;
	page = (void *)(pages + ((addr - direct_map) >> page_bits) * bpf_core_type_size(struct page___names));
	if (bpf_core_read(&head, sizeof(head), &page->compound_head))
		return NULL;
	if (head & 1)
		page = (void *)(head - 1);
	/* Later kernels tell by another member; the check of the cache's shape must do there. */
	if (bpf_core_enum_value_exists(enum pageflags___names, PG_slab___names) &&
	    !(BPF_CORE_READ(page, flags) >> bpf_core_enum_value(enum pageflags___names, PG_slab___names) & 1))
		return NULL;
	if (bpf_core_type_exists(struct slab___names))
		bpf_core_read(&cache, sizeof(cache), &((struct slab___names *)page)->slab_cache);
	else if (bpf_core_field_exists(page->slab_cache))
		bpf_core_read(&cache, sizeof(cache), &page->slab_cache);
	return cache;
}

SEC("syscall")
int name_slab(void *ctx)
{
	struct kmem_cache *s = NULL;

	object.found = 0;
	if (bpf_get_kmem_cache && !without_kfunc) {
		have_slabs = 1;
		s = bpf_get_kmem_cache(addr);
	} else {
		s = slab_of_page();
	}
	if (!s)
		return 0;
	object.size = BPF_CORE_READ(s, size);
	object.object_size = BPF_CORE_READ(s, object_size);
	object.oo = BPF_CORE_READ(s, oo.x);
	object.min = BPF_CORE_READ(s, min.x);
	object.red_left_pad = BPF_CORE_READ(s, red_left_pad);
	if (!object.size || object.object_size > object.size || !(object.oo & 0xffff))
		return 0;
	object.found = bpf_probe_read_kernel_str(object.name, sizeof(object.name), BPF_CORE_READ(s, name)) > 1;
	return 0;
}

/* Objects that need an owner, by address. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct owner);
} owned SEC(".maps");

__u32 want_owners;
__u32 want_places;
__u32 want_hashes;
__u32 hash_count;
struct hash {
	__u64 start, end;
} hashes[MAX_HASHES];	/* where the buckets of the futexes of each process lie */
__u64 run_queues[MAX_CPUS];
__u64 nodes[MAX_NODES];
__u32 node_count;
__u64 a_page;
__u64 a_task;	/* an object of the cache task_struct */

static void note_owner(struct task_struct___names *task, const void *object)
{
	__u64 key = (__u64)object;
	struct owner *owner = object ? bpf_map_lookup_elem(&owned, &key) : NULL;
	struct task_struct___names *leader;

	if (!owner || owner->tgid)
		return;
	leader = BPF_CORE_READ(task, group_leader);
	bpf_probe_read_kernel(owner->comm, sizeof(owner->comm), &leader->comm);
	owner->tgid = BPF_CORE_READ(task, tgid);
}

/*
 * A memory cgroup knows the node data, which have no other way in without symbols. Each task visited
 * gives one node: there are always more tasks than nodes.
 */
static void note_node(struct task_struct___names *task)
{
	struct mem_cgroup_per_node___names *info = NULL;
	struct pglist_data___names *node;
	struct mem_cgroup___names *memcg = NULL;
	struct css_set___names *set;
	__u32 i = node_count;
	__u64 id;

	if (i >= MAX_NODES || !bpf_core_field_exists(((struct lruvec___names *)0)->pgdat) ||
	    !bpf_core_enum_value_exists(enum cgroup_subsys_id___names, memory_cgrp_id___names))
		return;
	id = bpf_core_enum_value(enum cgroup_subsys_id___names, memory_cgrp_id___names);
	set = BPF_CORE_READ(task, cgroups);
	bpf_probe_read_kernel(&memcg, sizeof(memcg), &set->subsys[id]);
	if (!memcg)
		return;
	bpf_probe_read_kernel(&info, sizeof(info), &memcg->nodeinfo[i]);
	node = info ? BPF_CORE_READ(info, lruvec.pgdat) : NULL;
	if (node && BPF_CORE_READ(node, node_id) == i) {
		nodes[i] = (__u64)node;
		node_count = i + 1;
	}
}

static void note_hash(struct task_struct___names *task)
{
	struct futex_private_hash___names *hash;
	struct mm_struct___names *mm = BPF_CORE_READ(task, mm);
	__u32 i = hash_count;

	if (i >= MAX_HASHES || !mm || !bpf_core_field_exists(mm->futex_phash) ||
	    BPF_CORE_READ(task, group_leader) != task)
		return;
	hash = BPF_CORE_READ(mm, futex_phash);
	if (!hash)
		return;
	hashes[i].start = (__u64)&hash->queues;
	hashes[i].end = hashes[i].start +
			((__u64)BPF_CORE_READ(hash, hash_mask) + 1) * bpf_core_type_size(struct futex_hash_bucket___names);
	hash_count = i + 1;
}

SEC("iter/task")
int walk_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct___names *task = (void *)ctx->task;

	if (!task)
		return 0;
	if (want_places) {
		if (!a_task)
			a_task = (__u64)task;
		struct rq___names *rq = NULL;
		__u32 cpu;

		if (bpf_core_field_exists(((struct cfs_rq___names *)0)->rq))
			rq = BPF_CORE_READ(task, se.cfs_rq, rq);
		cpu = rq ? BPF_CORE_READ(rq, cpu) : MAX_CPUS;
		if (cpu < MAX_CPUS)
			run_queues[cpu] = (__u64)rq;
		note_node(task);
		if (!a_page && bpf_core_field_exists(task->stack_vm_area)) {
			struct page___names **pages = BPF_CORE_READ(task, stack_vm_area, pages);

			bpf_probe_read_kernel(&a_page, sizeof(a_page), pages);
		}
	}
	if (want_hashes)
		note_hash(task);
	if (want_owners) {
		note_owner(task, task);
		note_owner(task, BPF_CORE_READ(task, mm));
		note_owner(task, BPF_CORE_READ(task, files));
		note_owner(task, BPF_CORE_READ(task, fs));
		note_owner(task, BPF_CORE_READ(task, signal));
		note_owner(task, BPF_CORE_READ(task, sighand));
	}
	return 0;
}
