//! Threads and how they spent their lives.

use std::collections::HashMap;
use std::fmt::Write;

use ncpu_record::Recording;
use ncpu_table::Table;

use crate::threads::on_cpu;

use super::grid::{Cell, Head, number, table, word};
use super::markup::percent;
use super::tables::{grouped, many, none, ranked, secs, text, value};

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
const SYS: usize = 1;

/// Columns of time in the tables; shown where any thread has some.
const TIMES: [(&str, Head); 6] = [
    ("USR", number("USR s", "user code")),
    ("SYS", number("SYS s", "system calls")),
    ("TRP", number("TRP s", "page faults")),
    ("LCK", number("LCK s", "asleep for locks")),
    ("LAT", number("LAT s", "runnable, waiting for a CPU")),
    ("spin", number("spin s", "spinning in kernel locks, a part of the time on CPU")),
];

/// Columns of events, likewise.
const EVENTS: [(&str, Head); 5] = [
    ("VCX", number("VCX", "voluntary context switches")),
    ("ICX", number("ICX", "involuntary context switches")),
    ("SCL", number("SCL", "system calls")),
    ("minf", number("minor faults", "faults that needed no I/O")),
    ("majf", number("major faults", "faults that waited for I/O")),
];

/// The states that the recording has.
struct Told {
    /// Whether time in user code and time in the kernel are separate: `run` and `watch` leave system calls untraced.
    split: bool,
    columns: Vec<&'static str>,
}

impl Told {
    fn of(t: &Table) -> Told {
        let any = |c: &str| (0..t.num_rows()).any(|r| value(t, r, c) > 0.0);
        // Recordings from before gave all time on CPU as SYS where calls were not traced.
        let split = any("USR") || any("SCL");
        let columns = TIMES.iter().chain(&EVENTS).map(|(c, _)| *c);
        let shown = |c: &&str| any(c) && (split || !matches!(*c, "USR" | "SYS" | "TRP"));
        Told { split, columns: columns.filter(shown).collect() }
    }

