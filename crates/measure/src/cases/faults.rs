//! The first touch of a page: a fault, and zeroing.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::case::{Batch, Bench, Case, Failure, Worker};
use crate::memory::{Area, PageSize, pool, room};
use crate::options::{Flag, Options};
use crate::place::Memory;
use crate::shared::Shared;

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case {
        name: "fault_4k",
        about: "touch a fresh page of 4 KiB: a fault and zeroing",
        flags: &[],
        setup: |_| faults(PageSize::Small, 4096, None),
    },
    Case {
        name: "fault_thp",
        about: "touch a fresh transparent huge page of 2 MiB: a fault and zeroing",
        flags: &[],
        setup: |_| {
            let file = "/sys/kernel/mm/transparent_hugepage/enabled";
            let mode = std::fs::read_to_string(file).unwrap_or_else(|_| "[never]".into());
            if mode.contains("[never]") {
                return Err(Failure::Lacks(format!(
                    "no transparent huge pages: {file} says {}",
                    mode.trim()
                )));
            }
            faults(PageSize::Transparent, 2 << 20, None)
        },
    },
    Case {
        name: "fault_hugetlb",
        about: "touch a fresh huge page of the pool: a fault and zeroing",
        flags: &[Flag { letter: 's', value: "SIZE", default: "2m", about: "of a page: 2m or 1g" }],
        setup: |o: &Options| {
            let size = o.text('s').unwrap_or("2m").parse::<PageSize>();
            let size = size.map_err(|_| Failure::Usage("-s: give 2m or 1g".into()))?;
            let bytes = match size {
                PageSize::Huge2M => 2 << 20,
                PageSize::Huge1G => 1 << 30,
                _ => return Err(Failure::Usage("-s: give 2m or 1g".into())),
            };
            pool(size, Path::new("/"))?;
            // One at a time: other workers want some too.
            faults(size, bytes, Some(1))
        },
    },
];

struct Faults {
    size: PageSize,
    bytes: usize,
    batch: Option<u64>,
    pages: Shared<AtomicU64>,
    faults: Shared<AtomicU64>,
}

fn faults(size: PageSize, bytes: usize, batch: Option<u64>) -> Result<Box<dyn Bench>, Failure> {
    let zero = || Shared::new(AtomicU64::new(0));
    Ok(Box::new(Faults { size, bytes, batch, pages: zero()?, faults: zero()? }))
}

impl Bench for Faults {
    fn worker(&self, _: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        Ok(Box::new(Touch { faults: self, area: None }))
    }
    fn batch(&self) -> Option<u64> {
        self.batch
    }
    /// More than one fault a page: the kernel gave smaller ones.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let pages = self.pages.load(Relaxed).max(1);
        vec![("faults a page", self.faults.load(Relaxed) as f64 / pages as f64)]
    }
}

struct Touch<'a> {
    faults: &'a Faults,
    area: Option<Area>,
}

fn minor_faults() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: room for a rusage, for which zeroes are valid.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_minflt as u64
    }
}

impl Batch for Touch<'_> {
    fn before(&mut self, n: u64) -> Result<(), Failure> {
        let bytes = n.saturating_mul(self.faults.bytes as u64);
        if n > 4096 {
            let machine = ncpu_machine::Topology::default();
            room(bytes, Memory::Default, &machine, Path::new("/"))?;
        }
        self.area = Some(Area::map(bytes.try_into().unwrap_or(usize::MAX), self.faults.size)?);
        Ok(())
    }

    fn run(&mut self, n: u64) -> u64 {
        let Some(area) = &self.area else { return n };
        let before = minor_faults();
        for page in 0..n as usize {
            // SAFETY: within the area, which has n pages.
            unsafe { area.as_ptr().add(page * self.faults.bytes).write_volatile(black_box(1)) };
        }
        self.faults.faults.fetch_add(minor_faults() - before, Relaxed);
        self.faults.pages.fetch_add(n, Relaxed);
        0
    }

    fn after(&mut self, _: u64) {
        self.area = None;
    }
}
