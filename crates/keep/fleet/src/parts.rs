//! Parts: the files of a table, `TABLE/date=2026-11-10/hour=07/part-000001.parquet`.
//!
//! Additions write parts of an hour. Compaction makes parts of a whole day, without an hour, and of a whole
//! month, without a date: `hour=` and `date=` then have the value that query engines read as null.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use ncpu_table::Table;

use crate::rollup::{self, Rolled};
use crate::store::Store;
use crate::tables::{self, Kept};
use crate::{Error, Result, when};

/// The null value of a partition column, as Hive named it: Spark, Trino, Polars and DuckDB read it as null.
const NONE: &str = "__HIVE_DEFAULT_PARTITION__";

/// The period in which the recordings of a part began, UTC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// A month, `2026-11`.
    Month(String),
    /// A date, `2026-11-10`.
    Day(String),
    /// A date and an hour, `07`.
    Hour(String, String),
}

impl Span {
    /// The hour that contains a time.
    pub fn hour_at(us: i64) -> Span {
        Span::Hour(when::date(us), when::hour(us))
    }

    /// The day of an hour or a day.
    pub fn day(&self) -> Option<Span> {
        self.date().map(|date| Span::Day(date.into()))
    }

    /// The month that contains it.
    pub fn month(&self) -> Span {
        let of = |date: &str| Span::Month(date.get(..7).unwrap_or(date).into());
        match self {
            Span::Month(month) => Span::Month(month.clone()),
            Span::Day(date) | Span::Hour(date, _) => of(date),
        }
    }

    /// Its date; `None` for a month.
    pub fn date(&self) -> Option<&str> {
        match self {
            Span::Month(_) => None,
            Span::Day(date) | Span::Hour(date, _) => Some(date),
        }
    }

    /// Its hour; `None` for a day or a month.
    pub fn hour(&self) -> Option<&str> {
        match self {
            Span::Hour(_, hour) => Some(hour),
            Span::Month(_) | Span::Day(_) => None,
        }
    }

    /// Whether it may contain a time between these dates.
    pub fn meets(&self, from: Option<&str>, to: Option<&str>) -> bool {
        let (Span::Month(begin) | Span::Day(begin) | Span::Hour(begin, _)) = self;
        // As text, a month sorts before each of its dates.
        from.is_none_or(|from| begin.as_str() >= from.get(..begin.len()).unwrap_or(from))
            && to.is_none_or(|to| begin.as_str() <= to)
    }

    /// Its directory in a table.
    pub fn directory(&self, table: Kept) -> String {
        format!("{}/date={}/hour={}", table.name(), self.date().unwrap_or(NONE), self.hour().unwrap_or(NONE))
    }

    /// The common beginning of its parts' names. All months share one directory.
    fn stem(&self) -> String {
        match self {
            Span::Month(month) => format!("part-{month}-"),
            Span::Day(_) | Span::Hour(..) => "part-".into(),
        }
    }

    /// The names of its parts, as a pattern of file names.
    pub fn pattern(&self, table: Kept) -> String {
        format!("{}/{}*.parquet", self.directory(table), self.stem())
    }
}

/// A part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// When its recordings began.
    pub span: Span,
    /// Its number there.
    pub number: u32,
    /// Its name below the root.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// The name of a part.
pub fn name(table: Kept, span: &Span, number: u32) -> String {
    format!("{}/{}{number:06}.parquet", span.directory(table), span.stem())
}

/// The parts of a table, of one span or of all, in order.
///
/// # Errors
/// They cannot be listed.
pub fn list(store: &dyn Store, table: Kept, span: Option<&Span>) -> Result<Vec<Part>> {
    let below = span.map_or_else(|| table.name().to_string(), |span| span.directory(table));
    let found = store.list(&below)?.into_iter().filter_map(|e| parse(table, e.name, e.bytes));
    let mut parts: Vec<Part> = found.filter(|part| span.is_none_or(|span| part.span == *span)).collect();
    parts.sort();
    Ok(parts)
}

/// The parts of a table's day: those of the day, and those of its hours.
///
/// # Errors
/// They cannot be listed.
pub fn of_date(store: &dyn Store, table: Kept, date: &str) -> Result<Vec<Part>> {
    let found = store.list(&format!("{}/date={date}", table.name()))?;
    let mut parts: Vec<Part> = found.into_iter().filter_map(|e| parse(table, e.name, e.bytes)).collect();
    parts.sort();
    Ok(parts)
}

/// Other files there are ignored.
fn parse(table: Kept, name: String, bytes: u64) -> Option<Part> {
    let mut words = name.strip_prefix(table.name())?.strip_prefix('/')?.split('/');
    let date = words.next()?.strip_prefix("date=")?;
    let hour = words.next()?.strip_prefix("hour=")?;
    let mut number = words.next()?.strip_prefix("part-")?.strip_suffix(".parquet")?;
    let plain = words.next().is_none();
    let span = match (date, hour) {
        (NONE, NONE) => {
            let (month, rest) = number.rsplit_once('-')?;
            number = rest;
            (month.len() == 7).then(|| Span::Month(month.into()))?
        }
        (NONE, _) => return None,
        (date, NONE) if date.len() == 10 => Span::Day(date.into()),
        (date, hour) if date.len() == 10 && hour.len() == 2 => Span::Hour(date.into(), hour.into()),
        _ => return None,
    };
    let number = number.parse().ok()?;
    plain.then_some(Part { span, number, name, bytes })
}

/// The known content of one span of one table.
#[derive(Default)]
struct Seen {
    parts: HashSet<String>,
    ids: HashSet<String>,
    last: u32,
}

