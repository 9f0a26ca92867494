//! Activity of each CPU: the columns of Solaris `mpstat`, and steal.
//!
//! Times come from `/proc/stat`. Interrupts, softirqs and faults are counted per CPU by the kernel
//! and copied out by a BPF program at each sample; where it cannot reach them, `/proc/interrupts`,
//! `/proc/softirqs` and software perf events stand in. The other columns hang on tracepoints, each
//! attached only if a column that needs it is asked for. A sample costs O(CPUs).
//!
//! ```no_run
//! use ncpu_collectors::cpus::{Options, Sampler};
//!
//! let mut sampler = Sampler::new(Options::default())?;
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! let table = sampler.sample()?;
//! assert!(table.num_rows() >= 1);
//! # Ok::<(), ncpu_collectors::cpus::Error>(())
//! ```

mod counters;
mod intervals;
mod layout;
mod load;
pub mod parse;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unused)]
mod skel;
mod source;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Instant, SystemTime};

use ncpu_table::{Column, Kind, Table, Unit};

use self::counters::Counters;
pub use self::intervals::Intervals;
use self::parse::{Sums, TIMES};
use self::source::Source;

/// Why a sample failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of /proc could not be read.
    #[error("reading {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of /proc is not as the kernel writes it.
    #[error("{}, line {line}: expected {expected}", path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// The expected text.
        expected: &'static str,
    },
}

/// A result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A column that describes a CPU, in the order shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs, reason = "meaning() has the words")]
pub enum Metric {
    Minf,
    Mjf,
    Xcal,
    Intr,
    Ithr,
    Csw,
    Icsw,
    Migr,
    Smtx,
    Srw,
    Syscl,
    Usr,
    Sys,
    Wt,
    St,
    Idl,
}

/// How many metrics are counts; the rest are shares of time.
const COUNTS: usize = Metric::Usr as usize;

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 16] = {
        use Metric::*;
        [Minf, Mjf, Xcal, Intr, Ithr, Csw, Icsw, Migr, Smtx, Srw, Syscl, Usr, Sys, Wt, St, Idl]
    };

    /// The column's name.
    pub fn name(self) -> &'static str {
        self.describe().0
    }

    /// Its meaning, in one line.
    pub fn meaning(self) -> &'static str {
        self.describe().1
    }

    /// Whether it is a share of the CPU's time, in per cent; otherwise a rate per second.
    pub fn is_share(self) -> bool {
        self as usize >= COUNTS
    }

    fn describe(self) -> (&'static str, &'static str) {
        match self {
            Metric::Minf => ("minf", "minor page faults"),
            Metric::Mjf => ("mjf", "major page faults: those that waited for I/O"),
            Metric::Xcal => ("xcal", "cross-calls sent to other CPUs"),
            Metric::Intr => ("intr", "interrupts"),
            Metric::Ithr => ("ithr", "softirqs: interrupt work done behind the interrupt"),
            Metric::Csw => ("csw", "context switches"),
            Metric::Icsw => ("icsw", "involuntary context switches"),
            Metric::Migr => ("migr", "threads that arrived from another CPU"),
            Metric::Smtx => ("smtx", "contended acquisitions of kernel mutexes and spinlocks"),
            Metric::Srw => ("srw", "contended acquisitions of kernel readers-writer locks"),
            Metric::Syscl => ("syscl", "system calls"),
            Metric::Usr => ("usr", "time in user mode, guests and niced programs included"),
            Metric::Sys => ("sys", "time in the kernel, interrupts and softirqs included"),
            Metric::Wt => ("wt", "idle with I/O of this CPU outstanding"),
            Metric::St => ("st", "time the hypervisor ran something else"),
            Metric::Idl => ("idl", "idle"),
        }
    }

    fn column(self) -> Column {
        let (name, meaning) = self.describe();
        if self.is_share() {
            Column::float(name, Unit::Percent, Kind::Share, meaning)
        } else {
            Column::float(name, Unit::PerSecond, Kind::Count, meaning)
        }
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(s: &str) -> Result<Metric, String> {
        Metric::ALL.into_iter().find(|m| m.name() == s).ok_or_else(|| {
            let names: Vec<_> = Metric::ALL.iter().map(|m| m.name()).collect();
            format!("unknown column `{s}`; expected one of: {}", names.join(", "))
        })
    }
}

