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

// For `ncpu_mutex_init`: bounds how often a thread that sleeps is overtaken. Not with NCPU_SHARED.
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

// Pages as the kernel is set to.
#define NCPU_PAGES_DEFAULT 0

// Small pages only.
#define NCPU_PAGES_SMALL 1

// Transparent huge pages, as far as the kernel has them.
#define NCPU_PAGES_TRANSPARENT 2

// Nodes as the thread's policy has them.
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

// No byte.
#define NCPU_NO_PAGE UINT64_MAX

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

// A waiter's place in a queue, usually on its stack; one for each lock that a thread holds or waits for.
typedef struct {
  uint64_t opaque[8];
} ncpu_mcs_node_t;

// Like `ncpu_mcs_node_t`, for `ncpu_numa_t`.
typedef struct {
  ncpu_mcs_node_t node;
} ncpu_numa_node_t;

// What segment to make. Zeroed but for `size`: private memory in pages of the kernel's choice.
typedef struct {
  // Bytes; rounded up to whole pages.
  uint64_t size;
  // NCPU_PRIVATE, NCPU_MEMFD, NCPU_POSIX or NCPU_SYSV.
  uint32_t backing;
  // For NCPU_SYSV: the key, new; or IPC_PRIVATE, and it goes with the last that has it attached.
  int32_t key;
  // For NCPU_POSIX: the name, new, like "/name".
  const char *name;
  // NCPU_PAGES_DEFAULT, NCPU_PAGES_SMALL, NCPU_PAGES_TRANSPARENT, or bytes of pages from the kernel's pool.
  uint64_t pages;
  // NCPU_POLICY_DEFAULT, NCPU_POLICY_LOCAL, NCPU_POLICY_INTERLEAVE or NCPU_POLICY_BIND.
  uint32_t policy;
  // Words of 64 bits in `nodes`.
  uint32_t node_words;
  // For NCPU_POLICY_INTERLEAVE and NCPU_POLICY_BIND: a bit for each node. To interleave over all, null.
  const uint64_t *nodes;
  // The most threads that help the caller: 0 is 16, NCPU_ALONE none.
  uint32_t helpers;
  // NCPU_LOCKED or 0.
  uint32_t flags;
} ncpu_segment_options_t;

// Why memory could not be made, locked or destroyed.
typedef struct {
  // The call that failed, as text.
  char what[40];
  // The byte at which the first page begins that could not be made, or NCPU_NO_PAGE if it is no page's fault.
  uint64_t offset;
} ncpu_failure_t;

// What `ncpu_scan` found.
typedef struct {
  // Words of 8 bytes that are as wanted.
  uint64_t equal;
  // Words in all; the last may be shorter.
  uint64_t words;
  // The byte at which the first word begins that is not, or NCPU_NO_PAGE.
  uint64_t first;
} ncpu_scan_t;

// What a thread begins with.
typedef void *(*ncpu_thread_start_t)(void *argument);

// A timer, in memory of the caller's: it stays where it is while it is armed. Initialise it with `ncpu_timer_init`.
typedef struct {
  uint64_t opaque[8];
} ncpu_timer_t;

// What an expiry does. `expirations` is 1, or more if a periodic timer was late: the periods since the last call.
//
// It runs on a thread that all timers of the CPU share, so it should be short. It may arm and cancel timers, its own
// too, and free its own if it is not periodic or was cancelled. It must not end the thread, throw or longjmp out, and
// if it forks the child must exec or _exit in it.
typedef void (*ncpu_timer_callback_t)(ncpu_timer_t *timer, void *data, uint64_t expirations);

// What happened so far, over all CPUs.
typedef struct {
  // Timers armed now.
  uint64_t armed;
  // Callbacks called.
  uint64_t fired;
  // Timers taken out before their time: cancelled, or moved to another.
  uint64_t removed;
  // How often helper threads woke up.
  uint64_t wakeups;
  // Helper threads there are.
  uint64_t helpers;
} ncpu_timers_activity_t;

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

// Initialises a mutex. `flags` is 0, NCPU_SHARED or NCPU_FAIR; others are EINVAL.
int ncpu_mutex_init(ncpu_mutex_t *mutex, uint32_t flags);

