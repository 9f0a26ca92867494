//! Memory: latency under load, and pages made by helpers.

use super::{Row, one_class, row};
use ncpu_foresee::hardware::{Hardware, Memory, Order, Shape};
use ncpu_foresee::program::{Activity, Handover, LockModel, Op, Owner, Pick};
use ncpu_foresee::sim::{Sim, Time};

pub(super) fn rows() -> Vec<Row> {
    let bus = "bandwidth, from 4 threads (78.1 ns)";
    let mut all = vec![
        row(
            "memory access, E5320, 4 threads",
            "ns",
            504.0,
            accesses(1, 4, 131.0, 125.0),
            "bandwidth, from 2 threads (250 ns)",
        ),
        row("memory access, SUMA, 2 threads of a socket", "ns", 73.4, accesses(1, 2, 71.5, 19.525), bus),
        row("memory access, SUMA, 2 threads on 2 sockets", "ns", 73.0, accesses(1, 2, 71.5, 19.525), bus),
        row("memory access, SUMA, 8 threads on 4 sockets", "ns", 156.0, accesses(1, 8, 71.5, 19.525), bus),
        row(
            "memory access, NUMA, 4 threads on 4 sockets",
            "ns",
            68.0,
            accesses(4, 4, 68.0, 78.1),
            "bandwidth of a node, from SUMA's 4 threads",
        ),
        row(
            "memory access, NUMA, 8 threads on 4 sockets",
            "ns",
            97.0,
            accesses(4, 8, 68.0, 78.1),
            "bandwidth of a node, from SUMA's 4 threads",
        ),
    ];
    all.extend(loaded());
    // One machine's own two figures give the share of a chunk's time under the segment's lock, since 16 helpers gave
    // less than 16 times: the share is used for the others of its kind, few large cores or many strands.
    let (cores, strands) = (245.0 / 1386.0, 107.0 / 1197.0);
    let (from_cores, from_strands) =
        ("share under the lock, from ISM on X4600", "share under the lock, from ISM on T4-2");
    for (what, before, after, cpus, share, free) in [
        ("vmtasks, ISM on X7560, 16 helpers", 1016.0, 153.0, 64, cores, from_cores),
        ("vmtasks, ISM on M9000, 16 helpers", 1196.0, 206.0, 512, cores, from_cores),
        ("vmtasks, ISM on T5240, 16 helpers", 2506.0, 234.0, 128, strands, from_strands),
        ("vmtasks, DISM on X4600, 16 helpers", 1582.0, 265.0, 32, cores, from_cores),
        ("vmtasks, DISM on X7560, 16 helpers", 1116.0, 158.0, 64, cores, from_cores),
        ("vmtasks, DISM on M9000, 16 helpers", 1165.0, 152.0, 512, cores, from_cores),
        ("vmtasks, DISM on T5240, 16 helpers", 2796.0, 198.0, 128, strands, from_strands),
        ("vmtasks, ISM on T4-2, 16 helpers, create", 702.0, 64.0, 128, strands, from_strands),
        ("vmtasks, ISM on T4-2, 16 helpers, destroy", 495.0, 43.0, 128, strands, from_strands),
    ] {
        all.push(row(what, "ms/GB", after, populate(before, share, cpus), free));
    }
    all
}

/// Mean time of a memory access, ns, of threads that do nothing else, over `packages` with `threads` in all: each
/// package has its own memory, and an access takes `service` ns of its controller.
fn accesses(packages: u32, threads: u32, latency: f64, service: f64) -> f64 {
    let shape = Shape { packages, clusters: 1, cores: threads.div_ceil(packages), strands: 1 };
    let hardware = Hardware {
        memory: Memory { local_ns: latency, remote_ns: latency, bandwidth: 64.0 / service },
        turbo: 1.0,
        ..Hardware::of_shape(shape)
    };
    let ops = vec![Op::Memory { node: Some(u32::MAX), bytes: 64.0, parallel: 1.0, activity: 0 }, Op::Done];
    let program = one_class(threads, true, ops);
    let out =
        Sim::new(&program, &hardware, threads as usize, Order::Spread, 1).steady(0.005, 4_000_000, &|| false);
    f64::from(threads) * 1e9 / out.throughput()
}

