//! Copies of very large blocks by several threads.

use super::{Tuning, copy_part};
use crate::memory::crew;
use crate::sys::cpus::{self, Cpus};
use crate::sys::{AtomicUsize, Ordering::Relaxed};

/// Bytes that a thread takes at a time: enough to make the cost of taking negligible, few enough that all
/// threads end together.
const CHUNK: usize = 1 << 20;
/// A further thread must have this much to do: making it takes some 20 µs, in which one thread copies 200 KB.
const WORTH: usize = 8 << 20;
/// A few threads saturate the memory.
const MOST: usize = 16;

/// The blocks of a copy, shared by its threads.
struct Blocks {
    to: *mut u8,
    from: *const u8,
    length: usize,
}

// SAFETY: threads write to different parts.
unsafe impl Sync for Blocks {}

impl Blocks {
    /// Copies chunk number `n`; false beyond the last chunk. Chunks end at pages of the target.
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

/// Copies as [`copy`](super::copy) does, by up to `threads` threads, including the caller's. 0 selects one
/// thread for each 8 MB, at most 16, and at most the number of CPUs near the target that the caller may use.
///
/// The helpers run near the target's memory if the machine has several NUMA nodes, and have ended when this
/// returns. They are bare kernel threads, unknown to libc: signals do not reach them. If none can be made,
/// for lack of memory or by a limit, the caller copies alone. The caller's signals are blocked meanwhile.
///
/// # Safety
/// As for [`copy`](super::copy).
pub unsafe fn copy_parallel(to: *mut u8, from: *const u8, length: usize, threads: usize) {
    // Chosen before the helpers start, because a helper may make only few calls.
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
