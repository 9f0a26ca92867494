//! The Silly Little Benchmark's `memhammer`: what a memory access costs that no cache catches.
//!
//! Each worker has memory of its own, filled before the clock starts, and then touches pseudo-random 4 KiB
//! offsets of it: one 8-byte word in the first 64 bytes, so that each access is to another page and another
//! line. All workers begin together, which `create_sem` and `trigger` were for.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use ncpu_machine::Topology;

use crate::case::Failure;
use crate::place::{self, Memory};
use crate::runner::{look, now};

/// What is done to a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Written, as the original does. Writes do not wait for each other.
    #[default]
    Write,
    /// Read; reads do not wait for each other either.
    Read,
    /// Read, and the next offset is what was read: each access waits for the one before, which is latency.
    Chase,
}

/// Bytes of the pages that the memory is mapped with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageSize {
    /// As `malloc` gives them: small, or huge where the kernel is set to (transparent huge pages).
    #[default]
    Default,
    /// 4 KiB (or the machine's base page), never huge.
    Small,
    /// 2 MiB from the pool of huge pages.
    Huge2M,
    /// 1 GiB from the pool.
    Huge1G,
}

impl std::str::FromStr for Access {
    type Err = String;
    fn from_str(text: &str) -> Result<Access, String> {
        match text {
            "write" => Ok(Access::Write),
            "read" => Ok(Access::Read),
            "chase" => Ok(Access::Chase),
            _ => Err("give write, read or chase".into()),
        }
    }
}

impl std::str::FromStr for PageSize {
    type Err = String;
    fn from_str(text: &str) -> Result<PageSize, String> {
        match text.to_ascii_lowercase().as_str() {
            "4k" => Ok(PageSize::Small),
            "2m" => Ok(PageSize::Huge2M),
            "1g" => Ok(PageSize::Huge1G),
            _ => Err("give 4k, 2m or 1g".into()),
        }
    }
}

/// The unit of offsets, bytes, whatever the pages are.
const STEP: usize = 4096;

/// A worker of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Its CPU; the scheduler's choice without.
    pub cpu: Option<u32>,
    /// Where its memory comes from.
    pub memory: Memory,
}

/// What a worker did.
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
    /// Slowest over fastest clock speed of its CPU before and after.
    pub speed: f64,
}

impl Hammered {
    /// The original's line.
    pub fn line(&self) -> String {
        let (ns, usec) = (self.nanos as f64 / self.ops.max(1) as f64, self.nanos / 1000);
        let rate = self.ops as f64 / (self.nanos.max(1) as f64 / 1e9);
        format!(
            "Total ops {} Avg nsec/op {ns:>7.1} gettimeofday usec {usec} TPUT ops/sec {rate:.1}",
            self.ops
        )
    }
}

/// Runs a worker at each spot: `pages` offsets, each touched `loops` times on average.
///
/// # Errors
/// There is no memory, a spot cannot be had, or memory was swapped, which voids the run.
pub fn run(
    spots: &[Spot],
    pages: usize,
    loops: u64,
    access: Access,
    size: PageSize,
    machine: &Topology,
) -> Result<Vec<Hammered>, Failure> {
    if pages < 2 || loops == 0 {
        return Err(Failure::Failed("memhammer: give 2 pages and 1 loop at least".into()));
    }
    let start = Barrier::new(spots.len());
    let failed = AtomicBool::new(false);
    let worker = |spot: &Spot| -> Result<Hammered, Failure> {
        let prepared = prepare(*spot, pages, access, size, machine);
        if prepared.is_err() {
            failed.store(true, Ordering::SeqCst);
        }
        start.wait();
        let mut memory = match prepared {
            // Another has no memory: nobody measures.
            Ok(_) if failed.load(Ordering::SeqCst) => return Err(Failure::Failed(String::new())),
            prepared => prepared?,
        };
        let before = look();
        let faults = major_faults();
        let ops = pages as u64 * loops;
        let begin = now();
        memory.hammer(ops, access);
        let nanos = now() - begin;
        if major_faults() != faults {
            return Err(Failure::Failed(
                "memhammer: void, since memory was swapped while it ran; give fewer PAGES".into(),
            ));
        }
        let paces = [before.pace, look().pace];
        let speed = paces.iter().max().copied().unwrap_or(1) as f64 / paces[0].min(paces[1]).max(1) as f64;
        Ok(Hammered { spot: *spot, node: memory.node(), ops, nanos, speed })
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

fn prepare(
    spot: Spot,
    pages: usize,
    access: Access,
    size: PageSize,
    machine: &Topology,
) -> Result<Area, Failure> {
    let told = |e: place::PlaceError| Failure::Failed(e.to_string());
    if let Some(cpu) = spot.cpu {
        place::bind(cpu).map_err(told)?;
    }
    spot.memory.check(machine).map_err(told)?;
    spot.memory.apply(machine).map_err(told)?;
    let mut area = Area::map(pages, size)?;
    area.fill(access == Access::Chase);
    Ok(area)
}

fn major_faults() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live rusage, for which zeroes are valid.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_majflt
    }
}

/// A pseudo-random sequence: Marsaglia's xorshift64. Its state never waits for memory.
struct Random(u64);

