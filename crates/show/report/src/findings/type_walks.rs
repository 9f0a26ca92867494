//! Tests of types by which code that HotSpot's compilers made walks through all interfaces of a class.

use std::collections::BTreeMap;

use ncpu_schema::SampleClass;

use super::claim::{Claim, Kind, Source};
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The part of capacity from which it is claimed.
const LEAST: f64 = 0.05;

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
