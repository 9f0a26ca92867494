//! Limits that held the program back, or nearly.

use super::Context;
use super::memory::size;

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
    let Some(t) = context.ranked("throttling", &["cgroup", "limit", "lift"], "held") else {
        return Vec::new();
    };
    (0..t.num_rows())
        .filter_map(|r| {
            Some(Throttled {
                cgroup: t.text(r, "cgroup")?.into(),
                limit: t.text(r, "limit")?.into(),
                lift: t.text(r, "lift")?.into(),
                allowed: t.number(r, "allowed"),
                periods: t.int(r, "periods")?,
                throttled: t.int(r, "throttled")?,
                held: t.number(r, "held")?,
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
    let Some(t) = context.table("limits_met") else { return Vec::new() };
    let line = |r: usize| {
        let (limit, of) = (t.text(r, "limit")?, t.text(r, "of")?);
        let (refused, killed) = (t.int(r, "refused")?, t.int(r, "killed")?);
        let memory = limit.starts_with("memory.");
        let amount = |n: u64| if memory { size(n) } else { n.to_string() };
        let used = amount(t.int(r, "used")?);
        let of_allowed = match t.int(r, "allowed") {
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
        Some(format!("limit {met}: {limit} of {of}: {of_allowed}{did}; lift it: {}", t.text(r, "lift")?))
    };
    (0..t.num_rows()).filter_map(line).collect()
}
