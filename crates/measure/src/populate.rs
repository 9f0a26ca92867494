//! Creating, locking and destroying a large segment: plain system calls beside libncpu's helpers.

use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use libncpu::populate::{Backing, Helpers, Nodes, Pages, Policy, Segment, SegmentOptions};
use ncpu_machine::Topology;
use ncpu_machine::process::Fields;
use ncpu_table::{Column, Kind, Table, Unit, size};

use crate::failure::Failure;
use crate::memory::{PageSize, pool, room};
use crate::place::Memory;
use crate::stats::{Summary, quantile};
use crate::surveys::shuffle;

pub use crate::options::number;
pub use crate::surveys::doubling;

/// The kind of memory of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// Anonymous memory of one process.
    #[default]
    Private,
    /// `memfd_create`.
    Memfd,
    /// `shm_open`.
    Posix,
    /// `shmget`.
    SysV,
}

impl std::str::FromStr for SegmentKind {
    type Err = String;
    fn from_str(text: &str) -> Result<SegmentKind, String> {
        match text {
            "private" => Ok(SegmentKind::Private),
            "memfd" => Ok(SegmentKind::Memfd),
            "posix" => Ok(SegmentKind::Posix),
            "sysv" => Ok(SegmentKind::SysV),
            _ => Err("give private, memfd, posix or sysv".into()),
        }
    }
}

impl std::fmt::Display for SegmentKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SegmentKind::Private => "private",
            SegmentKind::Memfd => "memfd",
            SegmentKind::Posix => "posix",
            SegmentKind::SysV => "sysv",
        })
    }
}

/// The measurements to make.
#[derive(Clone, Debug)]
pub struct SegmentPlan {
    /// Bytes of the segment.
    pub bytes: u64,
    /// The kind of memory.
    pub kind: SegmentKind,
    /// Its pages.
    pub page: PageSize,
    /// Where they come from.
    pub memory: Memory,
    /// Threads of the library, the caller among them: a row for each.
    pub threads: Vec<usize>,
    /// How often each is measured.
    pub rounds: usize,
    /// Whether it is locked in memory.
    pub lock: bool,
}

/// Nanoseconds of a segment's life.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    create: f64,
    lock: Option<f64>,
    destroy: f64,
}

impl Times {
    fn total(&self) -> f64 {
        self.create + self.lock.unwrap_or(0.0) + self.destroy
    }
}

/// The measurements.
#[derive(Debug)]
pub struct Segments {
    /// Every segment's times: what a recording keeps.
    pub rounds: Table,
    /// A row for the plain calls and for each number of threads.
    pub table: Table,
    /// Notes on the figures.
    pub notes: Vec<String>,
}

impl SegmentPlan {
    /// Bytes as the kernel will round them.
    fn length(&self) -> Result<usize, Failure> {
        let (unit, _) = self.page.unit();
        let length = usize::try_from(self.bytes).ok().and_then(|b| b.max(1).checked_next_multiple_of(unit));
        length.ok_or_else(|| Failure::Failed(format!("a segment of {} bytes: too large", self.bytes)))
    }

