//! Functions that a compiler put into their callers: they have no frames of their own, and the samples of a function's instructions say
//! which part of its time is theirs.

use std::collections::HashMap;

use super::instructions::Instruction;
use super::view::View;

/// The separator of inlined functions around an instruction.
const WITHIN: &str = " ← ";

/// The functions around the one that an instruction was inlined from, outermost first.
pub(super) fn around<'a>(at: &Instruction<'a>) -> impl Iterator<Item = &'a str> + use<'a> {
    at.around.into_iter().flat_map(|names| names.rsplit(WITHIN)).filter(|name| !name.is_empty())
}

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
    /// An instruction that does a function's work counts as that function.
    pub fn new(view: &View<'a>, of: impl Fn(&'a str) -> Option<T>) -> Inlined<'a, T> {
        let mut sums: HashMap<&str, Sums<T>> = HashMap::new();
        for at in view.instructions() {
            let known = around(at).chain(at.inlined).chain(at.in_place_of()).find_map(&of);
            // Stacks of Go have the inlined functions, too.
            let innermost = at.inlined.filter(|inlined| *inlined != at.function);
            for function in innermost.into_iter().chain([at.function]) {
                let (parts, all) = sums.entry(function).or_default();
                *all += at.samples;
                let Some(known) = known.filter(|_| at.samples > 0.0) else { continue };
                match parts.iter_mut().find(|(of, _)| *of == known) {
                    Some((_, sum)) => *sum += at.samples,
                    None => parts.push((known, at.samples)),
                }
            }
        }
        sums.retain(|_, (parts, all)| !parts.is_empty() && *all >= KNOWN);
        let parts = sums.into_iter().map(|(function, (parts, all))| {
            (function, parts.into_iter().map(|(of, samples)| (of, samples / all)).collect())
        });
        Inlined { parts: parts.collect() }
    }
}
