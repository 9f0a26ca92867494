//! Live collectors and their BPF programs.

pub mod accesses;
pub mod cpus;
pub mod crosscalls;
pub mod engine;
pub mod hardware;
mod libbpf_log;
mod load;
pub mod memory;
pub mod numa;
pub mod observation;
mod perf_event;
pub mod symbols;
pub mod timers;
