//! One lock that all threads of a process take: primitives beside each other.
//!
//! A new primitive is an `impl Lock` and a line of [`CASES`].

use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::spin::Spin;
use crate::case::{Batch, Bench, Case, Failure, Worker};
use crate::options::{Flag, Options};

const FLAGS: &[Flag] = &[
    Flag { letter: 'c', value: "NS", default: "0", about: "nanoseconds of work while it is held" },
    Flag { letter: 'p', value: "NS", default: "0", about: "nanoseconds of work between" },
];

/// The cases of this file.
pub const CASES: &[Case] = &[
    case::<Mutex<u64>>("lock_std", "take and release a std::sync::Mutex that all threads share"),
    case::<parking_lot::Mutex<u64>>("lock_parking_lot", "take and release a parking_lot::Mutex"),
    case::<Pthread<0>>("lock_pthread", "take and release a normal pthread mutex"),
    case::<Pthread<ADAPTIVE>>(
        "lock_adaptive",
        "take and release an adaptive pthread mutex, which spins first",
    ),
];

const fn case<L: Lock>(name: &'static str, about: &'static str) -> Case {
    Case { name, about, flags: FLAGS, setup: setup::<L> }
}

/// Guards a number.
pub trait Lock: Sync + 'static {
    /// An unlocked one, of 0.
    fn new() -> Self;
    /// Does some work while it is held.
    fn with(&self, work: impl FnOnce(&mut u64));
}

impl Lock for Mutex<u64> {
    fn new() -> Self {
        Mutex::new(0)
    }
    #[inline]
    fn with(&self, work: impl FnOnce(&mut u64)) {
        work(&mut self.lock().unwrap_or_else(|e| e.into_inner()));
    }
}

impl Lock for parking_lot::Mutex<u64> {
    fn new() -> Self {
        parking_lot::Mutex::new(0)
    }
    #[inline]
    fn with(&self, work: impl FnOnce(&mut u64)) {
        work(&mut self.lock());
    }
}

/// `PTHREAD_MUTEX_ADAPTIVE_NP` of glibc, which libc lacks; musl takes it for a normal one.
const ADAPTIVE: i32 = 3;

/// A pthread mutex of a kind.
struct Pthread<const KIND: i32> {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<u64>,
}

// SAFETY: only the holder of the lock touches the value, and the lock is made to be shared.
unsafe impl<const KIND: i32> Sync for Pthread<KIND> {}

impl<const KIND: i32> Lock for Pthread<KIND> {
    fn new() -> Self {
        let mut lock = libc::PTHREAD_MUTEX_INITIALIZER;
        let mut kind = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::zeroed();
        // SAFETY: live objects, initialised in this order. An unlocked mutex that nobody uses yet may move.
        unsafe {
            libc::pthread_mutexattr_init(kind.as_mut_ptr());
            libc::pthread_mutexattr_settype(kind.as_mut_ptr(), KIND);
            libc::pthread_mutex_init(&raw mut lock, kind.as_ptr());
            libc::pthread_mutexattr_destroy(kind.as_mut_ptr());
        }
        Pthread { lock: UnsafeCell::new(lock), value: UnsafeCell::new(0) }
    }
    #[inline]
    fn with(&self, work: impl FnOnce(&mut u64)) {
        // SAFETY: initialised, and released by the thread that took it; the value is ours while it is held.
        unsafe {
            libc::pthread_mutex_lock(self.lock.get());
            work(&mut *self.value.get());
            libc::pthread_mutex_unlock(self.lock.get());
        }
    }
}

/// The lock and what it guards on lines of their own.
#[repr(align(128))]
struct Apart<L>(L);

struct Contended<L> {
    lock: Apart<L>,
    done: AtomicU64,
    critical: Spin,
    parallel: Spin,
}

fn setup<L: Lock>(o: &Options) -> Result<Box<dyn Bench>, Failure> {
    let (critical, parallel) = (Spin::of(o.number('c')?), Spin::of(o.number('p')?));
    Ok(Box::new(Contended { lock: Apart(L::new()), done: AtomicU64::new(0), critical, parallel }))
}

struct Take<'a, L>(&'a Contended<L>);

impl<L: Lock> Batch for Take<'_, L> {
    fn run(&mut self, n: u64) -> u64 {
        let Contended { lock, critical, parallel, .. } = self.0;
        for _ in 0..n {
            lock.0.with(|value| {
                *value = value.wrapping_add(1);
                critical.run();
            });
            parallel.run();
        }
        0
    }
    fn after(&mut self, n: u64) {
        self.0.done.fetch_add(n, Relaxed);
    }
}

impl<L: Lock> Bench for Contended<L> {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        Ok(Box::new(Take(self)))
    }
    /// Increments that two threads did in the lock at once are missing from the number.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let mut value = 0;
        self.lock.0.with(|v| value = *v);
        let lost = self.done.load(Relaxed) as f64 - value as f64;
        if lost == 0.0 { vec![] } else { vec![("lost", lost)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excludes<L: Lock>() {
        let lock = L::new();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..20_000).for_each(|_| lock.with(|v| *v += 1)));
            }
        });
        let mut sum = 0;
        lock.with(|v| sum = *v);
        assert_eq!(sum, 80_000);
    }

    #[test]
    fn every_lock_excludes() {
        excludes::<Mutex<u64>>();
        excludes::<parking_lot::Mutex<u64>>();
        excludes::<Pthread<0>>();
        excludes::<Pthread<ADAPTIVE>>();
    }
}
