//! Programs that were built without optimization: they call what any optimization puts in its place.

use std::collections::HashMap;

use ncpu_schema::SampleClass;

use super::claim::{Claim, Kind, Source};
use super::names::short;
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The part of capacity that the process's user code has to be.
const LEAST: f64 = 0.05;

/// The part of a process's user code that such calls are, and the samples of them, from which a build is known.
const CALLS: f64 = 0.08;
const SEEN: u64 = 8;

/// Functions of Rust's library that are a few instructions: their last two parts. A `precondition_check` is called only where
/// nothing is optimized or assertions are on.
const RUST: [&str; 16] = [
    "Range::spec_next",
    "range::next",
    "usize::forward_unchecked",
    "Iter::next",
    "Iter::as_ref",
    "num::unchecked_add",
    "num::wrapping_add",
    "const_ptr::add",
    "mut_ptr::add",
    "NonNull::as_ptr",
    "NonNull::add",
    "Vec::index",
    "Vec::deref",
    "Vec::len",
    "index::index",
    "Option::branch",
];

/// The same of C++.
const CPP: [&str; 14] = [
    "std::move",
    "std::forward",
    "std::addressof",
    "std::__addressof",
    "std::get",
    "std::vector::operator[]",
    "std::vector::size",
    "std::vector::begin",
    "std::vector::end",
    "std::array::operator[]",
    "std::array::size",
    "std::unique_ptr::get",
    "std::unique_ptr::operator->",
    "std::_Tuple_impl::_M_head",
];

/// The language in which a function is a few instructions that an optimized build does not call.
fn trivial(frame: &str) -> Option<&'static str> {
    let name = short(frame);
    let bare = name.strip_suffix("::precondition_check").map_or(&*name, |_| "precondition_check");
    let iterator =
        || name.starts_with("__gnu_cxx::__normal_iterator::") || name.starts_with("__gnu_cxx::operator");
    if CPP.contains(&bare) || iterator() {
        return Some("C++");
    }
    let library = ["core::", "alloc::", "<core::", "<alloc::", "<&core::", "<usize as core::"]
        .iter()
        .any(|start| frame.starts_with(start));
    let last = bare.rmatch_indices("::").nth(1).map_or(bare, |(at, _)| &bare[at + 2..]);
    (library && (last == "precondition_check" || RUST.contains(&last))).then_some("Rust")
}

#[derive(Default)]
struct Code<'a> {
    samples: Vec<usize>,
    seconds: f64,
    trivial: f64,
    seen: u64,
    functions: Most,
    language: HashMap<&'a str, f64>,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut known: HashMap<&str, Option<&'static str>> = HashMap::new();
    let mut of: HashMap<&str, Code<'_>> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.class == SampleClass::User) {
        // Libraries in C may well be optimized.
        let Some(&leaf) = sample.user.first().filter(|f| f.contains("::") || f.contains('(')) else {
            continue;
        };
        let code = of.entry(sample.process).or_default();
        code.samples.push(at);
        code.seconds += sample.seconds;
        if let Some(language) = *known.entry(leaf).or_insert_with(|| trivial(leaf)) {
            code.trivial += sample.seconds;
            code.seen += sample.samples;
            code.functions.add(&short(leaf), sample.seconds);
            *code.language.entry(language).or_default() += sample.seconds;
        }
    }
    of.retain(|_, code| {
        code.seen >= SEEN && code.trivial >= CALLS * code.seconds && code.seconds >= LEAST * view.capacity()
    });
    of.into_iter().map(|(process, code)| claim(view, process, code)).collect()
}

fn claim(view: &View<'_>, process: &str, code: Code<'_>) -> Claim {
    let mut places = Most::default();
    for &at in &code.samples {
        places.add(&Place::of(&view.samples[at], "").words(), view.samples[at].seconds);
    }
    let (words, place) = places.place(process);
    let language = code.language.iter().max_by(|a, b| a.1.total_cmp(b.1).then_with(|| b.0.cmp(a.0)));
    let language = language.map_or("", |(language, _)| *language);
    let function = code.functions.largest().map_or_else(String::new, |(f, _)| f.to_string());
    let mut claim = Claim::new(Kind::Runtime, [When::Unoptimized], language)
        .with("language", language)
        .with("process", process)
        .with("place", place)
        .with("function", function);
    claim.key = format!("unoptimized {process}");
    for &at in &code.samples {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "code without optimization");
    }
    claim.line("runs", words);
    claim.line("calls", code.functions.words(3));
    claim
}

#[cfg(test)]
mod tests {
    use super::trivial;

    #[test]
    fn only_functions_of_a_few_instructions_are_trivial() {
        for (frame, language) in [
            ("core::num::<impl usize>::unchecked_add::precondition_check", Some("Rust")),
            ("<core::ops::range::Range<T> as core::iter::range::RangeIteratorImpl>::spec_next", Some("Rust")),
            (
                "core::iter::range::<impl core::iter::traits::iterator::Iterator for core::ops::range::Range<A>>::next",
                Some("Rust"),
            ),
            ("<usize as core::iter::range::Step>::forward_unchecked", Some("Rust")),
            ("<core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::next", Some("Rust")),
            (
                "__gnu_cxx::__normal_iterator<int*, std::vector<int, std::allocator<int> > >::operator*() const",
                Some("C++"),
            ),
            ("std::remove_reference<int&>::type&& std::move<int&>(int&)", Some("C++")),
            ("std::vector<int, std::allocator<int> >::operator[](unsigned long)", Some("C++")),
            ("<core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::fold", None),
            ("app::precondition_check", None),
            ("app::Range::spec_next", None),
            ("<app::Iter as core::iter::traits::iterator::Iterator>::next", None),
            ("<hashbrown::raw::RawIter<T> as core::iter::traits::iterator::Iterator>::next", None),
            ("std::vector<int, std::allocator<int> >::_M_realloc_insert(int*)", None),
            (
                "void std::__introsort_loop<__gnu_cxx::__normal_iterator<int*, std::vector<int> > >(int*)",
                None,
            ),
            ("", None),
        ] {
            assert_eq!(trivial(frame), language, "{frame}");
        }
    }
}
