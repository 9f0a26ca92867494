//! Samples of memory accesses: which lines move between CPUs, who touches which part of them, and from
//! where. What `perf c2c` does.
//!
//! For a load the hardware reports the address, the instruction, and whether another cache held the line
//! modified (HITM), on this node or another. Samples are counted by address, instruction, thread and CPU;
//! of the lines that were never found modified elsewhere only totals are kept.
//!
//! Perf events sample them, without BPF: parsing their rings and decoding where data came from are pure functions in
//! `ncpu_machine::events`, and `report` joins the samples with the words that `lines` read.

mod names;
mod open;
mod tables;
mod watching;

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ncpu_files::reader::process_text;
use ncpu_instructions::Registers;
use ncpu_machine::events::sample::{self, Hitm, Record, Sample};
use ncpu_machine::events::{AccessEvent, Encoding, TYPE_SOFTWARE, user_sample};
use ncpu_table::Table;

use crate::bpf_support::Ring;
use open::Wanted;
use watching::Watching;

/// Different accesses kept; beyond, those of lines that no other CPU had modified are forgotten.
const MOST: usize = 1 << 19;
/// Processes whose mappings are remembered.
const MOST_PROCESSES: usize = 256;
/// How long mappings stand before they are read again, of a process that has samples.
const STALE: Duration = Duration::from_secs(1);

/// Why nothing can be sampled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Too many files.
    #[error(
        "sampling takes {need} open files and the hard limit is {hard}: raise it (`ulimit -Hn {need}` as root)"
    )]
    Files {
        /// How many it takes.
        need: u64,
        /// How many there may be.
        hard: u64,
    },
    /// An event is refused.
    #[error("opening event {event} (as root it may be allowed; see kernel.perf_event_paranoid)")]
    Open {
        /// Which.
        event: String,
        /// Why.
        source: io::Error,
    },
    /// None of the CPUs that are online has the event.
    #[error("no CPU that is online samples accesses, or the process has ended")]
    Nowhere,
    /// The events cannot be switched on.
    #[error("starting to sample")]
    Enable(#[source] io::Error),
    /// No debug register can be had.
    #[error("no debug registers, which would watch lines")]
    NoRegisters(#[source] io::Error),
    /// The list of CPUs cannot be read.
    #[error(transparent)]
    Machine(#[from] ncpu_machine::Error),
}

/// The processes whose accesses are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A program's that waits for its `exec`, and of all it starts.
    Program(u32),
    /// A process's.
    Process(u32),
}

/// One access, but for when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// Address accessed.
    pub address: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CPU.
    pub cpu: u32,
    /// Address of the instruction.
    pub ip: u64,
}

/// How often it was sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads that another cache of the node had modified.
    pub local: u64,
    /// Loads that a cache of another node had modified.
    pub remote: u64,
    /// Loads.
    pub loads: u64,
    /// Stores.
    pub stores: u64,
    /// By locked instructions.
    pub locked: u64,
    /// Where debug registers watch: moves for a word that the other CPU had written itself.
    pub same: u64,
    /// Cycles of the loads with a known latency.
    pub cycles: u64,
    /// Number of these loads.
    pub timed: u64,
}

/// Samples of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Of all accesses.
    pub counts: Counts,
    /// Samples; where debug registers watch, accesses that they saw.
    pub samples: u64,
    /// Samples of the timer that says which lines to watch.
    pub timer: u64,
    /// Samples that are of no access, or whose address was not told.
    pub without: u64,
    /// Records that found no room.
    pub lost: u64,
    /// How often the kernel held the sampling back.
    pub throttled: u64,
    /// Damaged reads of a ring.
    pub damaged: u64,
    /// Distinct accesses dropped because the table was full.
    pub forgotten: u64,
}

impl Counts {
    fn merge(&mut self, other: Counts) {
        let Counts { local, remote, loads, stores, locked, same, cycles, timed } = other;
        self.local += local;
        self.remote += remote;
        self.loads += loads;
        self.stores += stores;
        self.locked += locked;
        self.same += same;
        self.cycles = self.cycles.saturating_add(cycles);
        self.timed += timed;
    }

