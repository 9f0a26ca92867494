// Maps, locks and frees memory in every way, correctly and not, and prints results, errno, locked bytes and
// contents: the same with and without the library. The last line, on standard error, is the number of faults
// that this thread did not take itself.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../../../../libncpu-c/tests/c/locked.h"

#define MIB (1ul << 20)
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

// Everything is locked, the library too: then locked bytes are not printed.
static int all_locked;

// The flags of the area at an address, as the kernel reports them, and the number of its pages that exist.
static void area(const char *what, void *p, size_t length)
{
	char line[512], flags[256] = "none";
	unsigned long start, end, at = (unsigned long)p;
	int in = 0;
	FILE *f = fopen("/proc/self/smaps", "r");
	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			in = start <= at && at < end;
		// Advice of huge pages, and merging of neighbouring areas, may differ.
		if (in && sscanf(line, "VmFlags: %255[^\n]", flags) == 1)
			break;
	}
	if (f)
		fclose(f);
	// Whether memory that was made read-only is still accounted depends on pages of a neighbour that it was merged with.
	char *accounted = strstr(flags, " ac");
	if (accounted)
		memmove(accounted, accounted + 3, strlen(accounted + 3) + 1);
	size_t there = 0;
	for (size_t i = 0; i < length; i += 4096) {
		unsigned char c = 0;
		there += mincore((char *)p + i, 4096, &c) == 0 && (c & 1);
	}
	printf("%s: flags %s, %zu of %zu pages, VmLck %ld\n", what, flags, there, length / 4096,
		all_locked ? 0 : status("VmLck:"));
}

static unsigned long sum(void *p, size_t length)
{
	unsigned long s = 0;
	for (size_t i = 0; i < length; i += 512)
		s = s * 31 + ((unsigned char *)p)[i];
	return s;
}

static void fill(void *p, size_t length)
{
	for (size_t i = 0; i < length; i += 512)
		((unsigned char *)p)[i] = i / 512 * 7;
}

static void result(const char *what, long result)
{
	printf("%s: %s %d\n", what, result == -1 ? "failed" : result ? "got" : "0", result == -1 ? errno : 0);
}

static void *mapped(const char *what, size_t length, int protection, int flags, int fd)
{
	errno = 77;
	void *p = mmap(NULL, length, protection, flags, fd, 0);
	printf("%s: %s, errno %d\n", what, p == MAP_FAILED ? "failed" : "mapped", errno);
	if (p != MAP_FAILED)
		area(what, p, length);
	return p;
}

static void gone(const char *what, void *p, size_t length)
{
	unsigned char c;
	errno = 77;
	int r = munmap(p, length);
	printf("%s: munmap %d, errno %d\n", what, r, errno);
	if (r == 0)
		result("    afterwards mincore", mincore(p, 4096, &c));
}

static void maps(void)
{
	int rw = PROT_READ | PROT_WRITE, anon = MAP_PRIVATE | MAP_ANONYMOUS;
	size_t size = 24 * MIB;
	void *p;
	p = mapped("private populate", size, rw, anon | MAP_POPULATE, -1);
	printf("sum %lu\n", sum(p, size));
	fill(p, size);
	printf("sum %lu\n", sum(p, size));
	gone("private populate", p, size);
	p = mapped("read only", size, PROT_READ, anon | MAP_POPULATE, -1);
	gone("read only", p, size);
	p = mapped("none", size, PROT_NONE, anon | MAP_POPULATE, -1);
	gone("none", p, size);
	p = mapped("shared", size, rw, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1);
	gone("shared", p, size);
	p = mapped("nonblock", size, rw, anon | MAP_POPULATE | MAP_NONBLOCK, -1);
	gone("nonblock", p, size);
	p = mapped("odd length", size - 5000, rw, anon | MAP_POPULATE, -1);
	gone("odd length", p, size - 5000);
	p = mapped("no length", 0, rw, anon | MAP_POPULATE, -1);
	p = mapped("too long", 1ul << 62, rw, anon | MAP_POPULATE, -1);
	p = mapped("no file", size, rw, MAP_PRIVATE | MAP_POPULATE, 999);
	p = mapped("no type", size, rw, MAP_ANONYMOUS | MAP_POPULATE, -1);
	// A shorter file: memory beyond its end is not an error of mmap.
	int fd = memfd_create("short", 0);
	if (ftruncate(fd, size / 2 + 4096))
		exit(1);
	for (int type = MAP_SHARED; type <= MAP_PRIVATE; type++) {
		p = mapped(type == MAP_SHARED ? "short shared" : "short private", size, rw, type | MAP_POPULATE, fd);
		memset(p, 1, size / 2);
		printf("sum %lu\n", sum(p, size / 2));
		errno = 77;
		printf("mlock of it %d, errno %d\n", mlock(p, size), errno);
		area("short locked", p, size);
		gone("short", p, size);
	}
	char c = 9;
	printf("file has %ld: %d\n", (long)pread(fd, &c, 1, 4096), c);
	// Over an existing mapping.
	p = mmap(NULL, size, rw, anon, -1, 0);
	fill(p, size);
	void *q = mmap(p, size / 2, rw, anon | MAP_FIXED | MAP_POPULATE, -1, 0);
	printf("fixed %d: sum %lu, %lu\n", q == p, sum(p, size / 2), sum((char *)p + size / 2, size / 2));
	errno = 77;
	q = mmap(p, size, rw, anon | MAP_FIXED_NOREPLACE | MAP_POPULATE, -1, 0);
	printf("no replace: %d, errno %d\n", q == MAP_FAILED, errno);
	gone("fixed", p, size);
	close(fd);
}

