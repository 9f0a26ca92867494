//! Checks against answers that are known exactly.

use super::{Mode, Outcome, Sim, Time};
use crate::hardware::{Hardware, Order};
use crate::program::{Activity, Class, Handover, LockModel, Op, Pick, Program};

fn program(threads: u32, ops: Vec<Op>, locks: Vec<LockModel>) -> Program {
    Program {
        classes: vec![Class { name: "t".into(), threads, bound: false, ops }],
        activities: vec![Activity::new("user", "")],
        locks,
        lines: 1,
        ..Program::default()
    }
}

fn compute(time: Time) -> Op {
    Op::Compute { time, activity: 0 }
}

/// Think, take the lock, hold it, give it back.
fn cycle(think: Time, hold: Time) -> Vec<Op> {
    vec![compute(think), Op::Acquire { lock: 0, pick: Pick::One }, compute(hold), Op::Release, Op::Done]
}

fn steady(program: &Program, hardware: &Hardware, cpus: usize, within: f64) -> Outcome {
    Sim::new(program, hardware, cpus, Order::Spread, 1).steady(within, 30_000_000, &|| false)
}

/// Mean value analysis of a closed network of one queue and a delay (Reiser and Lavenberg 1980).
fn mva(n: u32, think: f64, service: f64) -> f64 {
    let mut queue = 0.0;
    let mut x = 0.0;
    for k in 1..=n {
        let response = service * (1.0 + queue);
        x = f64::from(k) / (think + response);
        queue = x * response;
    }
    x
}

fn sums(out: &Outcome) {
    let capacity = out.cpus.len() as f64 * out.elapsed as f64;
    let used: f64 = out.cpus.iter().flatten().map(|x| *x as f64).sum();
    assert!((used / capacity - 1.0).abs() < 1e-9, "modes sum to {used} of {capacity}");
    let idle: f64 = out.idle.iter().sum();
    assert!((idle - out.mode(Mode::Idle)).abs() < 1e-9 * capacity, "reasons sum to {idle}");
    let work: u64 = out.activities.iter().sum();
    assert_eq!(work as f64, out.mode(Mode::Work));
}

#[test]
fn one_thread_is_exact() {
    let p =
        program(1, cycle(Time::fixed(800.0), Time::fixed(200.0)), vec![LockModel::new("l", Handover::Queue)]);
    let hardware = Hardware::ideal(4);
    let mut sim = Sim::new(&p, &hardware, 1, Order::Spread, 3);
    sim.run_until(1_000_000_000);
    let out = sim.outcome();
    assert_eq!((out.done, out.elapsed), (1000, 1_000_000_000));
    sums(&out);
}

#[test]
fn a_hand_over_is_a_switch_on_one_cpu_and_a_wake_up_on_two() {
    let p = program(1, vec![compute(Time::fixed(1000.0)), Op::HandOver, Op::Done], Vec::new());
    let hardware = Hardware { switch_ns: 100.0, wake_ns: 200.0, halt_ns: 5000.0, ..Hardware::ideal(2) };
    for (cpus, unit) in [(1, 1100.0), (2, 6300.0)] {
        let out = steady(&p, &hardware, cpus, 0.001);
        let ns = 1e9 / out.throughput();
        assert!((ns / unit - 1.0).abs() < 0.01, "{cpus} CPUs: {ns} ns a unit");
        sums(&out);
    }
}

#[test]
fn queueing_is_that_of_mean_value_analysis() {
    for n in [2, 8, 32, 64] {
        for kind in [Handover::Queue, Handover::TestAndSet { waiter_ns: Some(0.0) }] {
            let (think, hold) = (10_000.0, 500.0);
            let p = program(
                n,
                cycle(Time::exponential(think), Time::exponential(hold)),
                vec![LockModel::new("l", kind)],
            );
            let out = steady(&p, &Hardware::ideal(n), n as usize, 0.002);
            let expect = mva(n, think, hold) * 1e9;
            let ratio = out.throughput() / expect;
            assert!((ratio - 1.0).abs() < 0.01, "N = {n}, {kind:?}: {ratio}");
            sums(&out);
            // Little: threads at the lock = throughput x time there.
            let waiting = out.locks[0].spin as f64 / out.elapsed as f64;
            let each = out.locks[0].spin as f64 / out.locks[0].taken as f64;
            let little = out.throughput() * each * 1e-12;
            assert!((waiting / little - 1.0).abs() < 0.01, "{waiting} {little}");
        }
    }
}

