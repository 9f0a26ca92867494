//! How memory grew, whether it was short, and what tasks stood still for.

use super::Context;

fn event(context: &Context<'_>, name: &str) -> u64 {
    let Some(t) = context.table("memory_events") else { return 0 };
    (0..t.num_rows()).filter(|&r| t.text(r, "event") == Some(name)).filter_map(|r| t.int(r, "count")).sum()
}

/// Bytes with the unit that suits them.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// What the machine's memory grew by at most, where it is enough to tell of.
pub(super) fn memory_grown(context: &Context<'_>) -> Option<String> {
    const WORTH: u64 = 64 << 20;
    let t = context.table("memory_change")?;
    let grown = |class: &str| {
        let row = (0..t.num_rows()).find(|&r| t.text(r, "class") == Some(class))?;
        Some(t.int(row, "most")?.saturating_sub(t.int(row, "before")?))
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
    let told: Vec<String> = parts.iter().take(3).map(|(n, name)| format!("{name} {}", size(*n))).collect();
    let huge = match event(context, "thp_fault_alloc") {
        0 => String::new(),
        n => format!("; {n} huge pages given out"),
    };
    (!told.is_empty()).then(|| format!("the machine's memory grew by up to: {}{huge}", told.join(", ")))
}

/// That memory was short, and what the kernel did for it, if that was often.
pub(super) fn reclaim(context: &Context<'_>) -> Option<String> {
    const PER_SECOND: f64 = 3.0;
    let parts = [
        ("allocstall", "allocations had to free memory first"),
        ("compact_stall", "allocations had to move pages first"),
        ("pswpout", "pages were swapped out"),
        ("pswpin", "pages were swapped in"),
        ("workingset_refault", "pages were read again soon after they were dropped"),
    ];
    let told: Vec<String> = parts
        .iter()
        .map(|(name, words)| (event(context, name), words))
        .filter(|(n, _)| *n as f64 >= PER_SECOND * context.elapsed)
        .map(|(n, words)| format!("{n} {words}"))
        .collect();
    (!told.is_empty()).then(|| format!("the machine's memory was short: {}", told.join(", ")))
}

/// For how long tasks of the machine stood still for want of a resource, if that is worth telling.
pub(super) fn pressure(context: &Context<'_>, resource: &str) -> Option<String> {
    let t = context.table("pressure")?;
    let share = |kind: &str| {
        let row = (0..t.num_rows())
            .find(|&r| t.text(r, "resource") == Some(resource) && t.text(r, "kind") == Some(kind))?;
        Some(100.0 * t.number(row, "seconds")? / context.elapsed.max(f64::MIN_POSITIVE))
    };
    let some = share("some").filter(|s| *s >= 1.0)?;
    let full = share("full").filter(|s| *s >= 1.0).map_or(String::new(), |s| format!(", all in {s:.0} %"));
    let name = if resource == "io" { "I/O" } else { resource };
    Some(format!("pressure: some task stood still for {name} in {some:.0} % of the time{full}"))
}
