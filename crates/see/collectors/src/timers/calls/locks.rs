//! Calls that wait for a lock, a condition, a semaphore or a thread.

use std::cell::UnsafeCell;
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::ptr::null;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::{Wait, deadline, timespec, waited, waited_by_value};

unsafe extern "C" {
    fn pthread_mutex_timedlock(lock: *mut libc::pthread_mutex_t, until: *const libc::timespec) -> i32;
    fn pthread_rwlock_timedrdlock(lock: *mut libc::pthread_rwlock_t, until: *const libc::timespec) -> i32;
    fn pthread_rwlock_timedwrlock(lock: *mut libc::pthread_rwlock_t, until: *const libc::timespec) -> i32;
}

/// A C object that stays where it is.
struct Shared<T>(Box<UnsafeCell<T>>);

// SAFETY: only handed to functions of the C library made to be called by several threads.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    fn new(value: T) -> Shared<T> {
        Shared(Box::new(UnsafeCell::new(value)))
    }

    fn get(&self) -> *mut T {
        self.0.get()
    }
}

const PRIVATE: i32 = libc::FUTEX_PRIVATE_FLAG;

pub fn futex_wait() -> io::Result<Wait> {
    let word = Shared::new(0u32);
    Ok(Box::new(move |ns| {
        let t = timespec(ns);
        // SAFETY: a live word that nobody changes or wakes, and a live local.
        waited(unsafe {
            libc::syscall(libc::SYS_futex, word.get(), libc::FUTEX_WAIT | PRIVATE, 0, &raw const t)
        })
    }))
}

pub fn futex_wait_bitset() -> io::Result<Wait> {
    let word = Shared::new(0u32);
    Ok(Box::new(move |ns| {
        let t = deadline(libc::CLOCK_MONOTONIC, ns);
        let (op, none) = (libc::FUTEX_WAIT_BITSET | PRIVATE, null::<u32>());
        // SAFETY: as above; the mask matches any waker.
        waited(unsafe { libc::syscall(libc::SYS_futex, word.get(), op, 0, &raw const t, none, u32::MAX) })
    }))
}