/// The Markov chain of Boyd-Wickizer, Kaashoek, Morris and Zeldovich (Non-scalable locks are dangerous, 2012): k of n
/// threads at a ticket lock, arrivals at (n - k)/think, hand-overs that take base + per_waiter * waiters.
fn chain(n: usize, think: f64, base: f64, per_waiter: f64) -> f64 {
    let rate = |k: usize| 1.0 / (base + per_waiter * (k - 1) as f64);
    let mut p = vec![1.0];
    for k in 1..=n {
        p.push(p[k - 1] * ((n - k + 1) as f64 / think) / rate(k));
    }
    let all: f64 = p.iter().sum();
    (1..=n).map(|k| p[k] / all * rate(k)).sum()
}

#[test]
fn a_ticket_lock_is_its_markov_chain() {
    for n in [2usize, 4, 8, 16, 48] {
        let (think, base, per_waiter) = (20_000.0, 300.0, 60.0);
        let lock = LockModel {
            exponential: true,
            ..LockModel::new("l", Handover::Ticket { waiter_ns: Some(per_waiter) })
        };
        // The whole service is the hand-over; between CPUs it takes `base`.
        let mut hardware = Hardware::ideal(n as u32);
        hardware.transfer.cluster = base;
        let p = program(n as u32, cycle(Time::exponential(think), Time::fixed(0.0)), vec![lock]);
        let p =
            Program { locks: p.locks.iter().map(|l| LockModel { lines: 1.0, ..l.clone() }).collect(), ..p };
        let out = steady(&p, &hardware, n, 0.002);
        let ratio = out.throughput() / (chain(n, think, base, per_waiter) * 1e9);
        assert!((ratio - 1.0).abs() < 0.01, "N = {n}: {ratio}");
        sums(&out);
    }
}

#[test]
fn the_same_seed_gives_the_same_tables() {
    let p = program(
        12,
        vec![
            compute(Time::exponential(900.0)),
            Op::Acquire { lock: 0, pick: Pick::Random(2) },
            compute(Time::exponential(300.0)),
            Op::Release,
            Op::Sometimes { probability: 0.1, skip: 1 },
            Op::Sleep { time: Time::exponential(5_000.0), io: true },
            Op::Shootdown { per_package: false },
            Op::Line { line: 0, pick: Pick::One, activity: 0 },
            Op::Memory { node: None, bytes: 4096.0, parallel: 4.0, activity: 0 },
            Op::Done,
        ],
        vec![LockModel::new("a", Handover::Mutex { spin_ns: 2000.0 }), LockModel::new("b", Handover::Queue)],
    );
    let hardware = Hardware::of_shape("2x2x2".parse().unwrap());
    let run = |seed| {
        let mut sim = Sim::new(&p, &hardware, 8, Order::Spread, seed);
        sim.run_until(2_000_000_000);
        sim.outcome()
    };
    let first = run(5);
    assert!(first.done > 100, "{}", first.done);
    assert_eq!(first, run(5));
    assert_ne!(first, run(6));
    sums(&first);
}

#[test]
fn operations_that_take_no_time_end_by_their_number() {
    let p = program(4, vec![compute(Time::exponential(1e-9)), Op::Done], vec![]);
    let hardware = Hardware::of_shape("1x4x1".parse().unwrap());
    let simulation = || Sim::new(&p, &hardware, 4, Order::Spread, 1);
    let outcome = simulation().steady(1e-9, 1_000_000, &|| false);
    assert!((100_000..10_000_000).contains(&outcome.done), "{}", outcome.done);
    let asked = std::cell::Cell::new(0);
    let outcome = simulation().steady(1e-9, u64::MAX, &|| asked.replace(asked.get() + 1) >= 3);
    assert!(outcome.done < 10_000_000, "{} in spite of being told to stop", outcome.done);
}

#[test]
fn strands_share_a_core() {
    let p = program(2, vec![compute(Time::fixed(1000.0)), Op::Done], vec![]);
    let mut hardware = Hardware { smt: 1.3, ..Hardware::ideal(1) };
    hardware.shape.strands = 2;
    let out = steady(&p, &hardware, 2, 0.01);
    assert!((out.throughput() / 1.3e6 - 1.0).abs() < 0.01, "{}", out.throughput());
}

#[test]
fn more_threads_than_cpus_share_them_by_slices() {
    let p = program(6, vec![compute(Time::exponential(10_000.0)), Op::Done], vec![]);
    let out = steady(&p, &Hardware::ideal(2), 2, 0.01);
    assert!((out.throughput() / 2e5 - 1.0).abs() < 0.02, "{}", out.throughput());
    assert_eq!(out.mode(Mode::Idle), 0.0);
    assert!(out.switches.1 > 0);
    let latency: u64 = out.threads.iter().map(|t| t.1[5]).sum();
    assert!((latency as f64 / (4.0 * out.elapsed as f64) - 1.0).abs() < 0.02, "{latency}");
}

