// Confines itself by a filter that kills at other calls, and then maps, locks and frees memory. Prints ok. An
// argument selects how the filter is entered: prctl or seccomp.
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(call) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int argc, char **argv)
{
	size_t size = 32ul << 20;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_mmap),
		ALLOW(SYS_munmap),
		ALLOW(SYS_mlock),
		ALLOW(SYS_munlock),
		ALLOW(SYS_write),
		ALLOW(SYS_exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 1;
	if (argc > 1 && !strcmp(argv[1], "seccomp") ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
						    : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 2;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p == MAP_FAILED)
		return 3;
	memset(p, 1, size);
	mlock(p, size);
	if (munmap(p, size))
		return 4;
	if (write(1, "ok\n", 3) != 3)
		return 5;
	_exit(0);
}
