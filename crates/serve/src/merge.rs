//! Intervals put together: a recording of all of their time.

use std::sync::Arc;

use ncpu_record::{Gather, Manifest, Recording, Whole};
use ncpu_table::{Groups, Kind, Table};

use crate::history::Held;

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
    if Whole::takes(name) {
        return Ok(some(about, intervals, &|table| table == name)?.tables.remove(name));
    }
    let mut groups: Option<Groups> = None;
    for held in intervals {
        for table in held.tables(&|table| table == name)? {
            let groups = match &mut groups {
                Some(groups) => groups,
                none => {
                    let keys = keys(&table);
                    if keys.is_empty() {
                        return Ok(some(about, intervals, &|table| table == name)?.tables.remove(name));
                    }
                    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                    none.insert(Groups::of(&table, &keys)?)
                }
            };
            groups.add(&table)?;
        }
    }
    Ok(groups.map(Groups::finish).transpose()?)
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
    let mut whole = Whole::default();
    for held in intervals {
        for table in held.tables(wanted)? {
            match Whole::takes(table.name()) {
                true => whole.add(&table.less("t", zero)?)?,
                false => gather.append(&table.less("t", zero)?)?,
            }
        }
    }
    Ok(whole.into_tables().fold(gather.finish()?, Recording::with))
}

/// The names of a table's keys but for the time.
fn keys(table: &Table) -> Vec<String> {
    let keys = table.columns().iter().filter(|c| c.kind == Kind::Key && c.name != "t");
    keys.map(|c| c.name.clone()).collect()
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
