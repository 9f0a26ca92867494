//! Memory that worker processes share.

use std::ops::Deref;

/// A value in memory that stays shared over `fork`, on pages of its own.
pub struct Shared<T: ?Sized> {
    at: *mut T,
    bytes: usize,
}

// SAFETY: gives out only shared references to T, so it is as safe to share as &T.
unsafe impl<T: Sync + ?Sized> Sync for Shared<T> {}
// SAFETY: T is owned; nothing of it belongs to a thread.
unsafe impl<T: Send + ?Sized> Send for Shared<T> {}

fn map(bytes: usize) -> std::io::Result<*mut u8> {
    map_as(bytes, libc::MAP_SHARED)
}

fn map_as(bytes: usize, kind: i32) -> std::io::Result<*mut u8> {
    // SAFETY: asks for fresh memory anywhere.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes.max(1),
            libc::PROT_READ | libc::PROT_WRITE,
            kind | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(at.cast()) }
}

impl<T> Shared<T> {
    /// Puts a value into shared memory. It must hold no pointers that only one process understands.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn new(value: T) -> std::io::Result<Shared<T>> {
        let at: *mut T = map(size_of::<T>())?.cast();
        // SAFETY: fresh memory of T's size; pages are aligned for any T there is here.
        unsafe { at.write(value) };
        Ok(Shared { at, bytes: size_of::<T>().max(1) })
    }
}

impl<T> Shared<[T]> {
    /// `n` values in shared memory.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn slice(n: usize, value: impl Fn(usize) -> T) -> std::io::Result<Shared<[T]>> {
        let bytes = n.checked_mul(size_of::<T>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let at: *mut T = map(bytes)?.cast();
        for i in 0..n {
            // SAFETY: within the fresh memory.
            unsafe { at.add(i).write(value(i)) };
        }
        Ok(Shared { at: std::ptr::slice_from_raw_parts_mut(at, n), bytes: bytes.max(1) })
    }
}

impl Shared<[[std::sync::atomic::AtomicU64; 4]]> {
    /// Zeroes, whose pages are touched only when used.
    ///
    /// # Errors
    /// Not enough memory.
    pub(crate) fn zeroed(n: usize) -> std::io::Result<Self> {
        let bytes = n * size_of::<[u64; 4]>();
        let at = map(bytes)?.cast();
        Ok(Shared { at: std::ptr::slice_from_raw_parts_mut(at, n), bytes })
    }
}

impl<T: ?Sized> Shared<T> {
    /// The value's address, for C functions that change it.
    pub fn as_ptr(&self) -> *mut T {
        self.at
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: mapped and written until self is dropped.
        unsafe { &*self.at }
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    fn drop(&mut self) {
        // T's own drop is not run: another process may still use it.
        // SAFETY: mapped by `map` with this length, and not used after.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}

/// Zeroes on pages of their own, none touched yet; after `fork` each process has its own.
pub(crate) struct Area {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory that belongs to no thread; whoever writes through its address sees to order.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// # Errors
    /// Not enough memory.
    pub fn new(bytes: usize) -> std::io::Result<Area> {
        Ok(Area { at: map_as(bytes, libc::MAP_PRIVATE)?, bytes: bytes.max(1) })
    }

    /// Where it begins.
    pub fn at(&self) -> *mut u8 {
        self.at
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_as` with this length, and not used after.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}