    /// Checks that there is room for the segment, before any page is touched.
    ///
    /// # Errors
    /// The missing resource, and how to get it.
    pub fn check(&self, machine: &Topology, root: &Path) -> Result<(), Failure> {
        let bytes = self.length()? as u64;
        let failed = |why: String| Err(Failure::Failed(why));
        self.memory.check(machine).map_err(|e| Failure::Failed(e.to_string()))?;
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
        let (unit, _) = self.page.unit();
        match self.page {
            PageSize::Huge2M | PageSize::Huge1G => {
                if self.kind == SegmentKind::Posix {
                    return failed(format!(
                        "--kind posix --page {}: POSIX segments have no pages of the pool; take memfd or sysv",
                        self.page
                    ));
                }
                let free = pool(self.page, root).unwrap_or(0);
                let wanted = bytes / unit as u64;
                if free < wanted {
                    return failed(format!(
                        "{wanted} huge pages of {} are wanted, and {free} are free in the pool; reserve them: echo {wanted} >/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages",
                        size::words(unit as u64),
                        unit >> 10
                    ));
                }
            }
            _ => room(bytes, self.memory, machine, root)?,
        }
        if self.page == PageSize::Transparent {
            let setting = match self.kind {
                SegmentKind::Private => "enabled",
                _ => "shmem_enabled",
            };
            let file = format!("sys/kernel/mm/transparent_hugepage/{setting}");
            let text = read(&file);
            if text.is_empty() || text.contains("[never]") || text.contains("[deny]") {
                return failed(format!(
                    "--page thp: transparent huge pages are off for {} memory; echo advise >/{file}",
                    if setting == "enabled" { "private" } else { "shared" }
                ));
            }
        }
        let number = |name: &str| read(name).trim().parse::<u64>().ok();
        if self.kind == SegmentKind::SysV {
            let limits = [("shmmax", 1), ("shmall", 4096)];
            for (name, scale) in limits {
                let most = number(&format!("proc/sys/kernel/{name}")).map(|most| most.saturating_mul(scale));
                if let Some(most) = most.filter(|&most| most < bytes) {
                    return failed(format!(
                        "kernel.{name} lets SysV segments have {}, and {} are wanted; raise it with sysctl -w kernel.{name}={}",
                        size::words(most),
                        size::words(bytes),
                        bytes / scale
                    ));
                }
            }
        }
        if self.kind == SegmentKind::Posix {
            let free = rustix::fs::statvfs(root.join("dev/shm")).map(|s| s.f_bavail * s.f_frsize);
            match free {
                Ok(free) if free >= bytes => {}
                Ok(free) => {
                    return failed(format!(
                        "/dev/shm has {} free, and {} are wanted; mount -o remount,size={bytes} /dev/shm",
                        size::words(free),
                        size::words(bytes)
                    ));
                }
                Err(e) => return failed(format!("/dev/shm: {e}")),
            }
        }
        if self.lock {
            may_lock(bytes, &read("proc/self/status"))?;
        }
        Ok(())
    }

    /// A new segment, made by `helpers` helpers. The plain calls have none.
    fn reserve(&self, machine: &Topology, helpers: usize) -> Result<Segment, Failure> {
        // Nobody can have taken a name that nobody knows.
        let name = format!("/ncpu-populate.{}.{:x}", std::process::id(), fastrand::u64(..));
        let name = CString::new(name).map_err(|e| Failure::Failed(e.to_string()))?;
        let mut nodes = Nodes::none();
        match self.memory {
            Memory::Node(node) => {
                nodes.add(node as usize);
            }
            // Nodes without memory would be refused, and those that are not allowed are left out by the kernel.
            _ => machine.nodes.iter().filter(|n| n.total.unwrap_or(0) > 0).for_each(|n| {
                nodes.add(n.id as usize);
            }),
        }
        let options = SegmentOptions {
            backing: match self.kind {
                SegmentKind::Private => Backing::Private,
                SegmentKind::Memfd => Backing::Memfd,
                SegmentKind::Posix => Backing::Posix(name.clone()),
                SegmentKind::SysV => Backing::SysV(libc::IPC_PRIVATE),
            },
            pages: match self.page {
                PageSize::Default => Pages::Default,
                PageSize::Small => Pages::Base,
                PageSize::Transparent => Pages::Transparent,
                PageSize::Huge2M | PageSize::Huge1G => Pages::Huge(self.page.unit().0),
            },
            policy: match self.memory {
                Memory::Default => Policy::Default,
                Memory::Local => Policy::Local,
                Memory::Node(_) => Policy::Bind(nodes),
                Memory::Interleave => Policy::Interleave(nodes),
            },
            helpers: Helpers(helpers),
        };
        let segment = Segment::reserve(self.length()?, &options).map_err(told)?;
        if self.kind == SegmentKind::Posix {
            // So that nothing is left of it if we are killed.
            // SAFETY: a C string.
            unsafe { libc::shm_unlink(name.as_ptr()) };
        }
        Ok(segment)
    }

    /// A segment's life by plain calls, one thread's: create, lock, destroy.
    fn plain(&self, machine: &Topology) -> Result<Times, Failure> {
        let begin = Instant::now();
        let segment = self.reserve(machine, 0)?;
        let access = libncpu::populate::Access::Write;
        libncpu::populate::populate(segment.as_ptr(), segment.len(), access, Helpers::NONE).map_err(told)?;
        let created = Instant::now();
        if self.lock {
            // SAFETY: the segment's own memory.
            if unsafe { libc::mlock(segment.as_ptr().cast(), segment.len()) } != 0 {
                return Err(Failure::os("mlock"));
            }
        }
        let locked = Instant::now();
        segment.destroy().map_err(told)?;
        Ok(self.times(created - begin, locked - created, locked.elapsed()))
    }

