//! Logical reads of a database engine's buffer cache, by sessions: the Jonathan Lewis Computing Index.
//!
//! Each session joins a table with itself through an index, in random places, so that it asks the buffer cache for
//! page after page and nothing else: all pages are there, nothing is written, and results are single numbers. The
//! engine itself counts the pages asked for.

mod postgres;
mod sqlite;

use std::time::Duration;

use ncpu_table::{Column, Kind, Table, Unit, size};

use super::{Report, Request, Survey, numbers};
use crate::failure::Failure;
use crate::options::Flag;
use crate::place::Memory;

/// `ncpu bench logical-reads`.
pub const SURVEY: Survey = Survey {
    name: "logical-reads",
    about: "logical reads a second of PostgreSQL's and SQLite's buffer caches, by sessions",
    flags: &[
        Flag { letter: 'e', value: "ENGINES", default: "postgres,sqlite", about: "which" },
        Flag { letter: 'n', value: "LIST", default: "4,8,16,32", about: "sessions at once" },
        Flag { letter: 's', value: "SIZE", default: "64m", about: "of the table" },
        Flag { letter: 'd', value: "SECONDS", default: "5", about: "of work for each row" },
    ],
    run,
};

/// The work for an engine.
struct Work {
    /// Rows of the table; a row of it takes some 120 bytes.
    rows: u64,
    /// Bytes of the table.
    bytes: u64,
    sessions: Vec<u64>,
    time: Duration,
}

/// Rows that a query reads and joins.
const JOINED: u64 = 1000;

/// Row `k` joins with `k * STRIDE % rows`, which is on another page for the next.
const STRIDE: u64 = 7919;

impl Work {
    fn new(bytes: u64, sessions: Vec<u64>, time: Duration) -> Result<Work, Failure> {
        let mut rows = bytes / 120;
        if rows < 10 * JOINED {
            return Err(Failure::Usage(format!("-s: give at least {}", size::words(1200 * JOINED))));
        }
        if rows > 1 << 31 {
            return Err(Failure::Usage("-s: give less than 256g".into()));
        }
        // Without a common divisor every row is joined with another one.
        rows += u64::from(rows.is_multiple_of(STRIDE));
        Ok(Work { rows, bytes, sessions, time })
    }
}

/// The work that a number of sessions did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Done {
    sessions: u64,
    queries: u64,
    /// Pages asked of the buffer cache.
    reads: u64,
    /// Of them not found there.
    misses: u64,
    seconds: f64,
    cpu_seconds: f64,
}

/// Adds up sessions that ran at the same time; begin and end in seconds.
fn elapsed(spans: &[(f64, f64)]) -> f64 {
    let begin = spans.iter().map(|s| s.0).fold(f64::INFINITY, f64::min);
    let end = spans.iter().map(|s| s.1).fold(f64::NEG_INFINITY, f64::max);
    if spans.is_empty() { 0.0 } else { end - begin }
}

fn run(r: &Request<'_>) -> Result<Report, Failure> {
    r.plan.memory.check(r.machine).map_err(|e| Failure::Failed(e.to_string()))?;
    let engines = r.options.text('e').unwrap_or("");
    let engines: Vec<&str> = engines.split(',').map(str::trim).collect();
    if let Some(wrong) = engines.iter().find(|e| !["postgres", "sqlite"].contains(e)) {
        return Err(Failure::Failed(format!(
            "-e {wrong}: give postgres, sqlite, or both with a comma between"
        )));
    }
    let sessions = numbers('n', r.options.text('n').unwrap_or(""))?;
    if let Some(&most) = sessions.iter().find(|&&n| n > 5000) {
        return Err(Failure::Usage(format!("-n {most}: give at most 5000 sessions")));
    }
    let time = Duration::from_secs(r.options.number('d')?.clamp(1, 86_400));
    let work = Work::new(r.options.number('s')?, sessions, time)?;
    let mut report = Report::default();
    let mut rows: Vec<(&str, Done)> = Vec::new();
    let several = engines.len() > 1;
    for engine in engines {
        let mut take = |done: Done| rows.push((engine, done));
        let outcome = match engine {
            "postgres" => postgres::run(r, &work, &mut take),
            _ => sqlite::run(r, &work, &mut take),
        };
        match outcome {
            Ok(notes) => report.notes.extend(notes),
            // Errors of an interrupted engine do not count.
            Err(_) if r.stopped() => {}
            // The other engine tells something all the same.
            Err(Failure::Lacks(why)) if several => report.notes.push(format!("skipped: {why}")),
            Err(Failure::Failed(why)) if several => report.failed.push(format!("{engine}: {why}")),
            Err(failure) => return Err(failure),
        }
        if r.stopped() {
            report.notes.push("stopped early".into());
            break;
        }
    }
    if rows.is_empty() && report.failed.is_empty() && !r.stopped() {
        return Err(Failure::Lacks(report.notes.join("; ")));
    }
    let misses: u64 = rows.iter().map(|(_, d)| d.misses).sum();
    if misses > 0 {
        report.notes.push(format!("{misses} reads were not in the cache"));
    }
    report.tables.push(table(&rows, r.plan.memory));
    Ok(report)
}

