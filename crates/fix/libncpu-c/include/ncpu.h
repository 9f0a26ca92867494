// libncpu: synchronisation primitives that keep scaling. SPDX-License-Identifier: MIT OR Apache-2.0
// Generated from crates/fix/libncpu-c/src: BLESS=1 cargo test -p libncpu-c --test header

#ifndef NCPU_H
#define NCPU_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// For `ncpu_mutex_init`: the mutex lies in memory that several processes map.
#define NCPU_SHARED 1

// For `ncpu_mutex_init`: bounds how often a sleeping thread is overtaken. Not with NCPU_SHARED.
#define NCPU_FAIR 2

// The largest limit of a bounded counter.
#define NCPU_BOUNDED_MOST 4611686018427387904

// Memory of this process.
#define NCPU_PRIVATE 0

// Memory behind a descriptor.
#define NCPU_MEMFD 1

// Memory with a name.
#define NCPU_POSIX 2

// A segment of System V.
#define NCPU_SYSV 3

// Pages as the kernel is configured.
#define NCPU_PAGES_DEFAULT 0

// Small pages only.
#define NCPU_PAGES_SMALL 1

// Transparent huge pages, if the kernel supports them.
#define NCPU_PAGES_TRANSPARENT 2

// Nodes of the thread's policy.
#define NCPU_POLICY_DEFAULT 0

// The caller's node.
#define NCPU_POLICY_LOCAL 1

// Nodes in turn.
#define NCPU_POLICY_INTERLEAVE 2

// Only these nodes.
#define NCPU_POLICY_BIND 3

// No helpers.
#define NCPU_ALONE UINT32_MAX

// The segment is locked in memory.
#define NCPU_LOCKED 1

// No byte offset.
#define NCPU_NO_PAGE UINT64_MAX

// `policy`: the first of a list whose ranges are all large enough, in constant time.
#define NCPU_VMEM_INSTANT 0

// `policy`: the smallest range that fits.
#define NCPU_VMEM_BEST 1

// `policy`: the first range after the one handed out last. Not with `cache_to`.
#define NCPU_VMEM_NEXT 2

// A part that is free.
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

// A segment of memory.
typedef struct ncpu_segment_t ncpu_segment_t;

// A timing wheel for each CPU.
typedef struct ncpu_timers_t ncpu_timers_t;

// An arena of integers: addresses, identifiers, ports.
typedef struct ncpu_vmem_t ncpu_vmem_t;

// An adaptive mutex. Zeroed is initialised, for threads of one process.
typedef struct {
  uint32_t opaque[4];
} ncpu_mutex_t;

// A condition variable for `ncpu_mutex_t`. Zeroed is initialised, for threads and processes.
typedef struct {
  uint32_t opaque[2];
} ncpu_cond_t;

// A mutex that survives its owner. Zeroed is initialised, for threads and processes.
typedef struct {
  uint32_t opaque;
} ncpu_robust_t;

// A queue lock: first come, first served. Zeroed is initialised.
typedef struct {
  uint64_t opaque[2];
} ncpu_mcs_t;

// A waiter's place in a queue, usually on its stack. Each lock that a thread holds or waits for needs one.
typedef struct {
  uint64_t opaque[8];
} ncpu_mcs_node_t;

// Like `ncpu_mcs_node_t`, for `ncpu_numa_t`.
typedef struct {
  ncpu_mcs_node_t node;
} ncpu_numa_node_t;