/// The columns and CPUs to sample.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where `proc` is found. Below anything but `/` no program is attached: kernel counters would
    /// be those of this machine.
    pub root: PathBuf,
    /// The columns.
    pub metrics: Vec<Metric>,
    /// Add a first column `time`, for formats that keep the rows of many samples.
    pub time: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { root: "/".into(), metrics: Metric::ALL.to_vec(), time: false }
    }
}

/// Counters of one CPU at one moment.
#[derive(Clone, Copy)]
struct Reading {
    online: bool,
    /// Ticks, as `/proc/stat` gives them.
    times: [u64; TIMES],
    /// By metric; [`UNKNOWN`] where a source has no such CPU.
    counts: [u64; COUNTS],
}

const UNKNOWN: u64 = u64::MAX;
const OFFLINE: Reading = Reading { online: false, times: [0; TIMES], counts: [UNKNOWN; COUNTS] };

/// Where a count is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// BPF programs.
    Counters,
    /// `/proc/interrupts`, all lines.
    Interrupts,
    /// `/proc/interrupts`, the lines of cross-calls.
    CrossCalls,
    /// `/proc/softirqs`.
    Softirqs,
    /// Nowhere.
    Nothing,
}

/// Reads counters at intervals and yields rates.
pub struct Sampler {
    columns: Vec<Column>,
    /// The columns with where each is read.
    metrics: Vec<(Metric, Origin)>,
    time: bool,
    stat: Source,
    interrupts: Option<Source>,
    softirqs: Option<Source>,
    sums: Sums,
    counters: Option<Counters>,
    /// By CPU number, the last reading and the one before it.
    last: Vec<Reading>,
    before: Vec<Reading>,
    taken: Instant,
    notes: Vec<String>,
}

/// What `xcal` is where nothing is traced.
const RECEIVED: &str = "cross-calls received, from /proc/interrupts";

impl Sampler {
    /// Attaches what is needed and takes the first reading.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read. Anything else that is missing costs only its columns, and is listed by
    /// [`notes`](Sampler::notes).
    pub fn new(options: Options) -> Result<Sampler> {
        let Options { root, metrics, time } = options;
        let mut columns = Vec::new();
        if time {
            let meaning = "end of the interval, seconds since 1970";
            columns.push(Column::float("time", Unit::Seconds, Kind::Gauge, meaning));
        }
        columns.push(Column::id("CPU", "CPU number"));
        columns.extend(metrics.iter().map(|m| m.column()));
        let mut sampler = Sampler {
            columns,
            stat: Source::open(&root, "proc/stat")?,
            metrics: metrics.iter().map(|&m| (m, Origin::Nothing)).collect(),
            time,
            interrupts: None,
            softirqs: None,
            sums: Sums::default(),
            counters: None,
            last: Vec::new(),
            before: Vec::new(),
            taken: Instant::now(),
            notes: Vec::new(),
        };
        sampler.read()?; // so that the CPUs are known
        sampler.find_sources(&root, &metrics);
        sampler.read()?;
        Ok(sampler)
    }

