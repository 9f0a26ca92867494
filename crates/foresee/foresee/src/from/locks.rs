//! Locks by what waiting for them took.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_table::Table;

use crate::first::{self, Bin, Hold};
use crate::model::LockPart;
use crate::program::LockKind;

/// Locks with waits of less than this share of the program's time are left out.
const LEAST: f64 = 0.001;
/// The most locks that are modelled.
const MOST: usize = 8;

/// Lines that move with a spinlock from one CPU to another: its word, the queue's, and what it guards. MCS locks of published curves
/// take 2.2 to 4.2 transfers for the first two; descriptors of two and of sixteen threads take five for all.
pub(super) const LINES: f64 = 5.0;
/// The same of locks whose waiters sleep.
pub(super) const LINES_ASLEEP: f64 = 2.0;

/// Without a hypervisor, the first waiter of a spinlock that a tracepoint reports is really the second: it waits for
/// the residual of one hold time and for all of another, which is this many hold times on average, at the usual spread.
const BEHIND_ONE: f64 = 1.625;

/// The recorded waits for a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Waits a second.
    pub(super) rate: f64,
    /// How long they took on average, ns.
    pub(super) wait: f64,
    /// The hold time by first waiters' waits, if there were enough of them.
    pub(super) first: Option<Hold>,
    /// The hand-over time, ns, by the shortest of these waits.
    pub(super) least: Option<f64>,
    /// The mean wait is not what the waits of the first say: threads come to it in step.
    pub(super) in_step: bool,
    /// How long it is held, ns, by waits behind one that is not seen.
    pub(super) behind: Option<f64>,
    /// How long it is held for each unit, ns, all acquisitions together, by what waiting for it cost; and for one acquisition.
    pub(super) held: Option<(f64, f64)>,
    /// Acquisitions for each unit, where they were counted.
    pub(super) takes: Option<f64>,
}

/// A lock of the program as the causes of its recording name it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedLock {
    /// Its name.
    pub name: String,
    /// Its rows of table `user_locks`: one lock at several addresses, in several processes, by readers and writers.
    pub rows: Vec<usize>,
    /// CPU-seconds that waiting for it cost.
    pub lost: f64,
    /// CPU-seconds of code in which it may be held.
    pub inside: f64,
    /// CPU-seconds of the instructions that take it and give it back.
    pub entering: f64,
}

/// A reader-writer lock of pthreads has two futexes: its readers sleep in one of them, its writers in either.
const TWO_WORDS: &str = "pthread rwlock";

/// The names of user locks, by row of `user_locks` and by the text that both tables have for a lock.
pub(super) struct Names<'a> {
    named: Option<&'a [NamedLock]>,
    rows: BTreeMap<usize, &'a str>,
    words: BTreeMap<String, String>,
}

impl<'a> Names<'a> {
    /// Names by the causes of a recording where they are known, else by the locks' own.
    pub(super) fn of(recording: &Recording, named: Option<&'a [NamedLock]>) -> Names<'a> {
        let mut names = Names { named, rows: BTreeMap::new(), words: BTreeMap::new() };
        let Some(t) = recording.tables.get("user_locks") else { return names };
        let mut most = BTreeMap::<String, f64>::new();
        for lock in named.unwrap_or_default() {
            for &row in &lock.rows {
                names.rows.insert(row, &lock.name);
                // A text may stand for several locks: waits of the first in queues are those of the one with most waits.
                let word = t.text(row, "lock").unwrap_or_default().to_string();
                let count = t.number(row, "count").unwrap_or(0.0);
                let known = most.entry(word.clone()).or_insert(-1.0);
                if count > *known {
                    *known = count;
                    names.words.insert(word, lock.name.clone());
                }
            }
        }
        if named.is_none() {
            let rows = (0..t.num_rows()).filter(|&r| t.text(r, "pattern") == Some(TWO_WORDS));
            let wholes = rows.filter_map(|r| t.text(r, "lock")).map(|word| (word.to_string(), whole(word)));
            names.words.extend(wholes);
        }
        names
    }

    /// The lock of a row of `user_locks`; `None` where nobody holds it.
    fn of_row(&'a self, t: &'a Table, row: usize) -> Option<&'a str> {
        if self.named.is_some() {
            return self.rows.get(&row).copied();
        }
        let kind = t.text(row, "type").unwrap_or_default();
        let held = !matches!(kind, "condition" | "barrier" | "semaphore" | "unknown" | "");
        held.then(|| self.of_word(t.text(row, "lock").unwrap_or_default()))
    }