static void locks(const char *who)
{
	int rw = PROT_READ | PROT_WRITE, anon = MAP_PRIVATE | MAP_ANONYMOUS;
	size_t size = 24 * MIB;
	printf("locks, %s\n", who);
	void *p = mapped("to lock", size, rw, anon, -1);
	errno = 77;
	printf("mlock %d, errno %d\n", mlock(p, size), errno);
	area("locked", p, size);
	errno = 77;
	printf("again %d, errno %d\n", mlock((char *)p + 100, size - 200), errno);
	area("locked", p, size);
	errno = 77;
	printf("munlock %d, errno %d\n", munlock(p, size), errno);
	area("unlocked", p, size);
	printf("mlock2 %d, errno %d\n", mlock2(p, size, 0), errno);
	area("mlock2", p, size);
	gone("locked", p, size);
	p = mapped("on fault", size, rw, anon, -1);
	errno = 77;
	printf("mlock2 %d, errno %d\n", mlock2(p, size, 1), errno);
	area("on fault", p, size);
	errno = 77;
	printf("wrong flags %d, errno %d\n", mlock2(p, size, 16), errno);
	gone("on fault", p, size);
	for (int shared = 0; shared < 2; shared++) {
		p = mapped("MAP_LOCKED", size, rw, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_LOCKED, -1);
		if (p != MAP_FAILED) {
			// The kernel makes pages when locked memory grows, unless it is locked on fault.
			void *q = mremap(p, size, 2 * size, MREMAP_MAYMOVE);
			result("grown", q == MAP_FAILED ? -1 : 1);
			if (q != MAP_FAILED && !shared)
				area("grown", q, 2 * size);
			munmap(q == MAP_FAILED ? p : q, q == MAP_FAILED ? size : 2 * size);
		}
	}
	p = mmap(NULL, size, rw, anon, -1, 0);
	void *q = mmap(p, size, rw, anon | MAP_FIXED | MAP_LOCKED, -1, 0);
	result("fixed and locked", q == MAP_FAILED ? -1 : q == p);
	munmap(p, size);
	// Holes and protections.
	p = mmap(NULL, size, rw, anon, -1, 0);
	munmap((char *)p + 12 * MIB, 4096);
	errno = 77;
	printf("with a hole %d, errno %d\n", mlock(p, size), errno);
	area("before the hole", p, 12 * MIB);
	area("behind the hole", (char *)p + 13 * MIB, 4096);
	munlock(p, 12 * MIB);
	munmap(p, size);
	p = mmap(NULL, size, rw, anon, -1, 0);
	mprotect((char *)p + 8 * MIB, 8 * MIB, PROT_READ);
	mprotect((char *)p + 20 * MIB, 4096, PROT_NONE);
	errno = 77;
	printf("of several protections %d, errno %d\n", mlock(p, size), errno);
	area("writable", p, 8 * MIB);
	area("readable", (char *)p + 8 * MIB, 8 * MIB);
	area("beyond", (char *)p + 21 * MIB, 3 * MIB);
	gone("several", p, size);
	errno = 77;
	printf("nowhere %d, errno %d\n", mlock((void *)4096, size), errno);
	errno = 77;
	printf("around %d, errno %d\n", mlock((void *)-4096l, size), errno);
	p = mmap(NULL, size, rw, anon, -1, 0);
	fill(p, size);
	unsigned long before = sum(p, size);
	printf("contents stay %d %d\n", mlock(p, size) | 1, before == sum(p, size));
	gone("contents", p, size);
	errno = 77;
	p = mmap(NULL, size, rw, anon, -1, 0);
	printf("mlockall %d, errno %d\n", mlockall(MCL_CURRENT), errno);
	all_locked = 1;
	area("mlockall", p, size);
	q = mmap(NULL, 4096, rw, anon, -1, 0);
	area("later", q, 4096);
	munmap(q, 4096);
	errno = 77;
	printf("munlockall %d, errno %d\n", munlockall(), errno);
	all_locked = 0;
	gone("all", p, size);
	printf("wrong mlockall %d, errno %d\n", mlockall(64), errno);
}

