//! The code that most of the program's own work is in.

use ncpu_schema::SampleClass;

use super::names::short;
use super::places::begins;
use super::view::View;

/// The part of user code that a chain of calls has to be named.
const MOST: f64 = 0.6;

/// Functions of the chain that are named.
const SHOWN: usize = 3;

/// The longest chain of calls, from the outside, that most of user code is in, by its innermost functions, and its part.
pub(super) fn hot(view: &View<'_>) -> Option<(String, f64)> {
    let of = |class| matches!(class, SampleClass::User);
    let mut left: Vec<_> = view.samples.iter().filter(|s| of(s.class) && !s.user.is_empty()).collect();
    let all: f64 = view.samples.iter().filter(|s| of(s.class)).map(|s| s.seconds).sum();
    let mut chain: Vec<&str> = Vec::new();
    let mut share = 0.0;
    // A deep recursion says no more.
    while chain.len() < 200 {
        let next = |s: &&super::view::Sampled<'_>| s.user.len().checked_sub(chain.len() + 1);
        let mut sums: std::collections::BTreeMap<&str, f64> = std::collections::BTreeMap::new();
        for s in &left {
            if let Some(at) = next(s) {
                *sums.entry(s.user[at]).or_default() += s.seconds;
            }
        }
        let Some((frame, seconds)) = sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        if seconds < MOST * all {
            break;
        }
        left.retain(|s| next(s).is_some_and(|at| s.user[at] == frame));
        chain.push(frame);
        share = seconds / all;
    }
    let known = |f: &&&str| !begins(f) && !f.starts_with('[') && **f != "main";
    let mut names: Vec<String> = chain.iter().rev().filter(known).take(SHOWN).map(|f| short(f)).collect();
    names.reverse();
    (!names.is_empty()).then(|| (names.join(" → "), share))
}
