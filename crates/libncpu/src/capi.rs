//! The C interface: `include/ncpu.h` is generated from this file (`cbindgen.toml`).
//!
//! Functions return 0 or an error of `<errno.h>`. A null pointer is `EINVAL`. Debug builds remember what each thread
//! holds ([`crate::held`]): there an unlock by a thread that does not hold the lock is `EPERM`, and taking a lock that
//! the thread holds already `EDEADLK`; nothing changes in either case.

use crate::bounded::BoundedCounter;
use crate::counter::Counter;
use crate::held::{self, Hold, How};
use crate::mcs::{McsNode, RawMcs};
use crate::numa_lock::{Held, RawNumaLock};
use crate::percpu::{OutOfMemory, one};
use crate::raw_mutex::RawMutex;
use crate::raw_rwlock::RawRwLock;
use crate::robust::{NotTaken, RobustMutex, Taken};
use crate::sys::Instant;
use libc::{EBUSY, EDEADLK, EINVAL, EOWNERDEAD, EPERM, ETIMEDOUT, c_int, timespec};

/// An adaptive mutex. Zeroed is initialised, for threads of one process.
#[repr(C)]
pub struct ncpu_mutex_t {
    opaque: [u32; 4],
}

/// A mutex that survives its owner. Zeroed is initialised, for threads and processes.
#[repr(C)]
pub struct ncpu_robust_t {
    opaque: u32,
}

/// A queue lock: first come, first served. Zeroed is initialised.
#[repr(C)]
pub struct ncpu_mcs_t {
    opaque: *mut u8,
}

/// A waiter's place in a queue, usually on its stack; one for each lock that a thread holds or waits for.
#[repr(C)]
pub struct ncpu_mcs_node_t {
    opaque: [u64; 8],
}

/// A queue lock that prefers threads of the owner's NUMA node.
pub struct ncpu_numa_t(RawNumaLock);

/// Like `ncpu_mcs_node_t`, for `ncpu_numa_t`.
#[repr(C)]
pub struct ncpu_numa_node_t {
    node: ncpu_mcs_node_t,
    held: [u64; 2],
}

/// A reader-writer lock whose readers share nothing.
pub struct ncpu_rwlock_t(RawRwLock);

/// A counter with a hard limit.
pub struct ncpu_bounded_t(BoundedCounter);

/// A counter without a limit, on a cache line for each CPU.
pub struct ncpu_counter_t(Counter);

/// For `ncpu_mutex_init`: the mutex lies in memory that several processes map.
pub const NCPU_SHARED: u32 = 1;

const _: () = assert!(size_of::<ncpu_mutex_t>() == size_of::<RawMutex>() && align_of::<RawMutex>() == 4);
const _: () = assert!(size_of::<ncpu_robust_t>() == size_of::<RobustMutex>());
const _: () = assert!(size_of::<ncpu_mcs_t>() == size_of::<RawMcs>());
const _: () = assert!(size_of::<ncpu_mcs_node_t>() == size_of::<McsNode>());
const _: () = assert!(size_of::<[u64; 2]>() >= size_of::<Held>() && align_of::<Held>() <= 8);

/// Turns a pointer of C's into a reference of Rust's, or returns `EINVAL`.
macro_rules! object {
    ($pointer:expr) => {
        match unsafe { $pointer.as_ref() } {
            Some(object) => &object.0,
            None => return EINVAL,
        }
    };
    ($pointer:expr, $type:ty) => {
        match unsafe { $pointer.cast::<$type>().as_ref() } {
            Some(object) => object,
            None => return EINVAL,
        }
    };
}

/// Reads an absolute CLOCK_MONOTONIC time, or returns `EINVAL`.
macro_rules! deadline {
    ($time:expr) => {
        match unsafe { $time.as_ref() }.and_then(|t| Instant::from_timespec(t.tv_sec, t.tv_nsec)) {
            Some(deadline) => deadline,
            None => return EINVAL,
        }
    };
}

