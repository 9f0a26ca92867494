//! Whom idle CPUs waited for.

use std::collections::HashMap;

use ncpu_schema::critical_path::{NAME, col};
use ncpu_schema::{CpuState, IdleReason, idle_time};

use super::{Context, spent};

/// What threads do that samples are charged to; all else they do is wait.
const RUNNING: &str = "running";

/// A thread that runs is told by the place in its code where most of it was, if that is as much of it as this; else by itself,
/// with that place.
const PLACE: f64 = 0.5;

/// Code, or a wait, that CPUs idled for.
pub(in crate::onion) struct Charged {
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

    fn told(&self) -> String {
        let Charged { thread, doing, code, idle, share, seconds, .. } = self;
        let part = format!("{idle:.2} CPU-s ({:.0} %)", 100.0 * share);
        let (who, at) = match (thread.is_empty(), code.is_empty()) {
            (true, _) => return format!("{part} while threads were {doing}"),
            (false, true) => (thread, String::new()),
            (false, false) => (thread, format!(" in {code}")),
        };
        let sooner = match self.known() {
            true => {
                format!(": without it up to {seconds:.2} s sooner, with half of it {:.2} s", seconds / 2.0)
            }
            false => String::new(),
        };
        match self.runs() {
            true if self.wanders() => {
                format!("{part} while {who} ran, {:.0} % of it{at}{sooner}", 100.0 * self.part)
            }
            true => format!("{part} while {who} was{at}{sooner}"),
            false => format!("{part} while {who} was {doing}{at}{sooner}"),
        }
    }
}

/// What CPUs idled for by a reason, most first.
pub(in crate::onion) fn charged(context: &Context<'_>, reason: IdleReason) -> Vec<Charged> {
    let keys = [col::reason, col::thread, col::doing, col::code];
    let Some(ranked) = context.ranked(NAME, &keys, col::idle) else { return Vec::new() };
    let rows = || (0..ranked.num_rows()).filter(|&r| ranked.text(r, col::reason) == Some(reason.name()));
    let idle = |r: usize| ranked.number(r, col::idle).unwrap_or(0.0);
    let total: f64 = rows().map(idle).sum();
    // Looks tell for whom CPUs idled, and with an error how long: no longer than they are known to have.
    let known = match idle_time::Reader::open(context.recording) {
        Ok(Some(t)) => {
            let all: f64 = IdleReason::ALL.iter().map(|&r| t.spent.sum(r)).sum();
            spent(context, CpuState::Idle) * t.spent.sum(reason) / all.max(f64::MIN_POSITIVE)
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
    };
    gathered(rows().map(charged).collect())
}

/// Puts the places of a thread together where none of them is most of what it did: of a compiler no place says what it is
/// that all wait for.
fn gathered(rows: Vec<Charged>) -> Vec<Charged> {
    // Its first row is its largest.
    let mut threads: HashMap<String, (f64, f64)> = HashMap::new();
    for row in rows.iter().filter(|row| row.runs()) {
        threads.entry(row.thread.clone()).or_insert((row.idle, 0.0)).1 += row.idle;
    }
    let part =
        |row: &Charged| threads.get(&row.thread).map_or(1.0, |(most, all)| most / all.max(f64::MIN_POSITIVE));
    let mut all: Vec<Charged> = Vec::new();
    for mut row in rows {
        let wanders = row.runs() && part(&row) < PLACE;
        match all.iter_mut().find(|sum| wanders && sum.runs() && sum.thread == row.thread) {
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

/// The three largest, a line each.
pub(super) fn waited_for(context: &Context<'_>, reason: IdleReason) -> Vec<String> {
    let most = charged(context, reason).into_iter().take(3);
    most.filter(|c| c.share >= 0.03 && c.idle >= 0.005).map(|c| c.told()).collect()
}
