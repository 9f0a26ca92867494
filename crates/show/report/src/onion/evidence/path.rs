//! The threads and waits that idle CPUs waited for.

use std::collections::HashMap;
use std::fmt;

use ncpu_schema::critical_path::{NAME, col};
use ncpu_schema::{CpuState, IdleReason, Layer, idle_time, user_locks};

use super::kinds::{CpuSeconds, CriticalPath, Seconds, Share};
use super::{Context, spent, spun};
use crate::locks::is_user_lock;

/// The activity of threads that samples are charged to; every other activity is a wait.
const RUNNING: &str = "running";

/// A running thread is shown by the place in its code with most of its time, if the place has at least this share; else
/// by its own name, with that place.
const PLACE: f64 = 0.5;

/// Code, or a wait, that CPUs idled for.
pub(crate) struct Charged {
    pub thread: String,
    pub doing: String,
    pub code: String,
    /// The part of it that was in `code`: less than one where the thread went through many places.
    pub part: f64,
    /// CPU-seconds, and their part of all that idled for this reason.
    pub idle: f64,
    pub share: f64,
    /// For how long CPUs idled so.
    pub seconds: f64,
    pub process: String,
    /// Whether it ran, or slept, in the kernel; asked of kernel locks alone.
    kernel: bool,
}

impl Charged {
    pub fn runs(&self) -> bool {
        self.doing == RUNNING
    }

    /// Whether no place of its code stands for what it did.
    pub fn wanders(&self) -> bool {
        self.part < PLACE
    }

    /// Whether it is known what could be shorter: the code that runs, or what is waited for. Not where nobody knows what ended
    /// a wait, nothing did, or it was another thread, which is charged with what it did itself.
    fn known(&self) -> bool {
        let of = |start: &str| self.doing.starts_with(start);
        self.runs()
            || of("asleep for a time")
            || of("waiting for ") && !of("waiting for another thread of the program")
    }

    /// Whether it may have held what others waited for by this reason, in the program or process that waited.
    fn may_hold(&self, reason: IdleReason, waiting: &[String]) -> bool {
        let waits = || waiting.is_empty() || waiting.contains(&self.process);
        match reason {
            _ if self.thread.is_empty() => true,
            // Held in the kernel alone, by whatever process: not while a thread runs its own code, or sleeps for a time.
            IdleReason::KernelLock => {
                (self.kernel || !self.runs()) && !self.doing.starts_with("asleep for a time")
            }
            // A program shares the lock only if its own threads wait for it.
            IdleReason::UserLock => waits(),
            _ => true,
        }
    }

    /// `ends` where the end of the program is what would come sooner.
    fn evidence(self, ends: bool) -> CriticalPath {
        let some = |text: String| (!text.is_empty()).then_some(text);
        let sooner = (ends && !self.thread.is_empty() && self.known()).then_some(Seconds(self.seconds));
        CriticalPath {
            thread: some(self.thread),
            doing: self.doing,
            code: some(self.code),
            code_share: Share(self.part),
            idle: CpuSeconds(self.idle),
            share: Share(self.share),
            sooner,
        }
    }
}

impl fmt::Display for CriticalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CriticalPath { thread, doing, code, code_share, idle, share, sooner } = self;
        write!(f, "{:.2} CPU-s ({:.0} %) while ", idle.0, share.percent())?;
        let Some(thread) = thread else { return write!(f, "threads were {doing}") };
        match doing == RUNNING {
            true if code_share.0 < PLACE => write!(f, "{thread} ran, {:.0} % of it", code_share.percent())?,
            true => write!(f, "{thread} was")?,
            false => write!(f, "{thread} was {doing}")?,
        }
        if let Some(code) = code {
            write!(f, " in {code}")?;
        }
        sooner.map_or(Ok(()), |Seconds(s)| {
            write!(f, ": without it up to {s:.2} s sooner, with half of it {:.2} s", s / 2.0)
        })
    }
}

