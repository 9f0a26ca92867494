// segment MIB [ROUNDS [private|shared|sysv]]: creates, locks and destroys a segment by plain calls, as a database does
// with its cache, and prints the median of the rounds in ms a GB of each. For LD_PRELOAD=libncpu_populate.so.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <time.h>

static double ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

int main(int argc, char **argv)
{
	size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1024) << 20;
	int rounds = argc > 2 ? atoi(argv[2]) : 5;
	const char *kind = argc > 3 ? argv[3] : "private";
	if (size == 0 || rounds < 1 || rounds > 999) {
		fprintf(stderr, "segment MIB [ROUNDS [private|shared|sysv]]\n");
		return 2;
	}
	static double create[1000], lock[1000], destroy[1000], total[1000];
	// The first is not counted: it warms up.
	for (int i = -1; i < rounds; i++) {
		int sysv = !strcmp(kind, "sysv"), at = i < 0 ? 0 : i;
		double t0 = ms();
		char *p;
		if (sysv) {
			int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
			p = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
			if (id >= 0)
				shmctl(id, IPC_RMID, NULL);
		} else {
			int share = strcmp(kind, "shared") ? MAP_PRIVATE : MAP_SHARED;
			p = mmap(NULL, size, PROT_READ | PROT_WRITE, share | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		}
		if (p == (void *)-1)
			die("mapping");
		double t1 = ms();
		if (mlock(p, size))
			die("mlock");
		double t2 = ms();
		if (sysv ? shmdt(p) : munmap(p, size))
			die("unmapping");
		double t3 = ms(), gb = size / 1073741824.0;
		create[at] = (t1 - t0) / gb;
		lock[at] = (t2 - t1) / gb;
		destroy[at] = (t3 - t2) / gb;
		total[at] = (t3 - t0) / gb;
	}
	double *all[] = { create, lock, destroy, total };
	for (int i = 0; i < 4; i++)
		qsort(all[i], rounds, sizeof(double), by_value);
	printf("%-8s create %8.1f  lock %8.1f  destroy %8.1f  total %8.1f ms/GB\n", kind, create[rounds / 2],
		lock[rounds / 2], destroy[rounds / 2], total[rounds / 2]);
	return 0;
}
