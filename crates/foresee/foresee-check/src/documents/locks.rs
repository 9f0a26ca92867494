//! Locks and counters.

use super::{Row, one_class, row};
use ncpu_foresee::hardware::{Hardware, Order, Shape};
use ncpu_foresee::machines;
use ncpu_foresee::program::{Activity, Class, Handover, LockModel, Op, Owner, Pick, Program};
use ncpu_foresee::sim::{Sim, Time};

pub(super) fn rows() -> Result<Vec<Row>, machines::Error> {
    let mut all = vec![
        row(
            "mmap and munmap on 256 CPUs: a counter with reserves instead of one under a lock",
            "times the rate",
            45.0,
            credit()?,
            "a pair of calls takes 20 us (assumed); a waiter delays a hand-over by one line transfer",
        ),
        row(
            "adaptive mutex: waiters that back off instead of trying all the time, T5440",
            "times the CPUs (2 to 3)",
            2.5,
            adaptive()?,
            "20 us between, 200 ns held (both assumed); a waiter delays a hand-over by one line transfer",
        ),
    ];
    all.extend(cascade());
    all.extend(spinlocks()?);
    Ok(all)
}

/// libmctop's locks (`results/locks`), with threads that do nothing but take one: the time of an
/// acquisition.
pub(super) fn spinlocks() -> Result<Vec<Row>, machines::Error> {
    let ticket = Handover::Ticket { waiter_ns: None };
    let ttas = Handover::TestAndSet { waiter_ns: None };
    let mut all = Vec::new();
    // Acquisitions a second of all threads: of MCS, and of the lock.
    for (what, machine, threads, mcs, kind, rate) in [
        ("ticket lock, E5-2680 v2, 20 threads", "xeon-e5-2680v2", 20, 1_596_694.0, ticket, 1_145_026.0),
        ("ticket lock, E5-2680 v2, 40 threads", "xeon-e5-2680v2", 40, 1_005_437.0, ticket, 902_763.0),
        ("ticket lock, Opteron, 24 threads", "opteron-48", 24, 706_366.0, ticket, 228_696.0),
        ("ticket lock, Opteron, 48 threads", "opteron-48", 48, 701_214.0, ticket, 120_283.0),
        ("TTAS lock, E5-2680 v2, 20 threads", "xeon-e5-2680v2", 20, 1_596_694.0, ttas, 1_290_792.0),
        ("TTAS lock, E5-2680 v2, 40 threads", "xeon-e5-2680v2", 40, 1_005_437.0, ttas, 901_048.0),
        ("TTAS lock, Opteron, 24 threads", "opteron-48", 24, 706_366.0, ttas, 349_848.0),
        ("TTAS lock, Opteron, 48 threads", "opteron-48", 48, 701_214.0, ttas, 175_076.0),
    ] {
        // How strands of a core slow each other is in the time that MCS takes.
        let hardware = machines::find(machine, None)?;
        let hardware = Hardware { smt: f64::from(hardware.shape.strands), turbo: 1.0, ..hardware };
        let hold = 1e9 / mcs - acquisition(&hardware, threads, Handover::Queue, 0.0);
        let foretold = acquisition(&hardware, threads, kind, hold);
        all.push(row(what, "ns", 1e9 / rate, foretold, "how long it is held, from MCS with as many threads"));
    }
    Ok(all)
}

/// How long an acquisition takes of all threads together, ns, one of which always has the lock.
fn acquisition(hardware: &Hardware, threads: u32, kind: Handover, hold: f64) -> f64 {
    let mut program = one_class(
        threads,
        true,
        vec![
            Op::Acquire { lock: 0, pick: Pick::One },
            Op::Compute { time: Time::fixed(hold), activity: 0 },
            Op::Release,
            Op::Done,
        ],
    );
    program.locks.push(LockModel { owner: Owner::User, ..LockModel::new("lock", kind) });
    let sim =
        Sim::new(&program, hardware, threads as usize, Order::Fill, 1).steady(0.005, 1_000_000, &|| false);
    1e9 / sim.throughput()
}

/// The mean time of moving a line between two of `cpus` CPUs, ns: each waiter's attempt is one move.
fn transfer(hardware: &Hardware, cpus: usize) -> f64 {
    hardware.mean_move_ns(&hardware.places(cpus, Order::Spread))
}

/// How many times the mappings a second a counter with reserves gives over one under a lock, where 256 strands do nothing
/// but map and unmap a page.
fn credit() -> Result<f64, machines::Error> {
    let hardware = machines::find("sparc-t4-4", None)?;
    let cpus = hardware.shape.cpus();
    // The time of a pair of calls without the counter, and of the counter's own update.
    let (pair, update) = (Time::exponential(20_000.0), Time::fixed(100.0));
    let work = Op::Compute { time: pair, activity: 0 };
    let count = Op::Compute { time: update, activity: 0 };
    let locked = [Op::Acquire { lock: 0, pick: Pick::One }, count.clone(), Op::Release];
    // Reserves are refilled once in 64 times.
    let reserve = [
        Op::Line { line: 1, pick: Pick::Own(cpus as u32), activity: 0 },
        count,
        Op::Sometimes { probability: 1.0 / 64.0, skip: 1 },
        Op::Line { line: 0, pick: Pick::One, activity: 0 },
    ];
    let rate = |counter: &[Op]| {
        let ops = [&[work.clone()][..], counter, counter, &[Op::Done][..]].concat();
        let mut program = one_class(cpus as u32, true, ops);
        program.lines = 1 + cpus as u32;
        let waiter_ns = transfer(&hardware, cpus);
        program
            .locks
            .push(LockModel::new("swap reservation", Handover::TestAndSet { waiter_ns: Some(waiter_ns) }));
        Sim::new(&program, &hardware, cpus, Order::Spread, 1).steady(0.01, 8_000_000, &|| false).throughput()
    };
    Ok(rate(&reserve) / rate(&locked))
}

