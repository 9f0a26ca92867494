//! Reads a generated tree of 2048 CPUs in 32 nodes, alternately with hwloc's `lstopo` on the same tree;
//! prints the medians. `cargo bench -p ncpu-machine`

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ncpu_machine::Topology;
use ncpu_machine_trees::generate::{Shape, write};

const ROUNDS: usize = 15;

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let shape = Shape::LARGE;
    write(dir.path(), &shape).expect("the tree to be written");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let machine = Topology::read(dir.path()).expect("the tree to be read");
        ours.push(start.elapsed());
        assert_eq!((machine.ncpu(), machine.nodes.len()), (2048, 32));
        theirs.extend(lstopo(dir.path()));
    }
    println!("{} CPUs, {} nodes, {ROUNDS} rounds, files in the page cache", shape.ncpu(), shape.nodes);
    println!("Topology::read      {}", median(&mut ours));
    if theirs.is_empty() {
        println!("lstopo-no-graphics  not installed");
    } else {
        println!("lstopo-no-graphics  {} (with its process)", median(&mut theirs));
    }
}

fn lstopo(root: &std::path::Path) -> Option<Duration> {
    let start = Instant::now();
    let status = Command::new("lstopo-no-graphics")
        .args(["--if", "fsroot", "--of", "xml", "--no-io", "--input"])
        .arg(root)
        .stdout(Stdio::null())
        .status();
    status.is_ok_and(|s| s.success()).then(|| start.elapsed())
}

fn median(times: &mut [Duration]) -> String {
    times.sort();
    let ms = |t: &Duration| t.as_secs_f64() * 1e3;
    let last = times.len() - 1;
    format!(
        "median {:7.1} ms  ({:.1} to {:.1})",
        ms(&times[times.len() / 2]),
        ms(&times[0]),
        ms(&times[last])
    )
}
