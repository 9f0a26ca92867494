// Reads of cached pages by two threads through io_uring with IORING_SETUP_SQPOLL: the kernel's threads iou-sqp spin for new requests
// and take the CPUs that the program itself needs. `twin`: without SQPOLL.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static unsigned digest(unsigned x) { for (int i = 0; i < 40000; i++) x = x * 1664525 + 1013904223 + (x >> 7); return x; }
struct ring { unsigned *sq_tail, *sq_mask, *sq_array, *sq_flags, *cq_head, *cq_tail, *cq_mask; struct io_uring_sqe *sqes; struct io_uring_cqe *cqes; int fd; };
static int twin, file; static double end; static long done[2];
static void open_ring(struct ring *r) {
    struct io_uring_params p = {.flags = twin ? 0 : IORING_SETUP_SQPOLL, .sq_thread_idle = 1000};
    r->fd = syscall(SYS_io_uring_setup, 8, &p);
    if (r->fd < 0) { perror("setup"); exit(1); }
    char *s = mmap(0, p.sq_off.array + p.sq_entries * 4, 3, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
    char *c = mmap(0, p.cq_off.cqes + p.cq_entries * 16, 3, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_CQ_RING);
    r->sqes = mmap(0, p.sq_entries * 64, 3, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
    r->sq_tail = (void *)(s + p.sq_off.tail); r->sq_mask = (void *)(s + p.sq_off.ring_mask); r->sq_array = (void *)(s + p.sq_off.array); r->sq_flags = (void *)(s + p.sq_off.flags);
    r->cq_head = (void *)(c + p.cq_off.head); r->cq_tail = (void *)(c + p.cq_off.tail); r->cq_mask = (void *)(c + p.cq_off.ring_mask); r->cqes = (void *)(c + p.cq_off.cqes);
}
static int read_block(struct ring *r, void *buf, long at) {
    unsigned tail = *r->sq_tail, i = tail & *r->sq_mask;
    r->sqes[i] = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = file, .off = at, .addr = (unsigned long)buf, .len = 4096};
    r->sq_array[i] = i;
    __atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_SEQ_CST);
    unsigned flags = IORING_ENTER_GETEVENTS;
    if (__atomic_load_n(r->sq_flags, __ATOMIC_SEQ_CST) & IORING_SQ_NEED_WAKEUP) flags |= IORING_ENTER_SQ_WAKEUP;
    if (syscall(SYS_io_uring_enter, r->fd, twin ? 1 : 0, 1, flags, 0, 0) < 0) { perror("enter"); exit(1); }
    int res = r->cqes[*r->cq_head & *r->cq_mask].res;
    __atomic_store_n(r->cq_head, *r->cq_head + 1, __ATOMIC_RELEASE);
    return res;
}
static void *reader(void *arg) {
    long t = (long)arg, n = 0; struct ring r; unsigned x = t + 1; char *block = aligned_alloc(4096, 4096);
    open_ring(&r);
    while (now() < end) { if (read_block(&r, block, 4096L * (x % 4096)) != 4096) exit(1); x = digest(x + block[x % 4096]); n++; }
    done[t] = n + (x & 1); return 0;
}
int main(int argc, char **argv) {
    twin = argc > 2 && !strcmp(argv[2], "twin");
    char path[] = "/tmp/sqpollXXXXXX", *block = aligned_alloc(4096, 4096);
    file = mkstemp(path); unlink(path);
    memset(block, 1, 4096);
    for (int i = 0; i < 4096; i++) if (write(file, block, 4096) < 0) return 1;
    end = now() + atof(argv[1]);
    pthread_t t[2];
    for (long i = 0; i < 2; i++) pthread_create(&t[i], 0, reader, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
    printf("%.0f reads/s\n", (done[0] + done[1]) / atof(argv[1]));
}
