//! Holders of locks that wait for a CPU themselves. A lock is held while its holder stands on the run queue, however short the code that
//! it guards.

use std::collections::BTreeMap;

use ncpu_schema::{Activity, ON_QUEUE, thread_time};

use super::claim::{Claim, Kind};
use super::devices::LEAST;
use super::limits::behind_itself;
use super::numbers::grouped;
use super::view::View;
use crate::causes::When;
use crate::onion::evidence::length;

/// The part of the waiting of which it is known, and of this the part in which the holder stood on a run queue.
const KNOWN: f64 = 0.3;
const QUEUED: f64 = 0.5;

/// Waits for a lock.
#[derive(Default)]
struct Sum<'a> {
    seconds: f64,
    waits: f64,
    held: f64,
    queued: f64,
    holder: (f64, &'a str),
}

/// Whether holders of locks stood on run queues for most of what is known of the waits: the locks would hold hardly anybody up otherwise.
pub(super) fn are_queued(view: &View<'_>) -> bool {
    let all = sums(view);
    let of = |part: fn(&Sum<'_>) -> f64| all.values().map(part).sum::<f64>();
    let queued = of(|sum| sum.queued);
    queued > 0.0 && queued >= QUEUED * of(|sum| sum.held)
}

/// Waits by process and lock.
fn sums<'a>(view: &View<'a>) -> BTreeMap<(&'a str, &'a str), Sum<'a>> {
    let Ok(Some(t)) = thread_time::Reader::open(view.context.recording) else { return BTreeMap::new() };
    let mut of: BTreeMap<(&str, &str), Sum<'_>> = BTreeMap::new();
    for row in t.rows().filter(|&row| t.doing.get(row) == Some(Activity::Lock)) {
        let (Some(process), Some(lock)) = (t.process.get(row), t.what.get(row)) else { continue };
        let sum = of.entry((process, lock)).or_default();
        let held = t.held.get(row).unwrap_or(0.0);
        sum.seconds += t.seconds.get(row).unwrap_or(0.0);
        sum.waits += t.waits.get(row).unwrap_or(0) as f64;
        sum.held += held;
        if t.holder_in.get(row) == Some(ON_QUEUE) {
            sum.queued += t.held_asleep.get(row).unwrap_or(0.0);
        }
        if held > sum.holder.0 {
            sum.holder = (held, t.holder.get(row).unwrap_or(""));
        }
    }
    of
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let stands = |sum: &Sum<'_>| {
        sum.seconds >= LEAST * view.elapsed()
            && sum.held >= KNOWN * sum.seconds
            && sum.queued >= QUEUED * sum.held
    };
    sums(view)
        .into_iter()
        .filter(|(_, sum)| stands(sum))
        .map(|((process, lock), sum)| claim(view, process, lock, &sum))
        .collect()
}

fn claim(view: &View<'_>, process: &str, lock: &str, sum: &Sum<'_>) -> Claim {
    let part = format!("{:.0} %", 100.0 * sum.queued / sum.held.max(f64::MIN_POSITIVE));
    let holder = if sum.holder.1.is_empty() { process } else { sum.holder.1 };
    // A lock without a symbol is a number to its users.
    let lock = if lock.starts_with("0x") { format!("a lock of {process}") } else { format!("lock {lock}") };
    let mut claim = Claim::new(Kind::Lock, [When::HolderQueued], process)
        .with("lock", lock.clone())
        .with("process", process)
        .with("thread", holder)
        .with("part", part.clone());
    claim.key = format!("holder queued {process} {lock}");
    claim.stands_still(sum.seconds, view.elapsed());
    claim.line(
        "waits",
        format!("{} of {} each", grouped(sum.waits), length(sum.seconds / sum.waits.max(1.0))),
    );
    claim.line("holder", format!("{holder} waits for a CPU in {part} of it or more"));
    claim.line("queues", format!("{:.2} thread-s behind threads of the program itself", behind_itself(view)));
    claim
}
