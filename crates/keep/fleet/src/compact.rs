//! Merges many small parts into a few large ones.
//!
//! A journal names the planned steps, then the large parts are written, then the small ones removed. No row
//! is lost at any moment, but while the journal exists rows may be there twice. A process that finds a
//! journal without a running compaction finishes it before it queries or adds.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ncpu_table::{Column, Table, Type};
use serde::{Deserialize, Serialize};

use crate::parts::{self, Part, Span};
use crate::store::{Hold, Store};
use crate::tables::{self, Kept, Parquet};
use crate::threads::each;
use crate::{Error, Result, when};

const JOURNAL: &str = "compacting.json";

/// The most bytes of a table's day in one part. A larger day stays in hours.
const DAY: u64 = 64 << 20;

/// The most bytes of a table's month in one part: few enough that reading only some of its days saves
/// nothing.
const MONTH: u64 = 4 << 20;

/// The number of parts of a span from which an addition merges them.
const FEW: usize = 8;

/// The most bytes of a table's past day that an addition merges. More would cost more than the addition.
const LITTLE: u64 = 1 << 20;

/// Parts with more bytes are not rewritten by an addition.
const LARGE: u64 = 4 << 20;

/// How long to wait for other processes that use the fleet.
const PATIENCE: Duration = Duration::from_secs(2);

/// The plan of a compaction.
#[derive(Serialize, Deserialize)]
struct Journal {
    /// The process, for messages.
    by: String,
    /// Each new part, and the parts it replaces.
    steps: Vec<Step>,
}

#[derive(Serialize, Deserialize)]
struct Step {
    new: String,
    old: Vec<String>,
}

/// Parts to merge into one.
struct Group {
    table: Kept,
    new: String,
    old: Vec<Part>,
}

/// Options of a compaction.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to finish a compaction that another process left in an object store.
    pub take_over: bool,
    /// Threads.
    pub threads: usize,
    /// The time, microseconds since 1970: unfinished days and months stay in hours and days.
    pub now: i64,
}

/// Result of a compaction.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Parts before.
    pub before: usize,
    /// Parts after.
    pub after: usize,
}

