//! Copies by vectors: a few that overlap, loops, and non-temporal stores.

use super::rep;
use crate::memory::copy::small;
use crate::memory::copy::tuning::{COPY_BULK, COPY_STREAM, ZERO_BULK, ZERO_STREAM};
use crate::sys::Ordering::Relaxed;
use libc::c_int;
use std::arch::asm;

/// 0 by an instruction that the compiler cannot see through. Otherwise it would ignore the result of the last
/// function, call it and clear the register instead of jumping to it, and each short copy would pay a push
/// and a pop.
#[inline(always)]
fn done() -> c_int {
    let zero;
    // SAFETY: changes one register.
    unsafe { asm!("xor {0:e}, {0:e}", out(reg) zero, options(pure, nomem, nostack)) };
    zero
}

/// Routines for one width of vectors. `$w` is the width in bytes, `$end` the instruction that must follow,
/// `$used` the compiler's names of the registers `$a` to `$p`, `$clear` clears the first register, and
/// `$ahead` are the lines of four vectors to prefetch before they are loaded.
macro_rules! vectors {
    ($module:ident, $w:tt, $load:tt, $store:tt, $stream:tt, $end:tt,
     [$a:tt $b:tt $c:tt $d:tt $e:tt $f:tt $g:tt $h:tt $i:tt $j:tt $k:tt $l:tt $m:tt $n:tt $o:tt $p:tt], [$($used:tt)*], $clear:tt, [$($ahead:tt)*]) => {
        pub(super) mod $module {
            use super::*;

            /// Copies a block of more than [`SMALL`](crate::memory::copy::SMALL) bytes by the routine for its
            /// size.
            pub(in crate::memory::copy) unsafe extern "C" fn copy(to: *mut u8, from: *const u8, n: usize) -> c_int {
                // SAFETY: the caller's promise.
                unsafe {
                    // The shortest blocks skip this load.
                    if n > 8 * $w && n >= COPY_BULK.load(Relaxed) {
                        return copy_bulk(to, from, n);
                    }
                    by_vectors(to, from, n)
                }
            }

            /// Clears a block of more than `SMALL` bytes by the routine for its size.
            pub(in crate::memory::copy) unsafe extern "C" fn zero(to: *mut u8, n: usize) -> c_int {
                // SAFETY: the caller's promise.
                unsafe {
                    if n > 8 * $w && n >= ZERO_BULK.load(Relaxed) {
                        return zero_bulk(to, n);
                    }
                    clear_by_vectors(to, n)
                }
            }

            #[inline(never)]
            unsafe extern "C" fn copy_bulk(to: *mut u8, from: *const u8, n: usize) -> c_int {
                // SAFETY: the caller's promise.
                unsafe {
                    if n < COPY_STREAM.load(Relaxed) { rep::copy(to, from, n) } else { stream(to, from, n) }
                }
                done()
            }

            #[inline(never)]
            unsafe extern "C" fn zero_bulk(to: *mut u8, n: usize) -> c_int {
                // SAFETY: the caller's promise.
                unsafe {
                    if n < ZERO_STREAM.load(Relaxed) { rep::zero(to, n) } else { clear_stream(to, n) }
                }
                done()
            }

            /// Copies by vectors of this width.
            pub(in crate::memory::copy) unsafe fn blocks(to: *mut u8, from: *const u8, n: usize) {
                // SAFETY: the caller's promise.
                unsafe { by_vectors(to, from, n) };
            }

            #[inline(always)]
            unsafe fn by_vectors(to: *mut u8, from: *const u8, n: usize) -> c_int {
                // SAFETY: the caller's promise; `n` is more than 64, a vector of the widest.
                unsafe {
                    if n <= 2 * $w {
                        // The first and the last vector, which may overlap.
                        asm!(
                            concat!($load, " ", $a, ", [{from}]"),
                            concat!($load, " ", $b, ", [{from} + {n} - ", $w, "]"),
                            concat!($load, " [{to}], ", $a),
                            concat!($load, " [{to} + {n} - ", $w, "], ", $b),
                            $end,
                            from = in(reg) from, to = in(reg) to, n = in(reg) n,
                            $(out($used) _,)* options(nostack, preserves_flags));
                    } else if n <= 4 * $w {
                        // The first two and the last two vectors.
                        asm!(
                            concat!($load, " ", $a, ", [{from}]"),
                            concat!($load, " ", $b, ", [{from} + ", $w, "]"),
                            concat!($load, " ", $c, ", [{from} + {n} - 2*", $w, "]"),
                            concat!($load, " ", $d, ", [{from} + {n} - ", $w, "]"),
                            concat!($load, " [{to}], ", $a),
                            concat!($load, " [{to} + ", $w, "], ", $b),
                            concat!($load, " [{to} + {n} - 2*", $w, "], ", $c),
                            concat!($load, " [{to} + {n} - ", $w, "], ", $d),
                            $end,
                            from = in(reg) from, to = in(reg) to, n = in(reg) n,
                            $(out($used) _,)* options(nostack, preserves_flags));
                    } else if n <= 8 * $w {
                        asm!(
                            concat!($load, " ", $a, ", [{from}]"),
                            concat!($load, " ", $b, ", [{from} + ", $w, "]"),
                            concat!($load, " ", $c, ", [{from} + 2*", $w, "]"),
                            concat!($load, " ", $d, ", [{from} + 3*", $w, "]"),
                            concat!($load, " ", $e, ", [{from} + {n} - 4*", $w, "]"),
                            concat!($load, " ", $f, ", [{from} + {n} - 3*", $w, "]"),
                            concat!($load, " ", $g, ", [{from} + {n} - 2*", $w, "]"),
                            concat!($load, " ", $h, ", [{from} + {n} - ", $w, "]"),
                            concat!($load, " [{to}], ", $a),
                            concat!($load, " [{to} + ", $w, "], ", $b),
                            concat!($load, " [{to} + 2*", $w, "], ", $c),
                            concat!($load, " [{to} + 3*", $w, "], ", $d),
                            concat!($load, " [{to} + {n} - 4*", $w, "], ", $e),
                            concat!($load, " [{to} + {n} - 3*", $w, "], ", $f),
                            concat!($load, " [{to} + {n} - 2*", $w, "], ", $g),
                            concat!($load, " [{to} + {n} - ", $w, "], ", $h),
                            $end,
                            from = in(reg) from, to = in(reg) to, n = in(reg) n,
                            $(out($used) _,)* options(nostack, preserves_flags));
                    } else {
                        if n >= 1024 && (to as usize + n - 1) % 4096 < 63 {
                            // The last call, so that the other paths need no stack.
                            return across(to, from, n);
                        }
                        loops(to, from, n);
                    }
                }
                0
            }

            /// Up to 63 bytes of the target lie on its last page. The last vector would span two pages, which
            /// costs the same as ten other vectors, so these bytes are copied apart.
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn across(to: *mut u8, from: *const u8, n: usize) -> c_int {
                // SAFETY: the caller's promise; n is much more than `over`.
                unsafe {
                    let over = (to as usize + n) % 4096;
                    small::copy(to.add(n - over), from.add(n - over), over);
                    loops(to, from, n - over);
                }
                done()
            }

            /// Copies more than eight vectors.
            #[inline(always)]
            unsafe fn loops(to: *mut u8, from: *const u8, n: usize) {
                // SAFETY: the caller's promise.
                unsafe {
                    if (to as usize).wrapping_sub(from as usize).wrapping_sub(1) & 4095 < 8 * $w {
                        backward(to, from, n);
                    } else {
                        forward(to, from, n);
                    }
                }
            }

            /// One unaligned vector, then whole aligned ones, four at a time, then the last four.
            #[inline(always)]
            unsafe fn forward(to: *mut u8, from: *const u8, n: usize) {
                // SAFETY: n > 8 * $w, so that the loop begins before `last`, and stores to less than `to + n`.
                unsafe {
                    asm!(
                        concat!($load, " ", $a, ", [{from}]"),
                        "lea {last}, [{to} + {n}]",
                        concat!("sub {last}, 4*", $w),
                        // From here on the distance between the blocks, so that one pointer serves both.
                        "sub {from}, {to}",
                        concat!($load, " [{to}], ", $a),
                        concat!("add {to}, ", $w),
                        concat!("and {to}, -", $w),
                        ".p2align 5",
                        "2:",
                        concat!($load, " ", $a, ", [{to} + {from}]"),
                        concat!($load, " ", $b, ", [{to} + {from} + ", $w, "]"),
                        concat!($load, " ", $c, ", [{to} + {from} + 2*", $w, "]"),
                        concat!($load, " ", $d, ", [{to} + {from} + 3*", $w, "]"),
                        concat!($store, " [{to}], ", $a),
                        concat!($store, " [{to} + ", $w, "], ", $b),
                        concat!($store, " [{to} + 2*", $w, "], ", $c),
                        concat!($store, " [{to} + 3*", $w, "], ", $d),
                        concat!("add {to}, 4*", $w),
                        "cmp {to}, {last}",
                        "jb 2b",
                        concat!($load, " ", $a, ", [{last} + {from}]"),
                        concat!($load, " ", $b, ", [{last} + {from} + ", $w, "]"),
                        concat!($load, " ", $c, ", [{last} + {from} + 2*", $w, "]"),
                        concat!($load, " ", $d, ", [{last} + {from} + 3*", $w, "]"),
                        concat!($load, " [{last}], ", $a),
                        concat!($load, " [{last} + ", $w, "], ", $b),
                        concat!($load, " [{last} + 2*", $w, "], ", $c),
                        concat!($load, " [{last} + 3*", $w, "], ", $d),
                        $end,
                        to = inout(reg) to => _, from = inout(reg) from => _, n = in(reg) n, last = out(reg) _,
                        $(out($used) _,)* options(nostack));
                }
            }

            /// As `forward`, from the end. Where the target lies a little after the source modulo a page, the
            /// processor takes loads that follow stores for reads of the stored data, and delays them.
            /// Backward copies avoid that.
            #[inline(always)]
            unsafe fn backward(to: *mut u8, from: *const u8, n: usize) {
                // SAFETY: n > 8 * $w, so that the loop begins after `first`, and stores from more than `to`.
                unsafe {
                    asm!(
                        concat!($load, " ", $a, ", [{from} + {n} - ", $w, "]"),
                        "sub {from}, {to}",
                        concat!($load, " [{to} + {n} - ", $w, "], ", $a),
                        concat!("lea {first}, [{to} + 4*", $w, "]"),
                        "lea {n}, [{to} + {n} - 1]",
                        concat!("and {n}, -", $w),
                        ".p2align 5",
                        "2:",
                        concat!($load, " ", $a, ", [{n} + {from} - ", $w, "]"),
                        concat!($load, " ", $b, ", [{n} + {from} - 2*", $w, "]"),
                        concat!($load, " ", $c, ", [{n} + {from} - 3*", $w, "]"),
                        concat!($load, " ", $d, ", [{n} + {from} - 4*", $w, "]"),
                        concat!($store, " [{n} - ", $w, "], ", $a),
                        concat!($store, " [{n} - 2*", $w, "], ", $b),
                        concat!($store, " [{n} - 3*", $w, "], ", $c),
                        concat!($store, " [{n} - 4*", $w, "], ", $d),
                        concat!("sub {n}, 4*", $w),
                        "cmp {n}, {first}",
                        "ja 2b",
                        concat!($load, " ", $a, ", [{to} + {from}]"),
                        concat!($load, " ", $b, ", [{to} + {from} + ", $w, "]"),
                        concat!($load, " ", $c, ", [{to} + {from} + 2*", $w, "]"),
                        concat!($load, " ", $d, ", [{to} + {from} + 3*", $w, "]"),
                        concat!($load, " [{to}], ", $a),
                        concat!($load, " [{to} + ", $w, "], ", $b),
                        concat!($load, " [{to} + 2*", $w, "], ", $c),
                        concat!($load, " [{to} + 3*", $w, "], ", $d),
                        $end,
                        to = in(reg) to, from = inout(reg) from => _, n = inout(reg) n => _, first = out(reg) _,
                        $(out($used) _,)* options(nostack));
                }
            }

            /// Non-temporal copy: four pages side by side, so that each has its own open rows in the memory,
            /// with the next four prefetched; the rest line by line.
            pub(in crate::memory::copy) unsafe fn stream(to: *mut u8, from: *const u8, n: usize) {
                // Only whole lines are written without a read: the first 64 bytes go the usual way, and so
                // does the rest of less than four vectors.
                let skip = 64 - to as usize % 64;
                if n < skip + 8 * $w {
                    // SAFETY: the caller's promise.
                    return unsafe { blocks(to, from, n) };
                }
                let (body, fours) = ((n - skip) / (4 * $w) * (4 * $w), (n - skip) / 16384);
                // SAFETY: skip + body <= n, and the last four vectors overlap what was copied.
                unsafe {
                    small::copy(to, from, 64);
                    asm!(
                        "test {fours}, {fours}",
                        "jz 4f",
                        concat!("2: mov {k:e}, 1024/", $w),
                        ".p2align 5",
                        "3:",
                        $(concat!("prefetcht0 [{from} + 16384 + ", $ahead, "]"),)*
                        $(concat!("prefetcht0 [{from} + 20480 + ", $ahead, "]"),)*
                        $(concat!("prefetcht0 [{from} + 24576 + ", $ahead, "]"),)*
                        $(concat!("prefetcht0 [{from} + 28672 + ", $ahead, "]"),)*
                        concat!($load, " ", $a, ", [{from}]"),
                        concat!($load, " ", $b, ", [{from} + ", $w, "]"),
                        concat!($load, " ", $c, ", [{from} + 2*", $w, "]"),
                        concat!($load, " ", $d, ", [{from} + 3*", $w, "]"),
                        concat!($load, " ", $e, ", [{from} + 4096]"),
                        concat!($load, " ", $f, ", [{from} + 4096 + ", $w, "]"),
                        concat!($load, " ", $g, ", [{from} + 4096 + 2*", $w, "]"),
                        concat!($load, " ", $h, ", [{from} + 4096 + 3*", $w, "]"),
                        concat!($load, " ", $i, ", [{from} + 8192]"),
                        concat!($load, " ", $j, ", [{from} + 8192 + ", $w, "]"),
                        concat!($load, " ", $k, ", [{from} + 8192 + 2*", $w, "]"),
                        concat!($load, " ", $l, ", [{from} + 8192 + 3*", $w, "]"),
                        concat!($load, " ", $m, ", [{from} + 12288]"),
                        concat!($load, " ", $n, ", [{from} + 12288 + ", $w, "]"),
                        concat!($load, " ", $o, ", [{from} + 12288 + 2*", $w, "]"),
                        concat!($load, " ", $p, ", [{from} + 12288 + 3*", $w, "]"),
                        concat!("add {from}, 4*", $w),
                        concat!($stream, " [{to}], ", $a),
                        concat!($stream, " [{to} + ", $w, "], ", $b),
                        concat!($stream, " [{to} + 2*", $w, "], ", $c),
                        concat!($stream, " [{to} + 3*", $w, "], ", $d),
                        concat!($stream, " [{to} + 4096], ", $e),
                        concat!($stream, " [{to} + 4096 + ", $w, "], ", $f),
                        concat!($stream, " [{to} + 4096 + 2*", $w, "], ", $g),
                        concat!($stream, " [{to} + 4096 + 3*", $w, "], ", $h),
                        concat!($stream, " [{to} + 8192], ", $i),
                        concat!($stream, " [{to} + 8192 + ", $w, "], ", $j),
                        concat!($stream, " [{to} + 8192 + 2*", $w, "], ", $k),
                        concat!($stream, " [{to} + 8192 + 3*", $w, "], ", $l),
                        concat!($stream, " [{to} + 12288], ", $m),
                        concat!($stream, " [{to} + 12288 + ", $w, "], ", $n),
                        concat!($stream, " [{to} + 12288 + 2*", $w, "], ", $o),
                        concat!($stream, " [{to} + 12288 + 3*", $w, "], ", $p),
                        concat!("add {to}, 4*", $w),
                        "dec {k:e}",
                        "jnz 3b",
                        "add {from}, 12288",
                        "add {to}, 12288",
                        "dec {fours}",
                        "jnz 2b",
                        "4: add {lines}, {to}",
                        "jmp 6f",
                        ".p2align 5",
                        "5:",
                        concat!($load, " ", $a, ", [{from}]"),
                        concat!($load, " ", $b, ", [{from} + ", $w, "]"),
                        concat!($load, " ", $c, ", [{from} + 2*", $w, "]"),
                        concat!($load, " ", $d, ", [{from} + 3*", $w, "]"),
                        concat!("add {from}, 4*", $w),
                        concat!($stream, " [{to}], ", $a),
                        concat!($stream, " [{to} + ", $w, "], ", $b),
                        concat!($stream, " [{to} + 2*", $w, "], ", $c),
                        concat!($stream, " [{to} + 3*", $w, "], ", $d),
                        concat!("add {to}, 4*", $w),
                        "6: cmp {to}, {lines}",
                        "jb 5b",
                        // Non-temporal stores are unordered; the fence orders them before all later stores.
                        "sfence",
                        $end,
                        from = inout(reg) from.add(skip) => _, to = inout(reg) to.add(skip) => _,
                        fours = inout(reg) fours => _, lines = inout(reg) body - fours * 16384 => _, k = out(reg) _,
                        $(out($used) _,)* options(nostack));
                    if skip + body < n {
                        blocks_end(to, from, n);
                    }
                }
            }

            /// The last four vectors.
            #[inline(always)]
            unsafe fn blocks_end(to: *mut u8, from: *const u8, n: usize) {
                // SAFETY: n is at least that much, as the caller checked.
                unsafe {
                    let at = n - 4 * $w;
                    asm!(
                        concat!($load, " ", $a, ", [{from}]"),
                        concat!($load, " ", $b, ", [{from} + ", $w, "]"),
                        concat!($load, " ", $c, ", [{from} + 2*", $w, "]"),
                        concat!($load, " ", $d, ", [{from} + 3*", $w, "]"),
                        concat!($load, " [{to}], ", $a),
                        concat!($load, " [{to} + ", $w, "], ", $b),
                        concat!($load, " [{to} + 2*", $w, "], ", $c),
                        concat!($load, " [{to} + 3*", $w, "], ", $d),
                        $end,
                        from = in(reg) from.add(at), to = in(reg) to.add(at),
                        $(out($used) _,)* options(nostack, preserves_flags));
                }
            }

            /// Clears by vectors of this width.
            pub(in crate::memory::copy) unsafe fn clear(to: *mut u8, n: usize) {
                // SAFETY: the caller's promise.
                unsafe { clear_by_vectors(to, n) };
            }

            #[inline(always)]
            unsafe fn clear_by_vectors(to: *mut u8, n: usize) -> c_int {
                // SAFETY: the caller's promise; `n` is more than 64, a vector of the widest.
                unsafe {
                    if n <= 2 * $w {
                        asm!(
                            $clear,
                            concat!($load, " [{to}], ", $a),
                            concat!($load, " [{to} + {n} - ", $w, "], ", $a),
                            $end,
                            to = in(reg) to, n = in(reg) n, $(out($used) _,)* options(nostack, preserves_flags));
                    } else if n <= 4 * $w {
                        asm!(
                            $clear,
                            concat!($load, " [{to}], ", $a),
                            concat!($load, " [{to} + ", $w, "], ", $a),
                            concat!($load, " [{to} + {n} - 2*", $w, "], ", $a),
                            concat!($load, " [{to} + {n} - ", $w, "], ", $a),
                            $end,
                            to = in(reg) to, n = in(reg) n, $(out($used) _,)* options(nostack, preserves_flags));
                    } else if n <= 8 * $w {
                        // Without a loop end to predict: 512 bytes take 0.87 of the
                        // time.
                        asm!(
                            $clear,
                            concat!($load, " [{to}], ", $a),
                            concat!($load, " [{to} + ", $w, "], ", $a),
                            concat!($load, " [{to} + 2*", $w, "], ", $a),
                            concat!($load, " [{to} + 3*", $w, "], ", $a),
                            concat!($load, " [{to} + {n} - 4*", $w, "], ", $a),
                            concat!($load, " [{to} + {n} - 3*", $w, "], ", $a),
                            concat!($load, " [{to} + {n} - 2*", $w, "], ", $a),
                            concat!($load, " [{to} + {n} - ", $w, "], ", $a),
                            $end,
                            to = in(reg) to, n = in(reg) n, $(out($used) _,)* options(nostack, preserves_flags));
                    } else if n >= 1024 && (to as usize + n - 1) % 4096 < 63 {
                        return clear_across(to, n);
                    } else {
                        clear_loop(to, n);
                    }
                }
                0
            }

            /// As `across`.
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn clear_across(to: *mut u8, n: usize) -> c_int {
                // SAFETY: the caller's promise; n is much more than `over`.
                unsafe {
                    let over = (to as usize + n) % 4096;
                    small::zero(to.add(n - over), over);
                    clear_loop(to, n - over);
                }
                done()
            }

            /// Clears more than eight vectors.
            #[inline(always)]
            unsafe fn clear_loop(to: *mut u8, n: usize) {
                // SAFETY: the caller's promise.
                unsafe {
                        asm!(
                            $clear,
                            "lea {last}, [{to} + {n}]",
                            concat!("sub {last}, 4*", $w),
                            concat!($load, " [{to}], ", $a),
                            concat!("add {to}, ", $w),
                            concat!("and {to}, -", $w),
                            "jmp 3f",
                            ".p2align 5",
                            "2:",
                            concat!($store, " [{to}], ", $a),
                            concat!($store, " [{to} + ", $w, "], ", $a),
                            concat!($store, " [{to} + 2*", $w, "], ", $a),
                            concat!($store, " [{to} + 3*", $w, "], ", $a),
                            concat!("add {to}, 4*", $w),
                            "3: cmp {to}, {last}",
                            "jb 2b",
                            concat!($load, " [{last}], ", $a),
                            concat!($load, " [{last} + ", $w, "], ", $a),
                            concat!($load, " [{last} + 2*", $w, "], ", $a),
                            concat!($load, " [{last} + 3*", $w, "], ", $a),
                            $end,
                            to = inout(reg) to => _, n = in(reg) n, last = out(reg) _,
                            $(out($used) _,)* options(nostack));
                }
            }

            /// Non-temporal clear.
            pub(in crate::memory::copy) unsafe fn clear_stream(to: *mut u8, n: usize) {
                let skip = 64 - to as usize % 64;
                if n < skip + 8 * $w {
                    // SAFETY: the caller's promise.
                    return unsafe { clear(to, n) };
                }
                let body = (n - skip) / (4 * $w) * (4 * $w);
                // SAFETY: skip + body <= n; the ends overlap it.
                unsafe {
                    small::zero(to, 64);
                    asm!(
                        $clear,
                        ".p2align 5",
                        "2:",
                        concat!($stream, " [{to}], ", $a),
                        concat!($stream, " [{to} + ", $w, "], ", $a),
                        concat!($stream, " [{to} + 2*", $w, "], ", $a),
                        concat!($stream, " [{to} + 3*", $w, "], ", $a),
                        concat!("add {to}, 4*", $w),
                        "cmp {to}, {end}",
                        "jb 2b",
                        "sfence",
                        concat!($load, " [{last}], ", $a),
                        concat!($load, " [{last} + ", $w, "], ", $a),
                        concat!($load, " [{last} + 2*", $w, "], ", $a),
                        concat!($load, " [{last} + 3*", $w, "], ", $a),
                        $end,
                        to = inout(reg) to.add(skip) => _, end = in(reg) to.add(skip + body),
                        last = in(reg) to.add(n - 4 * $w), $(out($used) _,)* options(nostack));
                }
            }
        }
    };
}

