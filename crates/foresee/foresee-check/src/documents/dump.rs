//! Crash dumps: one thread that compresses and writes, and a pipeline in which all other CPUs compress.

use super::{Row, row};
use ncpu_foresee::hardware::{Hardware, Order, Shape};
use ncpu_foresee::program::{Activity, Class, Op, Program};
use ncpu_foresee::sim::{Sim, Time};

/// The time of bzip2 over that of lzjb; the document has 20 to 40.
const SLOWER: f64 = 30.0;
/// The size of lzjb's output over that of bzip2's.
const LOOSER: f64 = 2.0;
/// Data handed to a helper at a time, MB.
const CHUNK: f64 = 4.0;

pub(super) fn rows() -> Vec<Row> {
    let cpu = "lzjb on a CPU, from its own time before; bzip2 takes 30 times as long (document: 20 to 40)";
    let disk = "the disk's rate, from its own time before, when it was written twice as much (document)";
    // Seconds of bzip2 for a MB, where one CPU's lzjb was all of the time before.
    let compress = |gb: f64, before: f64| SLOWER * before / (gb * 1024.0);
    // Seconds of the disk for a MB of memory, where it was all of the time before.
    let write = |gb: f64, before: f64| before / (gb * 1024.0) / LOOSER;
    let shape = |packages, cores, strands| Shape { packages, clusters: 1, cores, strands };
    // Strands of a T2 have pipelines of which one alone uses little.
    let m9000 = Hardware::of_shape(shape(64, 4, 2));
    let t5440 = Hardware { smt: 8.0, ..Hardware::of_shape(shape(4, 8, 8)) };
    let (x4450, x4600) = (Hardware::of_shape(shape(4, 4, 1)), Hardware::of_shape(shape(8, 4, 1)));
    let unit = "s";
    let mut all = vec![
        row(
            "crash dump, M9000, zvol, 90.6 GB, by 511 helpers",
            unit,
            123.0,
            dump(&m9000, 90.6, compress(90.6, 1710.0), 0.0),
            cpu,
        ),
        row(
            "crash dump, T5440, zvol, 19.4 GB, by 255 helpers",
            unit,
            269.0,
            dump(&t5440, 19.4, compress(19.4, 1641.0), 0.0),
            cpu,
        ),
        row(
            "crash dump, x4450, raw disk, 4.9 GB, by 15 helpers",
            unit,
            7.0,
            dump(&x4450, 4.9, 0.01, write(4.9, 22.0)),
            disk,
        ),
        row(
            "crash dump, x4600, raw disk, 14.6 GB, by 31 helpers",
            unit,
            106.0,
            dump(&x4600, 14.6, 0.01, write(14.6, 227.0)),
            disk,
        ),
    ];
    // Live dumps were written 8 KB at a time: a transfer has a cost of its own, a multiple of the cost of its bytes.
    // Once transfers are large, only the bytes count, and there are half as many of them.
    let own = 1409.0 / 79.0 / LOOSER;
    let live = "cost of a transfer of 8 KB, from T5440's zvol (23:29 before, 1:19 after)";
    let rate = |before: f64| before / LOOSER / own;
    let whole = |before: f64| dump(&t5440, 1.0, 0.01, rate(before) / 1024.0);
    all.push(row("live dump, M9000, zvol, in large transfers", unit, 906.0, whole(12_490.0), live));
    all.push(row("live dump, T5440, raw disk, in large transfers", unit, 55.0, whole(557.0), live));
    all
}

/// Seconds to dump `gb` GB: one thread hands chunks to helpers, which compress them in `compress` seconds a MB, and one
/// thread writes them in `write`.
fn dump(hardware: &Hardware, gb: f64, compress: f64, write: f64) -> f64 {
    let cpus = hardware.shape.cpus();
    let helpers = cpus as u32 - 1;
    let class = |name: &str, threads, ops| Class { name: name.into(), threads, bound: false, ops };
    let (todo, done) = (0, 1);
    let compress = Time { mean: compress * CHUNK * 1e12, cv: 0.3 };
    let mut out = vec![Op::Get { queue: done }];
    if write > 0.0 {
        out.push(Op::Sleep { time: Time::fixed(write * CHUNK * 1e9), io: true });
    }
    out.push(Op::Done);
    let program = Program {
        classes: vec![
            class(
                "hands out",
                1,
                vec![Op::Compute { time: Time::fixed(20_000.0), activity: 0 }, Op::Put { queue: todo }],
            ),
            class(
                "compress",
                helpers,
                vec![
                    Op::Get { queue: todo },
                    Op::Compute { time: compress, activity: 0 },
                    Op::Put { queue: done },
                ],
            ),
            class("writes", 1, out),
        ],
        activities: vec![Activity::new("kernel", "")],
        queues: vec![2 * helpers; 2],
        ..Program::default()
    };
    // The frozen machine runs at full speed: nothing else is on its CPUs.
    let hardware = Hardware { turbo: 1.0, ..hardware.clone() };
    let out = Sim::new(&program, &hardware, cpus, Order::Spread, 1).steady(0.01, 2_000_000, &|| false);
    gb * 1024.0 / CHUNK / out.throughput()
}
