// Large blocks of the heap come and go in several threads: allocators map and unmap with their locks held. Prints ok.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 12 };

static void *work(void *seed)
{
	unsigned random = (unsigned)(size_t)seed;
	for (int i = 0; i < ROUNDS; i++) {
		size_t size = ((size_t)(random = random * 1103515245 + 12345) >> 8) % (24ul << 20) + (2ul << 20);
		char *p = malloc(size), *q = calloc(1, size / 2);
		if (!p || !q)
			exit(1);
		memset(p, i, size);
		for (size_t k = 0; k < size / 2; k += 4096)
			if (q[k])
				exit(2);
		memset(q, i, size / 2);
		p = realloc(p, size * 2);
		if (!p || p[size - 1] != i || p[0] != i)
			exit(3);
		memset(p + size, 1, size);
		free(q);
		free(p);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];
	for (size_t i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, work, (void *)(i + 1)))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	puts("ok");
	return 0;
}
