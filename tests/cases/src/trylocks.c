#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop; static long total;
static void lock_politely(void) { while (pthread_mutex_trylock(&table)) usleep(30); }
static void update(void) { lock_politely(); for (int i = 0; i < 20000; i++) total += i & 1; pthread_mutex_unlock(&table); }
static void *worker(void *a) { while (!stop) update(); return a; }
int main(int argc, char **argv)
{
	pthread_t t[6];
	for (int i = 0; i < 6; i++) pthread_create(&t[i], NULL, worker, NULL);
	sleep(atoi(argv[1])); stop = 1;
	for (int i = 0; i < 6; i++) pthread_join(t[i], NULL);
	printf("%ld\n", total);
}
