// libncpu: synchronisation primitives that keep scaling. SPDX-License-Identifier: MIT OR Apache-2.0
// Generated from src/capi.rs: BLESS=1 cargo test -p libncpu --test header

#ifndef NCPU_H
#define NCPU_H

#include <stdint.h>
#include <time.h>

// For `ncpu_mutex_init`: the mutex lies in memory that several processes map.
#define NCPU_SHARED 1

// `policy`: the first of a list whose every range is large enough, in constant time.
#define NCPU_VMEM_INSTANT 0

// `policy`: the smallest range that fits.
#define NCPU_VMEM_BEST 1

// `policy`: the first range after the one handed out last. Not with `cache_to`.
#define NCPU_VMEM_NEXT 2

// A part that nobody has.
#define NCPU_VMEM_FREE 0

// A part that is handed out.
#define NCPU_VMEM_ALLOCATED 1

// A part that is in a magazine.
#define NCPU_VMEM_CACHED 2

// A counter with a hard limit.
typedef struct ncpu_bounded_t ncpu_bounded_t;

// A counter without a limit, on a cache line for each CPU.
typedef struct ncpu_counter_t ncpu_counter_t;

// A queue lock that prefers threads of the owner's NUMA node.
typedef struct ncpu_numa_t ncpu_numa_t;

// A reader-writer lock whose readers share nothing.
typedef struct ncpu_rwlock_t ncpu_rwlock_t;

// An arena of integers: addresses, identifiers, ports.
typedef struct ncpu_vmem_t ncpu_vmem_t;

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

// What kind of arena. Zeroed but for `quantum` is one without magazines, constant time.
typedef struct {
  // All ranges are multiples of this power of two.
  uint64_t quantum;
  // The largest size that per-CPU magazines serve, at most 64 quanta; 0 is none.
  uint64_t cache_to;
  // The least that is imported from a parent at a time.
  uint64_t import;
  // NCPU_VMEM_INSTANT, _BEST or _NEXT.
  uint32_t policy;
} ncpu_vmem_options_t;

// Where a range may lie. Zeroed but for `max` is anywhere.
typedef struct {
  // It begins at a multiple of this power of two, plus `phase`. 0 is the quantum.
  uint64_t align;
  // Below `align`, a multiple of the quantum.
  uint64_t phase;
  // It does not lie on both sides of a multiple of this power of two. 0 is no such limit.
  uint64_t nocross;
  // None of its integers is below.
  uint64_t min;
  // None of its integers is above.
  uint64_t max;
} ncpu_vmem_constraints_t;

// What an arena has and did.
typedef struct {
  // Integers in all spans.
  uint64_t total;
  // Integers in nobody's hands and in no magazine.
  uint64_t free;
  // Integers in magazines.
  uint64_t cached;
  // The longest free range.
  uint64_t largest;
  // Requests that magazines served.
  uint64_t hits;
  // Requests that were refused.
  uint64_t refusals;
  // How often all magazines were emptied.
  uint64_t drains;
} ncpu_vmem_statistics_t;

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

// A new arena of nothing, or null with errno set: EINVAL, ENOMEM. With a `parent` it imports from that what it lacks,
// gives each span back when that is all free, and must be destroyed first.
//
ncpu_vmem_t *ncpu_vmem_create(const ncpu_vmem_options_t *options, const ncpu_vmem_t *parent);

// Ends an arena. What it has imported goes back, but for spans of which something is still handed out. Null is nothing.
//
void ncpu_vmem_destroy(ncpu_vmem_t *arena);

// Adds `size` integers from `start` on. EEXIST if the arena has some of them, EINVAL if they are not multiples of the
// quantum or go beyond 2^64-1, ENOMEM.
int ncpu_vmem_add(ncpu_vmem_t *arena, uint64_t start, uint64_t size);

// Hands out `size` integers, rounded up to the quantum, and puts the first where `start` points. ENOSPC if no free
// range is that long: then there was a moment when none was, magazines included.
int ncpu_vmem_alloc(ncpu_vmem_t *arena, uint64_t size, uint64_t *start);

// As `ncpu_vmem_alloc` by a policy and where constraints allow; null is anywhere. Never served by magazines.
int ncpu_vmem_alloc_with(ncpu_vmem_t *arena,
                         uint64_t size,
                         uint32_t policy_number,
                         const ncpu_vmem_constraints_t *constraints,
                         uint64_t *start);

// Takes back what was handed out. Nothing changes and it is ENOENT if it was not, or given back before; ERANGE if it was
// another size.
int ncpu_vmem_free(ncpu_vmem_t *arena,
                   uint64_t start,
                   uint64_t size);

// Empties all magazines, and gives to the parent what is not needed.
int ncpu_vmem_reap(ncpu_vmem_t *arena);

// Calls `visit` with each part, by address: its use (NCPU_VMEM_FREE, _ALLOCATED, _CACHED), its first integer, how many,
// and `argument`. The arena is locked meanwhile: `visit` must not use it.
int ncpu_vmem_walk(const ncpu_vmem_t *arena,
                   void (*visit)(uint32_t used, uint64_t start, uint64_t size, void *argument),
                   void *argument);

// Fills in what the arena has and did. O(ranges + CPUs).
int ncpu_vmem_statistics(const ncpu_vmem_t *arena, ncpu_vmem_statistics_t *statistics);

// Takes every lock of the arena: for pthread_atfork's prepare handler, a child's before its parent's.
int ncpu_vmem_before_fork(ncpu_vmem_t *arena);

// Gives the locks back: for pthread_atfork's parent handler, and with `child` not 0 its child handler.
int ncpu_vmem_after_fork(ncpu_vmem_t *arena, int child);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NCPU_H */
