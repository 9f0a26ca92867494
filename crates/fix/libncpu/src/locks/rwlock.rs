//! The reader-writer lock around the data it protects.

use crate::locks::raw_rwlock::RawRwLock;
use crate::percpu::OutOfMemory;
use crate::sys::Instant;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Many readers or one writer: readers on different CPUs share nothing ([`raw_rwlock`](crate::locks::raw_rwlock)).
///
/// A thread that reads and takes the lock again may wait for a writer that waits for this thread.
///
/// ```
/// let table = libncpu::RwLock::new(vec![1, 2])?;
/// table.write().push(3);
/// assert_eq!(table.read().len(), 3);
/// # Ok::<(), libncpu::OutOfMemory>(())
/// ```
pub struct RwLock<T: ?Sized> {
    raw: RawRwLock,
    data: UnsafeCell<T>,
}

// SAFETY: `&mut T` goes to one thread at a time.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: `&T` goes to several threads at once, hence `Sync`; `&mut T` to one, hence `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// The right to read, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    slot: usize,
    thread: PhantomData<*const ()>,
}

/// The right to write, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for ReadGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for WriteGuard<'_, T> {}

/// The right to read and to become the writer, until dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct UpgradableGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    thread: PhantomData<*const ()>,
}

impl<'a, T: ?Sized> UpgradableGuard<'a, T> {
    /// Waits for the other readers to leave and becomes the writer; no thread writes in between.
    pub fn upgrade(self) -> WriteGuard<'a, T> {
        let lock = std::mem::ManuallyDrop::new(self).lock;
        // SAFETY: held upgradable by this thread, whose guard was forgotten.
        unsafe { lock.raw.upgrade() };
        WriteGuard { lock, thread: PhantomData }
    }
}

impl<'a, T: ?Sized> WriteGuard<'a, T> {
    /// Lets other threads read again, and keeps the right to become the writer.
    pub fn downgrade(self) -> UpgradableGuard<'a, T> {
        let lock = std::mem::ManuallyDrop::new(self).lock;
        // SAFETY: held for writing by this thread, whose guard was forgotten.
        unsafe { lock.raw.downgrade() };
        UpgradableGuard { lock, thread: PhantomData }
    }
}

impl<T: ?Sized> Drop for UpgradableGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the guard exists, so the lock is held upgradable.
        unsafe { self.lock.raw.unlock_upgradable() }
    }
}

impl<T: ?Sized> Deref for UpgradableGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: no writer while this guard lives.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T> RwLock<T> {
    /// A free lock around `data`: 128 bytes per possible CPU.
    pub fn new(data: T) -> Result<RwLock<T>, OutOfMemory> {
        Ok(RwLock { raw: RawRwLock::new()?, data: UnsafeCell::new(data) })
    }

    /// The data. No lock is needed, because the caller owns it.
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

    /// Takes the lock for reading unless the deadline passes first.
    pub fn read_until(&self, deadline: Instant) -> Option<ReadGuard<'_, T>> {
        self.raw.read_until(deadline).map(|slot| ReadGuard { lock: self, slot, thread: PhantomData })
    }

    /// Takes the lock for writing unless the deadline passes first.
    pub fn write_until(&self, deadline: Instant) -> Option<WriteGuard<'_, T>> {
        self.raw.write_until(deadline).then(|| WriteGuard { lock: self, thread: PhantomData })
    }

    /// Takes the lock for reading beside other readers, as the one thread that may become the writer. Writers
    /// wait for it. It must not call [`read`](RwLock::read) at the same time.
    pub fn upgradable(&self) -> UpgradableGuard<'_, T> {
        self.raw.upgradable();
        UpgradableGuard { lock: self, thread: PhantomData }
    }

    /// Takes the lock for writing if it is free.
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
        // SAFETY: no other thread has access while this guard lives.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: no other thread has access while this guard lives, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}