    fn of(sample: &Sample) -> Counts {
        let source = sample.source;
        let timed = source.load() && sample.weight > 0;
        Counts {
            local: u64::from(source.hitm() == Some(Hitm::Local)),
            remote: u64::from(source.hitm() == Some(Hitm::Remote)),
            loads: source.load().into(),
            stores: source.store().into(),
            locked: source.locked().into(),
            same: 0,
            cycles: if timed { sample.weight } else { 0 },
            timed: timed.into(),
        }
    }
}

/// Accesses counted from samples, wherever these come from.
#[derive(Debug, Default)]
pub struct Counted {
    of: HashMap<Access, Counts>,
    totals: Totals,
}

impl Counted {
    /// Takes what a ring held; of processes for which `wanted` does not hold nothing.
    pub fn take(&mut self, bytes: &[u8], wanted: impl Fn(u32) -> bool) {
        let done = sample::records(bytes, |record| {
            if let Some(sample) = self.sample_of(record).filter(|sample| wanted(sample.pid)) {
                self.sample(&sample);
            }
        });
        self.totals.damaged += u64::from(done.is_err());
    }

    /// The sample of a record; records of other kinds are counted.
    fn sample_of<S>(&mut self, record: Record<S>) -> Option<S> {
        match record {
            Record::Sample(sample) => return Some(sample),
            Record::Lost(n) => self.totals.lost = self.totals.lost.saturating_add(n),
            Record::Throttled => self.totals.throttled += 1,
        }
        None
    }

    /// Counts an access, or several alike.
    fn count(&mut self, access: Access, counts: Counts) {
        self.totals.counts.merge(counts);
        self.of.entry(access).or_default().merge(counts);
        if self.of.len() > MOST {
            self.forget();
        }
    }

    fn sample(&mut self, sample: &Sample) {
        self.totals.samples += 1;
        if sample.address == 0 || sample.source.unknown() {
            self.totals.without += 1;
            return;
        }
        let Sample { address, pid, tid, cpu, ip, .. } = *sample;
        self.count(Access { address, pid, tid, cpu, ip }, Counts::of(sample));
    }

    /// Makes room: what lies in no line that moved goes, and if that does not do, what was met once.
    fn forget(&mut self) {
        let before = self.of.len();
        // The widest cache line there is, so that any narrower line is sampled whole.
        let line = |a: &Access| (a.pid, a.address & !255);
        let moved: std::collections::HashSet<_> =
            self.of.iter().filter(|(_, n)| n.local + n.remote > 0).map(|(a, _)| line(a)).collect();
        self.of.retain(|a, _| moved.contains(&line(a)));
        if self.of.len() > MOST / 2 {
            self.of.retain(|_, n| n.loads + n.stores > 1);
        }
        if self.of.len() > MOST / 2 {
            self.of.clear();
        }
        self.totals.forgotten += (before - self.of.len()) as u64;
    }

    /// The accesses.
    pub fn accesses(&self) -> impl Iterator<Item = (&Access, &Counts)> {
        self.of.iter()
    }

    /// Everything together.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The process with most loads of lines that others had modified.
    pub fn hottest(&self) -> Option<u32> {
        let mut by: HashMap<u32, u64> = HashMap::new();
        for (access, n) in &self.of {
            *by.entry(access.pid).or_default() += n.local + n.remote;
        }
        by.into_iter()
            .filter(|(_, n)| *n > 0)
            .max_by_key(|&(pid, n)| (n, std::cmp::Reverse(pid)))
            .map(|(pid, _)| pid)
    }
}

/// The mappings of processes, kept for when they have ended.
#[derive(Debug, Default)]
pub struct Mappings {
    of: HashMap<u32, (Vec<u8>, Instant)>,
}

