//! The unwind tables of a program, of which only what is asked for is read. Those of a compiler are 16 MiB, of which its
//! processes at work need some pages.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, ReadCache, elf};

use crate::elf::Segments;

/// Bytes of a table of one file. The largest programs there are (compilers, browsers) have some 10 MiB.
const MAX_TABLE: u64 = 16 << 20;
/// A table that is read whole, and what one that is not counts beside its pages, for the descriptor it keeps.
const SMALL: usize = 256 << 10;
/// What is read at once.
const PAGE: usize = 4096;
/// Bytes of the entries that tell how a function is unwound; no real one is longer.
const MAX_ENTRY: usize = 1 << 16;

/// A file's unwind tables, at the addresses it was linked for.
pub(crate) struct Tables {
    pub segments: Segments,
    /// `.eh_frame`: how each function is unwound.
    pub frame: (u64, Bytes),
    /// `.eh_frame_hdr`: where in it a function's entry is, in the order of addresses.
    pub index: Option<(u64, Bytes)>,
    /// The index is as linkers make it, so that an entry can be found before it is read.
    rows: Option<Rows>,
}

/// Rows of the index: signed distances from its own address, of a function and of its entry.
struct Rows {
    from: usize,
    count: usize,
}

/// A section.
#[derive(Clone)]
pub(crate) enum Bytes {
    Whole(Arc<[u8]>),
    Pages(Arc<Pages>),
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Whole(Arc::default())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Whole(bytes) => bytes,
            Bytes::Pages(pages) => pages,
        }
    }
}

impl Tables {
    /// The tables of a 64-bit ELF file, and how many bytes they count as kept; `None` where it has none, or is none.
    pub fn read(path: &Path) -> Option<(Tables, u64)> {
        let segments = Segments::read(path)?;
        // Section by section: the whole file would be read with its symbols, of which some have hundreds of megabytes.
        let file = ReadCache::new(File::open(path).ok()?);
        let header = elf::FileHeader64::<Endianness>::parse(&file).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &file).ok()?;
        let section = |name: &[u8]| {
            let (_, section) = sections.section_by_name(endian, name)?;
            (section.sh_size(endian) <= MAX_TABLE).then_some(section)
        };
        let whole = |section: &elf::SectionHeader64<Endianness>| {
            Some(Bytes::Whole(Arc::from(section.data(endian, &file).ok()?)))
        };
        let frame = section(b".eh_frame")?;
        let index = section(b".eh_frame_hdr").and_then(|s| Some((s.sh_addr(endian), whole(s)?)));
        let rows = index.as_ref().and_then(|(_, bytes)| Rows::of(bytes));
        let lies = (frame.sh_offset(endian), frame.sh_size(endian) as usize);
        let bytes = match rows {
            Some(_) if lies.1 > SMALL => {
                Bytes::Pages(Arc::new(Pages::new(File::open(path).ok()?, lies.0, lies.1)?))
            }
            _ => whole(frame)?,
        };
        let frame = (frame.sh_addr(endian), bytes);
        let index_bytes = index.as_ref().map_or(0, |(_, index)| index.len());
        let kept = index_bytes + if let Bytes::Whole(frame) = &frame.1 { frame.len() } else { SMALL };
        Some((Tables { segments, frame, index, rows }, kept as u64))
    }

    /// Reads what tells how the function at `address` (as the file was linked) is unwound. Returns the bytes read.
    pub fn need(&self, address: u64) -> u64 {
        let (Some(rows), Some((at, index)), (from, Bytes::Pages(frame))) =
            (&self.rows, &self.index, &self.frame)
        else {
            return 0;
        };
        let entry = rows.entry(index, *at, address).and_then(|entry| entry.checked_sub(*from));
        let Some(entry) = entry.and_then(|e| usize::try_from(e).ok()) else { return 0 };
        let (Some(mut read), Some(own)) = (frame.need(entry, 8), frame.word(entry)) else { return 0 };
        read += frame.need(entry, entry_length(own)).unwrap_or(0);
        // What entries have in common: so far before the second word.
        let common = frame.word(entry + 4).and_then(|back| (entry + 4).checked_sub(back as usize));
        if let Some(common) = common {
            read += frame.need(common, 4).unwrap_or(0);
            read += frame.word(common).and_then(|n| frame.need(common, entry_length(n))).unwrap_or(0);
        }
        read
    }
}

