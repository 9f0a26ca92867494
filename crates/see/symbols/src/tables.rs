//! The unwind tables of a program, of which only the needed parts are read. Those of a compiler are 16 MiB
//! and more, of which its running processes need some pages.

use std::cmp::Ordering;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use gimli::{BaseAddresses, CallFrameInstruction, EhFrame, LittleEndian, Operation, UnwindSection};
use ncpu_files::reader::Source;
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, elf};

use crate::bounded::Bounded;
use crate::elf::Segments;
use crate::recent::Recent;

/// The most bytes of a table of one file. The largest existing programs (compilers, browsers) have about 10
/// MiB.
const MAX_TABLE: u64 = 16 << 20;
/// The most bytes of a table that cannot be read in pages: one without the linkers' index.
const MAX_WHOLE: u64 = 1 << 20;
/// The most rows of an index that are read to find the largest function.
const MAX_ROWS: usize = 1 << 18;
/// The most entries of a table without an index.
const MAX_ENTRIES: usize = 1 << 14;
/// Tables up to this size are read whole. Larger ones keep the file's descriptor, which has the same cost.
const SMALL: usize = 32 << 10;
/// The most addresses of each generation whose rules are remembered, and the bytes of both generations.
const MAX_SEEN: usize = 1 << 8;
const SEEN_BYTES: usize = 2 * MAX_SEEN * size_of::<(u64, bool)>();
/// Bytes read at once.
const PAGE: usize = 4096;
/// The most bytes of the entry of one function, and of the common part of entries; no real one is longer.
const MAX_ENTRY: usize = 1 << 16;
const MAX_COMMON: usize = 1 << 12;
/// The most bytes of all entries of a table without an index, each with its common part.
const MAX_FOLLOWED: usize = 8 << 20;

/// A file's unwind tables, at its link-time addresses.
pub(crate) struct Tables {
    pub segments: Segments,
    /// `.eh_frame`: the unwind rules of each function.
    pub frame: (u64, Bytes),
    /// `.eh_frame_hdr`: the places of functions' entries in it, in the order of addresses.
    pub index: Option<(u64, Bytes)>,
    /// The number of rows of the index, if it has the linkers' usual form, so that an entry can be found
    /// before it is read.
    rows: Option<usize>,
    /// Whether the rules at an address may be followed, of the last addresses: stacks pass through the same calls again and again,
    /// also those of a program's next process.
    seen: Mutex<Recent<u64, bool>>,
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

impl Bytes {
    /// Reads `length` bytes at `from`. Returns the number of bytes read for that.
    fn need(&self, from: usize, length: usize) -> Option<u64> {
        match self {
            Bytes::Whole(_) => Some(0),
            Bytes::Pages(pages) => pages.need(from, length),
        }
    }

