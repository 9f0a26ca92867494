//! The Silly Little Benchmark's `memhammer`: what a memory access costs that no cache catches. Each worker touches
//! pseudo-random 4 KiB offsets of its memory: one 8-byte word in the first 64 bytes, so that each access is to another
//! page and another line.

pub(super) mod anvil;
mod preset;

use ncpu_table::{Column, Kind, Table, Unit, size};

use self::anvil::{Access, Hammered, Spot};
use self::preset::Preset;
use super::{Report, Request, Survey};
use crate::failure::Failure;
use crate::memory::{PageSize, largest_cache};
use crate::options::Flag;
use crate::place::Place;

/// `ncpu bench memhammer`.
pub const SURVEY: Survey = Survey {
    name: "memhammer",
    about: "the Silly Little Benchmark: what an access to pseudo-random pages costs each worker",
    flags: &[
        Flag { letter: 'p', value: "PAGES", default: "262144", about: "of 4 KiB for each worker" },
        Flag { letter: 'l', value: "LOOPS", default: "100", about: "over them" },
        Flag {
            letter: 'a',
            value: "HOW",
            default: "write",
            about: "write, read, chase pointers, which is latency, or scan pages, which is bandwidth",
        },
        Flag {
            letter: 's',
            value: "SIZE",
            default: "",
            about: "of the pages: 4k, thp, 2m or 1g; as malloc's without",
        },
        Flag {
            letter: 'w',
            value: "WHICH",
            default: "",
            about: "CPUs at once, as in its scripts: one, same-core, same-socket, different-sockets, per-socket, all; script for all of them",
        },
    ],
    run,
};

fn run(r: &Request<'_>) -> Result<Report, Failure> {
    let (pages, loops) = (r.options.number('p')?, r.options.number('l')?);
    let access: Access = r.options.parsed('a')?;
    let page: PageSize = r.options.parsed('s')?;
    let told = |e: crate::place::PlaceError| Failure::Failed(e.to_string());
    r.plan.memory.check(r.machine).map_err(told)?;

    let mut report = Report::default();
    // The lines touched are a 64th of the memory, except where all of it is.
    let touched = match access {
        Access::Write | Access::Read => pages.saturating_mul(64),
        Access::Chase | Access::Scan => pages.saturating_mul(4096),
    };
    let cache = largest_cache(r.machine);
    if touched < cache {
        report.notes.push(format!(
            "a worker touches {} of cache lines, which a cache of {} can hold: give more PAGES to see memory",
            size::words(touched),
            size::words(cache)
        ));
    }
    let mut long =
        Table::builder("memhammer", &[&[Column::text("which", "CPUs at once")], &figures()[..]].concat());
    let mut speed = 1.0f64;
    for (title, cpus) in workers(r)? {
        if r.stopped() {
            report.notes.push("stopped early".into());
            break;
        }
        (r.progress)(&title);
        let spots: Vec<Spot> = cpus.into_iter().map(|cpu| Spot { cpu, memory: r.plan.memory }).collect();
        let done = anvil::run(&spots, pages as usize, loops, access, page, r.machine)?;
        let mut wide = Table::builder("memhammer", &figures());
        for worker in &done {
            speed = speed.max(worker.speed);
            fill(wide.row(), worker);
            fill(long.row().text(&title), worker);
        }
        report.wide.push((title, wide.finish()));
    }
    if speed > 1.05 {
        report.notes.push(format!("the clock of a worker's CPU moved by {:.0} %", 100.0 * (speed - 1.0)));
    }
    report.tables.push(long.finish());
    Ok(report)
}

/// Workers that run at once: a title, and the CPU of each that has one.
type Set = (String, Vec<Option<u32>>);

fn workers(r: &Request<'_>) -> Result<Vec<Set>, Failure> {
    let count = r.plan.processes * r.plan.threads;
    if let Some(name) = r.options.text('w') {
        if count > 1 || r.plan.place != Place::Free {
            return Err(Failure::Usage(
                "-w says how many workers there are and where: leave out -T, -P and --place".into(),
            ));
        }
        let sets = preset::find(name, r.machine)?.into_iter();
        return Ok(sets
            .map(|Preset { title, cpus }| (title, cpus.into_iter().map(Some).collect()))
            .collect());
    }
    let order = r.plan.place.order(r.machine).map_err(|e| Failure::Failed(e.to_string()))?;
    let cpus = (0..count).map(|i| order.as_ref().map(|o| o[i % o.len()])).collect();
    Ok(vec![(format!("{count} worker{}", if count == 1 { "" } else { "s" }), cpus)])
}

/// The figures in a worker's row, as in the original's line; and its median.
fn figures() -> [Column; 7] {
    [
        Column::id("CPU", "where it ran; null where the scheduler chose"),
        Column::id("node", "where its memory lies; null if not all of it is on one"),
        Column::count("ops", "accesses; pages where it scans"),
        Column::float("avg_ns", Unit::Nanoseconds, Kind::Gauge, "elapsed time over accesses"),
        Column::float(
            "median_ns",
            Unit::Nanoseconds,
            Kind::Gauge,
            "of an access, over up to 64 parts of the run: without those that others disturbed",
        ),
        Column::int("elapsed_us", Unit::Microseconds, Kind::Gauge, "time of all its accesses"),
        Column::float("ops/s", Unit::Figure, Kind::Gauge, "accesses a second"),
    ]
}

fn fill(row: ncpu_table::Row<'_>, worker: &Hammered) {
    let nanos = worker.nanos.max(1) as f64;
    row.int_opt(worker.spot.cpu.map(u64::from))
        .int_opt(worker.node.map(u64::from))
        .int(worker.ops)
        .float(nanos / worker.ops.max(1) as f64)
        .float(worker.median)
        .int(worker.nanos / 1000)
        .float(worker.ops as f64 / (nanos / 1e9));
}
