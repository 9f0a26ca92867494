//! A copy of all memory of a core, for cases in which it cannot be held (see `hold`): the process can end
//! once it is made.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;
use crate::layout::{Layout, Part};
use crate::memory::Memory;

/// All memory of a core, uncompressed, chunk after chunk without its holes.
pub(super) struct Copy {
    start: *mut u8,
    length: usize,
    /// The offsets of the chunks, and the end of the last one.
    offsets: Vec<usize>,
    parts: Vec<Vec<Part>>,
}

// SAFETY: the memory is written only while it is made, by threads with separate parts.
unsafe impl Sync for Copy {}

impl Copy {
    /// Copies all memory; `None` if our memory is not enough.
    pub(super) fn take(layout: &Layout, memory: &Memory, threads: usize) -> Result<Option<Self>, Error> {
        let parts: Vec<_> = (0..layout.chunks()).map(|chunk| layout.filled_parts(chunk)).collect();
        let mut offsets = vec![0];
        let mut length = 0;
        for chunk in &parts {
            length += chunk.iter().map(|part| (part.end - part.start) as usize).sum::<usize>();
            offsets.push(length);
        }
        let length = length.max(1);
        // SAFETY: a new mapping.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Ok(None);
        }
        // SAFETY: the mapping just made. Large pages only make it faster, so a refusal changes nothing.
        unsafe { libc::madvise(start, length, libc::MADV_HUGEPAGE) };
        let copy = Self { start: start.cast(), length, offsets, parts };
        let next = AtomicUsize::new(0);
        let shared = &copy;
        let work = || -> Result<(), Error> {
            loop {
                let chunk = next.fetch_add(1, Ordering::Relaxed);
                if chunk >= shared.parts.len() {
                    return Ok(());
                }
                shared.fill(chunk, memory)?;
            }
        };
        let mut result = Ok(());
        std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            for handle in handles {
                if let Ok(Err(e)) = handle.join() {
                    result = Err(e);
                }
            }
        });
        result.map(|()| Some(copy))
    }

    /// Copies the memory of a chunk; each is copied by one thread.
    fn fill(&self, chunk: usize, memory: &Memory) -> Result<(), Error> {
        let ranges: Vec<(u64, u64)> = self.parts[chunk].iter().map(|part| (part.start, part.end)).collect();
        let (from, to) = (self.offsets[chunk], self.offsets[chunk + 1]);
        // SAFETY: this chunk's part of the mapping, which no other thread touches meanwhile.
        let buffer = unsafe { std::slice::from_raw_parts_mut(self.start.add(from), to - from) };
        memory.read(&ranges, buffer).map(drop)
    }

    /// Fills a chunk whose holes are already zeros.
    pub(super) fn chunk(&self, chunk: usize, buffer: &mut [u8]) {
        let mut at = self.offsets[chunk];
        for part in &self.parts[chunk] {
            let length = (part.end - part.start) as usize;
            // SAFETY: within the mapping, which is no longer written.
            let bytes = unsafe { std::slice::from_raw_parts(self.start.add(at), length) };
            buffer[part.at..part.at + length].copy_from_slice(bytes);
            at += length;
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // SAFETY: the mapping made for it.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}
