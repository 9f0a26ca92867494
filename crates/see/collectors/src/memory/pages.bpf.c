// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What each physical page is, from the kernel's array of struct page. Nothing is attached: user
 * space fills a slot of `walks` and runs a program over that range of page frame numbers.
 *
 * The classes are those that /proc/kpageflags gives (fs/proc/page.c), found with less work: a free
 * block and a folio are looked at once, at their head, and their other pages are skipped.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define CLASSES 32	/* a power of two above the last class */
#define MAX_LOOPS (1 << 23)
#define VM_EXEC 0x4

/* Order and meaning as in memory/class.rs. */
enum class {
	KERNEL,
	SLAB,
	PAGE_TABLES,
	ANON,
	ANON_THP,
	SHARED,
	SHARED_THP,
	HUGETLB,
	EXEC,
	MAPPED,
	CACHE,
	FREE,
	RESERVED,
	POISONED,
	OFFLINE,
};

/* Bits of /proc/kpageflags that are no plain copies of page flags (include/uapi/linux/kernel-page-flags.h). */
enum {
	KPF_SLAB = 1 << 7,
	KPF_BUDDY = 1 << 10,
	KPF_MMAP = 1 << 11,
	KPF_ANON = 1 << 12,
	KPF_COMPOUND_HEAD = 1 << 15,
	KPF_COMPOUND_TAIL = 1 << 16,
	KPF_HUGE = 1 << 17,
	KPF_KSM = 1 << 21,
	KPF_THP = 1 << 22,
	KPF_OFFLINE = 1 << 23,
	KPF_PGTABLE = 1 << 26,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	unsigned long f;
} memdesc_flags_t;	/* since 6.18 */

struct page {
	memdesc_flags_t flags;
	unsigned long compound_head;
	void *mapping;
	unsigned long private;
	unsigned int page_type;
	atomic_t _mapcount;
	atomic_t _refcount;
	unsigned long memcg_data;
};

/* Since 7.1: the head's address as before, or a mask that makes it of the tail's. */
struct page___info {
	unsigned long compound_info;
};

/* Before 6.18, 6.4 and 6.2. */
struct page___old {
	unsigned long flags;
	unsigned char compound_dtor;
	unsigned char compound_order;
	atomic_t compound_mapcount;
};

struct folio {
	unsigned long _flags_1;
	atomic_t _large_mapcount;
	atomic_t _entire_mapcount;
	atomic_t _nr_pages_mapped;
};

/* Before 6.6. */
struct folio___old {
	unsigned char _folio_dtor;
	unsigned char _folio_order;
};

struct super_block;

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct xarray {
	void *xa_head;
};

struct address_space {
	struct inode *host;
	struct xarray i_pages;
};

struct file_system_type {
	const char *name;
};

struct super_block {
	u32 s_dev;
	struct file_system_type *s_type;
};

struct inode {
	struct address_space *i_mapping;
	unsigned long i_ino;
	struct super_block *i_sb;
	struct hlist_head i_dentry;
	u32 i_rdev;
	u16 i_mode;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	union {
		struct hlist_node d_alias;
	} d_u;
};

