/*
 * A process to be dumped: dumpee MB THREADS [SECONDS [OPTIONS]]
 *
 * Its truth is its own. Under one lock a thread counts `first` up, at the beginning of its memory, then a counter in a
 * page chosen at random, then `last`, at the end. So at every moment at which no thread holds the lock first == last ==
 * the sum of the pages' counters; a thread in between is off by at most one each. Half of every page is random, half
 * zeros. Each thread also measures its own longest gap between two rounds.
 *
 * OPTIONS, letters: i idle (nothing is written), g tells gaps once a second, h huge pages, s shared memory, r a private
 * reservation of 8 TB beside, m maps, touches and unmaps meanwhile, f forks meanwhile, d a page that MADV_DONTDUMP
 * leaves out, p pauses of 100 us between rounds, l locked memory, H hugetlbfs pages of 2 MB, v 50,000 mappings beside,
 * w 5,000 threads that wait beside, x the ring of a perf event, which is not memory of programs, u userfaultfd for its own memory, q a seccomp filter as
 * containers have (userfaultfd is an error), e SIGUSR1 has it execute sleep, k one that kills for userfaultfd, for socketpair and for clone. SIGTERM ends
 * it as its time does; then it tells whether all is right. What an option needs and the machine lacks is told, and it ends
 * with 77.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define MAGIC 0x6e6370752064756dULL

struct shared {
    uint64_t magic, self, base, pages;
    volatile uint64_t first;
    volatile uint64_t *last;
} *shared;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int over, ended;
static const char *options = "";
static _Atomic uint64_t longest, rounds;
static _Atomic int started;

static void end(int signal)
{
    (void)signal;
    ended = 1;
}

static void other_program(int signal)
{
    (void)signal;
    execl("/bin/sleep", "sleep", "1000", NULL);
    _exit(1);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void *work(void *argument)
{
    uint64_t seed = 88172645463325252ULL + (uintptr_t)argument, last = now();
    int first = 1;
    while (!over) {
        if (strchr(options, 'p'))
            usleep(100);
        volatile uint64_t *page = (void *)(shared->base + next(&seed) % shared->pages * PAGE);
        pthread_mutex_lock(&lock);
        shared->first++;
        ++*page;
        ++*shared->last;
        pthread_mutex_unlock(&lock);
        rounds++;
        started += first;
        first = 0;
        uint64_t time = now(), gap = time - last, most = longest;
        last = time;
        while (gap > most && !__atomic_compare_exchange_n((uint64_t *)&longest, &most, gap, 0, 5, 5))
            ;
    }
    return NULL;
}

static void *maps(void *argument)
{
    (void)argument;
    while (!over) {
        char *p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < 64; i++)
            p[i * PAGE] = 1;
        madvise(p, 32 * PAGE, MADV_DONTNEED);
        p[0] = 2;
        p = mremap(p, 64 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);
        munmap(p, 128 * PAGE);
    }
    return NULL;
}

static void *forks(void *argument)
{
    (void)argument;
    while (!over) {
        pid_t child = fork();
        if (!child) {
            /* The child writes to what the parent has protected. */
            for (uint64_t i = 0; i < shared->pages; i += 64)
                ++*(volatile uint64_t *)(shared->base + i * PAGE);
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status)
            abort();
        usleep(1000);
    }
    return NULL;
}

static void *waits(void *argument)
{
    while (!over)
        pause();
    return argument;
}

/* The machine lacks what an option needs. */
static void lacks(const char *what)
{
    perror(what);
    exit(77);
}

/* Takes the faults of its memory itself; none comes, since all of it is there. */
static void own_faults(char *memory, uint64_t bytes)
{
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {{(uintptr_t)memory, bytes}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range))
        lacks("userfaultfd");
}

