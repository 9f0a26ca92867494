//! Routines for targets without assembly: Miri.

use super::tuning::Routine;

unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, n) }
}

unsafe fn zero(to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { to.write_bytes(0, n) }
}

unsafe extern "C" fn copy_by_size(to: *mut u8, from: *const u8, n: usize) -> libc::c_int {
    // SAFETY: the caller's promise.
    unsafe { copy(to, from, n) };
    0
}

unsafe extern "C" fn zero_by_size(to: *mut u8, n: usize) -> libc::c_int {
    // SAFETY: the caller's promise.
    unsafe { zero(to, n) };
    0
}

/// The compiler's own copy and clear.
pub(super) static ROUTINES: &[Routine] = &[Routine {
    name: c"portable",
    vectors: true,
    has: || true,
    prefer: || true,
    by_size: (copy_by_size, zero_by_size),
    always: (copy, zero),
    stream: (copy, zero),
}];

/// This target lacks such an instruction.
pub(super) fn rep() -> super::tuning::Rep {
    super::tuning::Rep::Never
}

/// Unknown.
pub(super) fn caches() -> [usize; 3] {
    [0; 3]
}