    /// The same by the library, which locks first, so that pages are locked as they are made.
    fn helped(&self, machine: &Topology, threads: usize) -> Result<(Times, Vec<(usize, usize)>), Failure> {
        let begin = Instant::now();
        let segment = self.reserve(machine, threads - 1)?;
        let reserved = Instant::now();
        if self.lock {
            segment.lock().map_err(told)?;
        }
        let locked = Instant::now();
        segment.populate().map_err(told)?;
        let made = Instant::now();
        let nodes = segment.nodes();
        let last = Instant::now();
        segment.destroy().map_err(told)?;
        Ok((self.times((reserved - begin) + (made - locked), locked - reserved, last.elapsed()), nodes))
    }

    fn times(
        &self,
        create: std::time::Duration,
        lock: std::time::Duration,
        destroy: std::time::Duration,
    ) -> Times {
        let ns = |time: std::time::Duration| time.as_nanos() as f64;
        Times { create: ns(create), lock: self.lock.then(|| ns(lock)), destroy: ns(destroy) }
    }

    /// Measures: rounds in each of which every way comes once, in an order that differs from round to round.
    ///
    /// # Errors
    /// A segment cannot be made, locked or destroyed.
    pub fn run(
        &self,
        machine: &Topology,
        stop: &AtomicBool,
        progress: &dyn Fn(&str),
    ) -> Result<Segments, Failure> {
        // `None` is the plain calls.
        let ways: Vec<Option<usize>> =
            std::iter::once(None).chain(self.threads.iter().copied().map(Some)).collect();
        let mut measured: Vec<Vec<Times>> = vec![Vec::new(); ways.len()];
        let mut rows = Table::builder("populate_rounds", &round_columns());
        let mut notes = Vec::new();
        // Once unmeasured: a virtual machine's memory is slow when it is touched for the first time.
        progress("warming up");
        self.plain(machine)?;
        let mut spread = Vec::new();
        for round in 0..self.rounds {
            let mut order: Vec<usize> = (0..ways.len()).collect();
            shuffle(&mut order);
            for way in order {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let times = match ways[way] {
                    None => {
                        progress(&format!("{}/{} plain calls", round + 1, self.rounds));
                        self.plain(machine)?
                    }
                    Some(threads) => {
                        progress(&format!("{}/{} {threads} threads", round + 1, self.rounds));
                        let (times, nodes) = self.helped(machine, threads)?;
                        spread = nodes;
                        times
                    }
                };
                measured[way].push(times);
                let ms = |ns: f64| ns / 1e6;
                rows.row()
                    .text(name(ways[way]))
                    .int(ways[way].unwrap_or(1) as u64)
                    .int(round as u64 + 1)
                    .text(self.kind.to_string())
                    .text(self.page.to_string())
                    .text(self.memory.to_string())
                    .int(self.length()? as u64)
                    .float(ms(times.create))
                    .float_opt(times.lock.map(ms))
                    .float(ms(times.destroy));
            }
        }
        if stop.load(Ordering::Relaxed) {
            notes.push("stopped early".into());
        }
        let all: usize = spread.iter().map(|&(_, pages)| pages).sum();
        if all > 0 {
            let by = spread
                .iter()
                .map(|(node, n)| format!("{:.0} % on node {node}", 100.0 * *n as f64 / all as f64));
            notes.push(format!("pages: {}", by.collect::<Vec<_>>().join(", ")));
        }
        let gigabytes = self.length()? as f64 / (1u64 << 30) as f64;
        Ok(Segments { rounds: rows.finish(), table: table(&ways, &measured, gigabytes), notes })
    }
}

fn told(error: libncpu::populate::Error) -> Failure {
    Failure::Failed(error.to_string())
}

fn name(way: Option<usize>) -> &'static str {
    if way.is_none() { "calls" } else { "libncpu" }
}

/// Whether this process may lock another `bytes` bytes.
fn may_lock(bytes: u64, status: &str) -> Result<(), Failure> {
    const IPC_LOCK: u32 = 14;
    let status = Fields(status.as_bytes());
    let privileged = status
        .get("CapEff")
        .and_then(|t| u64::from_str_radix(t, 16).ok())
        .is_some_and(|c| c >> IPC_LOCK & 1 == 1);
    let locked = status.bytes("VmLck").unwrap_or(0);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live rlimit.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if privileged || limit.rlim_cur.saturating_sub(locked) >= bytes {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{} may be locked in memory (RLIMIT_MEMLOCK), and {} are wanted; raise `ulimit -l`, run as root, or give --no-lock",
        size::words(limit.rlim_cur.saturating_sub(locked)),
        size::words(bytes)
    )))
}

