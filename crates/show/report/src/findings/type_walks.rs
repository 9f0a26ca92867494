//! Tests of types by which code that HotSpot's compilers made walks through all interfaces of a class.

use std::collections::{BTreeMap, HashMap};

use ncpu_schema::{SampleClass, UserCause};

use super::claim::{Claim, Kind, Source};
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The instruction of the walk. The compilers have it for nothing else; they copy and fill by others.
const WALK: &str = "repne scas";

/// The part of a function's samples that the walk takes, and samples of it from which it is known.
const MUCH: f64 = 0.1;
const SAMPLES: f64 = 20.0;

/// The part of capacity from which it is claimed.
const LEAST: f64 = 0.05;

/// By function, the part of its samples in such walks, and in waits for the line of the word that they write. [`View::walks`] keeps
/// them.
pub(super) fn walks<'a>(view: &View<'a>) -> HashMap<&'a str, f64> {
    let mut sums: HashMap<&str, (f64, f64)> = HashMap::new();
    // Code that was made at run time is in no file; functions of C++ have colons in their names.
    for at in view.instructions().iter().filter(|at| !at.in_file) {
        let (walk, all) = sums.entry(at.function).or_default();
        *walk += if at.text.is_some_and(|text| text.starts_with(WALK)) { at.samples } else { 0.0 };
        *all += at.samples;
    }
    sums.retain(|function, (walk, all)| *walk >= SAMPLES && *walk >= MUCH * *all && !function.contains("::"));
    if sums.is_empty() {
        return HashMap::new();
    }
    let shared = view.samples_by_cause(|_, cause| cause == Some(UserCause::SharedLine));
    let part = |function: &str, (walk, all): (f64, f64)| {
        let line = shared.get(function).map_or(0.0, |(line, all)| line / all.max(1.0));
        (walk / all + line).min(1.0)
    };
    sums.into_iter().map(|(function, sum)| (function, part(function, sum))).collect()
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let walks = view.walks();
    let mut of: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.class == SampleClass::User) {
        let in_java = sample.user.iter().any(|f| f.starts_with("JavaThread::"));
        let part = sample.user.first().and_then(|leaf| walks.get(leaf)).filter(|_| in_java);
        if let Some(part) = part {
            of.entry(sample.process).or_default().push((at, *part));
        }
    }
    let mut claims = Vec::new();
    for (process, samples) in of {
        let mut places = Most::default();
        let mut claim = Claim::new(Kind::Runtime, [When::TypesWalked], process).with("process", process);
        for (at, part) in samples {
            let sample = &view.samples[at];
            places.add(&Place::of(sample, "").words(), sample.seconds);
            claim.ask(Source::Sample(at), part * sample.seconds, "walking through interfaces");
            // The instructions before and after the walk, which look up the answer that the class keeps, look like the function's own work.
            claim.dear += (1.0 - part) * sample.seconds;
        }
        if claim.asked() < LEAST * view.capacity() {
            continue;
        }
        let (words, place) = places.place(process);
        let mut claim = claim.with("place", place);
        claim.key = format!("types walked {process}");
        claim.line("tested in", words);
        claims.push(claim);
    }
    claims
}