/// What CPUs idled for by a reason, most first.
pub(crate) fn charged(context: &Context<'_>, reason: IdleReason) -> Vec<Charged> {
    // The stack alone shows whether it is in the kernel.
    let keys = [col::reason, col::process, col::thread, col::doing, col::code, col::stack];
    let Some(ranked) = context.ranked(NAME, &keys, col::idle) else { return Vec::new() };
    let rows = || (0..ranked.num_rows()).filter(|&r| ranked.text(r, col::reason) == Some(reason.name()));
    let idle = |r: usize| ranked.number(r, col::idle).unwrap_or(0.0);
    let total: f64 = rows().map(idle).sum();
    // Looks tell for whom CPUs idled, and with an error how long: no longer than they are known to have.
    let known = match idle_time::Reader::open(context.recording) {
        Ok(Some(t)) => {
            let all: f64 = IdleReason::ALL.iter().map(|&r| t.spent.sum(r)).sum();
            let idle = spent(context, CpuState::Idle) * t.spent.sum(reason) / all.max(f64::MIN_POSITIVE);
            // Spinning threads wait, too.
            idle + spun(context, Layer::from(reason))
        }
        _ => total,
    };
    let scale = if total > known { known / total } else { 1.0 };
    let text = |r: usize, c: &str| ranked.text(r, c).unwrap_or("").to_string();
    let charged = |r: usize| Charged {
        thread: text(r, col::thread),
        doing: text(r, col::doing),
        code: text(r, col::code),
        part: 1.0,
        idle: idle(r) * scale,
        share: idle(r) / total.max(f64::MIN_POSITIVE),
        seconds: ranked.number(r, col::seconds).unwrap_or(0.0) * scale,
        process: text(r, col::process),
        kernel: reason == IdleReason::KernelLock && text(r, col::stack).ends_with("_[k]"),
    };
    let mut all: Vec<Charged> = Vec::new();
    for row in rows().map(charged) {
        let same = |sum: &&mut Charged| {
            (&sum.process, &sum.thread, &sum.doing, &sum.code, sum.kernel)
                == (&row.process, &row.thread, &row.doing, &row.code, row.kernel)
        };
        match all.iter_mut().find(same) {
            Some(sum) => {
                sum.idle += row.idle;
                sum.share += row.share;
                sum.seconds += row.seconds;
            }
            None => all.push(row),
        }
    }
    gathered(all)
}

/// Puts the places of a thread together if none of them has most of its time: of a compiler no single place is the one
/// that all wait for.
fn gathered(rows: Vec<Charged>) -> Vec<Charged> {
    // Its first row is its largest.
    let who = |row: &Charged| (row.process.clone(), row.thread.clone(), row.kernel);
    let mut threads: HashMap<(String, String, bool), (f64, f64)> = HashMap::new();
    for row in rows.iter().filter(|row| row.runs()) {
        let (most, all) = threads.entry(who(row)).or_insert((row.idle, 0.0));
        (*most, *all) = (most.max(row.idle), *all + row.idle);
    }
    let part =
        |row: &Charged| threads.get(&who(row)).map_or(1.0, |(most, all)| most / all.max(f64::MIN_POSITIVE));
    let mut all: Vec<Charged> = Vec::new();
    for mut row in rows {
        let wanders = row.runs() && part(&row) < PLACE;
        match all.iter_mut().find(|sum| wanders && sum.runs() && who(sum) == who(&row)) {
            Some(sum) => {
                sum.idle += row.idle;
                sum.share += row.share;
                sum.seconds += row.seconds;
            }
            None => {
                row.part = if wanders { part(&row) } else { 1.0 };
                all.push(row);
            }
        }
    }
    all.sort_by(|a, b| b.idle.total_cmp(&a.idle));
    all
}

/// The three largest.
pub(super) fn waited_for(context: &Context<'_>, reason: IdleReason) -> Vec<CriticalPath> {
    // Of a machine, a group or a process that goes on, no end comes sooner.
    let ends = match context.recording.manifest.command.first().map(String::as_str) {
        None | Some("" | "the machine") => false,
        Some(first) => !first.starts_with("process ") && !first.starts_with("cgroup "),
    };
    let waiting = waiting(context, reason);
    let most = charged(context, reason).into_iter().filter(|c| c.may_hold(reason, &waiting)).take(3);
    most.filter(|c| c.share >= 0.03 && c.idle >= 0.005).map(|c| c.evidence(ends)).collect()
}

/// Processes with threads that waited for locks of the program; empty where that is not known.
fn waiting(context: &Context<'_>, reason: IdleReason) -> Vec<String> {
    if reason != IdleReason::UserLock {
        return Vec::new();
    }
    let Ok(Some(t)) = user_locks::Reader::open(context.recording) else { return Vec::new() };
    let held = |r: &usize| t.ty.get(*r).is_some_and(is_user_lock);
    let mut all: Vec<String> =
        t.rows().filter(held).filter_map(|r| t.process.get(r).map(str::to_string)).collect();
    all.sort_unstable();
    all.dedup();
    all
}
