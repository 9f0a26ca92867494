//! The processor's string instructions: they take whole lines without reading them first, after a costly
//! start.

use crate::memory::copy::small;
use std::arch::asm;

/// The first 64 bytes by vectors, the rest from a whole line of the target.
pub(in crate::memory::copy) unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
    let skip = 64 - to as usize % 64;
    // SAFETY: skip <= 64 < n; the direction flag is clear, as the ABI has it.
    unsafe {
        small::copy(to, from, 64);
        asm!("rep movsb", inout("rcx") n - skip => _, inout("rdi") to.add(skip) => _,
            inout("rsi") from.add(skip) => _, options(nostack, preserves_flags));
    }
}

/// As `copy`, for zero.
pub(in crate::memory::copy) unsafe fn zero(to: *mut u8, n: usize) {
    let skip = 64 - to as usize % 64;
    // SAFETY: as in `copy`.
    unsafe {
        small::zero(to, 64);
        asm!("rep stosb", inout("rcx") n - skip => _, inout("rdi") to.add(skip) => _, in("al") 0u8,
            options(nostack, preserves_flags));
    }
}