// Takes the mutex, waiting as long as it takes. A thread that holds it already waits for itself forever; in debug
// builds of the library that is EDEADLK.
int ncpu_mutex_lock(ncpu_mutex_t *mutex);

// Takes the mutex, or returns EBUSY if it is locked.
int ncpu_mutex_trylock(ncpu_mutex_t *mutex);

// Takes the mutex, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_mutex_timedlock(ncpu_mutex_t *mutex, const struct timespec *deadline);

// Frees the mutex. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds of the library
// also if another thread holds it.
int ncpu_mutex_unlock(ncpu_mutex_t *mutex);

// Frees the mutex as ncpu_mutex_unlock does; if threads sleep, for the one that is being woken or has slept longest. A
// plain unlock of a mutex that processes share.
int ncpu_mutex_unlock_fair(ncpu_mutex_t *mutex);

// Frees the mutex, waits for a notification and takes the mutex again. May return without one: look at what is waited
// for. EPERM if the mutex is not locked.
int ncpu_cond_wait(ncpu_cond_t *cond, ncpu_mutex_t *mutex);

// As ncpu_cond_wait; ETIMEDOUT, with the mutex held, if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_cond_timedwait(ncpu_cond_t *cond, ncpu_mutex_t *mutex, const struct timespec *deadline);

// Wakes one thread that waits, if there is one.
int ncpu_cond_signal(ncpu_cond_t *cond);

// Wakes all threads that wait.
int ncpu_cond_broadcast(ncpu_cond_t *cond);

// Ends the use of a mutex, whose memory can then be used for something else. EBUSY if it is locked.
int ncpu_mutex_destroy(ncpu_mutex_t *mutex);

// Frees the mutex in a child process after fork, whoever held it in the parent: for pthread_atfork's child handler.
int ncpu_mutex_after_fork(ncpu_mutex_t *mutex);

// Initialises a robust mutex.
int ncpu_robust_init(ncpu_robust_t *mutex);

// Frees a robust mutex in private memory in a child process after fork, whoever held it in the parent: for
// pthread_atfork's child handler. Not for one in memory that the parent shares.
int ncpu_robust_after_fork(ncpu_robust_t *mutex);

// Takes a robust mutex. EOWNERDEAD: it was taken over from an owner that ended while it held it; mend the data.
// EDEADLK, and nothing changes: the calling thread holds it already.
int ncpu_robust_lock(ncpu_robust_t *mutex);

// Takes a robust mutex if it is free or its owner has ended (EOWNERDEAD); else EBUSY.
int ncpu_robust_trylock(ncpu_robust_t *mutex);

// Takes a robust mutex, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first. Else as
// ncpu_robust_lock.
int ncpu_robust_timedlock(ncpu_robust_t *mutex, const struct timespec *deadline);

// Frees a robust mutex. EPERM, and nothing changes, if the calling thread does not hold it.
int ncpu_robust_unlock(ncpu_robust_t *mutex);

// Takes the lock after all that came before. `node` stays where it is until the unlock. A thread that holds it
// already waits for itself forever; in debug builds that is EDEADLK, and a node by which it holds another lock EINVAL.
int ncpu_mcs_lock(ncpu_mcs_t *lock,
                  ncpu_mcs_node_t *node);

// Takes the lock, or returns EBUSY if it is locked.
int ncpu_mcs_trylock(ncpu_mcs_t *lock, ncpu_mcs_node_t *node);

// Passes the lock on. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds also if the
// calling thread does not hold it by this node.
int ncpu_mcs_unlock(ncpu_mcs_t *lock, ncpu_mcs_node_t *node);

// Frees the lock in a child process after fork, whoever held it in the parent: for pthread_atfork's child handler, if
// the prepare handler took it.
int ncpu_mcs_after_fork(ncpu_mcs_t *lock);

// A new lock with a queue for each NUMA node, or null with errno set.
ncpu_numa_t *ncpu_numa_create(void);

// Ends a lock that nobody holds or waits for. Null is nothing.
void ncpu_numa_destroy(ncpu_numa_t *lock);

// Takes the lock. `node` stays where it is until the unlock. As for ncpu_mcs_lock in debug builds.
int ncpu_numa_lock(ncpu_numa_t *lock, ncpu_numa_node_t *node);

