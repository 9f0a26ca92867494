//! The ring buffer of a perf event: `struct perf_event_mmap_page` and the pages behind it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys::bindings::perf_event_mmap_page;

/// A perf event and its ring. The kernel fills the ring and this process drains it.
pub struct Ring {
    base: NonNull<u8>,
    page: usize,
    data: usize,
    /// Keeps the event open while the ring exists.
    event: OwnedFd,
}

// SAFETY: only this value uses the mapping.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `pages` pages, a power of two.
    ///
    /// # Errors
    /// The error from mmap; EPERM if the user's rings would exceed `perf_event_mlock_kb`.
    pub fn new(event: OwnedFd, pages: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        let data = pages.next_power_of_two() * page;
        // SAFETY: a fresh shared mapping of an event that this process holds open.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page + data,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Ring { base, page, data, event })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the first page, aligned, and only ever accessed as an atomic.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Appends the bytes written since the last call and frees their room in the ring. Returns the bytes that
    /// the kernel reports but that are missing from the ring.
    pub fn drain(&mut self, out: &mut Vec<u8>) -> u64 {
        let head_at = std::mem::offset_of!(perf_event_mmap_page, data_head);
        let tail_at = std::mem::offset_of!(perf_event_mmap_page, data_tail);
        // Pairs with the kernel's release store: all bytes before the head are written.
        let head = self.word(head_at).load(Ordering::Acquire);
        let tail = self.word(tail_at).load(Ordering::Relaxed);
        // SAFETY: the data pages. The kernel does not overwrite a byte before the tail has passed it.
        let data = unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(self.page), self.data) };
        let lost = unwrap(data, tail, head, out);
        self.word(tail_at).store(head, Ordering::Release);
        lost
    }
}

impl AsFd for Ring {
    /// The event's descriptor. It becomes readable when the ring reaches its watermark.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and every borrow of it ended with the borrow of `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.data) };
    }
}

/// Appends the bytes from `tail` to `head` of a ring of a power of two bytes. Neither counter restarts at the
/// ring's end. A distance greater than the ring is invalid: then nothing is appended, and the distance is
/// returned.
fn unwrap(data: &[u8], tail: u64, head: u64, out: &mut Vec<u8>) -> u64 {
    let fresh = head.wrapping_sub(tail);
    if fresh > data.len() as u64 {
        return fresh;
    }
    let start = (tail % data.len().max(1) as u64) as usize;
    let first = (fresh as usize).min(data.len() - start);
    out.extend_from_slice(&data[start..start + first]);
    out.extend_from_slice(&data[..fresh as usize - first]);
    0
}

#[cfg(test)]
mod tests {
    use super::unwrap;

    #[test]
    fn records_go_round_the_end() {
        let data: Vec<u8> = (0..16).collect();
        let read = |tail, head| {
            let mut out = Vec::new();
            (unwrap(&data, tail, head, &mut out), out)
        };
        assert_eq!(read(4, 8), (0, vec![4, 5, 6, 7]));
        assert_eq!(read(14, 18), (0, vec![14, 15, 0, 1]));
        assert_eq!(read(u64::MAX - 1, 2), (0, vec![14, 15, 0, 1]), "the counter itself wraps");
        assert_eq!(read(16, 32).1, data);
        assert_eq!(read(0, 0), (0, vec![]));
        assert_eq!(read(0, 17), (17, vec![]));
        assert_eq!(read(9, 3), (u64::MAX - 5, vec![]));
    }
}
