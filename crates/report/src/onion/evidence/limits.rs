//! Limits that held the program back, or nearly.

use ncpu_schema::{limits_met, throttling};
use ncpu_table::size;

use super::Context;

/// A limit on CPU bandwidth that held the program's threads back.
pub(in crate::onion) struct Throttled {
    pub cgroup: String,
    pub limit: String,
    pub lift: String,
    /// CPUs it allows.
    pub allowed: Option<f64>,
    periods: u64,
    throttled: u64,
    /// CPU-seconds.
    pub held: f64,
}

/// Those limits, the one that held back most first. Groups above one another may both be held back,
/// so their times must not be added.
pub(in crate::onion) fn throttled(context: &Context<'_>) -> Vec<Throttled> {
    use throttling::col;
    let keys = [col::cgroup, col::limit, col::lift];
    let Some(t) = context.ranked(throttling::NAME, &keys, col::held) else { return Vec::new() };
    (0..t.num_rows())
        .filter_map(|r| {
            Some(Throttled {
                cgroup: t.text(r, col::cgroup)?.into(),
                limit: t.text(r, col::limit)?.into(),
                lift: t.text(r, col::lift)?.into(),
                allowed: t.number(r, col::allowed),
                periods: t.int(r, col::periods)?,
                throttled: t.int(r, col::throttled)?,
                held: t.number(r, col::held)?,
            })
        })
        .collect()
}

impl Throttled {
    /// The limit and what it did, as a part of a sentence.
    pub fn told(&self) -> String {
        let allowed = self.allowed.map_or(String::new(), |n| {
            format!(" ({} CPU{})", (n * 100.0).round() / 100.0, if n == 1.0 { "" } else { "s" })
        });
        format!(
            "throttled by {} of {}{allowed}: {:.3} CPU-s held back, in {} of {} periods",
            self.limit, self.cgroup, self.held, self.throttled, self.periods
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
        let of_allowed = match t.allowed.get(r) {
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
        let met = if refused + killed > 0 { "reached" } else { "nearly reached" };
        Some(format!("limit {met}: {limit} of {of}: {of_allowed}{did}; lift it: {}", t.lift.get(r)?))
    };
    t.rows().filter_map(line).collect()
}
