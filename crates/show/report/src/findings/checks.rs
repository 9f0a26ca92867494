//! Checks of the kernel around each system call: filters and audit rules.

use std::collections::HashMap;

use super::claim::{Claim, Kind, Source};
use super::names::short;
use super::places::{Most, Place};
use super::system_calls::call_in;
use super::view::View;
use crate::causes::When;

/// The part of capacity, and of the process's time on CPU, from which checks are claimed.
const LEAST: f64 = 0.01;
const OF_PROCESS: f64 = 0.1;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    let mut on_cpu: HashMap<&str, f64> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        *on_cpu.entry(sample.process).or_default() += sample.seconds;
        let entry = sample.kernel.iter().find_map(|f| view.entry(When::CallChecks, f));
        if let Some(entry) = entry {
            of.entry((sample.process, entry)).or_default().push(at);
        }
    }
    of.retain(|(process, _), samples| {
        let all = view.sample_seconds(samples);
        all >= LEAST * view.capacity() && all >= OF_PROCESS * on_cpu[process]
    });
    of.into_iter().map(|((process, _), samples)| claim(view, process, &samples)).collect()
}

fn claim(view: &View<'_>, process: &str, samples: &[usize]) -> Claim {
    let (mut places, mut calls, mut functions) = (Most::default(), Most::default(), Most::default());
    for &at in samples {
        let sample = &view.samples[at];
        // Where the check is before the call's own function, that of the library says which call it is.
        let leaf = sample.user.first().map_or("", |leaf| leaf.split('@').next().unwrap_or(leaf));
        let known = call_in(&sample.kernel).filter(|call| *call != "entry");
        let call = known.unwrap_or_else(|| leaf.trim_start_matches('_'));
        let function = sample.kernel.iter().find(|f| view.entry(When::CallChecks, f).is_some());
        calls.add(call, sample.seconds);
        functions.add(function.copied().unwrap_or(""), sample.seconds);
        places.add(&Place::of(sample, call).words(), sample.seconds);
    }
    let (words, place) = places.place(process);
    let call = calls.largest().map_or_else(String::new, |(call, _)| call.to_string());
    let most = calls.words(3);
    let function = functions.top().map_or_else(String::new, |(f, _)| f);
    let mut claim = Claim::new(Kind::Calls, [When::CallChecks], function.clone())
        .with("call", call)
        .with("process", process)
        .with("place", place)
        .with("function", short(&function));
    claim.key = format!("checks {process} {function}");
    for &at in samples {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "in these functions");
    }
    claim.line("called in", words);
    claim.line("calls", most);
    claim
}