// Options of a new segment. Zeroed except for `size`: private memory in pages that the kernel chooses.
typedef struct {
  // Size in bytes; rounded up to whole pages.
  uint64_t size;
  // NCPU_PRIVATE, NCPU_MEMFD, NCPU_POSIX or NCPU_SYSV.
  uint32_t backing;
  // For NCPU_SYSV: a new key; or IPC_PRIVATE, and the segment ends with the last process that has it
  // attached.
  int32_t key;
  // For NCPU_POSIX: a new name, like "/name".
  const char *name;
  // NCPU_PAGES_DEFAULT, NCPU_PAGES_SMALL, NCPU_PAGES_TRANSPARENT, or the size in bytes of pages from the
  // kernel's pool.
  uint64_t pages;
  // NCPU_POLICY_DEFAULT, NCPU_POLICY_LOCAL, NCPU_POLICY_INTERLEAVE or NCPU_POLICY_BIND.
  uint32_t policy;
  // Words of 64 bits in `nodes`.
  uint32_t node_words;
  // For NCPU_POLICY_INTERLEAVE and NCPU_POLICY_BIND: a bit for each node. Null interleaves over all nodes.
  const uint64_t *nodes;
  // The most threads that help the caller [default: 16]; NCPU_ALONE for none.
  uint32_t helpers;
  // NCPU_LOCKED or 0.
  uint32_t flags;
} ncpu_segment_options_t;

// The failure of a call that makes, locks or destroys memory.
typedef struct {
  // The call that failed, as text.
  char what[40];
  // The byte offset of the first page that could not be made, or NCPU_NO_PAGE if no page caused the
  // failure.
  uint64_t offset;
} ncpu_failure_t;

// Result of `ncpu_scan`.
typedef struct {
  // Words of 8 bytes that match.
  uint64_t equal;
  // Words in all; the last may be shorter.
  uint64_t words;
  // The byte offset of the first word that does not match, or NCPU_NO_PAGE.
  uint64_t first;
} ncpu_scan_t;

// The start function of a thread.
typedef void *(*ncpu_thread_start_t)(void *argument);

// A timer, in the caller's memory. It must not move while it is armed. Initialise it with `ncpu_timer_init`.
typedef struct {
  uint64_t opaque[8];
} ncpu_timer_t;

// The callback of an expiry. `expirations` is the number of periods since the last call: 1, or more if a
// periodic timer was late.
//
// It runs on a thread that all timers of the CPU share, so it should be short. It may arm and cancel timers,
// including its own, and may free its own timer if that is not periodic or was cancelled. It must not end
// the thread, throw or longjmp out, and if it forks, the child must exec or _exit in it.
typedef void (*ncpu_timer_callback_t)(ncpu_timer_t *timer, void *data, uint64_t expirations);

// Counts so far, over all CPUs.
typedef struct {
  // Timers armed now.
  uint64_t armed;
  // Callbacks called.
  uint64_t fired;
  // Timers removed before they expired: cancelled, or armed for another time.
  uint64_t removed;
  // Wake-ups of helper threads.
  uint64_t wakeups;
  // Helper threads that exist.
  uint64_t helpers;
} ncpu_timers_activity_t;

// Options of an arena. Zeroed except for `quantum`: without magazines, constant time.
typedef struct {
  // All ranges are multiples of this power of two.
  uint64_t quantum;
  // The largest size that per-CPU magazines serve, at most 64 quanta; 0 disables magazines.
  uint64_t cache_to;
  // The least size that is imported from a parent at a time.
  uint64_t import;
  // NCPU_VMEM_INSTANT, _BEST or _NEXT.
  uint32_t policy;
} ncpu_vmem_options_t;

// Where a range may lie. Zeroed except for `max` is anywhere.
typedef struct {
  // It begins at a multiple of this power of two, plus `phase`. 0 stands for the quantum.
  uint64_t align;
  // Below `align`, a multiple of the quantum.
  uint64_t phase;
  // It does not lie on both sides of a multiple of this power of two. 0 disables the limit.
  uint64_t nocross;
  // Lower bound of its integers.
  uint64_t min;
  // Upper bound of its integers.
  uint64_t max;
} ncpu_vmem_constraints_t;