/// Returns `EDEADLK` if the thread would wait for itself: debug builds know.
macro_rules! not_by_itself {
    ($hold:expr) => {
        if !held::may_wait($hold) {
            return EDEADLK;
        }
    };
}

/// Returns `EPERM` if the thread does not hold the lock: debug builds know.
macro_rules! holder {
    ($hold:expr) => {
        if !held::gives($hold) {
            return EPERM;
        }
    };
}

pub mod copy;
pub mod env;
pub mod segments;
pub mod stack_bias;
pub mod timer;
pub mod vmem;

/// Notes that a try or a timed wait took a lock, and what to return.
fn remember(taken: bool, hold: Hold, otherwise: c_int) -> c_int {
    if !taken {
        return otherwise;
    }
    held::took(hold);
    0
}

/// How a thread holds a mutex.
fn of_mutex(mutex: &RawMutex) -> Hold {
    let shared = cfg!(debug_assertions) && mutex.is_shared();
    if shared { Hold::shared_by_processes(mutex) } else { Hold::new(mutex, How::Alone) }
}

/// Initialises a mutex. `flags` is 0 or NCPU_SHARED; others are EINVAL.
///
/// # Safety
/// `mutex` is null or points to writable memory that nobody uses as a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_init(mutex: *mut ncpu_mutex_t, flags: u32) -> c_int {
    if mutex.is_null() || flags & !NCPU_SHARED != 0 {
        return EINVAL;
    }
    let new = if flags & NCPU_SHARED != 0 { RawMutex::new_shared() } else { RawMutex::new() };
    held::forget(mutex.cast::<RawMutex>());
    unsafe { mutex.cast::<RawMutex>().write(new) };
    0
}

/// Takes the mutex, waiting as long as it takes. A thread that holds it already waits for itself forever; in debug
/// builds of the library that is EDEADLK.
///
/// # Safety
/// `mutex` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_lock(mutex: *mut ncpu_mutex_t) -> c_int {
    let mutex = object!(mutex, RawMutex);
    let hold = of_mutex(mutex);
    not_by_itself!(hold);
    mutex.lock();
    held::took(hold);
    0
}

/// Takes the mutex, or returns EBUSY if it is locked.
///
/// # Safety
/// `mutex` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_trylock(mutex: *mut ncpu_mutex_t) -> c_int {
    let mutex = object!(mutex, RawMutex);
    remember(mutex.try_lock(), of_mutex(mutex), EBUSY)
}

/// Takes the mutex, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
///
/// # Safety
/// `mutex` is null or initialised, `deadline` null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_timedlock(mutex: *mut ncpu_mutex_t, deadline: *const timespec) -> c_int {
    let mutex = object!(mutex, RawMutex);
    let (deadline, hold) = (deadline!(deadline), of_mutex(mutex));
    not_by_itself!(hold);
    remember(mutex.try_lock_until(deadline), hold, ETIMEDOUT)
}

/// Frees the mutex. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds of the library
/// also if another thread holds it.
///
/// # Safety
/// `mutex` is null or initialised; if it is locked, then by the calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_unlock(mutex: *mut ncpu_mutex_t) -> c_int {
    let mutex = object!(mutex, RawMutex);
    if !mutex.is_locked() {
        return EPERM;
    }
    holder!(of_mutex(mutex));
    unsafe { mutex.unlock() };
    0
}

/// Ends the use of a mutex, whose memory can then be used for something else. EBUSY if it is locked.
///
/// # Safety
/// `mutex` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_destroy(mutex: *mut ncpu_mutex_t) -> c_int {
    if object!(mutex, RawMutex).is_locked() { EBUSY } else { 0 }
}

/// Frees the mutex in a child process after fork, whoever held it in the parent: for pthread_atfork's child handler.
///
/// # Safety
/// `mutex` is null or initialised; the process has one thread; what the mutex protects is consistent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_after_fork(mutex: *mut ncpu_mutex_t) -> c_int {
    let mutex = object!(mutex, RawMutex);
    held::forget(mutex);
    unsafe { mutex.reset_after_fork() };
    0
}

