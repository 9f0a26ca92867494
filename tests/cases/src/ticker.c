// A loop that wakes every 50 us to see whether there is something to do, by a timerfd.
#include <stdint.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static volatile int jobs;
static void on_tick(int fd) { uint64_t n; if (read(fd, &n, 8) == 8 && jobs) jobs--; }
int main(int argc, char **argv) {
	double end = now() + atof(argv[1]); int fd = timerfd_create(CLOCK_MONOTONIC, 0); (void)argc;
	struct itimerspec t = {{0, 50000}, {0, 50000}};
	timerfd_settime(fd, 0, &t, 0);
	while (now() < end) on_tick(fd);
	return 0;
}
