//! Workers that touch memory: each has its own, filled before the clock starts. All begin together, which the Silly
//! Little Benchmark's `create_sem` and `trigger` were for.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use ncpu_machine::Topology;

use crate::failure::Failure;
use crate::memory::{Area, PageSize, room};
use crate::place::{self, Memory};
use crate::random::Random;
use crate::runner::{look, now};
use crate::stats::Summary;

/// The access to a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Written, as the original does. Writes do not wait for each other.
    #[default]
    Write,
    /// Read; reads do not wait for each other either.
    Read,
    /// Read, and the next offset is what was read: each access waits for the one before, which is latency.
    /// Every line of the memory is visited in 64 loops, so the memory counts, not a line of each page.
    Chase,
    /// All of a page read, one page after the other: bandwidth. An operation is a page.
    Scan,
}

impl std::str::FromStr for Access {
    type Err = String;
    fn from_str(text: &str) -> Result<Access, String> {
        match text {
            "write" => Ok(Access::Write),
            "read" => Ok(Access::Read),
            "chase" => Ok(Access::Chase),
            "scan" => Ok(Access::Scan),
            _ => Err("give write, read, chase or scan".into()),
        }
    }
}

/// The unit of offsets, bytes, whatever the pages are.
const STEP: usize = 4096;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A worker of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Its CPU; the scheduler's choice without.
    pub cpu: Option<u32>,
    /// Where its memory comes from.
    pub memory: Memory,
}

/// Results of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hammered {
    /// Where it was to be.
    pub spot: Spot,
    /// The node its memory lies on, if all of it lies on one.
    pub node: Option<u32>,
    /// Accesses.
    pub ops: u64,
    /// Nanoseconds they took.
    pub nanos: u64,
    /// Median nanoseconds of an access over up to 64 parts of the run: without the parts that others disturbed.
    pub median: f64,
    /// Slowest over fastest clock speed of its CPU before and after.
    pub speed: f64,
}

/// Runs a worker at each spot: `pages` offsets, each touched `loops` times on average.
///
/// # Errors
/// There is too little memory, a CPU or node is not available, or memory was swapped, which voids the run.
pub fn run(
    spots: &[Spot],
    pages: usize,
    loops: u64,
    access: Access,
    size: PageSize,
    machine: &Topology,
) -> Result<Vec<Hammered>, Failure> {
    if pages < 2 || loops == 0 {
        return Err(Failure::Usage("memhammer: give 2 pages and 1 loop at least".into()));
    }
    let none = || Failure::Failed(format!("memhammer: no memory for {pages} pages of 4 KiB"));
    let each = (pages as u64).checked_mul(STEP as u64).ok_or_else(none)?;
    if u32::try_from(pages).is_err() {
        return Err(none());
    }
    // Pages of a pool are set aside already; the pool says how many are free.
    if !matches!(size, PageSize::Huge2M | PageSize::Huge1G) {
        let wants = |n: usize, memory| {
            room(each.saturating_mul(n as u64), memory, machine, "/".as_ref()).map_err(|e| {
                let s = if n == 1 { "" } else { "s" };
                Failure::Failed(format!(
                    "memhammer: {pages} pages of 4 KiB for {n} worker{s}: {e}; give fewer PAGES"
                ))
            })
        };
        wants(spots.len(), Memory::Default)?;
        for spot in spots {
            wants(spots.iter().filter(|s| s.memory == spot.memory).count(), spot.memory)?;
        }
    }
    let start = Barrier::new(spots.len());
    let failed = AtomicBool::new(false);
    let worker = |spot: &Spot| -> Result<Hammered, Failure> {
        let prepared = prepare(*spot, pages, access, size, machine);
        if prepared.is_err() {
            failed.store(true, Ordering::SeqCst);
        }
        start.wait();
        let mut anvil = match prepared {
            // Another has no memory: nobody measures.
            Ok(_) if failed.load(Ordering::SeqCst) => return Err(Failure::Failed(String::new())),
            prepared => prepared?,
        };
        let before = look();
        let faults = major_faults();
        let ops = pages as u64 * loops;
        let parts = (ops / 4096).clamp(1, 64);
        let mut times = Vec::with_capacity(parts as usize);
        let begin = now();
        let mut last = begin;
        for part in 0..parts {
            let n = share(ops, parts, part + 1) - share(ops, parts, part);
            anvil.hammer(n, access);
            let t = now();
            times.push((t - last) as f64 / n as f64);
            last = t;
        }
        let nanos = last - begin;
        if major_faults() != faults {
            return Err(Failure::Failed(
                "memhammer: void, since memory was swapped while it ran; give fewer PAGES".into(),
            ));
        }
        let paces = [before.pace, look().pace];
        let speed = paces.iter().max().copied().unwrap_or(1) as f64 / paces[0].min(paces[1]).max(1) as f64;
        Ok(Hammered {
            spot: *spot,
            node: anvil.area.node(),
            ops,
            nanos,
            median: Summary::of(&times).median,
            speed,
        })
    };
    let outcomes: Vec<Result<Hammered, Failure>> = std::thread::scope(|scope| {
        let worker = &worker;
        let threads: Vec<_> = spots.iter().map(|spot| scope.spawn(move || worker(spot))).collect();
        let dead = |_| Err(Failure::Failed("memhammer: a worker panicked".into()));
        threads.into_iter().map(|t| t.join().unwrap_or_else(dead)).collect()
    });
    // The failure that has words is the one the others follow from.
    if let Some(Err(failure)) =
        outcomes.iter().find(|o| matches!(o, Err(f) if *f != Failure::Failed(String::new())))
    {
        return Err(failure.clone());
    }
    outcomes.into_iter().collect()
}

