//! Locks and system calls: the tables behind the layers.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use ncpu_record::Recording;
use ncpu_table::Table;

use super::grid::{Cell, number, table, word};
use super::markup::{count, percent, sane, seconds};
use crate::locks::{is_futex, is_scaled, is_user_lock};
use crate::onion::Onion;

/// Rows put together by `keys`; none where the recording lacks the table or a key.
pub(super) fn grouped(recording: &Recording, name: &str, keys: &[&str]) -> Option<Table> {
    recording.tables.get(name)?.group_by(keys).ok().filter(|t| t.num_rows() > 0)
}

pub(super) fn value(table: &Table, row: usize, column: &str) -> f64 {
    sane(table.number(row, column))
}

pub(super) fn text(table: &Table, row: usize, column: &str) -> String {
    table.text(row, column).unwrap_or("–").to_string()
}

pub(super) fn secs(s: f64) -> Cell {
    Cell::Number(s, seconds(s))
}

pub(super) fn many(n: f64) -> Cell {
    Cell::Number(n, count(n))
}

fn micros(us: f64) -> Cell {
    Cell::Number(us, if us >= 100.0 { count(us) } else { format!("{us:.1}") })
}

fn share(part: f64, whole: f64) -> Cell {
    let p = if whole > 0.0 { part / whole } else { 0.0 };
    Cell::Number(p, percent(p))
}

/// Rows, largest weight first.
pub(super) fn ranked(mut rows: Vec<(f64, Vec<Cell>)>) -> Vec<Vec<Cell>> {
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows.into_iter().map(|(_, cells)| cells).collect()
}

pub(super) fn none(out: &mut String, words: &str) {
    let _ = write!(out, "<p class=none>{words}</p>");
}

/// `close_fd 62 %, ksys_dup3 20 %`: the largest shares of each key's time, by `by`.
fn blame(table: &Table, key: impl Fn(usize) -> String, who: &str, by: &[&str]) -> HashMap<String, String> {
    let mut of: HashMap<String, BTreeMap<String, f64>> = HashMap::new();
    for r in 0..table.num_rows() {
        let Some(name) = table.text(r, who) else { continue };
        let time: f64 = by.iter().map(|c| value(table, r, c)).sum();
        *of.entry(key(r)).or_default().entry(name.to_string()).or_default() += time;
    }
    of.into_iter()
        .map(|(key, who)| {
            let total: f64 = who.values().sum();
            let mut who: Vec<_> = who.into_iter().collect();
            who.sort_by(|a, b| b.1.total_cmp(&a.1));
            let mut told: Vec<String> = who
                .iter()
                .take(3)
                .map(|(name, s)| format!("{name} {:.0} %", 100.0 * s / total.max(1e-12)))
                .collect();
            if let Some(rest @ [_, ..]) = who.get(3..) {
                let s: f64 = rest.iter().map(|(_, s)| s).sum();
                told.push(format!("{} more {:.0} %", rest.len(), 100.0 * s / total.max(1e-12)));
            }
            (key, told.join(", "))
        })
        .collect()
}

/// Cells of a row as one key; no name holds a NUL.
fn joined(table: &Table, row: usize, keys: &[&str]) -> String {
    keys.iter().map(|k| text(table, row, k)).collect::<Vec<_>>().join("\0")
}

pub(super) fn locks(out: &mut String, recording: &Recording, onion: &Onion) {
    let counted = match is_scaled(recording).unwrap_or(false) {
        true => {
            "Contended acquisitions are counted part of the time, and scaled: +- is in <code>ncpu locks</code>."
        }
        false => "Every contended acquisition is counted.",
    };
    let _ = write!(
        out,
        "<section id=locks><h2>Kernel locks</h2><p class=lead>{counted} Util is time spun over capacity; callers are \
         of the contentions whose stacks were walked.</p>"
    );
    match grouped(recording, "locks", &["lock", "type"]) {
        None if recording.manifest.view.is_some() => none(out, "Not seen: this was recorded without root."),
        None => none(out, "No kernel lock was contended, or none could be traced."),
        Some(t) => {
            let keys = ["lock", "type"];
            let walked = grouped(recording, "lock_callers", &["lock", "type", "caller"]);
            let callers = walked
                .map(|t| blame(&t, |r| joined(&t, r, &keys), "caller", &["spin", "block"]))
                .unwrap_or_default();
            let rows = (0..t.num_rows()).map(|r| {
                let (spin, block, n) = (value(&t, r, "spin"), value(&t, r, "block"), value(&t, r, "count"));
                let who = callers.get(&joined(&t, r, &keys)).cloned().unwrap_or_default();
                let mean = (spin + block) * 1e6 / n.max(1.0);
                let cells = vec![
                    Cell::Text(text(&t, r, "lock")),
                    Cell::Text(text(&t, r, "type")),
                    share(spin, onion.capacity),
                    secs(spin),
                    secs(block),
                    many(n),
                    micros(mean),
                    micros(value(&t, r, "max")),
                    Cell::Words(who),
                ];
                // A blocked thread gives its CPU away, so what was spun comes first.
                (spin + block * 1e-6, cells)
            });
            let heads = [
                word("lock", "name of the lock"),
                word("type", "spinlock, mutex, rwsem …"),
                number("util", "spin over capacity"),
                number("spin s", "time waiting on CPU"),
                number("block s", "time waiting off CPU"),
                number("count", "contended acquisitions"),
                number("mean µs", "mean wait"),
                number("max µs", "longest wait"),
                word("callers", "functions that asked for it, by time waited"),
            ];
            table(out, "Kernel locks", &heads, 2, ranked(rows.collect()));
        }
    }
    out.push_str("</section>");
}

