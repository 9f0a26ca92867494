//! Memory: made, locked, freed, copied, cleared and scanned by several CPUs, and stacks and pages that do not compete.

mod areas;
pub mod blocks;
pub mod colours;
pub mod copy;
mod crew;
pub mod populate;
pub mod thread;
