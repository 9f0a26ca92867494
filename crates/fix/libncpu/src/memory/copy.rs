//! Block copy and block zero that pick their routine by processor, size and alignment.
//!
//! # Where it comes from
//!
//! Solaris chose its block copy at boot by the type of the processor, for the kernel and for libc alike, and on the T2
//! by source alignment, target alignment and length as well, "approximately 2X faster than the previous routines"
//! (Steve Sistare, "Block Copy", in what he wrote on the T2, 2007). glibc chooses by processor too; from it are the
//! overlapping first and last vectors that spare a loop over single bytes, and copying large blocks two pages side by
//! side.
//!
//! # Which routine
//!
//! | size | routine |
//! | --- | --- |
//! | to 64 bytes | a few loads and stores, in the caller's own code |
//! | to [`Tuning::rep`] | vectors as wide as the processor has, aligned at the target; backward where the target lies a little after the source modulo a page |
//! | to [`Tuning::stream`] | `rep movsb` on Intel's with ERMS, else as above |
//! | above | stores that pass the caches by, source fetched ahead |
//!
//! # Ordering
//!
//! Stores that pass the caches by are weakly ordered; each routine that uses them ends with a fence, so that a copy is
//! ordered with what follows it in the program like any plain stores: published by a release store, it is seen whole.
//!
//! Which routine was chosen is kept in relaxed atomics: every routine is right for every size, so that a thread that
//! sees some of them old and some new copies as well.

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

/// Blocks up to this size are copied where they are asked for, without a call by pointer.
const SMALL: usize = 64;

/// Copies `length` bytes. The contract is `memcpy`'s: what blocks that overlap come to is undefined, and checked in
/// debug builds.
///
/// ```
/// let (from, mut to) = (vec![7u8; 1000], vec![0u8; 1000]);
/// // SAFETY: 1000 bytes each, apart.
/// unsafe { libncpu::copy::copy(to.as_mut_ptr(), from.as_ptr(), 1000) };
/// assert_eq!(from, to);
/// ```
///
/// # Safety
/// `length` bytes can be read at `from` and written at `to`, and the two do not overlap. Where `length` is 0 the
/// pointers may be anything.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    debug_assert!(
        length == 0 || (to as usize).abs_diff(from as usize) >= length,
        "copy of {length} bytes from {from:p} to {to:p}: they overlap"
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

/// As [`copy`], unchecked but for pointers that are null, which is `EINVAL` unless `length` is 0.
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
/// `length` bytes can be written at `to`. Where `length` is 0 the pointer may be anything.
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
