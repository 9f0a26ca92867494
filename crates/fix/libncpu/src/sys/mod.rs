//! The only module that uses the machine: futexes, barriers, clocks, CPUs, threads, forks.
//!
//! The algorithms import what they need from `crate::sys` only. The model checker's build (`tests/models`) compiles
//! the same algorithm sources against another `sys`. The modules below never import this one, nor any algorithm.

mod alarm;
mod barrier;
mod clock;
mod cpu;
pub(crate) mod cpus;
mod fork;
mod futex;
pub(crate) mod kernel;
mod rseq;
mod thread;
mod topology;

pub use alarm::Alarm;
pub use barrier::{fence_rseq, heavy_barrier, light_barrier, without_barrier};
pub use clock::{Instant, clock};
pub use cpu::{
    bind, cpu_and_node, cpus, demands_unwoken, here, in_window, node, pause, pauses_per_us, topology,
};
pub use fork::{Forked, forks, join, leave, once_forked, watch_forks};
pub use futex::{ALL, Futex, Wait, wake_at};
pub use rseq::{add_here, cpu, cpu_or_thread, lock_here, locks_by_rseq};
pub use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub use thread::{Helper, Serve, alone, settle, thread_id, thread_lives, yield_now};
pub use topology::Topology;