fn table(rows: &[(&str, Done)], memory: Memory) -> Table {
    let mut out = Table::builder(
        "logical-reads",
        &[
            Column::text("engine", "the database engine"),
            Column::text("mem", "where memory came from"),
            Column::int("sessions", Unit::None, Kind::Key, "sessions at once"),
            Column::int("reads/s", Unit::None, Kind::Gauge, "logical reads: pages asked of the buffer cache"),
            Column::int("reads/cpu-s", Unit::None, Kind::Gauge, "logical reads for each second of CPU time"),
            Column::float("cpus", Unit::None, Kind::Gauge, "CPU time over elapsed time: CPUs kept busy"),
            Column::float("reads/query", Unit::None, Kind::Gauge, "logical reads of a query"),
            Column::count("queries", "queries done"),
            Column::count("reads", "logical reads in all"),
            Column::count("misses", "reads whose page was not in the cache"),
            Column::float(
                "elapsed",
                Unit::Seconds,
                Kind::Time,
                "from the first session's begin to the last one's end",
            ),
        ],
    );
    for (engine, d) in rows {
        let reads = d.reads as f64;
        out.row()
            .text(engine)
            .text(memory.to_string())
            .int(d.sessions)
            .int((reads / d.seconds.max(1e-9)).round() as u64)
            .int((reads / d.cpu_seconds.max(1e-9)).round() as u64)
            .float(d.cpu_seconds / d.seconds.max(1e-9))
            .float(reads / d.queries.max(1) as f64)
            .int(d.queries)
            .int(d.reads)
            .int(d.misses)
            .float(d.seconds);
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_joined_with_another() {
        let work = Work::new(120 * STRIDE * 2, vec![1], Duration::from_secs(1)).unwrap();
        assert_eq!(work.rows, STRIDE * 2 + 1);
        let joined: std::collections::BTreeSet<u64> =
            (0..work.rows).map(|k| k * STRIDE % work.rows).collect();
        assert_eq!(joined.len() as u64, work.rows);
        assert!(Work::new(4096, vec![1], Duration::ZERO).is_err());
    }

    #[test]
    fn rates_are_of_elapsed_and_of_cpu_time() {
        assert_eq!(elapsed(&[(1.0, 5.0), (0.5, 4.0)]), 4.5);
        let done = Done { sessions: 2, queries: 4, reads: 4000, misses: 0, seconds: 2.0, cpu_seconds: 4.0 };
        let t = table(&[("sqlite", done)], Memory::Interleave);
        assert_eq!(t.text(0, "mem"), Some("interleave"));
        assert_eq!((t.number(0, "reads/cpu-s"), t.number(0, "cpus")), (Some(1000.0), Some(2.0)));
        assert_eq!((t.int(0, "reads/s"), t.number(0, "reads/query")), (Some(2000), Some(1000.0)));
        let names: std::collections::BTreeSet<_> = t.columns().iter().map(|c| &c.name).collect();
        assert_eq!(names.len(), t.columns().len(), "a column is chosen by its name");
    }
}
