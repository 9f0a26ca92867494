//! Collectors that work alone, a directory each, with their BPF programs.

// Each module finds these below `crate`.
use ncpu_observe_core::{bpf_support, names, program};

pub mod accesses;
pub mod counters;
pub mod cpus;
pub mod crosscalls;
pub mod doses;
pub mod lock_names;
pub mod memory;
pub mod numa;
pub mod timers;