static void unmaps(void)
{
	int rw = PROT_READ | PROT_WRITE, anon = MAP_PRIVATE | MAP_ANONYMOUS;
	size_t size = 32 * MIB;
	char *p = mmap(NULL, size, rw, anon, -1, 0);
	fill(p, size);
	errno = 77;
	printf("not aligned %d, errno %d\n", munmap(p + 1, size), errno);
	errno = 77;
	printf("no length %d, errno %d\n", munmap(p, 0), errno);
	errno = 77;
	printf("around %d, errno %d\n", munmap(p, -4096ul), errno);
	printf("all is there %lu\n", sum(p, size));
	// From the beginning, the end, the middle.
	gone("begin", p, 8 * MIB);
	gone("end", p + 24 * MIB, 8 * MIB);
	printf("the rest %lu\n", sum(p + 8 * MIB, 16 * MIB));
	gone("middle", p + 12 * MIB, 4 * MIB);
	printf("the rest %lu %lu\n", sum(p + 8 * MIB, 4 * MIB), sum(p + 16 * MIB, 8 * MIB));
	gone("all with holes", p, size);
	// No contents are lost of a mapping that cannot be unmapped: sealed, since Linux 6.10.
	p = mmap(NULL, size, rw, anon, -1, 0);
	fill(p, size);
	if (syscall(462, p, size, 0) == 0) {
		errno = 77;
		int r = munmap(p, size);
		if (r != -1 || errno != EPERM || sum(p, size) == 0)
			printf("sealed memory: %d, errno %d, sum %lu\n", r, errno, sum(p, size));
		fill(p, size);
	}
	// The contents that other processes see are unchanged.
	int fd = memfd_create("shared", 0);
	if (ftruncate(fd, size))
		exit(1);
	p = mmap(NULL, size, rw, MAP_SHARED, fd, 0);
	fill(p, size);
	gone("shared", p, size);
	p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	printf("as written %lu\n", sum(p, size));
	munmap(p, size);
	p = mmap(NULL, size, rw, MAP_PRIVATE, fd, 0);
	memset(p, 1, size / 2);
	gone("private of a file", p, size);
	close(fd);
	// A copy in a child is unchanged.
	p = mmap(NULL, size, rw, anon, -1, 0);
	fill(p, size);
	unsigned long was = sum(p, size);
	int to[2];
	char c;
	if (pipe(to))
		exit(1);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		close(to[1]);
		if (read(to[0], &c, 1) != 0)
			_exit(1);
		unsigned long s = sum(p, size);
		char *q = mmap(NULL, size, rw, anon | MAP_POPULATE, -1, 0);
		_exit(q == MAP_FAILED || sum(q, size) != 0 || munmap(q, size) || munmap(p, size) || s != was);
	}
	printf("sum %lu\n", sum(p, size));
	gone("shared with a child", p, size);
	close(to[1]);
	int how;
	waitpid(pid, &how, 0);
	printf("child %d\n", WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void segments(void)
{
	size_t size = 24 * MIB;
	int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
	if (id == -1) {
		printf("no segments: %d\n", errno);
		return;
	}
	errno = 77;
	char *p = shmat(id, NULL, 0);
	printf("shmat %d, errno %d\n", p != (void *)-1, errno);
	fill(p, size);
	errno = 77;
	printf("within %d, errno %d\n", shmdt(p + 4096), errno);
	printf("shmdt %d, errno %d\n", shmdt(p), errno);
	errno = 77;
	printf("again %d, errno %d\n", shmdt(p), errno);
	p = shmat(id, NULL, SHM_RDONLY);
	printf("as written %lu\n", sum(p, size));
	shmctl(id, IPC_RMID, NULL);
	errno = 77;
	printf("shmdt %d, errno %d\n", shmdt(p), errno);
	printf("no such %d, errno %d\n", shmat(id, NULL, 0) == (void *)-1, errno);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	maps();
	locks("as started");
	unmaps();
	segments();
	// Processes with a limit for locked memory.
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			if (lock_at_most(i ? 0 : 8 * MIB))
				exit(1);
			locks(i ? "without permission" : "with a small limit");
			exit(0);
		}
		int how;
		waitpid(pid, &how, 0);
		printf("child %d\n", how);
	}
	struct rusage own, whole;
	getrusage(RUSAGE_THREAD, &own);
	getrusage(RUSAGE_SELF, &whole);
	fprintf(stderr, "helped %ld\n", whole.ru_minflt - own.ru_minflt);
	return 0;
}