/// `struct futex_waitv`.
#[repr(C)]
struct WaitV {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

pub fn futex_waitv() -> io::Result<Wait> {
    let word = Shared::new(0u32);
    Ok(Box::new(move |ns| {
        let t = deadline(libc::CLOCK_MONOTONIC, ns);
        let size_u32 = 2;
        let flags = size_u32 | PRIVATE as u32;
        let list = WaitV { value: 0, address: word.get() as u64, flags, reserved: 0 };
        // SAFETY: a list of one live word, and a live local.
        waited(unsafe {
            libc::syscall(libc::SYS_futex_waitv, &raw const list, 1, 0, &raw const t, libc::CLOCK_MONOTONIC)
        })
    }))
}

pub fn sem_timedwait() -> io::Result<Wait> {
    // SAFETY: zeroed memory may be initialised as a semaphore.
    let sem = Shared::new(unsafe { std::mem::zeroed::<libc::sem_t>() });
    // SAFETY: boxed, so it stays where it is.
    waited(unsafe { libc::sem_init(sem.get(), 0, 0) })?;
    Ok(Box::new(move |ns| {
        let t = deadline(libc::CLOCK_REALTIME, ns);
        // SAFETY: initialised above; a live local.
        waited(unsafe { libc::sem_timedwait(sem.get(), &raw const t) })
    }))
}

pub fn cond_timedwait() -> io::Result<Wait> {
    let pair = Shared::new((libc::PTHREAD_COND_INITIALIZER, libc::PTHREAD_MUTEX_INITIALIZER));
    Ok(Box::new(move |ns| {
        let t = deadline(libc::CLOCK_REALTIME, ns);
        let pair = pair.get();
        // SAFETY: both are initialised and live; the mutex is ours alone and held while we wait.
        waited_by_value(unsafe {
            libc::pthread_mutex_lock(&raw mut (*pair).1);
            let result = libc::pthread_cond_timedwait(&raw mut (*pair).0, &raw mut (*pair).1, &raw const t);
            libc::pthread_mutex_unlock(&raw mut (*pair).1);
            result
        })
    }))
}

/// A thread that stays until this is dropped, having done what it was made for.
struct Stays {
    thread: Option<JoinHandle<()>>,
    until: Option<Sender<()>>,
}

impl Stays {
    fn new(first: impl FnOnce() + Send + 'static, last: impl FnOnce() + Send + 'static) -> Stays {
        let (until, end) = channel::<()>();
        let (ready, done) = channel::<()>();
        let thread = std::thread::spawn(move || {
            first();
            drop(ready);
            let _ = end.recv();
            last();
        });
        let _ = done.recv();
        Stays { thread: Some(thread), until: Some(until) }
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        self.until = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A lock and the thread that holds it; the thread goes first.
struct Held<T> {
    _holder: Stays,
    lock: Shared<T>,
}

impl<T: 'static> Held<T> {
    fn new(lock: Shared<T>, take: Take<T>, give: Take<T>) -> Held<T> {
        let at = lock.get() as usize;
        // SAFETY: the lock outlives the thread, which is joined before the lock is dropped.
        let first = move || unsafe { _ = take(at as *mut T) };
        // SAFETY: as above, and the lock is held by that thread.
        let last = move || unsafe { _ = give(at as *mut T) };
        Held { _holder: Stays::new(first, last), lock }
    }

    fn wait(self, timed: Timed<T>) -> Wait {
        Box::new(move |ns| {
            let held = &self;
            let t = deadline(libc::CLOCK_REALTIME, ns);
            // SAFETY: initialised and live.
            waited_by_value(unsafe { timed(held.lock.get(), &raw const t) })
        })
    }
}

type Take<T> = unsafe extern "C" fn(*mut T) -> i32;
type Timed<T> = unsafe extern "C" fn(*mut T, *const libc::timespec) -> i32;

fn held_mutex(mutex: Shared<libc::pthread_mutex_t>) -> Wait {
    let held = Held::new(mutex, libc::pthread_mutex_lock, libc::pthread_mutex_unlock);
    held.wait(pthread_mutex_timedlock)
}

pub fn mutex_timedlock() -> io::Result<Wait> {
    Ok(held_mutex(Shared::new(libc::PTHREAD_MUTEX_INITIALIZER)))
}

pub fn mutex_timedlock_pi() -> io::Result<Wait> {
    let mutex = Shared::new(libc::PTHREAD_MUTEX_INITIALIZER);
    // SAFETY: initialised before use, destroyed after; the mutex is not in use yet.
    waited_by_value(unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attributes);
        libc::pthread_mutexattr_setprotocol(&raw mut attributes, libc::PTHREAD_PRIO_INHERIT);
        let result = libc::pthread_mutex_init(mutex.get(), &raw const attributes);
        libc::pthread_mutexattr_destroy(&raw mut attributes);
        result
    })?;
    Ok(held_mutex(mutex))
}

/// Waits for a lock that another thread holds to write.
fn held_rwlock(timed: Timed<libc::pthread_rwlock_t>) -> Wait {
    let rwlock = Shared::new(libc::PTHREAD_RWLOCK_INITIALIZER);
    Held::new(rwlock, libc::pthread_rwlock_wrlock, libc::pthread_rwlock_unlock).wait(timed)
}

pub fn rwlock_timedrdlock() -> io::Result<Wait> {
    Ok(held_rwlock(pthread_rwlock_timedrdlock))
}

pub fn rwlock_timedwrlock() -> io::Result<Wait> {
    Ok(held_rwlock(pthread_rwlock_timedwrlock))
}

pub fn timedjoin() -> io::Result<Wait> {
    let thread = Stays::new(|| (), || ());
    let id = thread.thread.as_ref().map(JoinHandleExt::as_pthread_t).ok_or(io::ErrorKind::NotFound)?;
    Ok(Box::new(move |ns| {
        let _ = &thread;
        let t = deadline(libc::CLOCK_REALTIME, ns);
        // SAFETY: a thread that runs, and is joined, only when `thread` is dropped; its result is not asked
        // for.
        waited_by_value(unsafe { libc::pthread_timedjoin_np(id, std::ptr::null_mut(), &raw const t) })
    }))
}