/// Up to how many times the CPUs a program goes on getting faster whose waiters keep off the lock's line.
fn adaptive() -> Result<f64, machines::Error> {
    let hardware = Hardware { smt: 8.0, turbo: 1.0, ..machines::find("t5440", None)? };
    let peak = |waiter_ns: f64| {
        let rate = |n: u32| {
            let mut program = one_class(
                n,
                true,
                vec![
                    Op::Compute { time: Time::exponential(20_000.0), activity: 0 },
                    Op::Acquire { lock: 0, pick: Pick::One },
                    Op::Compute { time: Time::fixed(200.0), activity: 0 },
                    Op::Release,
                    Op::Done,
                ],
            );
            program.locks.push(LockModel::new("mutex", Handover::TestAndSet { waiter_ns: Some(waiter_ns) }));
            Sim::new(&program, &hardware, n as usize, Order::Spread, 1)
                .steady(0.005, 1_000_000, &|| false)
                .throughput()
        };
        // The fewest CPUs that give nearly all that can be had.
        let rates: Vec<(u32, f64)> = (1..=64).map(|i| (4 * i, rate(4 * i))).collect();
        let best = rates.iter().map(|r| r.1).fold(0.0, f64::max);
        rates.iter().find(|r| r.1 > 0.97 * best).map_or(1.0, |r| f64::from(r.0))
    };
    let waiter_ns = transfer(&hardware, hardware.shape.cpus());
    Ok(peak(0.0) / peak(waiter_ns))
}

/// libMicro's `cascade_mutex`: a ring of threads of which one at a time can go on.
fn cascade() -> Vec<Row> {
    let shape = |packages, cores, strands| Shape { packages, clusters: 1, cores, strands };
    let t2000 = Hardware { smt: 2.5, turbo: 1.0, ..Hardware::of_shape(shape(1, 8, 4)) };
    let v890 = Hardware { turbo: 1.0, ..Hardware::of_shape(shape(8, 2, 1)) };
    // The time of a hop on a strand with idle siblings, from 16 threads, two a core; others spin meanwhile.
    let alone = 11.9e3 / 16.0 / (spinning(&t2000, 16, 1000.0) / 16.0 / 1000.0);
    // More threads than CPUs: each hop wakes a thread that sleeps.
    let asleep = 850e3 / 32.0;
    vec![
        row(
            "cascade_mutex, T2000, 32 threads",
            "us/loop",
            32.4,
            spinning(&t2000, 32, alone) * 1e-3,
            "a hop, from 16 threads (11.9 us/loop); 4 strands do 2.5 times one's work (assumed)",
        ),
        row(
            "cascade_mutex, V890, 33 threads",
            "us/loop",
            900.0,
            sleeping(&v890, 33, asleep) * 1e-3,
            "a wake-up, from 32 threads (850 us/loop)",
        ),
        row(
            "cascade_mutex, T2000, 33 threads",
            "us/loop",
            1140.0,
            sleeping(&t2000, 33, asleep) * 1e-3,
            "a wake-up, from V890's 32 threads",
        ),
    ]
}

/// How long a loop takes, ns, where each of `n` threads spins until it is its turn and then works for `hop` ns.
fn spinning(hardware: &Hardware, n: u32, hop: f64) -> f64 {
    let work = |ns| Op::Compute { time: Time::fixed(ns), activity: 0 };
    let class = |threads, ops| Class { name: "t".into(), threads, bound: true, ops };
    let program = Program {
        classes: vec![class(1, vec![work(hop), Op::Done]), class(n - 1, vec![work(1e6)])],
        activities: vec![Activity::new("user", "")],
        ..Program::default()
    };
    let out = Sim::new(&program, hardware, n as usize, Order::Spread, 1).steady(0.005, 400_000, &|| false);
    f64::from(n) * 1e9 / out.throughput()
}

/// The same where they sleep, and waking one takes `wake` ns.
fn sleeping(hardware: &Hardware, n: u32, wake: f64) -> f64 {
    // Nobody else is there to take over what the waker's CPU does next.
    let halt_ns = wake - hardware.switch_ns - hardware.wake_ns;
    let hardware = Hardware { halt_ns, ..hardware.clone() };
    let class = |i: u32| Class {
        name: "t".into(),
        threads: 1,
        bound: false,
        ops: vec![Op::Get { queue: i }, Op::Put { queue: (i + 1) % n }, Op::Done],
    };
    let mut program = Program {
        classes: (0..n).map(class).collect(),
        activities: vec![Activity::new("user", "")],
        queues: vec![2; n as usize],
        ..Program::default()
    };
    // Chooses the thread that begins.
    program.classes[0].ops.rotate_left(1);
    let cpus = hardware.shape.cpus();
    let out = Sim::new(&program, &hardware, cpus, Order::Spread, 1).steady(0.005, 400_000, &|| false);
    f64::from(n) * 1e9 / out.throughput()
}
