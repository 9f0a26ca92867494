//! Locks by what waiting for them took.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_table::Table;

use crate::first::{self, Bin, Hold};
use crate::model::LockPart;
use crate::program::LockKind;

/// Locks whose waits are less than this share of the program's time tell nothing.
const LEAST: f64 = 0.001;
/// The most locks that are modelled.
const MOST: usize = 8;

/// The first waiter of a spinlock that a tracepoint tells of is the second where there is no hypervisor: it waits for what is
/// left of one time that the lock is held, and for all of another: on average so many of them, at the usual spread.
const BEHIND_ONE: f64 = 1.625;

/// What a recording says of how a lock was waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Waits a second.
    pub(super) rate: f64,
    /// How long they took on average, ns.
    pub(super) wait: f64,
    /// By the waits of who was first, where there are enough: they tell how long it is held.
    pub(super) first: Option<Hold>,
    /// What handing it over takes, ns, by the shortest of these waits.
    pub(super) least: Option<f64>,
    /// The mean wait is not what the waits of the first say: threads come to it in step.
    pub(super) in_step: bool,
    /// How long it is held, ns, by waits behind one that is not seen.
    pub(super) behind: Option<f64>,
    /// Acquisitions for each unit, where they were counted.
    pub(super) takes: Option<f64>,
}

/// A reader-writer lock of pthreads has two futexes: its readers sleep in one of them, its writers in either.
const TWO_WORDS: &str = "pthread rwlock";

/// What to call the lock of which each of these futexes is a part.
fn whole_locks(recording: &Recording) -> BTreeMap<String, String> {
    let Some(t) = recording.tables.get("user_locks") else { return BTreeMap::new() };
    let rows = (0..t.num_rows()).filter(|&r| t.text(r, "pattern") == Some(TWO_WORDS));
    rows.filter_map(|r| t.text(r, "lock")).map(|word| (word.to_string(), whole(word))).collect()
}

/// The lock of a futex word: the words are the third and fourth of a lock, four bytes each.
fn whole(word: &str) -> String {
    match word.rsplit_once('+') {
        Some((name, "0x8" | "0xc")) => return name.into(),
        Some((name, offset)) => match number(offset).and_then(|n| (n & !7).checked_sub(8)) {
            Some(offset) => return format!("{name}+{offset:#x}"),
            None => return word.into(),
        },
        None => {}
    }
    match number(word).and_then(|n| (n & !7).checked_sub(8)) {
        Some(address) => format!("{address:#x}"),
        None => word.into(),
    }
}

fn number(hex: &str) -> Option<u64> {
    u64::from_str_radix(hex.strip_prefix("0x")?, 16).ok()
}

/// The name of the lock of a row, which may be one of its words.
fn lock_of<'a>(t: &'a Table, row: usize, wholes: &'a BTreeMap<String, String>) -> &'a str {
    let word = t.text(row, "lock").unwrap_or_default();
    wholes.get(word).map_or(word, String::as_str)
}

/// The waits of who was first in a lock's queue with so many unseen waiters before, shortest first.
fn first_waits(
    recording: &Recording,
    name: &str,
    kernel: bool,
    ahead: u64,
    wholes: &BTreeMap<String, String>,
) -> Vec<Bin> {
    let Some(t) = recording.tables.get("first_waits") else { return Vec::new() };
    let mut bins = BTreeMap::<u64, Bin>::new();
    for row in 0..t.num_rows() {
        let mine = lock_of(t, row, wholes) == name
            && t.int(row, "pid").is_none() == kernel
            && t.int(row, "ahead").unwrap_or(0) == ahead;
        let number = |c: &str| t.number(row, c);
        let (Some(from), Some(to), Some(count), true) = (number("from"), number("to"), number("count"), mine)
        else {
            continue;
        };
        let bin = bins.entry((to * 1e3) as u64).or_insert(Bin { from: from * 1e3, to: to * 1e3, count: 0.0 });
        bin.count += count;
    }
    bins.into_values().collect()
}

/// How a kind of lock of a recording is simulated.
fn kind(of: &str, kernel: bool) -> LockKind {
    match of {
        "rwlock" if kernel => LockKind::Qspin,
        "rwsem" | "percpu-rwsem" if kernel => LockKind::Rwsem,
        "mutex" | "rwsem" | "rwlock" | "percpu-rwsem" | "rt-mutex" => LockKind::Mutex,
        // Their waiters sleep at once; the second is a simulated one.
        "lock" | "block" if !kernel => LockKind::Block,
        _ if kernel => LockKind::Qspin,
        _ => LockKind::Mutex,
    }
}

/// A lock that was waited for.
#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    name: String,
    /// Its type.
    of: String,
    kernel: bool,
    /// Waits, of those to read, and seconds of all.
    count: f64,
    reads: f64,
    wait: f64,
}

/// CPU time in the calls of futexes for each sleep in one, ns, up to a bound: where they are seldom, samples say little.
pub(super) fn in_futex(recording: &Recording) -> f64 {
    let table = |name: &str| recording.tables.get(name);
    let (Some(samples), Some(cpus), Some(locks)) = (table("samples"), table("cpu_time"), table("user_locks"))
    else {
        return 0.0;
    };
    let weight = |futex: bool| -> f64 {
        let of = |r: &usize| {
            let call =
                samples.text(*r, "class") == Some("syscall") && samples.text(*r, "detail") == Some("futex");
            samples.text(*r, "at") == Some("target") && (call || !futex)
        };
        (0..samples.num_rows()).filter(of).filter_map(|r| samples.number(r, "samples")).sum()
    };
    let seconds = weight(true) / weight(false).max(1.0) * super::sum(cpus, "target");
    (seconds / super::sum(locks, "count").max(1.0) * 1e9).min(MOST_IN_FUTEX)
}