// Contents and counts of an arena.
typedef struct {
  // Integers in all spans.
  uint64_t total;
  // Integers that are neither handed out nor in a magazine.
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

// Initialises a mutex. `flags` is 0, NCPU_SHARED or NCPU_FAIR; others are EINVAL.
int ncpu_mutex_init(ncpu_mutex_t *mutex, uint32_t flags);

// Takes the mutex, waiting without limit. A thread that already holds the mutex waits for itself forever; in
// debug builds of the library that is EDEADLK.
int ncpu_mutex_lock(ncpu_mutex_t *mutex);

// Takes the mutex, or returns EBUSY if it is locked.
int ncpu_mutex_trylock(ncpu_mutex_t *mutex);

// Takes the mutex, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_mutex_timedlock(ncpu_mutex_t *mutex, const struct timespec *deadline);

// Frees the mutex. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds of the library
// also if another thread holds it.
int ncpu_mutex_unlock(ncpu_mutex_t *mutex);

// Frees the mutex as ncpu_mutex_unlock does. If threads sleep, it is reserved for the one that is being
// woken or has slept longest. For a mutex that processes share this is a plain unlock.
int ncpu_mutex_unlock_fair(ncpu_mutex_t *mutex);

// Frees the mutex, waits for a notification and takes the mutex again. May return without a notification, so
// check the condition again. EPERM if the mutex is not locked.
int ncpu_cond_wait(ncpu_cond_t *cond, ncpu_mutex_t *mutex);

// As ncpu_cond_wait; ETIMEDOUT, with the mutex held, if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_cond_timedwait(ncpu_cond_t *cond, ncpu_mutex_t *mutex, const struct timespec *deadline);

// Wakes one thread that waits, if there is one.
int ncpu_cond_signal(ncpu_cond_t *cond);

// Wakes all threads that wait.
int ncpu_cond_broadcast(ncpu_cond_t *cond);

// Ends the use of a mutex, so that its memory can be reused. EBUSY if it is locked.
int ncpu_mutex_destroy(ncpu_mutex_t *mutex);

// Frees the mutex in a child process after fork, whatever thread of the parent held it: for pthread_atfork's
// child handler.
int ncpu_mutex_after_fork(ncpu_mutex_t *mutex);

// Initialises a robust mutex.
int ncpu_robust_init(ncpu_robust_t *mutex);

// Frees a robust mutex in private memory in a child process after fork, whatever thread of the parent held
// it: for pthread_atfork's child handler. Not for a mutex in memory that the parent shares.
int ncpu_robust_after_fork(ncpu_robust_t *mutex);

// Takes a robust mutex. EOWNERDEAD: it was taken over from an owner that ended while it held the mutex;
// repair the data. EDEADLK, and nothing changes: the calling thread already holds it.
int ncpu_robust_lock(ncpu_robust_t *mutex);

// Takes a robust mutex if it is free or its owner has ended (EOWNERDEAD); otherwise EBUSY.
int ncpu_robust_trylock(ncpu_robust_t *mutex);

// Takes a robust mutex, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
// Otherwise as ncpu_robust_lock.
int ncpu_robust_timedlock(ncpu_robust_t *mutex, const struct timespec *deadline);

// Frees a robust mutex. EPERM, and nothing changes, if the calling thread does not hold it.
int ncpu_robust_unlock(ncpu_robust_t *mutex);

// Takes the lock, in the order of arrival. `node` must not move until the unlock. A thread that already
// holds the lock waits for itself forever. In debug builds that is EDEADLK, and a node that is in use for
// another lock is EINVAL.
int ncpu_mcs_lock(ncpu_mcs_t *lock, ncpu_mcs_node_t *node);

// Takes the lock, or returns EBUSY if it is locked.
int ncpu_mcs_trylock(ncpu_mcs_t *lock, ncpu_mcs_node_t *node);

// Passes the lock on. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds also if the
// calling thread does not hold it by this node.
int ncpu_mcs_unlock(ncpu_mcs_t *lock, ncpu_mcs_node_t *node);

// Frees the lock in a child process after fork, whatever thread of the parent held it: for pthread_atfork's
// child handler, if the prepare handler took the lock.
int ncpu_mcs_after_fork(ncpu_mcs_t *lock);

// A new lock with a queue for each NUMA node, or null with errno set.
ncpu_numa_t *ncpu_numa_create(void);

// Frees a lock that no thread holds or waits for. Null is ignored.
void ncpu_numa_destroy(ncpu_numa_t *lock);

// Takes the lock. `node` must not move until the unlock. In debug builds the errors are those of
// ncpu_mcs_lock.
int ncpu_numa_lock(ncpu_numa_t *lock, ncpu_numa_node_t *node);

// Passes the lock on. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds also if the
// calling thread does not hold it by this node.
int ncpu_numa_unlock(ncpu_numa_t *lock, ncpu_numa_node_t *node);

// As ncpu_mcs_after_fork.
int ncpu_numa_after_fork(ncpu_numa_t *lock);

// A new reader-writer lock, or null with errno set. 128 bytes per possible CPU.
ncpu_rwlock_t *ncpu_rwlock_create(void);

// Frees a lock that no thread holds or waits for. Null is ignored.
void ncpu_rwlock_destroy(ncpu_rwlock_t *lock);

// Takes the lock for reading. A thread that reads and takes it again may wait for a writer that waits for
// this thread. A thread that writes waits for itself forever; in debug builds that is EDEADLK.
int ncpu_rwlock_rdlock(ncpu_rwlock_t *lock);

// Takes the lock for reading, or returns EBUSY if a writer has it or waits for it.
int ncpu_rwlock_tryrdlock(ncpu_rwlock_t *lock);

// Ends reading. In debug builds EPERM, and nothing changes, if the calling thread does not read. Other
// builds cannot detect it, and the lock is then open to readers and writers at once.
int ncpu_rwlock_rdunlock(ncpu_rwlock_t *lock);

// Takes the lock for writing. A thread that already holds it, for reading or writing, waits for itself
// forever; in debug builds that is EDEADLK.
int ncpu_rwlock_wrlock(ncpu_rwlock_t *lock);

// Takes the lock for writing, or returns EBUSY if it is held.
int ncpu_rwlock_trywrlock(ncpu_rwlock_t *lock);

// Ends writing. EPERM, and nothing changes, if the lock is not held for writing; in debug builds also if another
// thread holds it.
int ncpu_rwlock_wrunlock(ncpu_rwlock_t *lock);

// Frees the lock in a child process after fork, whatever thread of the parent held it: for pthread_atfork's
// child handler, if the prepare handler took the lock for writing.
int ncpu_rwlock_after_fork(ncpu_rwlock_t *lock);

// Takes the lock for reading, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_rwlock_timedrdlock(ncpu_rwlock_t *lock, const struct timespec *deadline);

// Takes the lock for writing, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_rwlock_timedwrlock(ncpu_rwlock_t *lock, const struct timespec *deadline);

// Takes the lock for reading beside other readers, as the one thread that may become the writer. Writers
// wait for it. It must not call ncpu_rwlock_rdlock at the same time.
int ncpu_rwlock_uplock(ncpu_rwlock_t *lock);

// Waits for the other readers to leave and becomes the writer, after ncpu_rwlock_uplock; ends with
// ncpu_rwlock_wrunlock. No thread writes in between.
int ncpu_rwlock_upgrade(ncpu_rwlock_t *lock);

// Lets other threads read again after writing; the lock is then held as after ncpu_rwlock_uplock. EPERM if
// the lock is not held for writing.
int ncpu_rwlock_downgrade(ncpu_rwlock_t *lock);

// Ends the hold of ncpu_rwlock_uplock, unless it was upgraded. In debug builds EPERM if the thread does not
// hold it.
int ncpu_rwlock_upunlock(ncpu_rwlock_t *lock);

// A new counter with the limit `limit`, or null with errno set: EINVAL for more than NCPU_BOUNDED_MOST,
// ENOMEM. A fork waits until no thread is inside a call with it; a child's copy is consistent.
ncpu_bounded_t *ncpu_bounded_create(uint64_t limit);

// As ncpu_bounded_create, a counter that refuses every give of more than is taken, and does not scale. Use
// it to find the caller that gives too much.
ncpu_bounded_t *ncpu_bounded_create_checked(uint64_t limit);

// Frees a counter. Null is ignored.
void ncpu_bounded_destroy(ncpu_bounded_t *counter);

// Takes `n`, or returns EDQUOT if less than that is free.
int ncpu_bounded_take(ncpu_bounded_t *counter, uint64_t n);

// Gives back `n` of the taken credit. ERANGE, and nothing changes, if all threads together have taken less.
// That is certain for counters of ncpu_bounded_create_checked, and for others at first and from each EDQUOT,
// ncpu_bounded_read_exact and ncpu_bounded_set_limit until much is free again. Otherwise it is detected only
// if more than the largest limit so far would be free on this CPU. A surplus that passes can be taken above
// the limit until the next of these three calls drops it. The counter does not record which thread took how
// much: giving credit that another thread took is never detected.
int ncpu_bounded_give(ncpu_bounded_t *counter, uint64_t n);

// Credit taken: exact if no thread takes or gives meanwhile. 0 for null.
uint64_t ncpu_bounded_read(const ncpu_bounded_t *counter);

// Credit taken at one moment during the call; stops takes and gives while it adds up. 0 for null.
uint64_t ncpu_bounded_read_exact(const ncpu_bounded_t *counter);

// Changes the limit. Returns by how much the taken credit exceeds the new limit; no thread can take until
// that was given back. UINT64_MAX with errno EINVAL, and nothing changes, for a limit above
// NCPU_BOUNDED_MOST.
uint64_t ncpu_bounded_set_limit(ncpu_bounded_t *counter, uint64_t limit);

// A new counter of 0, or null with errno set.
ncpu_counter_t *ncpu_counter_create(void);

// Frees a counter. Null is ignored.
void ncpu_counter_destroy(ncpu_counter_t *counter);

// Adds `n`, which may be negative.
int ncpu_counter_add(ncpu_counter_t *counter, int64_t n);

// The sum over all CPUs. 0 for null.
int64_t ncpu_counter_sum(const ncpu_counter_t *counter);

// Copies `length` bytes, by the contract of memcpy: the blocks do not overlap. EINVAL, and nothing is copied, if a
// pointer is null and `length` is not 0.
int ncpu_copy(void *to, const void *from, size_t length);

// Copies as ncpu_copy does, by up to `threads` threads, including the caller's. 0 selects one thread for
// each 8 MB, at most 16, and at most the number of CPUs near the target's memory. The helpers have ended
// when this returns; if none can be made, the caller copies alone.
int ncpu_copy_parallel(void *to, const void *from, size_t length, uint32_t threads);

// Clears `length` bytes. EINVAL, and nothing is cleared, if `to` is null and `length` is not 0.
int ncpu_zero(void *to, size_t length);

// The vectors that copy blocks on this processor: avx512, avx2, sse2 or neon.
const char *ncpu_copy_vectors(void);

// The value of a variable, or null. Takes no lock, and may be called in a signal handler.
char *ncpu_getenv(const char *name);

// As `ncpu_getenv`, but null in a set-user-ID, set-group-ID or otherwise privileged program.
char *ncpu_secure_getenv(const char *name);

// Sets a variable; an existing one keeps its value if `overwrite` is 0. EINVAL for an invalid name.
int ncpu_setenv(const char *name, const char *value, int overwrite);

// Makes the string `entry`, "NAME=VALUE", itself part of the environment; without a '=' removes the variable
// of that name.
int ncpu_putenv(char *entry);

// Removes a variable, which need not be set. EINVAL for an invalid name.
int ncpu_unsetenv(const char *name);

// Removes all variables.
int ncpu_clearenv(void);

// Makes a segment and all its pages, locked if `flags` has NCPU_LOCKED, and stores it in `segment`. After an
// error nothing remains of it, and `why`, which may be null, describes the failure.
int ncpu_segment_create(const ncpu_segment_options_t *options, ncpu_segment_t **segment, ncpu_failure_t *why);

// The segment's first byte; null for null.
void *ncpu_segment_address(const ncpu_segment_t *segment);

// The segment's bytes, whole pages; 0 for null.
uint64_t ncpu_segment_size(const ncpu_segment_t *segment);

// The descriptor of a memfd or POSIX segment, the identifier of a SysV one; -1 for private memory and null.
int ncpu_segment_handle(const ncpu_segment_t *segment);

// Removes the segment from the address space and frees it, with helpers. The segment is destroyed even if an
// error is returned, which is the first. Null is ignored.
int ncpu_segment_destroy(ncpu_segment_t *segment, ncpu_failure_t *why);

// Makes the pages of any memory of the process, as by writing if `write` is not 0, otherwise as by reading;
// keeps their contents.
int ncpu_populate(void *at, size_t size, int write, uint32_t most, ncpu_failure_t *why);

// mlock, with helpers that make the pages.
int ncpu_mlock(const void *at, size_t size, uint32_t most, ncpu_failure_t *why);

// munmap, with helpers that free the pages.
int ncpu_munmap(void *at, size_t size, uint32_t most, ncpu_failure_t *why);

// Writes `word` repeatedly, from the first byte on, cut off at the end: 0 zeroes. By helpers near the
// memory.
int ncpu_fill(void *at, size_t size, uint64_t word, uint32_t most);

// Compares every word of 8 bytes with `word`, by helpers near the memory.
int ncpu_scan(const void *at, size_t size, uint64_t word, uint32_t most, ncpu_scan_t *found);

// Sets the span of threads' stack biases: multiples of 64 bytes below `bytes`, which is a multiple of 64 up
// to 65536, or 0 for no bias [default: 4096]. EINVAL for other values.
int ncpu_stack_bias_span(uint64_t bytes);

// The bias for another thread, in bytes.
uint64_t ncpu_stack_bias_next(void);

// Calls `start` with the stack `bias` bytes lower (rounded down to 64) and returns its result. For the first
// function of threads that other code starts. Null `start` returns null.
void *ncpu_stack_bias_call(ncpu_thread_start_t start, void *argument, uint64_t bias);

// As pthread_create, with the next stack bias. The bias is part of the stack: EINVAL if `attr` has a stack
// of less than four times the span.
int ncpu_thread_create(pthread_t *thread, const pthread_attr_t *attr, ncpu_thread_start_t start, void *argument);

// New timers, or null with errno set. No thread is started before a timer is armed.
ncpu_timers_t *ncpu_timers_create(void);

// Waits for running callbacks and ends the helper threads. Timers that are still armed never expire, and
// must be initialised before they are used again. Null is ignored; EDEADLK, and nothing changes, in a
// callback.
int ncpu_timers_destroy(ncpu_timers_t *timers);

// Initialises a timer, which must not be armed.
int ncpu_timer_init(ncpu_timer_t *timer, ncpu_timer_callback_t callback, void *data);

// Arms a timer to expire on this CPU in `after_ns` ns, or up to `slack_ns` later if that saves a wake-up. An
// armed timer is moved. EINVAL if it was not initialised. The first timer of a CPU may fail with ENOMEM,
// EMFILE, ENFILE or EAGAIN (no more threads); the timer is not armed then.
int ncpu_timer_arm(ncpu_timers_t *timers, ncpu_timer_t *timer, uint64_t after_ns, uint64_t slack_ns);

// As `ncpu_timer_arm`, at a time of CLOCK_MONOTONIC; immediately if it has passed.
int ncpu_timer_arm_at(ncpu_timers_t *timers, ncpu_timer_t *timer, const struct timespec *at, uint64_t slack_ns);

// As `ncpu_timer_arm`, and again each `period_ns` (at least 1000; 0 is once) until it is cancelled.
int ncpu_timer_arm_every(ncpu_timers_t *timers,
                         ncpu_timer_t *timer,
                         uint64_t after_ns,
                         uint64_t period_ns,
                         uint64_t slack_ns);

// Cancels a timer, from any CPU: its callback will not be called. ENOENT if it was not armed: its callback
// was called, and may still be running.
int ncpu_timer_cancel(ncpu_timers_t *timers, ncpu_timer_t *timer);

// Cancels a timer and waits until its callback is not running, so that it can be freed. 0, or ENOENT if it
// was not armed. EDEADLK in its own callback, which cannot wait for itself: the timer is disarmed then.
int ncpu_timer_cancel_wait(ncpu_timers_t *timers, ncpu_timer_t *timer);

// 1 if a timer is armed, otherwise 0. The answer may be out of date unless no thread can arm it and it
// cannot expire.
int ncpu_timer_is_armed(ncpu_timers_t *timers, ncpu_timer_t *timer);

// Counts so far. O(CPUs).
int ncpu_timers_activity(ncpu_timers_t *timers, ncpu_timers_activity_t *activity);

// A new arena without integers, or null with errno set: EINVAL, ENOMEM. With a `parent` it imports the
// integers it lacks, gives each span back when it is completely free, and must be destroyed before the
// parent.
ncpu_vmem_t *ncpu_vmem_create(const ncpu_vmem_options_t *options, const ncpu_vmem_t *parent);

// Frees an arena. Imported spans go back, except spans with ranges that are still handed out. Null is
// ignored.
void ncpu_vmem_destroy(ncpu_vmem_t *arena);

// Adds `size` integers from `start` on. EEXIST if the arena has some of them, EINVAL if they are not
// multiples of the quantum or exceed 2^64-1, ENOMEM.
int ncpu_vmem_add(ncpu_vmem_t *arena, uint64_t start, uint64_t size);

// Hands out `size` integers, rounded up to the quantum, and stores the first in `*start`. ENOSPC if no free
// range is that long: then there was a moment without such a range, magazines included.
int ncpu_vmem_alloc(ncpu_vmem_t *arena, uint64_t size, uint64_t *start);

// As `ncpu_vmem_alloc`, by a policy and within constraints; null is anywhere. Never served by magazines.
int ncpu_vmem_alloc_with(ncpu_vmem_t *arena,
                         uint64_t size,
                         uint32_t policy_number,
                         const ncpu_vmem_constraints_t *constraints,
                         uint64_t *start);

// Takes back a range. ENOENT, and nothing changes, if it was not handed out or was already freed; ERANGE if
// its size was another.
int ncpu_vmem_free(ncpu_vmem_t *arena, uint64_t start, uint64_t size);

// Empties all magazines, and gives unneeded spans to the parent.
int ncpu_vmem_reap(ncpu_vmem_t *arena);

// Calls `visit` with each part, by address: its use (NCPU_VMEM_FREE, _ALLOCATED, _CACHED), its first
// integer, its size, and `argument`. The arena is locked meanwhile: `visit` must not use it.
int ncpu_vmem_walk(const ncpu_vmem_t *arena, void (*visit)(uint32_t used,
                                                           uint64_t start,
                                                           uint64_t size,
                                                           void *argument), void *argument);

// Fills in the contents and counts of an arena. O(ranges + CPUs).
int ncpu_vmem_statistics(const ncpu_vmem_t *arena, ncpu_vmem_statistics_t *statistics);

// Takes every lock of the arena: for pthread_atfork's prepare handler, for a child before its parent.
int ncpu_vmem_before_fork(ncpu_vmem_t *arena);

// Releases the locks: for pthread_atfork's parent handler, and with `child` not 0 its child handler.
int ncpu_vmem_after_fork(ncpu_vmem_t *arena, int child);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NCPU_H */

#if defined(__SANITIZE_THREAD__)
#include "ncpu_tsan.h"
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#include "ncpu_tsan.h"
#endif
#endif
