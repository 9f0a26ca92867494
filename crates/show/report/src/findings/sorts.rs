//! Sorts whose comparisons make memory: a key is made anew for each of them, or elements are copied to be compared.

use std::collections::HashMap;

use super::claim::{Claim, Kind, Source};
use super::libraries::{begins_with, c_name, is_allocator};
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The part of a process's time on CPU that sorts have from which they count, and the part of it that makes memory.
const SORTS: f64 = 0.25;
const MAKES: f64 = 0.15;

/// Samples of it from which a part is known.
const SEEN: u64 = 8;

/// Whether a function is a library's sort.
fn sorts(frame: &str) -> bool {
    const PATHS: [&str; 21] = [
        "core::slice::sort::",
        "alloc::slice::<impl [T]>::sort",
        "core::slice::<impl [T]>::sort",
        "void std::__introsort_loop",
        "std::__introsort_loop",
        "void std::__insertion_sort",
        "std::__insertion_sort",
        "void std::__unguarded_linear_insert",
        "std::__unguarded_linear_insert",
        "void std::__merge_",
        "std::__merge_",
        "void std::__adjust_heap",
        "void std::sort<",
        "void std::stable_sort<",
        "sort.pdqsort",
        "sort.insertionSort",
        "sort.stable",
        "slices.pdqsort",
        "slices.insertionSort",
        "java.util.TimSort.",
        "java.util.ComparableTimSort.",
    ];
    const C: [&str; 4] = ["qsort", "qsort_r", "msort_with_tmp", "msort_with_tmp.part.0"];
    begins_with(frame, &PATHS) || C.contains(&c_name(frame))
}

/// Whether a function makes memory or gives it back, or makes a text of another.
fn makes(frame: &str) -> bool {
    const PATHS: [&str; 7] = [
        "alloc::fmt::format",
        "alloc::str::<impl str>::to_",
        "str>::to_lowercase",
        "str>::to_uppercase",
        "str>::replace",
        "runtime.concatstring",
        "runtime.slicebytetostring",
    ];
    is_allocator(frame) || begins_with(frame, &PATHS) || ["strdup", "strndup"].contains(&c_name(frame))
}

/// Compares bytes: what a comparison is for.
fn compares(frame: &str) -> bool {
    let name = c_name(frame);
    ["memcmp", "bcmp", "strcmp", "runtime.memequal", "runtime.cmpstring"].iter().any(|c| name.starts_with(c))
}

#[derive(Default)]
struct Sorts {
    seconds: f64,
    makes: f64,
    seen: u64,
    inside: Vec<usize>,
    places: Most,
    functions: Most,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<&str, (f64, Sorts)> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        let (all, sums) = of.entry(sample.process).or_default();
        *all += sample.seconds;
        let Some(sort) = sample.user.iter().position(|frame| sorts(frame)) else { continue };
        sums.seconds += sample.seconds;
        sums.places.add(&Place::beyond(&sample.user, sorts).words(), sample.seconds);
        let below = &sample.user[..sort];
        if below.iter().any(|frame| makes(frame)) {
            sums.makes += sample.seconds;
            sums.seen += sample.samples;
        }
        if below.first().is_some_and(|leaf| !compares(leaf)) {
            sums.inside.push(at);
            sums.functions.add(&super::names::short(below[sort - 1]), sample.seconds);
        }
    }
    let large = of.into_iter().filter(|(_, (all, sums))| {
        sums.seconds >= SORTS * all && sums.makes >= MAKES * sums.seconds && sums.seen >= SEEN
    });
    large.map(|(process, (_, sums))| claim(view, process, sums)).collect()
}

fn claim(view: &View<'_>, process: &str, sums: Sorts) -> Claim {
    let function = sums.functions.largest().map_or_else(String::new, |(name, _)| name.to_string());
    let (words, place) = sums.places.place(process);
    let mut claim = Claim::new(Kind::Runtime, [When::SortKeys], process)
        .with("process", process)
        .with("place", place)
        .with("function", function);
    claim.key = format!("sort keys {process}");
    for &at in &sums.inside {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "making keys");
    }
    claim.line("sorted in", words);
    claim.line("calls", sums.functions.words(3));
    claim
}

#[cfg(test)]
mod tests {
    use super::{compares, makes, sorts};

    #[test]
    fn sorts_of_libraries_are_known_and_others_not() {
        for frame in [
            "core::slice::sort::stable::driftsort_main",
            "void std::__introsort_loop<__gnu_cxx::__normal_iterator<Item*, std::vector<Item> >, long>(Item*)",
            "msort_with_tmp.part.0",
            "sort.pdqsort_func",
            "slices.pdqsortCmpFunc[go.shape.struct]",
            "java.util.TimSort.binarySort",
        ] {
            assert!(sorts(frame), "{frame}");
        }
        for frame in
            ["app::sort::run", "sorted_insert", "std::vector<int>::push_back", "my_qsort", "sort_items"]
        {
            assert!(!sorts(frame), "{frame}");
        }
        for frame in
            ["__libc_malloc", "<str>::to_lowercase", "operator new(unsigned long)", "runtime.concatstring2"]
        {
            assert!(makes(frame), "{frame}");
        }
        for frame in ["free_list_walk", "app::malloc_stats", "to_lowercase_table"] {
            assert!(!makes(frame), "{frame}");
        }
        assert!(compares("__memcmp_evex_movbe") && !compares("compare_items"));
    }
}
