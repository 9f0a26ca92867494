//! The adaptive mutex around the data it protects.

use crate::locks::raw_mutex::RawMutex;
use crate::sys::Instant;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A mutual-exclusion lock around a `T`: spins while its owner is on a CPU, sleeps otherwise.
///
/// How it works and why it is correct: [`raw_mutex`](crate::locks::raw_mutex). When to use it: docs/mutex.md.
/// It is never poisoned: a panic while the guard lives unlocks the mutex.
///
/// ```
/// let hits = libncpu::Mutex::new(0);
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| *hits.lock() += 1);
///     }
/// });
/// assert_eq!(hits.into_inner(), 4);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    raw: RawMutex,
    data: UnsafeCell<T>,
}

// SAFETY: the mutex gives access to one thread at a time; the data may be dropped or moved out by another thread.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above; `&Mutex` gives `&mut T` to the owner only, so `T: Send` is enough.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

/// The right to the data of a [`Mutex`]; dropping it unlocks.
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// Not `Send`: the unlocking thread must be the one that locked.
    thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// A free mutex around `data`.
    pub const fn new(data: T) -> Mutex<T> {
        Mutex { raw: RawMutex::new(), data: UnsafeCell::new(data) }
    }

    /// As `new`, a mutex that bounds how often a sleeping thread is overtaken. Its cost: docs/mutex.md.
    pub const fn new_fair(data: T) -> Mutex<T> {
        Mutex { raw: RawMutex::new_fair(), data: UnsafeCell::new(data) }
    }

    /// The data. No lock is needed, because the caller owns the mutex.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the mutex, waiting without limit. A thread that already holds the mutex waits for itself
    /// forever.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.raw.lock();
        self.guard()
    }

    /// Takes the mutex if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then(|| self.guard())
    }

    /// Takes the mutex unless `timeout` passes first.
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        if let Some(guard) = self.try_lock() {
            return Some(guard);
        }
        self.raw.try_lock_until(Instant::after(timeout)).then(|| self.guard())
    }

    /// The data; the exclusive borrow proves that no lock is needed.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// The lock itself.
    pub fn raw(&self) -> &RawMutex {
        &self.raw
    }

    #[inline]
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, thread: PhantomData }
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Frees the mutex for the thread that has slept longest, or is being woken. Without sleepers it is freed
    /// as by dropping the guard.
    pub fn unlock_fair(self) {
        let raw = &std::mem::ManuallyDrop::new(self).mutex.raw;
        // SAFETY: held by this thread, and the guard was forgotten.
        unsafe { raw.unlock_fair() };
    }

    /// The lock itself.
    pub(crate) fn raw(&self) -> &RawMutex {
        &self.mutex.raw
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard exists, so this thread holds the mutex.
        unsafe { self.mutex.raw.unlock() }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the mutex is held, so the only `&mut T` comes from this guard.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is held and the guard borrowed exclusively.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(data) => f.debug_tuple("Mutex").field(&&*data).finish(),
            None => f.write_str("Mutex(<locked>)"),
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(data: T) -> Mutex<T> {
        Mutex::new(data)
    }
}
