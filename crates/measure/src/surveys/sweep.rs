//! Cases beside each other, over threads or sizes. The order of the runs is random.

use ncpu_table::{Column, Kind, Unit};

use super::points::{Grid, Key, Point};
use super::{Report, Request, Survey, doubling, numbers, shuffle};
use crate::cases;
use crate::failure::Failure;
use crate::options::Flag;
use crate::runner::{self, Plan};
use crate::view::notes;

const THREADS: Flag = Flag {
    letter: 't',
    value: "LIST",
    default: "",
    about: "threads, as in 1,2,4 [default: powers of two up to twice the CPUs]",
};

/// Block copy by size, alignment and method.
pub const BLOCK_COPY: Survey = Survey {
    name: "block-copy",
    about: "copy blocks by size, alignment and method, GB/s",
    flags: &[
        Flag { letter: 's', value: "LIST", default: "64,256,1k,8k,64k,1m,16m", about: "sizes, bytes" },
        Flag {
            letter: 'a',
            value: "LIST",
            default: "0/0,1/0,0/1,1/1",
            about: "bytes by which source/destination are off a line",
        },
    ],
    run: block_copy,
};

/// Faults and zeroing by page size and threads.
pub const PAGE_FAULTS: Survey = Survey {
    name: "page-faults",
    about: "touch fresh pages of each size by threads: faults and zeroing, GB/s",
    flags: &[THREADS],
    run: page_faults,
};

/// Lock primitives by threads and sections.
pub const LOCKS: Survey = Survey {
    name: "locks",
    about: "take one lock by threads, critical and parallel section, for each primitive, M/s",
    flags: &[
        THREADS,
        Flag {
            letter: 'c',
            value: "LIST",
            default: "0/0,0/100,100/0,100/100,1k/1k",
            about: "nanoseconds held/between, in pairs; k is 1024",
        },
    ],
    run: locks,
};

/// Counters by threads.
pub const COUNTERS: Survey = Survey {
    name: "counters",
    about: "count events by threads, for each kind of counter, M/s",
    flags: &[THREADS],
    run: |r| {
        let points = by_threads(r, |_| vec![])?;
        let cases = ["counter_atomic", "counter_sharded", "counter_thread", "counter_mutex"];
        sweep(r, "counters", &cases, &[threads_column()], &points, Rate::Operations)
    },
};

/// Allocation patterns by threads.
pub const ALLOCATORS: Survey = Survey {
    name: "allocators",
    about: "allocate and free by threads, for each pattern, M/s",
    flags: &[
        THREADS,
        Flag {
            letter: 'l',
            value: "LIBRARY",
            default: "",
            about: "its malloc and free, as in libjemalloc.so.2; libc's without",
        },
    ],
    run: |r| {
        let library = r.options.text('l').unwrap_or("").to_string();
        let words = if library.is_empty() { vec![] } else { vec!["-l".to_string(), library] };
        let points = by_threads(r, |_| words.clone())?;
        let cases = ["alloc_pair", "alloc_mixed", "alloc_handoff"];
        sweep(r, "allocators", &cases, &[threads_column()], &points, Rate::Operations)
    },
};

fn threads_column() -> Column {
    Column::id("threads", "threads that do it at once")
}

fn threads(request: &Request<'_>) -> Result<Vec<u64>, Failure> {
    match request.options.text('t') {
        Some(list) => numbers('t', list),
        None => Ok(doubling(2 * request.machine.online.and(&request.machine.allowed).len() as u64)),
    }
}

/// A row: what names it, how many threads, the cases' options.
struct Row {
    keys: Vec<Key>,
    threads: usize,
    words: Vec<String>,
}

fn by_threads(request: &Request<'_>, words: impl Fn(u64) -> Vec<String>) -> Result<Vec<Row>, Failure> {
    let rows = threads(request)?.into_iter();
    Ok(rows.map(|n| Row { keys: vec![Key::Int(n)], threads: n as usize, words: words(n) }).collect())
}