fn round_columns() -> Vec<Column> {
    let ms = |name: &str, meaning: &str| Column::float(name, Unit::Milliseconds, Kind::Time, meaning);
    vec![
        Column::text("way", "plain system calls, or libncpu"),
        Column::id("threads", "that made and destroyed it, the caller among them"),
        Column::id("round", "of how many; ways come in another order in each"),
        Column::text("kind", "private, memfd, posix or sysv"),
        Column::text("page", "default, 4k, thp, 2m or 1g"),
        Column::text("memory", "where its pages come from: default, local, node:N or interleave"),
        Column::int("bytes", Unit::Bytes, Kind::Gauge, "of the segment"),
        ms("create", "until all its pages were made"),
        ms("lock", "the call that locked it: of libncpu before pages are made, of plain calls after it"),
        ms("destroy", "until it was given back"),
    ]
}

/// Medians in ms a GB, and how many times as fast as the plain calls: the median over rounds.
fn table(ways: &[Option<usize>], measured: &[Vec<Times>], gigabytes: f64) -> Table {
    let ms = |name: &str, meaning: &str| Column::float(name, Unit::Milliseconds, Kind::Mean, meaning);
    let times = |name: &str, meaning: &str| Column::float(name, Unit::None, Kind::Mean, meaning);
    let mut out = Table::builder(
        "populate",
        &[
            Column::text("way", "plain system calls of one thread, or libncpu"),
            Column::id("threads", "that make and destroy the segment, the caller among them"),
            ms("create", "ms a GB (2^30 bytes) until all pages are made: median of the rounds"),
            ms(
                "lock",
                "ms a GB of locking it: what that adds to making pages is in create where it comes first",
            ),
            ms("destroy", "ms a GB until it is given back"),
            ms("total", "ms a GB of all three"),
            times("x_total", "how many times as fast as the plain calls of the same round: median"),
            times("x_create", "the same for creating"),
            times("x_destroy", "the same for destroying"),
            Column::float(
                "+-",
                Unit::Percent,
                Kind::Share,
                "half the 95 % interval of the total's median, as a share of it",
            ),
            Column::count("rounds", "that were measured"),
        ],
    );
    let median = |values: Vec<f64>| {
        let mut values = values;
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then(|| quantile(&values, 0.5))
    };
    for (way, of) in ways.iter().zip(measured) {
        let per_gb = |part: &dyn Fn(&Times) -> Option<f64>| {
            median(of.iter().filter_map(part).map(|ns| ns / 1e6 / gigabytes).collect())
        };
        let ratio = |part: &dyn Fn(&Times) -> f64| {
            let pairs = measured[0].iter().zip(of).map(|(plain, own)| part(plain) / part(own).max(1.0));
            way.and_then(|_| median(pairs.collect()))
        };
        let totals: Vec<f64> = of.iter().map(Times::total).collect();
        let uncertain = 100.0 * Summary::of(&totals).uncertainty();
        out.row()
            .text(name(*way))
            .int(way.unwrap_or(1) as u64)
            .float_opt(per_gb(&|t| Some(t.create)))
            .float_opt(per_gb(&|t| t.lock))
            .float_opt(per_gb(&|t| Some(t.destroy)))
            .float_opt(per_gb(&|t| Some(t.total())))
            .float_opt(ratio(&Times::total))
            .float_opt(ratio(&|t| t.create))
            .float_opt(ratio(&|t| t.destroy))
            .float_opt(Some(uncertain).filter(|u| u.is_finite() && totals.len() > 1))
            .int(of.len() as u64);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> SegmentPlan {
        SegmentPlan {
            bytes: 8 << 20,
            kind: SegmentKind::Private,
            page: PageSize::Default,
            memory: Memory::Default,
            threads: vec![1, 2],
            rounds: 2,
            lock: false,
        }
    }

    #[test]
    fn medians_and_ratios_of_the_same_round() {
        let t = |create: f64, lock: f64, destroy: f64| Times { create, lock: Some(lock), destroy };
        let measured = [
            vec![t(8e6, 2e6, 2e6), t(80e6, 20e6, 20e6), t(8e6, 2e6, 2e6)],
            vec![t(4e6, 0.0, 2e6), t(40e6, 0.0, 20e6), t(4e6, 0.0, 2e6)],
        ];
        // Half a GB: each figure twice.
        let table = table(&[None, Some(2)], &measured, 0.5);
        let row = |r: usize, c: &str| table.number(r, c);
        assert_eq!(
            (row(0, "create"), row(0, "total"), row(1, "total")),
            (Some(16.0), Some(24.0), Some(12.0))
        );
        assert_eq!((row(0, "x_total"), row(1, "x_total")), (None, Some(2.0)));
        assert_eq!(
            (row(1, "x_create"), row(1, "x_destroy"), row(1, "lock")),
            (Some(2.0), Some(1.0), Some(0.0))
        );
        assert_eq!(table.text(0, "way"), Some("calls"));
    }

    #[test]
    fn every_way_is_in_every_round() {
        let machine = Topology::read("/".as_ref()).unwrap();
        for kind in ["private", "memfd", "sysv"] {
            let plan = SegmentPlan { kind: kind.parse().unwrap(), ..plan() };
            assert_eq!(plan.kind.to_string(), kind);
            let done = plan.run(&machine, &AtomicBool::new(false), &|_| {}).unwrap();
            assert_eq!(done.rounds.num_rows(), 2 * 3);
            assert_eq!(done.table.num_rows(), 3);
            assert!((0..3).all(|r| done.table.int(r, "rounds") == Some(2)));
            assert!((0..3).all(|r| done.table.number(r, "create") > Some(0.0)));
            assert!((0..3).all(|r| done.table.number(r, "lock").is_none()));
        }
        // A run that is stopped before it began has no figure, and none is made up.
        let done = plan().run(&machine, &AtomicBool::new(true), &|_| {}).unwrap();
        assert_eq!(done.table.number(0, "total"), None);
        assert_eq!(done.notes, ["stopped early"]);
    }

    #[test]
    fn what_is_missing_is_told_with_its_cure() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let put = |name: &str, text: &str| ncpu_machine_trees::put(root, name, text);
        put("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    16384 kB\n");
        put("proc/sys/kernel/shmmax", "4194304\n");
        put("proc/sys/kernel/shmall", "999999\n");
        put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        put(
            "sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "always within_size advise [never] deny force\n",
        );
        put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "5\n");
        put("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "2\n");
        put("dev/shm/x", "");
        let machine = Topology::default();
        let why = |plan: SegmentPlan| plan.check(&machine, root).map_err(|e| e.to_string());
        let says = |plan: SegmentPlan, words: &str| {
            let why = why(plan).unwrap_err();
            assert!(why.contains(words), "{why}");
        };
        assert_eq!(why(plan()), Ok(()));
        says(
            SegmentPlan { bytes: 17 << 20, ..plan() },
            "17 MiB are wanted, and 16 MiB are available on this machine",
        );
        says(SegmentPlan { bytes: u64::MAX, ..plan() }, "too large");
        says(SegmentPlan { kind: SegmentKind::SysV, ..plan() }, "sysctl -w kernel.shmmax=8388608");
        says(
            SegmentPlan { page: PageSize::Huge2M, ..plan() },
            "4 huge pages of 2 MiB are wanted, and 3 are free",
        );
        assert_eq!(why(SegmentPlan { page: PageSize::Huge2M, bytes: 6 << 20, ..plan() }), Ok(()));
        says(
            SegmentPlan { page: PageSize::Huge1G, ..plan() },
            "1 huge pages of 1 GiB are wanted, and 0 are free",
        );
        says(
            SegmentPlan { page: PageSize::Huge2M, kind: SegmentKind::Posix, ..plan() },
            "take memfd or sysv",
        );
        assert_eq!(why(SegmentPlan { page: PageSize::Transparent, ..plan() }), Ok(()));
        says(
            SegmentPlan { page: PageSize::Transparent, kind: SegmentKind::Memfd, ..plan() },
            "off for shared memory",
        );
        says(SegmentPlan { memory: Memory::Node(9), ..plan() }, "node 9 has no memory");
    }

    #[test]
    fn locking_is_limited() {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a live rlimit.
        unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
        assert_eq!(may_lock(1 << 60, "VmLck:\t0 kB\nCapEff:\t0000000000004000\n"), Ok(()));
        let status = "VmLck:\t     4 kB\nCapEff:\t0000000000000000\n";
        if limit.rlim_cur < 1 << 60 {
            assert_eq!(may_lock(limit.rlim_cur.saturating_sub(4096), status), Ok(()));
            let why = may_lock(limit.rlim_cur - 4095, status).unwrap_err().to_string();
            assert!(why.contains("RLIMIT_MEMLOCK") && why.contains("--no-lock"), "{why}");
        }
    }
}
