/*
 * A process whose truth is its own registers: registers compute|read|sleep
 *
 * compute: the main thread loads patterns into general and vector registers, lets time pass and compares, over and over.
 * read: it reads numbers from a pipe that a second thread writes, and compares. sleep: it sleeps with a timeout, which
 * may end early but not otherwise. SIGUSR1 counts a signal. At SIGTERM it ends: 0 if nothing was ever wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t over;
static int ends[2];

static void stop(int signal)
{
    (void)signal;
    over = 1;
}

#if defined __x86_64__
static int compute(uint64_t n)
{
    uint64_t seed[4] = {n, ~n, n * 3, n ^ 0x5555}, after[4] = {0}, wrong = 0;
    __asm__ volatile("movdqu (%[seed]), %%xmm7\n movdqu 16(%[seed]), %%xmm15\n"
                     "mov %[n], %%r8\n mov %[n], %%r9\n mov %[n], %%r10\n mov %[n], %%r12\n"
                     "mov %[n], %%r13\n mov %[n], %%r14\n mov %[n], %%r15\n mov %[n], %%rbx\n mov %[n], %%rdx\n"
                     "mov $20000, %%ecx\n 1: dec %%ecx\n jnz 1b\n"
                     "xor %[n], %%r8\n or %%r8, %[wrong]\n xor %[n], %%r9\n or %%r9, %[wrong]\n"
                     "xor %[n], %%r10\n or %%r10, %[wrong]\n xor %[n], %%r12\n or %%r12, %[wrong]\n"
                     "xor %[n], %%r13\n or %%r13, %[wrong]\n xor %[n], %%r14\n or %%r14, %[wrong]\n"
                     "xor %[n], %%r15\n or %%r15, %[wrong]\n xor %[n], %%rbx\n or %%rbx, %[wrong]\n"
                     "xor %[n], %%rdx\n or %%rdx, %[wrong]\n"
                     "movdqu %%xmm7, (%[after])\n movdqu %%xmm15, 16(%[after])\n"
                     : [wrong] "+a"(wrong)
                     : [n] "S"(n), [seed] "D"(seed), [after] "r"(after)
                     : "r8", "r9", "r10", "r12", "r13", "r14", "r15", "rbx", "rcx", "rdx", "xmm7", "xmm15", "memory", "cc");
    return wrong || memcmp(seed, after, sizeof seed);
}
#else
static int compute(uint64_t n)
{
    volatile uint64_t a = n;
    for (int i = 0; i < 20000; i++)
        a += i;
    return a != n + 199990000;
}
#endif

static void *feed(void *argument)
{
    (void)argument;
    for (uint64_t n = 0; !over; n++) {
        usleep(200);
        if (write(ends[1], &n, sizeof n) != sizeof n)
            break;
    }
    close(ends[1]);
    return NULL;
}

int main(int argc, char **argv)
{
    char what = argc > 1 ? argv[1][0] : 'c';
    signal(SIGTERM, stop);
    pthread_t thread;
    if (pipe(ends) || (what == 'r' && pthread_create(&thread, NULL, feed, NULL)))
        return 2;
    printf("%d\n", getpid());
    fflush(stdout);
    for (uint64_t n = 0; !over; n++) {
        uint64_t got;
        struct timespec pause = {0, 300000};
        switch (what) {
        case 'c':
            if (compute(n * 0x9e3779b97f4a7c15))
                return 3;
            break;
        case 'r':
            switch (read(ends[0], &got, sizeof got)) {
            case sizeof got:
                if (got != n)
                    return 4;
                break;
            case 0:
                return 0;
            default:
                return 5;
            }
            break;
        default:
            if (syscall(SYS_nanosleep, &pause, NULL) && errno != EINTR)
                return 6;
        }
    }
    return 0;
}
