//! Block copy and block zero for C.

use libc::{EINVAL, c_char, c_int, c_void};
use libncpu::memory::copy;

/// Copies `length` bytes, by the contract of memcpy: the blocks do not overlap. EINVAL, and nothing is copied, if a
/// pointer is null and `length` is not 0.
///
/// # Safety
/// `length` bytes can be read at `from` and written at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_copy(to: *mut c_void, from: *const c_void, length: usize) -> c_int {
    unsafe { copy::copy_for_c(to.cast(), from.cast(), length) }
}

/// Copies as ncpu_copy does, by up to `threads` threads, including the caller's. 0 selects one thread for
/// each 8 MB, at most 16, and at most the number of CPUs near the target's memory. The helpers have ended
/// when this returns; if none can be made, the caller copies alone.
///
/// # Safety
/// As for `ncpu_copy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_copy_parallel(
    to: *mut c_void,
    from: *const c_void,
    length: usize,
    threads: u32,
) -> c_int {
    if (to.is_null() || from.is_null()) && length != 0 {
        return EINVAL;
    }
    unsafe { copy::copy_parallel(to.cast(), from.cast(), length, threads as usize) };
    0
}

/// Clears `length` bytes. EINVAL, and nothing is cleared, if `to` is null and `length` is not 0.
///
/// # Safety
/// `length` bytes can be written at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncpu_zero(to: *mut c_void, length: usize) -> c_int {
    unsafe { copy::zero_for_c(to.cast(), length) }
}

/// The vectors that copy blocks on this processor: avx512, avx2, sse2 or neon.
#[unsafe(no_mangle)]
pub extern "C" fn ncpu_copy_vectors() -> *const c_char {
    copy::Tuning::current().vectors.c_name().as_ptr()
}
