//! The cost of a node's memory from each node's CPUs.

use ncpu_table::{Column, Kind, Table, Unit, size};

use super::memhammer::anvil::{self, Access, Hammered, Spot};
use super::points::{Grid, Key, Point};
use super::{Report, Request, Survey, shuffle};
use crate::failure::Failure;
use crate::memory::{PageSize, largest_cache, node_available};
use crate::options::Flag;
use crate::place::Memory;

/// `ncpu bench matrix`.
pub const SURVEY: Survey = Survey {
    name: "matrix",
    about: "latency and bandwidth from each node's CPUs to each node's memory",
    flags: &[
        Flag {
            letter: 'p',
            value: "PAGES",
            default: "",
            about: "of 4 KiB for each worker [default: 8 times the largest cache, if a quarter of each node's available memory has room]",
        },
        Flag { letter: 'l', value: "LOOPS", default: "4", about: "over them" },
        Flag {
            letter: 's',
            value: "SIZE",
            default: "",
            about: "of the pages: 4k, thp, 2m or 1g; as malloc's without",
        },
    ],
    run,
};

/// One of the two figures of a pair of nodes.
#[derive(Clone, Copy, PartialEq)]
enum Figure {
    Latency,
    Bandwidth,
}

fn run(r: &Request<'_>) -> Result<Report, Failure> {
    let usable = r.machine.online.and(&r.machine.allowed);
    let homes: Vec<(u32, Vec<u32>)> = r
        .machine
        .nodes
        .iter()
        .map(|n| (n.id, n.cpus.and(&usable).iter().collect()))
        .filter(|(_, cpus): &(u32, Vec<u32>)| !cpus.is_empty())
        .collect();
    let memories: Vec<u32> = r
        .machine
        .nodes
        .iter()
        .filter(|n| n.total.unwrap_or(0) > 0 && r.machine.allowed_nodes.contains(n.id))
        .map(|n| n.id)
        .collect();
    if homes.is_empty() || memories.is_empty() {
        return Err(Failure::Lacks("no NUMA node has CPUs, or none memory, that may be used".into()));
    }
    let work = Work {
        size: r.options.parsed('s')?,
        pages: match r.options.has('p') {
            true => r.options.number('p')? as usize,
            false => fitting(r),
        },
        loops: r.options.number('l')?,
    };
    let mut report = Report::default();
    let cells = measure(r, &homes, &memories, &work, &mut report)?;
    let bytes = work.pages as u64 * 4096;
    let cache = largest_cache(r.machine);
    if bytes < 4 * cache {
        report.notes.push(format!(
            "{} fit in four caches of {}: part of the accesses were hits; give more PAGES",
            size::words(bytes),
            size::words(cache)
        ));
    }
    tables(&homes, &memories, &cells, &mut report);
    Ok(report)
}

/// The work of each pair of nodes.
struct Work {
    size: PageSize,
    pages: usize,
    loops: u64,
}

/// Latency and bandwidth of a pair of nodes, where they were measured.
type Cell = [Option<f64>; 2];

/// Measures all pairs in random order; a cell for each, those of a node's CPUs after each other.
fn measure(
    r: &Request<'_>,
    homes: &[(u32, Vec<u32>)],
    memories: &[u32],
    work: &Work,
    report: &mut Report,
) -> Result<Vec<Cell>, Failure> {
    let Work { size, pages, loops } = *work;
    let mut jobs: Vec<(usize, usize, Figure)> = Vec::new();
    for home in 0..homes.len() {
        for memory in 0..memories.len() {
            jobs.extend([(home, memory, Figure::Latency), (home, memory, Figure::Bandwidth)]);
        }
    }
    shuffle(&mut jobs);
    let all = jobs.len();
    let mut cells = vec![[None; 2]; homes.len() * memories.len()];
    let mut speed = 1.0f64;
    for (done, (home, memory, figure)) in jobs.into_iter().enumerate() {
        if r.stopped() {
            report.notes.push("stopped early".into());
            break;
        }
        let ((node, cpus), to) = (&homes[home], memories[memory]);
        (r.progress)(&format!("{}/{all} node {node} to node {to}", done + 1));
        let spot = |cpu: u32| Spot { cpu: Some(cpu), memory: Memory::Node(to) };
        let done = match figure {
            Figure::Latency => {
                let spots = [spot(cpus[0])];
                anvil::run(&spots, pages, loops, Access::Chase, size, r.machine)?
            }
            Figure::Bandwidth => {
                let spots: Vec<Spot> = cpus.iter().map(|&c| spot(c)).collect();
                // All together have what one alone has for latency, a page each at least.
                let share = (pages / spots.len()).max(2);
                anvil::run(&spots, share, loops, Access::Scan, size, r.machine)?
            }
        };
        if let Some(astray) = done.iter().find(|h| h.node.is_some_and(|n| n != to)) {
            let at = astray.node.unwrap_or(0);
            report.failed.push(format!("memory asked of node {to} came from node {at}"));
            continue;
        }
        speed = done.iter().map(|h| h.speed).fold(speed, f64::max);
        cells[home * memories.len() + memory][figure as usize] = Some(match figure {
            Figure::Latency => done[0].median,
            Figure::Bandwidth => bandwidth(&done),
        });
    }
    if speed > 1.05 {
        report.notes.push(format!("clock speed moved by {:.0} %", 100.0 * (speed - 1.0)));
    }
    Ok(cells)
}

