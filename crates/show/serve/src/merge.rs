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
                    none.insert(Groups::new(&table, &keys)?)
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
    use crate::metrics::Metrics;
    use crate::profiles::Profile;
    use ncpu_feed::{Head, Packed};
    use ncpu_schema::{Definition, limits_met};
    use ncpu_table::Type;

    fn held(number: u64, tables: &[Table]) -> Arc<Held> {
        let start = 1000.0 + number as f64;
        let head = Head { start, end: start + 1.0, since: number as f64, ..Head::default() };
        Arc::new(Held::new(&Packed::new(head, tables).unwrap()).unwrap())
    }

    /// A row of a table in which every cell has a value that its column can have.
    fn a_row(table: &Definition) -> Table {
        let all = (table.columns)();
        let row = |text: &dyn Fn(usize) -> bool| {
            let mut rows = table.builder();
            all.iter().enumerate().fold(rows.row(), |row, (at, column)| match column.ty {
                Type::Text if text(at) => row.text("a"),
                Type::Text => row.null(),
                Type::Int => row.int(1),
                Type::Float => row.float(1.0),
            });
            rows.finish()
        };
        // Text that is a word of a vocabulary is left null.
        let free =
            |at: usize| (table.check)("this", ncpu_schema::VERSION, &row(&|other| other == at)).is_ok();
        row(&free)
    }

    /// Columns in another order, and in turn without each of them.
    #[test]
    fn every_answer_is_given_whichever_column_an_interval_lacks() {
        const PATHS: [&str; 9] = [
            "onion",
            "report",
            "perfetto",
            "pprof/cpu",
            "pprof/spin",
            "pprof/offcpu",
            "folded/cpu",
            "folded/spin",
            "folded/offcpu",
        ];
        let tables: Vec<_> = ncpu_schema::tables().map(|table| (table, a_row(table))).collect();
        let most = tables.iter().map(|(_, row)| row.columns().len()).max().unwrap();
        for lacking in 0..most {
            let without = |(_, row): &(&Definition, Table)| {
                let mut names: Vec<&str> = row.columns().iter().rev().map(|c| c.name.as_str()).collect();
                // A table of one column would have none.
                if names.len() > 1 {
                    names.remove(lacking % names.len());
                }
                row.project(&names).unwrap()
            };
            let whole: Vec<Table> = tables.iter().map(|(_, row)| row.clone()).collect();
            let part: Vec<Table> = tables.iter().map(without).collect();
            let intervals = [held(0, &whole), held(1, &part), held(2, &part), held(3, &whole)];
            for some in [&intervals[..], &intervals[1..3], &intervals[1..]] {
                let merged = recording(&about(), some).unwrap();
                ncpu_schema::check(&merged).unwrap();
                for path in PATHS {
                    let answer = Profile::at(path).unwrap().of(&merged);
                    assert!(answer.is_ok(), "{path} without column {lacking}: {:?}", answer.err());
                }
                for (table, row) in &tables {
                    let sums = sums(&about(), some, table.name).unwrap().unwrap();
                    let time = sums.columns().iter().any(|c| c.name == "t");
                    let declared = row.columns().iter().filter(|c| time || c.name != "t").count();
                    assert_eq!(sums.columns().len(), declared, "{} without column {lacking}", table.name);
                }
            }
            for one in &intervals {
                let merged = recording(&about(), std::slice::from_ref(one)).unwrap();
                Metrics::new("1").add(&one.head, &merged, 1).unwrap();
            }
        }
    }

    /// `lift` is a key that stands behind the numbers.
    #[test]
    fn limits_met_in_several_intervals_are_one_row_each() {
        let of = |used: u64| {
            let mut rows = limits_met::Rows::new();
            for limit in ["RLIMIT_NOFILE", "pids.max"] {
                rows.push(limits_met::Row {
                    limit: limit.into(),
                    of: "process 7".into(),
                    allowed: Some(64),
                    used: Some(used),
                    refused: Some(1),
                    killed: Some(0),
                    refaults: Some(0),
                    lift: "prlimit --pid 7 --nofile=256".into(),
                });
            }
            rows.finish()
        };
        let intervals: Vec<_> = (0..4).map(|n| held(n, &[of(60 + n)])).collect();
        let merged = recording(&about(), &intervals).unwrap();
        let limits = limits_met::Reader::need(&merged).unwrap();
        let row = |row| {
            (limits.limit.get(row), limits.used.get(row), limits.refused.get(row), limits.allowed.get(row))
        };
        assert_eq!(limits.len(), 2);
        assert_eq!(row(0), (Some("RLIMIT_NOFILE"), Some(63), Some(4), Some(64)));
        assert_eq!(limits.lift.get(1), Some("prlimit --pid 7 --nofile=256"));
        assert_eq!(merged.tables[limits_met::NAME].columns(), limits_met::columns());
    }

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
