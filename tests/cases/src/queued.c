#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define N 64
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t ne = PTHREAD_COND_INITIALIZER, nf = PTHREAD_COND_INITIALIZER;
static long q[N], head, tail; static volatile int stop; static double out;
static double crunch(long n) { double x = n; for (int i = 0; i < 300000; i++) x = x * 1.0000001 + 0.3; return x; }
static void *consume(void *a) { for (;;) { pthread_mutex_lock(&m); while (head == tail && !stop) pthread_cond_wait(&ne, &m); if (head == tail) { pthread_mutex_unlock(&m); return a; } long n = q[head++ % N]; pthread_cond_signal(&nf); pthread_mutex_unlock(&m); out += crunch(n); } }
int main(int argc, char **v) { pthread_t t[2]; for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, consume, 0); time_t end = time(0) + atoi(v[1]);
 for (long n = 0; time(0) < end; n++) { pthread_mutex_lock(&m); while (tail - head == N) pthread_cond_wait(&nf, &m); q[tail++ % N] = n; pthread_cond_signal(&ne); pthread_mutex_unlock(&m); }
 stop = 1; pthread_cond_broadcast(&ne); for (int i = 0; i < 2; i++) pthread_join(t[i], 0); printf("%f\n", out); }
