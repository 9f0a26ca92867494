//! Blocks so small that a call would be the larger part of the work: a few loads and stores at any alignment.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::uint8x16_t as Vector;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m128i as Vector;

const V: usize = size_of::<Vector>();

/// The first and the last `T` of a block, which may overlap.
#[inline(always)]
unsafe fn two<T>(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: the caller's promise, and `n >= size_of::<T>()`.
    unsafe {
        let last = n - size_of::<T>();
        let (a, b) = (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(a);
        to.add(last).cast::<T>().write_unaligned(b);
    }
}

/// Copies up to [`SMALL`](super::SMALL) bytes: all is loaded before anything is stored.
///
/// # Safety
/// As for [`copy`](super::copy); `n` is at most `SMALL`.
#[inline(always)]
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: each branch loads and stores the first and the last `k` bytes where `k <= n <= 2 * k`.
    unsafe {
        let load = |at: usize| from.add(at).cast::<Vector>().read_unaligned();
        let store = |at: usize, vector: Vector| to.add(at).cast::<Vector>().write_unaligned(vector);
        if n >= V {
            if n <= 2 * V {
                two::<Vector>(to, from, n);
            } else {
                let (a, b, c, d) = (load(0), load(V), load(n - 2 * V), load(n - V));
                store(0, a);
                store(V, b);
                store(n - 2 * V, c);
                store(n - V, d);
            }
        } else if n >= 8 {
            two::<u64>(to, from, n);
        } else if n >= 4 {
            two::<u32>(to, from, n);
        } else if n > 0 {
            // The first, the middle and the last byte, which are all bytes of up to three.
            let (first, middle, last) = (from.read(), from.add(n / 2).read(), from.add(n - 1).read());
            to.write(first);
            to.add(n / 2).write(middle);
            to.add(n - 1).write(last);
        }
    }
}

/// Clears up to `SMALL` bytes.
///
/// # Safety
/// As for [`fill_zero`](super::fill_zero); `n` is at most `SMALL`.
#[inline(always)]
pub(super) unsafe fn zero(to: *mut u8, n: usize) {
    // SAFETY: as in `copy`.
    unsafe {
        // SAFETY: any bit pattern is a valid vector.
        let nothing: Vector = std::mem::zeroed();
        let store = |at: usize| to.add(at).cast::<Vector>().write_unaligned(nothing);
        if n >= V {
            store(0);
            store(n - V);
            if n > 2 * V {
                store(V);
                store(n - 2 * V);
            }
        } else if n >= 8 {
            to.cast::<u64>().write_unaligned(0);
            to.add(n - 8).cast::<u64>().write_unaligned(0);
        } else if n >= 4 {
            to.cast::<u32>().write_unaligned(0);
            to.add(n - 4).cast::<u32>().write_unaligned(0);
        } else if n >= 2 {
            to.cast::<u16>().write_unaligned(0);
            to.add(n - 2).cast::<u16>().write_unaligned(0);
        } else if n == 1 {
            to.write(0);
        }
    }
}