/// Pairs of numbers, as in `0/0,100/1k`.
fn pairs(letter: char, text: &str) -> Result<Vec<(u64, u64)>, Failure> {
    let pair = |word: &str| {
        let (a, b) = word.trim().split_once('/')?;
        Some((crate::options::number(a)?, crate::options::number(b)?))
    };
    let pairs: Option<Vec<_>> = text.split(',').map(pair).collect();
    pairs.ok_or_else(|| Failure::Usage(format!("-{letter} {text}: give pairs of numbers, as in 0/0,100/1k")))
}

fn block_copy(r: &Request<'_>) -> Result<Report, Failure> {
    let sizes = numbers('s', r.options.text('s').unwrap_or(""))?;
    let offsets = pairs('a', r.options.text('a').unwrap_or(""))?;
    let mut rows = Vec::new();
    for &size in &sizes {
        for (from, to) in &offsets {
            let words = ["-s", &size.to_string(), "-a", &from.to_string(), "-d", &to.to_string()];
            rows.push(Row {
                keys: vec![Key::Int(size), Key::Text(format!("{from}/{to}"))],
                threads: r.plan.threads,
                words: words.map(String::from).to_vec(),
            });
        }
    }
    let keys = [
        Column::int("size", Unit::None, Kind::Key, "bytes of a block"),
        Column::text("off", "bytes by which source and destination are off a 64-byte line"),
    ];
    let cases = ["copy_memcpy", "copy_movsb", "copy_stream", "copy_loop"];
    let bytes = |row: &Row, _: &str| if let Key::Int(n) = row.keys[0] { n as f64 } else { 0.0 };
    sweep(r, "block-copy", &cases, &keys, &rows, Rate::Bytes(&bytes))
}

fn page_faults(r: &Request<'_>) -> Result<Report, Failure> {
    let rows = by_threads(r, |_| vec![])?;
    let bytes = |_: &Row, case: &str| if case == "fault_4k" { 4096.0 } else { (2u64 << 20) as f64 };
    let cases = ["fault_4k", "fault_thp", "fault_hugetlb"];
    sweep(r, "page-faults", &cases, &[threads_column()], &rows, Rate::Bytes(&bytes))
}

fn locks(r: &Request<'_>) -> Result<Report, Failure> {
    let sections = pairs('c', r.options.text('c').unwrap_or(""))?;
    // Once for all, before the runs are forked.
    cases::spin::pace();
    let mut rows = Vec::new();
    for n in threads(r)? {
        for (held, between) in &sections {
            rows.push(Row {
                keys: vec![Key::Int(n), Key::Int(*held), Key::Int(*between)],
                threads: n as usize,
                words: ["-c", &held.to_string(), "-p", &between.to_string()].map(String::from).to_vec(),
            });
        }
    }
    let ns = |name: &str, meaning: &str| Column::int(name, Unit::Nanoseconds, Kind::Key, meaning);
    let keys =
        [threads_column(), ns("held", "work while it is held"), ns("between", "work of a thread between")];
    // All that are there, so that a new primitive needs no mention here.
    let cases: Vec<&str> = cases::all().map(|c| c.name).filter(|n| n.starts_with("lock_")).collect();
    sweep(r, "locks", &cases, &keys, &rows, Rate::Operations)
}

/// The rate in a row of the table.
enum Rate<'a> {
    /// Operations of all workers a second.
    Operations,
    /// Bytes of all workers a second: bytes of an operation, by row and case.
    Bytes(&'a dyn Fn(&Row, &str) -> f64),
}

