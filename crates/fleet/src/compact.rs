//! Few large parts of many small ones.
//!
//! The large part is written first, then the small ones are removed, so nothing is lost at any moment; and a journal says
//! meanwhile that rows may be there twice. Questions and additions are refused while it is there, and whoever compacts
//! next finishes it.

use std::any::Any;
use std::collections::HashSet;

use ncpu_table::{Builder, Table};
use serde::{Deserialize, Serialize};

use crate::parts::{self, Hour, Part};
use crate::store::Store;
use crate::tables::{self, Kept};
use crate::{Error, Result};

const JOURNAL: &str = "compacting.json";

/// What a compaction is about to do.
#[derive(Serialize, Deserialize)]
struct Journal {
    /// Who, for people.
    by: String,
    /// Each new part, and the parts whose rows it has.
    steps: Vec<Step>,
}

#[derive(Serialize, Deserialize)]
struct Step {
    new: String,
    old: Vec<String>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Parts before.
    pub before: usize,
    /// Parts after.
    pub after: usize,
}

/// Holds off compactions while the answer is kept, or others too where it is for one.
///
/// # Errors
/// Somebody compacts, or was cut off while they did.
pub fn not_compacted(store: &dyn Store, alone: bool) -> Result<Box<dyn Any + Send>> {
    let root = store.root();
    let busy = || match alone {
        true => format!("{root} is being added to or asked: try again when that is over"),
        false => format!("{root} is being compacted: try again when that is over"),
    };
    let held = store.lock(alone)?.ok_or_else(|| Error::Fleet(busy()))?;
    if !alone && let Some(journal) = store.get(JOURNAL)? {
        let by = serde_json::from_slice::<Journal>(&journal).map_or_else(|_| "somebody".into(), |j| j.by);
        return Err(Error::Fleet(format!(
            "{root} is being compacted by {by}; if that was cut off, `ncpu fleet compact {root}` finishes it"
        )));
    }
    Ok(held)
}

/// Makes one part of those of each hour, in every table.
///
/// # Errors
/// A part cannot be read or written; then the next compaction goes on where this one was.
pub fn compact(store: &dyn Store, take_over: bool) -> Result<Outcome> {
    let _held = not_compacted(store, true)?;
    if let Some(left) = store.get(JOURNAL)? {
        // In a directory the lock tells that nobody is at it.
        if store.directory().is_none() && !take_over {
            return Err(Error::Fleet(format!(
                "{} is being compacted, or was cut off: if it was, --take-over finishes it",
                store.root()
            )));
        }
        finish(store, &left)?;
    }
    let mut outcome = Outcome::default();
    for table in Kept::ALL {
        let all = parts::list(store, table, None)?;
        outcome.before += all.len();
        for (hour, small) in parts::by_hour(all) {
            outcome.after += 1;
            if small.len() > 1 {
                outcome.after += one(store, table, &hour, small)?;
            }
        }
    }
    Ok(outcome)
}

/// Compacts an hour of a table; how many parts came meanwhile.
fn one(store: &dyn Store, table: Kept, hour: &Hour, mut small: Vec<Part>) -> Result<usize> {
    let planned = small.len();
    loop {
        let rows = together(store, table, &small)?;
        let number = small.last().map_or(0, |p| p.number) + 1;
        let new = parts::name(table, hour, number);
        let old = small.iter().map(|p| p.name.clone()).collect();
        let by = format!("process {}", std::process::id());
        let journal = serde_json::to_vec(&Journal { by, steps: vec![Step { new: new.clone(), old }] });
        let journal = journal.map_err(|e| Error::store(JOURNAL, "write", e))?;
        if !store.put_new(JOURNAL, &journal)? {
            return Err(Error::Fleet(format!("{} is being compacted by somebody else", store.root())));
        }
        // Somebody added before they could see the journal: theirs has the number, and is compacted too.
        if !store.put_new(&new, &tables::parquet(&rows)?)? {
            store.remove(JOURNAL)?;
            small = parts::list(store, table, Some(hour))?;
            continue;
        }
        small.iter().try_for_each(|p| store.remove(&p.name))?;
        store.remove(JOURNAL)?;
        return Ok(small.len() - planned.min(small.len()));
    }
}

/// Finishes what a journal tells of: where the new part is there, the old ones go.
fn finish(store: &dyn Store, journal: &[u8]) -> Result<()> {
    let journal: Journal = serde_json::from_slice(journal)
        .map_err(|e| Error::Fleet(format!("{}/{JOURNAL} cannot be read: {e}", store.root())))?;
    for step in &journal.steps {
        let ours = |name: &String| Kept::ALL.iter().any(|t| name.starts_with(&format!("{}/date=", t.name())));
        if !step.old.iter().chain([&step.new]).all(|n| ours(n) && !n.contains("..")) {
            return Err(Error::Fleet(format!("{}/{JOURNAL} names files that are no parts", store.root())));
        }
        let Some(new) = store.get(&step.new)? else { continue };
        // An addition may have been given this number first. Then it has other recordings, as it leaves out those that
        // are there, and nothing was compacted yet.
        let new: HashSet<String> = tables::ids(&step.new, new)?.into_iter().collect();
        for name in &step.old {
            let Some(old) = store.get(name)? else { continue };
            if tables::ids(name, old)?.iter().all(|id| new.contains(id)) {
                store.remove(name)?;
            }
        }
    }
    store.remove(JOURNAL)
}

/// The rows of parts, those of a recording next to each other.
fn together(store: &dyn Store, table: Kept, small: &[Part]) -> Result<Table> {
    let declared = table.columns();
    let mut rows: Builder = table.builder();
    for part in small {
        let gone = || Error::Fleet(format!("{} went away while it was compacted", part.name));
        let bytes = store.get(&part.name)?.ok_or_else(gone)?;
        let old =
            Table::of_parquet(table.name(), bytes, |_| true).map_err(|e| Error::part(&part.name, &e))?;
        // A column that a newer ncpu added would be lost.
        if let Some(strange) = old.columns().iter().find(|c| !declared.iter().any(|d| d.name == c.name)) {
            return Err(Error::Fleet(format!(
                "{} has a column `{}` that this ncpu does not know: compact with a newer one",
                part.name, strange.name
            )));
        }
        for r in 0..old.num_rows() {
            declared.iter().fold(rows.row(), |row, column| match column.ty {
                ncpu_table::Type::Text => row.text_opt(old.text(r, &column.name)),
                ncpu_table::Type::Int => row.int_opt(old.int(r, &column.name)),
                ncpu_table::Type::Float => row.float_opt(old.number(r, &column.name)),
            });
        }
    }
    Ok(rows.finish())
}
