//! How long a cache line takes from one CPU to another: two threads pass a word to and fro.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering::*};

use ncpu_machine::Topology;
use ncpu_table::{Column, Kind, Unit};

use super::points::{Grid, Key, Point};
use super::{Report, Request, Survey, shuffle};
use crate::failure::Failure;
use crate::options::Flag;
use crate::place;
use crate::runner::now;
use crate::stats::Summary;

/// `ncpu bench core-to-core`.
pub const SURVEY: Survey = Survey {
    name: "core-to-core",
    about: "one-way latency of a cache line between each two CPUs, ns",
    flags: &[
        Flag { letter: 'n', value: "N", default: "31", about: "samples of each pair" },
        Flag { letter: 'r', value: "N", default: "300", about: "round trips in a sample" },
        Flag { letter: 'c', value: "", default: "", about: "only the first CPU of each core" },
    ],
    run,
};

/// The word, and where the other thread says that it is there; nothing else on their lines.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

fn run(r: &Request<'_>) -> Result<Report, Failure> {
    let told = |e: place::PlaceError| Failure::Failed(e.to_string());
    let usable = || r.machine.online.and(&r.machine.allowed).iter().collect();
    let mut cpus: Vec<u32> = r.plan.place.order(r.machine).map_err(told)?.unwrap_or_else(usable);
    if r.options.has('c') {
        cpus = first_of_cores(&cpus, r.machine);
    }
    if cpus.len() < 2 {
        return Err(Failure::Lacks("there is one CPU, and none for it to talk to".into()));
    }
    let (samples, rounds) =
        (r.options.number('n')?.clamp(1, 100_000) as usize, r.options.number('r')?.clamp(1, 1 << 32));
    let mut pairs: Vec<(usize, usize)> =
        (0..cpus.len()).flat_map(|a| (a + 1..cpus.len()).map(move |b| (a, b))).collect();
    shuffle(&mut pairs);
    let mut found: Vec<Option<Summary>> = vec![None; cpus.len() * cpus.len()];
    let mut report = Report::default();
    for (done, &(a, b)) in pairs.iter().enumerate() {
        if r.stopped() {
            report.notes.push(format!("stopped early: {done} of {} pairs", pairs.len()));
            break;
        }
        if done % 16 == 0 {
            (r.progress)(&format!("{}/{} pairs of CPUs", done + 1, pairs.len()));
        }
        let times = pair(cpus[a], cpus[b], samples, rounds)?;
        found[a * cpus.len() + b] = Some(Summary::of(&times));
    }
    let mut points = Vec::with_capacity(found.len());
    for a in 0..cpus.len() {
        for b in 0..cpus.len() {
            let summary = &found[a.min(b) * cpus.len() + a.max(b)];
            if a == b {
                continue;
            }
            points.push(Point {
                keys: vec![Key::Int(cpus[a].into())],
                across: Key::Int(cpus[b].into()),
                value: summary.map(|s| s.median),
                error: summary.map(|s| 100.0 * s.uncertainty()),
                notes: relation(r.machine, cpus[a], cpus[b]).into(),
            });
        }
    }
    // The wide form has its columns in the order of the rows.
    let mut square = points.clone();
    square.extend(cpus.iter().map(|&c| Point {
        keys: vec![Key::Int(c.into())],
        across: Key::Int(c.into()),
        value: None,
        error: None,
        notes: String::new(),
    }));
    square.sort_by_key(|p| {
        let at = |key: &Key| cpus.iter().position(|&c| *key == Key::Int(c.into()));
        (at(&p.keys[0]), at(&p.across))
    });
    let grid = Grid {
        name: "core-to-core",
        keys: &[Column::id("cpu", "one CPU")],
        across: Column::id("other", "the other CPU"),
        figure: Column::float("latency", Unit::Nanoseconds, Kind::Gauge, "median of half a round trip"),
        scale: 1.0,
        title: "One-way latency of a cache line between CPUs, ns",
    };
    report.notes.extend(by_relation(&points));
    report.tables.push(grid.long(&points));
    report.wide.push(grid.wide(&square));
    Ok(report)
}

