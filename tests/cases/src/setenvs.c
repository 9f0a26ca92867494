#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static volatile int stop;
static long done[4];
static void publish(long id, long n)
{
	char name[32], value[32];
	snprintf(name, sizeof(name), "TENANT_%ld", id);
	snprintf(value, sizeof(value), "%ld", n & 63);
	setenv(name, value, 1);
}
static void *serve(void *arg)
{
	long id = (long)arg;
	while (!stop)
		publish(id, done[id]++);
	return NULL;
}
int main(int argc, char **argv)
{
	pthread_t t[4];
	char name[32];
	for (int i = 0; i < 400; i++) {
		snprintf(name, sizeof(name), "SETTING_OF_THE_SERVICE_%d", i);
		setenv(name, "x", 1);
	}
	for (long i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, serve, (void *)i);
	struct timespec s = { atoi(argv[1]), 0 };
	nanosleep(&s, NULL);
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("%ld\n", done[0] + done[1] + done[2] + done[3]);
}
