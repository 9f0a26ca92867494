/*
 * Reads a file past the page cache without waiting in the call that asks, DEPTH requests at a time, and says how many there
 * were and how long they took together, from asking until the answer was taken:
 *
 *   requests aio|epoll|uring FILE BYTES DEPTH SECONDS
 *
 * by io_submit with io_getevents, the same with an eventfd and epoll_wait, or io_uring. Or sleeps in calls that could wait
 * for requests and do not:
 *
 *   requests pipe FILE BYTES DEPTH SECONDS     io_uring reads from a pipe that nobody writes to
 *   requests beside FILE BYTES DEPTH SECONDS   a thread reads and waits in pread; the main thread sleeps in epoll_wait
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define MOST 256

static int file;
static long blocks, depth;
static double length, began, asked[MOST], together;
static long done;
static char *memory;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Never two neighbours in a row, which the kernel would make one. */
static long long next_offset(void)
{
	static unsigned long long n;

	n++;
	return (long long)(n * 7919 * 2 % (blocks / 2) * 2) * BLOCK;
}

static void ask(long slot)
{
	asked[slot] = now();
}

static void answered(long slot, long long result)
{
	if (result != BLOCK) {
		fprintf(stderr, "a read gave %lld\n", result);
		exit(1);
	}
	together += now() - asked[slot];
	done++;
}

static void aio(int by_epoll)
{
	aio_context_t ctx = 0;
	struct iocb cb[MOST] = {}, *list[1];
	struct io_event events[MOST];
	struct epoll_event event = { .events = EPOLLIN };
	int ready = eventfd(0, EFD_NONBLOCK), set = epoll_create1(0);
	long in_flight = 0;

	if (syscall(SYS_io_setup, depth, &ctx) || ready < 0 || epoll_ctl(set, EPOLL_CTL_ADD, ready, &event))
		fail("io_setup");
	for (int first = 1;; first = 0) {
		long n = depth;

		if (first) {
			for (long i = 0; i < n; i++)
				events[i].data = i;
		} else {
			if (by_epoll) {
				unsigned long long count;
				if (epoll_wait(set, &event, 1, -1) < 1 || read(ready, &count, 8) != 8)
					fail("epoll_wait");
			}
			n = syscall(SYS_io_getevents, ctx, by_epoll ? 0 : 1, depth, events, NULL);
			if (n < 0)
				fail("io_getevents");
			in_flight -= n;
			for (long i = 0; i < n; i++)
				answered(events[i].data, events[i].res);
		}
		for (long i = 0; i < n && now() - began < length; i++) {
			long s = events[i].data;
			cb[s] = (struct iocb){ .aio_data = s, .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = file,
					       .aio_buf = (unsigned long)(memory + s * BLOCK), .aio_nbytes = BLOCK,
					       .aio_offset = next_offset(), .aio_flags = IOCB_FLAG_RESFD,
					       .aio_resfd = ready };
			list[0] = &cb[s];
			ask(s);
			if (syscall(SYS_io_submit, ctx, 1, list) != 1)
				fail("io_submit");
			in_flight++;
		}
		if (!in_flight)
			return;
	}
}

static struct {
	int fd;
	unsigned *head, *tail, mask, *array;
	unsigned *done_head, *done_tail, done_mask;
	struct io_uring_sqe *asks;
	struct io_uring_cqe *answers;
} ring;

static void open_ring(void)
{
	struct io_uring_params p = {};
	char *sq, *cq;

	ring.fd = syscall(SYS_io_uring_setup, depth, &p);
	if (ring.fd < 0)
		fail("io_uring_setup");
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
		  IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(*ring.answers), PROT_READ | PROT_WRITE, MAP_SHARED,
		  ring.fd, IORING_OFF_CQ_RING);
	ring.asks = mmap(NULL, p.sq_entries * sizeof(*ring.asks), PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
			 IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || (void *)ring.asks == MAP_FAILED)
		fail("mmap");
	ring.tail = (unsigned *)(sq + p.sq_off.tail);
	ring.mask = *(unsigned *)(sq + p.sq_off.ring_mask);
	ring.array = (unsigned *)(sq + p.sq_off.array);
	ring.done_head = (unsigned *)(cq + p.cq_off.head);
	ring.done_tail = (unsigned *)(cq + p.cq_off.tail);
	ring.done_mask = *(unsigned *)(cq + p.cq_off.ring_mask);
	ring.answers = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

