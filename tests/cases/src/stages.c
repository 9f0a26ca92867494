/* Healthy: two stages of equal work hand batches of about 5 ms over by a bounded queue of 4. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define PLACES 4
static unsigned long slot[PLACES]; static int count, head, tail, done;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t can_put = PTHREAD_COND_INITIALIZER, can_take = PTHREAD_COND_INITIALIZER;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static unsigned long mix(unsigned long x) { for (int i = 0; i < 3000000; i++) x = x * 6364136223846793005UL + 1442695040888963407UL; return x; }
static unsigned long total; static long batches;
static void *second(void *p) {
    (void)p;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!count && !done) pthread_cond_wait(&can_take, &lock);
        if (!count) { pthread_mutex_unlock(&lock); return 0; }
        unsigned long x = slot[tail]; tail = (tail + 1) % PLACES; count--;
        pthread_cond_signal(&can_put); pthread_mutex_unlock(&lock);
        total += mix(x); batches++;
    }
}
int main(int argc, char **argv) {
    (void)argc; double end = now() + atof(argv[1]); pthread_t t; pthread_create(&t, 0, second, 0);
    for (unsigned long n = 0; now() < end; n++) {
        unsigned long x = mix(n);
        pthread_mutex_lock(&lock);
        while (count == PLACES) pthread_cond_wait(&can_put, &lock);
        slot[head] = x; head = (head + 1) % PLACES; count++;
        pthread_cond_signal(&can_take); pthread_mutex_unlock(&lock);
    }
    pthread_mutex_lock(&lock); done = 1; pthread_cond_signal(&can_take); pthread_mutex_unlock(&lock);
    pthread_join(t, 0);
    printf("%.1f batches/s %lu\n", batches / atof(argv[1]), total);
}
