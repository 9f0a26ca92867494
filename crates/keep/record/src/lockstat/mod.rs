//! Reads output of `lockstat` of Solaris and illumos (lockstat(1M)), FreeBSD (lockstat(1)) and NetBSD
//! (lockstat(8)), and computes the values of `lockutil`: `CPU_util = count × nsec / (elapsed × ncpu × 1e9)`.
//!
//! Only busy-waiting takes CPU time, so only spin events have a CPU-util; block, hold and other events are
//! shown without one.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "\
//! Adaptive mutex spin: 9181733 events in 10.135 seconds (905943 events/sec)
//! Count indv cuml rcnt     nsec Lock                   Caller
//! -------------------------------------------------------------------------
//! 557331   6%   6% 0.00    88454 0x60033047000          timeout_common+0x4
//! ...
//! ";
//! let file = ncpu_record::lockstat::parse(text.as_bytes(), "lockstat.out".as_ref(), 256, None)?;
//! let table = ncpu_record::lockstat::lockutil_table(&file);
//! assert_eq!(format!("{:.3}", table.number(0, "CPU-util").unwrap()), "0.019");
//! # Ok(())
//! # }
//! ```

mod line;
mod parse;
mod table;

use std::path::{Path, PathBuf};

pub use parse::parse;
pub use table::{lockstat_table, lockutil_table, render_lockutil};

/// Reads a file of lockstat output from a machine of `ncpu` CPUs. `elapsed`, in seconds, is for output
/// without the observed time; a time in the file takes precedence.
///
/// # Errors
/// The file cannot be read, or an error of [`parse`].
pub fn import(path: &Path, ncpu: u64, elapsed: Option<f64>) -> Result<LockFile, Error> {
    let bytes = ncpu_files::read(path, ncpu_files::MOST_TEXT)
        .and_then(|bytes| ncpu_files::lines(&bytes).map(|()| bytes))
        .map_err(|source| Error::Io { path: path.into(), source })?;
    parse(&bytes, path, ncpu, elapsed)
}

/// Errors of an import. Every message names the file, and the line if there is one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: cannot read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line that lockstat does not print at this place.
    #[error("{}:{line}: expected {expected}, found `{found}`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The expected line.
        expected: String,
        /// The line's text, shortened.
        found: String,
    },
    /// A row's histogram does not add up to its count.
    #[error(
        "{}:{line}: the histogram adds up to {sum} of {count} events, so lines are missing; import the whole output",
        path.display()
    )]
    Histogram {
        /// The file.
        path: PathBuf,
        /// The row's line, from 1.
        line: usize,
        /// The histogram's sum.
        sum: u64,
        /// The row's count.
        count: u64,
    },
    /// `lockstat -T` lists events without their times.
    #[error("{}:{line}: a trace (lockstat -T) has no times to add up; run lockstat without -T", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The observed time is missing.
    #[error("{}:{line}: unknown observation time; specify it with --elapsed SECONDS", path.display())]
    NoElapsed {
        /// The file.
        path: PathBuf,
        /// The first line that needs it, from 1.
        line: usize,
    },
    /// The file contains no lockstat output.
    #[error("{}: no lockstat output in it (lockstat prints nothing when it saw no event)", .0.display())]
    Empty(PathBuf),
    /// The number of CPUs is zero.
    #[error("-n must be at least 1: the number of CPUs of the machine that lockstat ran on")]
    Ncpu,
    /// The elapsed time is not positive.
    #[error("--elapsed must be a number of seconds above 0")]
    Elapsed,
}

/// The lockstat output of one file.
#[derive(Clone, Debug, PartialEq)]
pub struct LockFile {
    /// The file.
    pub path: PathBuf,
    /// CPUs of the machine, as given.
    pub ncpu: u64,
    /// The sections in order.
    pub sections: Vec<Section>,
    /// Notes for interpreting the figures, each with its line.
    pub notes: Vec<String>,
}

/// The rows of one event type.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The event's name in lockstat; empty if the rows have no header.
    pub event: String,
    /// The class of the event.
    pub class: Class,
    /// The header's line, from 1.
    pub line: usize,
    /// The number of the lockstat run in this file, from 0; each has its own elapsed time.
    pub run: usize,
    /// Observed seconds; `None` if unknown and not needed.
    pub elapsed: Option<f64>,
    /// All events of the type, if the header has their number.
    pub events: Option<u64>,
    /// The quantity that the rows measure.
    pub measure: Measure,
    /// `-R`, or NetBSD's `-s`: the rows are per second.
    pub per_second: bool,
    /// NetBSD's `-p`: the rows are the mean of a CPU.
    pub per_cpu: bool,
    /// `-g`: a row counts what its function generated, so rows overlap and have no total.
    pub generated: bool,
    /// The rows in order.
    pub rows: Vec<Row>,
}

/// The class of a section's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Busy-waiting: takes CPU time.
    Spin,
    /// Sleeping until the lock is free: takes no CPU time.
    Block,
    /// Time a lock was held.
    Hold,
    /// Profiling interrupts (`-I`): not lock events.
    Profile,
    /// All others: errors of lockstat itself, preemption deferred, events with unknown names.
    Other,
}

/// The quantity that a section's rows measure beside the number of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Mean duration in nanoseconds.
    Nsec,
    /// Mean retries of the spin loop, which do not translate into time.
    Spins,
    /// Total duration in milliseconds (NetBSD).
    TotalMs,
    /// Total duration in nanoseconds (`-p`).
    TotalNsec,
    /// A number of unknown unit (events without duration).
    Unnamed,
    /// Nothing (`-b`).
    Nothing,
}