    fn of_word(&'a self, word: &'a str) -> &'a str {
        self.words.get(word).map_or(word, String::as_str)
    }

    /// The lock of this name in the causes.
    fn cause(&self, name: &str) -> Option<&NamedLock> {
        self.named?.iter().find(|lock| lock.name == name)
    }
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

/// Waits of first waiters of a lock with `ahead` unseen waiters before them, shortest first.
fn first_waits(recording: &Recording, name: &str, kernel: bool, ahead: u64, names: &Names<'_>) -> Vec<Bin> {
    let Some(t) = recording.tables.get("first_waits") else { return Vec::new() };
    let mut bins = BTreeMap::<u64, Bin>::new();
    for row in 0..t.num_rows() {
        let word = t.text(row, "lock").unwrap_or_default();
        let mine = (if kernel { word } else { names.of_word(word) }) == name
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
        // HotSpot's monitors spin while the owner runs.
        "Java monitor" => LockKind::Mutex,
        // Their waiters sleep at once; the second is a simulated one.
        "lock" | "block" | "semaphore" if !kernel => LockKind::Block,
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
    /// Seconds of the waits that told its type.
    most: f64,
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

/// CPU time that falling asleep and being woken on another CPU takes where that was not seen, ns.
const WAKING: f64 = 8_000.0;

/// See [`in_futex`].
const MOST_IN_FUTEX: f64 = 20_000.0;

/// Figures of a recording apart from its locks.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    /// How long it would have taken had the program had its CPUs to itself, seconds.
    pub(super) elapsed: f64,
    /// Threads on CPU on average.
    pub(super) running: f64,
    /// Units of work done.
    pub(super) units: f64,
    /// Workers, and no more than CPUs.
    pub(super) threads: u32,
    /// CPU-seconds spun for kernel locks.
    pub(super) spin: f64,
    /// CPUs that the program had.
    pub(super) cpus: u32,
    /// How often a CPU was taken from a worker.
    pub(super) preempted: f64,
    /// How often workers went to sleep.
    pub(super) slept: f64,
}

/// Factor on the waits for spinlocks: where only windows were counted and scaled, the time that samples show decides.
fn counted_part(recording: &Recording, spin: f64) -> f64 {
    let Some(t) = recording.tables.get("locks") else { return 1.0 };
    let rows = || 0..t.num_rows();
    let number = |r: usize, c: &str| t.number(r, c).unwrap_or(0.0);
    let scaled = rows().any(|r| t.number(r, "counted").is_some_and(|n| n < number(r, "count")));
    let all: f64 = rows().map(|r| number(r, "spin")).sum();
    if scaled && all > 0.0 && spin > 0.0 { spin / all } else { 1.0 }
}

/// Frames of a thread that a condition has woken and that takes its mutex again.
const TAKES_AGAIN: [&str; 3] = ["mutex_cond_lock", "pthread_cond_", "Condvar>::wait"];

/// Whether a wait for a user lock shows for how long it is held. On one CPU a thread that is woken under a condition's mutex takes the CPU
/// from its waker, which holds the mutex: that wait shows the wake-up.
fn is_of_holder(table: &Table, row: usize, cpus: u32) -> bool {
    let stack = table.text(row, "stack").unwrap_or_default();
    cpus > 1 || !TAKES_AGAIN.iter().any(|frame| stack.contains(frame))
}

/// The acquisitions of a lock are not recorded, only the number of waits: with R threads running, a share rho of the
/// time held and A acquisitions, A rho (R-1)/R wait, and rho = A S / elapsed.
pub(super) fn locks(
    recording: &Recording,
    names: &Names<'_>,
    about: &About,
    notes: &mut Vec<String>,
) -> Vec<LockPart> {
    let About { elapsed, running, units, threads, spin, cpus, slept, .. } = *about;
    let part = counted_part(recording, spin);
    let mut found = BTreeMap::<(bool, String), Found>::new();
    for (table, kernel) in [("locks", true), ("user_locks", false)] {
        let Some(table) = recording.tables.get(table) else { continue };
        for row in 0..table.num_rows() {
            let number = |c: &str| table.number(row, c).unwrap_or(0.0);
            let kind = table.text(row, "type").unwrap_or_default();
            let lock = match kernel {
                true => table.text(row, "lock").unwrap_or_default(),
                false => match names.of_row(table, row).filter(|_| is_of_holder(table, row, cpus)) {
                    Some(lock) => lock,
                    None => continue,
                },
            };
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
            let kind = match table.text(row, "pattern") {
                Some("Java monitor") if !kernel => "Java monitor",
                _ => kind,
            };
            let (mut count, mut wait) = (number("count"), number("spin") + number("block"));
            if kernel && number("spin") > number("block") {
                (count, wait) = (part * count, part * wait);
            }
            let one = found.entry((kernel, lock.to_string())).or_insert_with(|| Found {
                name: lock.to_string(),
                kernel,
                ..Found::default()
            });
            if one.of.is_empty() || wait > one.most {
                (one.of, one.most) = (kind.to_string(), wait);
            }
            one.count += count;
            one.wait += wait;
            one.reads += if reads { count } else { 0.0 };
        }
    }
    let mut found: Vec<Found> = found.into_values().collect();
    found.sort_by(|a, b| b.wait.total_cmp(&a.wait));
    let total = found.len();
    // On one CPU a lock is waited for where its holder lost the CPU; spinlocks keep it. Threads that sleep for other reasons lose it to
    // those that they wake, with the lock that goes with the work: how long that is held, such waits do not tell.
    let shown = |f: &Found| cpus > 1 || kind(&f.of, f.kernel) != LockKind::Qspin && f.count > MOSTLY * slept;
    found.retain(|f| f.count >= 20.0 && f.wait > LEAST * elapsed && shown(f));
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
    // On one CPU threads seldom sleep for a lock, and need not be woken on another.
    let in_futex = if cpus > 1 { in_futex(recording) } else { WAKING };
    found
        .into_iter()
        .map(|Found { name, of, kernel, count, wait, reads, .. }| {
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
                // Readers wait less often; by how much is not known.
                reads: reads / count,
                copies: 1,
                lines: 1.0,
                waiter_ns: None,
                wake_ns: if kernel { 0.0 } else { in_futex },
            }
        })
        .collect()
}

