//! What threads want of the machine's CPUs: who observes it and who places threads by it share its form.

/// A thread, and what it has wanted of CPUs so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The process that started its process.
    pub parent: u32,
    /// The CPU it is on, or was last.
    pub cpu: u32,
    /// Nanoseconds on a CPU and waiting for one.
    pub spent: u64,
}
