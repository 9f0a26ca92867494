//! Intervals put together: a recording of all of their time.

use std::sync::Arc;

use ncpu_record::{Gather, Manifest, Recording};
use ncpu_schema::{drops, limits_met, memory_change, memory_events, pressure, summary};
use ncpu_table::{Kind, Table};

use crate::history::Held;

/// Tables with a row for each key in every interval, which readers expect once.
const SUMMED: [&str; 4] = [limits_met::NAME, memory_events::NAME, drops::NAME, pressure::NAME];

/// Why intervals cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Tables of an interval are damaged.
    #[error("an interval cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// They do not fit together.
    #[error(transparent)]
    Record(#[from] ncpu_record::Error),
    /// They do not fit together.
    #[error(transparent)]
    Table(#[from] ncpu_table::Error),
    /// They are not what the schema says.
    #[error(transparent)]
    Schema(#[from] ncpu_schema::Error),
}

/// Rows that are held while a table is summed, before those of the same keys are put together.
const ROWS: usize = 100_000;

/// Puts intervals together, which follow one another. Times in the tables count from the first one's beginning.
///
/// # Errors
/// See [`Error`].
pub fn recording(about: &Manifest, intervals: &[Arc<Held>]) -> Result<Recording, Error> {
    some(about, intervals, &|_| true)
}

/// A table over some intervals, a row for each key; nothing where they have none of that name.
///
/// # Errors
/// See [`Error`].
pub fn sums(about: &Manifest, intervals: &[Arc<Held>], name: &str) -> Result<Option<Table>, Error> {
    if name == summary::NAME
        || name == memory_change::NAME
        || SUMMED.contains(&name)
        || name.starts_with("numa_")
    {
        return Ok(some(about, intervals, &|table| table == name)?.tables.remove(name));
    }
    let mut parts: Vec<Table> = Vec::new();
    for held in intervals {
        for table in held.tables(&|table| table == name)? {
            parts.push(grouped(&table)?);
            if parts.iter().map(Table::num_rows).sum::<usize>() > ROWS {
                parts = vec![joined(&parts)?];
            }
        }
    }
    if parts.is_empty() { Ok(None) } else { joined(&parts).map(Some) }
}

/// Tables of the same columns as one, a row for each key.
fn joined(parts: &[Table]) -> Result<Table, Error> {
    let batches: Vec<_> = parts.iter().map(|part| part.batch().clone()).collect();
    let (name, schema) = parts.first().map_or(("", None), |part| (part.name(), Some(part.batch().schema())));
    let schema = schema.ok_or_else(|| std::io::Error::other("no tables"))?;
    grouped(&Table::of_batches(name, &schema, &batches)?)
}

/// One row for each key, without the time.
fn grouped(table: &Table) -> Result<Table, Error> {
    let keys = keys(table);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    if keys.is_empty() { Ok(table.clone()) } else { Ok(table.group_by(&keys)?) }
}

/// [`recording`] of some tables.
///
/// # Errors
/// See [`Error`].
pub fn some(
    about: &Manifest,
    intervals: &[Arc<Held>],
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Recording, Error> {
    let mut manifest = about.clone();
    let zero = intervals.first().map_or(0.0, |held| held.head.since);
    manifest.created_unix = intervals.first().map_or(manifest.created_unix, |held| held.head.start);
    if let Some(last) = intervals.last() {
        manifest.notes.clone_from(&last.head.notes);
    }
    let mut gather = Gather::new(manifest);
    for (i, held) in intervals.iter().enumerate() {
        let last = i + 1 == intervals.len();
        for table in held.tables(wanted)? {
            // Where memory lies is looked at anew each time, and what was last seen stands.
            if last || !table.name().starts_with("numa_") {
                gather.append(&table.less("t", zero)?)?;
            }
        }
    }
    let mut recording = gather.finish()?;
    for name in SUMMED {
        if let Some(table) = recording.tables.get(name) {
            let table = grouped(table)?;
            recording = recording.with(table);
        }
    }
    let whole = [summed(&recording)?, changes(&recording)?];
    Ok(whole.into_iter().flatten().fold(recording, Recording::with))
}

/// The names of a table's keys but for the time.
fn keys(table: &Table) -> Vec<String> {
    let keys = table.columns().iter().filter(|c| c.kind == Kind::Key && c.name != "t");
    keys.map(|c| c.name.clone()).collect()
}

/// One summary of all.
fn summed(recording: &Recording) -> Result<Option<Table>, Error> {
    let Some(all) = summary::Reader::open(recording)? else { return Ok(None) };
    let most = |value: fn(&summary::Reader<'_>, usize) -> Option<u64>| {
        all.rows().filter_map(|row| value(&all, row)).max()
    };
    let mut rows = summary::Rows::new();
    rows.push(summary::Row {
        elapsed: Some(all.elapsed.sum()),
        user: None,
        system: None,
        cpus: most(|all, row| all.cpus.get(row)),
        steal: Some(all.steal.sum()),
        iowait: Some(all.iowait.sum()),
        hz: most(|all, row| all.hz.get(row)),
        status: None,
        max_rss: None,
    });
    Ok(Some(rows.finish()))
}

/// Of each class of memory: before the first interval, most, and after the last.
fn changes(recording: &Recording) -> Result<Option<Table>, Error> {
    let Some(all) = memory_change::Reader::open(recording)? else { return Ok(None) };
    let mut classes: Vec<(String, [Option<u64>; 3])> = Vec::new();
    for row in all.rows() {
        let Some(class) = all.class.get(row) else { continue };
        let [before, most, after] = [all.before.get(row), all.most.get(row), all.after.get(row)];
        match classes.iter_mut().find(|(name, _)| name == class) {
            Some((_, seen)) => *seen = [seen[0], seen[1].max(most), after],
            None => classes.push((class.into(), [before, most, after])),
        }
    }
    let mut rows = memory_change::Rows::new();
    for (class, [before, most, after]) in classes {
        rows.push(memory_change::Row { class: class.as_str().into(), before, most, after });
    }
    Ok(Some(rows.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{about, interval};

    #[test]
    fn intervals_are_one_recording() {
        let held: Vec<_> = (5..9).map(|n| Arc::new(Held::new(&interval(n)).unwrap())).collect();
        let merged = recording(&about(), &held).unwrap();
        assert_eq!(merged.manifest.created_unix, 1005.0);
        let table = |name: &str| &merged.tables[name];
        assert_eq!(table("summary").num_rows(), 1);
        assert_eq!(table("summary").number(0, "elapsed"), Some(4.0));
        assert_eq!(table("summary").int(0, "cpus"), Some(2));
        assert_eq!(table("cpu_time").number(0, "t"), Some(1.0));
        assert_eq!(table("cpu_time").num_rows(), 8);
        assert_eq!((table("pressure").num_rows(), table("pressure").number(0, "seconds")), (1, Some(0.5)));
        assert_eq!((table("drops").num_rows(), table("drops").int(0, "count")), (1, Some(12)));
        let memory = ["before", "most", "after"].map(|column| table("memory_change").int(0, column));
        assert_eq!(memory, [Some(5), Some(95), Some(9)]);
        let locks = sums(&about(), &held, "locks").unwrap().unwrap();
        assert_eq!(
            (locks.num_rows(), locks.int(0, "count"), locks.number(0, "max")),
            (1, Some(40), Some(8.0))
        );
        let cpus = sums(&about(), &held, "cpu_time").unwrap().unwrap();
        assert_eq!((cpus.num_rows(), cpus.number(1, "idle")), (2, Some(4.0)));
        assert_eq!(sums(&about(), &held, "summary").unwrap().unwrap().number(0, "elapsed"), Some(4.0));
        assert!(sums(&about(), &held, "timers").unwrap().is_none());
        let division = ncpu_schema::Division::of(&merged).unwrap();
        assert_eq!((division.elapsed, division.capacity), (4.0, 8.0));
        let onion = ncpu_report::onion::Onion::peel(&merged).unwrap();
        assert_eq!(onion.rows.iter().map(|row| row.seconds).sum::<f64>(), 8.0);
    }
}