/// Hold times above this follow well from first waiters' waits, ns: waits for futexes include the way into the kernel
/// and out of it.
const TOLD_BY_WAITS: f64 = 10_000.0;
/// The way into the kernel, as a part of a wait for a futex, ns.
const ENTERED: f64 = 2000.0;
/// The shortest acquisition of a lock that guards anything, ns.
const LEAST_EACH: f64 = 100.0;
/// The least share of all sleeps that waits for a lock must have for its hold time to follow from them on
/// one CPU.
const MOSTLY: f64 = 0.5;
/// The time of the instructions that take and release a lock, ns.
const ENTERING: f64 = 12.0;
/// One acquisition of a lock of which nothing is known, ns.
const UNKNOWN: f64 = 2000.0;
/// Locks are not taken for busier than that, as a share of the time.
const BUSIEST: f64 = 0.97;
/// Where waits are shorter than this on average, ns, holders run: they are in the code that takes the lock.
const HOLDERS_RUN: f64 = 200_000.0;

/// The share of the time that a lock is held, if waiting for it took the share `lost` of the time of `cpus` CPUs: each
/// CPU computes for a while and then passes through the lock, which serves its waiters one after another (mean value
/// analysis of a closed queue).
fn busy(cpus: u32, lost: f64) -> f64 {
    // The lost share, and the share of the time held, with a hold time of `r` times the computing.
    let of = |r: f64| {
        let (mut queue, mut through, mut wait) = (0.0, 0.0, 0.0);
        for n in 1..=cpus.max(2) {
            wait = r * queue;
            through = f64::from(n) / (1.0 + r + wait);
            queue = through * (r + wait);
        }
        (wait / (1.0 + r + wait), through * r)
    };
    let (mut low, mut high) = (1e-6f64, 1e6f64);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if of(middle).0 < lost { low = middle } else { high = middle }
    }
    of(low).1.min(BUSIEST)
}

