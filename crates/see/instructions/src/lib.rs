//! What a sampled instruction waited for, without hardware counters.
//!
//! A timer's interrupt is taken when the oldest instruction in flight has ended, so a sample falls on the instruction right after the
//! one that waited. [`Code`] decodes a function and says which instruction that was, in which basic block, and where its operand
//! lies by the registers of the sample. All instructions of a basic block run equally often, so the samples that one of them has beyond
//! the others are its stall ([`stalls`]; Anderson and others, "Continuous profiling: where have all the cycles gone?", SOSP '97).
//!
//! Code and registers are of others' programs: whatever they hold, nothing here panics, and work is bounded by the length of the code.
//!
//! A [`Machine`] names the processor that the code is for, on whichever processor this runs. Its decoder gives each instruction as one
//! `Decoded`, and all else is common:
//!
//! - x86-64 by `iced-x86`, which knows of each instruction what it reads and writes.
//! - AArch64 by `disarm64`, whose tables name an instruction, its class and its operands' fields; `aarch64` here knows what these mean. It
//!   was compared with `yaxpeax-arm` 0.5 on the 73,704 different words of a Debian glibc's code: `disarm64` decodes all of them, `yaxpeax-arm` none
//!   of SVE, and it has aliases in place of instructions (`mov` may be `orr`, `add`, `ins`, `movz`). Its decoder is a tree of comparisons without
//!   loops, indices from outside or `unsafe`, so no word can make it panic; it is maintained, and under MIT or the Unlicense.

mod aarch64;
mod code;
mod decoded;
mod decoder;
mod exits;
pub mod lines;
mod machine;
mod operand;
pub mod registers;
mod spin;
mod stall;
mod text;
mod x86_64;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_aarch64;

pub use code::{Code, Instruction, Waited};
pub use decoded::{Kind, Text};
pub use decoder::{entry, exits, first_return, may_have_a_probe};
pub use exits::Exits;
pub use machine::Machine;
pub use operand::{Address, Operand, Stale};
pub use registers::{Called, Registers};
pub use spin::pauses;
pub use stall::stalls;
pub use text::text;