/// The first `i` of `parts` equal parts of `all`.
fn share(all: u64, parts: u64, i: u64) -> u64 {
    (u128::from(all) * u128::from(i) / u128::from(parts)) as u64
}

fn prepare(
    spot: Spot,
    pages: usize,
    access: Access,
    size: PageSize,
    machine: &Topology,
) -> Result<Anvil, Failure> {
    let told = |e: place::PlaceError| Failure::Failed(e.to_string());
    if let Some(cpu) = spot.cpu {
        place::bind(cpu).map_err(told)?;
    }
    spot.memory.check(machine).map_err(told)?;
    spot.memory.apply(machine).map_err(told)?;
    let mut anvil = Anvil::new(pages, size)?;
    anvil.fill(access == Access::Chase);
    Ok(anvil)
}

fn major_faults() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live rusage, for which zeroes are valid.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_majflt
    }
}

/// The memory of a worker.
struct Anvil {
    area: Area,
    pages: usize,
    /// Where the accesses are: the sequence of offsets, the next of a chase, the next page of a scan.
    random: Random,
    offset: u64,
    page: usize,
}

impl Anvil {
    fn new(pages: usize, size: PageSize) -> Result<Anvil, Failure> {
        let bytes = pages.saturating_mul(STEP);
        let random = Random::new(0x2545_f491_4f6c_dd1d);
        // A chase begins at `line_of(0, 0)`, which is 0.
        Ok(Anvil { area: Area::map(bytes, size)?, pages, random, offset: 0, page: 0 })
    }

    /// Touches all of it; for chasing, each line then holds the offset of another, in one cycle through all.
    fn fill(&mut self, chase: bool) {
        self.area.fill(1);
        if !chase {
            return;
        }
        // Sattolo's shuffle: a permutation that is one cycle.
        let mut next: Vec<u32> = (0..self.pages as u32).collect();
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
        for i in (1..self.pages).rev() {
            next.swap(i, random.below(i));
        }
        // A round through all pages for each line of them: the even lines first, so that the neighbour that
        // a prefetcher brings along is not wanted for half of all rounds. Which line that is differs from page
        // to page: equal ones share few cache sets.
        let lines = STEP / LINE;
        let line_of = |round: usize, page: usize| {
            let line = (round % (lines / 2)) * 2 + round / (lines / 2);
            line ^ ((page.wrapping_mul(0x9e37_79b1) >> 8) & (lines - 2))
        };
        let at = |round: usize, page: usize| page * STEP + line_of(round, page) * LINE;
        for round in 0..lines {
            for (page, &to) in next.iter().enumerate() {
                // The cycle closes where it comes back to page 0: there the next round begins.
                let after = if to == 0 { (round + 1) % lines } else { round };
                let (from, to) = (at(round, page), at(after, to as usize));
                // SAFETY: within the area, and aligned.
                unsafe { self.area.as_ptr().add(from).cast::<u64>().write(to as u64) };
            }
        }
    }