/* `struct qstr` is inside an anonymous union since 6.16. */
struct file {
	struct address_space *f_mapping;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct___files {
	struct files_struct *files;
};

struct vm_area_struct {
	unsigned long vm_flags;
	struct file *vm_file;
};

struct bpf_iter__task_vma {
	struct task_struct *task;
	struct vm_area_struct *vma;
};

struct kernfs_node___id {
	u64 id;
};

struct cgroup___kn {
	struct kernfs_node___id *kn;
};

struct cgroup_subsys_state {
	struct cgroup___kn *cgroup;
	unsigned int flags;
	struct cgroup_subsys_state *parent;
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
};

struct obj_cgroup {
	struct mem_cgroup *memcg;
};

#pragma clang attribute pop

/* The numbers are the kernel's: here they only differ. */
enum pageflags {
	PG_referenced = 1,
	PG_uptodate,
	PG_dirty,
	PG_lru,
	PG_head,
	PG_active,
	PG_reserved,
	PG_swapbacked,
	PG_writeback,
	PG_slab,
	PG_hwpoison,
	PG_large_rmappable,
	PG_hugetlb,
	PG_locked,
	PG_error,
	PG_reclaim,
	PG_unevictable,
	PG_mlocked,
	PG_mappedtodisk,
	PG_private,
	PG_private_2,
	PG_owner_priv_1,
	PG_arch_1,
	PG_idle,
};

/* Since 6.12 the top byte of page_type; in 6.11 single bits, inverted. */
enum pagetype {
	PGTY_buddy = 1,
	PGTY_offline = 2,
	PGTY_table = 3,
	PGTY_hugetlb = 4,
	PGTY_slab = 5,
};

enum pagetype___bits {
	PG_buddy___bits = 1,
	PG_offline___bits = 2,
	PG_table___bits = 3,
	PG_hugetlb___bits = 4,
	PG_slab___bits = 5,
};

enum compound_dtor_id {
	HUGETLB_PAGE_DTOR = 1,
};

/* Since 6.2. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

struct walk {
	__u64 base;	/* address of the struct page of page frame 0 */
	__u64 pfn;	/* in: where to start, the head of a block; out: where it stopped */
	__u64 from;	/* pages before this one are not counted */
	__u64 end;
	__u64 counts[CLASSES];
	__u64 mapping;	/* the last file that was looked up, and whether it is mapped executable */
	__u64 exec;
	__u64 owner;	/* a run of pages of one owner */
	__u64 owned;
	__u64 owner_class;
	__u64 dropped;
	__u64 by_file;
	__u64 run_end;	/* pages of the free block that `row` is in */
	__u64 row;
	__u64 pad[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} walks SEC(".maps");

/* Files (struct address_space) that some process maps executable. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u8);
} exec_files SEC(".maps");

__u64 exec_dropped;

/*
 * A bit for each hash of an address in exec_files: one load recognizes nearly every other file. The blog's
 * cache of vnodes did the same for memory that had fewer files.
 */
#define FILTER_BITS 16
__u64 exec_filter[1 << (FILTER_BITS - 6)];

static __u32 hash(__u64 mapping)
{
	return (mapping * 0x9e3779b97f4a7c15ULL) >> (64 - FILTER_BITS);
}

struct owner_key {
	__u64 owner;	/* struct address_space, or the inode number of a cgroup */
	__u64 class;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct owner_key);
	__type(value, __u64);
} owners SEC(".maps");

struct row {
	__u64 kpf;	/* what /proc/kpageflags would give, as far as it is known here */
	__u64 cgroup;
	__u32 class;
	__s32 mapcount;
	__s32 refcount;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);	/* set before loading to the number of rows asked for at once */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct row);
} rows SEC(".maps");

/* One page, its words read once. */
struct seen {
	__u64 flags;
	__u64 compound_head;
	__u64 mapping;
	__u32 type;
	__s32 refcount;
	__u64 memcg;
};

#define BIT(e, v) (bpf_core_enum_value_exists(e, v) ? 1ULL << bpf_core_enum_value(e, v) : 0)
#define FLAG(name) BIT(enum pageflags, name)

#define READ(dst, at, type, field) \
	bpf_probe_read_kernel(&(dst), sizeof(dst), (void *)((at) + bpf_core_field_offset(type, field)))

static __always_inline void see(__u64 at, struct seen *s)
{
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		/* As a struct of nothing but words: what the verifier takes for a pointer it lets nobody test. */
		void *p = bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct pt_regs));

		s->flags = *(__u64 *)p;
		s->compound_head = *(__u64 *)(p + (bpf_core_field_exists(struct page___info, compound_info)
						   ? bpf_core_field_offset(struct page___info, compound_info)
						   : bpf_core_field_offset(struct page, compound_head)));
		s->mapping = *(__u64 *)(p + bpf_core_field_offset(struct page, mapping));
		s->type = *(__u32 *)(p + bpf_core_field_offset(struct page, page_type));
		s->refcount = *(__s32 *)(p + bpf_core_field_offset(struct page, _refcount));
		s->memcg = bpf_core_field_exists(struct page, memcg_data)
				   ? *(__u64 *)(p + bpf_core_field_offset(struct page, memcg_data)) : 0;
	} else {
		/* Whole, since a call costs more than the copy. */
		__u64 raw[8] = {};

		bpf_probe_read_kernel(raw, sizeof(raw), (void *)at);
		s->flags = raw[0];
		s->compound_head = raw[1];
		s->mapping = raw[3];
		s->type = raw[6];
		s->refcount = raw[6] >> 32;
		s->memcg = bpf_core_field_exists(struct page, memcg_data) ? raw[7] : 0;
	}
}

