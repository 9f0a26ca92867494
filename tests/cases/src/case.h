// What every case in C begins with: its seconds, a clock, and work that a compiler cannot drop.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static double end;
static inline double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static inline void work(long n) { volatile double x = 1; while (n--) x = x * 1.0000001 + 1e-9; }
static inline void burn(double s) { double e = now() + s; while (now() < e) work(1000); }
static inline void threads(int k, void *(*f)(void *)) {
  pthread_t t[128]; for (long i = 0; i < k; i++) pthread_create(t + i, 0, f, (void *)i); for (int i = 0; i < k; i++) pthread_join(t[i], 0);
}
