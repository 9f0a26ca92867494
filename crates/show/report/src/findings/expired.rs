//! Waits with a time limit that is past: the call returns at once, and the thread asks again.

use std::collections::HashMap;

use super::claim::{Claim, Kind, Source};
use super::libraries::c_name;
use super::names::short;
use super::numbers::grouped;
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The part of capacity, and of the process's time on CPU, from which such waits are claimed.
const LEAST: f64 = 0.01;
const OF_PROCESS: f64 = 0.15;

/// CPU-seconds for each sleep from which most of the calls did not sleep: a wait that sleeps takes some microseconds of CPU time.
const EACH: f64 = 100e-6;

#[derive(Default)]
struct Timed<'a> {
    samples: Vec<usize>,
    seconds: f64,
    slept: f64,
    functions: HashMap<&'a str, f64>,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    // Without records of sleeps it is not known whether a call slept.
    if view.slept.is_empty() {
        return Vec::new();
    }
    let known = |frame: &str| view.entry(When::ExpiredWaits, frame).is_some();
    let mut of: HashMap<&str, Timed<'_>> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        if let Some(&function) = sample.user.iter().find(|f| known(f)) {
            let timed = of.entry(sample.process).or_default();
            timed.samples.push(at);
            timed.seconds += sample.seconds;
            *timed.functions.entry(function).or_default() += sample.seconds;
        }
    }
    for slept in &view.slept {
        // A sleep for the mutex of a condition, or within its bookkeeping, is not the wait itself.
        let itself =
            slept.user.first().is_some_and(|f| known(f) || c_name(f).starts_with("futex_abstimed_wait"));
        if let Some(timed) = of.get_mut(slept.process)
            && itself
            && slept.user.iter().any(|f| known(f))
        {
            timed.slept += slept.count;
        }
    }
    of.retain(|process, timed| {
        timed.seconds >= LEAST * view.capacity()
            && timed.seconds >= OF_PROCESS * view.on_cpu(process)
            && timed.seconds >= EACH * timed.slept
    });
    of.into_iter().map(|(process, timed)| claim(view, process, &timed)).collect()
}

fn claim(view: &View<'_>, process: &str, timed: &Timed<'_>) -> Claim {
    let known = |frame: &str| view.entry(When::ExpiredWaits, frame).is_some();
    let mut places = Most::default();
    for &at in &timed.samples {
        let sample = &view.samples[at];
        places.add(&Place::beyond(&sample.user, known).words(), sample.seconds);
    }
    let (words, place) = places.place(process);
    let most = timed.functions.iter().max_by(|a, b| a.1.total_cmp(b.1).then_with(|| b.0.cmp(a.0)));
    let function = most.map_or("", |(f, _)| *f);
    let mut claim = Claim::new(Kind::Polling, [When::ExpiredWaits], function)
        .with("function", short(function.split('@').next().unwrap_or(function)))
        .with("process", process)
        .with("place", place);
    claim.key = format!("expired {process}");
    for &at in &timed.samples {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "in these waits");
    }
    claim.line("called in", words);
    claim.line("sleeps", format!("{} in them", grouped(timed.slept)));
    claim
}