/* The head of the tail at `at`. Masks are numbers above all addresses, heads are below their tails. */
static __always_inline __u64 head_of(__u64 at, __u64 compound_head)
{
	return compound_head - 1 < at ? compound_head - 1 : at & compound_head;
}

/* The types of 6.1 to 6.10 have no BTF: include/linux/page-flags.h, PAGE_TYPE_BASE. */
enum old_type {
	OLD_BASE = 0xf0000000,
	OLD_BUDDY = 0x80,
	OLD_OFFLINE = 0x100,
	OLD_TABLE = 0x200,
	OLD_HUGETLB = 0x800,
	OLD_SLAB = 0x1000,
};

#define IS_TYPE(type, name, old)							\
	(bpf_core_enum_value_exists(enum pagetype, PGTY_buddy)				\
	 ? (type) >> 24 == bpf_core_enum_value(enum pagetype, PGTY_##name)		\
	 : bpf_core_enum_value_exists(enum pagetype___bits, PG_buddy___bits)		\
	 ? ((type) & (0x80000000 | bpf_core_enum_value(enum pagetype___bits, PG_##name##___bits))) == 0x80000000 \
	 : ((type) & (OLD_BASE | (old))) == OLD_BASE)

/* Whether `type` is a type at all and not a count of mappings. */
static __always_inline bool typed(__u32 type)
{
	return (__s32)type < -1;
}

static __always_inline __u32 order_of(__u64 head)
{
	__u8 order = 0;
	__u64 size = bpf_core_type_size(struct page);

	if (bpf_core_field_exists(struct page___old, compound_order)) {
		READ(order, head + size, struct page___old, compound_order);
	} else if (bpf_core_field_exists(struct folio___old, _folio_order)) {
		READ(order, head, struct folio___old, _folio_order);
	} else if (bpf_ksym_exists(bpf_rdonly_cast)) {
		struct folio *f = bpf_rdonly_cast((void *)head, bpf_core_type_id_kernel(struct folio));

		order = f->_flags_1;
	} else {
		READ(order, head, struct folio, _flags_1);
	}
	return order;
}

static __always_inline bool is_hugetlb(__u64 head, __u32 type)
{
	__u8 dtor = 0;
	__u64 flags = 0;

	if (bpf_core_enum_value_exists(enum pagetype, PGTY_hugetlb) ||
	    bpf_core_enum_value_exists(enum pagetype___bits, PG_hugetlb___bits))
		return IS_TYPE(type, hugetlb, OLD_HUGETLB);
	if (bpf_core_enum_value_exists(enum compound_dtor_id, HUGETLB_PAGE_DTOR)) {
		if (bpf_core_field_exists(struct page___old, compound_dtor))
			READ(dtor, head + bpf_core_type_size(struct page), struct page___old, compound_dtor);
		else
			READ(dtor, head, struct folio___old, _folio_dtor);
		return dtor == bpf_core_enum_value(enum compound_dtor_id, HUGETLB_PAGE_DTOR);
	}
	if (bpf_core_enum_value_exists(enum pageflags, PG_hugetlb)) {
		READ(flags, head, struct folio, _flags_1);
		return flags & FLAG(PG_hugetlb);
	}
	return IS_TYPE(type, hugetlb, OLD_HUGETLB);
}

/* Whether a large folio that is not a kernel allocation is a transparent huge page, of any size. */
static __always_inline bool is_thp(__u64 head, const struct seen *s)
{
	if (bpf_core_enum_value_exists(enum pageflags, PG_large_rmappable)) {
		__u64 flags = 0;

		READ(flags, head, struct folio, _flags_1);
		return flags & FLAG(PG_large_rmappable);
	}
	return (s->flags & FLAG(PG_lru)) || (s->mapping & 1);
}

/* folio_mapped() of a large folio. A global function, which is verified once and not in every path to it. */
__noinline int is_mapped(__u64 head, __u32 order)
{
	atomic_t count = { -1 };

	if (bpf_core_field_exists(struct folio, _large_mapcount)) {
		READ(count, head, struct folio, _large_mapcount);
		return count.counter >= 0;
	}
	if (bpf_core_field_exists(struct folio, _nr_pages_mapped)) {
		READ(count, head, struct folio, _entire_mapcount);
		if (count.counter >= 0)
			return true;
		READ(count, head, struct folio, _nr_pages_mapped);
		return count.counter > 0;
	}
	__u64 size = bpf_core_type_size(struct page);

	if (bpf_core_field_exists(struct page___old, compound_mapcount))
		READ(count, head + size, struct page___old, compound_mapcount);
	if (count.counter >= 0)
		return true;
	for (int i = 0; i < 512; i++) {
		if (i >= 1 << (order & 15))
			break;
		READ(count, head + i * size, struct page, _mapcount);
		if (count.counter >= 0)
			return true;
	}
	return false;
}

static __always_inline bool is_exec(struct walk *w, __u64 mapping)
{
	__u32 bit = hash(mapping);

	if (!(exec_filter[(bit >> 6) & ((1 << (FILTER_BITS - 6)) - 1)] >> (bit & 63) & 1))
		return false;
	if (mapping != w->mapping) {
		w->mapping = mapping;
		w->exec = bpf_map_lookup_elem(&exec_files, &mapping) != NULL;
	}
	return w->exec;
}

/*
 * The class of the page at `at`; `pages` is the number of pages from `pfn` on with the same class. A page
 * that changes meanwhile may get a wrong class, but `pages` never leaves the block that `pfn` is in.
 */
static __always_inline __u32 look(struct walk *w, __u64 pfn, struct seen *s, __u64 *pages, __u64 *kpf)
{
	__u64 size = bpf_core_type_size(struct page);
	__u64 at = w->base + pfn * size, head = at;
	__u32 order = 0;
	bool large = false;

	*pages = 1;
	*kpf = 0;
	see(at, s);
	if (s->compound_head & 1) {
		head = head_of(at, s->compound_head);
		large = true;
		*kpf |= KPF_COMPOUND_TAIL;
		/* A tail of what? Its head was split meanwhile, if the head is not below this page. */
		if (head >= at || head < w->base)
			return KERNEL;
		see(head, s);
	} else if (s->flags & FLAG(PG_head)) {
		large = true;
		*kpf |= KPF_COMPOUND_HEAD;
	}
	if (large) {
		__u64 first = (head - w->base) / size;

		order = order_of(head);
		if (order <= 30 && !(first & ((1ULL << order) - 1)) && first + (1ULL << order) > pfn)
			*pages = first + (1ULL << order) - pfn;
	}
	/* Most pages are on the LRU lists and by themselves: the cases of this branch do not apply to them. */
	if (large || (s->flags & (FLAG(PG_lru) | FLAG(PG_reserved) | FLAG(PG_hwpoison))) != FLAG(PG_lru)) {
		if (FLAG(PG_hwpoison) & s->flags)
			return POISONED;
		if (typed(s->type)) {
			if (IS_TYPE(s->type, buddy, OLD_BUDDY)) {
				__u64 order = 0;

				READ(order, at, struct page, private);
				if (order <= 20 && !(pfn & ((1ULL << order) - 1)))
					*pages = 1ULL << order;
				*kpf |= KPF_BUDDY;
				return FREE;
			}
			if (IS_TYPE(s->type, offline, OLD_OFFLINE)) {
				*kpf |= KPF_OFFLINE;
				return OFFLINE;
			}
			if (IS_TYPE(s->type, table, OLD_TABLE)) {
				*kpf |= KPF_PGTABLE;
				return PAGE_TABLES;
			}
		}
		if (bpf_core_enum_value_exists(enum pageflags, PG_slab) ? !!(s->flags & FLAG(PG_slab))
								       : IS_TYPE(s->type, slab, OLD_SLAB)) {
			*kpf |= KPF_SLAB;
			return SLAB;
		}
		if (s->flags & FLAG(PG_reserved))
			return RESERVED;
		if (large && is_hugetlb(head, s->type)) {
			*kpf |= KPF_HUGE;
			return HUGETLB;
		}
		if (large && is_thp(head, s))
			*kpf |= KPF_THP;
	}
	if (s->mapping & 1) {
		*kpf |= KPF_ANON | ((s->mapping & 2) ? KPF_KSM : 0);
		return *kpf & KPF_THP ? ANON_THP : ANON;
	}
	if (s->flags & FLAG(PG_swapbacked))
		return *kpf & KPF_THP ? SHARED_THP : SHARED;
	bool mapped = large ? is_mapped(head, order) : (__s32)s->type >= 0;

	if (mapped)
		*kpf |= KPF_MMAP;
	/* A page on its way to the LRU lists does not have the flag yet; a page of the kernel is not both uptodate and used. */
	if (!(s->flags & FLAG(PG_lru)) &&
	    !((s->flags & FLAG(PG_uptodate)) &&
	      (mapped || (s->flags & (FLAG(PG_referenced) | FLAG(PG_active) | FLAG(PG_dirty) | FLAG(PG_writeback))))))
		return KERNEL;
	if (is_exec(w, s->mapping))
		return EXEC;
	return mapped ? MAPPED : CACHE;
}

struct local {
	struct walk *w;
};

static long tally_page(__u64 i, struct local *l)
{
	struct walk *w = l->w;
	__u64 pfn = w->pfn, end = w->end, from = w->from, pages, kpf, to;
	struct seen s;
	__u32 class;

	if (pfn >= end)
		return 1;
	class = look(w, pfn, &s, &pages, &kpf);
	to = pfn + pages < end ? pfn + pages : end;
	w->pfn = to;
	if (pfn < from)
		pfn = from;
	if (to > pfn)
		w->counts[class & (CLASSES - 1)] += to - pfn;
	return 0;
}

struct args {
	__u32 slot;
};

/* Counts pages by class. */
SEC("syscall")
int tally(struct args *args)
{
	__u32 slot = args->slot;
	struct local l = { bpf_map_lookup_elem(&walks, &slot) };

	if (!l.w)
		return 1;
	bpf_loop(MAX_LOOPS, tally_page, &l, 0);
	return 0;
}

/*
 * The inode number of the cgroup that a page with this `memcg_data` is charged to, as /proc/kpagecgroup
 * gives it. A global function, too.
 */
__noinline __u64 cgroup_of(__u64 data)
{
	struct mem_cgroup *memcg;
	struct cgroup_subsys_state *css;

	/* Bit 0: the objects of a slab, each with its owner. Bit 1: kernel memory, by way of an obj_cgroup. */
	if (data & 1)
		return 0;
	memcg = (void *)(data & ~7ULL);
	if (!memcg)
		return 0;
	if (data & 2)
		memcg = BPF_CORE_READ((struct obj_cgroup *)memcg, memcg);
	css = &memcg->css;
	/* A cgroup that was removed leaves its pages to the nearest ancestor that is online. */
	for (int i = 0; i < 16 && css; i++) {
		if (BPF_CORE_READ(css, flags) & 2 /* CSS_ONLINE */)
			return BPF_CORE_READ(css, cgroup, kn, id);
		css = BPF_CORE_READ(css, parent);
	}
	return 0;
}

static __always_inline void flush(struct walk *w)
{
	struct owner_key key = { w->owner, w->owner_class };
	__u64 *pages, n = w->owned;

	w->owned = 0;
	if (!n)
		return;
	pages = bpf_map_lookup_elem(&owners, &key);
	if (pages) {
		__sync_fetch_and_add(pages, n);
	} else if (bpf_map_update_elem(&owners, &key, &n, BPF_NOEXIST)) {
		/* Another walker was first, or the table is full. */
		pages = bpf_map_lookup_elem(&owners, &key);
		if (pages)
			__sync_fetch_and_add(pages, n);
		else
			w->dropped += n;
	}
}

static long own_page(__u64 i, struct local *l)
{
	struct walk *w = l->w;
	__u64 pfn = w->pfn, pages, kpf, to, owner = 0;
	struct seen s;
	__u32 class;

	if (pfn >= w->end)
		return 1;
	class = look(w, pfn, &s, &pages, &kpf);
	to = pfn + pages < w->end ? pfn + pages : w->end;
	w->pfn = to;
	if (pfn < w->from)
		pfn = w->from;
	if (to <= pfn)
		return 0;
	pages = to - pfn;
	w->counts[class & (CLASSES - 1)] += pages;
	if (w->by_file) {
		if ((class < SHARED || class > CACHE) || class == HUGETLB)
			return 0;
		owner = s.mapping;
	} else {
		if (class == FREE || class == RESERVED || class == SLAB)
			return 0;
		owner = cgroup_of(s.memcg);
	}
	if (!owner)
		return 0;
	if (owner != w->owner || class != w->owner_class) {
		flush(w);
		w->owner = owner;
		w->owner_class = class;
	}
	w->owned += pages;
	return 0;
}

/* The same, and adds up by owner. */
SEC("syscall")
int own(struct args *args)
{
	__u32 slot = args->slot;
	struct local l = { bpf_map_lookup_elem(&walks, &slot) };

	if (!l.w)
		return 1;
	bpf_loop(MAX_LOOPS, own_page, &l, 0);
	flush(l.w);
	return 0;
}

/* Without a branch each: the verifier would try all their combinations. */
#define COPY(name, bit)						\
	(bpf_core_enum_value_exists(enum pageflags, name)	\
	 ? (flags >> bpf_core_enum_value(enum pageflags, name) & 1) << (bit) : 0)

/* The bits that /proc/kpageflags copies. */
static __always_inline __u64 copied(__u64 flags)
{
	return COPY(PG_locked, 0) | COPY(PG_error, 1) | COPY(PG_referenced, 2) | COPY(PG_uptodate, 3) |
	       COPY(PG_dirty, 4) | COPY(PG_lru, 5) | COPY(PG_active, 6) | COPY(PG_writeback, 8) |
	       COPY(PG_reclaim, 9) | COPY(PG_swapbacked, 14) | COPY(PG_unevictable, 18) |
	       COPY(PG_hwpoison, 19) | COPY(PG_idle, 25) | COPY(PG_reserved, 32) | COPY(PG_mlocked, 33) |
	       COPY(PG_mappedtodisk, 34) | COPY(PG_private, 35) | COPY(PG_private_2, 36) |
	       COPY(PG_owner_priv_1, 37) | COPY(PG_arch_1, 38);
}

static long list_page(__u64 i, struct local *l)
{
	struct walk *w = l->w;
	__u64 pfn = w->pfn, pages, kpf, size = bpf_core_type_size(struct page), at;
	__u32 n = w->row, class;
	struct seen s = {}, own = {};
	struct row *row;

	if (pfn >= w->end)
		return 1;
	class = look(w, pfn, &s, &pages, &kpf);
	if (class == FREE && pfn + pages > w->run_end)
		w->run_end = pfn + pages;
	if (pfn < w->run_end) {
		/* The other pages of a free block carry nothing that says so. */
		class = FREE;
		kpf |= KPF_BUDDY;
	}
	w->pfn = pfn + 1;
	if (pfn < w->from)
		return 0;
	row = bpf_map_lookup_elem(&rows, &n);
	if (!row)
		return 1;
	w->row = n + 1;
	at = w->base + pfn * size;
	see(at, &own);
	row->class = class;
	row->refcount = s.refcount;
	row->mapcount = 0;
	row->cgroup = cgroup_of(s.memcg);
	if (!typed(own.type) && (__s32)own.type >= 0) {
		row->mapcount = own.type + 1;
		if (!(kpf & (KPF_COMPOUND_HEAD | KPF_COMPOUND_TAIL)))
			kpf |= KPF_MMAP;
	}
	if ((kpf & (KPF_COMPOUND_HEAD | KPF_COMPOUND_TAIL)) && (class >= ANON && class <= CACHE)) {
		__u64 head = own.compound_head & 1 ? head_of(at, own.compound_head) : at;
		atomic_t entire = { -1 };

		if (is_mapped(head, order_of(head)))
			kpf |= KPF_MMAP;
		if (bpf_core_field_exists(struct folio, _entire_mapcount))
			READ(entire, head, struct folio, _entire_mapcount);
		else if (bpf_core_field_exists(struct page___old, compound_mapcount))
			READ(entire, head + size, struct page___old, compound_mapcount);
		row->mapcount += entire.counter + 1;
	}
	row->kpf = kpf | copied(s.flags);
	return 0;
}

/* A row for each page. */
SEC("syscall")
int list(struct args *args)
{
	__u32 slot = args->slot;
	struct local l = { bpf_map_lookup_elem(&walks, &slot) };

	if (!l.w)
		return 1;
	bpf_loop(MAX_LOOPS, list_page, &l, 0);
	return 0;
}

/* Notes each file that is mapped executable. */
SEC("iter/task_vma")
int find_exec(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct file *file;
	__u64 mapping;
	__u8 one = 1;
	__u32 bit;

	if (!vma || !(vma->vm_flags & VM_EXEC))
		return 0;
	file = vma->vm_file;
	if (!file)
		return 0;
	/* As a number: the verifier lets nobody compute with a pointer. */
	mapping = 0;
	BPF_CORE_READ_INTO(&mapping, file, f_mapping);
	if (bpf_map_update_elem(&exec_files, &mapping, &one, BPF_ANY))
		__sync_fetch_and_add(&exec_dropped, 1);
	bit = hash(mapping);
	/* One iterator runs at a time. */
	exec_filter[(bit >> 6) & ((1 << (FILTER_BITS - 6)) - 1)] |= 1ULL << (bit & 63);
	return 0;
}

struct anchor {
	__u32 fd;
	__u32 page_size;	/* of struct page */
	__u64 page;		/* out: address of the struct page of the file's only page */
};

/*
 * The struct page of the first page of a file of one page: that is what the head of its tree of pages
 * is. User space knows the page frame number, so it learns where the array of struct page begins.
 */
SEC("syscall")
int find_page(struct anchor *args)
{
	struct task_struct___files *me = (void *)bpf_get_current_task_btf();
	struct file **fds = BPF_CORE_READ(me, files, fdt, fd), *file = NULL;

	bpf_probe_read_kernel(&file, sizeof(file), &fds[args->fd]);
	args->page = (__u64)BPF_CORE_READ(file, f_mapping, i_pages.xa_head);
	args->page_size = bpf_core_type_size(struct page);
	return 0;
}

#define DEPTH 24
#define NAME 64

struct named {
	__u64 mapping;
	__u64 ino;
	__u32 dev;
	__u32 rdev;
	__u32 mode;
	__u32 depth;
	char fs[16];
	char names[DEPTH * NAME];	/* from the file upwards */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct named);
} names SEC(".maps");

/* What file an address_space is of. */
SEC("syscall")
int name_file(void *ctx)
{
	__u32 zero = 0;
	struct named *n = bpf_map_lookup_elem(&names, &zero);
	struct inode *inode;
	struct dentry *d, *parent;
	struct hlist_node *alias;
	struct address_space *mapping;

	if (!n)
		return 1;
	mapping = (void *)n->mapping;
	n->depth = 0;
	n->ino = 0;
	inode = BPF_CORE_READ(mapping, host);
	/* The file may have gone since. */
	if (!inode || (__u64)BPF_CORE_READ(inode, i_mapping) != n->mapping)
		return 0;
	n->ino = BPF_CORE_READ(inode, i_ino);
	n->dev = BPF_CORE_READ(inode, i_sb, s_dev);
	n->rdev = BPF_CORE_READ(inode, i_rdev);
	n->mode = BPF_CORE_READ(inode, i_mode);
	bpf_probe_read_kernel_str(n->fs, sizeof(n->fs), BPF_CORE_READ(inode, i_sb, s_type, name));
	alias = BPF_CORE_READ(inode, i_dentry.first);
	if (!alias)
		return 0;
	d = (void *)alias - bpf_core_field_offset(struct dentry, d_u.d_alias);
	for (int i = 0; i < DEPTH; i++) {
		parent = BPF_CORE_READ(d, d_parent);
		if (!parent || parent == d)
			break;
		if (bpf_probe_read_kernel_str(&n->names[i * NAME], NAME, BPF_CORE_READ(d, d_name.name)) <= 0)
			break;
		n->depth = i + 1;
		d = parent;
	}
	return 0;
}
