/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A function that ends by a jump into the C library: 100 calls of each of two threads. */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int sum;

__attribute__((noinline)) void serve(int n)
{
	for (int i = 0; i < 20000; i++)
		sum += i * n;
	pthread_mutex_lock(&lock);
	sum++;
	pthread_mutex_unlock(&lock);
}

static void *serves(void *arg)
{
	for (int i = 0; i < 100; i++)
		serve(i);
	return arg;
}

int main(void)
{
	pthread_t other;

	pthread_create(&other, NULL, serves, NULL);
	serves(NULL);
	return pthread_join(other, NULL);
}
