// Threads of one process map, touch and unmap a megabyte each: all of them take the one lock of its address space.
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static double end;
static void decode_image(void) {
	char *p = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 1 << 16; i += 4096) p[i] = 1;
	munmap(p, 1 << 16);
}
static void *worker(void *x) { while (now() < end) decode_image(); return x; }
int main(int argc, char **argv) {
	pthread_t t[8]; end = now() + atof(argv[1]); (void)argc;
	for (int i = 0; i < 8; i++) pthread_create(&t[i], 0, worker, 0);
	for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
	return 0;
}
