// Queue locks, the reader-writer lock and the counters from C.
#include "check.h"

enum { THREADS = 8, EACH = 3000 };

static ncpu_mcs_t mcs;
static ncpu_numa_t *numa;
static ncpu_rwlock_t *rw;
static ncpu_bounded_t *bounded;
static ncpu_counter_t *counter;
static long by_mcs, by_numa, by_rw;

static void *work(void *unused)
{
	for (int i = 0; i < EACH; i++) {
		ncpu_mcs_node_t place;
		ncpu_numa_node_t numa_place;
		CHECK(ncpu_mcs_lock(&mcs, &place), 0);
		by_mcs++;
		CHECK(ncpu_mcs_unlock(&mcs, &place), 0);
		CHECK(ncpu_numa_lock(numa, &numa_place), 0);
		by_numa++;
		CHECK(ncpu_numa_unlock(numa, &numa_place), 0);
		if (i % 4 == 0) {
			CHECK(ncpu_rwlock_wrlock(rw), 0);
			by_rw++;
			CHECK(ncpu_rwlock_wrunlock(rw), 0);
		} else {
			CHECK(ncpu_rwlock_rdlock(rw), 0);
			long seen = by_rw;
			CHECK(by_rw, seen);
			CHECK(ncpu_rwlock_rdunlock(rw), 0);
		}
		CHECK(ncpu_bounded_take(bounded, 2), 0);
		CHECK(ncpu_bounded_give(bounded, 2), 0);
		CHECK(ncpu_counter_add(counter, 3), 0);
	}
	return unused;
}

static void misuse(void)
{
	ncpu_mcs_node_t place;
	ncpu_numa_node_t numa_place;
	CHECK(ncpu_mcs_lock(NULL, &place), EINVAL);
	CHECK(ncpu_mcs_lock(&mcs, NULL), EINVAL);
	CHECK(ncpu_mcs_unlock(&mcs, NULL), EINVAL);
	CHECK(ncpu_numa_lock(NULL, &numa_place), EINVAL);
	CHECK(ncpu_numa_lock(numa, NULL), EINVAL);
	CHECK(ncpu_rwlock_rdlock(NULL), EINVAL);
	CHECK(ncpu_rwlock_wrunlock(NULL), EINVAL);
	CHECK(ncpu_rwlock_wrunlock(rw), EPERM);
	CHECK(ncpu_bounded_take(NULL, 1), EINVAL);
	CHECK(ncpu_bounded_give(bounded, ~0ull), ERANGE);
	errno = 0;
	CHECK(!ncpu_bounded_create(NCPU_BOUNDED_MOST + 1), 1);
	CHECK(errno, EINVAL);
	errno = 0;
	CHECK(ncpu_bounded_set_limit(bounded, ~0ull) == UINT64_MAX, 1);
	CHECK(errno, EINVAL);
	ncpu_bounded_t *checked = ncpu_bounded_create_checked(20);
	CHECK(ncpu_bounded_give(checked, 1), ERANGE);
	CHECK(ncpu_bounded_take(checked, 21), EDQUOT);
	CHECK(ncpu_bounded_take(checked, 12), 0);
	CHECK(ncpu_bounded_give(checked, 13), ERANGE);
	CHECK(ncpu_bounded_give(checked, 12), 0);
	CHECK(ncpu_bounded_take(checked, 21), EDQUOT);
	ncpu_bounded_destroy(checked);
	CHECK(ncpu_bounded_read(NULL), 0);
	CHECK(ncpu_counter_add(NULL, 1), EINVAL);
	CHECK(ncpu_counter_sum(NULL), 0);
	ncpu_numa_destroy(NULL);
	ncpu_rwlock_destroy(NULL);
	ncpu_bounded_destroy(NULL);
	ncpu_counter_destroy(NULL);
}

int main(void)
{
	pthread_t t[THREADS];
	ncpu_mcs_node_t place, other;
	numa = ncpu_numa_create();
	rw = ncpu_rwlock_create();
	bounded = ncpu_bounded_create(2 * THREADS);
	counter = ncpu_counter_create();
	CHECK(!numa || !rw || !bounded || !counter, 0);
	misuse();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, work, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL), 0);
	CHECK(by_mcs, THREADS * EACH);
	CHECK(by_numa, THREADS * EACH);
	CHECK(by_rw, THREADS * EACH / 4);
	CHECK(ncpu_counter_sum(counter), 3 * THREADS * EACH);
	CHECK(ncpu_mcs_trylock(&mcs, &place), 0);
	CHECK(ncpu_mcs_trylock(&mcs, &other), EBUSY);
	CHECK(ncpu_mcs_unlock(&mcs, &place), 0);
	CHECK(ncpu_rwlock_tryrdlock(rw), 0);
	CHECK(ncpu_rwlock_trywrlock(rw), EBUSY);
	CHECK(ncpu_rwlock_rdunlock(rw), 0);
	CHECK(ncpu_rwlock_trywrlock(rw), 0);
	CHECK(ncpu_rwlock_tryrdlock(rw), EBUSY);
	CHECK(ncpu_rwlock_wrunlock(rw), 0);
	CHECK(ncpu_bounded_read_exact(bounded), 0);
	CHECK(ncpu_bounded_take(bounded, 2 * THREADS), 0);
	CHECK(ncpu_bounded_take(bounded, 1), EDQUOT);
	CHECK(ncpu_bounded_set_limit(bounded, 10), 2 * THREADS - 10);
	CHECK(ncpu_bounded_read(bounded), 2 * THREADS);
	CHECK(ncpu_bounded_give(bounded, 2 * THREADS), 0);
	ncpu_numa_destroy(numa);
	ncpu_rwlock_destroy(rw);
	ncpu_bounded_destroy(bounded);
	ncpu_counter_destroy(counter);
	puts("ok");
	return 0;
}
