//! How memory grew, whether it was short, and what tasks stood still for.

use ncpu_schema::{memory_change, memory_events, pressure};
use ncpu_table::size;

use std::fmt;

use super::Context;
use super::kinds::{
    Amount, Bytes, Counted, Evidence, FragmentedMemory, MachineMemory, MemoryGrowth, Pressure, Share,
};
use super::limits::{REFAULTS, memory_short};

fn event(context: &Context<'_>, name: &str) -> u64 {
    let Ok(Some(t)) = memory_events::Reader::open(context.recording) else { return 0 };
    super::total(t.rows().filter(|&r| t.event.get(r) == Some(name)).filter_map(|r| t.count.get(r)))
}

/// The most that the machine's memory grew by, if that is enough to mention.
pub(super) fn memory_grown(context: &Context<'_>) -> Option<MemoryGrowth> {
    const WORTH: u64 = 64 << 20;
    let t = memory_change::Reader::open(context.recording).ok()??;
    let grown = |class: &str| {
        let row = t.rows().find(|&r| t.class.get(r) == Some(class))?;
        Some(t.most.get(row)?.saturating_sub(t.before.get(row)?))
    };
    let mut parts: Vec<(u64, &str)> = [
        ("AnonPages", "anonymous memory"),
        ("Shmem", "shared memory"),
        ("Cached", "page cache"),
        ("Slab", "slab"),
        ("PageTables", "page tables"),
    ]
    .into_iter()
    .filter_map(|(class, name)| Some((grown(class)?, name)))
    .filter(|(n, _)| *n >= WORTH)
    .collect();
    parts.sort_unstable_by(|a, b| b.cmp(a));
    let classes: Vec<Amount> =
        parts.iter().take(3).map(|(n, name)| Amount { name: (*name).into(), bytes: Bytes(*n) }).collect();
    (!classes.is_empty()).then(|| MemoryGrowth { classes, huge_pages: event(context, "thp_fault_alloc") })
}

impl fmt::Display for MemoryGrowth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes: Vec<String> =
            self.classes.iter().map(|c| format!("{} {}", c.name, size::words(c.bytes.0))).collect();
        write!(f, "the machine's memory grew by up to: {}", classes.join(", "))?;
        match self.huge_pages {
            0 => Ok(()),
            n => write!(f, "; {n} huge pages given out"),
        }
    }
}

/// Events that show that the machine's memory was short, and what each means.
const SHORT: [(&str, &str); 4] = [
    ("allocstall", "allocations had to free memory first"),
    ("pswpout", "pages were swapped out"),
    ("pswpin", "pages were swapped in"),
    ("workingset_refault", "pages were read again soon after they were dropped"),
];

impl fmt::Display for MachineMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |e: &Counted| {
            let meaning = SHORT.iter().find(|(name, _)| *name == e.name).map_or(&*e.name, |(_, words)| words);
            format!("{} {meaning}", e.count)
        };
        let events: Vec<String> = self.events.iter().map(words).collect();
        write!(f, "the machine's memory was short: {}", events.join(", "))
    }
}

impl fmt::Display for FragmentedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "free memory was in pieces: {} allocations had to move pages first", self.count)
    }
}

/// Shortage of memory, of a control group at its limit or of the machine, and how the kernel got at more.
pub(super) fn reclaim(context: &Context<'_>) -> Vec<Evidence> {
    const PER_SECOND: f64 = 3.0;
    let often = |name: &str| event(context, name) as f64 >= PER_SECOND * context.elapsed;
    let mut out: Vec<Evidence> = memory_short(context).map(Evidence::from).into_iter().collect();
    // The kernel counts these for the machine's own sake alone, and not where a group has reached its limit.
    let scanned = event(context, "pgscan_kswapd") + event(context, "pgscan_direct");
    let stalled = match stalled(context, "memory", "some") {
        Some(share) => share >= 1.0,
        // Without pressure information: threads had to free memory themselves, or to wait for what was swapped out.
        None => often("allocstall") || often("pswpin"),
    };
    let many = SHORT.iter().filter(|(name, _)| often(name));
    let events: Vec<Counted> =
        many.map(|(name, _)| Counted { name: (*name).into(), count: event(context, name) }).collect();
    if stalled && scanned as f64 >= REFAULTS * context.elapsed && !events.is_empty() {
        out.push(MachineMemory { events }.into());
    }
    if often("compact_stall") {
        out.push(FragmentedMemory { count: event(context, "compact_stall") }.into());
    }
    out
}

/// Percent of the time for which some or all tasks stood still for a resource; `None` where the kernel does not tell.
fn stalled(context: &Context<'_>, resource: &str, kind: &str) -> Option<f64> {
    let t = pressure::Reader::open(context.recording).ok()??;
    let row = t.rows().find(|&r| t.resource.get(r) == Some(resource) && t.kind.get(r) == Some(kind))?;
    Some(100.0 * t.seconds.get(row)? / context.elapsed.max(f64::MIN_POSITIVE))
}

/// How long tasks of the machine stalled because a resource was short, if that is long enough to mention.
pub(super) fn pressure(context: &Context<'_>, resource: &str) -> Option<Pressure> {
    let share = |kind: &str| stalled(context, resource, kind).filter(|s| *s >= 1.0).map(|s| Share(s / 100.0));
    Some(Pressure { resource: resource.into(), some: share("some")?, all: share("full") })
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.resource == "io" { "I/O" } else { &self.resource };
        let some = self.some.percent();
        write!(f, "pressure: some task stood still for {name} in {some:.0} % of the time")?;
        self.all.map_or(Ok(()), |all| write!(f, ", all in {:.0} %", all.percent()))
    }
}
