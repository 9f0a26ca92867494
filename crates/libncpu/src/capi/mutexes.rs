//! The adaptive and the robust mutex for C.

use super::remember;
use crate::held::{self, Hold, How};
use crate::raw_mutex::RawMutex;
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

/// For `ncpu_mutex_init`: the mutex lies in memory that several processes map.
pub const NCPU_SHARED: u32 = 1;

const _: () = assert!(size_of::<ncpu_mutex_t>() == size_of::<RawMutex>() && align_of::<RawMutex>() == 4);
const _: () = assert!(size_of::<ncpu_robust_t>() == size_of::<RobustMutex>());

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