    fn heads(&self, of: &'static [(&'static str, Head<'static>)]) -> impl Iterator<Item = Head<'static>> {
        of.iter().filter(|(c, _)| self.columns.contains(c)).map(|(_, head)| *head)
    }

    fn state(&self, i: usize) -> (&'static str, &'static str, &'static str) {
        if i == SYS && !self.split { ("CPU", "m-usr", "on CPU, user code and kernel") } else { MICRO[i] }
    }

    /// Eight microstates as one stacked bar.
    fn bar(&self, t: &Table, r: usize) -> String {
        let mut parts = MICRO.map(|(name, ..)| value(t, r, name));
        if !self.split {
            (parts[0], parts[SYS], parts[2]) = (0.0, on_cpu(t, r), 0.0);
        }
        let life: f64 = parts.iter().sum();
        let mut words = Vec::new();
        let mut bar = String::new();
        for (i, s) in parts.iter().enumerate() {
            let (name, class, _) = self.state(i);
            let p = 100.0 * s / life.max(f64::MIN_POSITIVE);
            if p >= 0.5 {
                words.push(format!("{name} {p:.0} %"));
                let _ = write!(bar, "<i class={class} style=\"width:{p:.1}%\"></i>");
            }
        }
        let words = words.join(", ");
        format!("<span class=micro role=img aria-label=\"{words}\" title=\"{words}\">{bar}</span>")
    }

    fn cells(&self, t: &Table, r: usize) -> (f64, Vec<Cell>) {
        let on_cpu = on_cpu(t, r);
        (on_cpu, vec![Cell::Markup(on_cpu, self.bar(t, r)), secs(on_cpu)])
    }

    fn rest(&self, t: &Table, r: usize, of: &[(&'static str, Head<'static>)]) -> Vec<Cell> {
        let cell = |c: &str| {
            let v = value(t, r, c);
            if EVENTS.iter().any(|(e, _)| *e == c) { many(v) } else { secs(v) }
        };
        of.iter().filter(|(c, _)| self.columns.contains(c)).map(|(c, _)| cell(c)).collect()
    }
}

const BAR: Head = word("microstates", "shares of its life; sorts by time on CPU");
const ON_CPU: Head = number("on CPU s", "user code, system calls and faults");

pub(super) fn section(out: &mut String, recording: &Recording) {
    out.push_str("<section id=threads><h2>Threads</h2>");
    match grouped(recording, "threads", &["pid", "tid", "process", "thread"]) {
        Some(t) => tables(out, &t),
        None => none(out, "No thread was seen."),
    }
    if let Some(t) = grouped(recording, "thread_time", &["process", "role", "doing", "what"]) {
        lives(out, &t);
    }
    out.push_str("</section>");
}

/// The time of the threads of each role.
fn lives(out: &mut String, t: &Table) {
    let _ = write!(
        out,
        "<h3>What for</h3><p class=lead>Lives of threads by role, from first sight to end: the rows sum to them exactly. \
         User and kernel code are divided as the kernel's ticks divide them.</p>"
    );
    let all: f64 = (0..t.num_rows()).map(|r| value(t, r, "seconds")).sum();
    let rows = (0..t.num_rows()).map(|r| {
        let (process, role) = (text(t, r, "process"), text(t, r, "role"));
        let seconds = value(t, r, "seconds");
        let row = vec![
            Cell::Text(if role == "main" { process } else { format!("{process}: {role}") }),
            many(value(t, r, "threads")),
            Cell::Text(text(t, r, "doing")),
            Cell::Text(text(t, r, "what")),
            secs(seconds),
            Cell::Number(seconds / all.max(f64::MIN_POSITIVE), percent(seconds / all.max(f64::MIN_POSITIVE))),
            many(value(t, r, "waits")),
        ];
        (seconds, row)
    });
    let heads = [
        word("role", "the process, and the threads' name with # for numbers; alone: its first thread"),
        number("threads", "most threads of the role in an interval"),
        word("doing", "what they did"),
        word("what", "the lock, peer or system call"),
        number("thread-s", "thread-seconds"),
        number("share", "of all lives"),
        number("waits", "waits that ended"),
    ];
    table(out, "Threads' time by role", &heads, 4, ranked(rows.collect()));
}

fn tables(out: &mut String, t: &Table) {
    let told = Told::of(t);
    out.push_str(match told.split {
        true => "<p class=lead>How each thread spent its life. <span class=key>",
        false => {
            "<p class=lead>How long each thread was on CPU, waited and slept, from each switch. Its work on CPU is not \
             measured thread by thread here, but sampled (Layers, Flame graphs). <span class=key>"
        }
    });
    let seen = |i: &usize| {
        (0..t.num_rows()).any(|r| match *i == SYS && !told.split {
            true => on_cpu(t, r) > 0.0,
            false => value(t, r, MICRO[*i].0) > 0.0,
        })
    };
    for i in (0..MICRO.len()).filter(seen) {
        let (name, class, meaning) = told.state(i);
        let _ = write!(out, "<span><i class={class}></i>{name} {meaning}</span>");
    }
    out.push_str("</span></p>");
    // A build has thousands of processes, so they are grouped by name first.
    if t.num_rows() > 12
        && let Ok(by_name) = t.group_by(&["process"])
    {
        let mut n: HashMap<&str, f64> = HashMap::new();
        for r in 0..t.num_rows() {
            *n.entry(t.text(r, "process").unwrap_or_default()).or_default() += 1.0;
        }
        let rows = (0..by_name.num_rows()).map(|r| {
            let (on_cpu, cells) = told.cells(&by_name, r);
            let threads = n.get(by_name.text(r, "process").unwrap_or_default()).copied().unwrap_or(0.0);
            let mut row = vec![Cell::Text(text(&by_name, r, "process")), many(threads)];
            row.extend(cells);
            row.extend(told.rest(&by_name, r, &TIMES));
            (on_cpu, row)
        });
        let mut heads = vec![
            word("process", "name of the process"),
            number("threads", "threads of that name"),
            BAR,
            ON_CPU,
        ];
        heads.extend(told.heads(&TIMES));
        out.push_str("<h3>By process name</h3>");
        table(out, "Threads by process name", &heads, 3, ranked(rows.collect()));
        out.push_str("<h3>Each</h3>");
    }
    let rows = (0..t.num_rows()).map(|r| {
        let (process, thread) = (text(t, r, "process"), text(t, r, "thread"));
        let name = if process == thread { thread } else { format!("{process}: {thread}") };
        let (on_cpu, cells) = told.cells(t, r);
        let tid = value(t, r, "tid");
        let mut row = vec![Cell::Text(name), Cell::Number(tid, tid.to_string())];
        row.extend(cells);
        row.extend(told.rest(t, r, &TIMES));
        row.extend(told.rest(t, r, &EVENTS));
        (on_cpu, row)
    });
    let mut heads = vec![word("thread", "names of process and thread"), number("tid", "thread"), BAR, ON_CPU];
    heads.extend(told.heads(&TIMES).chain(told.heads(&EVENTS)));
    table(out, "Threads", &heads, 3, ranked(rows.collect()));
}
