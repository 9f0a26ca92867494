//! Counts and times of interrupts by kind.

use std::ops::AddAssign;

use ncpu_schema::InterruptKind;

use super::layout::IrqRow;

/// `IRQ_REST`, `IRQ_SOFT`, `IRQ_DEVICE` and `IRQ_KINDS` of engine.h.
const REST: usize = 5;
const SOFT: usize = 6;
const DEVICE: usize = 16;

/// Softirqs by number, as /proc/softirqs names them.
const SOFTIRQS: [&str; DEVICE - SOFT] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

/// A source of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// One of the kinds that have no devices.
    Kind(InterruptKind),
    /// A softirq, by name.
    Softirq(&'static str),
    /// The interrupt of a device, by number; `None` stands for those for which there was no room.
    Device(Option<u32>),
}

/// How often, and for how long: of ncpu's own and of all others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    /// Interrupts, without ncpu's own.
    pub count: u64,
    /// ns in them.
    pub ns: u64,
    /// Interrupts that ncpu raised itself.
    pub own: u64,
    /// ns in those.
    pub own_ns: u64,
    /// Of both times, ns before the handlers.
    pub entry_ns: u64,
}

impl AddAssign for Served {
    fn add_assign(&mut self, other: Served) {
        self.count += other.count;
        self.ns += other.ns;
        self.own += other.own;
        self.own_ns += other.own_ns;
        self.entry_ns += other.entry_ns;
    }
}

impl Served {
    /// The difference to `before`. A wake-up of ncpu may turn an interrupt of others into one of its own.
    pub fn since(self, before: Served) -> Served {
        Served {
            count: self.count.saturating_sub(before.count),
            ns: self.ns.saturating_sub(before.ns),
            own: self.own.saturating_sub(before.own),
            own_ns: self.own_ns.saturating_sub(before.own_ns),
            entry_ns: self.entry_ns.saturating_sub(before.entry_ns),
        }
    }
}

/// The source that a row of a CPU's slot counts; `None` for a row that is free.
pub(super) fn source(row: usize, number: u32) -> Option<Source> {
    match row {
        0..REST => InterruptKind::ALL.get(row).map(|kind| Source::Kind(*kind)),
        REST => Some(Source::Device(None)),
        SOFT..DEVICE => SOFTIRQS.get(row - SOFT).map(|name| Source::Softirq(name)),
        _ => number.checked_sub(1).map(|number| Source::Device(Some(number))),
    }
}

/// The difference between a row and the same row when the observation began.
pub(super) fn since(now: &IrqRow, start: &IrqRow) -> Served {
    let of = |row: &IrqRow| Served {
        count: row.count.into(),
        ns: row.ns,
        own: row.own.into(),
        own_ns: row.own_ns,
        entry_ns: row.entry_ns,
    };
    of(now).since(of(start))
}
