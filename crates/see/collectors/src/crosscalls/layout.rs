//! Types that the BPF programs write (crosscalls.h): the skeleton's own.

use super::skel::types;
use crate::bpf_support::Plain;
use crate::bpf_support::ring::same_records;
use crate::names::call_name;

/// Causes, in the order of `enum cause`.
pub(super) const CAUSES: [&str; 4] = ["TLB shootdown", "reschedule", "function call", "irq work"];
pub(super) const TLB: usize = 0;
pub(super) const CALL: usize = 2;
/// `tgid` of senders that are not the program's.
pub(super) const OTHERS: u32 = u32::MAX;
pub(super) const BUCKETS: usize = 14;
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

/// Counts of a CPU.
pub(super) use types::cpu as Cpu;
/// Calls of one kind, from one place.
pub(super) use types::row as Row;

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
            0.. => call_name(nr as u32),
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

// SAFETY: integers and arrays of integers only.
unsafe impl Plain for Row {}
// SAFETY: integers and arrays of them, and structs of such.
unsafe impl Plain for Cpu {}

same_records!(super::skel::types);

#[cfg(test)]
mod tests {
    use super::*;

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