/// Blocks compactions while the returned value exists. An interrupted one is finished first.
///
/// # Errors
/// A compaction is running, or was interrupted and cannot be finished here.
pub fn not_compacted(store: &dyn Store, hold: Hold) -> Result<Box<dyn Any + Send>> {
    let root = store.root();
    let begun = Instant::now();
    loop {
        if let Some(held) = store.lock(hold)? {
            let Some(journal) = store.get(JOURNAL)? else { return Ok(held) };
            drop(held);
            // In a directory, holding the lock proves that the writer of the journal has ended.
            let alone = match store.directory() {
                Some(_) => store.lock(Hold::Alone)?,
                None => None,
            };
            match alone {
                Some(_alone) => {
                    finish(store, &journal)?;
                    continue;
                }
                None if begun.elapsed() < PATIENCE && store.directory().is_some() => {}
                None => {
                    let by = serde_json::from_slice::<Journal>(&journal)
                        .map_or_else(|_| "another process".into(), |j| j.by);
                    return Err(Error::Fleet(format!(
                        "{root} is being compacted by {by}; if that process was interrupted, `ncpu fleet compact {root}` finishes it"
                    )));
                }
            }
        } else if begun.elapsed() >= PATIENCE {
            return Err(Error::Fleet(match hold {
                Hold::Alone => format!("{root} is in use by an addition or a query; try again later"),
                Hold::Ask | Hold::Add => format!("{root} is being compacted; try again later"),
            }));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Merges parts: one for a past day, one for a past month with little data, otherwise one for each hour.
///
/// # Errors
/// A part cannot be read or written; the next compaction then continues where this one stopped.
pub fn compact(store: &dyn Store, options: &Options) -> Result<Outcome> {
    let _held = match store.directory() {
        Some(_) => not_compacted(store, Hold::Alone)?,
        None => taken_over(store, options.take_over)?,
    };
    store.sweep()?;
    let mut outcome = Outcome::default();
    let mut last = usize::MAX;
    loop {
        let (mut groups, mut parts) = (Vec::new(), 0);
        for table in Kept::ALL {
            let all = parts::list(store, table, None)?;
            parts += all.len();
            groups.extend(plan(store, table, all, options.now)?);
        }
        if last == usize::MAX {
            outcome.before = parts;
        }
        outcome.after = parts;
        // Another process took the names, and continues with them.
        if groups.is_empty() || parts >= last {
            return Ok(outcome);
        }
        last = parts;
        run(store, &groups, options.threads)?;
    }
}

/// In an object store the journal itself blocks other processes; an interrupted compaction is finished on
/// request.
fn taken_over(store: &dyn Store, take_over: bool) -> Result<Box<dyn Any + Send>> {
    let root = store.root();
    let held = store.lock(Hold::Alone)?.ok_or_else(|| Error::Fleet(format!("{root} is being compacted")))?;
    if let Some(left) = store.get(JOURNAL)? {
        if !take_over {
            return Err(Error::Fleet(format!(
                "{root} is being compacted, or the compaction was interrupted; in that case --take-over finishes it"
            )));
        }
        finish(store, &left)?;
    }
    for (name, _) in store.adding()?.into_iter().filter(|_| take_over) {
        store.remove(&name)?;
    }
    Ok(held)
}

/// The groups to make of a table's parts.
fn plan(store: &dyn Store, table: Kept, parts: Vec<Part>, now: i64) -> Result<Vec<Group>> {
    let today = Span::hour_at(now);
    let over = |span: &Span| match span {
        Span::Month(_) => *span < today.month(),
        Span::Day(_) => today.day().is_some_and(|today| *span < today),
        Span::Hour(..) => true,
    };
    let mut groups = Vec::new();
    let mut by = |parts: Vec<Part>, of: &dyn Fn(&Span) -> Option<Span>, most: u64| -> Result<Vec<Part>> {
        let (mut spans, mut rest): (BTreeMap<Span, Vec<Part>>, Vec<Part>) = (BTreeMap::new(), Vec::new());
        for part in parts {
            match of(&part.span).filter(&over) {
                Some(span) => spans.entry(span).or_default().push(part),
                None => rest.push(part),
            }
        }
        for (span, parts) in spans {
            match parts.iter().map(|p| p.bytes).sum::<u64>() <= most {
                true => groups.extend(group(store, table, &span, parts)?),
                false => rest.extend(parts),
            }
        }
        Ok(rest)
    };
    let rest = by(parts, &|span| Some(span.month()), MONTH)?;
    let rest = by(rest, &|span| span.day(), DAY)?;
    by(rest, &|span| span.hour().map(|_| span.clone()), u64::MAX)?;
    Ok(groups)
}

/// The parts of a span to merge into one; `None` if there is only one already.
fn group(store: &dyn Store, table: Kept, span: &Span, old: Vec<Part>) -> Result<Option<Group>> {
    if old.len() < 2 {
        return Ok(None);
    }
    let last = parts::list(store, table, Some(span))?.iter().map(|p| p.number).max();
    let number = parts::next(store, table, span, last.unwrap_or(0))?;
    Ok(Some(Group { table, new: parts::name(table, span, number), old }))
}

/// Merges the small parts of these hours after an addition to them, unless another process uses the fleet:
/// those of a past day with little data, otherwise those of an hour. A part is merged with others again once
/// these have half its size. So each recording is rewritten a few times, and not once for each addition that
/// follows.
///
/// # Errors
/// A part cannot be read or written.
pub fn tidy(store: &dyn Store, hours: &[Span], options: &Options) -> Result<()> {
    // Object stores cannot tell whether queries are running.
    if store.directory().is_none() {
        return Ok(());
    }
    let Some(_held) = store.lock(Hold::Alone)? else { return Ok(()) };
    if store.get(JOURNAL)?.is_some() {
        return Ok(());
    }
    let today = when::date(options.now);
    let mut groups = Vec::new();
    for table in Kept::ALL {
        let dates: BTreeSet<&str> = hours.iter().filter_map(Span::date).collect();
        for date in dates {
            let all = parts::of_date(store, table, date)?;
            if all.len() < FEW {
                continue;
            }
            if date < today.as_str() && all.iter().map(|p| p.bytes).sum::<u64>() <= LITTLE {
                let day = Span::Day(date.into());
                groups.extend(group(store, table, &day, small(all))?);
                continue;
            }
            for hour in hours.iter().filter(|h| h.date() == Some(date)) {
                let of_hour = all.iter().filter(|p| p.span == *hour).cloned().collect();
                groups.extend(group(store, table, hour, small(of_hour))?);
            }
        }
    }
    run(store, &groups, options.threads)
}

/// The parts worth merging: the smallest, and each that is at most twice the size of all before it.
fn small(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by_key(|p| p.bytes);
    // Most of a part with one recording is the common overhead of files: its schema and its columns' places.
    let every = parts.first().map_or(0, |p| p.bytes - p.bytes / 16);
    let (mut sum, mut taken) = (0, 0);
    for part in parts.iter().take_while(|p| p.bytes <= LARGE) {
        let holds = part.bytes - every;
        if taken > 0 && holds > 2 * sum {
            break;
        }
        sum += holds;
        taken += 1;
    }
    parts.truncate(if taken < FEW { 0 } else { taken });
    // Back in the order of time.
    parts.sort();
    parts
}

/// Merges each group into one part.
fn run(store: &dyn Store, groups: &[Group], threads: usize) -> Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    let names = |g: &Group| g.old.iter().map(|p| p.name.clone()).collect();
    let steps = groups.iter().map(|g| Step { new: g.new.clone(), old: names(g) }).collect();
    let journal = serde_json::to_vec(&Journal { by: format!("process {}", std::process::id()), steps });
    let journal = journal.map_err(|e| Error::store(JOURNAL, "write", e))?;
    let root = store.root();
    if !store.put_new(JOURNAL, &journal)? {
        return Err(Error::Fleet(format!("{root} is being compacted by another process")));
    }
    // An addition that begins after this sees the journal.
    if let Some((_, who)) = store.adding()?.first() {
        store.remove(JOURNAL)?;
        return Err(Error::Fleet(format!(
            "{root} is being added to by {who}; try again later, or with --take-over if that process was interrupted"
        )));
    }
    let done = each(threads, groups, &AtomicBool::new(false), |group| {
        // A missing part was compacted by another process.
        let Some(bytes) = together(store, group)? else { return Ok(()) };
        if store.put_new(&group.new, &bytes)? {
            group.old.iter().try_for_each(|p| store.remove(&p.name))?;
        }
        Ok(())
    });
    if let Err(e) = done {
        // Completed groups stay done; if this fails too, the next process finds the journal.
        let _ = finish(store, &journal);
        return Err(e);
    }
    store.remove(JOURNAL)
}

/// Finishes the steps of a journal: where the new part exists, the old ones are removed.
fn finish(store: &dyn Store, journal: &[u8]) -> Result<()> {
    let journal: Journal = serde_json::from_slice(journal)
        .map_err(|e| Error::Fleet(format!("{}/{JOURNAL} cannot be read: {e}", store.root())))?;
    let mut there: HashMap<Kept, HashSet<String>> = HashMap::new();
    for step in &journal.steps {
        let of =
            |name: &String| Kept::ALL.into_iter().find(|t| name.starts_with(&format!("{}/date=", t.name())));
        let table = of(&step.new).filter(|table| {
            // A part that is to replace itself would be removed.
            let others = step.old.iter().all(|old| *old != step.new);
            others && step.old.iter().chain([&step.new]).all(|n| of(n) == Some(*table) && !n.contains(".."))
        });
        let Some(table) = table else {
            return Err(Error::Fleet(format!("{}/{JOURNAL} names files that are not parts", store.root())));
        };
        let names = match there.entry(table) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(parts::list(store, table, None)?.into_iter().map(|p| p.name).collect())
            }
        };
        let left = |name: &&String| names.contains(*name);
        let old: Vec<&String> = step.old.iter().filter(left).collect();
        if old.is_empty() || !left(&&step.new) {
            continue;
        }
        // An addition may have been given this number first. The part then has other recordings, because an
        // addition leaves out existing ones, and the old parts were not compacted yet.
        let Some(new) = store.get(&step.new)? else { continue };
        let new: HashSet<String> = tables::ids(&step.new, new)?.into_iter().collect();
        for name in old {
            let Some(old) = store.get(name)? else { continue };
            if tables::ids(name, old)?.iter().all(|id| new.contains(id)) {
                store.remove(name)?;
            }
        }
    }
    store.remove(JOURNAL)
}