    /// The number of bytes that are always kept.
    fn kept(&self) -> usize {
        match self {
            Bytes::Whole(bytes) => bytes.len(),
            Bytes::Pages(_) => SMALL,
        }
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
    /// The tables of a 64-bit ELF file, and the number of bytes that count as kept; `None` if it has none, or
    /// is not an ELF file.
    pub fn read(source: &Source) -> Option<(Tables, u64)> {
        let segments = Segments::read(source)?;
        // Section by section: reading the whole file would include its symbols, which in some files have
        // hundreds of megabytes.
        let file = Bounded::new(source);
        let header = elf::FileHeader64::<Endianness>::parse(&file).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, &file).ok()?;
        let section = |name: &[u8]| {
            let (_, section) = sections.section_by_name(endian, name)?;
            (section.sh_size(endian) <= MAX_TABLE).then_some(section)
        };
        let lies = |section: &elf::SectionHeader64<Endianness>| {
            (section.sh_addr(endian), section.sh_offset(endian), section.sh_size(endian) as usize)
        };
        let whole = |section: &elf::SectionHeader64<Endianness>| {
            let small = section.sh_size(endian) <= MAX_WHOLE;
            Some(Bytes::Whole(Arc::from(small.then(|| section.data(endian, &file).ok())??)))
        };
        let pages = |section: &elf::SectionHeader64<Endianness>| {
            let (_, offset, size) = lies(section);
            let within = offset.checked_add(size as u64).is_some_and(|end| end <= source.size());
            Some(Bytes::Pages(Arc::new(Pages::new(within.then(|| source.clone())?, offset, size)?)))
        };
        let (frame, index) = (section(b".eh_frame")?, section(b".eh_frame_hdr"));
        // The header of the index decides whether both can be read in pages.
        let (rows, index_bytes) = index.map_or((None, None), |section| {
            let small = lies(section).2 <= SMALL;
            let bytes = if small { whole(section) } else { pages(section) };
            let rows = bytes.as_ref().and_then(|bytes| {
                bytes.need(0, HEADER)?;
                count_rows(bytes)
            });
            (rows, if small || rows.is_some() { bytes } else { whole(section) })
        });
        let index = index.zip(index_bytes).map(|(section, bytes)| (lies(section).0, bytes));
        let bytes = if rows.is_some() && lies(frame).2 > SMALL { pages(frame)? } else { whole(frame)? };
        // Without an index the unwinder may read any entry.
        if rows.is_none() && !all_end(&bytes) {
            return None;
        }
        let kept = bytes.kept()
            + index.as_ref().map_or(0, |(_, index)| index.kept())
            + rows.map_or(0, |_| SEEN_BYTES);
        let seen = Mutex::new(Recent::new(MAX_SEEN));
        Some((Tables { segments, frame: (lies(frame).0, bytes), index, rows, seen }, kept as u64))
    }

    /// The largest function, from its first address to the next function's, if there is an index and no other
    /// function comes near in size.
    pub fn largest(&self) -> Option<Range<u64>> {
        let (rows, (at, index)) = (self.rows?, self.index.as_ref()?);
        (rows <= MAX_ROWS).then(|| index.need(HEADER, rows * ROW))??;
        largest(index, rows, *at)
    }