// Passes the lock on. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds also if the
// calling thread does not hold it by this node.
int ncpu_numa_unlock(ncpu_numa_t *lock, ncpu_numa_node_t *node);

// As ncpu_mcs_after_fork.
int ncpu_numa_after_fork(ncpu_numa_t *lock);

// A new reader-writer lock, or null with errno set. 128 bytes per possible CPU.
ncpu_rwlock_t *ncpu_rwlock_create(void);

// Ends a lock that nobody holds or waits for. Null is nothing.
void ncpu_rwlock_destroy(ncpu_rwlock_t *lock);

// Takes the lock for reading. A thread that reads and asks again may wait for a writer that waits for it. One that
// writes waits for itself forever; in debug builds that is EDEADLK.
int ncpu_rwlock_rdlock(ncpu_rwlock_t *lock);

// Takes the lock for reading, or returns EBUSY if a writer has it or waits for it.
int ncpu_rwlock_tryrdlock(ncpu_rwlock_t *lock);

// Ends reading. In debug builds EPERM, and nothing changes, if the calling thread does not read; in others that
// cannot be told, and the lock is then open to readers and writers at once.
int ncpu_rwlock_rdunlock(ncpu_rwlock_t *lock);

// Takes the lock for writing. A thread that holds it already, in either way, waits for itself forever; in debug
// builds that is EDEADLK.
int ncpu_rwlock_wrlock(ncpu_rwlock_t *lock);

// Takes the lock for writing, or returns EBUSY if anybody has it.
int ncpu_rwlock_trywrlock(ncpu_rwlock_t *lock);

// Ends writing. EPERM, and nothing changes, if the lock is not held for writing; in debug builds also if another
// thread holds it.
int ncpu_rwlock_wrunlock(ncpu_rwlock_t *lock);

// Frees the lock in a child process after fork, whoever held it in the parent: for pthread_atfork's child handler, if
// the prepare handler took it for writing.
int ncpu_rwlock_after_fork(ncpu_rwlock_t *lock);

// Takes the lock for reading, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_rwlock_timedrdlock(ncpu_rwlock_t *lock, const struct timespec *deadline);

// Takes the lock for writing, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
int ncpu_rwlock_timedwrlock(ncpu_rwlock_t *lock, const struct timespec *deadline);

// Takes the lock for reading beside other readers, as the one thread that may become the writer. Writers wait for it.
// It must not read in the usual way at the same time.
int ncpu_rwlock_uplock(ncpu_rwlock_t *lock);

// Waits for the other readers to leave and becomes the writer, after ncpu_rwlock_uplock; ends with
// ncpu_rwlock_wrunlock. Nobody writes in between.
int ncpu_rwlock_upgrade(ncpu_rwlock_t *lock);

// Lets others read again after writing: what ncpu_rwlock_uplock gives. EPERM if the lock is not held for writing.
int ncpu_rwlock_downgrade(ncpu_rwlock_t *lock);

// Ends what ncpu_rwlock_uplock began, unless it was upgraded. In debug builds EPERM if the thread does not hold it.
int ncpu_rwlock_upunlock(ncpu_rwlock_t *lock);

// A new counter of which at most `limit` can be taken, or null with errno set: EINVAL for more than
// NCPU_BOUNDED_MOST, ENOMEM. A fork waits until no thread is inside of a call with it; a child's copy is whole.
ncpu_bounded_t *ncpu_bounded_create(uint64_t limit);

// As ncpu_bounded_create, a counter that finds every give of more than is taken, and does not scale: to find out who
// gives too much.
ncpu_bounded_t *ncpu_bounded_create_checked(uint64_t limit);

// Ends a counter. Null is nothing.
void ncpu_bounded_destroy(ncpu_bounded_t *counter);

// Takes `n`, or returns EDQUOT if less than that is free.
int ncpu_bounded_take(ncpu_bounded_t *counter, uint64_t n);

// Gives back `n` of what was taken. ERANGE, and nothing changes, if that is more than all together have taken. That is
// certain for counters of ncpu_bounded_create_checked, and for others at first and from each EDQUOT,
// ncpu_bounded_read_exact and ncpu_bounded_set_limit until much is free again. Otherwise it is found only if more than
// the largest limit so far would be free on this CPU; what passes can be taken above the limit until the next of
// those calls, which drops the surplus. Who took what is not known: giving what another took is never found.
int ncpu_bounded_give(ncpu_bounded_t *counter,
                      uint64_t n);