vectors!(sse2, 16, "movups", "movaps", "movntps", "",
    ["xmm0" "xmm1" "xmm2" "xmm3" "xmm4" "xmm5" "xmm6" "xmm7" "xmm8" "xmm9" "xmm10" "xmm11" "xmm12" "xmm13" "xmm14" "xmm15"],
    ["xmm0" "xmm1" "xmm2" "xmm3" "xmm4" "xmm5" "xmm6" "xmm7" "xmm8" "xmm9" "xmm10" "xmm11" "xmm12" "xmm13" "xmm14" "xmm15"],
    "xorps xmm0, xmm0", [0]);
vectors!(avx2, 32, "vmovups", "vmovaps", "vmovntps", "vzeroupper",
    ["ymm0" "ymm1" "ymm2" "ymm3" "ymm4" "ymm5" "ymm6" "ymm7" "ymm8" "ymm9" "ymm10" "ymm11" "ymm12" "ymm13" "ymm14" "ymm15"],
    ["xmm0" "xmm1" "xmm2" "xmm3" "xmm4" "xmm5" "xmm6" "xmm7" "xmm8" "xmm9" "xmm10" "xmm11" "xmm12" "xmm13" "xmm14" "xmm15"],
    "vxorps xmm0, xmm0, xmm0", [0 64]);
// The upper sixteen registers have no half that delays SSE code, so no `vzeroupper` is needed.
vectors!(avx512, 64, "vmovups", "vmovaps", "vmovntps", "",
    ["zmm16" "zmm17" "zmm18" "zmm19" "zmm20" "zmm21" "zmm22" "zmm23" "zmm24" "zmm25" "zmm26" "zmm27" "zmm28" "zmm29" "zmm30" "zmm31"],
    ["zmm16" "zmm17" "zmm18" "zmm19" "zmm20" "zmm21" "zmm22" "zmm23" "zmm24" "zmm25" "zmm26" "zmm27" "zmm28" "zmm29" "zmm30" "zmm31"],
    "vpxord zmm16, zmm16, zmm16", [0 64 128 192]);
