//! Counters: with a limit and without.

pub mod bounded;
pub mod counter;
