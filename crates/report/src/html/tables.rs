//! Locks, threads, system calls: the tables behind the layers.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use ncpu_record::Recording;
use ncpu_table::Table;

use super::grid::{Cell, number, table, word};
use super::markup::{count, percent, sane, seconds};
use crate::onion::Onion;

/// Rows put together by `keys`; none where the recording lacks the table or a key.
fn grouped(recording: &Recording, name: &str, keys: &[&str]) -> Option<Table> {
    recording.tables.get(name)?.group_by(keys).ok().filter(|t| t.num_rows() > 0)
}

fn value(table: &Table, row: usize, column: &str) -> f64 {
    sane(table.number(row, column))
}

fn text(table: &Table, row: usize, column: &str) -> String {
    table.text(row, column).unwrap_or("–").to_string()
}

fn secs(s: f64) -> Cell {
    Cell::Number(s, seconds(s))
}

fn many(n: f64) -> Cell {
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
fn ranked(mut rows: Vec<(f64, Vec<Cell>)>) -> Vec<Vec<Cell>> {
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows.into_iter().map(|(_, cells)| cells).collect()
}

fn none(out: &mut String, words: &str) {
    let _ = write!(out, "<p class=none>{words}</p>");
}

/// Who asked for each lock: `close_fd 62 %, dup2 20 %`, by time waited in walked contentions.
fn callers(recording: &Recording) -> HashMap<(String, String), String> {
    let Some(t) = grouped(recording, "lock_callers", &["lock", "type", "caller"]) else {
        return HashMap::new();
    };
    let mut of: HashMap<(String, String), Vec<(f64, String)>> = HashMap::new();
    for r in 0..t.num_rows() {
        let waited = value(&t, r, "spin") + value(&t, r, "block");
        of.entry((text(&t, r, "lock"), text(&t, r, "type")))
            .or_default()
            .push((waited, text(&t, r, "caller")));
    }
    of.into_iter()
        .map(|(lock, mut who)| {
            who.sort_by(|a, b| b.0.total_cmp(&a.0));
            let total: f64 = who.iter().map(|(s, _)| s).sum();
            let told = who
                .iter()
                .take(3)
                .map(|(s, caller)| format!("{caller} {:.0} %", 100.0 * s / total.max(1e-12)));
            (lock, told.collect::<Vec<_>>().join(", "))
        })
        .collect()
}

pub(super) fn locks(out: &mut String, recording: &Recording, onion: &Onion) {
    out.push_str(
        "<section id=locks><h2>Kernel locks</h2><p class=lead>Every contended acquisition is counted. \
         Util is time spun over capacity; callers are of the contentions whose stacks were walked.</p>",
    );
    match grouped(recording, "locks", &["lock", "type"]) {
        None => none(out, "No kernel lock was contended, or none could be traced."),
        Some(t) => {
            let callers = callers(recording);
            let rows = (0..t.num_rows()).map(|r| {
                let (spin, block, n) = (value(&t, r, "spin"), value(&t, r, "block"), value(&t, r, "count"));
                let key = (text(&t, r, "lock"), text(&t, r, "type"));
                let who = callers.get(&key).cloned().unwrap_or_default();
                let mean = (spin + block) * 1e6 / n.max(1.0);
                let cells = vec![
                    Cell::Text(key.0),
                    Cell::Text(key.1),
                    share(spin, onion.capacity),
                    secs(spin),
                    secs(block),
                    many(n),
                    micros(mean),
                    micros(value(&t, r, "max")),
                    Cell::Text(who),
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
        "<section id=user-locks><h2>User locks</h2><p class=lead>Waits on futexes: locks and semaphores are \
         contention, conditions are threads waiting for work.</p>",
    );
    match grouped(recording, "user_locks", &["lock", "type", "process", "pid", "caller", "holder"]) {
        None => none(out, "No thread waited for a user lock."),
        Some(t) => {
            let rows = (0..t.num_rows()).map(|r| {
                let (block, n) = (value(&t, r, "block"), value(&t, r, "count"));
                let kind = text(&t, r, "type");
                // Conditions last: their waits are long and mostly no fault.
                let rank = if matches!(kind.as_str(), "lock" | "semaphore") { 1e9 } else { 0.0 };
                let cells = vec![
                    Cell::Text(text(&t, r, "lock")),
                    Cell::Text(kind),
                    Cell::Text(format!("{}/{}", text(&t, r, "process"), value(&t, r, "pid"))),
                    secs(block),
                    many(n),
                    micros(block * 1e6 / n.max(1.0)),
                    micros(value(&t, r, "max")),
                    Cell::Text(text(&t, r, "caller")),
                    Cell::Text(text(&t, r, "holder")),
                ];
                (rank + block, cells)
            });
            let heads = [
                word("lock", "symbol where it is static, else address"),
                word("type", "lock, semaphore, condition or unknown"),
                word("process", "the waiting process"),
                number("block s", "time waiting, all threads"),
                number("count", "waits"),
                number("mean µs", "mean wait"),
                number("max µs", "longest wait"),
                word("caller", "where it waits"),
                word("holder", "the thread that woke the waiters"),
            ];
            table(out, "User locks", &heads, usize::MAX, ranked(rows.collect()));
        }
    }
    out.push_str("</section>");
}

/// `prstat -m`: name, class of its colour, meaning.
const MICRO: [(&str, &str, &str); 8] = [
    ("USR", "m-usr", "user code"),
    ("SYS", "m-sys", "system calls"),
    ("TRP", "m-trp", "traps (page faults)"),
    ("TFL", "m-tfl", "asleep in a fault on code"),
    ("DFL", "m-dfl", "asleep in a fault on data"),
    ("LCK", "m-lck", "asleep for a lock"),
    ("SLP", "m-slp", "asleep for anything else"),
    ("LAT", "m-lat", "runnable, waiting for a CPU"),
];

/// Eight microstates as one stacked bar.
fn micro_bar(parts: &[f64; 8]) -> String {
    let life: f64 = parts.iter().sum();
    if life <= 0.0 {
        return String::new();
    }
    let mut words = Vec::new();
    let mut bar = String::new();
    for (s, (name, class, _)) in parts.iter().zip(MICRO) {
        let p = 100.0 * s / life;
        if p >= 0.5 {
            words.push(format!("{name} {p:.0} %"));
            let _ = write!(bar, "<i class={class} style=\"width:{p:.1}%\"></i>");
        }
    }
    let words = words.join(", ");
    format!("<span class=micro role=img aria-label=\"{words}\" title=\"{words}\">{bar}</span>")
}

pub(super) fn threads(out: &mut String, recording: &Recording) {
    out.push_str("<section id=threads><h2>Threads</h2>");
    let Some(t) = grouped(recording, "threads", &["pid", "tid", "process", "thread"]) else {
        none(out, "No thread was seen.");
        out.push_str("</section>");
        return;
    };
    out.push_str("<p class=lead>How each thread spent its life, exact. <span class=key>");
    for (name, class, meaning) in MICRO {
        let _ = write!(out, "<span><i class={class}></i>{name} {meaning}</span>");
    }
    out.push_str("</span></p>");
    let parts = |t: &Table, r: usize| MICRO.map(|(name, ..)| value(t, r, name));
    // A build's thousands of processes are told by name first.
    if t.num_rows() > 12
        && let Ok(by_name) = count_threads(&t)
    {
        let rows = by_name.into_iter().map(|(name, n, r)| {
            let cells = vec![
                Cell::Text(name),
                many(n),
                Cell::Markup(r[0] + r[1] + r[2], micro_bar(&first8(&r))),
                secs(r[0] + r[1] + r[2]),
                secs(r[0]),
                secs(r[1]),
                secs(r[2]),
                secs(r[5]),
                secs(r[7]),
                secs(r[8]),
            ];
            (r[0] + r[1] + r[2], cells)
        });
        let heads = [
            word("process", "name of the process"),
            number("threads", "how many threads of that name"),
            word("microstates", "share of their lives, sorted by time on CPU"),
            number("on CPU s", "USR + SYS + TRP"),
            number("USR s", "user code"),
            number("SYS s", "system calls"),
            number("TRP s", "page faults"),
            number("LCK s", "asleep for locks"),
            number("LAT s", "waiting for a CPU"),
            number("spin s", "spinning in kernel locks, a part of the time on CPU"),
        ];
        out.push_str("<h3>By process name</h3>");
        table(out, "Threads by process name", &heads, 3, ranked(rows.collect()));
        out.push_str("<h3>Each</h3>");
    }
    let rows = (0..t.num_rows()).map(|r| {
        let p = parts(&t, r);
        let on_cpu = p[0] + p[1] + p[2];
        let (process, thread) = (text(&t, r, "process"), text(&t, r, "thread"));
        let name = if process == thread { thread } else { format!("{process}: {thread}") };
        let id = |c| Cell::Number(value(&t, r, c), format!("{}", value(&t, r, c)));
        let mut cells = vec![Cell::Text(name), id("tid"), Cell::Markup(on_cpu, micro_bar(&p)), secs(on_cpu)];
        cells.extend([p[5], p[7], value(&t, r, "spin")].map(secs));
        cells.extend(["VCX", "ICX", "SCL", "minf"].map(|c| many(value(&t, r, c))));
        (on_cpu, cells)
    });
    let heads = [
        word("thread", "name of the process and thread"),
        number("tid", "thread"),
        word("microstates", "share of its life, sorted by time on CPU"),
        number("on CPU s", "USR + SYS + TRP"),
        number("LCK s", "asleep for locks"),
        number("LAT s", "waiting for a CPU"),
        number("spin s", "spinning in kernel locks, a part of the time on CPU"),
        number("VCX", "voluntary context switches"),
        number("ICX", "involuntary context switches"),
        number("SCL", "system calls"),
        number("faults", "minor faults"),
    ];
    table(out, "Threads", &heads, 3, ranked(rows.collect()));
    out.push_str("</section>");
}

fn first8(r: &[f64; 9]) -> [f64; 8] {
    std::array::from_fn(|i| r[i])
}

/// Microstates and spin by process name, with how many threads had it.
fn count_threads(threads: &Table) -> ncpu_table::Result<Vec<(String, f64, [f64; 9])>> {
    let sums = threads.group_by(&["process"])?;
    let mut n: HashMap<&str, f64> = HashMap::new();
    for r in 0..threads.num_rows() {
        *n.entry(threads.text(r, "process").unwrap_or("–")).or_default() += 1.0;
    }
    Ok((0..sums.num_rows())
        .map(|r| {
            let name = text(&sums, r, "process");
            let mut parts = [0.0; 9];
            for (p, (column, ..)) in parts.iter_mut().zip(MICRO) {
                *p = value(&sums, r, column);
            }
            parts[8] = value(&sums, r, "spin");
            (name.clone(), n.get(name.as_str()).copied().unwrap_or(0.0), parts)
        })
        .collect())
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
            let error = if total > 0.0 { 1.96 * target * (p * (1.0 - p) / total).sqrt() } else { 0.0 };
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
