//! The adaptive and the robust mutex for C.

use crate::held::{self, Hold, How};
use crate::remember;
use libc::{EBUSY, EDEADLK, EINVAL, EOWNERDEAD, EPERM, ETIMEDOUT, c_int, timespec};
use libncpu::Condvar;
use libncpu::Instant;
use libncpu::locks::raw_mutex::RawMutex;
use libncpu::locks::robust::{NotTaken, RobustMutex, Taken};

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
/// For `ncpu_mutex_init`: bounds how often a sleeping thread is overtaken. Not with NCPU_SHARED.
pub const NCPU_FAIR: u32 = 2;

/// A condition variable for `ncpu_mutex_t`. Zeroed is initialised, for threads and processes.
#[repr(C)]
pub struct ncpu_cond_t {
    opaque: [u32; 2],
}

const _: () = assert!(size_of::<ncpu_cond_t>() == size_of::<Condvar>());

const _: () = assert!(size_of::<ncpu_mutex_t>() == size_of::<RawMutex>() && align_of::<RawMutex>() == 4);
const _: () = assert!(size_of::<ncpu_robust_t>() == size_of::<RobustMutex>());

/// How a thread holds a mutex.
fn of_mutex(mutex: &RawMutex) -> Hold {
    let shared = cfg!(debug_assertions) && mutex.is_shared();
    if shared { Hold::shared_by_processes(mutex) } else { Hold::new(mutex, How::Alone) }
}

/// Initialises a mutex. `flags` is 0, NCPU_SHARED or NCPU_FAIR; others are EINVAL.
///
/// # Safety
/// `mutex` is null or points to writable memory that is not in use as a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_init(mutex: *mut ncpu_mutex_t, flags: u32) -> c_int {
    if mutex.is_null() {
        return EINVAL;
    }
    let new = match flags {
        0 => RawMutex::new(),
        NCPU_SHARED => RawMutex::new_shared(),
        NCPU_FAIR => RawMutex::new_fair(),
        _ => return EINVAL,
    };
    held::forget(mutex.cast::<RawMutex>());
    unsafe { mutex.cast::<RawMutex>().write(new) };
    0
}

/// Takes the mutex, waiting without limit. A thread that already holds the mutex waits for itself forever; in
/// debug builds of the library that is EDEADLK.
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

/// Frees the mutex as ncpu_mutex_unlock does. If threads sleep, it is reserved for the one that is being
/// woken or has slept longest. For a mutex that processes share this is a plain unlock.
///
/// # Safety
/// As for `ncpu_mutex_unlock`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_unlock_fair(mutex: *mut ncpu_mutex_t) -> c_int {
    let mutex = object!(mutex, RawMutex);
    if !mutex.is_locked() {
        return EPERM;
    }
    holder!(of_mutex(mutex));
    unsafe { mutex.unlock_fair() };
    0
}

/// Frees the mutex, waits for a notification and takes the mutex again. May return without a notification, so
/// check the condition again. EPERM if the mutex is not locked.
///
/// # Safety
/// Both are null or initialised; the calling thread holds the mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_cond_wait(cond: *mut ncpu_cond_t, mutex: *mut ncpu_mutex_t) -> c_int {
    let (cond, mutex) = (object!(cond, Condvar), object!(mutex, RawMutex));
    if !mutex.is_locked() {
        return EPERM;
    }
    unsafe { cond.wait_raw(mutex, None) };
    0
}

/// As ncpu_cond_wait; ETIMEDOUT, with the mutex held, if `deadline`, a time of CLOCK_MONOTONIC, passes first.
///
/// # Safety
/// As for `ncpu_cond_wait`; `deadline` is null or readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_cond_timedwait(
    cond: *mut ncpu_cond_t,
    mutex: *mut ncpu_mutex_t,
    deadline: *const timespec,
) -> c_int {
    let (cond, mutex, deadline) = (object!(cond, Condvar), object!(mutex, RawMutex), deadline!(deadline));
    if !mutex.is_locked() {
        return EPERM;
    }
    if unsafe { cond.wait_raw(mutex, Some(deadline)) } { 0 } else { ETIMEDOUT }
}

/// Wakes one thread that waits, if there is one.
///
/// # Safety
/// `cond` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_cond_signal(cond: *mut ncpu_cond_t) -> c_int {
    object!(cond, Condvar).notify_one();
    0
}

/// Wakes all threads that wait.
///
/// # Safety
/// `cond` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_cond_broadcast(cond: *mut ncpu_cond_t) -> c_int {
    object!(cond, Condvar).notify_all();
    0
}

/// Ends the use of a mutex, so that its memory can be reused. EBUSY if it is locked.
///
/// # Safety
/// `mutex` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_mutex_destroy(mutex: *mut ncpu_mutex_t) -> c_int {
    if object!(mutex, RawMutex).is_locked() { EBUSY } else { 0 }
}

/// Frees the mutex in a child process after fork, whatever thread of the parent held it: for pthread_atfork's
/// child handler.
///
/// # Safety
/// `mutex` is null or initialised; the process has one thread; the data that the mutex protects are
/// consistent.
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
/// `mutex` is null or points to writable memory that is not in use as a mutex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_robust_init(mutex: *mut ncpu_robust_t) -> c_int {
    if mutex.is_null() {
        return EINVAL;
    }
    unsafe { mutex.cast::<RobustMutex>().write(RobustMutex::new()) };
    0
}

/// Frees a robust mutex in private memory in a child process after fork, whatever thread of the parent held
/// it: for pthread_atfork's child handler. Not for a mutex in memory that the parent shares.
///
/// # Safety
/// `mutex` is null or initialised; the process has one thread; the data that the mutex protects are
/// consistent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_robust_after_fork(mutex: *mut ncpu_robust_t) -> c_int {
    let mutex = object!(mutex, RobustMutex);
    unsafe { mutex.reset_after_fork() };
    0
}

/// Takes a robust mutex. EOWNERDEAD: it was taken over from an owner that ended while it held the mutex;
/// repair the data. EDEADLK, and nothing changes: the calling thread already holds it.
///
/// # Safety
/// `mutex` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_robust_lock(mutex: *mut ncpu_robust_t) -> c_int {
    taken(object!(mutex, RobustMutex).lock(None))
}

/// Takes a robust mutex if it is free or its owner has ended (EOWNERDEAD); otherwise EBUSY.
///
/// # Safety
/// `mutex` is null or initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_robust_trylock(mutex: *mut ncpu_robust_t) -> c_int {
    taken(object!(mutex, RobustMutex).try_lock())
}

/// Takes a robust mutex, or returns ETIMEDOUT if `deadline`, a time of CLOCK_MONOTONIC, passes first.
/// Otherwise as ncpu_robust_lock.
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
