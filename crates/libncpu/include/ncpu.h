// libncpu: synchronisation primitives that keep scaling. SPDX-License-Identifier: MIT OR Apache-2.0
// Generated from src/capi.rs: BLESS=1 cargo test -p libncpu --test header

#ifndef NCPU_H
#define NCPU_H

#include <pthread.h>
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

// A timing wheel for each CPU.
typedef struct ncpu_timers_t ncpu_timers_t;

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
void ncpu_numa_destroy(ncpu_numa_t *lock);

// Takes the lock. `node` stays where it is until the unlock.
int ncpu_numa_lock(ncpu_numa_t *lock, ncpu_numa_node_t *node);

// Passes the lock on.
int ncpu_numa_unlock(ncpu_numa_t *lock, ncpu_numa_node_t *node);

// A new reader-writer lock, or null with errno set. 128 bytes per possible CPU.
ncpu_rwlock_t *ncpu_rwlock_create(void);

// Ends a lock that nobody holds or waits for. Null is nothing.
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
void ncpu_bounded_destroy(ncpu_bounded_t *counter);

// Takes `n`, or returns EDQUOT if less than that is free.
int ncpu_bounded_take(ncpu_bounded_t *counter, uint64_t n);

// Gives back `n` of what was taken. ERANGE, and nothing changes, if so much cannot have been taken.
int ncpu_bounded_give(ncpu_bounded_t *counter, uint64_t n);

// What is taken: exact if nobody takes or gives meanwhile. 0 for null.
uint64_t ncpu_bounded_read(const ncpu_bounded_t *counter);

// What is taken at one moment during the call; stops takes and gives while it adds up. 0 for null.
uint64_t ncpu_bounded_read_exact(const ncpu_bounded_t *counter);

// Changes the limit. Returns by how much what is taken exceeds it now; nobody can take until that was given back.
uint64_t ncpu_bounded_set_limit(ncpu_bounded_t *counter, uint64_t limit);

// A new counter of 0, or null with errno set.
ncpu_counter_t *ncpu_counter_create(void);

// Ends a counter. Null is nothing.
void ncpu_counter_destroy(ncpu_counter_t *counter);

// Adds `n`, which may be negative.
int ncpu_counter_add(ncpu_counter_t *counter, int64_t n);

// The sum over all CPUs. 0 for null.
int64_t ncpu_counter_sum(const ncpu_counter_t *counter);

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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NCPU_H */
