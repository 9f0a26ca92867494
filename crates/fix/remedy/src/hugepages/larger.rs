//! Pages that are larger than the smallest and mapped by entries of those: mTHP, huge pages whose mapping was split, large
//! folios of files. Only the flags of each frame tell, which are root's.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::coverage::Mapping;

/// A mapping of at most this many pages is looked at whole; of a larger one this many pages are, in runs.
const WHOLE: u64 = 4096;
/// Pages of a run.
const RUN: u64 = 64;

const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
/// First or further page of a compound one (linux/kernel-page-flags.h).
const COMPOUND: u64 = 1 << 15 | 1 << 16;
/// A page of a pool.
const POOL: u64 = 1 << 17;

/// Fills in what of each mapping lies on such pages; leaves it unknown where frames are not to be seen.
pub fn look(pid: u32, mappings: &mut [Mapping]) {
    let open = |path: &str| File::open(path).ok();
    let (Some(pagemap), Some(flags)) = (open(&format!("/proc/{pid}/pagemap")), open("/proc/kpageflags"))
    else {
        return;
    };
    for mapping in mappings.iter_mut().filter(|m| m.resident > 0) {
        let Some((present, large)) = count(&pagemap, &flags, mapping.start, mapping.end) else { return };
        let share = large as f64 / present.max(1) as f64;
        let all = (share * mapping.resident as f64) as u64;
        mapping.larger = Some(all.saturating_sub(mapping.thp));
    }
}

/// Pages that were found resident, and those of them in larger ones; `None` where it is not to be seen.
fn count(pagemap: &File, flags: &File, start: u64, end: u64) -> Option<(u64, u64)> {
    let page = ncpu_machine::page_size();
    let (first, pages) = (start / page, (end - start) / page);
    let (run, step) = match pages <= WHOLE {
        true => (pages, pages),
        // Runs at even distances, `WHOLE` pages together.
        false => (RUN, pages / (WHOLE / RUN)),
    };
    let (mut present, mut large) = (0, 0);
    let mut at = 0;
    while at + run <= pages && run > 0 {
        let entries = words(pagemap, first + at, run)?;
        let frames: Vec<u64> = entries.iter().filter(|e| *e & PRESENT != 0).map(|e| e & FRAME).collect();
        // Without the right to see frames they are all 0.
        if frames.first() == Some(&0) {
            return None;
        }
        present += frames.len() as u64;
        for neighbours in frames.chunk_by(|a, b| a + 1 == *b) {
            let all = words(flags, neighbours[0], neighbours.len() as u64).unwrap_or_default();
            large += all.iter().filter(|f| *f & COMPOUND != 0 && *f & POOL == 0).count() as u64;
        }
        at += step;
    }
    Some((present, large))
}

/// Words of a file with one for each page.
fn words(file: &File, first: u64, count: u64) -> Option<Vec<u64>> {
    let mut bytes = vec![0u8; usize::try_from(count).ok()? * 8];
    // Mappings of the kernel's own, at the end of all addresses, have none.
    let length = file.read_at(&mut bytes, first.checked_mul(8)?).ok()?;
    Some(
        bytes[..length]
            .chunks_exact(8)
            .map(|w| u64::from_ne_bytes(w.try_into().unwrap_or_default()))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::coverage::parse;
    use super::*;

    #[test]
    fn a_huge_page_that_is_mapped_by_small_ones_is_found() {
        const HUGE: u64 = 2 << 20;
        // SAFETY: a new mapping, written and changed within its bounds only.
        let at = unsafe {
            let (mode, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(std::ptr::null_mut(), 3 * HUGE as usize, mode, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let first = (at as u64).next_multiple_of(HUGE) as *mut libc::c_void;
            libc::madvise(first, HUGE as usize, libc::MADV_HUGEPAGE);
            first.cast::<u8>().write_bytes(1, HUGE as usize);
            // One entry cannot map two protections.
            libc::mprotect(first.byte_add(HUGE as usize / 2), HUGE as usize / 2, libc::PROT_READ);
            first as u64
        };
        let mut maps = parse(&std::fs::read("/proc/self/smaps").unwrap());
        look(std::process::id(), &mut maps);
        let ours: Vec<&Mapping> =
            maps.iter().filter(|m| m.start < at + HUGE && m.end > at && m.resident > 0).collect();
        let known: Option<u64> = ours.iter().map(|m| m.larger).sum();
        let Some(larger) = known else { return eprintln!("skipped: frames are not to be seen") };
        if std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .is_ok_and(|t| !t.contains("[never]"))
        {
            assert_eq!(ours.iter().map(|m| m.thp).sum::<u64>(), 0, "{ours:?}");
            // Another thread's memory may lie beside it.
            assert!((HUGE / 2..=2 * HUGE).contains(&larger), "{larger}");
        }
    }
}
