//! Synchronisation primitives for machines with many CPUs. Package `libncpu-c` has them for C.
//!
//! Linux only, x86-64 and AArch64; needs nothing but libc.
//!
//! | type | job | page |
//! | --- | --- | --- |
//! | [`Mutex`] | mutual exclusion: spins while the owner runs, sleeps otherwise | docs/mutex.md |
//! | [`Condvar`] | waiting for what a mutex protects to change | docs/mutex.md |
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
//! | [`colours::Pages`] | pages of all cache colours in turn | docs/colour.md |
//! | [`env`] | the environment: read without locks while others change it | docs/getenv.md |
//! | [`Vmem`], [`Arena`] | ranges of integers: identifiers, ports, addresses | docs/vmem.md |

pub mod counters;
pub mod environment;
pub mod locks;
pub mod memory;
pub mod percpu;
pub mod ranges;
mod sys;
pub mod timers;

pub use counters::bounded::BoundedCounter;
pub use counters::counter::{Counter, Statistics};
pub use environment::env;
pub use locks::condvar::Condvar;
pub use locks::mutex::{Mutex, MutexGuard};
pub use locks::queue_mutex::{McsMutex, NumaMutex};
pub use locks::raw_mutex::RawMutex;
pub use locks::robust::{NotTaken, RobustMutex, Taken};
pub use locks::rwlock::{ReadGuard, RwLock, UpgradableGuard, WriteGuard};
pub use memory::{blocks, colours, copy, populate, thread};
pub use percpu::{OutOfMemory, PerCpu};
pub use ranges::arena::{self, Arena};
pub use ranges::request::{Constraints, Error, Policy};
pub use ranges::vmem::{self, Vmem};
pub use sys::Instant;
pub use timers::timer::{self, RawTimer, Timer, Timers, When};

/// The internals that this library's own tests and benchmarks need. Not part of its interface.
#[doc(hidden)]
pub mod innards {
    pub use crate::sys::{Alarm, Topology, bind, clock, heavy_barrier, locks_by_rseq, topology};
}
