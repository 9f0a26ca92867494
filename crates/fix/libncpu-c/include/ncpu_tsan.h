// Describes to the thread sanitizers of gcc and clang the order that ncpu.h's locks impose, because the
// library itself is not compiled for them. ncpu.h includes this file in programs that are.
#ifndef NCPU_TSAN_H
#define NCPU_TSAN_H
#include <errno.h>
#include <sanitizer/tsan_interface.h>

static inline int ncpu_tsan_took(int result, void *lock)
{
	if (result == 0 || result == EOWNERDEAD)
		__tsan_acquire(lock);
	return result;
}

// A function that takes a lock, with one argument, or with a second argument of the given type.
#define NCPU_TSAN_TAKE(function, type) \
	static inline int tsan_##function(type *lock) { return ncpu_tsan_took(function(lock), lock); }
#define NCPU_TSAN_TAKE_BY(function, type, by) \
	static inline int tsan_##function(type *lock, by second) { return ncpu_tsan_took(function(lock, second), lock); }
// A function that frees a lock. The release comes first: afterwards another thread may have the lock.
#define NCPU_TSAN_GIVE(function, type) \
	static inline int tsan_##function(type *lock) { __tsan_release(lock); return function(lock); }
#define NCPU_TSAN_GIVE_BY(function, type, by) \
	static inline int tsan_##function(type *lock, by second) { __tsan_release(lock); return function(lock, second); }

NCPU_TSAN_TAKE(ncpu_mutex_lock, ncpu_mutex_t)
NCPU_TSAN_TAKE(ncpu_mutex_trylock, ncpu_mutex_t)
NCPU_TSAN_TAKE_BY(ncpu_mutex_timedlock, ncpu_mutex_t, const struct timespec *)
NCPU_TSAN_GIVE(ncpu_mutex_unlock, ncpu_mutex_t)
NCPU_TSAN_GIVE(ncpu_mutex_unlock_fair, ncpu_mutex_t)
NCPU_TSAN_TAKE(ncpu_robust_lock, ncpu_robust_t)
NCPU_TSAN_TAKE(ncpu_robust_trylock, ncpu_robust_t)
NCPU_TSAN_TAKE_BY(ncpu_robust_timedlock, ncpu_robust_t, const struct timespec *)
NCPU_TSAN_GIVE(ncpu_robust_unlock, ncpu_robust_t)
NCPU_TSAN_TAKE_BY(ncpu_mcs_lock, ncpu_mcs_t, ncpu_mcs_node_t *)
NCPU_TSAN_TAKE_BY(ncpu_mcs_trylock, ncpu_mcs_t, ncpu_mcs_node_t *)
NCPU_TSAN_GIVE_BY(ncpu_mcs_unlock, ncpu_mcs_t, ncpu_mcs_node_t *)
NCPU_TSAN_TAKE_BY(ncpu_numa_lock, ncpu_numa_t, ncpu_numa_node_t *)
NCPU_TSAN_GIVE_BY(ncpu_numa_unlock, ncpu_numa_t, ncpu_numa_node_t *)
NCPU_TSAN_TAKE(ncpu_rwlock_rdlock, ncpu_rwlock_t)
NCPU_TSAN_TAKE(ncpu_rwlock_tryrdlock, ncpu_rwlock_t)
NCPU_TSAN_TAKE_BY(ncpu_rwlock_timedrdlock, ncpu_rwlock_t, const struct timespec *)
NCPU_TSAN_GIVE(ncpu_rwlock_rdunlock, ncpu_rwlock_t)
NCPU_TSAN_TAKE(ncpu_rwlock_wrlock, ncpu_rwlock_t)
NCPU_TSAN_TAKE(ncpu_rwlock_trywrlock, ncpu_rwlock_t)
NCPU_TSAN_TAKE_BY(ncpu_rwlock_timedwrlock, ncpu_rwlock_t, const struct timespec *)
NCPU_TSAN_GIVE(ncpu_rwlock_wrunlock, ncpu_rwlock_t)
NCPU_TSAN_TAKE(ncpu_rwlock_uplock, ncpu_rwlock_t)
NCPU_TSAN_TAKE(ncpu_rwlock_upgrade, ncpu_rwlock_t)
NCPU_TSAN_GIVE(ncpu_rwlock_downgrade, ncpu_rwlock_t)
NCPU_TSAN_GIVE(ncpu_rwlock_upunlock, ncpu_rwlock_t)
NCPU_TSAN_TAKE_BY(ncpu_bounded_take, ncpu_bounded_t, uint64_t)
NCPU_TSAN_GIVE_BY(ncpu_bounded_give, ncpu_bounded_t, uint64_t)

