//! Threads: where they sleep, how often, and which is busiest.

use ncpu_table::Table;

use super::{Context, counter, told};

/// Where the program's threads slept, by system call.
pub(super) fn sleeping(context: &Context<'_>) -> Vec<String> {
    let Some(ranked) = context.ranked("sleeps", &["call"], "seconds") else { return Vec::new() };
    let total: f64 = (0..ranked.num_rows()).filter_map(|r| ranked.number(r, "seconds")).sum();
    let top: Vec<_> = (0..ranked.num_rows().min(3))
        .filter_map(|r| Some((ranked.text(r, "call")?.to_string(), ranked.number(r, "seconds")? / total)))
        .collect();
    told("threads asleep in ", &top)
}

/// Who sleeps by which call, how often and for how long, if that is often: each sleep is two switches and an
/// interrupt.
pub(super) fn sleepers(context: &Context<'_>) -> Vec<String> {
    let Some(ranked) = context.ranked("sleepers", &["call", "process"], "count") else { return Vec::new() };
    let per_second = |n: f64| n / context.elapsed.max(f64::MIN_POSITIVE);
    (0..ranked.num_rows())
        .filter_map(|r| {
            let (call, process) = (ranked.text(r, "call")?, ranked.text(r, "process")?);
            let (count, asked) = (ranked.number(r, "count")?, ranked.number(r, "asked")?);
            let (slept, threads) = (ranked.number(r, "slept")?, ranked.int(r, "threads")?.max(1));
            // Less than one a second is no one's trouble.
            (per_second(count) >= 1.0).then(|| {
                format!(
                    "{threads} thread{} of {process} asleep in {call}: {:.0} sleeps/s, {} asked for, {} slept on average",
                    if threads == 1 { "" } else { "s" },
                    per_second(count),
                    length(asked / count),
                    length(slept / count)
                )
            })
        })
        .take(2)
        .collect()
}

/// A time with the unit that suits it.
fn length(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

/// The call that most sleeps with a timeout are in, with the process and its part of all switches.
pub(in crate::onion) fn top_sleeper(context: &Context<'_>) -> Option<(String, String, f64)> {
    let ranked = context.ranked("sleepers", &["call", "process"], "count")?;
    let switches = counter(context, "context switches");
    if ranked.num_rows() == 0 || switches <= 0.0 {
        return None;
    }
    // A sleep is a switch away and one back.
    let share = 2.0 * ranked.number(0, "count")? / switches;
    Some((ranked.text(0, "call")?.into(), ranked.text(0, "process")?.into(), share))
}

/// The thread that was on CPU longest.
pub(super) fn busiest(context: &Context<'_>) -> Option<String> {
    let grouped = context.table("threads")?.group_by(&["tid", "process", "thread"]).ok()?;
    let busy = |t: &Table, r: usize| ["USR", "SYS", "TRP"].iter().filter_map(|c| t.number(r, c)).sum::<f64>();
    let top = (0..grouped.num_rows()).max_by(|&a, &b| busy(&grouped, a).total_cmp(&busy(&grouped, b)))?;
    let share = busy(&grouped, top) / context.elapsed.max(f64::MIN_POSITIVE);
    let name = grouped.text(top, "thread")?.to_string();
    let tid = grouped.int(top, "tid")?;
    Some(format!("busiest thread {name}/{tid}, on CPU {:.0} % of the time", share * 100.0))
}