#[test]
fn interrupts_between_slices_take_no_work_away() {
    let mut p = program(6, vec![compute(Time::exponential(20e6)), Op::Done], vec![]);
    p.slice_ns = 3e6;
    p.tick = Some((10_000.0, 1000.0));
    let hardware = Hardware { switch_ns: 1000.0, ..Hardware::ideal(2) };
    let out = steady(&p, &hardware, 2, 0.01);
    // A hundredth goes to interrupts; what is done is what was worked.
    let work = out.mode(Mode::Work) * 1e-12 / out.throughput() / (out.elapsed as f64 * 1e-12);
    assert!((work / 0.02 - 1.0).abs() < 0.02, "{work}");
    assert!((out.throughput() / 99.0 - 1.0).abs() < 0.02, "{}", out.throughput());
    sums(&out);
}

#[test]
fn readers_and_writers_that_sleep_are_all_woken() {
    // Six threads of which each reads three times and writes once, on two CPUs.
    let (work, held) = (Time::exponential(5_000.0), Time::exponential(2_000.0));
    let mut ops = Vec::new();
    for _ in 0..3 {
        ops.extend([
            compute(work),
            Op::AcquireShared { lock: 0, pick: Pick::One },
            compute(held),
            Op::Release,
        ]);
    }
    ops.extend(cycle(work, held));
    for kind in [Handover::Block, Handover::Mutex { spin_ns: 1000.0 }] {
        let p = program(6, ops.clone(), vec![LockModel::new("l", kind)]);
        let hardware = Hardware { switch_ns: 1000.0, wake_ns: 500.0, halt_ns: 2000.0, ..Hardware::ideal(2) };
        let out = steady(&p, &hardware, 2, 0.02);
        // Without any waiting two CPUs do 2 units in 28 us; a queue that is forgotten does none.
        let x = out.throughput() * 28e-6;
        assert!(x > 0.3 && x < 2.0, "{kind:?}: {x}");
        assert!(out.locks[0].contended > 100);
        sums(&out);
    }
}

#[test]
fn idle_cpus_know_why() {
    // One thread holds a sleeping lock for long, so the others' CPUs idle for it.
    let p = program(
        4,
        cycle(Time::fixed(1.0), Time::fixed(100_000.0)),
        vec![LockModel::new("l", Handover::Block)],
    );
    let out = steady(&p, &Hardware::ideal(4), 4, 0.01);
    assert!((out.throughput() / 1e4 - 1.0).abs() < 0.02);
    assert!(out.idle[1] / out.idle.iter().sum::<f64>() > 0.99, "{:?}", out.idle);
    sums(&out);
}

#[test]
fn a_pipeline_goes_as_fast_as_its_slowest_stage() {
    let class = |name: &str, ops| Class { name: name.into(), threads: 1, bound: false, ops };
    let p = Program {
        classes: vec![
            class("read", vec![compute(Time::exponential(1_000.0)), Op::Put { queue: 0 }]),
            class(
                "compress",
                vec![Op::Get { queue: 0 }, compute(Time::exponential(5_000.0)), Op::Put { queue: 1 }],
            ),
            class("write", vec![Op::Get { queue: 1 }, compute(Time::exponential(500.0)), Op::Done]),
        ],
        activities: vec![Activity::new("user", "")],
        queues: vec![16, 16],
        ..Program::default()
    };
    let out = steady(&p, &Hardware::ideal(3), 3, 0.01);
    assert!((out.throughput() / 2e5 - 1.0).abs() < 0.03, "{}", out.throughput());
}

#[test]
fn barriers_hold_all_until_the_last() {
    let p = Program {
        barriers: vec![4],
        ..program(4, vec![compute(Time::fixed(1000.0)), Op::Barrier { barrier: 0 }, Op::Done], vec![])
    };
    let out = steady(&p, &Hardware::ideal(4), 4, 0.01);
    assert!((out.throughput() / 4e6 - 1.0).abs() < 0.01, "{}", out.throughput());
}

#[test]
fn a_shootdown_costs_all_who_run() {
    let p = program(
        8,
        vec![compute(Time::fixed(10_000.0)), Op::Shootdown { per_package: false }, Op::Done],
        vec![],
    );
    let q = program(
        8,
        vec![compute(Time::fixed(10_000.0)), Op::Shootdown { per_package: true }, Op::Done],
        vec![],
    );
    let hardware = Hardware { turbo: 1.0, ..Hardware::of_shape("4x2".parse().unwrap()) };
    let (all, few) = (steady(&p, &hardware, 8, 0.01), steady(&q, &hardware, 8, 0.01));
    let each = |o: &Outcome| o.interrupts as f64 / o.shootdowns as f64;
    assert!((each(&all) - 7.0).abs() < 0.1, "{}", each(&all));
    assert!((each(&few) - 4.0).abs() < 0.1, "{}", each(&few));
    assert!(few.throughput() > all.throughput());
    sums(&all);
}