pub(super) fn user_locks(out: &mut String, recording: &Recording) {
    out.push_str(
        "<section id=user-locks><h2>User locks</h2><p class=lead>Waits on futexes, and for locks of libncpu: locks and \
         semaphores are contention, conditions are threads waiting for work.</p>",
    );
    // A recording of an older version has no patterns.
    let has = |name: &str| {
        recording.tables.get("user_locks").is_some_and(|t| t.columns().iter().any(|c| c.name == name))
    };
    let named = has("pattern") && has("advice");
    let all = ["lock", "type", "process", "caller", "pattern", "advice"];
    let keys = &all[..if named { 6 } else { 4 }];
    let with_pid = |t: &Table, r: usize| format!("{}\0{}", joined(t, r, keys), value(t, r, "pid"));
    match grouped(recording, "user_locks", &[keys, &["pid"]].concat()) {
        None => none(out, "No thread waited for a user lock."),
        Some(t) => {
            let holders = recording.tables.get("user_locks");
            let holders =
                holders.map(|t| blame(t, |r| with_pid(t, r), "holder", &["block"])).unwrap_or_default();
            let rows = (0..t.num_rows()).map(|r| {
                let (block, n) = (value(&t, r, "block"), value(&t, r, "count"));
                let kind = text(&t, r, "type");
                // Conditions last: their waits are long and mostly no fault.
                let rank = if is_user_lock(&kind) { 1e9 } else { 0.0 };
                let spin = value(&t, r, "spin");
                let mut cells = vec![
                    Cell::Text(text(&t, r, "lock")),
                    Cell::Text(kind.clone()),
                    Cell::Text(format!("{}/{}", text(&t, r, "process"), value(&t, r, "pid"))),
                    if is_futex(&kind) { Cell::Number(0.0, String::new()) } else { secs(spin) },
                    secs(block),
                    many(n),
                    micros(block * 1e6 / n.max(1.0)),
                    micros(value(&t, r, "max")),
                    Cell::Text(text(&t, r, "caller")),
                    Cell::Words(holders.get(&with_pid(&t, r)).cloned().unwrap_or_default()),
                ];
                if named {
                    cells.insert(1, Cell::Text(t.text(r, "pattern").unwrap_or("").to_string()));
                    cells.push(Cell::Words(t.text(r, "advice").unwrap_or("").to_string()));
                }
                (rank + block + spin, cells)
            });
            let mut heads = vec![
                word("lock", "symbol where it is static, else address"),
                word("type", "of futexes: lock, semaphore, condition or unknown; others are libncpu's"),
                word("process", "the waiting process"),
                number("spin s", "time waiting on CPU, where the lock tells"),
                number("block s", "time waiting off CPU, all threads"),
                number("count", "waits"),
                number("mean µs", "mean wait"),
                number("max µs", "longest wait"),
                word("caller", "where it waits"),
                word("holders", "threads that woke the waiters, by time waited"),
            ];
            if named {
                heads.insert(1, word("pattern", "what it is to its users: GIL, Java monitor …"));
                heads.push(word("advice", "what helps"));
            }
            table(out, "User locks", &heads, usize::MAX, ranked(rows.collect()));
        }
    }
    out.push_str("</section>");
}

pub(super) fn calls(out: &mut String, recording: &Recording, onion: &Onion) {
    out.push_str(
        "<section id=calls><h2>System calls</h2><p class=lead>Time on CPU from timer samples, with the \
         half-width of its 95 % interval; time asleep is exact, all threads together.</p>",
    );
    let cpu = recording.tables.get("cpu_time");
    let target = cpu.map_or(0.0, |t| (0..t.num_rows()).map(|r| value(t, r, "target")).sum::<f64>());
    let mut by_call: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut total = 0.0;
    if let Some(t) = recording.tables.get("samples") {
        for r in (0..t.num_rows()).filter(|&r| t.text(r, "at") == Some("target")) {
            let n = value(t, r, "samples");
            total += n;
            let call = match t.text(r, "class") {
                Some("exec") => "execve".to_string(),
                Some("exit") => "exit".to_string(),
                Some("syscall") if t.text(r, "detail") == Some("entry") => {
                    "[entering and leaving]".to_string()
                }
                Some("syscall") => text(t, r, "detail"),
                _ => continue,
            };
            by_call.entry(call).or_default().0 += n;
        }
    }
    if let Some(t) = recording.tables.get("sleeps") {
        for r in 0..t.num_rows() {
            by_call.entry(text(t, r, "call")).or_default().1 += value(t, r, "seconds");
        }
    }
    if by_call.is_empty() {
        none(out, "The program was in no system call when it was sampled, and slept in none.");
    } else {
        let rows = by_call.into_iter().map(|(call, (n, asleep))| {
            let p = if total > 0.0 { n / total } else { 0.0 };
            let error = if total > 0.0 {
                target * ncpu_schema::chance::half_width(n as u64, total as u64)
            } else {
                0.0
            };
            let on_cpu = target * p;
            let cells = vec![
                Cell::Text(call),
                share(on_cpu, onion.capacity),
                secs(on_cpu),
                secs(error),
                many(n),
                secs(asleep),
            ];
            (on_cpu + asleep * 1e-9, cells)
        });
        let heads = [
            word("call", "system call"),
            number("util", "time on CPU over capacity"),
            number("on CPU s", "estimated from samples"),
            number("± s", "half-width of the 95 % interval"),
            number("samples", "timer samples"),
            number("asleep s", "thread-seconds asleep in it"),
        ];
        table(out, "System calls", &heads, 1, ranked(rows.collect()));
    }
    out.push_str("</section>");
}
