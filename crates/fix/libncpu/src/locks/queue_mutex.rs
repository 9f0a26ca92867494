//! The queue locks around the data they protect.

use crate::locks::mcs::{McsNode, RawMcs};
use crate::locks::numa_lock::RawNumaLock;
use crate::percpu::OutOfMemory;
use std::cell::UnsafeCell;

/// First come, first served: the MCS lock ([`mcs`](crate::locks::mcs)) around a `T`.
///
/// Waiters' queue nodes lie on their stacks, so the critical section is a closure and not a guard that could
/// move:
///
/// ```
/// let log = libncpu::McsMutex::new(Vec::new());
/// log.with(|log| log.push("first"));
/// assert_eq!(log.into_inner(), ["first"]);
/// ```
#[derive(Default)]
pub struct McsMutex<T: ?Sized> {
    raw: RawMcs,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives access to one thread at a time.
unsafe impl<T: ?Sized + Send> Send for McsMutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for McsMutex<T> {}

/// Calls something when dropped: also when the critical section panics.
struct Defer<F: FnMut()>(F);

impl<F: FnMut()> Drop for Defer<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl<T> McsMutex<T> {
    /// A free lock around `data`.
    pub const fn new(data: T) -> McsMutex<T> {
        McsMutex { raw: RawMcs::new(), data: UnsafeCell::new(data) }
    }

    /// The data. No lock is needed, because the caller owns the mutex.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> McsMutex<T> {
    /// Calls `section` with the lock held. A panic in it unlocks. A nested call on the same lock waits
    /// forever.
    #[inline]
    pub fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        let node = McsNode::new();
        // SAFETY: the node is new.
        unsafe { self.raw.lock(&node) };
        // SAFETY: taken above.
        let _unlock = Defer(|| unsafe { self.raw.unlock() });
        // SAFETY: the lock is held.
        section(unsafe { &mut *self.data.get() })
    }

    /// As `with` if the lock is free.
    pub fn try_with<R>(&self, section: impl FnOnce(&mut T) -> R) -> Option<R> {
        if !self.raw.try_lock() {
            return None;
        }
        // SAFETY: taken above.
        let _unlock = Defer(|| unsafe { self.raw.unlock() });
        // SAFETY: the lock is held.
        Some(section(unsafe { &mut *self.data.get() }))
    }
}

/// The NUMA-aware queue lock ([`numa_lock`](crate::locks::numa_lock)) around a `T`.
pub struct NumaMutex<T: ?Sized> {
    raw: RawNumaLock,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives access to one thread at a time.
unsafe impl<T: ?Sized + Send> Send for NumaMutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for NumaMutex<T> {}

impl<T> NumaMutex<T> {
    /// A free lock around `data`: 256 bytes per NUMA node.
    pub fn new(data: T) -> Result<NumaMutex<T>, OutOfMemory> {
        Ok(NumaMutex { raw: RawNumaLock::new()?, data: UnsafeCell::new(data) })
    }

    /// The data. No lock is needed, because the caller owns the mutex.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> NumaMutex<T> {
    /// Calls `section` with the lock held. A panic in it unlocks. A nested call on the same lock waits
    /// forever.
    #[inline]
    pub fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        let node = McsNode::new();
        // SAFETY: the node is new.
        unsafe { self.raw.lock(&node) };
        // SAFETY: taken above.
        let _unlock = Defer(|| unsafe { self.raw.unlock() });
        // SAFETY: the lock is held.
        section(unsafe { &mut *self.data.get() })
    }
}
