//! Fixes on models with a known answer.

use ncpu_foresee::fix::{self, Fix, LockFix};
use ncpu_foresee::foretell::{self, Effort, Point};
use ncpu_foresee::hardware::{Hardware, Order};
use ncpu_foresee::model::{LineModel, LockPart, Model, Share};
use ncpu_foresee::program::LockKind;
use ncpu_foresee::rank;
use ncpu_schema::SampleClass;

const EFFORT: Effort = Effort { within: 0.01, events: 3_000_000, seed: 5 };

fn hardware(shape: &str) -> Hardware {
    Hardware::of_shape(shape.parse().unwrap())
}

fn model() -> Model {
    Model { name: "m".into(), work_ns: 1000.0, cv: 1.0, batch: 1.0, uneven: 1.0, ..Model::default() }
}

fn lock(kind: LockKind, hold_ns: f64, reads: f64) -> LockPart {
    LockPart {
        name: "l".into(),
        kind,
        kernel: true,
        takes: 1.0,
        hold_ns,
        cv: 0.5,
        reads,
        copies: 1,
        lines: 1.0,
        waiter_ns: None,
        wake_ns: 0.0,
    }
}

fn with(model: &Model, shape: &str, fixes: &[&str]) -> Point {
    let (mut model, mut hardware, mut order) = (model.clone(), hardware(shape), Order::Spread);
    for text in fixes {
        let fix: Fix = text.parse().unwrap();
        fix.apply(&mut model, &mut hardware, &mut order).unwrap();
    }
    let cpus = hardware.shape.cpus();
    foretell::point(&model, &hardware, cpus, order, &EFFORT, &|| false).unwrap()
}

#[test]
fn readers_of_a_lock_that_is_split_go_to_all_of_its_copies() {
    // Readers hold it together; the line that each of them writes goes from one to the next.
    for kind in [LockKind::Qspin, LockKind::Rwsem] {
        let readers = Model { lock: vec![lock(kind, 10.0, 1.0)], ..model() };
        let (one, split) = (with(&readers, "1x64", &[]), with(&readers, "1x64", &["lock l split 64"]));
        assert!(one.throughput < 1e9 / 40.0, "{}", one.throughput);
        assert!(split.throughput > 2.0 * one.throughput, "{kind:?}: {} {}", split.throughput, one.throughput);
        let taken = split.outcome.locks.iter().filter(|l| l.taken > 0).count();
        assert_eq!(taken, 64);
    }
}

#[test]
fn who_was_woken_for_one_of_many_locks_tries_that_one_again() {
    // Sixteen threads that do next to nothing but hold one of two: nearly all of them wait.
    for kind in [LockKind::Mutex, LockKind::Block, LockKind::Adaptive] {
        let two = Model { work_ns: 10.0, threads: 16, lock: vec![lock(kind, 50_000.0, 0.0)], ..model() };
        let point = with(&two, "1x8", &["lock l split 2"]);
        for stats in &point.outcome.locks {
            assert!(stats.contended as f64 > 0.5 * stats.taken as f64, "{kind:?}: {stats:?}");
        }
        let waited: u64 = point.outcome.locks.iter().map(|l| l.spin + l.block).sum();
        let threads = waited as f64 / point.outcome.elapsed as f64;
        assert!(threads > 8.0, "{kind:?}: {threads} of 14 wait");
    }
}

/// A model of which each fix has something to change.
fn whole() -> Model {
    let line =
        |name: &str, bounded| LineModel { name: name.into(), writes: 0.1, copies: 1, among: 1, bounded };
    let share = |class, detail: &str| Share { class, detail: detail.into(), weight: 1.0 };
    Model {
        lock: vec![
            lock(LockKind::Qspin, 100.0, 0.0),
            LockPart { name: "mcs lock".into(), ..lock(LockKind::Qspin, 10.0, 0.5) },
        ],
        line: vec![line("count", false), line("reserve", true)],
        mix: vec![
            share(SampleClass::User, ""),
            share(SampleClass::Fault, ""),
            share(SampleClass::Syscall, "mmap"),
        ],
        shootdowns: 0.01,
        serial_ns: 10.0,
        memory_bytes: 640.0,
        tick_ns: 1000.0,
        tick_hz: 1000.0,
        sleep_ns: 100.0,
        uneven: 1.5,
        ..model()
    }
}

