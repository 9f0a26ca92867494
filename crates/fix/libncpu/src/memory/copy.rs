//! Block copy and block zero that pick their routine by processor, size and alignment.
//!
//! # Where it comes from
//!
//! Solaris chose its block copy at boot by the type of the processor, for the kernel and for libc alike, and
//! on the T2 also by source alignment, target alignment and length, "approximately 2X faster than the
//! previous routines" (Steve Sistare, "Block Copy", about the T2, 2007). glibc chooses by processor too. From
//! glibc come the overlapping first and last vectors that spare a loop over single bytes, and copying large
//! blocks two pages side by side.
//!
//! # Which routine
//!
//! | size | routine |
//! | --- | --- |
//! | to 64 bytes | a few loads and stores, in the caller's own code |
//! | to [`Tuning::rep`] | the processor's widest vectors, aligned at the target; backward where the target
//! lies a little after the source modulo a page |
//! | to [`Tuning::stream`] | `rep movsb` on Intel processors with ERMS, otherwise as above |
//! | above | non-temporal stores, with the source prefetched |
//!
//! # Ordering
//!
//! Non-temporal stores are weakly ordered. Each routine that uses them ends with a fence, so a copy is
//! ordered with later accesses of the program like plain stores: published by a release store, it is seen
//! whole.
//!
//! The chosen routines are kept in relaxed atomics. Every routine is right for every size, so a thread that
//! sees a mixture of old and new values still copies correctly.

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[path = "copy/arm.rs"]
mod native;
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[path = "copy/portable.rs"]
mod native;
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[path = "copy/x86/mod.rs"]
mod native;
mod parallel;
mod small;
mod tuning;

use crate::sys::Ordering::Relaxed;
use libc::{EINVAL, c_int};
pub use parallel::copy_parallel;
use tuning::{COPY, CopyBySize, ZERO, ZeroBySize};
pub use tuning::{Routine, Tuning};

/// Blocks up to this size are copied at the call site, without a call by pointer.
const SMALL: usize = 64;

/// Copies `length` bytes. The contract is `memcpy`'s: the result for overlapping blocks is undefined, and
/// debug builds check for overlap.
///
/// ```
/// let (from, mut to) = (vec![7u8; 1000], vec![0u8; 1000]);
/// // SAFETY: 1000 bytes each, apart.
/// unsafe { libncpu::copy::copy(to.as_mut_ptr(), from.as_ptr(), 1000) };
/// assert_eq!(from, to);
/// ```
///
/// # Safety
/// `length` bytes can be read at `from` and written at `to`, and the two do not overlap. If `length` is 0 the
/// pointers may have any value.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    debug_assert!(
        length == 0 || (to as usize).abs_diff(from as usize) >= length,
        "copy of {length} bytes from {from:p} to {to:p}: the blocks overlap"
    );
    // SAFETY: the caller's promise.
    unsafe { copy_by_size(to, from, length) };
}

/// Returns 0, so that for C the routine is the last call.
#[inline(always)]
unsafe fn copy_by_size(to: *mut u8, from: *const u8, length: usize) -> c_int {
    // SAFETY: the caller's promise; `COPY` always holds such a function.
    unsafe {
        if length > SMALL {
            return std::mem::transmute::<*mut (), CopyBySize>(COPY.load(Relaxed))(to, from, length);
        }
        small::copy(to, from, length);
    }
    0
}

/// As [`copy`], unchecked except that a null pointer is `EINVAL` unless `length` is 0.
///
/// # Safety
/// As for [`copy`], or null.
#[inline(always)]
#[doc(hidden)]
pub unsafe fn copy_for_c(to: *mut u8, from: *const u8, length: usize) -> c_int {
    if to.is_null() || from.is_null() {
        return if length == 0 { 0 } else { EINVAL };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_by_size(to, from, length) }
}

/// Clears `length` bytes.
///
/// # Safety
/// `length` bytes can be written at `to`. If `length` is 0 the pointer may have any value.
#[inline]
pub unsafe fn fill_zero(to: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { zero_by_size(to, length) };
}

/// Returns 0, so that for C the routine is the last call.
#[inline(always)]
unsafe fn zero_by_size(to: *mut u8, length: usize) -> c_int {
    // SAFETY: the caller's promise; `ZERO` always holds such a function.
    unsafe {
        if length > SMALL {
            return std::mem::transmute::<*mut (), ZeroBySize>(ZERO.load(Relaxed))(to, length);
        }
        small::zero(to, length);
    }
    0
}

/// As [`fill_zero`], but a null pointer is `EINVAL` unless `length` is 0.
///
/// # Safety
/// As for [`fill_zero`], or null.
#[inline(always)]
#[doc(hidden)]
pub unsafe fn zero_for_c(to: *mut u8, length: usize) -> c_int {
    if to.is_null() && length != 0 {
        return EINVAL;
    }
    // SAFETY: the caller's promise.
    unsafe { zero_by_size(to, length) }
}

/// Copies a slice to another of the same length.
///
/// # Panics
/// If their lengths differ.
#[inline]
pub fn copy_slice(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "lengths of target and source differ");
    // SAFETY: an exclusive and a shared slice of this length: they do not overlap.
    unsafe { copy(to.as_mut_ptr(), from.as_ptr(), to.len()) }
}

/// Clears a slice.
#[inline]
pub fn zero_slice(to: &mut [u8]) {
    // SAFETY: an exclusive slice of this length.
    unsafe { fill_zero(to.as_mut_ptr(), to.len()) }
}

/// Copies a part of a block of `whole` bytes by the routine of the whole.
///
/// # Safety
/// As for [`copy`].
pub unsafe fn copy_part(to: *mut u8, from: *const u8, length: usize, whole: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if length > SMALL && whole >= Tuning::current().stream {
            (Tuning::current().vectors.stream.0)(to, from, length);
        } else {
            copy(to, from, length);
        }
    }
}

/// Clears a part of a block of `whole` bytes by the routine of the whole.
///
/// # Safety
/// As for [`fill_zero`].
pub unsafe fn zero_part(to: *mut u8, length: usize, whole: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if length > SMALL && whole >= Tuning::current().zero_stream {
            (Tuning::current().vectors.stream.1)(to, length);
        } else {
            fill_zero(to, length);
        }
    }
}
