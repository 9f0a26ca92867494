//! Few large parts of many small ones.
//!
//! A journal names what is about to be done, then the large parts are written, then the small ones removed: nothing is
//! lost at any moment, and while the journal is there rows may be there twice. Whoever finds a journal and nobody at work
//! finishes it before they ask or add.

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

/// Bytes of a table's day that make one part. A day of more stays in hours.
const DAY: u64 = 64 << 20;

/// Bytes of a table's month that make one part: so few that nobody gains by reading some of its days only.
const MONTH: u64 = 4 << 20;

/// Parts beside each other that an addition puts together.
const FEW: usize = 8;

/// Bytes of a table's day that an addition makes one part of, if it is over. More would cost more than the addition.
const LITTLE: u64 = 1 << 20;

/// Parts of more bytes are not written anew by an addition.
const LARGE: u64 = 4 << 20;

/// How long is waited for those who hold the fleet.
const PATIENCE: Duration = Duration::from_secs(2);

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

/// Parts that become one.
struct Group {
    table: Kept,
    new: String,
    old: Vec<Part>,
}

/// How to compact.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Finishes what somebody else left in an object store, whoever they were.
    pub take_over: bool,
    /// Threads.
    pub threads: usize,
    /// The time, microseconds since 1970: days and months that are not over are left in hours and days.
    pub now: i64,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Parts before.
    pub before: usize,
    /// Parts after.
    pub after: usize,
}

/// Keeps compactions off while the answer is kept. One that was cut off is finished first.
///
/// # Errors
/// Somebody compacts; or was cut off while they did, and this cannot be finished here.
pub fn not_compacted(store: &dyn Store, hold: Hold) -> Result<Box<dyn Any + Send>> {
    let root = store.root();
    let begun = Instant::now();
    loop {
        if let Some(held) = store.lock(hold)? {
            let Some(journal) = store.get(JOURNAL)? else { return Ok(held) };
            drop(held);
            // In a directory the lock tells that whoever wrote it is gone.
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
                        .map_or_else(|_| "somebody".into(), |j| j.by);
                    return Err(Error::Fleet(format!(
                        "{root} is being compacted by {by}; if that was cut off, `ncpu fleet compact {root}` finishes it"
                    )));
                }
            }
        } else if begun.elapsed() >= PATIENCE {
            return Err(Error::Fleet(match hold {
                Hold::Alone => format!("{root} is being added to or asked: try again when that is over"),
                Hold::Ask | Hold::Add => format!("{root} is being compacted: try again when that is over"),
            }));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Makes few parts of many: of a day that is over one, of a month that is over and holds little one, else of each hour one.
///
/// # Errors
/// A part cannot be read or written; then the next compaction goes on where this one was.
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
        // Where somebody else took the names, it is theirs to go on.
        if groups.is_empty() || parts >= last {
            return Ok(outcome);
        }
        last = parts;
        run(store, &groups, options.threads)?;
    }
}

/// An object store, where the journal itself keeps others off; what was left in it is finished where that is asked for.
fn taken_over(store: &dyn Store, take_over: bool) -> Result<Box<dyn Any + Send>> {
    let root = store.root();
    let held = store.lock(Hold::Alone)?.ok_or_else(|| Error::Fleet(format!("{root} is being compacted")))?;
    if let Some(left) = store.get(JOURNAL)? {
        if !take_over {
            return Err(Error::Fleet(format!(
                "{root} is being compacted, or was cut off: if it was, --take-over finishes it"
            )));
        }
        finish(store, &left)?;
    }
    for (name, _) in store.adding()?.into_iter().filter(|_| take_over) {
        store.remove(&name)?;
    }
    Ok(held)
}

/// What is to be made of the parts of a table.
fn plan(store: &dyn Store, table: Kept, parts: Vec<Part>, now: i64) -> Result<Vec<Group>> {
    let today = Span::of(now);
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

/// Parts that become one of a span; nothing where there is one already.
fn group(store: &dyn Store, table: Kept, span: &Span, old: Vec<Part>) -> Result<Option<Group>> {
    if old.len() < 2 {
        return Ok(None);
    }
    let last = parts::list(store, table, Some(span))?.iter().map(|p| p.number).max();
    let number = parts::next(store, table, span, last.unwrap_or(0))?;
    Ok(Some(Group { table, new: parts::name(table, span, number), old }))
}

/// Puts the small parts of these hours together after an addition to them, where nobody else is at the fleet: those of a
/// day that is over and holds little, else those of an hour. A part is put together with others again once they hold half
/// as much, so however recordings come, each is written anew a few times, not once for each that follows.
///
/// # Errors
/// A part cannot be read or written.
pub fn tidy(store: &dyn Store, hours: &[Span], options: &Options) -> Result<()> {
    // Object stores cannot tell whether somebody asks.
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

/// Those parts that are worth putting together: the smallest, and each that holds no more than twice all before it.
fn small(mut parts: Vec<Part>) -> Vec<Part> {
    parts.sort_by_key(|p| p.bytes);
    // A part of one recording is little but what every file has: its schema and its columns' places.
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
    // In the order of time again.
    parts.sort();
    parts
}

/// Makes one part of each group.
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
    // Whoever begins to add from now on sees the journal.
    if let Some((_, who)) = store.adding()?.first() {
        store.remove(JOURNAL)?;
        return Err(Error::Fleet(format!(
            "{root} is being added to by {who}: try again when that is over; if it was cut off, --take-over goes on"
        )));
    }
    let done = each(threads, groups, &AtomicBool::new(false), |group| {
        // What is gone somebody else has compacted.
        let Some(bytes) = together(store, group)? else { return Ok(()) };
        if store.put_new(&group.new, &bytes)? {
            group.old.iter().try_for_each(|p| store.remove(&p.name))?;
        }
        Ok(())
    });
    if let Err(e) = done {
        // Those that came to their end stay done; if this fails too, the journal is there for the next.
        let _ = finish(store, &journal);
        return Err(e);
    }
    store.remove(JOURNAL)
}

/// Finishes what a journal tells of: where the new part is there, the old ones go.
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
        // An addition may have been given this number first. Then it has other recordings, as it leaves out those that
        // are there, and nothing was compacted yet.
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

/// The rows of a group's parts, those of a recording next to each other; nothing where one of them is gone.
fn together(store: &dyn Store, group: &Group) -> Result<Option<Vec<u8>>> {
    let declared = group.table.columns();
    let mut out = Parquet::new(group.table)?;
    for part in &group.old {
        let Some(bytes) = store.get(&part.name)? else { return Ok(None) };
        tables::each(&part.name, bytes, |rows| {
            // A column that a newer ncpu added would be lost.
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

/// Rows of an older ncpu, or whose columns are in another order, with the columns of today.
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
