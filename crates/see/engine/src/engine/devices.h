/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Block devices as tenants share them: whose requests a device served while a thread waited for it.
 *
 * Each device keeps the requests that it completed last, as spans: from the completion before, or from when it had nothing to do.
 * A thread's wait is divided among the spans in it. So much of the wait as such a request takes when it is alone at the device is
 * no loss; user space takes that off.
 */
#ifndef NCPU_DEVICES_H
#define NCPU_DEVICES_H

#include "rounds.h"
#include "settings.h"
#include "cpu_states.h"
#include "threads.h"
#include "kernel_locks.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, IO_DEVICES);
	__type(key, __u32);
	__type(value, struct io_device);
} io_devices SEC(".maps");

__u32 io_last_device;	/* that completed a request last, + 1 */

/* The index of a device; IO_DEVICES if the table is full. */
APART int device_index(__u64 device)
{
	for (__u32 i = 0; i < IO_DEVICES; i++) {
		__u32 key = (device + i) & (IO_DEVICES - 1);
		struct io_device *d = bpf_map_lookup_elem(&io_devices, &key);
		if (!d)
			break;
		__u64 was = d->device;
		if (!was)
			was = __sync_val_compare_and_swap(&d->device, 0, device);
		if (!was || was == device)
			return key;
	}
	return IO_DEVICES;
}

static __always_inline struct io_device *device_at(__u32 place)
{
	__u32 key = place - 1;

	return place ? bpf_map_lookup_elem(&io_devices, &key) : NULL;
}

/* Requests of like size, and reads apart from what writes: they take like time. */
static __always_inline __u32 request_class(__u32 operation, __u32 bytes)
{
	__u32 size = 0;

	for (__u32 left = bytes >> 12; left > 1 && size < 7; left >>= 1)
		size++;
	return (operation ? 8 : 0) | size;
}

/* A request is queued at a device. */
static __always_inline void device_gets(struct io_request *r, __u64 device, __u32 class, __u32 tenant, __u64 now)
{
	__u32 place = device_index(device);
	struct io_device *d = place < IO_DEVICES ? device_at(place + 1) : NULL;

	r->device = 0;
	if (!d)
		return;
	__u32 before = __sync_fetch_and_add(&d->in_flight, 1);
	if (!before)
		d->last = now;
	r->device = place + 1;
	r->tenant = tenant;
	r->class = class;
	r->began = now;
	r->nth = __sync_fetch_and_add(&d->begun, 1) + 1;
	r->alone = !before;
}

/* A request leaves its device: completed, merged with another, or not known any more. */
static __always_inline void device_loses(struct io_request *r)
{
	struct io_device *d = device_at(r->device);

	if (d)
		__sync_fetch_and_add(&d->in_flight, -1);
	r->device = 0;
}

/* A device has completed a request. */
static __always_inline void device_completes(struct io_request *r, __u64 now)
{
	struct io_device *d = device_at(r->device);

	if (!d)
		return;
	__u64 from = __sync_lock_test_and_set(&d->last, now);

	/* A request whose end was not seen lets the device look busy. */
	if (from < r->began)
		from = r->began;
	__u32 n = __sync_fetch_and_add(&d->span, 1);
	struct io_span *span = &d->spans[MASK(n, 63)];
	span->tenant = r->tenant;
	span->from = from;
	span->to = now;
	io_last_device = r->device;
	__u64 ns = now > r->began ? now - r->began : 0;
	__u32 class = MASK(r->class, 15);
	if (r->alone && d->begun == r->nth) {
		__u64 known = d->alone[class];
		d->alone[class] = known ? known - known / 8 + ns / 8 : ns;
	}
	__u64 least = d->least[class];
	/* It rises slowly: a device may become slower. */
	d->least[class] = !least || ns < least ? ns : least + (least >> 10);
}

/* The wait of a thread of `tenant` from one moment to another, and the time in it that a row of the table is still to get. */
struct device_wait {
	__u64 from, to;
	__u64 device;
	__u64 ns;
	__u32 place;
	__u32 last;	/* number of the device's next span */
	__u32 tenant;
	__u32 who;	/* whose requests those `ns` are */
	__u32 found;
	__u32 pad;
};

static __always_inline void blame_device(struct device_wait *w)
{
	struct cpu_slot *s = slot();

	if (s && w->ns)
		add_lock(lock_slot(s, (__u64)w->who + 2, w->device, w->tenant, KIND_LEDGER | LOSS_DEVICE), 0, w->ns, 1);
	w->ns = 0;
}

static long device_served(__u32 n, struct device_wait *w)
{
	struct io_device *d = device_at(w->place);

	if (!d)
		return 1;
	struct io_span *span = &d->spans[MASK(w->last - 1 - n, 63)];
	__u64 from = span->from, to = span->to;
	if (!to || to <= w->from)
		return 1;
	if (from < w->from)
		from = w->from;
	if (to > w->to)
		to = w->to;
	if (from >= to)
		return 0;
	if (span->tenant != w->who)
		blame_device(w);
	w->who = span->tenant;
	w->ns += to - from;
	w->found = 1;
	return 0;
}

ROUNDS_OF(device_served, struct device_wait, IO_SPANS)

/* A thread has waited for a device, or for data that one was to bring: for its own requests' device, or the one that was used last. */
APART int waited_for_device(struct task_rec *r, __u64 from, __u64 to)
{
	struct cpu_slot *s = slot();
	__u32 place = r && r->io_device ? r->io_device : io_last_device;
	struct io_device *d = device_at(place);

	if (!s || !r || !d || to <= from)
		return 0;
	struct device_wait w = {
		.from = from, .to = to, .device = d->device, .place = place, .last = d->span, .tenant = r->tenant,
	};
	ROUNDS(device_served, &w, IO_SPANS);
	blame_device(&w);
	if (!w.found)
		return 0;
	__u32 class = MASK(r->io_class, 15);
	__u64 alone = d->alone[class] ?: d->least[class];
	add_lock(lock_slot(s, OTHERS, w.device, w.tenant, KIND_LEDGER | LOSS_DEVICE), alone < to - from ? alone : to - from,
		 to - from, 1);
	return 0;
}

#endif