/// The figures as two grids and as one table.
fn tables(homes: &[(u32, Vec<u32>)], memories: &[u32], cells: &[Cell], report: &mut Report) {
    let keys = [Column::id("node", "node whose CPUs do it")];
    let grid = |figure: Figure| Grid {
        name: if figure == Figure::Latency { "latency" } else { "bandwidth" },
        keys: &keys,
        across: Column::id("memory", "node that has the memory"),
        figure: match figure {
            Figure::Latency => Column::float(
                "latency",
                Unit::Nanoseconds,
                Kind::Gauge,
                "of an access that waits for the one before",
            ),
            Figure::Bandwidth => Column::float(
                "MB/s",
                Unit::None,
                Kind::Gauge,
                "million bytes read a second by all CPUs of the node",
            ),
        },
        scale: if figure == Figure::Latency { 1.0 } else { 1e-3 },
        title: match figure {
            Figure::Latency => {
                "Latency, ns an access: from a CPU of the node (row) to memory of the node (column)"
            }
            Figure::Bandwidth => {
                "Bandwidth, GB/s read: from all CPUs of the node (row) to memory of the node (column)"
            }
        },
    };
    for figure in [Figure::Latency, Figure::Bandwidth] {
        let mut points = Vec::new();
        for (h, (node, _)) in homes.iter().enumerate() {
            for (m, memory) in memories.iter().enumerate() {
                points.push(Point {
                    keys: vec![Key::Int(u64::from(*node))],
                    across: Key::Int(u64::from(*memory)),
                    value: cells[h * memories.len() + m][figure as usize],
                    error: None,
                    notes: String::new(),
                });
            }
        }
        report.wide.push(grid(figure).wide(&points));
    }
    let mut long = Table::builder(
        "matrix",
        &[
            keys[0].clone(),
            grid(Figure::Latency).across,
            grid(Figure::Latency).figure,
            grid(Figure::Bandwidth).figure,
        ],
    );
    for (h, (node, _)) in homes.iter().enumerate() {
        for (m, memory) in memories.iter().enumerate() {
            let [latency, bandwidth] = cells[h * memories.len() + m];
            long.row().int((*node).into()).int((*memory).into()).float_opt(latency).float_opt(bandwidth);
        }
    }
    report.tables.push(long.finish());
}

/// Million bytes a second that workers read together; all begin together, and parts of their runs that others
/// disturbed are left out by the median.
fn bandwidth(done: &[Hammered]) -> f64 {
    done.iter().map(|h| 4096.0 * 1e3 / h.median.max(f64::MIN_POSITIVE)).sum()
}

/// Pages that no cache holds, as far as a quarter of what is available on the smallest node has room for.
fn fitting(r: &Request<'_>) -> usize {
    let want = (8 * largest_cache(r.machine)).max(64 << 20);
    let of = |node: u32| node_available("/".as_ref(), node).filter(|&bytes| bytes > 0);
    let least = r.machine.nodes.iter().filter_map(|n| of(n.id)).min().unwrap_or(want);
    (want.min(least / 4) / 4096).max(2) as usize
}