fn taken(taken: Result<Taken, NotTaken>) -> c_int {
    match taken {
        Ok(Taken::Clean) => 0,
        Ok(Taken::OwnerDied) => EOWNERDEAD,
        Err(NotTaken::Deadlock) => EDEADLK,
        Err(NotTaken::TimedOut) => ETIMEDOUT,
        Err(NotTaken::Busy) => EBUSY,
    }
}

/// Initialises a robust mutex.
///
/// # Safety
/// `mutex` is null or points to writable memory that nobody uses as a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_robust_init(mutex: *mut ncpu_robust_t) -> c_int {
    if mutex.is_null() {
        return EINVAL;
    }
    unsafe { mutex.cast::<RobustMutex>().write(RobustMutex::new()) };
    0
}

/// Takes a robust mutex. EOWNERDEAD: it was taken over from an owner that ended while it held it; mend the data.
/// EDEADLK, and nothing changes: the calling thread holds it already.
///
/// # Safety
/// `mutex` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_robust_lock(mutex: *mut ncpu_robust_t) -> c_int {
    taken(object!(mutex, RobustMutex).lock(None))
}

/// Takes a robust mutex if it is free or its owner has ended (EOWNERDEAD); else EBUSY.
///
/// # Safety
/// `mutex` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_robust_trylock(mutex: *mut ncpu_robust_t) -> c_int {
    taken(object!(mutex, RobustMutex).try_lock())
}

/// Takes a robust mutex, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first. Else as
/// ncpu_robust_lock.
///
/// # Safety
/// `mutex` is null or initialised, `deadline` null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_robust_timedlock(
    mutex: *mut ncpu_robust_t,
    deadline: *const timespec,
) -> c_int {
    let mutex = object!(mutex, RobustMutex);
    taken(mutex.lock(Some(deadline!(deadline))))
}

/// Frees a robust mutex. EPERM, and nothing changes, if the calling thread does not hold it.
///
/// # Safety
/// `mutex` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_robust_unlock(mutex: *mut ncpu_robust_t) -> c_int {
    if object!(mutex, RobustMutex).unlock() { 0 } else { EPERM }
}

/// Puts an object on the heap, or sets errno to ENOMEM and returns null.
fn create<T>(made: Result<T, OutOfMemory>) -> *mut T {
    match made.and_then(one) {
        Ok(made) => Box::into_raw(made),
        Err(_) => fail(libc::ENOMEM),
    }
}

/// Null, with errno set.
fn fail<T>(error: c_int) -> *mut T {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = error };
    std::ptr::null_mut()
}

/// Takes an object off the heap again; null is nothing.
unsafe fn destroy<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: from `create`, by the caller's promise.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// Takes the lock after all that came before. `node` stays where it is until the unlock. A thread that holds it
/// already waits for itself forever; in debug builds that is EDEADLK, and a node by which it holds another lock EINVAL.
///
/// # Safety
/// `lock` is null or initialised; `node` is null or writable memory that no lock uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mcs_lock(lock: *mut ncpu_mcs_t, node: *mut ncpu_mcs_node_t) -> c_int {
    let lock = object!(lock, RawMcs);
    not_by_itself!(Hold::new(lock, How::Alone));
    let node = match unsafe { place(node) } {
        Some(node) => node,
        None => return EINVAL,
    };
    unsafe { lock.lock(node) };
    held::took(Hold::by_node(lock, node));
    0
}

/// Takes the lock, or returns EBUSY if it is locked.
///
/// # Safety
/// As for `ncpu_mcs_lock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mcs_trylock(lock: *mut ncpu_mcs_t, node: *mut ncpu_mcs_node_t) -> c_int {
    let lock = object!(lock, RawMcs);
    let node = match unsafe { place(node) } {
        Some(node) => node,
        None => return EINVAL,
    };
    remember(unsafe { lock.try_lock(node) }, Hold::by_node(lock, node), EBUSY)
}

