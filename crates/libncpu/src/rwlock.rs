//! The reader-writer lock around the data it protects.

use crate::percpu::OutOfMemory;
use crate::raw_rwlock::RawRwLock;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Many readers or one writer: readers on different CPUs share nothing ([`raw_rwlock`](crate::raw_rwlock)).
///
/// A thread that reads and asks for the lock again may wait for a writer that waits for it.
///
/// ```
/// let table = ncpu::RwLock::new(vec![1, 2])?;
/// table.write().push(3);
/// assert_eq!(table.read().len(), 3);
/// # Ok::<(), ncpu::OutOfMemory>(())
/// ```
pub struct RwLock<T: ?Sized> {
    raw: RawRwLock,
    data: UnsafeCell<T>,
}

// SAFETY: `&mut T` goes to one thread at a time.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: `&T` goes to several threads at once, hence `Sync`; `&mut T` to one, hence `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// The right to read; dropping it ends it.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    slot: usize,
    thread: PhantomData<*const ()>,
}

/// The right to write; dropping it ends it.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for ReadGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for WriteGuard<'_, T> {}

impl<T> RwLock<T> {
    /// A free lock around `data`: 128 bytes per possible CPU.
    pub fn new(data: T) -> Result<RwLock<T>, OutOfMemory> {
        Ok(RwLock { raw: RawRwLock::new()?, data: UnsafeCell::new(data) })
    }

    /// The data; no lock is needed since nobody else has it.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock for reading.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        ReadGuard { lock: self, slot: self.raw.read(), thread: PhantomData }
    }

    /// Takes the lock for reading unless a writer has it or waits for it.
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        self.raw.try_read().map(|slot| ReadGuard { lock: self, slot, thread: PhantomData })
    }

    /// Takes the lock for writing.
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.raw.write();
        WriteGuard { lock: self, thread: PhantomData }
    }

    /// Takes the lock for writing if nobody has it.
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        self.raw.try_write().then(|| WriteGuard { lock: self, thread: PhantomData })
    }
}

impl<T: ?Sized> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard exists, so the lock is held for reading.
        unsafe { self.lock.raw.unlock_read(Some(self.slot)) }
    }
}

impl<T: ?Sized> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the guard exists, so the lock is held for writing.
        unsafe { self.lock.raw.unlock_write() }
    }
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: no writer while this guard lives.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: nobody else while this guard lives.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else while this guard lives, and it is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}