impl Mappings {
    /// Reads a process's now; what was read before stands where there is nothing any more.
    pub fn look(&mut self, pid: u32) {
        let now = Instant::now();
        let fresh = |(_, at): &(Vec<u8>, Instant)| now - *at < STALE;
        if self.of.get(&pid).is_some_and(fresh)
            || self.of.len() >= MOST_PROCESSES && !self.of.contains_key(&pid)
        {
            return;
        }
        self.look_again(pid);
    }

    /// As [`look`](Mappings::look), however fresh what is known.
    pub fn look_again(&mut self, pid: u32) {
        match process_text(format!("/proc/{pid}").as_ref(), pid, "maps") {
            Ok(text) if !text.is_empty() => {
                self.of.insert(pid, (text, Instant::now()));
            }
            // It has ended; its memory is gone before it is.
            _ => {}
        }
    }

    /// Reads them now and then until the process behind `end` ends, `deadline` passes or `stop` is set: a
    /// program's libraries come one by one, most of them soon.
    pub fn follow(
        &mut self,
        pid: u32,
        end: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
        stop: &AtomicBool,
    ) {
        let mut pause = Duration::from_millis(1);
        loop {
            self.look_again(pid);
            let left = deadline.map_or(Duration::MAX, |d| d.saturating_duration_since(Instant::now()));
            if stop.load(Ordering::Relaxed) || left.is_zero() || ended(end, pause.min(left)) {
                return;
            }
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// The text of its `/proc/PID/maps`.
    pub fn text(&self, pid: u32) -> Option<&[u8]> {
        self.of.get(&pid).map(|(text, _)| &text[..])
    }
}

/// Samples a process.
pub struct Collector {
    rings: Vec<Ring>,
    opened: open::Opened,
    only: Option<u32>,
    counted: Counted,
    names: names::Names,
    bytes: Vec<u8>,
    hz: u64,
    /// Where no counter samples accesses.
    watching: Option<Watching>,
}

impl Collector {
    /// Opens the events, disabled until [`start`](Collector::start), or until the program's `exec`.
    ///
    /// # Errors
    /// This user may not sample, or nothing here samples.
    pub fn open(scope: Scope, events: &[AccessEvent]) -> Result<Collector, Error> {
        // One reader gets them all, as with the timers of `ncpu run`.
        Collector::with(scope, events, 4000, |hz| Wanted {
            sample_type: sample::SAMPLE_TYPE,
            registers: 0,
            user_only: false,
            hz,
        })
    }

    /// Where no counter samples accesses: opens timers that say which lines to watch, and debug registers watch them.
    ///
    /// # Errors
    /// This user may not sample, or this machine has no debug registers.
    pub fn watching(scope: Scope) -> Result<Collector, Error> {
        const CPU_CLOCK: u64 = 0;
        let encoding =
            Encoding { pmu: String::new(), kind: TYPE_SOFTWARE, config: [CPU_CLOCK, 0, 0, 0], cpus: None };
        let timer = AccessEvent { name: "cpu-clock".into(), encoding, leader: None, any_instruction: false };
        let mut collector = Collector::with(scope, &[timer], 299, |hz| Wanted {
            sample_type: user_sample::SAMPLE_TYPE,
            registers: Registers::PERF_MASK,
            user_only: true,
            hz,
        })?;
        collector.watching = Some(Watching::new(collector.rings.len()).map_err(Error::NoRegisters)?);
        Ok(collector)
    }

    fn with(
        scope: Scope,
        events: &[AccessEvent],
        most: u64,
        wanted: impl Fn(u64) -> Wanted,
    ) -> Result<Collector, Error> {
        let cpus = ncpu_machine::online_cpus(std::path::Path::new("/"))?.len() as u64;
        let hz = (200_000 / cpus.max(1)).clamp(50, most);
        let mut opened = open::open(scope, events, wanted(hz))?;
        let only = match scope {
            Scope::Program(pid) | Scope::Process(pid) if opened.everybody => Some(pid),
            _ => None,
        };
        let rings = std::mem::take(&mut opened.rings);
        let (names, bytes) = (names::Names::default(), Vec::new());
        let counted = Counted::default();
        Ok(Collector { rings, opened, only, counted, names, bytes, hz, watching: None })
    }

    /// Begins to sample what runs already.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(&self) -> Result<(), Error> {
        open::enable(&self.opened, true).map_err(Error::Enable)
    }

    /// Takes samples until the process behind `end` ends, `deadline` passes or `stop` is set.
    pub fn watch(&mut self, end: Option<BorrowedFd<'_>>, deadline: Option<Instant>, stop: &AtomicBool) {
        loop {
            self.drain();
            let left = deadline.map_or(Duration::MAX, |d| d.saturating_duration_since(Instant::now()));
            // A ring holds half a second's.
            let mut pause = Duration::from_millis(50);
            if let Some(watching) = &mut self.watching {
                pause = watching.turn(&mut self.counted, &mut self.names);
            }
            if stop.load(Ordering::Relaxed) || left.is_zero() || ended(end, left.min(pause)) {
                break;
            }
        }
        // An event that cannot be stopped goes on unread.
        let _ = open::enable(&self.opened, false);
        self.drain();
    }

    fn drain(&mut self) {
        let known = self.counted.totals.samples;
        for ring in &mut self.rings {
            self.bytes.clear();
            self.counted.totals.damaged += u64::from(ring.drain(&mut self.bytes) > 0);
            let wanted = |pid| self.only.is_none_or(|only| only == pid);
            match &mut self.watching {
                Some(watching) => {
                    watching.take(&self.bytes, &mut self.counted, &mut self.names, wanted);
                }
                None => self.counted.take(&self.bytes, wanted),
            }
        }
        if self.counted.totals.samples > known {
            let pids: std::collections::HashSet<u32> = self.counted.of.keys().map(|a| a.pid).collect();
            pids.into_iter().for_each(|pid| self.names.met(pid));
        }
    }

    /// The counts so far.
    pub fn counted(&self) -> &Counted {
        &self.counted
    }

    /// The mappings of the processes that were sampled.
    pub fn mappings(&self) -> &Mappings {
        &self.names.mappings
    }

    /// The tables `accesses` (of lines of `line` bytes that another CPU had modified) and `access_totals`.
    pub fn tables(&mut self, line: u64) -> [Table; 2] {
        tables::of(&self.counted, self.watching.as_ref(), &mut self.names, line)
    }

    /// Notes for the reader.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = notes(&self.counted.totals, self.hz, self.watching.is_some());
        notes.extend(self.watching.as_ref().and_then(Watching::note));
        if self.opened.user_only && self.watching.is_none() {
            notes.push("accesses of the kernel are not sampled: that takes root".into());
        }
        notes
    }
}

