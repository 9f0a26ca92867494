//! How memory grew, whether it was short, and what tasks stood still for.

use ncpu_schema::{memory_change, memory_events, pressure};
use ncpu_table::size;

use super::Context;
use super::limits::{REFAULTS, memory_short};

fn event(context: &Context<'_>, name: &str) -> u64 {
    let Ok(Some(t)) = memory_events::Reader::open(context.recording) else { return 0 };
    t.rows().filter(|&r| t.event.get(r) == Some(name)).filter_map(|r| t.count.get(r)).sum()
}

/// The most that the machine's memory grew by, if that is enough to mention.
pub(super) fn memory_grown(context: &Context<'_>) -> Option<String> {
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
    let told: Vec<String> =
        parts.iter().take(3).map(|(n, name)| format!("{name} {}", size::words(*n))).collect();
    let huge = match event(context, "thp_fault_alloc") {
        0 => String::new(),
        n => format!("; {n} huge pages given out"),
    };
    (!told.is_empty()).then(|| format!("the machine's memory grew by up to: {}{huge}", told.join(", ")))
}

/// Shortage of memory, of a control group at its limit or of the machine, and how the kernel got at more.
pub(super) fn reclaim(context: &Context<'_>) -> Vec<String> {
    const PER_SECOND: f64 = 3.0;
    let often = |name: &str| event(context, name) as f64 >= PER_SECOND * context.elapsed;
    let mut out: Vec<String> =
        memory_short(context).map(|short| short.told(context.elapsed)).into_iter().collect();
    // The kernel counts these for the machine's own sake alone, and not where a group has reached its limit.
    let scanned = event(context, "pgscan_kswapd") + event(context, "pgscan_direct");
    let stalled = match stalled(context, "memory", "some") {
        Some(share) => share >= 1.0,
        // Without pressure information: threads had to free memory themselves, or to wait for what was swapped out.
        None => often("allocstall") || often("pswpin"),
    };
    let parts = [
        ("allocstall", "allocations had to free memory first"),
        ("pswpout", "pages were swapped out"),
        ("pswpin", "pages were swapped in"),
        ("workingset_refault", "pages were read again soon after they were dropped"),
    ];
    let told: Vec<String> = parts
        .iter()
        .filter(|(name, _)| often(name))
        .map(|(name, words)| format!("{} {words}", event(context, name)))
        .collect();
    if stalled && scanned as f64 >= REFAULTS * context.elapsed && !told.is_empty() {
        out.push(format!("the machine's memory was short: {}", told.join(", ")));
    }
    if often("compact_stall") {
        let n = event(context, "compact_stall");
        out.push(format!("free memory was in pieces: {n} allocations had to move pages first"));
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
pub(super) fn pressure(context: &Context<'_>, resource: &str) -> Option<String> {
    let share = |kind: &str| stalled(context, resource, kind);
    let some = share("some").filter(|s| *s >= 1.0)?;
    let full = share("full").filter(|s| *s >= 1.0).map_or(String::new(), |s| format!(", all in {s:.0} %"));
    let name = if resource == "io" { "I/O" } else { resource };
    Some(format!("pressure: some task stood still for {name} in {some:.0} % of the time{full}"))
}
