//! A BPF array map read without system calls.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use super::Plain;

/// A mapping of a `BPF_F_MMAPABLE` array, read-only except for [`Mapped::clear`].
pub struct Mapped<T> {
    base: NonNull<u8>,
    bytes: usize,
    len: usize,
    stride: usize,
    of: PhantomData<T>,
}

// SAFETY: the mapping is only read, by volatile copies.
unsafe impl<T> Send for Mapped<T> {}

impl<T: Plain> Mapped<T> {
    /// Maps `len` values; the kernel rounds each up to 8 bytes.
    pub fn new(map: &impl AsFd, len: usize) -> std::io::Result<Mapped<T>> {
        Mapped::map(map, len, libc::PROT_READ)
    }

    /// As [`Mapped::new`], but the values can be cleared.
    pub fn to_clear(map: &impl AsFd, len: usize) -> std::io::Result<Mapped<T>> {
        Mapped::map(map, len, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn map(map: &impl AsFd, len: usize, access: libc::c_int) -> std::io::Result<Mapped<T>> {
        let stride = size_of::<T>().next_multiple_of(8);
        let page = rustix::param::page_size();
        let bytes = (stride * len).next_multiple_of(page);
        // SAFETY: a fresh shared mapping of a map that this process holds open.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, map.as_fd().as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok(Mapped { base, bytes, len, stride, of: PhantomData })
    }

    /// A copy of one value. The kernel may write meanwhile: each word is consistent, but the value may be
    /// torn.
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.len);
        // SAFETY: in bounds; volatile because the kernel writes concurrently; `T` accepts any bits.
        unsafe { self.base.as_ptr().add(index * self.stride).cast::<T>().read_volatile() }
    }

    /// A copy of one value that the kernel may be writing, read until two successive copies are the `same`.
    /// After [`READS`] reads the last copy is returned, torn or not.
    pub fn get_whole(&self, index: usize, same: impl Fn(&T, &T) -> bool) -> T {
        until_same(|| self.get(index), same)
    }

    /// The first word of a value, to skip empty slots cheaply.
    pub fn first_word(&self, index: usize) -> u64 {
        assert!(index < self.len);
        // SAFETY: as in `get`; every value is at least one word.
        unsafe { self.base.as_ptr().add(index * self.stride).cast::<u64>().read_volatile() }
    }

    /// Reads the values at these places and clears each one. Values whose first word is 0 are empty and are
    /// skipped. The conditions of [`Mapped::clear`] apply.
    pub fn take(&mut self, places: impl IntoIterator<Item = usize>) -> impl Iterator<Item = T> {
        places.into_iter().filter_map(|place| {
            if self.first_word(place) == 0 {
                return None;
            }
            let value = self.get(place);
            self.clear(place);
            Some(value)
        })
    }

    /// Makes a value all zeroes; only of a mapping made by [`Mapped::to_clear`], and of values that no program
    /// writes meanwhile.
    pub fn clear(&mut self, index: usize) {
        assert!(index < self.len);
        // SAFETY: in bounds, mapped for writing; zeroes are a `T`, which is plain.
        unsafe { self.base.as_ptr().add(index * self.stride).cast::<T>().write_volatile(T::default()) };
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the array is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Maximum number of copies that [`Mapped::get_whole`] reads.
const READS: usize = 16;

fn until_same<T>(mut read: impl FnMut() -> T, same: impl Fn(&T, &T) -> bool) -> T {
    let mut last = read();
    for _ in 1..READS {
        let next = read();
        let whole = same(&last, &next);
        last = next;
        if whole {
            break;
        }
    }
    last
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and it was never handed out.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_until_two_copies_are_the_same() {
        let copies = [(1, 2), (3, 2), (3, 4), (3, 4), (5, 6)];
        let mut reads = 0;
        let read = || {
            reads += 1;
            copies[reads - 1]
        };
        assert_eq!(until_same(read, |a, b| a == b), (3, 4));
        assert_eq!(reads, 4);
    }

    #[test]
    fn a_value_that_never_stands_still_is_read_a_bounded_number_of_times() {
        let mut reads = 0;
        let read = || {
            reads += 1;
            reads
        };
        assert_eq!(until_same(read, |a, b| a == b), READS);
        assert_eq!(reads, READS);
    }
}
