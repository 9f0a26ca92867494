//! Locks for threads and for processes, with and without the data that they protect.

mod backoff;
pub mod condvar;
mod gate;
pub mod mcs;
pub mod mutex;
pub mod numa_lock;
pub mod probe;
pub mod queue_mutex;
pub mod raw_mutex;
pub mod raw_rwlock;
pub mod robust;
pub mod rwlock;
mod turn;
