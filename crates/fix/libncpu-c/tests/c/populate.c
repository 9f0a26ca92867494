// Segments and the calls on any memory from C: use, misuse, failures, and that nothing remains after them.
#include "check.h"
#include "deny.h"
#include "locked.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/shm.h>

enum { MIB = 1 << 20, POPULATE_READ = 22, POPULATE_WRITE = 23 };

// A sanitizer's heap grows at any time.
#ifdef __SANITIZE_ADDRESS__
#define HEAP_GROWS 1
#else
#define HEAP_GROWS 0
#endif

static int entries(const char *directory)
{
	DIR *d = opendir(directory);
	int n = 0;
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static int lines(const char *file)
{
	FILE *f = fopen(file, "r");
	int c, n = 0;
	while (f && (c = getc(f)) != EOF)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

// Traces that a call may leave behind: mappings, descriptors, threads, names, segments.
static int left(void)
{
	struct shm_info info;
	int segments = 0, last = shmctl(0, SHM_INFO, (struct shmid_ds *)&info);
	for (int i = 0; i <= last; i++) {
		struct shmid_ds ds;
		segments += shmctl(i, SHM_STAT, &ds) >= 0 && ds.shm_cpid == getpid();
	}
	return (HEAP_GROWS ? 0 : lines("/proc/self/maps")) + 1000 * entries("/proc/self/fd") + 100000 * entries("/proc/self/task") +
		10000000 * segments;
}

// The same, once the count has returned to `before`: a thread that has ended is listed until the kernel has
// removed it.
static int settled(int before)
{
	for (int i = 0; i < 200 && left() != before; i++)
		usleep(10000);
	return left();
}

// May the process lock this number of bytes?
static int may_lock(uint64_t bytes)
{
	struct rlimit limit;
	void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int may;
	CHECK(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	may = syscall(SYS_mlock2, p, bytes, 1) == 0;
	munmap(p, bytes);
	return may || limit.rlim_cur >= bytes;
}

static const uint64_t first_node = 1;

static void one(ncpu_segment_options_t options)
{
	ncpu_segment_t *s = NULL;
	ncpu_failure_t why;
	int before = left();
	long locked = status("VmLck:");
	int error = ncpu_segment_create(&options, &s, &why);
	if (error) {
		fprintf(stderr, "backing %u pages %lu policy %u: %s: %s\n", options.backing, (unsigned long)options.pages,
			options.policy, why.what, strerror(error));
		exit(1);
	}
	unsigned char *p = ncpu_segment_address(s);
	uint64_t size = ncpu_segment_size(s);
	unsigned char there[4096];
	CHECK(size >= options.size && size % 4096 == 0, 1);
	CHECK((ncpu_segment_handle(s) >= 0) == (options.backing != NCPU_PRIVATE), 1);
	CHECK(mincore(p, size < 4096ul * 4096 ? size : 4096ul * 4096, there), 0);
	for (uint64_t i = 0; i < size / 4096 && i < 4096; i++)
		CHECK(there[i] & 1, 1);
	if (options.flags & NCPU_LOCKED)
		CHECK(status("VmLck:") - locked, (long)(size / 1024));
	ncpu_scan_t found;
	CHECK(ncpu_scan(p, size, 0, options.helpers, &found), 0);
	CHECK(found.equal == size / 8 && found.words == size / 8 && found.first == NCPU_NO_PAGE, 1);
	p[size - 1] = 1;
	CHECK(ncpu_scan(p, size, 0, options.helpers, &found), 0);
	CHECK(found.first, size - 8);
	CHECK(ncpu_segment_destroy(s, &why), 0);
	CHECK(settled(before), before);
	CHECK(status("VmLck:"), locked);
}

static void all_kinds(void)
{
	static const uint32_t helpers[] = { NCPU_ALONE, 1, 3, 0 };
	char name[64];
	snprintf(name, sizeof name, "/ncpu-test-%d", getpid());
	int locks = may_lock(12 * MIB);
	for (int backing = NCPU_PRIVATE; backing <= NCPU_SYSV; backing++)
		for (uint64_t pages = NCPU_PAGES_DEFAULT; pages <= NCPU_PAGES_TRANSPARENT; pages++)
			for (unsigned h = 0; h < 4; h++)
				for (int lock = 0; lock <= locks; lock++)
					one((ncpu_segment_options_t){ .size = 9 * MIB + 5, .backing = backing, .name = name,
						.pages = pages, .helpers = helpers[h], .flags = lock ? NCPU_LOCKED : 0 });
	for (int policy = NCPU_POLICY_LOCAL; policy <= NCPU_POLICY_BIND; policy++)
		one((ncpu_segment_options_t){ .size = 9 * MIB, .policy = policy, .nodes = &first_node, .node_words = 1 });
	one((ncpu_segment_options_t){ .size = 9 * MIB, .policy = NCPU_POLICY_INTERLEAVE });
	one((ncpu_segment_options_t){ .size = 1 });
	// With a key: another process can find it, and its end is the segment's.
	one((ncpu_segment_options_t){ .size = 9 * MIB, .backing = NCPU_SYSV, .key = getpid() | 0x6e000000 });
}

// A segment that cannot be made: `what` failed with `error`, and nothing remains.
static void refused(ncpu_segment_options_t options, const char *what, int error)
{
	ncpu_segment_t *s = (void *)1;
	ncpu_failure_t why;
	int before = left();
	CHECK(ncpu_segment_create(&options, &s, &why), error);
	if (strcmp(why.what, what)) {
		fprintf(stderr, "%s failed, not %s\n", why.what, what);
		exit(1);
	}
	CHECK(s == (void *)1, 1);
	CHECK(settled(before), before);
	CHECK(ncpu_segment_create(&options, &s, NULL), error);
	CHECK(settled(before), before);
}

static void misuse(void)
{
	ncpu_segment_t *s;
	ncpu_segment_options_t options = { .size = MIB };
	ncpu_scan_t found;
	uint64_t nodes[17] = { [16] = 1 };
	CHECK(ncpu_segment_create(NULL, &s, NULL), EINVAL);
	CHECK(ncpu_segment_create(&options, NULL, NULL), EINVAL);
	CHECK(ncpu_segment_destroy(NULL, NULL), 0);
	CHECK(ncpu_segment_address(NULL) == NULL, 1);
	CHECK(ncpu_segment_size(NULL), 0);
	CHECK(ncpu_segment_handle(NULL), -1);
	CHECK(ncpu_fill(NULL, 8, 0, 0), EINVAL);
	CHECK(ncpu_fill(NULL, 0, 0, 0), 0);
	CHECK(ncpu_scan(NULL, 8, 0, 0, &found), EINVAL);
	CHECK(ncpu_scan(NULL, 0, 0, 0, NULL), EINVAL);
	CHECK(ncpu_scan(NULL, 0, 0, 0, &found), 0);
	CHECK(found.words == 0 && found.first == NCPU_NO_PAGE, 1);
	refused((ncpu_segment_options_t){ .size = 0 }, "length", EINVAL);
	refused((ncpu_segment_options_t){ .size = ~0ull }, "length", EINVAL);
	refused((ncpu_segment_options_t){ .size = MIB, .backing = 9 }, "options", EINVAL);
	refused((ncpu_segment_options_t){ .size = MIB, .backing = NCPU_POSIX }, "options", EINVAL);
	refused((ncpu_segment_options_t){ .size = MIB, .policy = 9 }, "options", EINVAL);
	refused((ncpu_segment_options_t){ .size = MIB, .flags = 2 }, "options", EINVAL);
	refused((ncpu_segment_options_t){ .size = MIB, .pages = 12345 }, "page size", EINVAL);
	refused((ncpu_segment_options_t){ .size = MIB, .policy = NCPU_POLICY_BIND, .nodes = nodes, .node_words = 17 },
		"options", EINVAL);
	refused((ncpu_segment_options_t){ .size = MIB, .policy = NCPU_POLICY_BIND }, "mbind", EINVAL);
	refused((ncpu_segment_options_t){ .size = MIB, .backing = NCPU_POSIX, .name = "/a", .pages = 2 * MIB },
		"shm_open", EINVAL);
	refused((ncpu_segment_options_t){ .size = MIB, .backing = NCPU_POSIX, .name = "/a/b" }, "shm_open", EINVAL);
	refused((ncpu_segment_options_t){ .size = 1ull << 62 }, "mmap", ENOMEM);
}

// Pages that cannot be made: the error names the first.
static void failing_pages(void)
{
	ncpu_failure_t why;
	int before = left();
	// A file that ends in the middle.
	int fd = memfd_create("short", 0);
	uint64_t size = 64 * MIB, end = 40 * MIB + 3 * 4096;
	CHECK(ftruncate(fd, end), 0);
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (int write = 0; write < 2; write++)
		for (unsigned most = 1; most < 9; most *= 2) {
			CHECK(ncpu_populate(p, size, write, most == 8 ? NCPU_ALONE : most, &why), EFAULT);
			CHECK(why.offset, end);
			CHECK(ncpu_populate(p + 5 * MIB + 7, size - 5 * MIB - 7, write, most, &why), EFAULT);
			CHECK(why.offset, end - 5 * MIB - 7);
			CHECK(ncpu_populate(p, end, write, most, &why), 0);
		}
	munmap(p, size);
	close(fd);
	// A hole.
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(p + 17 * MIB + 4096, 4096);
	int error = ncpu_populate(p, size, 1, 3, &why);
	CHECK(error == ENOMEM || error == EFAULT, 1);
	CHECK(why.offset, 17 * MIB + 4096);
	munmap(p, size);
	// Memory that cannot be written.
	p = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	error = ncpu_populate(p, size, 1, 3, &why);
	CHECK(error == EINVAL || error == EFAULT, 1);
	CHECK(why.offset, 0);
	CHECK(ncpu_populate(p, size, 0, 3, &why), 0);
	munmap(p, size);
	CHECK(ncpu_populate(p, ~(size_t)0, 0, 3, &why), EINVAL);
	CHECK(settled(before), before);
}

// Contents are unchanged, whatever is made or locked around them.
static void contents(void)
{
	uint64_t size = 48 * MIB;
	unsigned *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (uint64_t i = 0; i < size / 4; i += 3333)
		p[i] = i;
	CHECK(ncpu_populate(p, size, 1, 3, NULL), 0);
	CHECK(ncpu_populate(p, size, 0, 3, NULL), 0);
	if (may_lock(size)) {
		CHECK(ncpu_mlock(p, size, 3, NULL), 0);
		CHECK(status("VmLck:") >= (long)(size / 1024), 1);
		CHECK(munlock(p, size), 0);
	}
	for (uint64_t i = 0; i < size / 4; i++)
		CHECK(p[i], i % 3333 ? 0 : i);
	CHECK(ncpu_munmap((char *)p + 1, 4096, 3, NULL), EINVAL);
	// From the middle: the rest is unchanged.
	CHECK(ncpu_munmap(p + 4 * MIB, 16 * MIB, 3, NULL), 0);
	CHECK(p[3333], 3333);
	CHECK(p[size / 4 - 4096], (size / 4 - 4096) % 3333 ? 0 : size / 4 - 4096);
	CHECK(ncpu_munmap(p, size, 3, NULL), 0);
	unsigned char there;
	CHECK(mincore(p, 4096, &there), -1);
	// Shared memory is only unmapped.
	int fd = memfd_create("kept", 0);
	CHECK(ftruncate(fd, size), 0);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(ncpu_fill(p, size, 0x0102030405060708, 3), 0);
	CHECK(ncpu_munmap(p, size, 3, NULL), 0);
	p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	ncpu_scan_t found;
	CHECK(ncpu_scan(p, size, 0x0102030405060708, 3, &found), 0);
	CHECK(found.equal, size / 8);
	munmap(p, size);
	close(fd);
}

static void in_child(void (*test)(void))
{
	pid_t pid = fork();
	if (pid == 0) {
		test();
		// At exit sanitizers make calls that are denied here.
		_exit(0);
	}
	wait_for(pid, 0);
}

static ncpu_segment_options_t some = { .size = 48 * MIB, .helpers = 3 };

// Before Linux 5.14, or in a sandbox.
static void without_populate(void)
{
	deny(SYS_madvise, EINVAL, POPULATE_WRITE);
	deny(SYS_madvise, EINVAL, POPULATE_READ);
	all_kinds();
	failing_pages();
	contents();
}

static void without_threads(void)
{
	deny(SYS_clone, EAGAIN, -1);
	one(some);
	failing_pages();
	contents();
}

static void without_proc(void)
{
	deny(SYS_ioctl, ENOTTY, -1);
	contents();
	deny(SYS_openat, ENOENT, -1);
	unsigned char *p = mmap(NULL, some.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (syscall(SYS_mlock2, p, some.size, 1) == 0)
		CHECK(ncpu_mlock(p, some.size, 3, NULL), 0);
	CHECK(ncpu_munmap(p, some.size, 3, NULL), 0);
}

static void each_call_fails(void)
{
	ncpu_segment_options_t options = some;
	deny(SYS_mbind, ENOMEM, -1);
	options.policy = NCPU_POLICY_INTERLEAVE;
	for (options.backing = NCPU_PRIVATE; options.backing <= NCPU_SYSV; options.backing++) {
		options.name = "/ncpu-refused";
		refused(options, "mbind", ENOMEM);
	}
	options = some;
	options.flags = NCPU_LOCKED;
	deny(SYS_mlock2, ENOMEM, -1);
	refused(options, "mlock2", ENOMEM);
	options = some;
	options.backing = NCPU_MEMFD;
	deny(SYS_ftruncate, ENOSPC, -1);
	refused(options, "ftruncate", ENOSPC);
	deny(SYS_memfd_create, EMFILE, -1);
	refused(options, "memfd_create", EMFILE);
	options.backing = NCPU_SYSV;
	deny(SYS_shmat, ENOMEM, -1);
	refused(options, "shmat", ENOMEM);
	deny(SYS_shmget, ENOSPC, -1);
	refused(options, "shmget", ENOSPC);
}

// No page can be made: the error names the first, and a segment is undone.
static void out_of_memory(void)
{
	ncpu_failure_t why;
	ncpu_segment_options_t options = some;
	CHECK(ncpu_populate(NULL, 0, 1, 3, NULL), 0);
	deny(SYS_madvise, ENOMEM, POPULATE_WRITE);
	for (options.backing = NCPU_PRIVATE; options.backing <= NCPU_SYSV; options.backing++) {
		options.name = "/ncpu-refused";
		refused(options, "madvise(MADV_POPULATE_WRITE)", ENOMEM);
	}
	ncpu_segment_t *s;
	CHECK(ncpu_segment_create(&some, &s, &why), ENOMEM);
	CHECK(why.offset, 0);
}

// The limit is mlock's: no page is made if it refuses.
static void limited(void)
{
	CHECK(lock_at_most(8 * MIB), 0);
	ncpu_segment_options_t options = some;
	options.flags = NCPU_LOCKED;
	refused(options, "mlock2", ENOMEM);
	ncpu_failure_t why;
	unsigned char *p = mmap(NULL, some.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), there;
	CHECK(ncpu_mlock(p, some.size, 3, &why), ENOMEM);
	CHECK(why.offset, NCPU_NO_PAGE);
	for (uint64_t i = 0; i < some.size; i += 4096) {
		CHECK(mincore(p + i, 4096, &there), 0);
		CHECK(there & 1, 0);
	}
	CHECK(status("VmLck:"), 0);
	CHECK(ncpu_mlock(p, 6 * MIB, 3, &why), 0);
	CHECK(status("VmLck:"), 6 * 1024);
	CHECK(ncpu_munmap(p, some.size, 3, &why), 0);
	CHECK(status("VmLck:"), 0);
}

// Another thread forks, and signals come, while segments are made and destroyed.
static volatile int stop;
static volatile sig_atomic_t ticks;

static void tick(int signal)
{
	(void)signal;
	ticks++;
}

static void *forks(void *unused)
{
	while (!stop) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(0);
		wait_for(pid, 0);
		usleep(1000);
	}
	return unused;
}

static void disturbed(void)
{
	pthread_t t;
	// During the call, errno and signal masks came back unchanged.
	sigset_t mask, after;
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	timer_t timer;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec each = { { 0, 3000000 }, { 0, 3000000 } };
	CHECK(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	CHECK(timer_settime(timer, 0, &each, NULL), 0);
	CHECK(pthread_create(&t, NULL, forks, NULL), 0);
	sigprocmask(SIG_SETMASK, NULL, &mask);
	for (int i = 0; i < 20 || ticks < 5; i++) {
		ncpu_segment_t *s;
		errno = 12345;
		CHECK(ncpu_segment_create(&some, &s, NULL), 0);
		CHECK(ncpu_segment_destroy(s, NULL), 0);
		CHECK(errno, 12345);
	}
	sigprocmask(SIG_SETMASK, NULL, &after);
	// All signals of the kernel's mask.
	CHECK(memcmp(&mask, &after, 8), 0);
	stop = 1;
	CHECK(pthread_join(t, NULL), 0);
	timer_delete(timer);
}

int main(void)
{
	// The libraries' own first uses of files and memory.
	left();
	status("VmLck:");
	// Before all others, since support for populate is detected once.
	in_child(without_populate);
	in_child(without_threads);
	in_child(without_proc);
	in_child(each_call_fails);
	in_child(out_of_memory);
	in_child(limited);
	all_kinds();
	misuse();
	failing_pages();
	contents();
	disturbed();
	puts("ok");
	return 0;
}