impl Random {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `n`, by the high half of a product (Lemire).
    #[inline(always)]
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

struct Area {
    at: *mut u8,
    bytes: usize,
    pages: usize,
}

impl Area {
    fn map(pages: usize, size: PageSize) -> Result<Area, Failure> {
        let (unit, flags) = match size {
            PageSize::Default | PageSize::Small => (STEP, 0),
            PageSize::Huge2M => (2 << 20, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB),
            PageSize::Huge1G => (1 << 30, libc::MAP_HUGETLB | libc::MAP_HUGE_1GB),
        };
        let none = || Failure::Failed(format!("memhammer: no memory for {pages} pages of 4 KiB"));
        let bytes =
            pages.checked_mul(STEP).and_then(|b| b.checked_next_multiple_of(unit)).ok_or_else(none)?;
        // SAFETY: asks for fresh memory anywhere.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(match size {
                PageSize::Huge2M | PageSize::Huge1G => Failure::Lacks(format!(
                    "memhammer: no {} huge pages of {} MiB are free; set /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages",
                    bytes / unit,
                    unit >> 20,
                    unit >> 10
                )),
                _ => none(),
            });
        }
        if size == PageSize::Small {
            // SAFETY: the area just mapped. A kernel without huge pages refuses, and has none to avoid.
            unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
        }
        Ok(Area { at: at.cast(), bytes, pages })
    }

    /// Touches all of it; for chasing, each offset then holds the next of one cycle through all.
    fn fill(&mut self, chase: bool) {
        // SAFETY: the whole area is ours.
        unsafe { std::ptr::write_bytes(self.at, 1, self.bytes) };
        if !chase {
            return;
        }
        // Sattolo's shuffle: a permutation that is one cycle.
        let mut next: Vec<u32> = (0..self.pages as u32).collect();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for i in (1..self.pages).rev() {
            next.swap(i, random.below(i));
        }
        for (i, &to) in next.iter().enumerate() {
            // Not always the first line of a page: those share few cache sets.
            let offset = to as usize * STEP;
            // SAFETY: within the area, and aligned.
            unsafe { self.at.add(i * STEP).cast::<u64>().write(offset as u64) };
        }
    }

    fn hammer(&mut self, ops: u64, access: Access) {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        match access {
            Access::Chase => {
                let mut offset = 0u64;
                for _ in 0..ops {
                    // SAFETY: `fill` stored offsets within the area.
                    offset = unsafe { self.at.add(offset as usize).cast::<u64>().read_volatile() };
                }
                std::hint::black_box(offset);
            }
            _ => {
                let mut sum = 0u64;
                for i in 0..ops {
                    let page = random.below(self.pages);
                    let word = (i & 7) as usize * 8;
                    // SAFETY: below `pages` and within the first 64 bytes of it.
                    let at = unsafe { self.at.add(page * STEP + word).cast::<u64>() };
                    if access == Access::Write {
                        // SAFETY: as above, and aligned.
                        unsafe { at.write_volatile(i) };
                    } else {
                        // SAFETY: as above.
                        sum = sum.wrapping_add(unsafe { at.read_volatile() });
                    }
                }
                std::hint::black_box(sum);
            }
        }
    }

    /// The node of a few of its pages, if it is one; a query moves nothing.
    fn node(&self) -> Option<u32> {
        let mut pages: Vec<*mut libc::c_void> =
            // SAFETY: within the area.
            (0..16).map(|i| unsafe { self.at.add(self.pages * i / 16 * STEP) }.cast()).collect();
        let mut nodes = vec![-1i32; pages.len()];
        // SAFETY: both arrays have the length told; no target nodes: only asked.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_mut_ptr(),
                std::ptr::null::<i32>(),
                nodes.as_mut_ptr(),
                0,
            )
        };
        (done == 0 && nodes.iter().all(|&n| n == nodes[0])).then(|| u32::try_from(nodes[0]).ok())?
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped with this length and not used after.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
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
        for access in [Access::Write, Access::Read, Access::Chase] {
            let two = [Spot::default(); 2];
            let done = run(&two, 64, 3, access, PageSize::Small, &machine()).unwrap();
            assert_eq!(done.len(), 2);
            assert!(done.iter().all(|h| h.ops == 192 && h.nanos > 0 && h.speed >= 1.0));
        }
    }

    #[test]
    fn a_chase_visits_every_page_once_a_round() {
        let mut area = Area::map(1000, PageSize::Small).unwrap();
        area.fill(true);
        let (mut seen, mut offset) = (std::collections::BTreeSet::new(), 0);
        for _ in 0..1000 {
            seen.insert(offset);
            // SAFETY: offsets within the area.
            offset = unsafe { area.at.add(offset).cast::<u64>().read() } as usize;
        }
        assert_eq!((seen.len(), offset), (1000, 0));
    }

    #[test]
    fn the_line_is_the_documents() {
        let done = Hammered {
            spot: Spot::default(),
            node: None,
            ops: 1_572_864_000,
            nanos: 112_433_955_000,
            speed: 1.0,
        };
        assert_eq!(
            done.line(),
            "Total ops 1572864000 Avg nsec/op    71.5 gettimeofday usec 112433955 TPUT ops/sec 13989225.9"
        );
    }

    #[test]
    fn what_cannot_be_is_told() {
        let run = |pages, memory| {
            let spot = Spot { memory, ..Spot::default() };
            run(&[spot], pages, 1, Access::Write, PageSize::Default, &machine()).unwrap_err().to_string()
        };
        assert!(run(1, Memory::Default).contains("2 pages"));
        assert!(run(1 << 50, Memory::Default).contains("no memory for"));
        assert!(run(2, Memory::Node(999)).contains("node 999 has no memory"));
    }
}