/// The rows of a group's parts, sorted by recording; `None` if one part no longer exists.
fn together(store: &dyn Store, group: &Group) -> Result<Option<Vec<u8>>> {
    let declared = group.table.columns();
    let mut out = Parquet::new(group.table)?;
    for part in &group.old {
        let Some(bytes) = store.get(&part.name)? else { return Ok(None) };
        tables::each(&part.name, bytes, |rows| {
            // A column added by a newer ncpu would be lost.
            if let Some(strange) = rows.columns().iter().find(|c| !declared.iter().any(|d| d.name == c.name))
            {
                return Err(Error::Fleet(format!(
                    "{} has a column `{}` that this ncpu does not know: compact with a newer one",
                    part.name, strange.name
                )));
            }
            match rows.columns().len() == declared.len() && rows.columns().iter().zip(&declared).all(same) {
                true => out.write(rows),
                false => out.write(&as_declared(group.table, rows, &declared)),
            }
        })?;
    }
    out.close().map(Some)
}

fn same((found, declared): (&Column, &Column)) -> bool {
    (&found.name, found.ty) == (&declared.name, declared.ty)
}

/// Rows of an older ncpu, or with another order of columns, with today's columns.
fn as_declared(table: Kept, old: &Table, declared: &[Column]) -> Table {
    let mut rows = table.builder();
    for r in 0..old.num_rows() {
        declared.iter().fold(rows.row(), |row, column| match column.ty {
            Type::Text => row.text_opt(old.text(r, &column.name)),
            Type::Int => row.int_opt(old.int(r, &column.name)),
            Type::Float => row.float_opt(old.number(r, &column.name)),
        });
    }
    rows.finish()
}
