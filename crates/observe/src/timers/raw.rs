//! The layout of what the programs of `src/bpf/timers.bpf.c` write; mirrors `src/bpf/timers.h`.

use crate::engine::raw::Plain;

/// `KIND_HRTIMER`: a timer of high resolution; else one of the timer wheel.
pub const KIND_HRTIMER: u32 = 1;

/// `TGID_INTERRUPT`: armed by an interrupt.
pub const TGID_INTERRUPT: u32 = u32::MAX;

/// `struct timer_row`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct TimerRow {
    pub function: u64,
    pub stack: u64,
    pub tgid: u32,
    pub kind: u32,
    pub starts: u64,
    pub cancels: u64,
    pub expires: u64,
    pub distance: u64,
    pub distance_min: u64,
    pub distance_max: u64,
    pub handler: u64,
    pub handler_max: u64,
    pub comm: [u8; 16],
    pub weight: u64,
}

/// `struct counters`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(128))]
pub struct Counters {
    pub starts: u64,
    pub drop_row: u64,
    pub drop_armed: u64,
    pub drop_ring: u64,
    handlers: [u64; 6],
}

/// Number of `enum doing`.
pub const DOINGS: usize = 20;

/// `struct cpu_doing`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(128))]
pub struct CpuDoing {
    pub last: u64,
    task: u64,
    pub at: [u64; DOINGS],
    base: u32,
    depth: u32,
    nest: [u8; 8],
    pub ticks: u64,
    pub jiffies: u64,
    jiffies_before: u64,
    pub drop: u64,
}

impl CpuDoing {
    /// What it is at now; the mirror of `charge()`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_matches_the_header() {
        assert_eq!(size_of::<TimerRow>(), 112);
        assert_eq!(size_of::<Counters>(), 128);
        assert_eq!(size_of::<CpuDoing>(), 256);
    }
}
