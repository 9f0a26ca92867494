//! The gain of huge pages: reads all over an area of the process's size, on small pages and on huge ones.

use std::time::Instant;

use ncpu_machine::process;

use crate::chase::follow;
use crate::{Error, Result};

/// Bytes of a cache line.
const LINE: u64 = 64;
/// More is not tried: a TLB is too small for it anyway.
const MOST: u64 = 512 << 20;
/// Reads of a round.
const READS: u64 = 1 << 20;
/// Rounds of each kind of page, in turn; the median counts, since a program has no pick of its moments either.
const ROUNDS: usize = 9;

/// The cost of a read that depends on the one before it, anywhere in an area of this size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Foretold {
    /// Bytes that reads were all over.
    pub bytes: u64,
    /// Nanoseconds of a read on small pages.
    pub small: f64,
    /// The same on huge pages.
    pub huge: f64,
}

/// An area of memory that is unmapped in the end.
struct Area {
    at: *mut libc::c_void,
    length: usize,
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: what was mapped by `Area::new`.
        unsafe { libc::munmap(self.at, self.length) };
    }
}

impl Area {
    /// Bytes, aligned to huge pages, filled with a round of addresses; on huge pages or on none.
    fn new(bytes: u64, page: u64, huge: bool) -> Result<(Area, u64)> {
        let failed = |what: &str| Error::Refused(format!("{what}: {}", std::io::Error::last_os_error()));
        let length = (bytes + page) as usize;
        // SAFETY: a new mapping.
        let at = unsafe {
            let (mode, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(std::ptr::null_mut(), length, mode, flags, -1, 0)
        };
        if at == libc::MAP_FAILED {
            return Err(failed("memory to measure in"));
        }
        let area = Area { at, length };
        let first = (at as u64).next_multiple_of(page);
        let advice = if huge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: within the mapping.
        if unsafe { libc::madvise(first as *mut libc::c_void, bytes as usize, advice) } != 0 {
            return Err(failed("madvise"));
        }
        let lines = bytes / LINE;
        let mask = lines.next_power_of_two() - 1;
        for line in 0..lines {
            // A generator with a period of any power of two, without numbers beyond the last line: one round through
            // all.
            let mut next = line;
            loop {
                next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
                    & mask;
                if next < lines {
                    break;
                }
            }
            // SAFETY: both lines are within the mapping, and aligned.
            unsafe { ((first + line * LINE) as *mut u64).write(first + next * LINE) };
        }
        Ok((area, first))
    }
}

/// Measures the cost of reads all over `bytes`, or all over the available memory if that is less.
///
/// # Errors
/// Not enough memory, or the kernel gives no huge pages.
pub fn measure(bytes: u64, page: u64) -> Result<Foretold> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"));
    let available = available.and_then(|k| k.trim().parse::<u64>().ok()).unwrap_or(0) << 10;
    let bytes = bytes.min(MOST).min(available / 4);
    if bytes < 2 * page {
        return Err(Error::Refused("too little could be put together for it to show".into()));
    }
    let bytes = bytes / page * page;
    let (small_area, small_first) = Area::new(bytes, page, false)?;
    let (huge_area, huge_first) = Area::new(bytes, page, true)?;
    let maps = process::read("/proc/self/smaps".as_ref())
        .map_err(|e| Error::file("/proc/self/smaps".as_ref(), e))?;
    let mappings = super::coverage::parse(&maps);
    let own = mappings.iter().filter(|m| m.start < huge_first + bytes && m.end > huge_first);
    let thp: u64 = own.map(|m| m.thp).sum();
    if thp < bytes / 10 * 9 {
        return Err(Error::Refused(format!(
            "only {} of {} MiB came on huge pages here, so what they save cannot be measured",
            thp >> 20,
            bytes >> 20
        )));
    }
    let (mut small, mut huge) = (Vec::new(), Vec::new());
    let (mut small_at, mut huge_at) = (small_first, huge_first);
    for _ in 0..ROUNDS {
        for (at, all) in [(&mut small_at, &mut small), (&mut huge_at, &mut huge)] {
            let begin = Instant::now();
            // SAFETY: every line holds the address of another, and both areas live on. Each round goes on where the
            // last ended, so that it reads other lines.
            *at = unsafe { follow(*at, READS) };
            all.push(begin.elapsed().as_nanos() as f64 / READS as f64);
        }
    }
    drop((small_area, huge_area));
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Ok(Foretold { bytes, small: median(small), huge: median(huge) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_measured_where_huge_pages_are() {
        match measure(18 << 20, 2 << 20) {
            Ok(f) => {
                assert_eq!(f.bytes, 18 << 20);
                assert!(f.small > 0.0 && f.huge > 0.0, "{f:?}");
            }
            Err(e) => eprintln!("skipped: {e}"),
        }
        assert!(measure(1 << 20, 2 << 20).is_err());
    }

    #[test]
    fn a_round_has_every_line_once() {
        for bytes in [1 << 21, 3 << 20] {
            let (area, first) = Area::new(bytes, 1 << 21, false).unwrap();
            let (mut at, mut lines) = (first, 0);
            loop {
                // SAFETY: an address of the round.
                at = unsafe { (at as *const u64).read() };
                lines += 1;
                if at == first {
                    break;
                }
            }
            assert_eq!(lines, bytes / LINE);
            drop(area);
        }
    }
}