    /// Reads the rules for unwinding the function at `address` (link-time). Returns the number of bytes read;
    /// `None` if the rules must not be followed, because they may never end.
    pub fn need(&self, address: u64) -> Option<u64> {
        let (Some(rows), Some((at, index)), (from, frame)) = (self.rows, &self.index, &self.frame) else {
            return Some(0);
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ends) = seen.get(&address) {
            return ends.then_some(0);
        }
        let mut read = 0;
        let entry = entry(index, rows, *at, address, &mut read).and_then(|entry| entry.checked_sub(*from));
        let Some(entry) = entry.and_then(|e| usize::try_from(e).ok()) else { return Some(read) };
        // Entries that cannot be read now are tried again.
        let mut whole = true;
        let mut need = |from, length| match frame.need(from, length) {
            Some(bytes) => read += bytes,
            None => whole = false,
        };
        need(entry, 8);
        if let Some(common) = common_part(frame, entry) {
            need(common, 4);
        }
        let Some((own, common)) = lengths(frame, entry) else {
            if whole {
                seen.insert(address, false);
            }
            return None;
        };
        need(entry, own);
        if let Some((common, length)) = common {
            need(common, length);
        }
        let ends = ends(frame, entry);
        if whole {
            seen.insert(address, ends);
        }
        ends.then_some(read)
    }
}

/// The place of the common part of an entry: its distance before the second word.
fn common_part(frame: &[u8], entry: usize) -> Option<usize> {
    word(frame, entry + 4).and_then(|back| (entry + 4).checked_sub(back as usize))
}

/// The length of an entry, and the place and length of its common part; `None` if one is longer than any real
/// one. Outside the table the length is 0.
fn lengths(frame: &[u8], entry: usize) -> Option<(usize, Option<(usize, usize)>)> {
    let length = |at: usize, most: usize| match word(frame, at) {
        Some(length) => Some((length as usize).saturating_add(4)).filter(|length| *length <= most),
        None => Some(0),
    };
    let own = length(entry, MAX_ENTRY)?;
    let Some(common) = common_part(frame, entry) else { return Some((own, None)) };
    Some((own, Some((common, length(common, MAX_COMMON)?))))
}

/// Whether following the entry at a place of a table must end: its expressions, and those of its common part,
/// have no jumps. No compiler writes jumps. An invalid entry ends at once.
fn ends(frame: &[u8], entry: usize) -> bool {
    let (section, bases) = (EhFrame::new(frame, LittleEndian), BaseAddresses::default().set_eh_frame(0));
    let get = |section: &EhFrame<_>, bases: &BaseAddresses, at| section.cie_from_offset(bases, at);
    let Ok(entry) = section.fde_from_offset(&bases, entry.into(), get) else { return true };
    let jumps = |instructions: gimli::CallFrameInstructionIter<'_, gimli::EndianSlice<'_, LittleEndian>>| {
        let mut instructions = instructions;
        while let Ok(Some(instruction)) = instructions.next() {
            let expression = match instruction {
                CallFrameInstruction::DefCfaExpression { expression }
                | CallFrameInstruction::Expression { expression, .. }
                | CallFrameInstruction::ValExpression { expression, .. } => expression,
                _ => continue,
            };
            let Ok(expression) = expression.get(&section) else { return false };
            let mut operations = expression.operations(entry.cie().encoding());
            while let Ok(Some(operation)) = operations.next() {
                if matches!(operation, Operation::Skip { .. } | Operation::Bra { .. }) {
                    return true;
                }
            }
        }
        false
    };
    !jumps(entry.instructions(&section, &bases)) && !jumps(entry.cie().instructions(&section, &bases))
}

/// Whether this holds for all entries of a table, and they are no longer than real ones. Entries may share a
/// common part, which is followed for each.
fn all_end(frame: &[u8]) -> bool {
    let (section, bases) = (EhFrame::new(frame, LittleEndian), BaseAddresses::default().set_eh_frame(0));
    let mut entries = section.entries(&bases);
    let mut left = MAX_FOLLOWED;
    for _ in 0..MAX_ENTRIES {
        match entries.next() {
            Ok(Some(gimli::CieOrFde::Fde(entry))) => {
                let followed = lengths(frame, entry.offset());
                let followed = followed.map(|(own, common)| own + common.map_or(0, |(_, length)| length));
                let Some(rest) = followed.and_then(|followed| left.checked_sub(followed)) else {
                    return false;
                };
                left = rest;
                if !ends(frame, entry.offset()) {
                    return false;
                }
            }
            // A long one takes long each time that one is read.
            Ok(Some(gimli::CieOrFde::Cie(common))) => {
                if common.entry_len() > MAX_COMMON {
                    return false;
                }
            }
            Ok(None) | Err(_) => return true,
        }
    }
    false
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

/// Bytes of the index before its rows.
const HEADER: usize = 12;
/// Bytes of a row: signed distances from the index's own address, of a function and of its entry.
const ROW: usize = 8;

/// The number of rows of an index: version 1, a pointer to the table, a row count of 4 bytes, and rows
/// relative to the index's own address, as written by all linkers. (Linux Standard Base, "The .eh_frame_hdr
/// section".)
fn count_rows(index: &[u8]) -> Option<usize> {
    const PCREL_SDATA4: u8 = 0x1b;
    const UDATA4: u8 = 0x03;
    const DATAREL_SDATA4: u8 = 0x3b;
    if index.get(..4)? != [1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4] {
        return None;
    }
    let count = word(index, 8)? as usize;
    (count <= (index.len() - HEADER) / ROW).then_some(count)
}

/// The function of an index at `at` that is at least 1.5 times the size of every other one, if there is one.
fn largest(index: &[u8], rows: usize, at: u64) -> Option<Range<u64>> {
    let start = |row: usize| {
        let distance = word(index, HEADER + row * ROW)?;
        Some(at.wrapping_add_signed(i64::from(distance as i32)))
    };
    let size = |of: &Range<u64>| of.end.saturating_sub(of.start);
    let (mut most, mut second) = (0..0, 0);
    for row in 1..rows {
        let function = start(row - 1)?..start(row)?;
        if size(&function) > size(&most) {
            second = size(&most);
            most = function;
        } else {
            second = second.max(size(&function));
        }
    }
    (size(&most) / 3 * 2 > second).then_some(most)
}

/// The address of the entry for the last function that begins at or before `address`, in an index at `at`.
/// Rows are read in the same order as in gimli's `EhHdrTable::lookup`, which then finds every row that it
/// needs. `read` grows by the number of bytes read.
fn entry(index: &Bytes, rows: usize, at: u64, address: u64, read: &mut u64) -> Option<u64> {
    let mut value = |row: usize, second: usize| {
        let from = HEADER + row * ROW;
        *read += index.need(from, ROW)?;
        let distance = word(index, from + second * 4)?;
        Some(at.wrapping_add_signed(i64::from(distance as i32)))
    };
    let (mut first, mut count) = (0, rows);
    while count > 1 {
        let half = count / 2;
        match value(first + half, 0)?.cmp(&address) {
            Ordering::Equal => {
                first += half;
                break;
            }
            Ordering::Less => {
                first += half;
                count -= half;
            }
            Ordering::Greater => count = half,
        }
    }
    (rows > 0 && value(first, 0)? <= address).then(|| value(first, 1))?
}

/// A part of a file at its full length, of which only the needed pages were read; the others are zeros
/// without memory. Not a mapping of the file: truncating a mapped file kills the process that reads it.
pub(crate) struct Pages {
    file: Source,
    offset: u64,
    length: usize,
    base: NonNull<u8>,
    /// One bit per page.
    there: Mutex<Vec<u64>>,
}

// SAFETY: the memory belongs to this value; writes are made under the lock, once per page.
unsafe impl Send for Pages {}
// SAFETY: as above. Readers use only pages that were needed before, which are not written again.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(file: Source, offset: u64, length: usize) -> Option<Pages> {
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

    /// Reads the pages of `length` bytes at `from`, within the section. Returns the number of bytes read;
    /// `None` if there is nothing or it is unreadable, which leaves zeros.
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
            // SAFETY: the page lies within the memory, and is not marked as present yet, so no thread reads
            // it.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(begin), bytes.len())
            };
            there[page / 64] |= bit;
            read += PAGE as u64;
        }
        Some(read)
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory has this length, is initialised (zeros, or file contents), and lives as long as
        // this value.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, and no borrow of it exists.
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
        let (tables, kept) = Tables::read(&Source::open(&path).unwrap()).expect("a test has unwind tables");
        let file = std::fs::read(&path).unwrap();
        let both = |bytes: &Bytes| {
            let Bytes::Pages(pages) = bytes else { panic!("they are large, and linkers write an index") };
            let from = pages.offset as usize;
            (pages.clone(), file[from..from + pages.length].to_vec())
        };
        let (lazy, whole) = both(&tables.frame.1);
        let (at, index) = tables.index.as_ref().unwrap();
        let whole_index = both(index).1;
        let rows = count_rows(&whole_index).unwrap();
        let mut read = 0;
        for row in (0..rows).step_by(rows / 20) {
            let value = |second: usize| {
                let distance = word(&whole_index, HEADER + row * ROW + second * 4).unwrap() as i32;
                at.wrapping_add_signed(i64::from(distance))
            };
            let function = value(0);
            read += tables.need(function + 1).expect("no jumps");
            let entry = (value(1) - tables.frame.0) as usize;
            let length = word(&whole, entry).unwrap() as usize + 4;
            assert_eq!(lazy[entry..entry + length], whole[entry..entry + length]);
            let common = entry + 4 - word(&whole, entry + 4).unwrap() as usize;
            assert_eq!(lazy[common..common + 16], whole[common..common + 16]);
            assert_eq!(tables.need(function + 1), Some(0), "it is there");
        }
        let all = (whole.len() + whole_index.len()) as u64;
        assert!(read > 0 && read < all / 2, "{read} of {all} bytes");
        assert!(kept < whole.len() as u64 && whole.len() > SMALL, "{kept} of {} bytes", whole.len());
        // Before the first function, and beyond the section.
        tables.need(0);
        assert_eq!(tables.need(0), Some(0));
        assert_eq!(lazy.need(lazy.length, 1), None);
        assert_eq!(lazy.need(usize::MAX, 2), None);
    }

    #[test]
    fn a_file_that_is_cut_has_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cut");
        std::fs::write(&path, [7; 3 * PAGE]).unwrap();
        let pages = Pages::new(Source::open(&path).unwrap(), 0, 3 * PAGE).unwrap();
        assert_eq!(pages.need(10, PAGE), Some(2 * PAGE as u64));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(PAGE as u64).unwrap();
        assert_eq!(pages.need(2 * PAGE, 1), None);
        assert_eq!((pages[PAGE], pages[2 * PAGE]), (7, 0));
    }

    /// An index at address 0 with these rows.
    fn index_of(rows: impl IntoIterator<Item = [i32; 2]>) -> Vec<u8> {
        let rows: Vec<u8> = rows.into_iter().flatten().flat_map(i32::to_le_bytes).collect();
        let count = (rows.len() / ROW) as u32;
        [&[1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0][..], &count.to_le_bytes(), &rows].concat()
    }

    #[test]
    fn the_largest_function_is_one_that_no_other_comes_near() {
        let of = |starts: &[i32]| {
            let index = index_of(starts.iter().map(|start| [*start, 0]));
            largest(&index, starts.len(), 1 << 20)
        };
        let at = |from: u64, to: u64| Some((1 << 20) + from..(1 << 20) + to);
        assert_eq!(of(&[0, 100, 400, 500]), at(100, 400));
        assert_eq!(of(&[0, 250, 550, 560]), None);
        assert_eq!((of(&[]), of(&[7]), of(&[900, 100, 50])), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_index_is_searched(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0u32..40, address: u64) {
            let mut index = index_of([]);
            index[8..].copy_from_slice(&count.to_le_bytes());
            index.extend(bytes);
            if let Some(rows) = count_rows(&index) {
                entry(&Bytes::Whole(index.clone().into()), rows, address / 2, address, &mut 0);
            }
            prop_assert!(count_rows(&index[..9]).is_none());
        }

        /// Unread pages are zeros, which gimli would treat as rows.
        #[test]
        fn gimli_finds_all_rows_that_it_looks_at(
            mut starts in prop::collection::vec(0i32..1 << 20, 1..5000),
            addresses in prop::collection::vec(0u64..1 << 20, 1..4),
        ) {
            starts.sort_unstable();
            starts.dedup();
            let whole = index_of(starts.iter().enumerate().map(|(row, start)| [*start, row as i32 * 8]));
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &whole).unwrap();
            let pages = Pages::new(Source::open(file.path()).unwrap(), 0, whole.len()).unwrap();
            let lazy = Bytes::Pages(Arc::new(pages));
            lazy.need(0, HEADER);
            for address in addresses {
                let ours = entry(&lazy, starts.len(), 0, address, &mut 0);
                let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(0).set_eh_frame(0);
                let found = |bytes: &[u8]| {
                    let header = gimli::EhFrameHdr::new(bytes, gimli::LittleEndian).parse(&bases, 8).unwrap();
                    header.table().unwrap().lookup(address, &bases).unwrap().direct().unwrap()
                };
                prop_assert_eq!(found(&lazy), found(&whole));
                if let Some(ours) = ours {
                    prop_assert_eq!(ours, found(&whole));
                } else {
                    prop_assert!(address < starts[0] as u64);
                }
            }
        }
    }
}