#[test]
fn every_fix_that_is_tried_changes_something() {
    let (whole, machine) = (whole(), hardware("2x4x2"));
    let all = fix::all(&whole, &machine, Order::Spread, 4);
    for fix in &all {
        let (mut model, mut hardware, mut order) = (whole.clone(), machine.clone(), Order::Spread);
        fix.apply(&mut model, &mut hardware, &mut order).unwrap();
        assert!(model != whole || hardware != machine || order != Order::Spread, "{fix}");
        assert_eq!(fix.to_string().parse::<Fix>().unwrap(), *fix);
        // A second time there is nothing left of what is so or not so.
        let number = fix.to_string().split_whitespace().any(|w| w.parse::<f64>().is_ok());
        let again = fix.apply(&mut model, &mut hardware, &mut order);
        assert!(number || *fix == Fix::HugePages || again.is_err(), "{fix}");
    }
    let has = |text: &str| all.iter().any(|fix| fix.to_string() == text);
    for text in [
        "lock l ticket",
        "lock l tas",
        "lock l rwsem",
        "lock l adaptive",
        "lock l block",
        "lock mcs lock split 64",
        "line count split 64",
        "line reserve per-cpu",
        "memory local",
        "memory node0",
        "populate 16",
        "place pack",
        "place fill",
        "smt off",
        "accept balanced",
    ] {
        assert!(has(text), "{text}: {all:?}");
    }
    assert!(
        !has("lock mcs lock qspin") && !has("line reserve bounded") && !has("memory interleaved"),
        "{all:?}"
    );
    // Calls that make pages can be helped as faults can; all CPUs are the same in any order; one package has one memory.
    let calls = Model {
        mix: vec![Share { class: SampleClass::Syscall, detail: "mmap".into(), weight: 1.0 }],
        ..model()
    };
    assert_eq!(fix::all(&calls, &hardware("1x4"), Order::Spread, 4), [Fix::Populate(16)]);
    let memory = Model { memory_bytes: 64.0, ..model() };
    assert!(fix::all(&memory, &hardware("1x4"), Order::Spread, 4).is_empty());
}

#[test]
fn fixes_are_ranked_from_the_point_that_they_start_at() {
    let (model, hardware) =
        (Model { lock: vec![lock(LockKind::Qspin, 1000.0, 0.0)], ..model() }, hardware("1x16"));
    let at = foretell::point(&model, &hardware, 16, Order::Spread, &EFFORT, &|| false).unwrap();
    let rank = |stop: &(dyn Fn() -> bool + Sync)| {
        rank::rank(&model, &hardware, &at, Order::Spread, &EFFORT, stop, |_, p| p.throughput).unwrap().tried
    };
    let ranked = rank(&|| false);
    assert_eq!(ranked.len(), fix::all(&model, &hardware, Order::Spread, 16).len());
    assert!(ranked.windows(2).all(|w| w[0].gain >= w[1].gain), "{ranked:?}");
    assert!(ranked.iter().all(|t| (t.told / at.throughput / t.gain - 1.0).abs() < 1e-12), "{ranked:?}");
    let best = [LockFix::Removed, LockFix::Split(64)].map(|fix| Fix::Lock("l".into(), fix));
    assert!(best.contains(&ranked[0].fix), "{ranked:?}");
    assert!(rank(&|| true).is_empty());
}

#[test]
fn helpers_that_are_too_many_are_refused() {
    let mix = vec![Share { class: SampleClass::Fault, detail: String::new(), weight: 1.0 }];
    let many = Model { threads: 1 << 20, populate: 1024, mix, ..model() };
    let why = many.program(many.threads, 4).unwrap_err().to_string();
    assert!(why.contains("1073741824 threads, more than the 1048576"), "{why}");
    assert!(
        !fix::all(&Model { populate: 0, ..many }, &hardware("1x4"), Order::Spread, 4)
            .contains(&Fix::Populate(16))
    );
}
