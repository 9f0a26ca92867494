//! Lockstat output as tables, and in `lockutil`'s own format.

use std::fmt::Write;

use ncpu_table::{Column, Kind, Table, Unit};

use super::{Class, LockFile, Measure, Row, Section};

/// The rows of `lockutil`: CPU-util, lock and caller of every busy-wait, and TOTAL as the last row.
///
/// A NetBSD row of `<all>` is shown, and counted in TOTAL instead of the callers that it sums up.
pub fn lockutil_table(file: &LockFile) -> Table {
    let mut table = Table::builder(
        "lockutil",
        &[
            Column::float("CPU-util", Unit::Share, Kind::Share, "share of capacity spent busy-waiting"),
            Column::text("Lock", "the lock's name or address"),
            Column::text("Caller", "the caller that took it"),
        ],
    );
    for section in file.sections.iter().filter(|s| s.class == Class::Spin) {
        for row in &section.rows {
            table.row().float_opt(section.cpu_util(row, file.ncpu)).text(&row.lock).text(&row.caller);
        }
    }
    table.row().float_opt(total(file)).text("TOTAL").text("TOTAL");
    table.finish()
}

/// The table in exactly `lockutil`'s format.
pub fn render_lockutil(file: &LockFile) -> String {
    let table = lockutil_table(file);
    let mut out = String::from(" CPU-util  Lock                 Caller\n");
    for row in 0..table.num_rows() {
        let util = table.number(row, "CPU-util").map_or_else(|| "-".into(), |u| format!("{u:.3}"));
        let text = |column| table.text(row, column).unwrap_or("");
        let _ = writeln!(out, "{util:>9}  {:<20} {}", text("Lock"), text("Caller"));
    }
    out
}

/// All rows of the file, one per event type, lock and caller.
///
/// Rows can be summed: NetBSD's `<all>` is replaced by its remainder beyond the listed callers.
pub fn lockstat_table(file: &LockFile) -> Table {
    let mut table = Table::builder(
        "lockstat",
        &[
            Column::text("event", "the event type, as lockstat names it"),
            Column::text("class", "spin takes CPU time; block, hold, profile and other do not"),
            Column::text("lock", "the lock's name or address"),
            Column::text("caller", "the caller that took it"),
            Column::count("count", "events"),
            Column::float("mean", Unit::Nanoseconds, Kind::Mean, "mean duration of an event"),
            Column::float("retries", Unit::None, Kind::Mean, "mean retries of the spin loop"),
            Column::float("total", Unit::Seconds, Kind::Time, "duration of all events together"),
            Column::float("CPU-util", Unit::Share, Kind::Share, "share of capacity spent busy-waiting"),
            Column::text("stack", "call stack, innermost first"),
        ],
    );
    for section in &file.sections {
        for (at, row) in section.rows.iter().enumerate() {
            let rest = rest(section, at);
            let Some(row) = (if row.sums { rest.as_ref() } else { Some(row) }) else { continue };
            let count = events(section, row, file.ncpu);
            let total = section.seconds(row, file.ncpu);
            let mean = total.zip(count.filter(|&n| n > 0.0)).map(|(total, n)| total * 1e9 / n);
            table
                .row()
                .text(&section.event)
                .text(section.class.word())
                .text(&row.lock)
                .text(&row.caller)
                .int_opt(count.map(|n| n.round() as u64))
                .float_opt(mean)
                .float_opt(row.value.filter(|_| section.measure == Measure::Spins))
                .float_opt(total)
                .float_opt(section.cpu_util(row, file.ncpu))
                .text_opt((!row.stack.is_empty()).then(|| row.stack.join(";")));
        }
    }
    table.finish()
}

fn events(section: &Section, row: &Row, ncpu: u64) -> Option<f64> {
    let cpus = if section.per_cpu { ncpu as f64 } else { 1.0 };
    let seconds = if section.per_second { section.elapsed? } else { 1.0 };
    Some(row.count * cpus * seconds)
}

/// The remainder of an `<all>` row beyond the callers listed under it; `None` if they cover it.
fn rest(section: &Section, at: usize) -> Option<Row> {
    let sum = section.rows.get(at).filter(|r| r.sums)?;
    let callers = || section.rows[at + 1..].iter().take_while(|r| r.lock == sum.lock && r.caller != "<all>");
    let count = sum.count - callers().map(|r| r.count).sum::<f64>();
    let value = sum.value? - callers().filter_map(|r| r.value).sum::<f64>();
    // Counts are exact except where averages were cut to whole numbers, each by up to one.
    let slack = if section.per_cpu || section.per_second { callers().count() as f64 } else { 0.0 };
    let caller = "<not listed>".into();
    (count > slack).then(|| Row { count, value: Some(value.max(0.0)), caller, sums: false, ..sum.clone() })
}

/// Busy-waiting of all rows, each counted once, as a share of the capacity of all runs together; `None` if
/// unknown.
pub(super) fn total(file: &LockFile) -> Option<f64> {
    let mut runs: Vec<(usize, f64)> = Vec::new();
    let mut spun = None;
    for section in file.sections.iter().filter(|s| s.class == Class::Spin && !s.generated) {
        // A rate without elapsed time is a share of a second.
        let elapsed = section.elapsed.unwrap_or(1.0);
        let mut under: Option<&str> = None;
        for row in &section.rows {
            let counted = row.caller != "<all>" && under == Some(&row.lock);
            if row.sums {
                under = Some(&row.lock);
            } else if !counted {
                under = None;
            }
            if let Some(util) = section.cpu_util(row, file.ncpu).filter(|_| !counted) {
                *spun.get_or_insert(0.0) += util * elapsed;
                if !runs.iter().any(|(run, _)| *run == section.run) {
                    runs.push((section.run, elapsed));
                }
            }
        }
    }
    let elapsed: f64 = runs.iter().map(|(_, s)| s).sum();
    spun.map(|s| s / elapsed)
}
