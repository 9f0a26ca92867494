//! Memory that a function takes from the C library's allocator and gives back, again and again.

use std::collections::HashMap;

use ncpu_schema::SampleClass;

use super::claim::{Claim, Kind, Source};
use super::libraries::{gives_memory_back, is_allocator};
use super::places::{Most, Place, is_line};
use super::view::{Sampled, View};
use crate::causes::When;

/// The part of capacity, and of the process's time on CPU, that taking and giving back have.
const LEAST: f64 = 0.05;
const OF_PROCESS: f64 = 0.2;

/// The part of it that one function calls for.
const IN_ONE: f64 = 0.6;

/// The part of that which is taking, and giving back: what lives on is given back elsewhere, or later.
const EACH: f64 = 0.2;

/// Samples of a kind from which its part is known.
const SEEN: u64 = 5;

/// Whether a stack is of an interpreter or a runtime, which makes objects for each value of a program.
fn is_of_runtime(sample: &Sampled<'_>) -> bool {
    const RUNTIMES: [&str; 7] =
        ["v8::", "node::", "JavaCalls::", "JavaThread::", "_PyEval", "Perl_", "PostgresMain"];
    let of = |frame: &&str| is_line(frame) || RUNTIMES.iter().any(|start| frame.starts_with(start));
    sample.user.iter().any(of)
}

#[derive(Default)]
struct Sums {
    samples: Vec<usize>,
    takes: (f64, u64),
    gives: (f64, u64),
    places: Most,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<&str, HashMap<String, Sums>> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        if sample.class != SampleClass::User
            || !sample.user.iter().any(|frame| is_allocator(frame))
            || is_of_runtime(sample)
            // Entries that name what it is for say more.
            || sample.user.iter().any(|frame| view.entry(When::Function, frame).is_some())
        {
            continue;
        }
        let place = Place::beyond(&sample.user, is_allocator);
        let sums = of.entry(sample.process).or_default().entry(place.function().to_string()).or_default();
        sums.samples.push(at);
        sums.places.add(&place.words(), sample.seconds);
        let gives = sample.user.iter().any(|frame| gives_memory_back(frame));
        let sum = if gives { &mut sums.gives } else { &mut sums.takes };
        *sum = (sum.0 + sample.seconds, sum.1 + sample.samples);
    }
    let mut claims = Vec::new();
    for (process, places) in of {
        let all: f64 = places.values().map(|sums| sums.takes.0 + sums.gives.0).sum();
        if all < OF_PROCESS * view.on_cpu(process) || all < LEAST * view.capacity() {
            continue;
        }
        let seconds = |sums: &Sums| sums.takes.0 + sums.gives.0;
        let Some(sums) = places.into_values().max_by(|a, b| seconds(a).total_cmp(&seconds(b))) else {
            continue;
        };
        let known = |(of, seen): (f64, u64)| of >= EACH * seconds(&sums) && seen >= SEEN;
        if seconds(&sums) < IN_ONE * all || !known(sums.takes) || !known(sums.gives) {
            continue;
        }
        let (words, place) = sums.places.place(process);
        let mut claim = Claim::new(Kind::Runtime, [When::ShortLivedMemory], process)
            .with("process", process)
            .with("place", place);
        claim.key = format!("short-lived memory {process}");
        for at in sums.samples {
            let gives = view.samples[at].user.iter().any(|frame| gives_memory_back(frame));
            let what = if gives { "giving memory back" } else { "taking memory" };
            claim.ask(Source::Sample(at), view.samples[at].seconds, what);
        }
        claim.line("called in", words);
        claims.push(claim);
    }
    claims
}