// What is taken: exact if nobody takes or gives meanwhile. 0 for null.
uint64_t ncpu_bounded_read(const ncpu_bounded_t *counter);

// What is taken at one moment during the call; stops takes and gives while it adds up. 0 for null.
uint64_t ncpu_bounded_read_exact(const ncpu_bounded_t *counter);

// Changes the limit. Returns by how much what is taken exceeds it now; nobody can take until that was given back.
// UINT64_MAX with errno EINVAL, and nothing changes, for a limit above NCPU_BOUNDED_MOST.
uint64_t ncpu_bounded_set_limit(ncpu_bounded_t *counter, uint64_t limit);

// A new counter of 0, or null with errno set.
ncpu_counter_t *ncpu_counter_create(void);

// Ends a counter. Null is nothing.
void ncpu_counter_destroy(ncpu_counter_t *counter);

// Adds `n`, which may be negative.
int ncpu_counter_add(ncpu_counter_t *counter, int64_t n);

// The sum over all CPUs. 0 for null.
int64_t ncpu_counter_sum(const ncpu_counter_t *counter);

// Copies `length` bytes, by the contract of memcpy: the blocks do not overlap. EINVAL, and nothing is copied, if a
// pointer is null and `length` is not 0.
int ncpu_copy(void *to, const void *from, size_t length);

// Copies as ncpu_copy does, by up to `threads` threads, the caller's among them; 0 is as many as are worth it: one
// for each 8 MB, at most 16, at most the CPUs near the target's memory. The others are gone when this returns; where
// there can be none, the caller copies alone.
int ncpu_copy_parallel(void *to, const void *from, size_t length, uint32_t threads);

// Clears `length` bytes. EINVAL, and nothing is cleared, if `to` is null and `length` is not 0.
int ncpu_zero(void *to, size_t length);

// The vectors by which this processor's blocks are copied: avx512, avx2, sse2 or neon.
const char *ncpu_copy_vectors(void);

// The value of a variable, or null. Takes no lock, and may be called in a signal handler.
char *ncpu_getenv(const char *name);

// As `ncpu_getenv`, but null in a set-user-ID, set-group-ID or otherwise privileged program.
char *ncpu_secure_getenv(const char *name);

// Sets a variable; one that is there keeps its value if `overwrite` is 0. EINVAL for a name that cannot be one.
int ncpu_setenv(const char *name, const char *value, int overwrite);

// Makes `entry`, "NAME=VALUE", itself part of the environment; without a '=' removes the variable of that name.
int ncpu_putenv(char *entry);

// Removes a variable, which need not be there. EINVAL for a name that cannot be one.
int ncpu_unsetenv(const char *name);

// Removes all variables.
int ncpu_clearenv(void);

// Makes a segment and all its pages, locked where NCPU_LOCKED asks for it, and puts it into `segment`. On an error
// nothing is left, and `why`, which may be null, tells what failed.
int ncpu_segment_create(const ncpu_segment_options_t *options, ncpu_segment_t **segment, ncpu_failure_t *why);

// The segment's first byte; null for null.
void *ncpu_segment_address(const ncpu_segment_t *segment);

// The segment's bytes, whole pages; 0 for null.
uint64_t ncpu_segment_size(const ncpu_segment_t *segment);

// The descriptor of a memfd or POSIX segment, the identifier of a SysV one; -1 for private memory and null.
int ncpu_segment_handle(const ncpu_segment_t *segment);

// Takes the segment out of the address space and gives it back, with helpers. The first error is returned, though the
// segment is gone. Null is nothing.
int ncpu_segment_destroy(ncpu_segment_t *segment, ncpu_failure_t *why);

// Makes the pages of any memory of the process, as by writing if `write` is not 0, else as by reading; contents stay.
int ncpu_populate(void *at, size_t size, int write, uint32_t most, ncpu_failure_t *why);

// mlock, whose pages are made by helpers.
int ncpu_mlock(const void *at, size_t size, uint32_t most, ncpu_failure_t *why);

// munmap, whose pages are freed by helpers.
int ncpu_munmap(void *at, size_t size, uint32_t most, ncpu_failure_t *why);

