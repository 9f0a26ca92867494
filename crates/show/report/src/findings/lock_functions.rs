//! Locks that nobody sleeps for: taking and giving them back is what costs, most where several CPUs write the lock's line.

use std::collections::BTreeMap;

use ncpu_schema::SampleClass;

use super::claim::{Claim, Kind, Source};
use super::libraries::{c_name, is_lock_function};
use super::names::short;
use super::places::Most;
use super::user_locks::is_start;
use super::view::View;
use crate::causes::When;

/// The part of an observation that a thread runs to share a lock with others.
const WORKS: f64 = 0.05;

/// The part of capacity from which lock functions are more than what programs with locks have.
const LEAST: f64 = 0.05;

/// The instructions of lock functions, by process.
pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut processes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        let in_lock = sample.kernel.is_empty()
            && sample.user.first().is_some_and(|leaf| is_lock_function(leaf) && *leaf != "syscall");
        if sample.class == SampleClass::User && in_lock && !is_for_the_gil(&sample.user) {
            processes.entry(sample.process).or_default().push(at);
        }
    }
    // Locks that are taken now and then cost a few per cent of any program of several threads.
    processes.retain(|_, samples| view.sample_seconds(samples) >= LEAST * view.capacity());
    processes.into_iter().map(|(process, samples)| claim(view, process, &samples)).collect()
}

/// Whether Python takes its global lock or gives it back, at a call into C: no program can lock it less often.
fn is_for_the_gil(user: &[&str]) -> bool {
    user.iter().find(|f| !is_lock_function(f)).is_some_and(|f| ["take_gil", "drop_gil"].contains(&c_name(f)))
}

fn claim(view: &View<'_>, process: &str, samples: &[usize]) -> Claim {
    let most = |of: &dyn Fn(&[&str]) -> String| -> Vec<String> {
        let mut names = Most::default();
        for &at in samples {
            names.add(&of(&view.samples[at].user), view.samples[at].seconds);
        }
        names.ranked().into_iter().map(|(name, _)| name).filter(|name| !name.is_empty()).collect()
    };
    let functions = most(&|user| user.first().map_or_else(String::new, |leaf| short(leaf)));
    let site =
        |user: &[&str]| user.iter().find(|f| !is_lock_function(f)).copied().map_or_else(String::new, short);
    let place = most(&site).into_iter().next().unwrap_or_else(|| process.to_string());
    let lock = functions.iter().take(2).cloned().collect::<Vec<_>>().join(" and ");
    let threads = view.busy_threads(process, WORKS);
    let when = if threads > 1 { When::SharedLockWord } else { When::LockFunctions };
    let mut claim = Claim::new(Kind::SharedLine, [when], format!("{lock} {place}"))
        .with("lock", lock.clone())
        .with("place", place.clone())
        .with("threads", threads.to_string());
    claim.key = format!("lock-functions {lock} {place}");
    for &at in samples {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "lock functions");
    }
    let callers = most(&|user| {
        let from = user.iter().position(|f| !is_lock_function(f)).unwrap_or(user.len());
        let frames: Vec<String> =
            user[from..].iter().filter(|f| !is_start(f)).take(2).map(|f| short(f)).collect();
        frames.into_iter().rev().collect::<Vec<_>>().join(" → ")
    });
    if let Some(callers) = callers.first() {
        claim.line("taken in", format!("{callers}, {threads} threads at work"));
    }
    claim
}