/// Intel's Memory Latency Checker: latency by load in GB/s, on the machine's 2 packages or 1.
fn loaded() -> Vec<Row> {
    let mut all = Vec::new();
    for (what, packages, idle, most, load, measured) in [
        ("memory latency, Xeon 8180, 69 GB/s of 216", 2, 81.4, 215.7, 68.72, 94.46),
        ("memory latency, Xeon 8180, 112 GB/s of 216", 2, 81.4, 215.7, 111.59, 101.21),
        ("memory latency, Xeon 8180, 160 GB/s of 216", 2, 81.4, 215.7, 160.24, 121.92),
        ("memory latency, one package, 20 GB/s of 35", 1, 87.02, 35.24, 19.70, 114.95),
        ("memory latency, one package, 28 GB/s of 35", 1, 87.02, 35.24, 28.18, 136.7),
        ("memory latency, Xeon Silver 4110, 43 GB/s of 136", 2, 81.96, 135.66, 42.70, 94.56),
        ("memory latency, Xeon Silver 4110, 68 GB/s of 136", 2, 81.96, 135.66, 68.36, 98.94),
    ] {
        let free = "idle latency and most bandwidth, from the same table";
        all.push(row(what, "ns", measured, beside(packages, idle, most, load), free));
    }
    all
}

/// Mean time of a memory access, ns, while `load` GB/s are moved, line by line.
fn beside(packages: u32, idle: f64, most: f64, load: f64) -> f64 {
    // So many threads that each asks seldom: how long it waits decides little of how often it asks.
    let threads = 4000;
    let shape = Shape { packages, clusters: 1, cores: threads / packages, strands: 1 };
    let hardware = Hardware {
        memory: Memory { local_ns: idle, remote_ns: idle, bandwidth: most / f64::from(packages) },
        turbo: 1.0,
        ..Hardware::of_shape(shape)
    };
    let think = f64::from(threads) * 64.0 / load - idle;
    let ops = vec![
        Op::Compute { time: Time::exponential(think), activity: 0 },
        Op::Memory { node: Some(u32::MAX), bytes: 64.0, parallel: 1.0, activity: 1 },
        Op::Done,
    ];
    let mut program = one_class(threads, true, ops);
    program.activities.push(Activity::new("user", "memory"));
    let out =
        Sim::new(&program, &hardware, threads as usize, Order::Spread, 1).steady(0.002, 2_000_000, &|| false);
    out.activities[1] as f64 * 1e-3 / out.done as f64
}

/// ms a GB with 16 helpers, from ms a GB alone, where the share `serial` of the work is done under a lock.
fn populate(alone: f64, serial: f64, cpus: u32) -> f64 {
    let helpers = 16.min(cpus);
    // A GB in chunks of 4 MB, taken one after another.
    let chunk = alone * 1e6 / 256.0;
    let mut program = one_class(
        helpers,
        true,
        vec![
            Op::Acquire { lock: 0, pick: Pick::One },
            Op::Compute { time: Time::fixed(chunk * serial), activity: 0 },
            Op::Release,
            Op::Compute { time: Time { mean: chunk * (1.0 - serial) * 1e3, cv: 0.2 }, activity: 0 },
            Op::Done,
        ],
    );
    program.locks.push(LockModel {
        owner: Owner::Kernel,
        ..LockModel::new("segment", Handover::Mutex { spin_ns: 2e4 })
    });
    let out = Sim::new(&program, &Hardware::ideal(helpers), helpers as usize, Order::Spread, 1).steady(
        0.005,
        4_000_000,
        &|| false,
    );
    256.0 / out.throughput() * 1e3
}
