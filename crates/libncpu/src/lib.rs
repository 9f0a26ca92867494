//! Synchronisation primitives for machines with many CPUs, in Rust and C (`include/ncpu.h`).
//!
//! Linux only, x86-64 and AArch64; needs nothing but libc.
//!
//! | type | job | page |
//! | --- | --- | --- |
//! | [`Mutex`] | mutual exclusion: spins while the owner runs, sleeps otherwise | docs/mutex.md |
//! | [`RobustMutex`] | mutual exclusion that survives an owner's death, also between processes | docs/mutex.md |
//! | [`McsMutex`], [`NumaMutex`] | queue locks: first come, first served; by NUMA node | docs/queue-locks.md |
//! | [`RwLock`] | readers on different CPUs share nothing | docs/rwlock.md |
//! | [`BoundedCounter`] | a limit that is never passed, credit that is never overlooked | docs/bounded-counter.md |
//! | [`Counter`], [`Statistics`] | counts that are written all the time and read now and then | docs/bounded-counter.md |
//! | [`Vmem`], [`Arena`] | ranges of integers: identifiers, ports, addresses | docs/vmem.md |

pub mod arena;
mod backoff;
pub mod bounded;
#[allow(clippy::undocumented_unsafe_blocks)] // Each function's safety section is its blocks'.
#[allow(non_camel_case_types)]
pub mod capi;
pub mod counter;
mod magazine;
pub mod mcs;
pub mod mutex;
pub mod numa_lock;
mod objects;
pub mod percpu;
pub mod probe;
pub mod queue_mutex;
pub mod raw_mutex;
pub mod raw_rwlock;
mod request;
pub mod robust;
pub mod rwlock;
pub mod sys;
mod topology;
mod turn;
pub mod vmem;

pub use arena::Arena;
pub use bounded::BoundedCounter;
pub use counter::{Counter, Statistics};
pub use mutex::{Mutex, MutexGuard};
pub use percpu::{OutOfMemory, PerCpu};
pub use queue_mutex::{McsMutex, NumaMutex};
pub use raw_mutex::RawMutex;
pub use request::{Constraints, Error, Policy};
pub use robust::{RobustMutex, Taken};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use vmem::Vmem;
