//! Outcomes as a table.

use ncpu_table::{Column, Kind, Table, Unit};

use crate::failure::Failure;
use crate::runner::{Outcome, Plan};

/// A benchmark that was run.
pub struct Row {
    /// Its name: a case, or one of its standard invocations.
    pub name: String,
    /// How it was run.
    pub plan: Plan,
    /// Its result.
    pub outcome: Result<Outcome, Failure>,
}

/// A row for each benchmark; those that gave no figure say why in `notes`.
pub fn table(rows: &[Row]) -> Table {
    let us = |name: &str, meaning: &str| Column::float(name, Unit::MicrosecondsPerCall, Kind::Gauge, meaning);
    let share = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Share, meaning);
    let mut out = Table::builder(
        "bench",
        &[
            Column::text("benchmark", "its name"),
            Column::int("prc", Unit::None, Kind::Key, "processes"),
            Column::int("thr", Unit::None, Kind::Key, "threads in each"),
            us("time", "median time of an operation, outliers and disturbed samples left out"),
            share("+-", "half of the median's 95 % confidence interval, as a share of it"),
            us("low", "lower end of the median's 95 % confidence interval"),
            us("high", "upper end of it"),
            us("mean", "mean, outliers and disturbed samples left out"),
            us("p95", "95th percentile of all samples"),
            us("p99", "99th percentile of all samples"),
            us("stddev", "standard deviation, outliers and disturbed samples left out"),
            us("rawmedian", "median of all samples"),
            us("rawmean", "mean of all samples"),
            Column::count("samples", "batches timed"),
            Column::count("out", "samples left out: outliers, and disturbed ones"),
            Column::count("retried", "samples thrown away for a disturbance and taken again"),
            Column::count("errors", "operations that failed"),
            Column::int("cnt/samp", Unit::None, Kind::Gauge, "operations of a worker in a sample"),
            share("overlap", "how much the workers were at work at the same time"),
            share("busy", "CPU time of the workers over their wall time"),
            share("lost", "time of the CPUs lost to others, when they were looked at"),
            Column::text("notes", "further figures; reasons for missing ones; warnings"),
        ],
    );
    for row in rows {
        let r = out.row().text(&row.name).int(row.plan.processes as u64).int(row.plan.threads as u64);
        match &row.outcome {
            Err(failure) => {
                let mut r = r;
                for _ in 0..10 {
                    r = r.float_opt(None);
                }
                for _ in 0..5 {
                    r = r.int_opt(None);
                }
                r.float_opt(None).float_opt(None).float_opt(None).text(failure.to_string());
            }
            Ok(o) => {
                let ((s, out), raw) = (o.trimmed(), o.raw());
                let us = |ns: f64| ns / 1000.0;
                r.float(us(s.median))
                    .float(100.0 * s.uncertainty())
                    .float(us(s.interval.0))
                    .float(us(s.interval.1))
                    .float(us(s.mean))
                    .float(us(raw.p95))
                    .float(us(raw.p99))
                    .float(us(s.stddev))
                    .float(us(raw.median))
                    .float(us(raw.mean))
                    .int(raw.n as u64)
                    .int(out as u64)
                    .int(o.retried)
                    .int(o.errors())
                    .int(o.batch)
                    .float(100.0 * o.overlap())
                    .float(100.0 * o.busy)
                    .float(100.0 * o.lost)
                    .text(notes(o));
            }
        }
    }
    out.finish()
}

/// Further figures of an outcome, and what to beware of.
pub(crate) fn notes(o: &Outcome) -> String {
    let mut notes: Vec<String> = o.figures.iter().map(|(name, x)| format!("{name} {x:.3}")).collect();
    if o.stopped {
        notes.push("stopped early".into());
    }
    if o.workers.0 > o.workers.1 {
        notes.push(format!("{} workers take turns on {} CPUs", o.workers.0, o.workers.1));
    }
    if o.marked() * 2 > o.samples.len() {
        notes.push(format!("{} of {} samples disturbed", o.marked(), o.samples.len()));
    }
    if o.speed > 1.05 {
        notes.push(format!("clock speed moved by {:.0} %", 100.0 * (o.speed - 1.0)));
    }
    notes.join("; ")
}
