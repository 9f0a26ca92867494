/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Requests to block devices: whose they are, and how long devices take for them.
 *
 * Whoever queues a request asked for it; whoever gives it to the device may be another program that runs the same
 * queue, or a kernel thread. So a request is known from where it is first seen. Requests that kernel threads or
 * interrupts queue – written back, encrypted – are nobody's: whose data that is, is not known here.
 */
#ifndef NCPU_REQUESTS_H
#define NCPU_REQUESTS_H

#include "settings.h"
#include "lengths.h"
#include "cpu_states.h"
#include "in_flight.h"
#include "threads.h"
#include "kernel_locks.h"
#include "devices.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, IO_REQUESTS);
	__type(key, __u32);
	__type(value, struct io_request);
} io_requests SEC(".maps");

/* Two halves as of the lock table. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct io_row);
} io_rows SEC(".maps");

APART int io_row_index(__u64 device, __u64 operation, __u64 tgid)
{
	return find_row(&io_rows, lock_part(), IO_ROWS, device, operation, tgid);
}

APART int io_other_index(__u64 device, __u64 operation)
{
	__u32 behind = IO_ROWS / IO_OTHERS * 2 * cfg_cpus;

	return find_row(&io_rows, behind + lock_part(), IO_OTHERS, device, operation, IO_OTHER);
}

/* The row of a request, or -1; one that was free where it has none and `make` is set. */
APART int io_request_index(__u64 request, int make)
{
	__u32 i = request * SPREAD >> 32;

	for (int probe = 0; probe < PROBES; probe++) {
		__u32 key = (i + probe) & (IO_REQUESTS - 1);
		struct io_request *r = bpf_map_lookup_elem(&io_requests, &key);
		if (!r)
			return -1;
		if (r->request == request)
			return key;
	}
	for (int probe = 0; probe < PROBES && make; probe++) {
		__u32 key = (i + probe) & (IO_REQUESTS - 1);
		struct io_request *r = bpf_map_lookup_elem(&io_requests, &key);
		if (!r)
			return -1;
		/* Other CPUs queue other requests meanwhile. */
		if (__sync_val_compare_and_swap(&r->request, 0, request) == 0)
			return key;
	}
	return -1;
}

/* include/linux/blk_types.h */
#define REQ_OP 0xff /* of cmd_flags */
#define REQ_OP_FLUSH 2

/* As rows have it, but for the lowest bit; 0 where it has no number. */
static __always_inline __u64 device_of(struct request *rq)
{
	struct gendisk *disk = bpf_core_field_exists(struct request_queue, disk) ? rq->q->disk : NULL;

	return disk ? (__u64)disk->major << 32 | (__u64)(__u32)disk->first_minor << 1 : 0;
}

/* Whether a thread that does this goes on without waiting. */
static __always_inline bool asks_ahead(struct task_struct *p)
{
	/* io_uring's own threads ask for one that has gone on. */
	if (p->flags & PF_IO_WORKER)
		return true;
	__u64 nr = call_number((struct pt_regs *)bpf_task_pt_regs(p));
	return nr == NR_io_submit || nr == NR_io_uring_enter;
}

/* A request is over, or not known any more. */
static __always_inline void io_forget(struct io_request *r)
{
	if (r->process)
		count_in_flight(r->process - 1, -1);
	if (r->device)
		device_loses(r);
	barrier();
	r->request = 0;
}