    /// Attaches programs, finds other sources for what they do not count, and notes what is missing.
    fn find_sources(&mut self, root: &Path, metrics: &[Metric]) {
        let here = root.as_os_str() == "/";
        let mut missing = Vec::new();
        if here {
            (self.counters, missing) = Counters::attach(metrics);
        }
        let counters = self.counters.as_ref();
        for (metric, from) in &mut self.metrics {
            if counters.is_some_and(|c| c.has(*metric)) {
                *from = Origin::Counters;
            }
        }
        if counters.is_some_and(Counters::only_shootdowns) {
            self.note("xcal: TLB shootdowns sent only, as Linux before 6.4 has no ipi tracepoints");
        }
        let received = self.lacks(Metric::Xcal);
        if self.lacks(Metric::Intr) || received {
            match Source::open(root, "proc/interrupts") {
                Ok(source) => {
                    self.interrupts = Some(source);
                    self.take_from(Metric::Intr, Origin::Interrupts);
                    self.take_from(Metric::Xcal, Origin::CrossCalls);
                    // Where other columns are missing too, the note about them says this as well.
                    if received && missing.is_empty() {
                        self.note(&format!("xcal: {RECEIVED}"));
                    }
                }
                Err(e) => self.note(&format!("intr, xcal: {e}")),
            }
        }
        if self.lacks(Metric::Ithr) {
            match Source::open(root, "proc/softirqs") {
                Ok(source) => {
                    self.softirqs = Some(source);
                    self.take_from(Metric::Ithr, Origin::Softirqs);
                }
                Err(e) => self.note(&format!("ithr: {e}")),
            }
        }
        for counters::Missing { mut metrics, why } in missing {
            metrics.retain(|m| self.lacks(*m));
            if !metrics.is_empty() {
                let names: Vec<_> = metrics.iter().map(|m| m.name()).collect();
                let xcal = if received { format!("; xcal counts {RECEIVED}") } else { String::new() };
                self.note(&format!("{}: {why}{xcal}", names.join(", ")));
            }
        }
    }

    fn lacks(&self, metric: Metric) -> bool {
        !metric.is_share() && self.metrics.contains(&(metric, Origin::Nothing))
    }

    fn take_from(&mut self, metric: Metric, source: Origin) {
        for (m, from) in &mut self.metrics {
            if *m == metric && *from == Origin::Nothing {
                *from = source;
            }
        }
    }

    fn note(&mut self, note: &str) {
        self.notes.push(note.into());
    }

    /// Notes that the user has not seen yet: columns that are missing and why, CPUs that came or went.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The columns of every [`sample`](Sampler::sample).
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Rates since the last sample, a row for each CPU online at both.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read or is not as it should be.
    pub fn sample(&mut self) -> Result<Table> {
        let started = self.taken;
        self.step()?;
        Ok(self.table((self.taken - started).as_secs_f64()))
    }

    /// Takes the next reading, which the one before is compared with.
    fn step(&mut self) -> Result<()> {
        self.read()?;
        self.follow_hotplug();
        Ok(())
    }

    /// The CPUs online at both readings, with those.
    fn both(&self) -> impl Iterator<Item = (usize, &Reading, &Reading)> {
        let both = self.before.iter().zip(&self.last).enumerate();
        both.filter(|(_, (old, new))| old.online && new.online).map(|(cpu, (old, new))| (cpu, old, new))
    }

    /// Takes a reading.
    fn read(&mut self) -> Result<()> {
        let now = &mut self.before;
        now.fill(OFFLINE);
        self.stat.times(|cpu, times| {
            let cpu = cpu as usize;
            if now.len() <= cpu {
                now.resize(cpu + 1, OFFLINE);
            }
            now[cpu] = Reading { online: true, times, ..OFFLINE };
        })?;
        let taken = Instant::now();
        if let Some(counters) = &mut self.counters {
            counters.refresh();
        }
        for (source, all, some) in [
            (&mut self.interrupts, Origin::Interrupts, Origin::CrossCalls),
            (&mut self.softirqs, Origin::Softirqs, Origin::Nothing),
        ] {
            let Some(open) = source else { continue };
            if let Err(e) = open.sums(&mut self.sums) {
                // Once: the columns stay empty from here on.
                self.notes.push(e.to_string());
                *source = None;
                continue;
            }
            for &(metric, from) in &self.metrics {
                let sums = match from {
                    f if f == all => &self.sums.total,
                    f if f == some && f != Origin::Nothing => &self.sums.cross_calls,
                    _ => continue,
                };
                for (&cpu, &sum) in self.sums.cpus.iter().zip(sums) {
                    if let Some(reading) = now.get_mut(cpu as usize) {
                        reading.counts[metric as usize] = sum;
                    }
                }
            }
        }
        for (cpu, reading) in now.iter_mut().enumerate().filter(|(_, r)| r.online) {
            for &(metric, from) in &self.metrics {
                let value = match from {
                    Origin::Counters => self.counters.as_ref().and_then(|c| c.get(cpu, metric)),
                    _ => continue,
                };
                reading.counts[metric as usize] = value.unwrap_or(UNKNOWN);
            }
        }
        std::mem::swap(&mut self.before, &mut self.last);
        self.taken = taken;
        Ok(())
    }

