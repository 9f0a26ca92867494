//! Live collectors and their BPF programs.

pub mod engine;
pub mod symbols;
