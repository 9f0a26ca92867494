/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Kinds of requests of clients: the protocol, and what is asked for, by the first bytes.
 */
#ifndef NCPU_REQUEST_KINDS_H
#define NCPU_REQUEST_KINDS_H

#include "settings.h"
#include "threads.h"

const volatile __u8 call_reads[SYSCALLS]; /* of system calls: enum call_reads */

enum call_reads {
	CALL_OTHER,
	CALL_READS,	/* from a descriptor into a buffer: its arguments 0 and 1 */
	CALL_READS_PARTS, /* into an array of buffers */
	CALL_READS_MESSAGE, /* struct msghdr */
	CALL_WAITS,	/* for more work: on several descriptors, or for a connection; or ends the thread */
};

#define VERB 8	/* letters */
#define HEAD 31	/* bytes that are looked at */

static __always_inline __u64 letter(__u8 c)
{
	c |= 0x20;
	return c >= 'a' && c <= 'z' ? c - 'a' + 1 : 0;
}

static __always_inline bool between(__u8 c)
{
	return (c >= '0' && c <= '9') || c == '\r' || c == '\n' || c == '$';
}

/* The kind of a request, by its first bytes. `before`: the byte that was read before these; 0: none. */
APART __u64 request_kind(__u64 buffer, __u32 bytes, __u32 port, __u32 before)
{
	__u8 b[HEAD + 2] = { before };
	__u32 from = before ? 1 : 0;
	__u64 protocol = PROTOCOL_UNKNOWN, verb = 0;
	__u32 letters = 0, end = 0;

	if (!buffer || bpf_probe_read_user(b + from, MASK(bytes < HEAD ? bytes : HEAD, 31), (void *)buffer))
		return (__u64)port << 40 | 1ull << 63;
	bool redis = b[0] == '*', skips = redis;
	__u32 size = (__u32)b[1] << 24 | b[2] << 16 | b[3] << 8 | b[4];
	if ((b[0] == 0x16 || b[0] == 0x17) && b[1] == 3) {
		protocol = PROTOCOL_TLS;
	} else if ((b[0] == 'Q' || b[0] == 'P' || b[0] == 'B') && size >= 4 && size < bytes && !b[1]) {
		protocol = PROTOCOL_POSTGRES;
		/* A query; statements with parameters, prepared in the same message or before. */
		verb = b[0] == 'Q' ? 1 : b[0] == 'P' ? 2 : 3;
	} else {
		for (int i = 0; i < HEAD; i++) {
			__u64 l = letter(b[i]);
			if (end || (i == 0 && redis))
				continue;
			if (skips && between(b[i]))
				continue;
			skips = false;
			if (l && letters < VERB) {
				verb = verb << 5 | l;
				letters++;
			} else {
				end = i ?: HEAD;
			}
		}
		__u8 after = b[MASK(end + 1, 15)];
		if (redis && letters)
			protocol = PROTOCOL_REDIS;
		else if (letters >= 3 && b[MASK(end, 15)] == ' ' && (after == '/' || after == '*' || after == 'h'))
			protocol = verb == (16ull << 10 | 18 << 5 | 9) ? PROTOCOL_HTTP2 : PROTOCOL_HTTP; /* PRI */
		else
			verb = 0;
	}
	return 1ull << 63 | protocol << 56 | (__u64)port << 40 | verb;
}

/* Where a call that reads puts what it has read. */
static __always_inline __u64 read_into(void)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u64 nr = call_number(regs), at = ARG1(regs);

	if (nr == NO_CALL)
		return 0;
	__u32 reads = call_reads[MASK(nr, 511)];
	if (reads == CALL_READS)
		return at;
	/* The third member of struct msghdr is the array. */
	if (reads == CALL_READS_MESSAGE && bpf_probe_read_user(&at, sizeof(at), (void *)(at + 16)))
		return 0;
	if (reads == CALL_READS_MESSAGE || reads == CALL_READS_PARTS)
		return bpf_probe_read_user(&at, sizeof(at), (void *)at) ? 0 : at;
	return 0;
}

#endif
