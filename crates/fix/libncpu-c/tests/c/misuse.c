// Each lock, misused: unlocked twice, unlocked by a thread that does not hold it, taken by one that does.
// NCPU_DEBUG: whether the library is a debug build, which detects more.
#include "check.h"

static ncpu_mutex_t mutex;
static ncpu_robust_t robust;
static ncpu_mcs_t mcs, other_mcs;
static ncpu_numa_t *numa;
static ncpu_rwlock_t *rw;
static ncpu_mcs_node_t mcs_place;
static ncpu_numa_node_t numa_place;

static void in_thread(void *(*start)(void *))
{
	pthread_t t;
	CHECK(pthread_create(&t, NULL, start, NULL), 0);
	CHECK(pthread_join(t, NULL), 0);
}

// No lock is held.
static void *unlock_free(void *unused)
{
	CHECK(ncpu_mutex_unlock(&mutex), EPERM);
	CHECK(ncpu_robust_unlock(&robust), EPERM);
	CHECK(ncpu_mcs_unlock(&mcs, &mcs_place), EPERM);
	CHECK(ncpu_numa_unlock(numa, &numa_place), EPERM);
	CHECK(ncpu_rwlock_wrunlock(rw), EPERM);
	if (NCPU_DEBUG)
		CHECK(ncpu_rwlock_rdunlock(rw), EPERM);
	return unused;
}

// Another thread holds all of them, for writing.
static void *unlock_others(void *unused)
{
	CHECK(ncpu_robust_unlock(&robust), EPERM);
	if (NCPU_DEBUG) {
		CHECK(ncpu_mutex_unlock(&mutex), EPERM);
		CHECK(ncpu_mcs_unlock(&mcs, &mcs_place), EPERM);
		CHECK(ncpu_numa_unlock(numa, &numa_place), EPERM);
		CHECK(ncpu_rwlock_wrunlock(rw), EPERM);
		CHECK(ncpu_rwlock_rdunlock(rw), EPERM);
	}
	ncpu_mcs_node_t place;
	CHECK(ncpu_mutex_trylock(&mutex), EBUSY);
	CHECK(ncpu_robust_trylock(&robust), EBUSY);
	CHECK(ncpu_mcs_trylock(&mcs, &place), EBUSY);
	CHECK(ncpu_rwlock_tryrdlock(rw), EBUSY);
	return unused;
}

static void lock_all(void)
{
	CHECK(ncpu_mutex_lock(&mutex), 0);
	CHECK(ncpu_robust_lock(&robust), 0);
	CHECK(ncpu_mcs_lock(&mcs, &mcs_place), 0);
	CHECK(ncpu_numa_lock(numa, &numa_place), 0);
	CHECK(ncpu_rwlock_wrlock(rw), 0);
}

static void unlock_all(void)
{
	CHECK(ncpu_mutex_unlock(&mutex), 0);
	CHECK(ncpu_robust_unlock(&robust), 0);
	CHECK(ncpu_mcs_unlock(&mcs, &mcs_place), 0);
	CHECK(ncpu_numa_unlock(numa, &numa_place), 0);
	CHECK(ncpu_rwlock_wrunlock(rw), 0);
}

// By the thread that holds them.
static void lock_again(void)
{
	struct timespec soon = in_ms(30);
	ncpu_mcs_node_t place;
	ncpu_numa_node_t other_place;
	CHECK(ncpu_robust_lock(&robust), EDEADLK);
	CHECK(ncpu_robust_timedlock(&robust, &soon), EDEADLK);
	CHECK(ncpu_robust_trylock(&robust), EBUSY);
	CHECK(ncpu_mutex_trylock(&mutex), EBUSY);
	CHECK(ncpu_mutex_timedlock(&mutex, &soon), NCPU_DEBUG ? EDEADLK : ETIMEDOUT);
	CHECK(ncpu_mcs_trylock(&mcs, &place), EBUSY);
	CHECK(ncpu_rwlock_tryrdlock(rw), EBUSY);
	CHECK(ncpu_rwlock_trywrlock(rw), EBUSY);
	if (NCPU_DEBUG) {
		CHECK(ncpu_mutex_lock(&mutex), EDEADLK);
		CHECK(ncpu_mcs_lock(&mcs, &place), EDEADLK);
		CHECK(ncpu_numa_lock(numa, &other_place), EDEADLK);
		CHECK(ncpu_rwlock_wrlock(rw), EDEADLK);
		CHECK(ncpu_rwlock_rdlock(rw), EDEADLK);
		// A node in one queue cannot be used for another.
		CHECK(ncpu_mcs_lock(&other_mcs, &mcs_place), EINVAL);
		CHECK(ncpu_mcs_unlock(&mcs, &place), EPERM);
	}
}

static void readers(void)
{
	CHECK(ncpu_rwlock_rdlock(rw), 0);
	CHECK(ncpu_rwlock_rdlock(rw), 0);
	CHECK(ncpu_rwlock_trywrlock(rw), EBUSY);
	CHECK(ncpu_rwlock_wrunlock(rw), EPERM);
	if (NCPU_DEBUG)
		CHECK(ncpu_rwlock_wrlock(rw), EDEADLK);
	CHECK(ncpu_rwlock_rdunlock(rw), 0);
	CHECK(ncpu_rwlock_rdunlock(rw), 0);
	if (NCPU_DEBUG)
		CHECK(ncpu_rwlock_rdunlock(rw), EPERM);
	CHECK(ncpu_rwlock_wrlock(rw), 0);
	CHECK(ncpu_rwlock_wrunlock(rw), 0);
}

// A forked child has copies of private locks, held by its one thread, but not its parent's shared ones.
static void forked(void)
{
	ncpu_mutex_t *common = shared(sizeof *common);
	CHECK(ncpu_mutex_init(common, NCPU_SHARED), 0);
	lock_all();
	CHECK(ncpu_mutex_lock(common), 0);
	pid_t child = fork();
	if (child == 0) {
		CHECK(ncpu_robust_unlock(&robust), EPERM);
		CHECK(ncpu_robust_trylock(&robust), EBUSY);
		CHECK(ncpu_mutex_trylock(common), EBUSY);
		if (NCPU_DEBUG)
			CHECK(ncpu_mutex_unlock(common), EPERM);
		CHECK(ncpu_mutex_unlock(&mutex), 0);
		CHECK(ncpu_mcs_unlock(&mcs, &mcs_place), 0);
		CHECK(ncpu_numa_unlock(numa, &numa_place), 0);
		CHECK(ncpu_rwlock_wrunlock(rw), 0);
		_exit(0);
	}
	wait_for(child, 0);
	CHECK(ncpu_mutex_unlock(common), 0);
	unlock_all();
}

int main(void)
{
	numa = ncpu_numa_create();
	rw = ncpu_rwlock_create();
	CHECK(!numa || !rw, 0);
	unlock_free(NULL);
	in_thread(unlock_free);
	for (int i = 0; i < 3; i++) {
		lock_all();
		in_thread(unlock_others);
		lock_again();
		unlock_all();
		unlock_free(NULL);
	}
	readers();
	forked();
	// A lock's memory used again: no record of the old lock remains.
	CHECK(ncpu_mutex_lock(&mutex), 0);
	CHECK(ncpu_mutex_init(&mutex, 0), 0);
	CHECK(ncpu_mutex_lock(&mutex), 0);
	CHECK(ncpu_mutex_unlock(&mutex), 0);
	ncpu_numa_destroy(numa);
	ncpu_rwlock_destroy(rw);
	puts("ok");
	return 0;
}