impl Seen {
    /// Reads the parts that were not read before.
    fn update(&mut self, store: &dyn Store, table: Kept, span: &Span) -> Result<()> {
        'again: loop {
            for part in list(store, table, Some(span))? {
                self.last = self.last.max(part.number);
                if self.parts.contains(&part.name) {
                    continue;
                }
                // The part was compacted since it was listed: its rows are in a later part.
                let Some(bytes) = store.get(&part.name)? else { continue 'again };
                self.ids.extend(tables::ids(&part.name, bytes)?);
                self.parts.insert(part.name);
            }
            return Ok(());
        }
    }
}

type Ids = Arc<HashSet<String>>;

/// Recordings in parts of days and months, read once. Only compaction makes such parts, and no compaction
/// runs during an addition.
#[derive(Default)]
pub struct Compacted {
    ids: Mutex<HashMap<(Kept, Span), Ids>>,
}

impl Compacted {
    /// The recordings of a table in parts of the day and the month of an hour.
    fn around(&self, store: &dyn Store, table: Kept, hour: &Span) -> Result<Vec<Ids>> {
        let wider = hour.day().into_iter().chain([hour.month()]);
        wider.map(|span| self.ids_of(store, table, span)).collect()
    }

    fn ids_of(&self, store: &dyn Store, table: Kept, span: Span) -> Result<Ids> {
        let key = (table, span);
        let known = self.ids.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        // Two threads may both read it, which does no harm.
        let mut seen = Seen::default();
        seen.update(store, table, &key.1)?;
        let ids = Arc::new(seen.ids);
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&ids));
        Ok(ids)
    }
}

/// The recordings of a table for an hour.
///
/// # Errors
/// A part cannot be read.
pub fn ids(store: &dyn Store, compacted: &Compacted, table: Kept, hour: &Span) -> Result<Vec<Ids>> {
    let mut seen = Seen::default();
    seen.update(store, table, hour)?;
    let mut out = compacted.around(store, table, hour)?;
    out.push(Arc::new(seen.ids));
    Ok(out)
}

/// Writes the rows of recordings of one hour, without those that the table already has. With any number of
/// concurrent writers each recording's rows are there once: one writer gets the number after the last, and
/// the others then read the part that it wrote.
///
/// # Errors
/// A part cannot be read or written. Parts written before are complete, and stay.
pub fn commit(store: &dyn Store, compacted: &Compacted, hour: &Span, rolled: &[Rolled]) -> Result<()> {
    for table in Kept::ALL {
        let wider = compacted.around(store, table, hour)?;
        let mut seen = Seen::default();
        loop {
            seen.update(store, table, hour)?;
            let known = |id: &String| seen.ids.contains(id) || wider.iter().any(|ids| ids.contains(id));
            let rows = rollup::table(table, rolled.iter().filter(|r| !known(&r.key.id)));
            if rows.num_rows() == 0 || put(store, table, hour, seen.last, rows)? {
                break;
            }
        }
    }
    Ok(())
}

/// Tries to write rows as the part after `last`; returns whether its number was free.
fn put(store: &dyn Store, table: Kept, hour: &Span, last: u32, rows: Table) -> Result<bool> {
    store.put_new(&name(table, hour, next(store, table, hour, last)?), &tables::parquet(table, &rows)?)
}

/// The number after the last of a span.
///
/// # Errors
/// The numbers are used up.
pub fn next(store: &dyn Store, table: Kept, span: &Span, last: u32) -> Result<u32> {
    last.checked_add(1).filter(|n| *n <= 999_999).ok_or_else(|| {
        Error::Fleet(format!("{} is full: run `ncpu fleet compact {}`", span.directory(table), store.root()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_span() {
        let hour = Span::hour_at(1_794_268_800_000_000 + 7 * 3_600_000_000);
        let day = hour.day().unwrap();
        for (span, file) in [
            (hour.clone(), "locks/date=2026-11-10/hour=07/part-000012.parquet"),
            (day.clone(), "locks/date=2026-11-10/hour=__HIVE_DEFAULT_PARTITION__/part-000012.parquet"),
            (
                hour.month(),
                "locks/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__/part-2026-11-000012.parquet",
            ),
        ] {
            assert_eq!(name(Kept::Locks, &span, 12), file);
            assert_eq!(
                parse(Kept::Locks, file.into(), 5).unwrap(),
                Part { span, number: 12, name: file.into(), bytes: 5 }
            );
        }
        assert_eq!(day.month(), Span::Month("2026-11".into()));
        for strange in [
            "locks/date=2026-11-10/part-000001.parquet",
            "locks/date=2026-11-10/hour=7/part-000001.parquet",
            "locks/date=__HIVE_DEFAULT_PARTITION__/hour=07/part-000001.parquet",
            "locks/date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__/part-000001.parquet",
            "locks/date=2026-11-10/hour=07/other-000001.parquet",
            "layers/date=2026-11-10/hour=07/part-000001.parquet",
        ] {
            assert_eq!(parse(Kept::Locks, strange.into(), 5), None, "{strange}");
        }
    }

    #[test]
    fn spans_between_dates() {
        let (month, day) = (Span::Month("2026-11".into()), Span::Day("2026-11-10".into()));
        for (from, to, in_month, in_day) in [
            (Some("2026-11-10"), Some("2026-11-10"), true, true),
            (Some("2026-11-11"), None, true, false),
            (Some("2026-12-01"), None, false, false),
            (None, Some("2026-11-01"), true, false),
            (None, Some("2026-10-31"), false, false),
            (Some("2025-12-31"), Some("2027-01-01"), true, true),
            (None, None, true, true),
        ] {
            assert_eq!((month.meets(from, to), day.meets(from, to)), (in_month, in_day), "{from:?} {to:?}");
        }
    }
}
