//! Hashing of keys by Rust's default hasher.

use std::collections::HashMap;

use ncpu_schema::SampleClass;

use super::claim::{Claim, Kind, Source};
use super::inlined::Inlined;
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The part of the process's time on CPU, and of capacity, from which hashing is claimed.
const OF_PROCESS: f64 = 0.15;
const LEAST: f64 = 0.05;

/// The part of all hashing that must be seen in the default hasher itself. Inlined code of it lies in its caller, which has the same
/// name for all hashers.
const SEEN: f64 = 0.2;

/// Whether a function is of the default hasher, SipHash.
fn is_sip(frame: &str) -> bool {
    let bare = frame.trim_start_matches('<');
    ["std::hash::random::DefaultHasher", "std::collections::hash::map::DefaultHasher", "core::hash::sip::"]
        .iter()
        .any(|path| bare.starts_with(path))
}

/// Whether a function hashes one key for a map.
fn hashes(frame: &str) -> bool {
    is_sip(frame) || frame.split("::<").next().is_some_and(|bare| bare.ends_with("BuildHasher::hash_one"))
}

#[derive(Default)]
struct Hashed {
    /// With the part of each that is hashing.
    samples: Vec<(usize, f64)>,
    sip: f64,
    places: Most,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<&str, Hashed> = HashMap::new();
    let inlined = Inlined::new(view, |frame| hashes(frame).then_some(is_sip(frame)));
    for (at, sample) in view.samples.iter().enumerate() {
        if !sample.user.iter().any(|frame| hashes(frame)) {
            // Hashing that the compiler put into the map's functions and their callers.
            let leaf = sample.user.first().filter(|_| sample.class == SampleClass::User);
            for &(sip, part) in leaf.and_then(|leaf| inlined.parts.get(leaf)).into_iter().flatten() {
                let hashed = of.entry(sample.process).or_default();
                hashed.samples.push((at, part));
                hashed.sip += if sip { part * sample.seconds } else { 0.0 };
                hashed.places.add(&Place::of(sample, "").words(), part * sample.seconds);
            }
            continue;
        }
        let hashed = of.entry(sample.process).or_default();
        hashed.samples.push((at, 1.0));
        hashed.sip += if sample.user.iter().any(|frame| is_sip(frame)) { sample.seconds } else { 0.0 };
        hashed.places.add(&Place::beyond(&sample.user, hashes).words(), sample.seconds);
    }
    let mut claims = Vec::new();
    for (process, hashed) in of {
        let seconds: f64 = hashed.samples.iter().map(|&(at, part)| part * view.samples[at].seconds).sum();
        if seconds < OF_PROCESS * view.on_cpu(process)
            || seconds < LEAST * view.capacity()
            || hashed.sip < SEEN * seconds
        {
            continue;
        }
        let (words, place) = hashed.places.place(process);
        let mut claim =
            Claim::new(Kind::Runtime, [When::SipHash], process).with("process", process).with("place", place);
        claim.key = format!("SipHash {process}");
        for (at, part) in hashed.samples {
            claim.ask(Source::Sample(at), part * view.samples[at].seconds, "hashing keys");
        }
        claim.line("called in", words);
        claims.push(claim);
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_hasher_is_known_by_its_path() {
        for frame in [
            "<std::hash::random::DefaultHasher as core::hash::Hasher>::write",
            "<core::hash::sip::Hasher<S> as core::hash::Hasher>::write",
            "core::hash::sip::Sip13Rounds::c_rounds",
        ] {
            assert!(is_sip(frame) && hashes(frame), "{frame}");
        }
        for frame in ["core::hash::BuildHasher::hash_one", "core::hash::BuildHasher::hash_one::<&app::Key>"] {
            assert!(!is_sip(frame) && hashes(frame), "{frame}");
        }
        for frame in
            ["app::sip::hash_one", "<app::Key as core::hash::Hash>::hash", "rustc_hash::FxHasher::write"]
        {
            assert!(!hashes(frame), "{frame}");
        }
    }
}
