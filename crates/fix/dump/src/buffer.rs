//! Large reusable buffers.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

/// Zeros at first, in huge pages if the kernel has them: copying to and from them takes fewer page table
/// walks. Aligned to huge pages, and so to the blocks of all disks.
pub(crate) struct Buffer {
    start: *mut u8,
    layout: Layout,
}

const ALIGN: usize = 2 << 20;

// SAFETY: memory that only this value uses.
unsafe impl Send for Buffer {}

impl Buffer {
    /// A buffer of this many bytes, at least one.
    pub(crate) fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).unwrap_or(Layout::new::<u8>());
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: memory of ours. If the advice is refused the pages are small.
        unsafe { libc::madvise(start.cast(), layout.size(), libc::MADV_HUGEPAGE) };
        // SAFETY: this many bytes were allocated.
        unsafe { start.write_bytes(0, layout.size()) };
        Self { start, layout }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this many bytes were allocated, and set to zero.
        unsafe { std::slice::from_raw_parts(self.start, self.layout.size()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: this many bytes were allocated, and set to zero.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with the same layout.
        unsafe { dealloc(self.start, self.layout) };
    }
}