fn notes(totals: &Totals, hz: u64, watching: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if watching {
        if totals.timer == 0 {
            notes.push("no sample of its code was taken: it ran for too short, or hardly ran".into());
        }
    } else if totals.samples == 0 {
        notes.push("no access was sampled: it ran for too short, or hardly ran".into());
    } else if totals.without == totals.samples {
        notes.push(
            "the kernel's samples lack the address and the source of the data (AMD: Linux 6.2 has them)"
                .into(),
        );
    }
    for (n, what) in [
        (totals.lost, "records found the ring full"),
        (totals.damaged, "reads of a ring were damaged"),
        (totals.forgotten, "accesses to lines that seldom moved were left out for want of room"),
    ] {
        if n > 0 {
            notes.push(format!("dropped: {n} {what}"));
        }
    }
    if totals.throttled > 0 {
        notes.push(format!(
            "the kernel held the sampling back {} times: {hz} samples a second on each CPU are more than it allows (kernel.perf_event_max_sample_rate)",
            totals.throttled
        ));
    }
    notes
}

/// Waits; whether it has ended.
fn ended(end: Option<BorrowedFd<'_>>, time: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let time = rustix::time::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let mut fds: Vec<PollFd<'_>> =
        end.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    // Interrupted by a signal: the caller looks at why.
    let _ = poll(&mut fds, Some(&time));
    fds.first().is_some_and(|fd| !fd.revents().is_empty())
}

#[cfg(test)]
mod tests;