    fn hammer(&mut self, ops: u64, access: Access) {
        let (memory, pages) = (self.area.as_ptr(), self.pages);
        match access {
            Access::Chase => {
                let mut offset = self.offset;
                for _ in 0..ops {
                    // SAFETY: `fill` stored offsets within the area.
                    offset = unsafe { memory.add(offset as usize).cast::<u64>().read_volatile() };
                }
                self.offset = offset;
            }
            Access::Scan => {
                let mut sum = 0u64;
                for _ in 0..ops {
                    let page = self.page;
                    self.page = if page + 1 == pages { 0 } else { page + 1 };
                    // SAFETY: a page of the area, aligned, which nobody writes.
                    let words = unsafe {
                        std::slice::from_raw_parts(memory.add(page * STEP).cast::<u64>(), STEP / 8)
                    };
                    sum = sum.wrapping_add(words.iter().fold(0, |a: u64, &w| a.wrapping_add(w)));
                    std::hint::black_box(sum);
                }
            }
            Access::Write | Access::Read => {
                let mut sum = 0u64;
                // In a register, not in memory that is written each time.
                let mut random = self.random;
                for i in 0..ops {
                    let page = random.below(pages);
                    let word = (i & 7) as usize * 8;
                    // SAFETY: below `pages` and within the first 64 bytes of it.
                    let at = unsafe { memory.add(page * STEP + word).cast::<u64>() };
                    if access == Access::Write {
                        // SAFETY: as above, and aligned.
                        unsafe { at.write_volatile(i) };
                    } else {
                        // SAFETY: as above.
                        sum = sum.wrapping_add(unsafe { at.read_volatile() });
                    }
                }
                std::hint::black_box(sum);
                self.random = random;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Topology {
        Topology::read("/".as_ref()).unwrap()
    }

    #[test]
    fn every_access_does_all_its_operations() {
        for access in [Access::Write, Access::Read, Access::Chase, Access::Scan] {
            let two = [Spot::default(); 2];
            let done = run(&two, 64, 3, access, PageSize::Small, &machine()).unwrap();
            assert_eq!(done.len(), 2);
            assert!(done.iter().all(|h| h.ops == 192 && h.nanos > 0 && h.speed >= 1.0));
            // So many that they are timed in parts.
            let done = run(&two[..1], 64, 500, access, PageSize::Small, &machine()).unwrap();
            assert!(done[0].ops == 32_000 && done[0].median > 0.0);
        }
    }

    #[test]
    fn a_chase_visits_every_page_once_a_round_and_every_line_in_64() {
        let mut anvil = Anvil::new(1000, PageSize::Small).unwrap();
        anvil.fill(true);
        let (mut seen, mut offset) = (std::collections::BTreeSet::new(), 0);
        for round in 1..=64 {
            let mut pages = std::collections::BTreeSet::new();
            for _ in 0..1000 {
                pages.insert(offset / STEP);
                seen.insert(offset);
                // SAFETY: offsets within the area.
                offset = unsafe { anvil.area.as_ptr().add(offset).cast::<u64>().read() } as usize;
            }
            assert_eq!((pages.len(), seen.len()), (1000, 1000 * round));
        }
        assert!(seen.iter().all(|o| o % LINE == 0) && offset == 0);
    }

    #[test]
    fn what_cannot_be_is_told() {
        let run = |pages, memory| {
            let spot = Spot { memory, ..Spot::default() };
            run(&[spot], pages, 1, Access::Write, PageSize::Default, &machine()).unwrap_err().to_string()
        };
        assert!(run(1, Memory::Default).contains("2 pages"));
        assert!(run(1 << 60, Memory::Default).contains("no memory for"));
        let e = run(u32::MAX as usize, Memory::Default);
        assert!(e.contains("16.0 TiB are wanted, and") && e.contains("available on this machine"), "{e}");
        assert!(run(2, Memory::Node(999)).contains("node 999 has no memory"));
    }
}
