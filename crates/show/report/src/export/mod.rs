//! Recordings in the formats of other tools: profiles for `go tool pprof`, OpenTelemetry and speedscope, folded stacks for flame
//! graphs, a trace for Perfetto.

mod otlp;
mod perfetto;
mod pprof;
mod speedscope;
mod wire;
mod words;

use std::collections::BTreeMap;

use ncpu_schema::{Error, StackKind, Tables, stacks};
use ncpu_table::safe;

pub use otlp::otlp;
pub use perfetto::perfetto;
pub use pprof::pprof;
pub use speedscope::speedscope;

/// The mark of a frame of the kernel.
const KERNEL: &str = "_[k]";

/// Reasons to be off CPU. Stacks of older recordings begin with one of them, or with nothing.
const WAITS: [&str; 6] = ["run queue", "kernel lock", "user lock", "I/O", "asleep", ""];

/// Rows that are the sum of many.
const OTHERS: &str = "[others]";

/// Functions of the scheduler, in which every thread off CPU is: they say nothing of its reason.
const SCHEDULER: [&str; 11] = [
    "__schedule",
    "schedule",
    "schedule_timeout",
    "schedule_timeout_interruptible",
    "schedule_timeout_killable",
    "schedule_timeout_uninterruptible",
    "schedule_hrtimeout_range",
    "schedule_hrtimeout_range_clock",
    "schedule_preempt_disabled",
    "io_schedule",
    "io_schedule_timeout",
];

/// The parts of a row of table `stacks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parts<'a> {
    /// Name of the process; of older recordings that of the thread.
    pub process: &'a str,
    /// Name of the thread.
    pub thread: &'a str,
    /// Reason of the wait off CPU.
    pub wait: Option<&'a str>,
    /// Frames, outermost first, `;` between them.
    pub frames: &'a str,
    /// Files of the frames that are not the kernel's, as the table has them.
    binaries: &'a str,
}

impl<'a> Parts<'a> {
    /// Those of a row; `None` where it has no kind or no stack.
    pub fn of(table: &stacks::Reader<'a>, row: usize) -> Option<Parts<'a>> {
        let (kind, stack) = (table.kind.get(row)?, table.stack.get(row)?);
        let (mut wait, mut rest) = (None, stack);
        if kind == StackKind::OffCpu {
            let (first, behind) = stack.split_once(';').unwrap_or((stack, stack));
            if table.wait.get(row).is_some() || WAITS.contains(&first) {
                (wait, rest) = (Some(first).filter(|first| !first.is_empty()), behind);
            }
        }
        if rest == OTHERS {
            return Some(Parts { process: OTHERS, thread: OTHERS, wait, frames: OTHERS, binaries: "" });
        }
        let (thread, frames) = rest.split_once(';').unwrap_or((rest, rest));
        let thread = table.thread.get(row).unwrap_or(thread);
        let process = table.process.get(row).unwrap_or(thread);
        Some(Parts { process, thread, wait, frames, binaries: table.binaries.get(row).unwrap_or("") })
    }

    /// Each frame, and the file that it is in where that is known.
    fn with_files(&self) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        let mut runs = self.binaries.split(';').filter_map(|run| {
            let (file, count) = run.rsplit_once('*')?;
            Some((Some(file).filter(|file| !matches!(*file, "" | "-")), count.parse::<usize>().ok()?))
        });
        let mut run = (None, 0);
        self.frames.split(';').map(move |frame| {
            if frame.ends_with(KERNEL) {
                return (frame, None);
            }
            while run.1 == 0 {
                let Some(next) = runs.next() else { return (frame, None) };
                run = next;
            }
            run.1 -= 1;
            (frame, run.0)
        })
    }

    /// Without the scheduler's frames at the end, where something else is left.
    fn without_scheduler(self) -> Parts<'a> {
        let mut frames = self.frames;
        while let Some((before, last)) = frames.rsplit_once(';')
            && last.strip_suffix(KERNEL).is_some_and(|name| SCHEDULER.contains(&name))
        {
            frames = before;
        }
        Parts { frames, ..self }
    }
}

/// Seconds and samples of each kind of stack.
type Kinds = [(f64, u64); 3];

/// Each stack once, with its seconds and samples of each kind.
fn sums(recording: &impl Tables) -> Result<BTreeMap<Parts<'_>, Kinds>, Error> {
    let mut sums: BTreeMap<Parts<'_>, Kinds> = BTreeMap::new();
    let Some(table) = stacks::Reader::open(recording)? else { return Ok(sums) };
    for row in table.rows() {
        let (Some(kind), Some(parts)) = (table.kind.get(row), Parts::of(&table, row)) else { continue };
        let parts = if kind == StackKind::OffCpu { parts.without_scheduler() } else { parts };
        let sum = &mut sums.entry(parts).or_default()[kind as usize];
        sum.0 += table.seconds.get(row).filter(|s| s.is_finite() && *s > 0.0).unwrap_or(0.0);
        sum.1 = sum.1.saturating_add(table.samples.get(row).unwrap_or(0));
    }
    Ok(sums)
}

/// Stacks of one kind, a line each: the reason of those off CPU, the thread, frames, outermost first, a blank, microseconds.
/// Of `on-cpu` also what was spinning, which is on CPU too.
///
/// # Errors
/// Table `stacks` is not as the schema has it.
pub fn folded(recording: &impl Tables, kind: StackKind) -> Result<Vec<u8>, Error> {
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for (stack, sums) in sums(recording)? {
        let spin = if kind == StackKind::OnCpu { sums[StackKind::Spin as usize].0 } else { 0.0 };
        let mut parts: Vec<&str> = stack.wait.into_iter().chain([stack.thread]).collect();
        // A stack without frames is the thread alone.
        parts.extend(Some(stack.frames).filter(|frames| *frames != stack.thread));
        // A line's end is a stack's end.
        let mut line = String::new();
        for part in parts.join(";").split_inclusive(safe::is_unsafe) {
            let clean = part.trim_end_matches(safe::is_unsafe);
            line.push_str(clean);
            line.push_str(&safe::line(&part[clean.len()..]));
        }
        *lines.entry(line).or_default() += sums[kind as usize].0 + spin;
    }
    let mut out = String::new();
    for (stack, seconds) in lines {
        let microseconds = (seconds * 1e6).round() as u64;
        if microseconds > 0 {
            out.push_str(&format!("{stack} {microseconds}\n"));
        }
    }
    Ok(out.into_bytes())
}

#[cfg(test)]
mod tests;
