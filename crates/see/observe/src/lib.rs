//! Live collectors and their BPF programs.

pub mod accesses;
pub mod bpf_support;
pub mod counters;
pub mod cpus;
pub mod crosscalls;
pub mod engine;
pub mod lock_names;
pub mod memory;
mod names;
pub mod numa;
pub mod observation;
pub mod program;
pub mod timers;
pub mod unprivileged;
