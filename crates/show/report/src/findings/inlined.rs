//! Functions that a compiler put into their callers: they have no frames of their own, and the samples of a function's instructions say
//! which part of its time is theirs.

use std::collections::HashMap;

use super::view::View;

/// The separator of inlined functions around an instruction.
const WITHIN: &str = " ← ";

/// Samples of a function from which its parts are known.
const KNOWN: f64 = 20.0;

/// Samples of inlined functions, and all of the function that they are in.
type Sums<T> = (Vec<(T, f64)>, f64);

/// Parts of a function's own time.
pub(super) struct Inlined<'a, T> {
    /// By function: what `of` says of the functions inlined there, with its part.
    pub parts: HashMap<&'a str, Vec<(T, f64)>>,
}

impl<'a, T: Copy + PartialEq> Inlined<'a, T> {
    /// Parts of the program's functions in inlined ones that `of` knows: the outermost of these counts, which is what the program called.
    pub fn new(view: &View<'a>, of: impl Fn(&'a str) -> Option<T>) -> Inlined<'a, T> {
        let mut sums: HashMap<&str, Sums<T>> = HashMap::new();
        for at in view.instructions() {
            let (parts, all) = sums.entry(at.function).or_default();
            *all += at.samples;
            let names = at.around.into_iter().flat_map(|names| names.rsplit(WITHIN));
            let samples = at.samples;
            let Some(known) = names.chain(at.inlined).find_map(&of).filter(|_| samples > 0.0) else {
                continue;
            };
            match parts.iter_mut().find(|(of, _)| *of == known) {
                Some((_, sum)) => *sum += samples,
                None => parts.push((known, samples)),
            }
        }
        sums.retain(|_, (parts, all)| !parts.is_empty() && *all >= KNOWN);
        let parts = sums.into_iter().map(|(function, (parts, all))| {
            (function, parts.into_iter().map(|(of, samples)| (of, samples / all)).collect())
        });
        Inlined { parts: parts.collect() }
    }
}