/// Half of a round trip between two CPUs, nanoseconds, `samples` times.
fn pair(a: u32, b: u32, samples: usize, rounds: u64) -> Result<Vec<f64>, Failure> {
    let told = |e: place::PlaceError| Failure::Failed(e.to_string());
    let (word, ready) = (Line::default(), Line::default());
    // Ready: 1 both may begin, 2 the second could not be placed.
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let bound = place::bind(b);
            ready.0.store(if bound.is_ok() { 1 } else { 2 }, Release);
            bound.map_err(told)?;
            let mut turn = 1;
            for _ in 0..(samples as u64 + 1) * rounds {
                while word.0.load(Acquire) != turn {
                    spin_loop();
                }
                word.0.store(turn + 1, Release);
                turn += 2;
            }
            Ok(())
        });
        let first = scope.spawn(|| {
            // A first that cannot be placed plays on all the same, so that the second ends.
            let bound = place::bind(a);
            while ready.0.load(Acquire) == 0 {
                std::thread::yield_now();
            }
            if ready.0.load(Acquire) == 2 {
                return bound.map_err(told).map(|()| Vec::new());
            }
            let mut times = Vec::with_capacity(samples + 1);
            let mut turn = 1;
            for _ in 0..=samples {
                let begin = now();
                for _ in 0..rounds {
                    word.0.store(turn, Release);
                    while word.0.load(Acquire) != turn + 1 {
                        spin_loop();
                    }
                    turn += 2;
                }
                times.push((now() - begin) as f64 / (2 * rounds) as f64);
            }
            bound.map_err(told)?;
            // The first sample warms up.
            Ok(times.split_off(1))
        });
        let dead = |_| Failure::Failed("core-to-core: a thread panicked".into());
        let second: Result<(), Failure> = second.join().map_err(dead)?;
        second?;
        first.join().map_err(dead)?
    })
}

fn first_of_cores(cpus: &[u32], machine: &Topology) -> Vec<u32> {
    let mut seen = std::collections::BTreeSet::new();
    let first = |cpu: u32| machine.core_of(cpu).and_then(|c| c.cpus.first()).unwrap_or(cpu);
    cpus.iter().copied().filter(|&cpu| seen.insert(first(cpu))).collect()
}

/// How two CPUs are related.
fn relation(machine: &Topology, a: u32, b: u32) -> &'static str {
    let core = |c: u32| machine.core_of(c).map(|c| &c.cpus);
    let package = |c: u32| machine.package_of(c).map(|p| &p.cpus);
    let node = |c: u32| machine.node_of(c).map(|n| n.id);
    if core(a).is_some() && core(a) == core(b) {
        "same core"
    } else if package(a) != package(b) {
        "other package"
    } else if node(a) != node(b) {
        "other node"
    } else {
        "same package"
    }
}

/// A line for each relation there is: the least, the median and the largest of its pairs.
fn by_relation(points: &[Point]) -> Vec<String> {
    ["same core", "same package", "other node", "other package"]
        .iter()
        .filter_map(|relation| {
            let of: Vec<f64> =
                points.iter().filter(|p| p.notes == *relation).filter_map(|p| p.value).collect();
            let s = Summary::of(&of);
            (s.n > 0).then(|| format!("{relation}: {:.0} ns ({:.0} to {:.0})", s.median, s.min, s.max))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::generate::{Shape, write};

    #[test]
    fn relations_and_cores_are_the_topologys() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes: 2, cores: 2, threads: 2 }).unwrap();
        let machine = Topology::read(dir.path()).unwrap();
        // Node 0 has CPUs 0,1,4,5 (cores 0+4, 1+5), node 1 has 2,3,6,7; each is a package.
        assert_eq!(relation(&machine, 0, 4), "same core");
        assert_eq!(relation(&machine, 0, 5), "same package");
        assert_eq!(relation(&machine, 0, 2), "other package");
        assert_eq!(first_of_cores(&[4, 0, 1, 2, 6], &machine), [4, 1, 2]);
    }

    #[test]
    fn a_pair_gives_its_samples_and_a_cpu_that_is_not_there_an_error() {
        let cpus: Vec<u32> = ncpu_machine::online_cpus("/".as_ref()).unwrap().iter().collect();
        let (a, b) = (cpus[0], cpus[cpus.len() - 1]);
        if a != b {
            let times = pair(a, b, 3, 10).unwrap();
            assert!(times.len() == 3 && times.iter().all(|t| *t > 0.0));
            assert!(pair(1 << 20, b, 1, 2).is_err());
        }
        assert!(pair(a, 1 << 20, 1, 2).is_err());
    }
}