/* A request is queued, or given to the device; maybe again. */
static __always_inline void io_begin(void *ctx, struct request *rq, bool issued)
{
	struct cpu_slot *s = slot();
	struct task_struct *p = bpf_get_current_task_btf();

	if (!s || !observing)
		return;
	/* In an interrupt the current thread is anybody. */
	bool kernel = s->depth || (p->flags & PF_KTHREAD);
	struct task_rec *t = kernel ? NULL : look(p);
	bool ours = kernel || (t && t->target);
	__u64 request = first_word(ctx);
	__u32 key = io_request_index(request, 0);
	struct io_request *r = bpf_map_lookup_elem(&io_requests, &key);
	__u64 now = bpf_ktime_get_ns();

	/* The kernel uses it for another request, and the end of the one before was not seen. */
	if (r && (r->issued || (!kernel && !issued && r->tgid != p->tgid))) {
		if (r->by != IO_BY_OTHERS)
			s->drop_io++;
		io_forget(r);
		r = NULL;
	}
	/* Flushes are queued untraced, and given to the device by whoever comes next. */
	if (!r && (rq->cmd_flags & REQ_OP) == REQ_OP_FLUSH)
		kernel = true;
	if (!r) {
		/* What another program queues, ours may give to the device. */
		if (!ours && issued)
			return;
		key = io_request_index(request, 1);
		r = bpf_map_lookup_elem(&io_requests, &key);
		if (!r) {
			s->drop_io++;
			return;
		}
		r->process = 0;
		r->device = 0;
		r->issued = 0;
		r->queued = 0;
		r->tgid = kernel ? 0 : p->tgid;
		r->by = kernel ? IO_BY_KERNEL : !ours ? IO_BY_OTHERS : asks_ahead(p) ? IO_BY_AHEAD : IO_BY_CALL;
		if (t && !kernel && r->by == IO_BY_AHEAD) {
			int process = io_new_process(p->tgid);
			count_in_flight(process, 1);
			r->process = process + 1;
			t->asks_ahead = 1;
			if (process >= 0 && p->flags & PF_IO_WORKER)
				io_by_workers[MASK(process, 63)] = 1;
		}
		if (cfg_tenants) {
			__u32 class = request_class(rq->cmd_flags & REQ_OP, rq->__data_len);
			device_gets(r, device_of(rq) | 1, class, kernel ? TENANT_KERNEL : t ? t->tenant : TENANT_OTHERS, now);
			if (t && !kernel) {
				t->io_device = r->device;
				t->io_class = class;
			}
		}
	}
	if (issued) {
		/* 0 where the kernel keeps no statistics of the device. */
		__u64 queued = bpf_core_field_exists(struct request, start_time_ns) ? rq->start_time_ns : 0;
		r->queued = queued && queued < now ? now - queued : 0;
		r->issued = now;
	}
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(block_rq_insert, struct request *rq)
{
	io_begin(ctx, rq, false);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *rq)
{
	io_begin(ctx, rq, true);
	return 0;
}

/* It is a part of another from now on, which was queued before. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(block_rq_merge, struct request *rq)
{
	__u32 key = io_request_index(first_word(ctx), 0);
	struct io_request *r = bpf_map_lookup_elem(&io_requests, &key);

	if (r)
		io_forget(r);
	return 0;
}

/* The device gave it back: it will be queued again. */
SEC("tp_btf/block_rq_requeue")
int BPF_PROG(block_rq_requeue, struct request *rq)
{
	__u32 key = io_request_index(first_word(ctx), 0);
	struct io_request *r = bpf_map_lookup_elem(&io_requests, &key);

	if (r)
		r->issued = 0;
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *rq, int error, unsigned int bytes)
{
	__u32 key = io_request_index(first_word(ctx), 0);
	struct io_request *r = bpf_map_lookup_elem(&io_requests, &key);
	struct cpu_slot *s = slot();

	/* The rest of it is still in flight. */
	if (!r || !s || bytes < rq->__data_len)
		return 0;
	__u64 issued = r->issued, queued = r->queued, tgid = r->tgid, by = r->by, now = bpf_ktime_get_ns();
	if (r->device)
		device_completes(r, now);
	io_forget(r);
	if (by == IO_BY_OTHERS)
		return 0;
	if (!issued) {
		s->drop_io++;
		return 0;
	}
	__u64 device = device_of(rq);
	key = io_row_index(device | 1, (rq->cmd_flags & REQ_OP) << 8 | by, tgid);
	struct io_row *row = bpf_map_lookup_elem(&io_rows, &key);
	if (!row) {
		key = io_other_index(device | 1, (rq->cmd_flags & REQ_OP) << 8 | by);
		row = bpf_map_lookup_elem(&io_rows, &key);
	}
	if (!row) {
		s->drop_io++;
		return 0;
	}
	__u64 ns = now > issued ? now - issued : 0;
	row->count++;
	row->bytes += bytes;
	row->queued += queued;
	row->time += ns;
	if (ns > row->max)
		row->max = ns;
	add_length_of(device | 1, HALVES(0, LENGTH_DEVICE), ns, 1);
	return 0;
}

#endif
