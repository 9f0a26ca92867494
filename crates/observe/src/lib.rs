//! Live collectors and their BPF programs.

pub mod cpus;
pub mod engine;
pub mod observation;
pub mod symbols;
pub mod timers;
