//! Parts: the files of a table, `TABLE/date=2026-11-10/hour=07/part-000001.parquet`.

use std::collections::{BTreeMap, HashSet};

use ncpu_table::Table;

use crate::rollup::Rolled;
use crate::store::Store;
use crate::tables::{self, Kept};
use crate::{Error, Result, when};

/// A date and an hour, UTC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour {
    /// `2026-11-10`.
    pub date: String,
    /// `07`.
    pub hour: String,
}

impl Hour {
    /// That of a time.
    pub fn of(us: i64) -> Hour {
        Hour { date: when::date(us), hour: when::hour(us) }
    }

    /// Its directory in a table.
    pub fn directory(&self, table: Kept) -> String {
        format!("{}/date={}/hour={}", table.name(), self.date, self.hour)
    }
}

/// A part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The hour that its recordings began in.
    pub hour: Hour,
    /// Its number there.
    pub number: u32,
    /// Its name below the root.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// The name of a part.
pub fn name(table: Kept, hour: &Hour, number: u32) -> String {
    format!("{}/part-{number:06}.parquet", hour.directory(table))
}

/// The parts of a table, of one hour or of all, in order.
///
/// # Errors
/// They cannot be listed.
pub fn list(store: &dyn Store, table: Kept, hour: Option<&Hour>) -> Result<Vec<Part>> {
    let below = hour.map_or_else(|| table.name().to_string(), |hour| hour.directory(table));
    let mut parts: Vec<Part> =
        store.list(&below)?.into_iter().filter_map(|e| parse(table, e.name, e.bytes)).collect();
    parts.sort();
    Ok(parts)
}

/// Whatever else lies there is not ours.
fn parse(table: Kept, name: String, bytes: u64) -> Option<Part> {
    let mut words = name.strip_prefix(table.name())?.strip_prefix('/')?.split('/');
    let date = words.next()?.strip_prefix("date=")?;
    let hour = words.next()?.strip_prefix("hour=")?;
    let number = words.next()?.strip_prefix("part-")?.strip_suffix(".parquet")?.parse().ok()?;
    let plain = words.next().is_none() && date.len() == 10 && hour.len() == 2;
    let hour = Hour { date: date.into(), hour: hour.into() };
    plain.then_some(Part { hour, number, name, bytes })
}

/// What is known of one hour of one table.
#[derive(Default)]
struct Seen {
    parts: HashSet<String>,
    ids: HashSet<String>,
    last: u32,
}

impl Seen {
    /// Reads those parts that were not read before.
    fn update(&mut self, store: &dyn Store, table: Kept, hour: &Hour) -> Result<()> {
        'again: loop {
            for part in list(store, table, Some(hour))? {
                self.last = self.last.max(part.number);
                if self.parts.contains(&part.name) {
                    continue;
                }
                // Compacted away since it was listed: its rows are in a later part.
                let Some(bytes) = store.get(&part.name)? else { continue 'again };
                self.ids.extend(tables::ids(&part.name, bytes)?);
                self.parts.insert(part.name);
            }
            return Ok(());
        }
    }
}

/// The recordings that a table has of some hours.
///
/// # Errors
/// A part cannot be read.
pub fn ids(store: &dyn Store, table: Kept, hour: &Hour) -> Result<HashSet<String>> {
    let mut seen = Seen::default();
    seen.update(store, table, hour)?;
    Ok(seen.ids)
}

/// Puts the rows of recordings of one hour in place, those left out that the table has already. However many do this at
/// once, each recording's rows are there once: the number after the last is given to one of them, and the others look at
/// what that one has written.
///
/// # Errors
/// A part cannot be read or written. What was written before is whole, and stays.
pub fn commit(store: &dyn Store, hour: &Hour, rolled: &[Rolled]) -> Result<()> {
    for table in Kept::ALL {
        let mut seen = Seen::default();
        loop {
            seen.update(store, table, hour)?;
            let mut rows = table.builder();
            for one in rolled.iter().filter(|r| !seen.ids.contains(&r.key.id)) {
                one.rows(table, &mut rows);
            }
            if rows.is_empty() || put(store, table, hour, seen.last, rows.finish())? {
                break;
            }
        }
    }
    Ok(())
}

/// Tries to write rows as the part after `last`; tells whether its number was free.
fn put(store: &dyn Store, table: Kept, hour: &Hour, last: u32, rows: Table) -> Result<bool> {
    let number = last.checked_add(1).filter(|n| *n <= 999_999);
    let number = number.ok_or_else(|| {
        Error::Fleet(format!("{} is full: run `ncpu fleet compact {}`", hour.directory(table), store.root()))
    })?;
    store.put_new(&name(table, hour, number), &tables::parquet(&rows)?)
}

/// Parts by hour.
pub fn by_hour(parts: Vec<Part>) -> BTreeMap<Hour, Vec<Part>> {
    let mut out: BTreeMap<Hour, Vec<Part>> = BTreeMap::new();
    for part in parts {
        out.entry(part.hour.clone()).or_default().push(part);
    }
    out
}
