//! Finds the existing pages of a process without touching them (/proc/PID/pagemap).

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use ncpu_machine::page_size;

use crate::Error;
use crate::sys::{ioctl, iowr};

/// Ranges of addresses, sorted and disjoint.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// The page map of a process.
pub(crate) struct PageMap {
    pid: i32,
    file: File,
    /// Whether the kernel finds ranges for us (PAGEMAP_SCAN, Linux 6.7).
    scans: bool,
}

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGEMAP_SCAN: u64 = iowr(b'f', 16, size_of::<ScanArgument>());
const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;
const HUGE: u64 = 1 << 6;

/// The most regions of one call.
const REGIONS: usize = 4096;

/// The kind of pages to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// All pages with data: present or swapped out, but not the zero page.
    Filled,
    /// Filled pages that belong to the process alone, not to a file.
    Own,
    /// Pages that are part of a huge page.
    Huge,
    /// Parts of huge pages that belong to the process alone.
    HugeOwn,
}

impl PageMap {
    /// Opens the page map.
    ///
    /// # Errors
    /// The process has ended or may not be accessed.
    pub(crate) fn open(pid: i32) -> Result<Self, Error> {
        let file = File::open(format!("/proc/{pid}/pagemap")).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOENT) => Error::Gone(pid),
            _ => Error::NotPermitted(pid),
        })?;
        let mut map = Self { pid, file, scans: true };
        map.scans = map.scan(0, page_size(), Which::Filled, &mut Vec::new()).is_ok();
        Ok(map)
    }

    /// Appends the ranges of such pages between two addresses. The cost depends on page tables, not on
    /// addresses.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn find(&self, start: u64, end: u64, which: Which, out: &mut Ranges) -> Result<(), Error> {
        if self.scans { self.scan(start, end, which, out) } else { self.read(start, end, which, out) }
    }

    fn scan(&self, start: u64, end: u64, which: Which, out: &mut Ranges) -> Result<(), Error> {
        // Most mappings are small, and there may be many.
        let count = (((end - start) / page_size()) as usize).clamp(1, REGIONS);
        let mut regions = vec![Region::default(); count];
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start,
            end,
            vec: regions.as_mut_ptr() as u64,
            vec_len: count as u64,
            category_anyof_mask: PRESENT | SWAPPED,
            ..ScanArgument::default()
        };
        match which {
            Which::Filled => (argument.category_inverted, argument.category_mask) = (ZERO, ZERO),
            Which::Own => (argument.category_inverted, argument.category_mask) = (ZERO | FILE, ZERO | FILE),
            Which::Huge => argument.category_mask = HUGE,
            Which::HugeOwn => (argument.category_inverted, argument.category_mask) = (FILE, FILE | HUGE),
        }
        while argument.start < end {
            let found = ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &mut argument);
            let found =
                found.map_err(|e| Error::call(format!("scanning the pages of process {}", self.pid), e))?;
            for region in &regions[..found as usize] {
                push(out, region.start, region.end);
            }
            if argument.walk_end <= argument.start {
                break;
            }
            argument.start = argument.walk_end;
        }
        Ok(())
    }

    /// The same before Linux 6.7: a word for each page. The zero page and huge pages are not reported.
    fn read(&self, start: u64, end: u64, which: Which, out: &mut Ranges) -> Result<(), Error> {
        let page = page_size();
        let mut words = vec![0u8; 8 << 12];
        let mut at = start;
        while at < end && !matches!(which, Which::Huge | Which::HugeOwn) {
            let count = ((end - at) / page).min(1 << 12) as usize;
            let words = &mut words[..count * 8];
            let read = self.file.read_exact_at(words, at / page * 8);
            read.map_err(|e| Error::call(format!("reading the pages of process {}", self.pid), e))?;
            for word in words.as_chunks::<8>().0 {
                let word = u64::from_ne_bytes(*word);
                // Present or swapped; bit 61 marks a page of a file.
                if word >> 62 != 0 && (which != Which::Own || word >> 61 & 1 == 0) {
                    push(out, at, at + page);
                }
                at += page;
            }
        }
        Ok(())
    }
}

/// Appends a range, merging it with the last one if they are adjacent.
pub(crate) fn push(ranges: &mut Ranges, start: u64, end: u64) {
    match ranges.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => ranges.push((start, end)),
    }
}

