// Makes system calls fail: of this process, its threads and its future children.
#ifndef DENY_H
#define DENY_H
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

// Makes `call` fail with `error`, whatever its arguments are; or only if its third is `third`, unless that is
// -1.
static inline void deny(int call, int error, int third)
{
	struct sock_filter all[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, third == -1 ? 1 : 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, third, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_filter any[] = {
		all[0],
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		all[4],
		all[5],
	};
	struct sock_fprog program = { .len = 6, .filter = all };
	if (third == -1) {
		program.len = 4;
		program.filter = any;
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("seccomp");
		exit(1);
	}
}
#endif
