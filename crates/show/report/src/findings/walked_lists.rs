//! Lists that a library's function walks to find one element, or to take few out. Compilers put these functions into their callers,
//! so that the instructions of the callers say it.

use std::collections::{BTreeMap, HashMap};

use ncpu_schema::SampleClass;

use super::claim::{Claim, Kind, Source};
use super::inlined::around;
use super::instructions::Instruction;
use super::libraries::c_name;
use super::names::short;
use super::places::{Most, Place, is_library};
use super::view::{Sampled, View};
use crate::causes::When;

/// The part of a process's time on CPU that walks have: a program that walks a list to use its elements does something with them
/// as well.
const MOSTLY: f64 = 0.5;

/// The part of capacity from which they are claimed.
const LEAST: f64 = 0.05;

/// Samples of a function from which its parts are known, and the part of its own instructions that walk from which what it calls to
/// compare elements belongs to the walk.
const KNOWN: f64 = 10.0;
const COMPARES: f64 = 0.5;

/// The part of a walk's samples in instructions for single bytes from which it goes through a text.
const BYTES: f64 = 0.1;

/// The purpose of a walk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Walk {
    Search,
    Filter,
}

impl Walk {
    fn of(frame: &str) -> Option<Walk> {
        const ITERATOR: &str = "<core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::";
        const FILTERS: [&str; 4] = [
            "alloc::vec::Vec<T,A>::retain",
            "alloc::vec::Vec<T,A>::retain_mut",
            "alloc::collections::vec_deque::VecDeque<T,A>::retain",
            "alloc::collections::vec_deque::VecDeque<T,A>::retain_mut",
        ];
        // Templates begin with the type that they return.
        let cxx = |name: &str| {
            frame.split_once(name).is_some_and(|(before, after)| {
                after.starts_with(['<', '(']) && (before.is_empty() || before.ends_with(' '))
            })
        };
        let of_iterator = frame.strip_prefix(ITERATOR);
        let finds = of_iterator.is_some_and(|name| ["position", "rposition", "find", "any"].contains(&name))
            || [
                "<T as core::slice::cmp::SliceContains>::slice_contains",
                "core::slice::<impl [T]>::contains",
            ]
            .contains(&frame)
            || cxx("std::__find_if");
        // In a symbol the types are given: `<alloc::vec::Vec<app::Row>>::retain_mut::<…>`.
        let retains = FILTERS.contains(&frame)
            || frame.starts_with("<alloc::vec::Vec<") && frame.contains(">>::retain")
            || cxx("std::__remove_if");
        match (finds, retains) {
            (true, _) => Some(Walk::Search),
            (_, true) => Some(Walk::Filter),
            _ => None,
        }
    }

    fn subject(self) -> &'static str {
        match self {
            Walk::Search => "search",
            Walk::Filter => "filter",
        }
    }
}

/// Whether an instruction reads or compares single bytes of memory.
fn is_of_bytes(at: &Instruction<'_>) -> bool {
    let Some(text) = at.text.filter(|text| text.contains('(')) else { return false };
    ["cmpb ", "movzbl ", "movsbl ", "movzbq ", "testb "].iter().any(|start| text.starts_with(start))
}

/// Whether a function compares bytes for who calls it.
fn compares(frame: &str) -> bool {
    let name = c_name(frame);
    ["memcmp", "bcmp", "strcmp", "strncmp", "memequal"].iter().any(|start| name.starts_with(start))
}

/// A walk that a compiler put into a function.
struct Inside<'a> {
    walk: Walk,
    /// The library's function, and the program's own around it.
    function: &'a str,
    own: Option<&'a str>,
    part: f64,
}

/// By function, the walk with most of its own samples.
fn inside<'a>(view: &View<'a>) -> HashMap<&'a str, Inside<'a>> {
    #[derive(Default)]
    struct Sums<'a> {
        all: f64,
        of: BTreeMap<(Walk, &'a str, Option<&'a str>), (f64, f64)>,
    }
    let mut sums: HashMap<&str, Sums<'_>> = HashMap::new();
    for at in view.instructions() {
        let sum = sums.entry(at.function).or_default();
        sum.all += at.samples;
        let names: Vec<&str> = around(at).chain(at.inlined).collect();
        let outermost = names.iter().enumerate().find_map(|(i, name)| Some((i, Walk::of(name)?)));
        let Some((outermost, walk)) = outermost else { continue };
        let own = names[..outermost].iter().rfind(|name| !is_library(name)).copied();
        let (samples, bytes) = sum.of.entry((walk, names[outermost], own)).or_default();
        *samples += at.samples;
        *bytes += if is_of_bytes(at) { at.samples } else { 0.0 };
    }
    let most = |sum: Sums<'a>| {
        let all = sum.all.max(1.0);
        let of = sum.of.into_iter().filter(|(_, (samples, bytes))| *bytes < BYTES * samples);
        let ((walk, function, own), (samples, _)) = of.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        Some(Inside { walk, function, own, part: samples / all })
    };
    let known = sums.into_iter().filter(|(_, sum)| sum.all >= KNOWN);
    known.filter_map(|(function, sum)| Some((function, most(sum)?))).collect()
}

