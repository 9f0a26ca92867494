// libncpu: synchronisation primitives that keep scaling. SPDX-License-Identifier: MIT OR Apache-2.0
// Generated from src/capi.rs: BLESS=1 cargo test -p libncpu --test header

#ifndef NCPU_H
#define NCPU_H

#include <stdint.h>
#include <time.h>

// For `ncpu_mutex_init`: the mutex lies in memory that several processes map.
#define NCPU_SHARED 1

// A counter with a hard limit.
typedef struct ncpu_bounded_t ncpu_bounded_t;

// A counter without a limit, on a cache line for each CPU.
typedef struct ncpu_counter_t ncpu_counter_t;

// A queue lock that prefers threads of the owner's NUMA node.
typedef struct ncpu_numa_t ncpu_numa_t;

// A reader-writer lock whose readers share nothing.
typedef struct ncpu_rwlock_t ncpu_rwlock_t;

// An adaptive mutex. Zeroed is initialised, for threads of one process.
typedef struct {
  uint32_t opaque[4];
} ncpu_mutex_t;

// A mutex that survives its owner. Zeroed is initialised, for threads and processes.
typedef struct {
  uint32_t opaque;
} ncpu_robust_t;

// A queue lock: first come, first served. Zeroed is initialised.
typedef struct {
  uint8_t *opaque;
} ncpu_mcs_t;

// A waiter's place in a queue, usually on its stack; one for each lock that a thread holds or waits for.
typedef struct {
  uint64_t opaque[8];
} ncpu_mcs_node_t;

// Like `ncpu_mcs_node_t`, for `ncpu_numa_t`.
typedef struct {
  ncpu_mcs_node_t node;
  uint64_t held[2];
} ncpu_numa_node_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Initialises a mutex. `flags` is 0 or NCPU_SHARED; others are EINVAL.
int ncpu_mutex_init(ncpu_mutex_t *mutex, uint32_t flags);

// Takes the mutex, waiting as long as it takes. A thread that holds it already waits for itself forever.
int ncpu_mutex_lock(ncpu_mutex_t *mutex);

// Takes the mutex, or returns EBUSY if it is locked.
int ncpu_mutex_trylock(ncpu_mutex_t *mutex);

// Takes the mutex, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_mutex_timedlock(ncpu_mutex_t *mutex, const struct timespec *deadline);

// Frees the mutex. EPERM, and nothing changes, if it is not locked: a double unlock.
int ncpu_mutex_unlock(ncpu_mutex_t *mutex);

// Ends the use of a mutex, whose memory can then be used for something else. EBUSY if it is locked.
int ncpu_mutex_destroy(ncpu_mutex_t *mutex);

// Frees the mutex in a child process after fork, whoever held it in the parent: for pthread_atfork's child handler.
int ncpu_mutex_after_fork(ncpu_mutex_t *mutex);

// Initialises a robust mutex.
int ncpu_robust_init(ncpu_robust_t *mutex);

// Takes a robust mutex. EOWNERDEAD: it was taken over from an owner that ended while it held it; mend the data.
int ncpu_robust_lock(ncpu_robust_t *mutex);

// Takes a robust mutex if it is free or its owner has ended (EOWNERDEAD); else EBUSY.
int ncpu_robust_trylock(ncpu_robust_t *mutex);

// Takes a robust mutex, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_robust_timedlock(ncpu_robust_t *mutex, const struct timespec *deadline);

// Frees a robust mutex. EPERM, and nothing changes, if the calling thread does not hold it.
int ncpu_robust_unlock(ncpu_robust_t *mutex);

// Takes the lock after all that came before. `node` stays where it is until the unlock.
int ncpu_mcs_lock(ncpu_mcs_t *lock, ncpu_mcs_node_t *node);

// Takes the lock, or returns EBUSY if it is locked.
int ncpu_mcs_trylock(ncpu_mcs_t *lock, ncpu_mcs_node_t *node);

// Passes the lock on.
int ncpu_mcs_unlock(ncpu_mcs_t *lock, ncpu_mcs_node_t *node);

