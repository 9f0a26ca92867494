//! All benchmarks.

mod accept;
mod cache;
mod cascade;
mod common;
mod copy;
mod counters;
mod faults;
mod files;
mod futex;
mod heap;
mod jumps;
mod locks;
mod memory;
mod pipes;
mod polls;
mod primitives;
mod process;
mod scarce;
mod shm;
mod signals;
mod sockets;
mod spawn;
pub(crate) mod spin;
mod strings;
mod switch;

use crate::case::Case;

/// All cases, by name.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        process::CASES,
        strings::CASES,
        scarce::CASES,
        accept::CASES,
        shm::CASES,
        copy::CASES,
        faults::CASES,
        switch::CASES,
        primitives::CASES,
        counters::CASES,
        heap::CASES,
        memory::CASES,
        files::CASES,
        sockets::CASES,
        polls::CASES,
        pipes::CASES,
        locks::CASES,
        cascade::CASES,
        cache::CASES,
        signals::CASES,
        jumps::CASES,
        spawn::CASES,
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