/// The length of an entry whose first word this is. Those of more than 4 GiB are not read, and then end the unwinding.
fn entry_length(first: u32) -> usize {
    (first as usize).saturating_add(4).min(MAX_ENTRY)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

impl Rows {
    /// Version 1, a pointer to the table, a count of rows of 4 bytes, and rows relative to the index's own address: as
    /// all linkers write it. (Linux Standard Base, "The .eh_frame_hdr section".)
    fn of(index: &[u8]) -> Option<Rows> {
        const PCREL_SDATA4: u8 = 0x1b;
        const UDATA4: u8 = 0x03;
        const DATAREL_SDATA4: u8 = 0x3b;
        if index.get(..4)? != [1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4] {
            return None;
        }
        let count = word(index, 8)? as usize;
        (count <= (index.len() - 12) / 8).then_some(Rows { from: 12, count })
    }

    /// The address of the entry for the last function that begins at or before `address`.
    fn entry(&self, index: &[u8], at: u64, address: u64) -> Option<u64> {
        let value = |row: usize, second: usize| {
            let distance = word(index, self.from + row * 8 + second * 4)?;
            Some(at.wrapping_add_signed(i64::from(distance as i32)))
        };
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match value(middle, 0)? <= address {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        value(low.checked_sub(1)?, 1)
    }
}

/// A part of a file as long as it is, of which only pages that were needed have been read; the others are zeros without
/// memory. Not a mapping of the file: who shortens one that is mapped kills the process that reads it.
pub(crate) struct Pages {
    file: File,
    offset: u64,
    length: usize,
    base: NonNull<u8>,
    /// A bit a page.
    there: Mutex<Vec<u64>>,
}

// SAFETY: the memory is this value's own; writes are made under the lock, once a page.
unsafe impl Send for Pages {}
// SAFETY: as above. Readers look at pages that were asked for before, which are not written again.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(file: File, offset: u64, length: usize) -> Option<Pages> {
        // SAFETY: new memory at an address that the kernel chooses.
        let base = unsafe {
            let (read_write, new) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), length.max(1), read_write, new | libc::MAP_NORESERVE, -1, 0)
        };
        let base = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED)?;
        let there = Mutex::new(vec![0; length.div_ceil(PAGE).div_ceil(64)]);
        Some(Pages { file, offset, length, base, there })
    }

    /// Reads the pages of `length` bytes at `from`, as far as the section goes. Returns how many bytes were read now; `None` where
    /// nothing lies there or it cannot be read, which leaves zeros.
    fn need(&self, from: usize, length: usize) -> Option<u64> {
        let end = from.checked_add(length)?.min(self.length);
        if from >= end {
            return None;
        }
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        let mut read = 0;
        for page in from / PAGE..end.div_ceil(PAGE) {
            let bit = 1 << (page % 64);
            if there[page / 64] & bit != 0 {
                continue;
            }
            let begin = page * PAGE;
            let mut bytes = [0; PAGE];
            let bytes = &mut bytes[..PAGE.min(self.length - begin)];
            self.file.read_exact_at(bytes, self.offset + begin as u64).ok()?;
            // SAFETY: the page lies within the memory, and nobody has been told that it is there, so that nobody looks at it.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(begin), bytes.len())
            };
            there[page / 64] |= bit;
            read += PAGE as u64;
        }
        Some(read)
    }

    fn word(&self, at: usize) -> Option<u32> {
        word(self, at)
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is as long, initialised (zeros, or what was read), and lives as long as this value.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, and nothing borrows it any longer.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length.max(1)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_needed_is_read_and_the_rest_is_not() {
        let path = std::env::current_exe().unwrap();
        let (tables, kept) = Tables::read(&path).expect("a test has unwind tables");
        let (lazy, whole) = {
            let file = std::fs::read(&path).unwrap();
            let (_, Bytes::Pages(pages)) = &tables.frame else { panic!("linkers write an index") };
            let from = pages.offset as usize;
            (pages.clone(), file[from..from + pages.length].to_vec())
        };
        let (at, bytes) = tables.index.as_ref().unwrap();
        let rows = Rows::of(bytes).unwrap();
        let mut read = 0;
        for row in (0..rows.count).step_by(rows.count / 50) {
            let distance = word(bytes, rows.from + row * 8).unwrap() as i32;
            let function = at.wrapping_add_signed(i64::from(distance));
            read += tables.need(function + 1);
            let entry = (rows.entry(bytes, *at, function).unwrap() - tables.frame.0) as usize;
            let length = word(&whole, entry).unwrap() as usize + 4;
            assert_eq!(lazy[entry..entry + length], whole[entry..entry + length]);
            let common = entry + 4 - word(&whole, entry + 4).unwrap() as usize;
            assert_eq!(lazy[common..common + 16], whole[common..common + 16]);
            assert_eq!(tables.need(function + 1), 0, "it is there");
        }
        assert!(read > 0 && read < whole.len() as u64 / 2, "{read} of {} bytes", whole.len());
        assert!(kept < whole.len() as u64 && whole.len() > SMALL, "{kept} of {} bytes", whole.len());
        // Before the first function, and beyond the section.
        assert_eq!(tables.need(0), 0);
        assert_eq!(lazy.need(lazy.length, 1), None);
        assert_eq!(lazy.need(usize::MAX, 2), None);
    }

    #[test]
    fn a_file_that_is_cut_has_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cut");
        std::fs::write(&path, [7; 3 * PAGE]).unwrap();
        let pages = Pages::new(File::open(&path).unwrap(), 0, 3 * PAGE).unwrap();
        assert_eq!(pages.need(10, PAGE), Some(2 * PAGE as u64));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(PAGE as u64).unwrap();
        assert_eq!(pages.need(2 * PAGE, 1), None);
        assert_eq!((pages[PAGE], pages[2 * PAGE]), (7, 0));
    }

    proptest! {
        #[test]
        fn any_index_is_searched(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0u32..40, address: u64) {
            let mut index = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0];
            index.extend(count.to_le_bytes());
            index.extend(bytes);
            if let Some(rows) = Rows::of(&index) {
                rows.entry(&index, address / 2, address);
            }
            prop_assert!(Rows::of(&index[..9]).is_none());
        }
    }
}
