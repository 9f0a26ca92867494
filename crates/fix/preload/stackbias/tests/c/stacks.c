/* The offset in its page of the same variable in each of 32 threads, one after the other. */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

static void *thread(void *arg)
{
	char here;

	printf("%lu\n", (unsigned long)&here % 4096);
	if (arg)
		pthread_exit((void *)7);
	return NULL;
}

static void *quiet(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_attr_t small;
	pthread_t t;
	void *result;

	for (int i = 0; i < 32; i++) {
		pthread_create(&t, NULL, thread, NULL);
		pthread_join(t, &result);
	}
	pthread_create(&t, NULL, thread, (void *)1);
	pthread_join(t, &result);
	fprintf(stderr, "exited %ld\n", (long)result);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN);
	fprintf(stderr, "small %d\n", pthread_create(&t, &small, quiet, (void *)9));
	pthread_join(t, &result);
	fprintf(stderr, "returned %ld\n", (long)result);
	return 0;
}