static void filter(int kills)
{
    uint32_t other = kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ALLOW;
    uint32_t first = kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | 1;
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 2, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, first),
        BPF_STMT(BPF_RET | BPF_K, other),
    };
    struct sock_fprog whole = {sizeof program / sizeof *program, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &whole))
        lacks("seccomp");
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: dumpee MB THREADS [SECONDS [OPTIONS]]\n");
        return 2;
    }
    uint64_t bytes = strtoull(argv[1], NULL, 10) << 20, seed = 42;
    int threads = atoi(argv[2]);
    double seconds = argc > 3 ? atof(argv[3]) : 1e9;
    if (argc > 4)
        options = argv[4];
    int kind = strchr(options, 's') ? MAP_SHARED : MAP_PRIVATE;
    if (strchr(options, 'H'))
        kind |= MAP_HUGETLB;
    /* Whole huge pages, for those who want them. */
    uint64_t room = (bytes + 4 * PAGE + (2 << 20) - 1) & ~((2ULL << 20) - 1);
    char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        lacks("mmap");
    if (strchr(options, 'l') && mlock(memory, room))
        lacks("mlock");
    if (strchr(options, 'h'))
        madvise(memory, room, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < bytes / PAGE; i++)
        for (int word = 1; word < PAGE / 16; word++)
            ((uint64_t *)(memory + (i + 1) * PAGE))[word] = next(&seed);
    shared = (void *)memory;
    shared->self = (uintptr_t)shared;
    shared->base = (uintptr_t)memory + PAGE;
    shared->pages = bytes / PAGE;
    shared->last = (void *)(memory + bytes + 2 * PAGE);
    *shared->last = 0;
    shared->magic = MAGIC;
    if (strchr(options, 'r'))
        mmap(NULL, 8ULL << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (strchr(options, 'd')) {
        char *secret = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        /* Put together here, so that the text is nowhere else. */
        for (int i = 0; i < 16; i++)
            secret[i] = "SECRETDONTDUMP!!"[i] ^ 1;
        madvise(secret, PAGE, MADV_DONTDUMP);
    }
    if (strchr(options, 'v')) {
        /* Neighbours with other rights do not merge. */
        char *many = mmap(NULL, 50000L * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (long i = 0; i < 50000; i++) {
            many[i * PAGE] = 1;
            if (i % 2 && mprotect(many + i * PAGE, PAGE, PROT_READ))
                lacks("mprotect");
        }
    }
    if (strchr(options, 'x')) {
        struct perf_event_attr nothing = {.type = PERF_TYPE_SOFTWARE, .size = sizeof nothing, .config = PERF_COUNT_SW_DUMMY};
        int fd = syscall(SYS_perf_event_open, &nothing, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
        if (fd < 0 || mmap(NULL, 9 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED)
            lacks("perf_event_open");
    }
    if (strchr(options, 'u'))
        own_faults(memory, room);
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN + 65536);
    for (int i = 0; i < 5000 && strchr(options, 'w'); i++)
        if (pthread_create(&thread, &small, waits, NULL))
            lacks("pthread_create");
    for (long i = 0; i < threads && !strchr(options, 'i'); i++)
        if (pthread_create(&thread, NULL, work, (void *)(i * 7919)))
            perror("pthread_create");
    if (strchr(options, 'm'))
        pthread_create(&thread, NULL, maps, NULL);
    if (strchr(options, 'f'))
        pthread_create(&thread, NULL, forks, NULL);
    /* Told once every thread is in its loop. */
    while (started < threads && !strchr(options, 'i'))
        usleep(1000);
    signal(SIGTERM, end);
    if (strchr(options, 'e'))
        signal(SIGUSR1, other_program);
    if (strpbrk(options, "qk"))
        filter(strchr(options, 'k') != NULL);
    printf("%d %lx\n", getpid(), (long)shared);
    fflush(stdout);
    uint64_t until = now() + (uint64_t)(seconds * 1e9);
    while (!ended && now() < until) {
        usleep(1000000 < seconds * 1e6 ? 1000000 : (int)(seconds * 1e6));
        if (strchr(options, 'g')) {
            printf("longest gap %.3f ms, %.0f rounds\n", longest / 1e6, (double)rounds);
            fflush(stdout);
            longest = 0;
            rounds = 0;
        }
    }
    over = 1;
    usleep(100000);
    pthread_mutex_lock(&lock);
    uint64_t sum = 0;
    for (uint64_t i = 0; i < shared->pages; i++)
        sum += *(uint64_t *)(shared->base + i * PAGE);
    int wrong = shared->first != *shared->last || sum != shared->first;
    printf("%s: %lu rounds, longest gap %.3f ms\n", wrong ? "WRONG" : "right", (unsigned long)shared->first, longest / 1e6);
    return wrong;
}
