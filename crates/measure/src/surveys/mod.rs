//! Benchmarks with a table as their answer: a matrix of CPUs or nodes, cases beside each other over threads or
//! sizes, sessions of a database.

mod core_to_core;
pub mod logical_reads;
mod matrix;
mod memhammer;
mod points;
mod stream;
mod sweep;

use std::sync::atomic::{AtomicBool, Ordering};

use ncpu_machine::Topology;
use ncpu_table::Table;

use crate::failure::Failure;
use crate::options::{Flag, Options};
use crate::runner::Plan;

/// A benchmark that gives a table, registered by name.
pub struct Survey {
    /// Its name.
    pub name: &'static str,
    /// Its result, in a line.
    pub about: &'static str,
    /// The options of its own.
    pub flags: &'static [Flag],
    /// Runs it.
    pub run: fn(&Request<'_>) -> Result<Report, Failure>,
}

/// The request to a survey.
pub struct Request<'a> {
    /// Its own options.
    pub options: &'a Options,
    /// The runner's: placement, memory, threads, how precise.
    pub plan: &'a Plan,
    /// The machine.
    pub machine: &'a Topology,
    /// Set by Ctrl-C: what is done is reported.
    pub stop: &'a AtomicBool,
    /// Is told what is being done.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

impl Request<'_> {
    /// Whether to end early.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Results of a survey.
#[derive(Debug, Default)]
pub struct Report {
    /// All of it, a row for each figure.
    pub tables: Vec<Table>,
    /// The same as people read it, under a line that tells the unit; where that differs.
    pub wide: Vec<(String, Table)>,
    /// Notes on the figures.
    pub notes: Vec<String>,
    /// Errors, though the rest is there.
    pub failed: Vec<String>,
}

/// All surveys.
pub const SURVEYS: &[Survey] = &[
    memhammer::SURVEY,
    matrix::SURVEY,
    stream::SURVEY,
    core_to_core::SURVEY,
    sweep::BLOCK_COPY,
    sweep::PAGE_FAULTS,
    sweep::LOCKS,
    sweep::COUNTERS,
    sweep::ALLOCATORS,
    logical_reads::SURVEY,
];

/// A survey by its name.
pub fn find(name: &str) -> Option<&'static Survey> {
    SURVEYS.iter().find(|s| s.name == name)
}

/// A list of numbers, as in `1,2,4`.
fn numbers(letter: char, text: &str) -> Result<Vec<u64>, Failure> {
    let numbers: Option<Vec<u64>> = text.split(',').map(|w| crate::options::number(w.trim())).collect();
    numbers.filter(|n| n.iter().all(|&n| n > 0)).ok_or_else(|| {
        Failure::Usage(format!("-{letter} {text}: give numbers above 0 with commas between, as in 1,2,4"))
    })
}

/// Powers of two up to `most`, and `most` itself.
pub fn doubling(most: u64) -> Vec<u64> {
    let mut all: Vec<u64> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|&n| n < most).collect();
    all.push(most.max(1));
    all
}

/// Puts a list into an order that differs from run to run, so that nothing that changes with time is taken for
/// what changes from item to item.
pub(crate) fn shuffle<T>(list: &mut [T]) {
    let mut random = crate::random::Random::new(crate::runner::now() | 1);
    for i in (1..list.len()).rev() {
        list.swap(i, random.below(i + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_cases_and_letters_are_unique() {
        for survey in SURVEYS {
            assert!(crate::cases::find(survey.name).is_none(), "{}", survey.name);
            assert!(!survey.about.is_empty());
            let mut letters = std::collections::BTreeSet::new();
            assert!(survey.flags.iter().all(|f| letters.insert(f.letter)), "{}", survey.name);
        }
        assert!(find("stream").is_some() && find("no-such").is_none());
    }

    #[test]
    fn lists_are_numbers() {
        assert_eq!(numbers('t', "1, 2,4k"), Ok(vec![1, 2, 4096]));
        for wrong in ["", "0", "1,,2", "x"] {
            assert!(numbers('t', wrong).unwrap_err().to_string().contains("as in 1,2,4"), "{wrong}");
        }
        assert_eq!((doubling(1), doubling(4), doubling(6)), (vec![1], vec![1, 2, 4], vec![1, 2, 4, 6]));
    }

    #[test]
    fn a_shuffle_keeps_all() {
        let mut list: Vec<u32> = (0..100).collect();
        shuffle(&mut list);
        list.sort_unstable();
        assert!(list.iter().copied().eq(0..100));
    }
}
