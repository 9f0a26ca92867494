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
//! | [`populate`], [`populate::Segment`] | memory made, locked and destroyed by several CPUs | docs/populate.md |
//! | [`blocks`] | large blocks zeroed, filled and scanned by the CPUs near them | docs/populate.md |
//! | [`copy`](mod@copy) | block copy and block zero by the processor's best routine | docs/copy.md |
//! | [`Counter`], [`Statistics`] | counts that are written all the time and read now and then | docs/bounded-counter.md |
//! | [`Timers`] | timers that expire on the CPU that armed them, a million at once | docs/timer-wheels.md |
//! | [`thread::Builder`] | threads whose stacks do not compete for the same sets | docs/stack-bias.md |
//! | [`env`] | the environment: read without locks while others change it | docs/getenv.md |
//! | [`Vmem`], [`Arena`] | ranges of integers: identifiers, ports, addresses | docs/vmem.md |

mod alarm;
mod areas;
pub mod arena;
mod backoff;
pub mod blocks;
pub mod bounded;
#[allow(clippy::undocumented_unsafe_blocks)] // Each function's safety section is its blocks'.
#[allow(non_camel_case_types)]
pub mod capi;
pub mod copy;
pub mod counter;
mod cpus;
mod crew;
pub mod env;
pub mod env_list;
mod held;
mod kernel;
mod magazine;
pub mod mcs;
pub mod mutex;
pub mod numa_lock;
mod objects;
pub mod percpu;
pub mod populate;
pub mod probe;
pub mod queue_mutex;
pub mod raw_mutex;
pub mod raw_rwlock;
pub mod raw_timer;
mod request;
pub mod robust;
pub mod rwlock;
pub mod sys;
pub mod thread;
pub mod timer;
mod topology;
mod turn;
pub mod vmem;
pub mod wheel;

pub use arena::Arena;
pub use bounded::BoundedCounter;
pub use counter::{Counter, Statistics};
pub use mutex::{Mutex, MutexGuard};
pub use percpu::{OutOfMemory, PerCpu};
pub use queue_mutex::{McsMutex, NumaMutex};
pub use raw_mutex::RawMutex;
pub use request::{Constraints, Error, Policy};
pub use robust::{NotTaken, RobustMutex, Taken};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use timer::{RawTimer, Timer, Timers, When};
pub use vmem::Vmem;