fn sweep(
    request: &Request<'_>,
    name: &str,
    names: &[&str],
    keys: &[Column],
    rows: &[Row],
    rate: Rate<'_>,
) -> Result<Report, Failure> {
    let cells: Vec<(usize, &str)> =
        (0..rows.len()).flat_map(|row| names.iter().map(move |name| (row, *name))).collect();
    let mut order: Vec<usize> = (0..cells.len()).collect();
    shuffle(&mut order);
    let mut points: Vec<Option<Point>> = vec![None; cells.len()];
    let mut report = Report::default();
    for (done, at) in order.into_iter().enumerate() {
        if request.stopped() {
            break;
        }
        let (row, name) = cells[at];
        let row = &rows[row];
        (request.progress)(&format!("{}/{} {name} {}", done + 1, cells.len(), row.words.join(" ")));
        let case = cases::find(name).ok_or_else(|| Failure::Failed(format!("unknown case {name}")))?;
        let plan = Plan { threads: row.threads, ..request.plan.clone() };
        let workers = (plan.threads * plan.processes) as f64;
        let mut point = Point {
            keys: row.keys.clone(),
            across: Key::Text(short(names, name).into()),
            value: None,
            error: None,
            notes: String::new(),
        };
        match runner::run(case, &row.words, &plan, request.machine, request.stop) {
            Ok(o) if o.samples.is_empty() => continue,
            Ok(o) => {
                let per_second = workers * 1e9 / o.summary().median;
                point.value = Some(match rate {
                    Rate::Operations => per_second,
                    Rate::Bytes(bytes) => per_second * bytes(row, name) / 1e6,
                });
                point.error = Some(100.0 * o.summary().uncertainty());
                point.notes = notes(&o);
            }
            Err(Failure::Lacks(why)) => point.notes = format!("skipped: {why}"),
            Err(mistaken @ Failure::Usage(_)) => return Err(mistaken),
            Err(Failure::Failed(why)) => {
                report.failed.push(format!("{name} {}: {why}", row.words.join(" ")));
                point.notes = why;
            }
        }
        points[at] = Some(point);
    }
    let points: Vec<Point> = points.into_iter().flatten().collect();
    let (figure, scale, title) = match rate {
        Rate::Operations => (
            Column::float("ops", Unit::PerSecond, Kind::Gauge, "operations of all threads together"),
            1e-6,
            "Million operations a second, all threads together",
        ),
        Rate::Bytes(_) => (
            Column::float("MB/s", Unit::None, Kind::Gauge, "million bytes of all threads together a second"),
            1e-3,
            "GB/s (1e9 bytes), all threads together",
        ),
    };
    let grid = Grid {
        name,
        keys,
        across: Column::text("case", "what was run, a case of ncpu bench"),
        figure,
        scale,
        title,
    };
    report.tables.push(grid.long(&points));
    report.wide.push(grid.wide(&points));
    report.notes = summary(&points);
    Ok(report)
}

/// The part of a case's name that the cases beside it have not.
fn short<'a>(names: &[&str], name: &'a str) -> &'a str {
    let Some((family, rest)) = name.split_once('_') else { return name };
    if names.iter().all(|n| n.split_once('_').is_some_and(|(f, _)| f == family)) { rest } else { name }
}

/// One line for each reason that figures are missing or doubtful.
fn summary(points: &[Point]) -> Vec<String> {
    let name = |p: &Point| match &p.across {
        Key::Text(t) => t.clone(),
        Key::Int(n) => n.to_string(),
    };
    let mut lines: Vec<String> = Vec::new();
    for point in points.iter().filter(|p| p.value.is_none()) {
        let line = format!("{}: {}", name(point), point.notes);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let disturbed = points.iter().filter(|p| p.notes.contains("disturbed")).count();
    if disturbed > 0 {
        lines.push(format!(
            "{disturbed} of {} figures are of a disturbed machine (-o json has them)",
            points.len()
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_names() {
        assert_eq!(pairs('c', "0/0, 1k/7"), Ok(vec![(0, 0), (1024, 7)]));
        assert!(pairs('c', "5").unwrap_err().to_string().contains("give pairs"));
        assert_eq!(short(&["lock_std", "lock_pthread"], "lock_std"), "std");
        assert_eq!(short(&["lock_std", "memcpy"], "lock_std"), "lock_std");
    }

    #[test]
    fn reasons_are_told_once() {
        let point = |across: &str, value, notes: &str| Point {
            keys: vec![],
            across: Key::Text(across.into()),
            value,
            error: None,
            notes: notes.into(),
        };
        let points = [
            point("thp", None, "skipped: none"),
            point("thp", None, "skipped: none"),
            point("4k", Some(1.0), "3 of 4 samples disturbed"),
        ];
        assert_eq!(
            summary(&points),
            ["thp: skipped: none", "1 of 3 figures are of a disturbed machine (-o json has them)"]
        );
    }
}