#[test]
fn queues_near_first_hand_over_cheaper() {
    let run = |kind| {
        let p = program(
            64,
            cycle(Time::exponential(2_000.0), Time::fixed(100.0)),
            vec![LockModel::new("l", kind)],
        );
        steady(&p, &Hardware { turbo: 1.0, ..Hardware::of_shape("4x16".parse().unwrap()) }, 64, 0.01)
            .throughput()
    };
    let (plain, near) = (run(Handover::Queue), run(Handover::Numa { passes: 64 }));
    assert!(near / plain > 1.2, "{plain} {near}");
}

#[test]
fn interrupts_do_not_pile_up_while_a_lock_is_waited_for() {
    // A saturated lock: a thread that gets it after a long wait must not then pay for all interrupts of that
    // wait.
    let run = |tick| {
        let mut p = program(
            64,
            cycle(Time::exponential(1_000.0), Time::exponential(1_000.0)),
            vec![LockModel::new("l", Handover::Queue)],
        );
        p.tick = tick;
        steady(&p, &Hardware::ideal(64), 64, 0.01).throughput()
    };
    let (with, without) = (run(Some((10_000.0, 1000.0))), run(None));
    assert!((with / without - 0.99).abs() < 0.02, "{with} {without}");
}

#[test]
fn who_waits_for_an_rwsem_sleeps_behind_readers_and_spins_behind_a_writer() {
    let run = |readers: bool| {
        let lock = LockModel::new("l", Handover::Rwsem { spin_ns: 1e6 });
        let mut p = program(1, cycle(Time::fixed(2_000.0), Time::fixed(20_000.0)), vec![lock]);
        let take = if readers {
            Op::AcquireShared { lock: 0, pick: Pick::One }
        } else {
            Op::Acquire { lock: 0, pick: Pick::One }
        };
        let ops = vec![compute(Time::fixed(3_000.0)), take, compute(Time::fixed(30_000.0)), Op::Release];
        p.classes.push(Class { name: "others".into(), threads: 3, bound: false, ops });
        steady(&p, &Hardware::ideal(4), 4, 0.01)
    };
    let (with_readers, writers) = (run(true), run(false));
    assert!(with_readers.locks[0].block > 20 * with_readers.locks[0].spin, "{:?}", with_readers.locks);
    assert!(writers.locks[0].spin > 20 * writers.locks[0].block, "{:?}", writers.locks);
    // Readers hold it together, and the writer does get its turn.
    assert!(
        with_readers.locks[0].taken > 2 * with_readers.done && with_readers.done > 10,
        "{with_readers:?}"
    );
    sums(&with_readers);
}

#[test]
fn an_adaptive_lock_is_spun_for_while_its_holder_runs_and_wakes_all_who_sleep() {
    let run = |kind, threads, cpus| {
        let p = program(
            threads,
            cycle(Time::exponential(20_000.0), Time::exponential(60_000.0)),
            vec![LockModel::new("l", kind)],
        );
        steady(
            &p,
            &Hardware { turbo: 1.0, ..Hardware::of_shape(format!("1x{cpus}").parse().unwrap()) },
            cpus,
            0.01,
        )
    };
    let (mutex, adaptive) = (run(Handover::Mutex { spin_ns: 2_000.0 }, 4, 4), run(Handover::Adaptive, 4, 4));
    assert_eq!(adaptive.locks[0].block, 0, "{:?}", adaptive.locks);
    assert!(mutex.locks[0].block > mutex.locks[0].spin, "{:?}", mutex.locks);
    assert!(adaptive.throughput() > 1.02 * mutex.throughput());
    // With more threads than CPUs holders lose theirs, waiters sleep, and nobody is forgotten.
    let many = run(Handover::Adaptive, 16, 4);
    assert!(many.locks[0].block > 0 && many.throughput() > 0.8 * adaptive.throughput(), "{:?}", many.locks);
    assert!(many.threads.iter().all(|t| t.2 + t.3 > 0), "{:?}", many.threads);
}

#[test]
fn a_shootdown_may_miss_some_who_run() {
    let mut p = program(
        8,
        vec![compute(Time::fixed(10_000.0)), Op::Shootdown { per_package: false }, Op::Done],
        vec![],
    );
    let hardware = Hardware { turbo: 1.0, ..Hardware::of_shape("1x8".parse().unwrap()) };
    let all = steady(&p, &hardware, 8, 0.01);
    p.shootdown_misses = 0.5;
    let half = steady(&p, &hardware, 8, 0.01);
    let each = |o: &Outcome| o.interrupts as f64 / o.shootdowns as f64;
    assert!((each(&half) / each(&all) - 0.5).abs() < 0.03, "{} {}", each(&half), each(&all));
    p.shootdown_handle_ns = 3.0 * hardware.ipi_handle_ns;
    assert!(steady(&p, &hardware, 8, 0.01).throughput() < half.throughput());
}
