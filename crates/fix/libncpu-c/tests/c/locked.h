// The memory that a process has locked, and its limit.
#ifndef LOCKED_H
#define LOCKED_H
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

// kB of a line of /proc/self/status.
static inline long status(const char *key)
{
	char line[256];
	long value = -1;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, key, strlen(key)))
			value = atol(line + strlen(key));
	if (f)
		fclose(f);
	return value;
}

// Drops privileges, and limits locked memory to `bytes`.
static inline int lock_at_most(rlim_t bytes)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0 }, { 0 } };
	struct rlimit limit = { bytes, bytes };
	return setrlimit(RLIMIT_MEMLOCK, &limit) || syscall(SYS_capset, &header, none) ? -1 : 0;
}
#endif