/// See [`in_futex`].
const MOST_IN_FUTEX: f64 = 20_000.0;

/// How often each was taken is not recorded, only how often somebody had to wait: with R threads running, a share rho of
/// the time held and A acquisitions, A rho (R-1)/R wait, and rho = A S / elapsed.
pub(super) fn locks(
    recording: &Recording,
    elapsed: f64,
    running: f64,
    units: f64,
    threads: u32,
    notes: &mut Vec<String>,
) -> Vec<LockPart> {
    let wholes = whole_locks(recording);
    let mut found = BTreeMap::<(bool, String, String), Found>::new();
    for (name, kernel) in [("locks", true), ("user_locks", false)] {
        let Some(table) = recording.tables.get(name) else { continue };
        for row in 0..table.num_rows() {
            let number = |c: &str| table.number(row, c).unwrap_or(0.0);
            let kind = table.text(row, "type").unwrap_or_default();
            if !kernel && !["lock", "block", "mutex", "queue lock", "rwlock"].contains(&kind) {
                continue;
            }
            let lock = lock_of(table, row, &wholes).to_string();
            // Each CPU has its own: more CPUs have more of them.
            if kernel && lock.starts_with("rq(") {
                continue;
            }
            // Those that wait to read, and to write, wait for one lock.
            let (kind, reads) = match kind.split_once(':') {
                Some((kind, how)) => (kind, how == "R"),
                None => (
                    kind,
                    table.text(row, "stack").is_some_and(|s| s.contains("rwlock_") && s.contains("rdlock")),
                ),
            };
            let (count, wait) = (number("count"), number("spin") + number("block"));
            let one = found.entry((kernel, lock.clone(), kind.to_string())).or_insert_with(|| Found {
                name: lock,
                of: kind.to_string(),
                kernel,
                ..Found::default()
            });
            one.count += count;
            one.wait += wait;
            one.reads += if reads { count } else { 0.0 };
        }
    }
    let mut found: Vec<Found> = found.into_values().collect();
    found.sort_by(|a, b| b.wait.total_cmp(&a.wait));
    let total = found.len();
    found.retain(|f| f.count >= 20.0 && f.wait > LEAST * elapsed);
    found.truncate(MOST);
    if found.is_empty() {
        notes.push(
            match total {
                0 => "no lock was waited for, so none is in the model: on more CPUs one may be; ",
                _ => "no lock was waited for enough to be modelled; ",
            }
            .to_string()
                + "record with more threads or more CPUs, or write locks into a model (--to-model)",
        );
    }
    let running = running.min(f64::from(threads)).max(1.05);
    let in_futex = in_futex(recording);
    found
        .into_iter()
        .map(|Found { name, of, kernel, count, wait, reads }| {
            let hold = wait / count;
            let takes = (count * elapsed * running / (hold * (running - 1.0))).sqrt();
            // It cannot be held for longer than there was.
            let takes = takes.max(count).min(0.9 * elapsed / hold.max(1e-12)).max(count);
            LockPart {
                name,
                kind: kind(&of, kernel),
                kernel,
                takes: takes / units,
                hold_ns: hold * 1e9,
                cv: 0.5,
                // Who only reads waits less often; by how much is not known.
                reads: reads / count,
                copies: 1,
                waiter_ns: None,
                wake_ns: if kernel { 0.0 } else { in_futex },
            }
        })
        .collect()
}

/// How each lock of a model was waited for.
pub(super) fn seen(recording: &Recording, locks: &[LockPart], elapsed: f64) -> Vec<Seen> {
    let wholes = whole_locks(recording);
    let of = |lock: &LockPart| {
        let (mut count, mut wait) = (0.0, 0.0);
        if let Some(t) = recording.tables.get(if lock.kernel { "locks" } else { "user_locks" }) {
            for r in (0..t.num_rows()).filter(|&r| lock_of(t, r, &wholes) == lock.name) {
                count += t.number(r, "count").unwrap_or(0.0);
                wait += t.number(r, "spin").unwrap_or(0.0) + t.number(r, "block").unwrap_or(0.0);
            }
        }
        let waits = |ahead| first::hold(&first_waits(recording, &lock.name, lock.kernel, ahead, &wholes));
        let first = waits(0);
        let behind = if first.is_none() { waits(1).map(|w| w.wait / BEHIND_ONE) } else { None };
        let least = first.map(|f| f.least);
        Seen {
            rate: count / elapsed,
            wait: wait / count.max(1.0) * 1e9,
            first,
            least,
            in_step: false,
            behind,
            takes: None,
        }
    };
    locks.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_words_of_a_lock_are_that_lock() {
        for (word, lock) in [
            ("rwlock+0x8", "rwlock"),
            ("rwlock+0xc", "rwlock"),
            ("cache+0x48", "cache+0x40"),
            ("cache+0x4c", "cache+0x40"),
            ("0x7f0000001008", "0x7f0000001000"),
            ("0x7f000000100c", "0x7f0000001000"),
            ("rwlock", "rwlock"),
            ("0x4", "0x4"),
        ] {
            assert_eq!(whole(word), lock, "{word}");
        }
    }
}
