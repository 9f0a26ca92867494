// A thread of policy SCHED_IDLE (statistics) takes the same mutex as the service; beside them four threads compute.
// `twin`: the statistics run as others do.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static volatile long served, stats, work; static volatile int stop; static int twin; static double waited;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static long rows[4096];
__attribute__((noinline)) static long scan(int times) { long s = 0; for (int n = 0; n < times; n++) for (int i = 0; i < 4096; i++) s += rows[i] ^ (s >> 3); return s; }
static void *statistics(void *unused) {
  if (!twin) { struct sched_param p = {0}; sched_setscheduler(0, SCHED_IDLE, &p); }
  while (!stop) { pthread_mutex_lock(&table); stats += scan(60) & 1; stats++; pthread_mutex_unlock(&table); usleep(500); }
  return 0; }
static void *hog(void *unused) { volatile long s = 0; while (!stop) { s += scan(1); } work += s & 1; return 0; }
__attribute__((noinline)) static void serve(void) { double a = now(); pthread_mutex_lock(&table); waited += now() - a; rows[served & 4095]++; served++; pthread_mutex_unlock(&table); }
int main(int argc, char **argv) { double secs = atof(argv[1]); twin = argc > 2; pthread_t t[5];
  pthread_create(t, 0, statistics, 0); pthread_create(t + 1, 0, hog, 0); for (int i = 2; i < 5; i++) pthread_create(t + i, 0, hog, 0);
  double start = now(); while (now() - start < secs) { serve(); usleep(200); }
  stop = 1; printf("waited %.2f s of %.2f\n%.0f served/s\n", waited, now() - start, served / (now() - start)); fflush(stdout); _exit(0); }