/// Whether threads with this lock mostly stood on a run queue while others waited for it, and did not sleep.
fn holder_is_runnable(recording: &Recording, names: &Names<'_>, lock: &str) -> bool {
    let Some(t) = recording.tables.get("thread_time") else { return false };
    let (mut runnable, mut all) = (0.0, 0.0);
    let mine = |r: &usize| {
        t.text(*r, "holder_in").is_some()
            && t.text(*r, "what").is_some_and(|what| names.of_word(what) == lock)
    };
    for r in (0..t.num_rows()).filter(mine) {
        let held = t.number(r, "held").unwrap_or(0.0);
        all += held;
        runnable += if t.text(r, "holder_in") == Some(ncpu_schema::ON_QUEUE) { held } else { 0.0 };
    }
    runnable > MOSTLY * all
}

/// How each lock of a model was waited for.
pub(super) fn seen(recording: &Recording, names: &Names<'_>, locks: &[LockPart], about: &About) -> Vec<Seen> {
    let About { elapsed, units, spin, cpus, preempted, .. } = *about;
    let part = counted_part(recording, spin);
    let of = |lock: &LockPart| {
        let (mut count, mut wait) = (0.0, 0.0);
        if let Some(t) = recording.tables.get(if lock.kernel { "locks" } else { "user_locks" }) {
            let mine = |r: &usize| match lock.kernel {
                true => t.text(*r, "lock") == Some(&lock.name),
                false => names.of_row(t, *r) == Some(&lock.name) && is_of_holder(t, *r, cpus),
            };
            for r in (0..t.num_rows()).filter(mine) {
                count += t.number(r, "count").unwrap_or(0.0);
                wait += t.number(r, "spin").unwrap_or(0.0) + t.number(r, "block").unwrap_or(0.0);
            }
        }
        if lock.kernel && lock.kind == LockKind::Qspin {
            (count, wait) = (part * count, part * wait);
        }
        let waits = |ahead| first::hold(&first_waits(recording, &lock.name, lock.kernel, ahead, names));
        let first = waits(0);
        let behind = if first.is_none() { waits(1).map(|w| w.wait / BEHIND_ONE) } else { None };
        let least = first.map(|f| f.least);
        let wait = wait / count.max(1.0) * 1e9;
        let cause = names.cause(&lock.name).filter(|_| !lock.kernel);
        // So much at most, and not more often than this.
        let inside = cause.map(|c| c.inside).filter(|s| *s > 0.0 && wait < HOLDERS_RUN);
        let each = |held: f64| {
            let told = first.map_or(f64::INFINITY, |f| f.ns - ENTERED);
            let often = cause.map_or(0.0, |c| c.entering * 1e9 / ENTERING);
            let by_instructions = if often > 0.0 { held * units / often } else { UNKNOWN };
            told.min(by_instructions).max(LEAST_EACH)
        };
        let held = match cause {
            // A thread that loses its CPU has the lock with this probability, and all others wait for it then. Threads that wake others
            // under the lock lose it to these: the code under the lock is no longer than it was seen to run.
            _ if cpus == 1 => {
                let seconds = (count / preempted.max(1.0)).min(BUSIEST) * elapsed;
                let ran = cause
                    .map(|c| c.inside)
                    .filter(|s| *s > 0.0 && holder_is_runnable(recording, names, &lock.name));
                Some(ran.map_or(seconds, |ran| seconds.min(ran)))
            }
            Some(cause) if !first.is_some_and(|f| f.ns >= TOLD_BY_WAITS) => {
                let busy = busy(cpus, cause.lost / (f64::from(cpus) * elapsed)) * elapsed;
                Some(inside.map_or(busy, |inside| busy.min(inside)))
            }
            _ => None,
        };
        let held = held.map(|seconds| seconds / units * 1e9).map(|held| (held, each(held)));
        Seen {
            rate: count / elapsed,
            wait,
            first: first.filter(|_| held.is_none()),
            least,
            in_step: false,
            behind: behind.filter(|_| held.is_none()),
            held,
            takes: None,
        }
    };
    locks.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_as_busy_as_what_is_lost_to_it_says() {
        // Two CPUs: held for a quarter, half and all of what is computed between.
        for (r, lost) in [(0.25, 0.05 / 1.3), (0.5, 0.1), (1.0, 0.2)] {
            let through = 2.0 / ((1.0 + r) / (1.0 - lost));
            assert!((busy(2, lost) - through * r).abs() < 0.01, "{r}: {}", busy(2, lost));
        }
        assert_eq!(busy(2, 0.6), BUSIEST);
        assert!(busy(4, 0.01) < busy(4, 0.1) && busy(2, 0.0) < 0.01);
    }

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