/// Sorts ranges and merges those that overlap or touch.
pub(crate) fn join(ranges: &mut Ranges) {
    ranges.sort_unstable();
    let mut out: Ranges = Vec::with_capacity(ranges.len());
    for &(start, end) in ranges.iter().filter(|(start, end)| start < end) {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    *ranges = out;
}

/// Bytes of all ranges.
pub(crate) fn size(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|(start, end)| end - start).sum()
}

/// The parts of a range outside sorted ranges.
pub(crate) fn outside(ranges: &[(u64, u64)], start: u64, end: u64) -> Ranges {
    let mut out = Ranges::new();
    let mut at = start;
    for (low, high) in within(ranges, start, end) {
        if at < low {
            out.push((at, low));
        }
        at = at.max(high);
    }
    if at < end {
        out.push((at, end));
    }
    out
}

/// The parts of sorted ranges between two addresses.
pub(crate) fn within(ranges: &[(u64, u64)], start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let first = ranges.partition_point(|range| range.1 <= start);
    ranges[first..].iter().take_while(move |range| range.0 < end).map(move |r| (r.0.max(start), r.1.min(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_are_cut() {
        let mut ranges = vec![(30, 40), (0, 10), (10, 12), (35, 50), (7, 7)];
        join(&mut ranges);
        assert_eq!(ranges, [(0, 12), (30, 50)]);
        assert_eq!(within(&ranges, 5, 31).collect::<Vec<_>>(), [(5, 12), (30, 31)]);
        assert_eq!(within(&ranges, 12, 30).count(), 0);
        assert_eq!(outside(&ranges, 5, 60), [(12, 30), (50, 60)]);
        assert_eq!(outside(&ranges, 31, 49), []);
    }

    /// Ranges are sets of addresses: here of 64, each a bit.
    #[test]
    fn ranges_are_the_sets_that_they_stand_for() {
        let bits = |ranges: &[(u64, u64)]| -> u64 {
            ranges.iter().flat_map(|&(start, end)| start..end).fold(0, |all, at| all | 1 << at)
        };
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let given: Ranges =
                (0..random.usize(..6)).map(|_| (random.u64(..64), random.u64(..64))).collect();
            let mut joined = given.clone();
            join(&mut joined);
            let all = bits(&given);
            assert_eq!(bits(&joined), all, "{given:?}");
            assert!(joined.iter().all(|(start, end)| start < end));
            assert!(joined.windows(2).all(|two| two[0].1 < two[1].0), "{joined:?} touch");
            assert_eq!(size(&joined), u64::from(all.count_ones()));
            let (start, end) = (random.u64(..64), random.u64(..64));
            let window = bits(&[(start, end)]);
            let inside: Ranges = within(&joined, start, end).filter(|(low, high)| low < high).collect();
            assert_eq!(bits(&inside), all & window, "{joined:?} {start} {end}");
            assert_eq!(size(&inside), u64::from((all & window).count_ones()));
            let others = outside(&joined, start, end);
            assert_eq!(bits(&others), !all & window, "{joined:?} {start} {end}");
            assert_eq!(size(&others), u64::from((!all & window).count_ones()));
        }
    }

    #[test]
    fn touched_pages_of_our_own_are_found_both_ways() {
        let page = page_size() as usize;
        // SAFETY: a new mapping.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                64 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        }
        .cast::<u8>();
        for n in [3, 4, 9] {
            // SAFETY: within the mapping.
            unsafe { memory.add(n * page).write_volatile(1) };
        }
        // SAFETY: within the mapping; maps the page of zeros.
        unsafe { memory.add(20 * page).read_volatile() };
        let start = memory as u64;
        let at = |n: usize| start + (n * page) as u64;
        let mut map = PageMap::open(std::process::id() as i32).unwrap();
        let mut found = Vec::new();
        map.find(start, at(64), Which::Own, &mut found).unwrap();
        let mut expected = vec![(at(3), at(5)), (at(9), at(10))];
        if !map.scans {
            expected.push((at(20), at(21)));
        }
        assert_eq!(found, expected);
        map.scans = false;
        let mut read = Vec::new();
        map.find(start, at(64), Which::Filled, &mut read).unwrap();
        assert_eq!(read, [(at(3), at(5)), (at(9), at(10)), (at(20), at(21))]);
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(memory.cast(), 64 * page) };
    }
}
