//! Maps of Go that a function makes and fills by walking another, again and again.

use std::collections::HashMap;

use super::claim::{Claim, Kind, Source};
use super::libraries::begins_with;
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The part of a process's time on CPU that all of it takes, that each of walking and filling takes, and that making takes.
const ALL: f64 = 0.3;
const EACH: f64 = 0.1;
const MAKING: f64 = 0.005;

/// The fewest samples of making that are not chance.
const SEEN: u64 = 2;

/// Work of the runtime on a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Does {
    Walk,
    Fill,
    Make,
}

fn does(frame: &str) -> Option<Does> {
    let one = |of, starts: &[&str]| begins_with(frame, starts).then_some(of);
    one(
        Does::Walk,
        &["runtime.mapIterNext", "runtime.mapIterStart", "runtime.mapiternext", "runtime.mapiterinit"],
    )
    .or_else(|| one(Does::Fill, &["runtime.mapassign"]))
    .or_else(|| one(Does::Make, &["runtime.makemap"]))
}

/// The runtime's work on a map that a stack is in, and the function that asks for it.
fn of_function<'a>(user: &[&'a str]) -> Option<(Does, &'a str)> {
    let at = user.iter().rposition(|frame| does(frame).is_some())?;
    Some((does(user[at])?, user.get(at + 1)?))
}

#[derive(Default)]
struct Copies {
    walks: f64,
    fills: f64,
    makes: f64,
    made: u64,
    inside: Vec<usize>,
    places: Most,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut all: HashMap<&str, f64> = HashMap::new();
    let mut of: HashMap<(&str, &str), Copies> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        *all.entry(sample.process).or_default() += sample.seconds;
        let Some((does, function)) = of_function(&sample.user) else { continue };
        let copies = of.entry((sample.process, function)).or_default();
        copies.inside.push(at);
        copies
            .places
            .add(&Place::beyond(&sample.user, |frame| self::does(frame).is_some()).words(), sample.seconds);
        match does {
            Does::Walk => copies.walks += sample.seconds,
            Does::Fill => copies.fills += sample.seconds,
            Does::Make => {
                copies.makes += sample.seconds;
                copies.made += sample.samples;
            }
        }
    }
    let mut found: Vec<_> = of
        .into_iter()
        .filter(|((process, _), copies)| {
            let all = all.get(process).copied().unwrap_or(0.0);
            let least = copies.walks.min(copies.fills);
            copies.walks + copies.fills + copies.makes >= ALL * all
                && least >= EACH * all
                && copies.makes >= MAKING * all
                && copies.made >= SEEN
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.into_iter().map(|((process, function), copies)| claim(view, process, function, copies)).collect()
}

fn claim(view: &View<'_>, process: &str, function: &str, copies: Copies) -> Claim {
    let (words, place) = copies.places.place(process);
    let mut claim = Claim::new(Kind::Runtime, [When::MapsCopied], process)
        .with("process", process)
        .with("place", place)
        .with("function", super::names::short(function));
    claim.key = format!("maps copied {process} {function}");
    for &at in &copies.inside {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "copying maps");
    }
    claim.line("called in", words);
    claim
}

#[cfg(test)]
mod tests {
    use super::{Does, of_function};

    #[test]
    fn what_is_done_with_a_map_is_the_callers() {
        for (stack, of) in [
            (
                &["internal/runtime/maps.(*Iter).Next", "runtime.mapIterNext", "main.update", "main.serve"][..],
                Some((Does::Walk, "main.update")),
            ),
            (
                &["runtime.memhash64", "runtime.mapassign_fast64", "main.update"],
                Some((Does::Fill, "main.update")),
            ),
            (
                &["runtime.mallocgc", "internal/runtime/maps.NewMap", "runtime.makemap", "main.update"],
                Some((Does::Make, "main.update")),
            ),
            (&["runtime.mapaccess1_fast64", "main.update"], None),
            (&["main.mapassign", "main.update"], None),
            (&["runtime.mapassign_fast64"], None),
        ] {
            assert_eq!(of_function(stack), of, "{stack:?}");
        }
    }
}
