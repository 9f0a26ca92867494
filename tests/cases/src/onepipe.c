#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static int p[2]; static double end;
static void send_event(void) { char b[64] = {0}; if (write(p[1], b, 64) < 0) exit(1); }
static void *worker(void *x) { while (now() < end) send_event(); return x; }
static void *reader(void *x) { static char b[65536]; while (read(p[0], b, sizeof b) > 0) ; return x; }
int main(int argc, char **argv) { pthread_t t[9]; end = now() + atof(argv[1]); if (pipe(p)) return 1; pthread_create(&t[8], 0, reader, 0);
	for (int i = 0; i < 8; i++) pthread_create(&t[i], 0, worker, 0);
	for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
	close(p[1]); pthread_join(t[8], 0); return argc < 0; }