static void put_read(int fd, long slot, long long offset)
{
	unsigned tail = *ring.tail, at = tail & ring.mask;

	ring.asks[at] = (struct io_uring_sqe){ .opcode = IORING_OP_READ, .fd = fd, .off = offset, .len = BLOCK,
					       .addr = (unsigned long)(memory + slot * BLOCK), .user_data = slot };
	ring.array[at] = at;
	__atomic_store_n(ring.tail, tail + 1, __ATOMIC_RELEASE);
}

static void uring(void)
{
	long in_flight = 0, put = 0;

	open_ring();
	for (long slot = 0; slot < depth; slot++, put++) {
		ask(slot);
		put_read(file, slot, next_offset());
	}
	while (put || in_flight) {
		if (syscall(SYS_io_uring_enter, ring.fd, put, 1, IORING_ENTER_GETEVENTS, NULL, 0) != put)
			fail("io_uring_enter");
		in_flight += put;
		put = 0;
		unsigned head = *ring.done_head, end = __atomic_load_n(ring.done_tail, __ATOMIC_ACQUIRE);
		for (; head != end; head++) {
			struct io_uring_cqe *a = &ring.answers[head & ring.done_mask];
			long slot = a->user_data;
			answered(slot, a->res);
			in_flight--;
			if (now() - began < length) {
				ask(slot);
				put_read(file, slot, next_offset());
				put++;
			}
		}
		__atomic_store_n(ring.done_head, head, __ATOMIC_RELEASE);
	}
}

static void from_pipe(void)
{
	struct __kernel_timespec time = { .tv_nsec = 50000000 };
	int ends[2];

	if (pipe(ends))
		fail("pipe");
	open_ring();
	put_read(ends[0], 0, -1);
	if (syscall(SYS_io_uring_enter, ring.fd, 1, 0, 0, NULL, 0) != 1)
		fail("io_uring_enter");
	/* A timer ends each wait, of which the read knows nothing. */
	while (now() - began < length) {
		unsigned tail = *ring.tail, at = tail & ring.mask;
		ring.asks[at] = (struct io_uring_sqe){ .opcode = IORING_OP_TIMEOUT, .fd = -1, .len = 1,
						       .addr = (unsigned long)&time };
		ring.array[at] = at;
		__atomic_store_n(ring.tail, tail + 1, __ATOMIC_RELEASE);
		if (syscall(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
			fail("io_uring_enter");
		__atomic_store_n(ring.done_head, *ring.done_tail, __ATOMIC_RELEASE);
	}
}

static void *reader(void *unused)
{
	while (now() - began < length) {
		ask(0);
		answered(0, pread(file, memory, BLOCK, next_offset()));
	}
	return NULL;
}

static void beside(void)
{
	struct epoll_event event;
	int set = epoll_create1(0);
	pthread_t thread;

	if (set < 0 || pthread_create(&thread, NULL, reader, NULL))
		fail("pthread_create");
	while (now() - began < length)
		epoll_wait(set, &event, 1, 50);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	blocks = atol(argv[3]) / BLOCK;
	depth = atol(argv[4]);
	length = atof(argv[5]);
	if (depth < 1 || depth > MOST || blocks < 2 * depth)
		return 2;
	file = open(argv[2], O_RDONLY | O_DIRECT);
	if (file < 0)
		fail(argv[2]);
	if (posix_memalign((void **)&memory, BLOCK, MOST * BLOCK))
		fail("memory");
	began = now();
	if (!strcmp(argv[1], "aio"))
		aio(0);
	else if (!strcmp(argv[1], "epoll"))
		aio(1);
	else if (!strcmp(argv[1], "uring"))
		uring();
	else if (!strcmp(argv[1], "pipe"))
		from_pipe();
	else if (!strcmp(argv[1], "beside"))
		beside();
	else
		return 2;
	printf("%ld %.6f %.6f\n", done, together, now() - began);
	return 0;
}
