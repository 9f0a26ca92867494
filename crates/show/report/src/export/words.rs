//! Parts that profiles of pprof and of OpenTelemetry share: words by number, functions, whole nanoseconds.

use std::collections::HashMap;

use super::KERNEL;

/// Seconds as a profile has them. Its numbers have a sign.
pub(super) fn nanoseconds(seconds: f64) -> u64 {
    ((seconds * 1e9).round() as u64).min(i64::MAX as u64)
}

/// Words by number, as the profile holds them.
#[derive(Default)]
pub(super) struct Words<'a> {
    numbers: HashMap<&'a str, u64>,
    /// Each once, in the order of their numbers.
    pub all: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// The number of a word, which is added if it is new.
    pub fn number(&mut self, word: &'a str) -> u64 {
        let all = &mut self.all;
        *self.numbers.entry(word).or_insert_with(|| {
            all.push(word);
            all.len() as u64 - 1
        })
    }
}

/// Names of mappings without a file: code of an unknown file or made at run time, and the kernel's. Addresses are not kept.
pub(super) const NO_FILE: &str = "[programs]";
pub(super) const KERNEL_FILE: &str = "[kernel]";

/// A function: its name, the file that has its code, and the file and line of its source where its name tells them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Function<'a> {
    pub name: &'a str,
    pub binary: &'a str,
    pub source: Option<(&'a str, u64)>,
}

impl<'a> Function<'a> {
    /// That of a frame. Functions of Python are `name (file:line)`.
    pub fn of((frame, binary): (&'a str, Option<&'a str>)) -> Function<'a> {
        if let Some(name) = frame.strip_suffix(KERNEL) {
            return Function { name, binary: KERNEL_FILE, source: None };
        }
        let binary = binary.unwrap_or(NO_FILE);
        let source = frame.strip_suffix(')').and_then(|frame| {
            let (name, place) = frame.rsplit_once(" (")?;
            let (file, line) = place.rsplit_once(':')?;
            Some((name, (file, line.parse().ok()?)))
        });
        match source {
            Some((name, source)) => Function { name, binary, source: Some(source) },
            None => Function { name: frame, binary, source: None },
        }
    }
}
