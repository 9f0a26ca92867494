/* Memory of every kind; prints the share of each on huge pages, by its own reading of smaps, and checks results. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define MB (1ul << 20)

static void tell(const char *what, void *at, size_t length)
{
	unsigned long begin, end, huge = 0, all = 0, kb;
	char line[512];
	int in = 0;
	FILE *smaps = fopen("/proc/self/smaps", "r");

	while (smaps && fgets(line, sizeof(line), smaps)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2 && strchr(line, '-') < strchr(line, ' '))
			in = begin < (unsigned long)at + length && end > (unsigned long)at;
		else if (in && sscanf(line, "Rss: %lu", &kb) == 1)
			all += kb;
		else if (in && (sscanf(line, "AnonHugePages: %lu", &kb) == 1 || sscanf(line, "ShmemPmdMapped: %lu", &kb) == 1))
			huge += kb;
	}
	fclose(smaps);
	fprintf(stderr, "%s %lu %lu\n", what, huge, all);
}

static void *thread(void *arg)
{
	volatile char deep[6 * MB];

	memset((void *)deep, 1, sizeof(deep));
	tell("stack", (void *)deep, sizeof(deep));
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	if (arg)
		pthread_exit((void *)7);
	return (void *)(long)deep[5];
}

static void *waits(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(void)
{
	pthread_t t;
	void *result;
	char *map, *odd, *heap;
	int id;

	map = mmap(NULL, 32 * MB + 5, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(map, 1, 32 * MB + 5);
	tell("mmap", map, 32 * MB);
	printf("map %d %d\n", map != MAP_FAILED, munmap(map, 32 * MB + 5));

	/* Pieces of less than a huge page, as Python's allocator maps them; each is zero, separate, and can be unmapped. */
	char *pieces[40];
	int zero = 1, kept = 1;

	for (int i = 0; i < 40; i++) {
		pieces[i] = mmap(NULL, MB - 5, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (size_t at = 0; at < MB; at += 512)
			zero &= pieces[i][at] == 0;
		memset(pieces[i], i, MB);
	}
	for (int i = 0; i < 40; i += 4)
		munmap(pieces[i], MB - 5);
	for (int i = 0; i < 40; i++)
		if (i % 4)
			kept &= pieces[i][0] == i && pieces[i][MB - 1] == i;
	map = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("pieces %d %d %d\n", zero, kept, map[0]);
	for (int i = 0; i < 20; i++) {
		pieces[i] = mmap(NULL, MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(pieces[i], 1, MB);
	}
	tell("pieces", pieces[10], MB);

	/* Failing and unusual calls behave as without the library. */
	map = mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("nothing %d\n", map == MAP_FAILED);
	map = mmap(NULL, (size_t)-4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	printf("everything %d\n", map == MAP_FAILED);
	map = mmap(NULL, 8 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	odd = mmap(map + 4096, 4 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	printf("fixed %d\n", odd == map + 4096);

	id = shmget(IPC_PRIVATE, 8 * MB, IPC_CREAT | 0600);
	map = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	memset(map, 2, 8 * MB);
	printf("shm %d\n", map[8 * MB - 1]);
	printf("detached %d\n", shmdt(map));
	printf("no shm %d\n", shmat(-1, NULL, 0) == (void *)-1);

	heap = NULL;
	for (int i = 0; i < 2000; i++) {
		char *p = malloc(32 << 10);

		memset(p, 3, 32 << 10);
		*(char **)p = heap;
		heap = p;
	}
	tell("heap", sbrk(0) - 32 * MB, 32 * MB);

	pthread_create(&t, NULL, thread, NULL);
	pthread_join(t, &result);
	printf("returned %ld\n", (long)result);
	pthread_create(&t, NULL, thread, (void *)1);
	pthread_join(t, &result);
	printf("exited %ld\n", (long)result);
	pthread_create(&t, NULL, waits, NULL);
	pthread_cancel(t);
	pthread_join(t, &result);
	printf("cancelled %d\n", result == PTHREAD_CANCELED);
	return 0;
}
