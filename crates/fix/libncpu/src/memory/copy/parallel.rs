//! Copies of very large blocks by several threads.

use super::{Tuning, copy_part};
use crate::memory::crew;
use crate::sys::cpus::{self, Cpus};
use crate::sys::{AtomicUsize, Ordering::Relaxed};

/// What a thread takes at a time: long enough that taking it costs nothing, short enough that all end together.
const CHUNK: usize = 1 << 20;
/// A further thread must have this much to do: making it takes some 20 µs, in which one thread copies 200 KB.
const WORTH: usize = 8 << 20;
/// A few threads fill what memory can do.
const MOST: usize = 16;

/// Blocks, for threads.
struct Blocks {
    to: *mut u8,
    from: *const u8,
    length: usize,
}

// SAFETY: threads write to different parts.
unsafe impl Sync for Blocks {}

impl Blocks {
    /// Copies chunk number `n`; false if there is none. Chunks end at pages of the target.
    ///
    /// # Safety
    /// As for [`super::copy`]; each chunk by one thread.
    unsafe fn chunk(&self, n: usize) -> bool {
        let off = self.to as usize % 4096;
        let start = if n == 0 { 0 } else { n.saturating_mul(CHUNK) - off };
        if start >= self.length {
            return false;
        }
        let end = self.length.min((n + 1) * CHUNK - off);
        // SAFETY: within the blocks.
        unsafe { copy_part(self.to.add(start), self.from.add(start), end - start, self.length) };
        true
    }
}

/// Copies as [`copy`](super::copy) does, by up to `threads` threads, the caller's among them; 0 is as many as are
/// worth it: one for each 8 MB, at most 16, at most the CPUs near the target that the caller may use.
///
/// The others run near the target's memory if the machine has several NUMA nodes, and are gone when this returns.
/// They are bare threads of the kernel's that libc does not know of: signals do not reach them, and where there can be
/// none, for want of memory or by a limit, the caller copies alone. The caller's signals wait meanwhile.
///
/// # Safety
/// As for [`copy`](super::copy).
pub unsafe fn copy_parallel(to: *mut u8, from: *const u8, length: usize, threads: usize) {
    // Chosen now, not by a helper, which cannot ask for much.
    Tuning::current();
    let near = cpus::near(to as usize);
    let threads = if threads == 0 {
        let cpus = near.or_else(Cpus::allowed).map_or(1, |cpus| cpus.count());
        (length / WORTH).clamp(1, cpus.clamp(1, MOST))
    } else {
        threads.min(length.div_ceil(CHUNK).max(1))
    };
    let (next, blocks) = (AtomicUsize::new(0), Blocks { to, from, length });
    crew::run(threads - 1, &|_| near.as_ref(), &|_| {
        // SAFETY: the caller's promise; each number is taken once.
        unsafe { blocks.chunk(next.fetch_add(1, Relaxed)) }
    });
}