/// Passes the lock on. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds also if the
/// calling thread does not hold it by this node.
///
/// # Safety
/// If the lock is locked, then by the calling thread and this node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mcs_unlock(lock: *mut ncpu_mcs_t, node: *mut ncpu_mcs_node_t) -> c_int {
    let lock = object!(lock, RawMcs);
    let node = object!(node, McsNode);
    if !lock.is_locked() {
        return EPERM;
    }
    holder!(Hold::by_node(lock, node));
    unsafe { lock.unlock(node) };
    0
}

/// A new node where C has one.
unsafe fn place<'a>(node: *mut ncpu_mcs_node_t) -> Option<&'a McsNode> {
    let node = node.cast::<McsNode>();
    if node.is_null() || !held::is_free(node as usize) {
        return None;
    }
    unsafe {
        node.write(McsNode::new());
        node.as_ref()
    }
}

/// A new lock with a queue for each NUMA node, or null with errno set.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_numa_create() -> *mut ncpu_numa_t {
    create(RawNumaLock::new().map(ncpu_numa_t))
}

/// Ends a lock that nobody holds or waits for. Null is nothing.
///
/// # Safety
/// `lock` is null or from `ncpu_numa_create`, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_numa_destroy(lock: *mut ncpu_numa_t) {
    held::forget(lock);
    unsafe { destroy(lock) }
}

/// Takes the lock. `node` stays where it is until the unlock. As for ncpu_mcs_lock in debug builds.
///
/// # Safety
/// `lock` is null or a lock; `node` is null or writable memory that no lock uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_numa_lock(lock: *mut ncpu_numa_t, node: *mut ncpu_numa_node_t) -> c_int {
    let hold = Hold::by_node(lock, node);
    let raw = object!(lock);
    not_by_itself!(Hold::new(lock, How::Alone));
    if node.is_null() {
        return EINVAL;
    }
    unsafe {
        let Some(place) = place(&raw mut (*node).node) else { return EINVAL };
        let held = raw.lock(place);
        (&raw mut (*node).held).cast::<Held>().write(held);
    }
    held::took(hold);
    0
}

/// Passes the lock on. EPERM, and nothing changes, if it is not locked: a double unlock; in debug builds also if the
/// calling thread does not hold it by this node.
///
/// # Safety
/// If the lock is locked, then by the calling thread and this node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_numa_unlock(lock: *mut ncpu_numa_t, node: *mut ncpu_numa_node_t) -> c_int {
    let raw = object!(lock);
    if node.is_null() {
        return EINVAL;
    }
    if !raw.is_locked() {
        return EPERM;
    }
    holder!(Hold::by_node(lock, node));
    unsafe {
        let held = (&raw const (*node).held).cast::<Held>().read();
        raw.unlock(&*(&raw const (*node).node).cast::<McsNode>(), held);
    }
    0
}

/// A new reader-writer lock, or null with errno set. 128 bytes per possible CPU.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_rwlock_create() -> *mut ncpu_rwlock_t {
    create(RawRwLock::new().map(ncpu_rwlock_t))
}

/// Ends a lock that nobody holds or waits for. Null is nothing.
///
/// # Safety
/// `lock` is null or from `ncpu_rwlock_create`, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_destroy(lock: *mut ncpu_rwlock_t) {
    held::forget(lock);
    unsafe { destroy(lock) }
}

/// Takes the lock for reading. A thread that reads and asks again may wait for a writer that waits for it. One that
/// writes waits for itself forever; in debug builds that is EDEADLK.
///
/// # Safety
/// `lock` is null or a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_rdlock(lock: *mut ncpu_rwlock_t) -> c_int {
    let (raw, hold) = (object!(lock), Hold::new(lock, How::Shared));
    not_by_itself!(hold);
    raw.read();
    held::took(hold);
    0
}

/// Takes the lock for reading, or returns EBUSY if a writer has it or waits for it.
///
/// # Safety
/// `lock` is null or a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_tryrdlock(lock: *mut ncpu_rwlock_t) -> c_int {
    remember(object!(lock).try_read().is_some(), Hold::new(lock, How::Shared), EBUSY)
}

