//! How long those waited that were first in a lock's queue, as the BPF programs counted them.

use std::collections::HashMap;

use super::layout::{FirstSlot, KIND_FUTEX, KIND_USER, OTHERS, UserLock, quarter};
use super::{Engine, layout};

/// Such waits for a lock, of lengths in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstWaits {
    /// Address of the lock; `OTHERS` of all waits for whose lengths there was no room, which are in no bin.
    pub lock: u64,
    /// The process that owns the lock; 0 for the kernel's.
    pub tgid: u32,
    /// Kind of lock.
    pub kind: FirstOf,
    /// Waiters before it that no tracepoint reports.
    pub ahead: u32,
    /// ns from which on waits are in this bin, and up to which.
    pub from: u64,
    /// Waits of `to` ns are in the next.
    pub to: u64,
    /// Waits.
    pub count: u64,
}

/// Kind of lock that a first waiter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FirstOf {
    /// A lock of the kernel, with the tracepoint's flags (`LCB_F_*`).
    Kernel(u32),
    /// A futex.
    Futex,
    /// A traced user lock.
    Traced(UserLock),
}

impl Default for FirstOf {
    fn default() -> FirstOf {
        FirstOf::Kernel(0)
    }
}

impl FirstWaits {
    /// The bin `part` (0 to 3) of a row, without what was counted.
    fn of(row: &FirstSlot, part: u64) -> FirstWaits {
        let (from, to) = quarter((row.octave & 0xff) as u32, part);
        let kind = match row.kind {
            kind if kind & KIND_FUTEX != 0 => FirstOf::Futex,
            kind if kind & KIND_USER != 0 => FirstOf::Traced(UserLock::from(kind & 0xff)),
            flags => FirstOf::Kernel(flags),
        };
        FirstWaits {
            lock: row.lock,
            tgid: row.tgid,
            kind,
            ahead: (row.octave >> 8).saturating_sub(1) as u32,
            // Those below 4 ns count as 4.
            from: if from == 4 { 0 } else { from },
            to,
            count: 0,
        }
    }
}

impl Engine {
    /// Takes those of one half of the table out of it, and counts those that found no room there.
    pub(super) fn first_waits(&mut self, half: usize) -> Vec<FirstWaits> {
        let mut sums: HashMap<(u64, u64, u32, u32, u64), FirstWaits> = HashMap::new();
        let rows = layout::of_half(self.tables.first_waits.len(), half);
        for row in self.tables.first_waits.take(rows) {
            for (part, count) in (0u64..).zip(row.count).filter(|(_, count)| *count > 0) {
                let key = (row.lock, row.octave, row.tgid, row.kind, part);
                sums.entry(key).or_insert_with(|| FirstWaits::of(&row, part)).count += u64::from(count);
            }
        }
        let mut all: Vec<FirstWaits> = sums.into_values().collect();
        let others: u64 =
            (0..self.tables.slots.len()).map(|cpu| self.tables.slots.get(cpu).other_first).sum();
        let count = others.saturating_sub(std::mem::replace(&mut self.first_others, others));
        if count > 0 {
            all.push(FirstWaits { lock: OTHERS, count, ..FirstWaits::default() });
        }
        all.sort_by_key(|w| (w.lock, w.tgid, w.kind, w.ahead, w.from));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_one_another() {
        let mut end = 0;
        for octave in 2..40 {
            for part in 0..4 {
                let row = FirstSlot { octave: octave | 2 << 8, ..FirstSlot::default() };
                let bin = FirstWaits::of(&row, part);
                assert_eq!((bin.from, bin.ahead), (end, 1));
                end = bin.to;
            }
        }
        assert_eq!(end, 1 << 40);
    }
}
