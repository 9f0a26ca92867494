//! Loads that miss the caches, in the functions that wait for them most.

use std::collections::{BTreeMap, HashMap};

use ncpu_schema::{SampleClass, UserCause, data};

use super::claim::{Claim, Kind, Source};
use super::names::short;
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The part of capacity from which a function is claimed.
const LEAST: f64 = 0.1;

/// The part of the function's samples that waits.
const MOSTLY: f64 = 0.4;

/// Samples that wait, from which it is known: fewer meet too few lines twice to tell data in the core's own caches from other data.
const SAMPLES: f64 = 200.0;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let waits = waits(view);
    let mut of: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        // Nobody can look at code without a name.
        let leaf = sample.user.first().copied().filter(|f| !f.starts_with('[')).unwrap_or("");
        if sample.class == SampleClass::User && waits.contains_key(leaf) {
            of.entry(leaf).or_default().push(at);
        }
    }
    of.retain(|function, samples| view.sample_seconds(samples) * waits[function] >= LEAST * view.capacity());
    of.into_iter().map(|(function, samples)| claim(view, function, &samples, waits[function])).collect()
}

/// By function, the part of its samples that waited for loads; those that mostly did.
fn waits<'a>(view: &View<'a>) -> HashMap<&'a str, f64> {
    let loads = view.samples_by_cause(|instruction, cause| {
        cause == Some(UserCause::Memory) && instruction == Some("load")
    });
    loads
        .into_iter()
        .filter(|(_, (waited, _))| *waited >= SAMPLES)
        .map(|(function, (waited, all))| (function, waited / all))
        .filter(|(_, part)| *part >= MOSTLY)
        .collect()
}

/// The object with most of the samples that wait for memory.
fn object(view: &View<'_>, process: &str) -> Option<String> {
    let t = data::Reader::open(view.context.recording).ok()??;
    let mut objects = Most::default();
    for row in t.rows().filter(|&row| t.process.get(row) == Some(process)) {
        if t.cause.get(row) == Some(UserCause::Memory) {
            objects.add(t.object.get(row).unwrap_or(""), t.samples.get(row).unwrap_or(0.0));
        }
    }
    objects.top().map(|(object, _)| object).filter(|object| object != "unknown")
}

fn claim(view: &View<'_>, function: &str, samples: &[usize], part: f64) -> Claim {
    let (mut places, mut processes) = (Most::default(), Most::default());
    let mut claim = Claim::new(Kind::Memory, [When::MemoryWaits], function);
    for &at in samples {
        let sample = &view.samples[at];
        places.add(&Place::beyond(&sample.user, |frame| frame == function).words(), sample.seconds);
        processes.add(sample.process, sample.seconds);
        claim.ask(Source::Sample(at), sample.seconds * part, "waiting for loads");
    }
    let process = processes.top().map_or_else(String::new, |(process, _)| process);
    let (place, _) = places.place(&process);
    let mut claim = claim
        .with("function", short(function))
        .with("process", process.clone())
        .with("part", format!("{:.0} %", 100.0 * part));
    claim.key = format!("memory waits {function}");
    claim.line("called in", place);
    claim.line("memory", object(view, &process).unwrap_or_default());
    claim
}