// Writes `word` over and over, from the first byte on, cut off at the end: 0 zeroes. By helpers near the memory.
int ncpu_fill(void *at, size_t size, uint64_t word, uint32_t most);

// Compares every word of 8 bytes with `word`, by helpers near the memory.
int ncpu_scan(const void *at, size_t size, uint64_t word, uint32_t most, ncpu_scan_t *found);

// The stack biases of threads are multiples of 64 bytes below `bytes`, which is a multiple of 64 up to 65536; 0 is no
// bias, 4096 the value at first. EINVAL for others.
int ncpu_stack_bias_span(uint64_t bytes);

// The bias for another thread, in bytes.
uint64_t ncpu_stack_bias_next(void);

// Calls `start` with the stack `bias` bytes lower (rounded down to 64) and returns what it returns: for the first
// function of threads that something else starts. Null `start` returns null.
void *ncpu_stack_bias_call(ncpu_thread_start_t start, void *argument, uint64_t bias);

// As pthread_create, with the next stack bias. The bias is taken from the stack: EINVAL if `attr` asks for one of less
// than four times the span.
int ncpu_thread_create(pthread_t *thread,
                       const pthread_attr_t *attr,
                       ncpu_thread_start_t start,
                       void *argument);

// New timers, or null with errno set. No thread is started before a timer is armed.
ncpu_timers_t *ncpu_timers_create(void);

// Waits for callbacks that are running and ends the helper threads. Timers that are armed never expire then, and are
// to be initialised before they are used again. Null is nothing; EDEADLK, and nothing changes, in a callback.
int ncpu_timers_destroy(ncpu_timers_t *timers);

// Initialises a timer, which must not be armed.
int ncpu_timer_init(ncpu_timer_t *timer, ncpu_timer_callback_t callback, void *data);

// Arms a timer to expire on this CPU in `after_ns` ns, up to `slack_ns` later if that saves a wake-up; one that is
// armed is moved. EINVAL if it was not initialised. The first timer of a CPU may fail with ENOMEM, EMFILE, ENFILE or
// EAGAIN (no more threads); the timer is not armed then.
int ncpu_timer_arm(ncpu_timers_t *timers, ncpu_timer_t *timer, uint64_t after_ns, uint64_t slack_ns);

// As `ncpu_timer_arm`, at a time of CLOCK_MONOTONIC; at once if it has passed.
int ncpu_timer_arm_at(ncpu_timers_t *timers, ncpu_timer_t *timer, const struct timespec *at, uint64_t slack_ns);

// As `ncpu_timer_arm`, and again each `period_ns` (at least 1000; 0 is once) until it is cancelled.
int ncpu_timer_arm_every(ncpu_timers_t *timers,
                         ncpu_timer_t *timer,
                         uint64_t after_ns,
                         uint64_t period_ns,
                         uint64_t slack_ns);

// Cancels a timer, from any CPU: its callback will not be called. ENOENT if it was not armed: its callback has been
// called, and perhaps is running still.
int ncpu_timer_cancel(ncpu_timers_t *timers, ncpu_timer_t *timer);

// Cancels a timer and waits until its callback is not running, so that it can be freed. 0, or ENOENT if it was not
// armed. EDEADLK in its own callback, which cannot be waited for: the timer is not armed then.
int ncpu_timer_cancel_wait(ncpu_timers_t *timers, ncpu_timer_t *timer);

// 1 if a timer is armed, else 0. Old news, unless the caller knows better.
int ncpu_timer_is_armed(ncpu_timers_t *timers, ncpu_timer_t *timer);

// What happened so far. O(CPUs).
int ncpu_timers_activity(ncpu_timers_t *timers, ncpu_timers_activity_t *activity);

// A new arena of nothing, or null with errno set: EINVAL, ENOMEM. With a `parent` it imports from that what it lacks,
// gives each span back when that is all free, and must be destroyed first.
ncpu_vmem_t *ncpu_vmem_create(const ncpu_vmem_options_t *options, const ncpu_vmem_t *parent);

// Ends an arena. What it has imported goes back, but for spans of which something is still handed out. Null is nothing.
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

#if defined(__SANITIZE_THREAD__)
#include "ncpu_tsan.h"
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#include "ncpu_tsan.h"
#endif
#endif
