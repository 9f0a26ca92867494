//! What a sampled instruction waited for, without hardware counters.
//!
//! A timer's interrupt is taken when the oldest instruction in flight has ended, so a sample falls on the instruction right after the
//! one that waited. [`Code`] decodes a function and says which instruction that was, in which basic block, and where its operand
//! lies by the registers of the sample. All instructions of a basic block run equally often, so the samples that one of them has beyond
//! the others are its stall ([`stalls`]; Anderson and others, "Continuous profiling: where have all the cycles gone?", SOSP '97).
//!
//! Code and registers are of others' programs: whatever they hold, nothing here panics, and work is bounded by the length of the code.
//! Decodes x86-64.

mod code;
mod exits;
mod operand;
mod spin;
mod stall;

#[cfg(test)]
mod tests;

pub use code::{Code, Instruction, Kind, Waited};
pub use exits::{Exits, entry, exits, first_return};
pub use operand::{Address, Called, Operand, Registers, Stale};
pub use stall::stalls;
