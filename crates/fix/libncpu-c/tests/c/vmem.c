// Arenas from C.
#include "check.h"

enum { THREADS = 8, EACH = 2000 };

static ncpu_vmem_t *ids;

static void *work(void *unused)
{
	for (int i = 0; i < EACH; i++) {
		uint64_t a, b;
		CHECK(ncpu_vmem_alloc(ids, 1, &a), 0);
		CHECK(ncpu_vmem_alloc(ids, 1 + i % 6, &b), 0);
		CHECK(a == b, 0);
		CHECK(ncpu_vmem_free(ids, a, 1), 0);
		CHECK(ncpu_vmem_free(ids, b, 1 + i % 6), 0);
	}
	return unused;
}

struct seen {
	uint64_t parts, size[3];
};

static void count(uint32_t used, uint64_t start, uint64_t size, void *argument)
{
	struct seen *seen = argument;
	CHECK(start + size <= 1100, 1);
	seen->parts++;
	seen->size[used] += size;
}

static void prepare(void) { CHECK(ncpu_vmem_before_fork(ids), 0); }
static void in_parent(void) { CHECK(ncpu_vmem_after_fork(ids, 0), 0); }
static void in_child(void) { CHECK(ncpu_vmem_after_fork(ids, 1), 0); }

static void *fork_now(void *unused)
{
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		if (child == 0) {
			uint64_t id;
			alarm(60);
			CHECK(ncpu_vmem_alloc(ids, 3, &id), 0);
			CHECK(ncpu_vmem_free(ids, id, 3), 0);
			_exit(0);
		}
		wait_for(child, 0);
	}
	return unused;
}

static void misuse(void)
{
	uint64_t start = 7;
	ncpu_vmem_options_t wrong = { .quantum = 3 };
	errno = 0;
	CHECK(ncpu_vmem_create(&wrong, NULL) == NULL, 1);
	CHECK(errno, EINVAL);
	wrong = (ncpu_vmem_options_t){ .quantum = 1, .policy = 9 };
	CHECK(ncpu_vmem_create(&wrong, NULL) == NULL, 1);
	CHECK(ncpu_vmem_create(NULL, NULL) == NULL, 1);
	CHECK(ncpu_vmem_add(NULL, 0, 1), EINVAL);
	CHECK(ncpu_vmem_alloc(NULL, 1, &start), EINVAL);
	CHECK(ncpu_vmem_alloc(ids, 1, NULL), EINVAL);
	CHECK(ncpu_vmem_alloc(ids, 0, &start), EINVAL);
	CHECK(ncpu_vmem_alloc_with(ids, 1, 3, NULL, &start), EINVAL);
	CHECK(ncpu_vmem_alloc_with(NULL, 1, 0, NULL, &start), EINVAL);
	CHECK(ncpu_vmem_free(NULL, 0, 1), EINVAL);
	CHECK(ncpu_vmem_reap(NULL), EINVAL);
	CHECK(ncpu_vmem_walk(NULL, count, NULL), EINVAL);
	CHECK(ncpu_vmem_walk(ids, NULL, NULL), EINVAL);
	CHECK(ncpu_vmem_statistics(ids, NULL), EINVAL);
	CHECK(ncpu_vmem_before_fork(NULL), EINVAL);
	CHECK(ncpu_vmem_after_fork(NULL, 0), EINVAL);
	ncpu_vmem_destroy(NULL);
	CHECK(start, 7);
	CHECK(ncpu_vmem_add(ids, 50, 100), EEXIST);
	CHECK(ncpu_vmem_alloc(ids, 5000, &start), ENOSPC);
	CHECK(ncpu_vmem_free(ids, 500, 1), ENOENT);
	CHECK(ncpu_vmem_alloc(ids, 2, &start), 0);
	CHECK(ncpu_vmem_free(ids, start, 3), ERANGE);
	CHECK(ncpu_vmem_free(ids, start, 2), 0);
	CHECK(ncpu_vmem_free(ids, start, 2), ENOENT);
}

int main(void)
{
	pthread_t threads[THREADS + 1];
	ncpu_vmem_options_t options = { .quantum = 1, .cache_to = 4, .policy = NCPU_VMEM_INSTANT };
	ids = ncpu_vmem_create(&options, NULL);
	CHECK(ids == NULL, 0);
	CHECK(ncpu_vmem_add(ids, 100, 1000), 0);
	misuse();
	CHECK(pthread_atfork(prepare, in_parent, in_child), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, NULL), 0);
	CHECK(pthread_create(&threads[THREADS], NULL, fork_now, NULL), 0);
	for (int i = 0; i <= THREADS; i++)
		CHECK(pthread_join(threads[i], NULL), 0);

	// A child arena with magazines, in windows of 64.
	ncpu_vmem_options_t pages = { .quantum = 4, .cache_to = 16, .import = 64 };
	ncpu_vmem_t *child = ncpu_vmem_create(&pages, ids);
	CHECK(child == NULL, 0);
	ncpu_vmem_constraints_t c = { .align = 16, .phase = 4, .nocross = 64, .min = 200, .max = 300 };
	uint64_t start, other;
	CHECK(ncpu_vmem_alloc_with(child, 20, NCPU_VMEM_BEST, &c, &start), 0);
	CHECK(start % 16, 4);
	CHECK(start >= 200 && start + 19 <= 300, 1);
	CHECK(start / 64 == (start + 19) / 64, 1);
	CHECK(ncpu_vmem_alloc(child, 3, &other), 0);

	struct seen seen = { 0 };
	CHECK(ncpu_vmem_walk(child, count, &seen), 0);
	CHECK(seen.size[NCPU_VMEM_ALLOCATED], 24);
	ncpu_vmem_statistics_t statistics;
	CHECK(ncpu_vmem_statistics(child, &statistics), 0);
	CHECK(statistics.total - statistics.free - statistics.cached, 24);
	CHECK(statistics.cached, seen.size[NCPU_VMEM_CACHED]);
	CHECK(ncpu_vmem_free(child, start, 20), 0);
	CHECK(ncpu_vmem_free(child, other, 3), 0);
	ncpu_vmem_destroy(child);

	CHECK(ncpu_vmem_reap(ids), 0);
	CHECK(ncpu_vmem_statistics(ids, &statistics), 0);
	CHECK(statistics.total, 1000);
	CHECK(statistics.largest, 1000);
	CHECK(statistics.hits > 0, 1);
	ncpu_vmem_destroy(ids);
	puts("ok");
	return 0;
}