/// Ends reading. In debug builds EPERM, and nothing changes, if the calling thread does not read; in others that
/// cannot be told, and the lock is then open to readers and writers at once.
///
/// # Safety
/// `lock` is null or held for reading by this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_rdunlock(lock: *mut ncpu_rwlock_t) -> c_int {
    let raw = object!(lock);
    holder!(Hold::new(lock, How::Shared));
    unsafe { raw.unlock_read(None) };
    0
}

/// Takes the lock for writing. A thread that holds it already, in either way, waits for itself forever; in debug
/// builds that is EDEADLK.
///
/// # Safety
/// `lock` is null or a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_wrlock(lock: *mut ncpu_rwlock_t) -> c_int {
    let (raw, hold) = (object!(lock), Hold::new(lock, How::Alone));
    not_by_itself!(hold);
    raw.write();
    held::took(hold);
    0
}

/// Takes the lock for writing, or returns EBUSY if anybody has it.
///
/// # Safety
/// `lock` is null or a lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_trywrlock(lock: *mut ncpu_rwlock_t) -> c_int {
    remember(object!(lock).try_write(), Hold::new(lock, How::Alone), EBUSY)
}

/// Ends writing. EPERM, and nothing changes, if the lock is not held for writing; in debug builds also if another
/// thread holds it.
///
/// # Safety
/// `lock` is null or a lock; if it is held for writing, then by this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_rwlock_wrunlock(lock: *mut ncpu_rwlock_t) -> c_int {
    let raw = object!(lock);
    if !raw.is_closed() {
        return EPERM;
    }
    holder!(Hold::new(lock, How::Alone));
    unsafe { raw.unlock_write() };
    0
}

/// A new counter of which at most `limit` can be taken, or null with errno set.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_bounded_create(limit: u64) -> *mut ncpu_bounded_t {
    create(BoundedCounter::new(limit).map(ncpu_bounded_t))
}

/// Ends a counter. Null is nothing.
///
/// # Safety
/// `counter` is null or from `ncpu_bounded_create`, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_destroy(counter: *mut ncpu_bounded_t) {
    unsafe { destroy(counter) }
}

/// Takes `n`, or returns EDQUOT if less than that is free.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_take(counter: *mut ncpu_bounded_t, n: u64) -> c_int {
    if object!(counter).take(n) { 0 } else { libc::EDQUOT }
}

/// Gives back `n` of what was taken. ERANGE, and nothing changes, if so much cannot have been taken.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_give(counter: *mut ncpu_bounded_t, n: u64) -> c_int {
    if object!(counter).give(n) { 0 } else { libc::ERANGE }
}

/// What is taken: exact if nobody takes or gives meanwhile. 0 for null.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_read(counter: *const ncpu_bounded_t) -> u64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| counter.0.read())
}

/// What is taken at one moment during the call; stops takes and gives while it adds up. 0 for null.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_read_exact(counter: *const ncpu_bounded_t) -> u64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| counter.0.read_exact())
}

/// Changes the limit. Returns by how much what is taken exceeds it now; nobody can take until that was given back.
///
/// # Safety
/// `counter` is null (0 is returned) or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_bounded_set_limit(counter: *mut ncpu_bounded_t, limit: u64) -> u64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| counter.0.set_limit(limit))
}

/// A new counter of 0, or null with errno set.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_counter_create() -> *mut ncpu_counter_t {
    create(Counter::new().map(ncpu_counter_t))
}

/// Ends a counter. Null is nothing.
///
/// # Safety
/// `counter` is null or from `ncpu_counter_create`, and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_counter_destroy(counter: *mut ncpu_counter_t) {
    unsafe { destroy(counter) }
}

/// Adds `n`, which may be negative.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_counter_add(counter: *mut ncpu_counter_t, n: i64) -> c_int {
    object!(counter).add(n);
    0
}

/// The sum over all CPUs. 0 for null.
///
/// # Safety
/// `counter` is null or a counter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_counter_sum(counter: *const ncpu_counter_t) -> i64 {
    unsafe { counter.as_ref() }.map_or(0, |counter| counter.0.sum())
}