    /// Tells which CPUs came and went, and keeps their counters out of the rates.
    fn follow_hotplug(&mut self) {
        let was = |cpu: &usize| self.before.get(*cpu).is_some_and(|r| r.online);
        let is = |cpu: &usize| self.last.get(*cpu).is_some_and(|r| r.online);
        let cpus = 0..self.before.len().max(self.last.len());
        let came: Vec<usize> = cpus.clone().filter(|c| is(c) && !was(c)).collect();
        let left: Vec<usize> = cpus.filter(|c| was(c) && !is(c)).collect();
        if !came.is_empty() {
            self.notes.push(format!("{} came online", numbers(&came)));
        }
        if !left.is_empty() {
            self.notes.push(format!("{} went offline", numbers(&left)));
        }
        // The kernel gives the faults of a CPU that leaves to another one.
        for metric in [Metric::Minf, Metric::Mjf] {
            let at = metric as usize;
            let moved = |(old, new): (&Reading, &Reading)| {
                old.counts[at] != UNKNOWN && new.counts[at] != UNKNOWN && new.counts[at] < old.counts[at]
            };
            if self.metrics.contains(&(metric, Origin::Counters))
                && (!left.is_empty() || self.before.iter().zip(&self.last).any(moved))
            {
                self.before.iter_mut().for_each(|r| r.counts[at] = UNKNOWN);
            }
        }
    }

    fn table(&self, elapsed: f64) -> Table {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut table = Table::builder("cpus", &self.columns);
        for (cpu, old, new) in self.both() {
            let shares = Shares::of(old, new);
            let mut row = table.row();
            if self.time {
                row = row.float(time);
            }
            row = row.int(cpu as u64);
            for &(metric, _) in &self.metrics {
                row = row.float_opt(match metric {
                    Metric::Usr => shares.map(|s| s.usr),
                    Metric::Sys => shares.map(|s| s.sys),
                    Metric::Wt => shares.map(|s| s.wt),
                    Metric::St => shares.map(|s| s.st),
                    Metric::Idl => shares.map(|s| s.idl),
                    count => rate(old.counts[count as usize], new.counts[count as usize], elapsed),
                });
            }
        }
        table.finish()
    }
}

/// Events between two readings; `None` where a count is not known or went backwards.
fn count(old: u64, new: u64) -> Option<u64> {
    if old == UNKNOWN || new == UNKNOWN { None } else { new.checked_sub(old) }
}

/// Events per second; `None` where [`count`] is.
fn rate(old: u64, new: u64, elapsed: f64) -> Option<f64> {
    count(old, new).filter(|_| elapsed > 0.0).map(|n| n as f64 / elapsed)
}

/// Where a CPU's time went: in per cent, which sum to 100, or in seconds.
#[derive(Clone, Copy)]
struct Shares {
    usr: f64,
    sys: f64,
    wt: f64,
    st: f64,
    idl: f64,
}

impl Shares {
    /// `None` if no tick was counted: the interval was shorter than one.
    fn of(old: &Reading, new: &Reading) -> Option<Shares> {
        let all = Shares::ticks(old, new, 1.0);
        let total = all.usr + all.sys + all.wt + all.st + all.idl;
        (total > 0.0).then(|| Shares::ticks(old, new, 100.0 / total))
    }

    /// Ticks between two readings, each multiplied by `worth`.
    fn ticks(old: &Reading, new: &Reading, worth: f64) -> Shares {
        // iowait and idle do step back at times, by little; a CPU's times may start afresh.
        let ticks: [u64; TIMES] = std::array::from_fn(|i| new.times[i].saturating_sub(old.times[i]));
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks.map(|t| t as f64 * worth);
        Shares { usr: user + nice, sys: system + irq + softirq, wt: iowait, st: steal, idl: idle }
    }
}

/// `CPU 5`, `CPUs 2-3,8`.
fn numbers(cpus: &[usize]) -> String {
    let runs = cpus.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    let plural = if cpus.len() == 1 { "" } else { "s" };
    format!("CPU{plural} {}", runs.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests;
