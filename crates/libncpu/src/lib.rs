//! Synchronisation primitives for machines with many CPUs, in Rust and C (`include/ncpu.h`).
//!
//! Linux only, x86-64 and AArch64; needs nothing but libc.
//!
//! | type | job | page |
//! | --- | --- | --- |
//! | [`Mutex`] | mutual exclusion: spins while the owner runs, sleeps otherwise | docs/mutex.md |
//! | [`RobustMutex`] | mutual exclusion that survives an owner's death, also between processes | docs/mutex.md |

mod backoff;
#[allow(clippy::undocumented_unsafe_blocks)] // Each function's safety section is its blocks'.
#[allow(non_camel_case_types)]
pub mod capi;
pub mod mutex;
pub mod probe;
pub mod raw_mutex;
pub mod robust;
pub mod sys;

pub use mutex::{Mutex, MutexGuard};
pub use raw_mutex::RawMutex;
pub use robust::{RobustMutex, Taken};