/// A lock and a caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Its line, from 1.
    pub line: usize,
    /// Events, or events per second.
    pub count: f64,
    /// The section's [`Measure`].
    pub value: Option<f64>,
    /// The lock's name or address.
    pub lock: String,
    /// The caller; `<all>` in NetBSD's sum over a lock's callers.
    pub caller: String,
    /// Whether it is the sum of the following rows of single callers.
    pub sums: bool,
    /// Histogram (`-h`, `-s`): the lower bound in the unit of the section, and events (per second).
    pub histogram: Vec<(u64, u64)>,
    /// Call stack (`-s`), innermost first.
    pub stack: Vec<String>,
}

impl Section {
    /// Total seconds of the row's events in the observed time, over all CPUs. `None` if no time was measured,
    /// or if it is per second and the number of seconds is unknown.
    pub fn seconds(&self, row: &Row, ncpu: u64) -> Option<f64> {
        let watched = if self.per_second { self.elapsed? } else { 1.0 };
        Some(self.time(row, ncpu)? * watched)
    }

    /// The row's share of the machine's capacity, 0–1; `None` unless it is busy-waiting of known duration.
    pub fn cpu_util(&self, row: &Row, ncpu: u64) -> Option<f64> {
        if self.class != Class::Spin {
            return None;
        }
        let watched = if self.per_second { 1.0 } else { self.elapsed? };
        Some(self.time(row, ncpu)? / (watched * ncpu as f64))
    }

    /// Seconds of all CPUs, or seconds per second.
    fn time(&self, row: &Row, ncpu: u64) -> Option<f64> {
        let value = row.value?;
        let time = match self.measure {
            Measure::Nsec => row.count * value / 1e9,
            Measure::TotalMs => value / 1e3,
            Measure::TotalNsec => value / 1e9,
            Measure::Spins | Measure::Unnamed | Measure::Nothing => return None,
        };
        Some(if self.per_cpu { time * ncpu as f64 } else { time })
    }
}

/// The event types of all systems, with their numbers (`-e`, `-p`) in Solaris, illumos and FreeBSD.
const EVENTS: &[(Option<u32>, &str, Class)] = &[
    (Some(0), "Adaptive mutex spin", Class::Spin),
    (Some(1), "Adaptive mutex block", Class::Block),
    (Some(2), "Spin lock spin", Class::Spin),
    (Some(3), "Thread lock spin", Class::Spin),
    (Some(4), "R/W writer blocked by writer", Class::Block),
    (Some(5), "R/W writer blocked by readers", Class::Block),
    (Some(6), "R/W reader blocked by writer", Class::Block),
    (Some(7), "R/W reader blocked by write wanted", Class::Block),
    // FreeBSD's own, like 36 and 37.
    (Some(8), "R/W writer spin on writer", Class::Spin),
    (Some(9), "R/W writer spin on readers", Class::Spin),
    (Some(10), "R/W reader spin on writer", Class::Spin),
    (Some(11), "R/W reader spin on write wanted", Class::Spin),
    (Some(12), "SX exclusive block", Class::Block),
    (Some(13), "SX shared block", Class::Block),
    (Some(14), "SX exclusive spin", Class::Spin),
    (Some(15), "SX shared spin", Class::Spin),
    (Some(32), "Adaptive mutex hold", Class::Hold),
    (Some(33), "Spin lock hold", Class::Hold),
    (Some(34), "R/W writer hold", Class::Hold),
    (Some(35), "R/W reader hold", Class::Hold),
    (Some(36), "SX shared hold", Class::Hold),
    (Some(37), "SX exclusive hold", Class::Hold),
    (Some(56), "Profiling interrupt", Class::Profile),
    (Some(60), "Recursive lock entry detected", Class::Other),
    (Some(61), "Lockstat enter failure", Class::Other),
    (Some(62), "Lockstat exit failure", Class::Other),
    (Some(63), "Lockstat record failure", Class::Other),
    (None, "Adaptive mutex sleep", Class::Block),
    (None, "Spin mutex spin", Class::Spin),
    (None, "RW lock sleep (writer)", Class::Block),
    (None, "RW lock sleep (reader)", Class::Block),
    (None, "RW lock sleep", Class::Block),
    (None, "RW lock spin", Class::Spin),
    (None, "lockmgr sleep", Class::Block),
    (None, "Kernel lock spin", Class::Spin),
    // NetBSD counts these two under its spin event, but a deferred preemption is not busy-waiting.
    (None, "Kernel preemption defer", Class::Other),
    (None, "Miscellaneous wait", Class::Other),
    // NetBSD's -x.
    (None, "Spin", Class::Spin),
    (None, "Sleep (writer)", Class::Block),
    (None, "Sleep (reader)", Class::Block),
    (None, "lockmgr spin", Class::Spin),
];

impl Class {
    /// The class of an event by name. An unknown name is judged by its words; see [`Class::is_known`].
    fn from_event(event: &str) -> Class {
        match EVENTS.iter().find(|(_, name, _)| *name == event) {
            Some((_, _, class)) => *class,
            None if event.ends_with(" spin") || event.contains(" spin on ") => Class::Spin,
            None if event.contains("block") || event.contains("sleep") => Class::Block,
            None if event.ends_with(" hold") => Class::Hold,
            None => Class::Other,
        }
    }

    /// Whether a known version of lockstat prints this event.
    fn is_known(event: &str) -> bool {
        EVENTS.iter().any(|(_, name, _)| *name == event)
    }

    /// The name in the table.
    pub fn word(self) -> &'static str {
        match self {
            Class::Spin => "spin",
            Class::Block => "block",
            Class::Hold => "hold",
            Class::Profile => "profile",
            Class::Other => "other",
        }
    }
}
