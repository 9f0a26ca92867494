//! CPU demand per thread, shared by observers and by the placement of threads.

/// A thread, and its CPU demand so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The process that started its process.
    pub parent: u32,
    /// The CPU it runs on, or ran on last.
    pub cpu: u32,
    /// Nanoseconds on a CPU and waiting for one.
    pub spent: u64,
}
