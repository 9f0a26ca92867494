//! Routines of AArch64: NEON, its form with the hint that the data will not be used soon, and `dc zva`.
//!
//! Written in assembly: the compiler would turn a loop that copies or clears into a call of `memcpy` or `memset`.

use super::tuning::{COPY_BULK, Routine, ZERO_BULK};
use crate::sys::Ordering::Relaxed;
use std::arch::asm;

/// A loop over lines of 64 bytes with the given instructions that load and store pairs of registers.
macro_rules! lines {
    ($name:ident, $load:tt, $store:tt, $ahead:tt) => {
        unsafe fn $name(to: *mut u8, from: *const u8, n: usize) {
            // SAFETY: the caller's promise; n > 64, so that `last` is not before `to`; the loop stores to less than
            // `to + n`.
            unsafe {
                asm!(
                    "ldr q0, [{from}]",
                    "add {last}, {to}, {n}",
                    "sub {last}, {last}, #64",
                    // From here on `{from}` is the distance between the blocks.
                    "sub {from}, {from}, {to}",
                    "str q0, [{to}]",
                    "add {to}, {to}, #16",
                    "and {to}, {to}, #-16",
                    "b 3f",
                    ".p2align 4",
                    "2:",
                    "add {at}, {to}, {from}",
                    $ahead,
                    concat!($load, " q0, q1, [{at}]"),
                    concat!($load, " q2, q3, [{at}, #32]"),
                    concat!($store, " q0, q1, [{to}]"),
                    concat!($store, " q2, q3, [{to}, #32]"),
                    "add {to}, {to}, #64",
                    "3: cmp {to}, {last}",
                    "b.lo 2b",
                    "add {at}, {last}, {from}",
                    "ldp q0, q1, [{at}]",
                    "ldp q2, q3, [{at}, #32]",
                    "stp q0, q1, [{last}]",
                    "stp q2, q3, [{last}, #32]",
                    to = inout(reg) to => _, from = inout(reg) from => _, n = in(reg) n, last = out(reg) _,
                    at = out(reg) _, out("v0") _, out("v1") _, out("v2") _, out("v3") _, options(nostack));
            }
        }
    };
}

lines!(blocks, "ldp", "stp", "");
lines!(stream, "ldnp", "stnp", "prfm pldl1strm, [{at}, #1024]");

/// Bytes that `dc zva` clears; 0 if this process may not use it.
fn zva() -> usize {
    let id: u64;
    // SAFETY: a register that every program may read.
    unsafe { asm!("mrs {id}, dczid_el0", id = out(reg) id, options(nomem, nostack, preserves_flags)) };
    if id >> 4 & 1 == 1 { 0 } else { 4 << (id & 15) }
}

/// Clears a block, as far as possible by whole `dc zva` blocks, which take lines without reading them.
unsafe fn clear(to: *mut u8, n: usize) {
    let zva = zva();
    // A block size that `dc zva` never reaches: past the end.
    let zva = if zva == 0 || n < 2 * zva { 1 << 63 } else { zva };
    // SAFETY: the caller's promise; n > 64. Steps of 16 bytes up to a block, of blocks while a whole one is left,
    // of 64 bytes while more than that is left, and the last 64.
    unsafe {
        asm!(
            "movi v0.2d, #0",
            "str q0, [{to}]",
            "add {end}, {to}, {n}",
            "sub {last}, {end}, #64",
            "add {to}, {to}, #16",
            "and {to}, {to}, #-16",
            "tbnz {zva}, #63, 6f",
            "sub {mask}, {zva}, #1",
            "sub {end}, {end}, {zva}",
            "2: tst {to}, {mask}",
            "b.eq 4f",
            "str q0, [{to}], #16",
            "b 2b",
            ".p2align 4",
            "3: dc zva, {to}",
            "add {to}, {to}, {zva}",
            "4: cmp {to}, {end}",
            "b.ls 3b",
            "b 6f",
            ".p2align 4",
            "5: stp q0, q0, [{to}]",
            "stp q0, q0, [{to}, #32]",
            "add {to}, {to}, #64",
            "6: cmp {to}, {last}",
            "b.lo 5b",
            "stp q0, q0, [{last}]",
            "stp q0, q0, [{last}, #32]",
            to = inout(reg) to => _, n = in(reg) n, zva = in(reg) zva, end = out(reg) _, last = out(reg) _,
            mask = out(reg) _, out("v0") _, options(nostack));
    }
}

/// Copies a block of more than [`SMALL`](crate::memory::copy::SMALL) bytes by the routine for its size.
unsafe extern "C" fn copy(to: *mut u8, from: *const u8, n: usize) -> libc::c_int {
    // SAFETY: the caller's promise.
    unsafe { if n < COPY_BULK.load(Relaxed) { blocks(to, from, n) } else { stream(to, from, n) } };
    0
}

/// Stores of pairs that bypass the caches, if the processor permits.
unsafe fn clear_stream(to: *mut u8, n: usize) {
    // SAFETY: as in `clear`.
    unsafe {
        asm!(
            "movi v0.2d, #0",
            "str q0, [{to}]",
            "add {last}, {to}, {n}",
            "sub {last}, {last}, #64",
            "add {to}, {to}, #16",
            "and {to}, {to}, #-16",
            "b 3f",
            ".p2align 4",
            "2: stnp q0, q0, [{to}]",
            "stnp q0, q0, [{to}, #32]",
            "add {to}, {to}, #64",
            "3: cmp {to}, {last}",
            "b.lo 2b",
            "stp q0, q0, [{last}]",
            "stp q0, q0, [{last}, #32]",
            to = inout(reg) to => _, n = in(reg) n, last = out(reg) _, out("v0") _, options(nostack));
    }
}

/// Clears a block of more than `SMALL` bytes by the routine for its size.
unsafe extern "C" fn zero(to: *mut u8, n: usize) -> libc::c_int {
    // SAFETY: the caller's promise.
    unsafe { if n < ZERO_BULK.load(Relaxed) || zva() != 0 { clear(to, n) } else { clear_stream(to, n) } };
    0
}

/// All routines, in order of preference.
pub(super) static ROUTINES: &[Routine] = &[
    Routine {
        name: c"neon",
        vectors: true,
        has: || true,
        prefer: || true,
        by_size: (copy, zero),
        always: (blocks, clear),
        stream: (stream, clear_stream),
    },
    Routine {
        name: c"neon-stream",
        vectors: false,
        has: || true,
        prefer: || false,
        by_size: (copy, zero),
        always: (stream, clear_stream),
        stream: (stream, clear_stream),
    },
];

/// AArch64 has no such instruction.
pub(super) fn rep() -> super::tuning::Rep {
    super::tuning::Rep::Never
}

/// Sizes in bytes of the data caches by level, from `/sys`, since programs cannot read them from the
/// processor; 0 if unknown.
pub(super) fn caches() -> [usize; 3] {
    super::tuning::caches_of("/sys/devices/system/cpu/cpu0/cache")
}
