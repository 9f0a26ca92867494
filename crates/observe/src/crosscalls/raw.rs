//! The layout of what the BPF programs write; mirrors `src/bpf/crosscalls.h`.

use crate::engine::raw::Plain;

/// Causes, in the order of `enum cause`.
pub(super) const CAUSES: [&str; 4] = ["TLB shootdown", "reschedule", "function call", "irq work"];
pub(super) const TLB: usize = 0;
pub(super) const CALL: usize = 2;
/// `tgid` of senders that are not the program's.
pub(super) const OTHERS: u32 = u32::MAX;
pub(super) const BUCKETS: usize = 14;
const REASONS: usize = 8;
const RECEIVED: u64 = 0x100;

/// `enum tlb_flush_reason` of include/linux/mm_types.h, in the kernel's own words.
pub(super) const FLUSHES: [&str; 6] = [
    "flush on task switch",
    "remote shootdown",
    "local shootdown",
    "local MM shootdown",
    "remote IPI send",
    "remote wrong CPU",
];

/// `struct row`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Row {
    pub who: u64,
    pub func: u64,
    pub stack: u64,
    pub calls: u64,
    pub targets: u64,
    pub ipis: u64,
    pub packages: u64,
    pub wait: u64,
    pub timed: u64,
    pub waited: u64,
    pub max: u64,
    pub longest: u64,
    pub comm: [u8; 16],
}

impl Row {
    pub fn tgid(&self) -> u32 {
        (self.who >> 32) as u32
    }

    pub fn cause(&self) -> usize {
        (self.who & 3) as usize
    }

    pub fn received(&self) -> bool {
        self.who & RECEIVED != 0
    }

    /// The system call the sender was in, or what else it was at.
    pub fn place(&self) -> String {
        let nr = (self.who >> 16) as i16;
        match nr {
            0.. => crate::observation::call_name(nr as u32),
            -2 => "[interrupt]".into(),
            -3 => "[softirq]".into(),
            -4 => "[fault]".into(),
            -5 => "[kernel thread]".into(),
            -6 => "[idle]".into(),
            _ => "[any]".into(),
        }
    }

    /// ns waited in all: what was timed stands for the rest.
    pub fn wait_estimate(&self) -> u64 {
        if self.received() {
            return self.wait;
        }
        (self.wait as f64 * self.waited as f64 / self.timed.max(1) as f64) as u64
    }
}

/// `struct sent`, of which nothing is read.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Sent {
    head: [u64; 6],
    packages: [u64; 4],
    waits: [[u64; 16]; 4],
}

/// `struct cpu`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Cpu {
    since: u64,
    func: u64,
    cause: u32,
    counted: u32,
    hard: u32,
    soft: u32,
    pub dropped_rows: u64,
    pub dropped_stacks: u64,
    pub samples: u64,
    pub waiting: u64,
    pub fanout: [[u64; BUCKETS]; 4],
    pub flushes: [u64; REASONS],
    pub pages: [u64; REASONS],
    pub whole: [u64; REASONS],
    sent: [Sent; 3],
}

// SAFETY: integers and arrays of integers only.
unsafe impl Plain for Row {}
// SAFETY: integers and arrays of integers only.
unsafe impl Plain for Cpu {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_matches_the_header() {
        assert_eq!(size_of::<Row>(), 112);
        assert_eq!(size_of::<Sent>(), 48 + 32 + 512);
        assert_eq!(size_of::<Cpu>(), 2560);
    }

    #[test]
    fn a_rows_key_is_read_as_the_kernel_side_packs_it() {
        let row = |tgid: u64, place: i16, rest: u64| Row {
            who: tgid << 32 | u64::from(place as u16) << 16 | 0x8000 | rest,
            ..Row::default()
        };
        let sent = row(4711, -2, 3);
        assert_eq!((sent.tgid(), sent.cause(), sent.received()), (4711, 3, false));
        assert_eq!(sent.place(), "[interrupt]");
        assert!(row(0, -1, 0x100).received());
    }

    #[test]
    fn waits_not_timed_are_like_those_that_were() {
        let row = Row { wait: 300, timed: 3, waited: 10, ..Row::default() };
        assert_eq!(row.wait_estimate(), 1000);
        assert_eq!(Row { waited: 10, ..Row::default() }.wait_estimate(), 0);
    }
}
