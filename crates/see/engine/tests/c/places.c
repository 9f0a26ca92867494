// Sleeps in places that look alike without frame pointers: the same calls at the same depth, from two callers. One of
// them sleeps three times longer than the other. Prints nothing.
#include <time.h>

static volatile int done;

__attribute__((noinline)) static void nap(long ms)
{
	struct timespec t = { 0, ms * 1000000 };

	nanosleep(&t, 0);
	done++; // no call in place of a return
}

__attribute__((noinline)) static void sleeps_long(void)
{
	nap(30);
	done++;
}

__attribute__((noinline)) static void sleeps_briefly(void)
{
	nap(10);
	done++;
}

int main(void)
{
	for (int i = 0; i < 40; i++) {
		sleeps_long();
		sleeps_briefly();
	}
	return 0;
}
