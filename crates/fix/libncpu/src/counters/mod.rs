//! Counters with and without a limit.

pub mod bounded;
pub mod counter;
