/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Who woke a thread that waits for a socket, where its peer is on this machine.
 *
 * What is sent over loopback arrives in a softirq, nearly always on top of the call that sends it. But a softirq may run on
 * top of any thread. So the current thread counts as the sender only if it is in a call on the socket at the other end.
 * That is looked up when idle time is charged, about a thousand times a second at most, and nothing is traced for it.
 */
#ifndef NCPU_PEERS_H
#define NCPU_PEERS_H

#include "settings.h"
#include "cpu_states.h"
#include "threads.h"

#define NET_RX_SOFTIRQ 3	/* include/linux/interrupt.h */
#define S_IFMT 0170000		/* include/uapi/linux/stat.h */
#define S_IFSOCK 0140000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define TCP_LISTEN 10

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	u32 s_dev;
};

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	u32 i_generation;
	struct super_block *i_sb;
};

struct file {
	struct inode *f_inode;
	void *private_data;
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

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
	u32 sk_max_ack_backlog;
	u16 sk_type;
	u16 sk_protocol;
};

struct unix_address;

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
};

struct socket {
	struct sock *sk;
};

#pragma clang attribute pop

/* Both ends of a socket. Those of IPv6 have addresses here, too: that of IPv4 where it stands for one, else 127.0.0.6. */
struct ends {
	__u64 sock;	/* the kernel's `struct sock`; 0: there is none */
	__u32 address, peer_address;
	__u16 port, peer_port;
	__u32 listens;
};

/* The file that is a descriptor of a thread; NULL: none. */
static __always_inline struct file *file_of(__u64 task, __u32 fd)
{
	struct task_struct___files *p = (void *)task;
	struct fdtable *table = BPF_CORE_READ(p, files, fdt);
	struct file *file = NULL;

	if (!table || fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	struct file **files = BPF_CORE_READ(table, fd);
	return bpf_probe_read_kernel(&file, sizeof(file), files + fd) ? NULL : file;
}

/* Looks up the socket that is a descriptor of a thread. Not static: looked at once a program. */
APART int ends_of(__u64 task, __u32 fd, struct ends *ends)
{
	if (!ends)
		return 0;
	ends->sock = 0;
	struct file *file = file_of(task, fd);
	if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sock = BPF_CORE_READ(socket, sk);
	__u16 family = BPF_CORE_READ(sock, __sk_common.skc_family), peer = BPF_CORE_READ(sock, __sk_common.skc_dport);
	if (!sock || (family != AF_INET && family != AF_INET6))
		return 0;
	ends->address = BPF_CORE_READ(sock, __sk_common.skc_rcv_saddr);
	ends->peer_address = BPF_CORE_READ(sock, __sk_common.skc_daddr);
	ends->port = BPF_CORE_READ(sock, __sk_common.skc_num);
	ends->peer_port = __builtin_bswap16(peer);
	ends->listens = BPF_CORE_READ(sock, __sk_common.skc_state) == TCP_LISTEN;
	ends->sock = (__u64)sock;
	return 1;
}

/* Calls that wait for several descriptors: which of them it was that ended the wait is not known. */
static __always_inline bool waits_for_many(__s16 call)
{
	return call >= 0 && (call == NR_epoll_wait || call == NR_epoll_pwait || call == NR_epoll_pwait2 ||
			     call == NR_poll || call == NR_ppoll || call == NR_select || call == NR_pselect6);
}

/*
 * In a softirq, a thread wakes up that waits in a call whose first argument is `fd`: whether the current thread sent the
 * message that woke it. `sock` becomes the socket waited for, if there is one.
 */
APART int sent_by_current(__u64 task, int call, __u32 fd, __u64 *sock)
{
	struct task_struct *by = bpf_get_current_task_btf();
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(by);
	struct ends waiter = {}, sender = {};
	bool many = waits_for_many(call);

	if (!sock)
		return 0;
	*sock = 0;
	if (!many && !ends_of(task, fd, &waiter))
		return 0;
	*sock = waiter.sock;
	if (by->flags & PF_KTHREAD || !in_call(by))
		return 0;
	if (!ends_of(bpf_get_current_task(), ARG0(regs), &sender) || !sender.peer_port)
		return 0;
	if (many)
		return sender.address == sender.peer_address || (sender.peer_address & 0xff) == 127;
	if (sender.peer_port != waiter.port)
		return 0;
	return waiter.listens ||
	       (waiter.peer_port == sender.port && waiter.peer_address == sender.address &&
		waiter.address == sender.peer_address);
}

#endif