// The mutex is freed and taken again.
static inline int tsan_ncpu_cond_wait(ncpu_cond_t *cond, ncpu_mutex_t *mutex)
{
	__tsan_release(mutex);
	return ncpu_tsan_took(ncpu_cond_wait(cond, mutex), mutex);
}

static inline int tsan_ncpu_cond_timedwait(ncpu_cond_t *cond, ncpu_mutex_t *mutex, const struct timespec *deadline)
{
	__tsan_release(mutex);
	int result = ncpu_cond_timedwait(cond, mutex, deadline);
	ncpu_tsan_took(result == ETIMEDOUT ? 0 : result, mutex);
	return result;
}

#define ncpu_mutex_lock tsan_ncpu_mutex_lock
#define ncpu_mutex_trylock tsan_ncpu_mutex_trylock
#define ncpu_mutex_timedlock tsan_ncpu_mutex_timedlock
#define ncpu_mutex_unlock tsan_ncpu_mutex_unlock
#define ncpu_mutex_unlock_fair tsan_ncpu_mutex_unlock_fair
#define ncpu_robust_lock tsan_ncpu_robust_lock
#define ncpu_robust_trylock tsan_ncpu_robust_trylock
#define ncpu_robust_timedlock tsan_ncpu_robust_timedlock
#define ncpu_robust_unlock tsan_ncpu_robust_unlock
#define ncpu_mcs_lock tsan_ncpu_mcs_lock
#define ncpu_mcs_trylock tsan_ncpu_mcs_trylock
#define ncpu_mcs_unlock tsan_ncpu_mcs_unlock
#define ncpu_numa_lock tsan_ncpu_numa_lock
#define ncpu_numa_unlock tsan_ncpu_numa_unlock
#define ncpu_rwlock_rdlock tsan_ncpu_rwlock_rdlock
#define ncpu_rwlock_tryrdlock tsan_ncpu_rwlock_tryrdlock
#define ncpu_rwlock_timedrdlock tsan_ncpu_rwlock_timedrdlock
#define ncpu_rwlock_rdunlock tsan_ncpu_rwlock_rdunlock
#define ncpu_rwlock_wrlock tsan_ncpu_rwlock_wrlock
#define ncpu_rwlock_trywrlock tsan_ncpu_rwlock_trywrlock
#define ncpu_rwlock_timedwrlock tsan_ncpu_rwlock_timedwrlock
#define ncpu_rwlock_wrunlock tsan_ncpu_rwlock_wrunlock
#define ncpu_rwlock_uplock tsan_ncpu_rwlock_uplock
#define ncpu_rwlock_upgrade tsan_ncpu_rwlock_upgrade
#define ncpu_rwlock_downgrade tsan_ncpu_rwlock_downgrade
#define ncpu_rwlock_upunlock tsan_ncpu_rwlock_upunlock
#define ncpu_bounded_take tsan_ncpu_bounded_take
#define ncpu_bounded_give tsan_ncpu_bounded_give
#define ncpu_cond_wait tsan_ncpu_cond_wait
#define ncpu_cond_timedwait tsan_ncpu_cond_timedwait
#endif
