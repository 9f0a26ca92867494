//! Limits that held the program back, or nearly.

use ncpu_schema::{limits_met, throttling};
use ncpu_table::size;

use std::fmt;

use super::Context;
use super::kinds::{Bytes, CpuSeconds, GroupMemory, PerSecond, Throttled};

/// Limits on CPU bandwidth that held the program's threads back, the one that held back most first. Groups above one
/// another may both be held back, so their times must not be added.
pub(crate) fn throttled(context: &Context<'_>) -> Vec<Throttled> {
    use throttling::col;
    let keys = [col::cgroup, col::limit, col::lift];
    let Some(t) = context.ranked(throttling::NAME, &keys, col::held) else { return Vec::new() };
    (0..t.num_rows())
        .filter_map(|r| {
            Some(Throttled {
                cgroup: t.text(r, col::cgroup)?.into(),
                limit: t.text(r, col::limit)?.into(),
                lift: t.text(r, col::lift)?.into(),
                allowed_cpus: t.number(r, col::allowed),
                periods: t.int(r, col::periods)?,
                throttled: t.int(r, col::throttled)?,
                held: CpuSeconds(t.number(r, col::held)?),
            })
        })
        .collect()
}

/// The limit and its effect, as a part of a sentence.
impl fmt::Display for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed = self.allowed_cpus.map_or(String::new(), |n| {
            format!(" ({} CPU{})", (n * 100.0).round() / 100.0, if n == 1.0 { "" } else { "s" })
        });
        write!(
            f,
            "throttled by {} of {}{allowed}: {:.3} CPU-s held back, in {} of {} periods",
            self.limit, self.cgroup, self.held.0, self.throttled, self.periods
        )
    }
}

/// The limits that the program reached or nearly did, each as a line.
pub(in crate::onion) fn limits_met(context: &Context<'_>) -> Vec<String> {
    let Ok(Some(t)) = limits_met::Reader::open(context.recording) else { return Vec::new() };
    let line = |r: usize| {
        let (limit, of) = (t.limit.get(r)?, t.of.get(r)?);
        let (refused, killed) = (t.refused.get(r)?, t.killed.get(r)?);
        let memory = limit.starts_with("memory.");
        let amount = |n: u64| if memory { size::words(n) } else { n.to_string() };
        let used = amount(t.used.get(r)?);
        let above = t.allowed.get(r).zip(t.used.get(r)).filter(|(allowed, used)| used > allowed);
        let of_allowed = match t.allowed.get(r) {
            // Only what is new is refused: what was there when the limit was lowered stays.
            Some(allowed) if above.is_some() => {
                format!("{used} used, {} allowed since it was lowered", amount(allowed))
            }
            Some(allowed) => format!("{used} of {} used", amount(allowed)),
            None => format!("{used} used"),
        };
        let mut did = match (refused, limit) {
            (0, _) => String::new(),
            (n, "pids.max") => format!(", {n} forks refused"),
            (n, _) => format!(", reached {n} times"),
        };
        if killed > 0 {
            did += &format!(", {killed} processes killed");
        }
        let full = t.allowed.get(r).zip(t.used.get(r)).is_some_and(|(allowed, used)| used >= allowed);
        let met = if refused + killed > 0 || full { "reached" } else { "nearly reached" };
        Some(format!("limit {met}: {limit} of {of}: {of_allowed}{did}; lift it: {}", t.lift.get(r)?))
    };
    t.rows().filter_map(line).collect()
}

/// Pages a second that are read again below which that takes no time worth a line: at 100 us each, a hundredth of a CPU.
pub(super) const REFAULTS: f64 = 100.0;

/// The group whose limit on memory had most pages dropped that were wanted again, where they were many.
pub(crate) fn memory_short(context: &Context<'_>) -> Option<GroupMemory> {
    let t = limits_met::Reader::open(context.recording).ok()??;
    let short = |r: usize| {
        let refaults = t.refaults.get(r).filter(|n| *n as f64 >= REFAULTS * context.elapsed)?;
        Some(GroupMemory {
            limit: t.limit.get(r)?.into(),
            cgroup: t.of.get(r)?.into(),
            lift: t.lift.get(r)?.into(),
            allowed: t.allowed.get(r).map(Bytes),
            reached: t.refused.get(r).filter(|n| *n > 0)?,
            refaults: PerSecond(refaults as f64 / context.elapsed.max(f64::MIN_POSITIVE)),
        })
    };
    t.rows().filter_map(short).max_by(|a, b| a.refaults.0.total_cmp(&b.refaults.0))
}

impl fmt::Display for GroupMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allowed = self.allowed.map_or(String::new(), |n| format!(" of {}", size::words(n.0)));
        write!(
            f,
            "control group {} was short of memory: its {}{allowed} was reached {} times, and {:.0} of its pages a second were read again soon after they were dropped",
            self.cgroup, self.limit, self.reached, self.refaults.0
        )
    }
}