#[derive(Default)]
struct Walked {
    asks: Vec<(usize, f64)>,
    seconds: f64,
    places: Most,
    functions: Most,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let inside = inside(view);
    let mut of: BTreeMap<(&str, Walk), Walked> = BTreeMap::new();
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.class == SampleClass::User) {
        let Some((walk, function, part, words)) = walk_of(sample, &inside) else { continue };
        let walked = of.entry((sample.process, walk)).or_default();
        walked.asks.push((at, part * sample.seconds));
        walked.seconds += part * sample.seconds;
        walked.places.add(&words, part * sample.seconds);
        walked.functions.add(&short(function), part * sample.seconds);
    }
    of.retain(|(process, _), walked| {
        walked.seconds >= MOSTLY * view.on_cpu(process) && walked.seconds >= LEAST * view.capacity()
    });
    of.into_iter().map(|((process, walk), walked)| claim(process, walk, walked)).collect()
}

/// The walk that a sample is in, its function, the part of the sample, and its place.
fn walk_of<'a>(
    sample: &Sampled<'a>,
    inside: &HashMap<&'a str, Inside<'a>>,
) -> Option<(Walk, &'a str, f64, String)> {
    // Go and Java have libraries of their own.
    if let Some(at) = sample.user.iter().rposition(|frame| Walk::of(frame).is_some()) {
        let function = sample.user[at];
        let words = Place::beyond(&sample.user, |frame| frame == function).words();
        return Some((Walk::of(function)?, function, 1.0, words));
    }
    let calls = usize::from(sample.user.first().is_some_and(|leaf| compares(leaf)));
    let known = inside.get(sample.user.get(calls)?)?;
    let part = if calls == 0 { known.part } else { 1.0 };
    if calls > 0 && known.part < COMPARES {
        return None;
    }
    let outside = Place::of_frames(&sample.user[calls..], "").words();
    let words = match known.own {
        Some(own) => [short(own), outside].join(" ← "),
        None => outside,
    };
    Some((known.walk, known.function, part, words))
}

fn claim(process: &str, walk: Walk, walked: Walked) -> Claim {
    let (words, place) = walked.places.place(process);
    let function = walked.functions.top().map_or_else(String::new, |(function, _)| function);
    let mut claim = Claim::new(Kind::Runtime, [When::WalkedList], walk.subject())
        .with("function", function)
        .with("process", process)
        .with("place", place);
    claim.key = format!("{} of lists {process}", walk.subject());
    for (at, seconds) in walked.asks {
        claim.ask(Source::Sample(at), seconds, "walking a list");
    }
    claim.line("called in", words);
    claim
}

#[cfg(test)]
mod tests {
    use super::Walk;

    #[test]
    fn functions_that_walk_lists_are_known() {
        const ITERATOR: &str = "<core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::";
        for frame in [
            &format!("{ITERATOR}position"),
            &format!("{ITERATOR}find"),
            "<T as core::slice::cmp::SliceContains>::slice_contains",
            "__gnu_cxx::__normal_iterator<long*> std::__find_if<__gnu_cxx::__normal_iterator<long*> >(long*)",
        ] {
            assert_eq!(Walk::of(frame), Some(Walk::Search), "{frame}");
        }
        for frame in [
            "alloc::vec::Vec<T,A>::retain",
            "<alloc::vec::Vec<app::Row>>::retain_mut::<app::drop::{closure#0}>",
            "Row* std::__remove_if<Row*, Dead>(Row*, Row*, Dead)",
        ] {
            assert_eq!(Walk::of(frame), Some(Walk::Filter), "{frame}");
        }
        for frame in [
            &format!("{ITERATOR}next"),
            &format!("{ITERATOR}fold"),
            "app::Cache::retain",
            "app::find",
            "my::std::__find_if_not(int)",
        ] {
            assert_eq!(Walk::of(frame), None, "{frame}");
        }
    }
}