// A new lock with a queue for each NUMA node, or null with errno set.
ncpu_numa_t *ncpu_numa_create(void);

// Ends a lock that nobody holds or waits for. Null is nothing.
//
void ncpu_numa_destroy(ncpu_numa_t *lock);

// Takes the lock. `node` stays where it is until the unlock.
int ncpu_numa_lock(ncpu_numa_t *lock, ncpu_numa_node_t *node);

// Passes the lock on.
int ncpu_numa_unlock(ncpu_numa_t *lock, ncpu_numa_node_t *node);

// A new reader-writer lock, or null with errno set. 128 bytes per possible CPU.
ncpu_rwlock_t *ncpu_rwlock_create(void);

// Ends a lock that nobody holds or waits for. Null is nothing.
//
void ncpu_rwlock_destroy(ncpu_rwlock_t *lock);

// Takes the lock for reading. A thread that reads and asks again may wait for a writer that waits for it.
int ncpu_rwlock_rdlock(ncpu_rwlock_t *lock);

// Takes the lock for reading, or returns EBUSY if a writer has it or waits for it.
int ncpu_rwlock_tryrdlock(ncpu_rwlock_t *lock);

// Ends reading.
int ncpu_rwlock_rdunlock(ncpu_rwlock_t *lock);

// Takes the lock for writing.
int ncpu_rwlock_wrlock(ncpu_rwlock_t *lock);

// Takes the lock for writing, or returns EBUSY if anybody has it.
int ncpu_rwlock_trywrlock(ncpu_rwlock_t *lock);

// Ends writing. EPERM, and nothing changes, if the lock is not held for writing.
int ncpu_rwlock_wrunlock(ncpu_rwlock_t *lock);

// A new counter of which at most `limit` can be taken, or null with errno set.
ncpu_bounded_t *ncpu_bounded_create(uint64_t limit);

// Ends a counter. Null is nothing.
//
void ncpu_bounded_destroy(ncpu_bounded_t *counter);

// Takes `n`, or returns EDQUOT if less than that is free.
int ncpu_bounded_take(ncpu_bounded_t *counter, uint64_t n);

// Gives back `n` of what was taken. ERANGE, and nothing changes, if so much cannot have been taken.
int ncpu_bounded_give(ncpu_bounded_t *counter, uint64_t n);

// What is taken: exact if nobody takes or gives meanwhile. 0 for null.
//
uint64_t ncpu_bounded_read(const ncpu_bounded_t *counter);

// What is taken at one moment during the call; stops takes and gives while it adds up. 0 for null.
//
uint64_t ncpu_bounded_read_exact(const ncpu_bounded_t *counter);

// Changes the limit. Returns by how much what is taken exceeds it now; nobody can take until that was given back.
//
uint64_t ncpu_bounded_set_limit(ncpu_bounded_t *counter, uint64_t limit);

// A new counter of 0, or null with errno set.
ncpu_counter_t *ncpu_counter_create(void);

// Ends a counter. Null is nothing.
//
void ncpu_counter_destroy(ncpu_counter_t *counter);

// Adds `n`, which may be negative.
int ncpu_counter_add(ncpu_counter_t *counter, int64_t n);

// The sum over all CPUs. 0 for null.
int64_t ncpu_counter_sum(const ncpu_counter_t *counter);

// The value of a variable, or null. Takes no lock, and may be called in a signal handler.
//
char *ncpu_getenv(const char *name);

// As `ncpu_getenv`, but null in a set-user-ID, set-group-ID or otherwise privileged program.
//
char *ncpu_secure_getenv(const char *name);

// Sets a variable; one that is there keeps its value if `overwrite` is 0. EINVAL for a name that cannot be one.
int ncpu_setenv(const char *name, const char *value, int overwrite);

// Makes `entry`, "NAME=VALUE", itself part of the environment; without a '=' removes the variable of that name.
int ncpu_putenv(char *entry);

// Removes a variable, which need not be there. EINVAL for a name that cannot be one.
int ncpu_unsetenv(const char *name);

// Removes all variables.
int ncpu_clearenv(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NCPU_H */
