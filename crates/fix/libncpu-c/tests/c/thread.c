// Threads with a stack bias: the start of their stacks, and every way to end.
#include <stdatomic.h>
#include "check.h"

static void *place(void *argument)
{
	char here;
	*(uintptr_t *)argument = (uintptr_t)&here;
	return argument;
}

static void *leaves(void *unused)
{
	pthread_exit(unused);
}

enum { WAITS = 1, CLEANED };

static void clean(void *state)
{
	*(atomic_int *)state = CLEANED;
}

static void *waits(void *state)
{
	pthread_cleanup_push(clean, state);
	*(atomic_int *)state = WAITS;
	for (;;)
		sleep(1);
	pthread_cleanup_pop(0);
	return NULL;
}

int main(void)
{
	pthread_t t;
	pthread_attr_t small;
	uintptr_t at, unbiased;
	void *result;
	int seen[64] = {0}, different = 0;
	atomic_int state = 0;

	// By hand: exactly the requested bias.
	CHECK(ncpu_stack_bias_call(place, &unbiased, 0) == &unbiased, 1);
	for (int bias = 64; bias <= 65536; bias *= 4) {
		CHECK(ncpu_stack_bias_call(place, &at, bias) == &at, 1);
		CHECK(unbiased - at, bias);
	}
	CHECK(ncpu_stack_bias_call(NULL, &at, 0) != NULL, 0);

	// Threads one after the other get the same stack: only the bias differs.
	for (int i = 0; i < 64; i++) {
		CHECK(ncpu_thread_create(&t, NULL, place, &at), 0);
		CHECK(pthread_join(t, &result), 0);
		CHECK(result == &at, 1);
		different += !seen[at / 64 % 64]++;
	}
	CHECK(different > 32, 1);
	CHECK(ncpu_stack_bias_span(0), 0);
	CHECK(ncpu_stack_bias_next(), 0);
	CHECK(ncpu_thread_create(&t, NULL, place, &unbiased), 0);
	CHECK(pthread_join(t, NULL), 0);
	for (int i = 0; i < 8; i++) {
		CHECK(ncpu_thread_create(&t, NULL, place, &at), 0);
		CHECK(pthread_join(t, NULL), 0);
		CHECK(at % 4096, unbiased % 4096);
	}
	CHECK(ncpu_stack_bias_span(65536), 0);
	CHECK(ncpu_stack_bias_next() % 64, 0);

	CHECK(ncpu_thread_create(&t, NULL, leaves, &at), 0);
	CHECK(pthread_join(t, &result), 0);
	CHECK(result == &at, 1);
	CHECK(ncpu_thread_create(&t, NULL, waits, &state), 0);
	while (state != WAITS)
		usleep(100);
	CHECK(pthread_cancel(t), 0);
	CHECK(pthread_join(t, &result), 0);
	CHECK(result == PTHREAD_CANCELED, 1);
	CHECK(state, CLEANED);

	CHECK(ncpu_thread_create(NULL, NULL, place, &at), EINVAL);
	CHECK(ncpu_thread_create(&t, NULL, NULL, &at), EINVAL);
	CHECK(ncpu_stack_bias_span(100), EINVAL);
	CHECK(ncpu_stack_bias_span(1 << 20), EINVAL);
	CHECK(pthread_attr_init(&small), 0);
	CHECK(pthread_attr_setstacksize(&small, 65536), 0);
	CHECK(ncpu_thread_create(&t, &small, place, &at), EINVAL);
	CHECK(ncpu_stack_bias_span(4096), 0);
	CHECK(ncpu_thread_create(&t, &small, place, &at), 0);
	CHECK(pthread_join(t, NULL), 0);
	CHECK(pthread_attr_destroy(&small), 0);
	puts("ok");
	return 0;
}
