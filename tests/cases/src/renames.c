#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static char dir[] = "/dev/shm/renames-XXXXXX"; static double end;
static void save_state(long k) { char a[64], b[64]; snprintf(a, 64, "%s/new%ld", dir, k); snprintf(b, 64, "%s/state%ld", dir, k); close(open(a, O_CREAT | O_WRONLY, 0600)); rename(a, b); }
static void *worker(void *x) { while (now() < end) save_state((long)x); return x; }
int main(int argc, char **argv) { pthread_t t[6]; end = now() + atof(argv[1]); if (!mkdtemp(dir)) return 1;
	for (long i = 0; i < 6; i++) pthread_create(&t[i], 0, worker, (void *)i);
	for (int i = 0; i < 6; i++) pthread_join(t[i], 0);
	char c[80]; snprintf(c, 80, "rm -r %s", dir); return argc < 0 || system(c); }
