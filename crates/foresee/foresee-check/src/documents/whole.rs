//! Whole programs: a build whose hottest lock goes, and a database that is divided.

use super::{Row, row};
use ncpu_foresee::hardware::{Hardware, Order, Shape};
use ncpu_foresee::machines;
use ncpu_foresee::model::{LockPart, Model};
use ncpu_foresee::program::LockKind;
use ncpu_foresee::sim::{Mode, Outcome, Sim};

pub(super) fn rows() -> Result<Vec<Row>, machines::Error> {
    Ok(vec![
        row(
            "NetBSD's build.sh -j 40, without the lock of UBC (UBC_NWINS)",
            "s",
            57.7,
            build(),
            "work, serial part and the lock's load, from before: 1723 CPU-s in 68.3 s, 321 of them spinning for it",
        ),
        row(
            "six zones of 24 CPUs, of a program whose locks let it use 24",
            "times one zone",
            5.0,
            zones(),
            "the lock's load, from the limit of 24 CPUs",
        ),
    ])
}

fn steady(model: &Model, hardware: &Hardware, threads: u32, cpus: usize) -> (Outcome, f64) {
    match model.program(threads, cpus as u32) {
        Ok((program, cycles)) => {
            let out =
                Sim::new(&program, hardware, cpus, Order::Spread, 3).steady(0.005, 1_500_000, &|| false);
            let x = out.throughput() / cycles;
            (out, x)
        }
        // All locks here are of known kinds.
        Err(_) => (Outcome::default(), 0.0),
    }
}

fn lock(name: &str, takes: f64, hold_ns: f64) -> LockPart {
    LockPart {
        name: name.into(),
        kind: LockKind::Qspin,
        kernel: true,
        takes,
        hold_ns,
        cv: 0.5,
        reads: 0.0,
        copies: 1,
        lines: 1.0,
        waiter_ns: None,
        wake_ns: 0.0,
    }
}

/// Seconds of the build once its hottest lock is gone. A unit is a 10,000th of the build.
fn build() -> f64 {
    const UNITS: f64 = 10_000.0;
    let (elapsed, cpu, spun) = (68.3, 630.0 + 1093.0, 321.0);
    let cpus = 40;
    // Times are those measured with both strands of all cores busy: strands slow each other no more.
    let shape = Shape { packages: 2, clusters: 1, cores: 10, strands: 2 };
    let hardware = Hardware { smt: 2.0, turbo: 1.0, ..Hardware::of_shape(shape) };
    let mut model = Model {
        name: "build.sh".into(),
        cv: 1.0,
        batch: 1.0,
        work_ns: (cpu - spun) * 1e9 / UNITS,
        serial_ns: 0.2 * elapsed * 1e9 / UNITS,
        lock: vec![lock("ubc", 100.0, 0.7 * elapsed * 1e9 / UNITS / 100.0)],
        ..Model::default()
    };
    for _ in 0..12 {
        let (out, x) = steady(&model, &hardware, 40, cpus);
        let seconds = out.elapsed as f64 * 1e-12;
        let part = elapsed / seconds;
        // Of a build at the speed it has now.
        let spin = out.mode(Mode::Spin) * 1e-12 * part;
        let held = model.lock[0].takes * model.lock[0].hold_ns;
        model.lock[0].hold_ns *= (spun / spin.max(1.0)).clamp(0.5, 2.0).powf(0.3);
        let now = model.lock[0].takes * model.lock[0].hold_ns;
        model.work_ns = (model.work_ns + held - now).max(1.0);
        // Too fast: a larger part of it is serial.
        let took = UNITS / x;
        model.serial_ns = (model.serial_ns + 0.5 * (elapsed - took) * 1e9 / UNITS).max(0.0);
    }
    let gone = model.lock.remove(0);
    model.work_ns += gone.takes * gone.hold_ns;
    UNITS / steady(&model, &hardware, 40, cpus).1
}

/// How many times the throughput six instances give, each on 24 CPUs of a machine of 144.
fn zones() -> f64 {
    let shape = Shape { packages: 18, clusters: 1, cores: 8, strands: 1 };
    let hardware = Hardware { turbo: 1.0, ..Hardware::of_shape(shape) };
    // Waits begin to take all that CPUs beyond 24 add where they pass through the lock for a 24th of their time.
    let hold = 20_000.0 / 24.0;
    let of = |instances: u32| {
        let model = Model {
            name: "zones".into(),
            cv: 1.0,
            batch: 1.0,
            work_ns: 20_000.0,
            lock: vec![LockPart { copies: instances, ..lock("database", 1.0, hold) }],
            ..Model::default()
        };
        steady(&model, &hardware, 24 * instances, 24 * instances as usize).1
    };
    of(6) / of(1)
}
