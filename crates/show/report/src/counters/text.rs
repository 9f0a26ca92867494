//! Everything put together, an event a line, as `perf stat` prints it.

use std::fmt::Write;

use ncpu_table::Table;

use super::{Counts, EventSum, Facts, Metric};

/// The events of all rows put together, in the order they were asked for.
pub(super) struct Totals {
    /// Name, unit, counts.
    pub events: Vec<(String, Option<String>, EventSum)>,
}

impl Totals {
    pub fn of(raw: &Table) -> Totals {
        let mut events: Vec<(String, Option<String>, EventSum)> = Vec::new();
        for r in 0..raw.num_rows() {
            let Some(name) = raw.text(r, "event") else { continue };
            let at = events.iter().position(|(n, ..)| n == name).unwrap_or_else(|| {
                events.push((name.into(), raw.text(r, "unit").map(String::from), EventSum::default()));
                events.len() - 1
            });
            events[at].2.add(raw, r);
        }
        Totals { events }
    }
}

struct Of<'a>(&'a Totals, &'a str);

impl Counts for Of<'_> {
    fn count(&self, event: &str) -> Option<f64> {
        self.0.events.iter().find(|(n, ..)| n.strip_suffix(self.1) == Some(event))?.2.count
    }
    fn cpu_seconds(&self) -> Option<f64> {
        None
    }
    fn cores_a_strand(&self) -> Option<f64> {
        None
    }
}

/// The lines: count, unit, event, and what it amounts to. `raw` is table `counters` of `elapsed` seconds.
pub fn totals_text(raw: &Table, facts: &Facts, elapsed: f64) -> String {
    let totals = Totals::of(raw);
    let counts: Vec<String> = totals
        .events
        .iter()
        .map(|(_, unit, sum)| match (sum.count, unit) {
            (None, _) => "-".into(),
            (Some(n), None) => format!("{n:.0}"),
            (Some(n), Some(_)) => format!("{n:.2}"),
        })
        .collect();
    let longest = |cells: &mut dyn Iterator<Item = usize>| cells.max().unwrap_or(0);
    let wide = longest(&mut counts.iter().map(String::len)).max("count".len());
    let unit_wide =
        longest(&mut totals.events.iter().map(|(_, u, _)| u.as_deref().map_or(0, |u| u.len() + 1)));
    let name_wide = longest(&mut totals.events.iter().map(|(n, ..)| n.len()));
    let mut out = String::new();
    let _ = writeln!(out, "{:>wide$}{:unit_wide$}  event", "count", "");
    for (count, (name, unit, sum)) in counts.iter().zip(&totals.events) {
        let unit = unit.as_ref().map_or(String::new(), |u| format!(" {u}"));
        let mut line = format!(
            "{count:>wide$}{unit:unit_wide$}  {name:name_wide$}  {}",
            amounts_to(name, sum, &totals, facts, elapsed)
        );
        if let Some(counted) = sum.counted().filter(|c| *c < 99.95) {
            let _ = write!(line, "  (counted {counted:.1} % of the time, scaled)");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The meaning of a count: its share of a larger count, else its rate.
fn amounts_to(name: &str, sum: &EventSum, totals: &Totals, facts: &Facts, elapsed: f64) -> String {
    let Some(count) = sum.count.filter(|_| elapsed > 0.0) else { return String::new() };
    let (base, suffix) = name.split_once(':').map_or((name, ""), |(base, _)| (base, &name[base.len()..]));
    let figure = |metric: Metric| metric.value(&Of(totals, suffix), facts);
    let percent = |metric: Metric, of: &str| figure(metric).map(|v| format!("{v:.1} % {of}"));
    let walk = facts.walks().position(|w| w == base);
    let said = match base {
        "task-clock" | "cpu-clock" => Some(format!("{:.2} CPUs used", count / 1e3 / elapsed)),
        "instructions" => figure(Metric::Ipc).map(|v| format!("{v:.2} a cycle")),
        "branch-misses" => percent(Metric::BranchMisses, "of branches"),
        "LLC-load-misses" => percent(Metric::LlcMisses, "of LLC loads"),
        _ if facts.memory().nth(1) == Some(base) => percent(Metric::Remote, "of reads of memory"),
        _ if walk.is_some() => Of(totals, suffix)
            .count("cycles")
            .filter(|c| *c > 0.0)
            .map(|cycles| format!("{:.1} % of cycles", 100.0 * count / cycles)),
        _ => None,
    };
    said.unwrap_or_else(|| match count / elapsed {
        rate if rate >= 1e9 => format!("{:.2} G/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.2} M/s", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.1} K/s", rate / 1e3),
        rate => format!("{rate:.1} /s"),
    })
}
