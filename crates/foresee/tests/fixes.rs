//! Fixes on models whose answer is known.

use ncpu_foresee::fix;
use ncpu_foresee::foretell::{self, Effort, Point};
use ncpu_foresee::hardware::{Hardware, Order};
use ncpu_foresee::model::{LockPart, Model};

const EFFORT: Effort = Effort { within: 0.01, events: 3_000_000, seed: 5 };

fn hardware(shape: &str) -> Hardware {
    Hardware::of_shape(shape.parse().unwrap())
}

fn model() -> Model {
    Model {
        name: "m".into(),
        work_ns: 1000.0,
        cv: 1.0,
        batch: 1.0,
        uneven: 1.0,
        memory: "interleaved".into(),
        ..Model::default()
    }
}

fn lock(kind: &str, hold_ns: f64, reads: f64) -> LockPart {
    LockPart {
        name: "l".into(),
        kind: kind.into(),
        kernel: true,
        takes: 1.0,
        hold_ns,
        cv: 0.5,
        reads,
        copies: 1,
        waiter_ns: 0.0,
        wake_ns: 0.0,
    }
}

fn with(model: &Model, shape: &str, fixes: &[&str]) -> Point {
    let (mut model, mut hardware, mut order) = (model.clone(), hardware(shape), Order::Spread);
    for text in fixes {
        fix::apply(text, &mut model, &mut hardware, &mut order).unwrap();
    }
    let cpus = hardware.shape.cpus();
    foretell::point(&model, &hardware, cpus, order, &EFFORT, &|| false).unwrap()
}

#[test]
fn readers_of_a_lock_that_is_split_go_to_all_of_its_copies() {
    // Readers hold it together; the line that each of them writes goes from one to the next.
    for kind in ["qspin", "rwsem"] {
        let readers = Model { lock: vec![lock(kind, 10.0, 1.0)], ..model() };
        let (one, split) = (with(&readers, "1x64", &[]), with(&readers, "1x64", &["lock l split 64"]));
        assert!(one.throughput < 1e9 / 40.0, "{}", one.throughput);
        assert!(split.throughput > 2.0 * one.throughput, "{kind}: {} {}", split.throughput, one.throughput);
        let taken = split.outcome.locks.iter().filter(|l| l.taken > 0).count();
        assert_eq!(taken, 64);
    }
}

#[test]
fn who_was_woken_for_one_of_many_locks_tries_that_one_again() {
    // Sixteen threads that do next to nothing but hold one of two: nearly all of them wait.
    for kind in ["mutex", "block", "adaptive"] {
        let two = Model { work_ns: 10.0, threads: 16, lock: vec![lock(kind, 50_000.0, 0.0)], ..model() };
        let point = with(&two, "1x8", &["lock l split 2"]);
        for stats in &point.outcome.locks {
            assert!(stats.contended as f64 > 0.5 * stats.taken as f64, "{kind}: {stats:?}");
        }
        let waited: u64 = point.outcome.locks.iter().map(|l| l.spin + l.block).sum();
        let threads = waited as f64 / point.outcome.elapsed as f64;
        assert!(threads > 8.0, "{kind}: {threads} of 14 wait");
    }
}
