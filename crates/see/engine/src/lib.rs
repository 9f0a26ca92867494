//! The engine: one set of BPF programs for the states of CPUs, threads and locks ([`engine`]); observations made with it
//! ([`observation`]); and observations without BPF, for ordinary users ([`unprivileged`]).

// Each module finds these below `crate`.
use ncpu_collectors::{counters, cpus, lock_names, numa};
use ncpu_observe_core::{bpf_support, names, program};

pub mod engine;
pub mod observation;
pub mod unprivileged;
