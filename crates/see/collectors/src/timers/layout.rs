//! Types that the programs of `timers.bpf.c` write (timers.h): the skeleton's own.

use super::skel::types;
use crate::bpf_support::Plain;
use crate::bpf_support::ring::same_records;

/// `KIND_HRTIMER`: a timer of high resolution; else one of the timer wheel.
pub const KIND_HRTIMER: u32 = 1;

/// `TGID_INTERRUPT`: armed by an interrupt.
pub const TGID_INTERRUPT: u32 = u32::MAX;

/// Counts of each CPU's own work.
pub use types::counters as Counters;
/// Activity of a CPU.
pub use types::cpu_doing as CpuDoing;
/// Starts of timers of one kind, from one place.
pub use types::timer_row as TimerRow;

/// Number of `enum doing`.
pub const DOINGS: usize = ncpu_schema::Doing::ALL.len();

impl CpuDoing {
    /// Its activity at this moment; the mirror of `charge()`.
    pub fn now_at(&self) -> usize {
        match self.depth as usize {
            depth @ 1..=8 => self.nest[depth - 1].into(),
            _ => self.base as usize,
        }
    }
}

// SAFETY: integers and arrays of integers only.
unsafe impl Plain for TimerRow {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for Counters {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for CpuDoing {}

same_records!(super::skel::types);
const _: () = assert!(size_of::<CpuDoing>() >= size_of::<[u64; DOINGS]>());
