// Reads of cached pages by io_uring, each forced to the kernel's worker threads (IOSQE_ASYNC): each read is handed to another thread
// and back. `twin` lets them complete in place.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static unsigned work(unsigned x) { for (int i = 0; i < 4000; i++) x = x * 1664525 + 1013904223 + (x >> 7); return x; }
static unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe *sqes; static struct io_uring_cqe *cqes; static int ring;
static int read_block(int fd, void *buf, long at, int flags) {
    unsigned tail = *sq_tail, i = tail & *sq_mask;
    sqes[i] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .flags = flags, .fd = fd, .off = at, .addr = (unsigned long)buf, .len = 4096};
    sq_array[i] = i;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0) { perror("enter"); exit(1); }
    int res = cqes[*cq_head & *cq_mask].res;
    __atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
    return res;
}
int main(int argc, char **argv) {
    int twin = argc > 2 && !strcmp(argv[2], "twin");
    struct io_uring_params p = {0};
    ring = syscall(SYS_io_uring_setup, 8, &p);
    char *s = mmap(0, p.sq_off.array + p.sq_entries * 4, 3, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    char *c = mmap(0, p.cq_off.cqes + p.cq_entries * 16, 3, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
    sqes = mmap(0, p.sq_entries * 64, 3, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    sq_tail = (void *)(s + p.sq_off.tail); sq_mask = (void *)(s + p.sq_off.ring_mask); sq_array = (void *)(s + p.sq_off.array);
    cq_head = (void *)(c + p.cq_off.head); cq_tail = (void *)(c + p.cq_off.tail); cq_mask = (void *)(c + p.cq_off.ring_mask); cqes = (void *)(c + p.cq_off.cqes);
    char path[] = "/tmp/ioworkersXXXXXX", *block = aligned_alloc(4096, 4096);
    int fd = mkstemp(path); unlink(path);
    memset(block, 1, 4096);
    for (int i = 0; i < 4096; i++) if (write(fd, block, 4096) < 0) return 1;
    double end = now() + atof(argv[1]);
    long n = 0; unsigned x = 1;
    while (now() < end) { if (read_block(fd, block, 4096L * (x % 4096), twin ? 0 : IOSQE_ASYNC) != 4096) return 1; x = work(x + block[x % 4096]); n++; }
    printf("%.0f reads/s %u\n", n / atof(argv[1]), x & 1);
}
