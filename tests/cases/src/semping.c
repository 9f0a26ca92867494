#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static sem_t full, empty; static volatile int stop; static long item, sum;
static void *consume(void *a) { while (!stop) { sem_wait(&full); sum += item; sem_post(&empty); } return a; }
static void produce(long n) { sem_wait(&empty); item = n; sem_post(&full); }
int main(int argc, char **argv)
{
	pthread_t t; sem_init(&full, 0, 0); sem_init(&empty, 0, 1);
	pthread_create(&t, NULL, consume, NULL);
	time_t end = time(NULL) + atoi(argv[1]); long n = 0;
	while (time(NULL) < end) produce(n++);
	stop = 1; sem_post(&full); pthread_join(t, NULL); printf("%ld\n", sum);
}
