//! Interrupts sent to other CPUs, and the clock: what one CPU does for all.

use super::{NONE, Row, one_class, row};
use ncpu_foresee::hardware::{Hardware, Order, Shape};
use ncpu_foresee::machines;
use ncpu_foresee::program::{Class, Op};
use ncpu_foresee::sim::{Mode, Outcome, Sim, Time};

pub(super) fn rows() -> Result<Vec<Row>, machines::Error> {
    let mut all = vec![
        row(
            "cross-calls, M5-32: one for each of 32 packages instead of 1536 CPUs",
            "times fewer",
            48.0,
            crosscalls("m5-32")?,
            NONE,
        ),
        row(
            "cross-calls, T5-8: one for each of 8 packages instead of 1024 CPUs",
            "times fewer",
            128.0,
            crosscalls("t5-8")?,
            NONE,
        ),
        row("clock work of 70 % of CPU 0, divided among 128", "% of a CPU, at most", 1.0, clock(), NONE),
    ];
    all.extend(memstat()?);
    Ok(all)
}

/// One thread that unmaps a page now and then, while all other CPUs compute.
fn unmapping(hardware: &Hardware, per_package: bool, every: f64, ms: u64) -> Outcome {
    let cpus = hardware.shape.cpus();
    let mut program =
        one_class(cpus as u32 - 1, true, vec![Op::Compute { time: Time::fixed(1e6), activity: 0 }]);
    program.classes.insert(
        0,
        Class {
            name: "unmaps".into(),
            threads: 1,
            bound: true,
            ops: vec![
                Op::Compute { time: Time::fixed(every), activity: 0 },
                Op::Shootdown { per_package },
                Op::Done,
            ],
        },
    );
    let mut sim = Sim::new(&program, hardware, cpus, Order::Pack, 1);
    // The first shootdowns come before all threads run.
    sim.run_until(5_000_000_000);
    sim.begin();
    sim.run_until(5_000_000_000 + ms * 1_000_000_000);
    sim.outcome()
}

/// How many times fewer interrupts a shootdown sends when one goes to each package.
fn crosscalls(machine: &str) -> Result<f64, machines::Error> {
    let hardware = machines::find(machine, None)?;
    let each = |per_package| {
        let out = unmapping(&hardware, per_package, 1e5, 20);
        out.interrupts as f64 / out.shootdowns.max(1) as f64
    };
    Ok(each(false) / each(true))
}

/// Share of the busiest CPU that ticks take when their work for 128 CPUs, 70 % of one CPU, is divided among all.
fn clock() -> f64 {
    let ticks = 128;
    let work = 0.7 * 10e6 / f64::from(ticks);
    let program = one_class(
        ticks,
        true,
        vec![
            Op::Compute { time: Time::fixed(work), activity: 0 },
            Op::Sleep { time: Time::fixed(10e6 - work), io: false },
            Op::Done,
        ],
    );
    let hardware = Hardware::of_shape(Shape { packages: 2, clusters: 1, cores: 8, strands: 8 });
    let hardware = Hardware { smt: 8.0, turbo: 1.0, ..hardware };
    let mut sim = Sim::new(&program, &hardware, 128, Order::Spread, 1);
    sim.run_until(1_000_000_000_000);
    let out = sim.outcome();
    let busy =
        |cpu: &[u64; ncpu_foresee::sim::MODES]| 1.0 - cpu[Mode::Idle as usize] as f64 / out.elapsed as f64;
    out.cpus.iter().map(busy).fold(0.0, f64::max) * 100.0
}

/// A machine for `memstat`: CPUs, memory in GB, seconds before and after.
struct Scanned {
    shape: Shape,
    gb: f64,
    before: f64,
    after: f64,
}

impl Scanned {
    /// Pages of 8 KB.
    fn pages(&self) -> f64 {
        self.gb * 131_072.0
    }
}

/// `memstat` reads the structures of each page and of its vnode, in two passes; each read ends with a broadcast to all
/// CPUs, for the mapping that it read through.
const READS: f64 = 4.0;

fn memstat() -> Result<Vec<Row>, machines::Error> {
    let boards = |packages| Shape { packages, clusters: 1, cores: 4, strands: 2 };
    let e25k = Scanned { shape: boards(18), gb: 864.0, before: 2612.0, after: 181.5 };
    let m9000 = Scanned { shape: boards(64), gb: 4096.0, before: 34143.0, after: 70.5 };
    // 32 GB in pages of 4 KB, 1.5 s without broadcasts, on CPUs that are about as fast each.
    let page = 1.5e9 / (32.0 * 262_144.0);
    let strands = |packages| Shape { packages, clusters: 1, cores: 8, strands: 8 };
    let t5240 = Scanned { shape: strands(2), gb: 32.0, before: 490.0, after: 4.5 };
    let t5440 = Scanned { shape: strands(4), gb: 128.0, before: 3929.0, after: 9.5 };
    // The time of a read apart from the broadcast is the time that is left after the change, and small.
    let read = t5240.after * 1e9 / t5240.pages();
    let transfer = machines::find("t5440", None)?.transfer;
    let seconds = |on: &Scanned, read: f64, send: f64| {
        let hardware = Hardware {
            transfer: transfer.clone(),
            ipi_send_ns: send,
            smt: f64::from(on.shape.strands),
            turbo: 1.0,
            ..Hardware::of_shape(on.shape)
        };
        let out = unmapping(&hardware, false, read, 20);
        on.pages() * READS * out.elapsed as f64 * 1e-12 / out.done.max(1) as f64
    };
    // One unknown, in which the time is a straight line.
    let send = |from: &Scanned, read: f64| {
        let (a, b) = (seconds(from, read, 100.0), seconds(from, read, 400.0));
        100.0 + 300.0 * (from.before - a) / (b - a)
    };
    Ok(vec![
        row(
            "memstat with broadcasts, T5440: 256 CPUs, 128 GB",
            "s",
            t5440.before,
            seconds(&t5440, read, send(&t5240, read)),
            "sending to one CPU, from T5240 (128 CPUs, 32 GB: 490 s)",
        ),
        row(
            "memstat without broadcasts, T5440",
            "s",
            t5440.after,
            t5440.pages() * read * 1e-9,
            "time for a page, from T5240 (4.5 s)",
        ),
        row(
            "memstat with broadcasts, M9000: 512 CPUs, 4 TB",
            "s",
            m9000.before,
            seconds(&m9000, page, send(&e25k, page)),
            "sending to one CPU, from E25K (144 CPUs, 864 GB: 2612 s)",
        ),
        row(
            "memstat without broadcasts, M9000",
            "s",
            m9000.after,
            m9000.pages() * page * 1e-9,
            "time for a page, from X4600 (1.5 s for 32 GB)",
        ),
    ])
}
