//! Single instructions that something else answers, and that take hundreds of cycles or more.

use std::collections::{BTreeMap, HashMap};

use ncpu_schema::{SampleClass, UserCause};

use super::claim::{Claim, Kind, Source};
use super::names::short;
use super::places::{Most, Place, is_library};
use super::view::View;
use crate::causes::When;

/// Kinds of instructions, as tables have them.
const KINDS: [&str; 2] = ["identify", "random"];

/// The part of capacity from which they are claimed.
const LEAST: f64 = 0.05;

/// The part of a function's samples that they have.
const MUCH: f64 = 0.2;

/// Samples of them from which it is known.
const SAMPLES: f64 = 50.0;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    KINDS.iter().flat_map(|kind| of_kind(view, kind)).collect()
}

/// By process: the samples of functions that have much of a kind, each with the part of it that the instruction takes.
fn of_kind(view: &View<'_>, kind: &'static str) -> Vec<Claim> {
    let parts: HashMap<&str, f64> = view
        .samples_by_cause(|instruction, cause| cause == Some(UserCause::Long) && instruction == Some(kind))
        .into_iter()
        .filter(|(_, (of_kind, all))| *of_kind >= SAMPLES && *of_kind >= MUCH * all)
        .map(|(function, (of_kind, all))| (function, of_kind / all))
        .collect();
    let mut of: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.class == SampleClass::User) {
        if let Some(part) = sample.user.first().and_then(|leaf| parts.get(leaf)) {
            of.entry(sample.process).or_default().push((at, sample.seconds * part));
        }
    }
    of.retain(|_, samples| samples.iter().map(|(_, s)| s).sum::<f64>() >= LEAST * view.capacity());
    of.into_iter().map(|(process, samples)| claim(view, kind, process, &samples)).collect()
}

fn claim(view: &View<'_>, kind: &str, process: &str, samples: &[(usize, f64)]) -> Claim {
    let (mut places, mut functions) = (Most::default(), Most::default());
    let mut claim = Claim::new(Kind::Runtime, [When::SlowInstruction], kind);
    for &(at, seconds) in samples {
        let sample = &view.samples[at];
        // The caller says more than a function of a compiler's header.
        places.add(&Place::outside(&sample.user, is_library).words(), seconds);
        functions.add(sample.user.first().map_or("", |leaf| leaf), seconds);
        claim.ask(Source::Sample(at), seconds, "in the instruction");
    }
    let (words, place) = places.place(process);
    let function = functions.top().map_or_else(String::new, |(f, _)| short(&f));
    let mut claim = claim.with("function", function).with("process", process).with("place", place);
    claim.key = format!("{kind} {process}");
    claim.line("executed in", words);
    claim
}
