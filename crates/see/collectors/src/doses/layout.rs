//! Types that the programs of `doses.bpf.c` write (doses.h): the skeleton's own.

use super::skel::types;
use crate::bpf_support::Plain;

/// `CALLS`: system calls below this number are counted apart.
pub const CALLS: usize = 512;
/// `LOCKS_A_CPU`: locks that a survey counts on a CPU.
pub const LOCKS_A_CPU: usize = 1024;
/// `CHOSEN_LOCKS`: locks that a dose is for.
pub const CHOSEN_LOCKS: usize = 4096;

/// A system call, on a CPU.
pub use types::dose_call as CallRow;
/// A contended lock, on a CPU.
pub use types::dose_lock as LockRow;
/// Counts of a CPU.
pub use types::dose_slot as Slot;

// SAFETY: integers only.
unsafe impl Plain for Slot {}
// SAFETY: integers only.
unsafe impl Plain for CallRow {}
// SAFETY: integers only.
unsafe impl Plain for LockRow {}
