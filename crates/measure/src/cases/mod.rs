//! The benchmarks there are.

mod accept;
mod copy;
mod counters;
mod documents;
mod faults;
mod futex;
mod heap;
mod primitives;
mod process;
mod shm;
mod spin;
mod strings;
mod switch;

use crate::case::Case;

/// All cases, by name.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        process::CASES,
        strings::CASES,
        documents::CASES,
        accept::CASES,
        shm::CASES,
        copy::CASES,
        faults::CASES,
        switch::CASES,
        primitives::CASES,
        counters::CASES,
        heap::CASES,
    ]
    .into_iter()
    .flatten()
}

/// A case by its name.
pub fn find(name: &str) -> Option<&'static Case> {
    all().find(|c| c.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_told_about() {
        let mut names = std::collections::BTreeSet::new();
        for case in all() {
            assert!(names.insert(case.name), "{} twice", case.name);
            assert!(!case.about.is_empty(), "{}", case.name);
            let mut letters = std::collections::BTreeSet::new();
            assert!(case.flags.iter().all(|f| letters.insert(f.letter)), "{}: a letter twice", case.name);
        }
    }
}
