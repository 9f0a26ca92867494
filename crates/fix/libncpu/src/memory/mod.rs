//! Memory: made, locked, freed, copied, cleared and scanned by several CPUs; stacks and pages that do not
//! compete for cache sets.

mod areas;
pub mod blocks;
pub mod colours;
pub mod copy;
mod crew;
pub mod populate;
pub mod thread;
