//! A simulated point as the recording that an observation of it would be.

use ncpu_record::{Manifest, Recording};
use ncpu_schema::{
    Counter, CpuState, Microstate, Per, Purpose, SampleClass, UserCause, cpu_time, data, events, first_waits,
    idle_time, locks, samples, summary, threads, user_locks,
};
use ncpu_table::Table;

use crate::foretell::Point;
use crate::hardware::Hardware;
use crate::model::{FIRST_LINE, Model};
use crate::program::Owner;
use crate::sim::{MICRO, Mode, REASONS};

/// Seconds in a picosecond, the unit of the simulation's clock.
const PS: f64 = 1e-12;

/// The point as a recording, with the tables of an observation.
pub fn recording(model: &Model, hardware: &Hardware, point: &Point, notes: Vec<String>) -> Recording {
    let command = match &model.recorded {
        Some(recorded) if !recorded.command.is_empty() => recorded.command.clone(),
        _ => vec![model.name.clone()],
    };
    let mut manifest = Manifest::new(Purpose::Foresee, point.cpus as u64, command, 0.0);
    manifest.simulated = true;
    manifest.complete = true;
    manifest.host = String::new();
    manifest.kernel = String::new();
    manifest.cpu_model = match hardware.name == hardware.shape.to_string() {
        true => format!("simulated {}", hardware.shape),
        false => format!("simulated {}: {}", hardware.name, hardware.shape),
    };
    manifest.notes = notes;
    let tables = [
        cpu_time(point),
        idle_time(point),
        samples(model, point),
        data(model, point),
        kernel_locks(model, point),
        user_locks(model, point),
        first_waits(point),
        threads(model, point),
        events(point),
        summary(point),
    ];
    Recording {
        manifest,
        name: "this simulation".into(),
        tables: tables.into_iter().map(|t| (t.name().to_string(), t)).collect(),
        recovered: Vec::new(),
        notes: Vec::new(),
        selection: None,
    }
}

fn seconds(point: &Point) -> Option<f64> {
    Some(point.outcome.elapsed as f64 * PS)
}

fn cpu_time(point: &Point) -> Table {
    let mut out = cpu_time::Rows::new();
    for (cpu, used) in (0u64..).zip(&point.outcome.cpus) {
        let of = |mode: Mode| used[mode as usize] as f64 * PS;
        out.push(cpu_time::Row {
            time: seconds(point),
            cpu: Some(cpu),
            spent: Per::new(|state| {
                Some(match state {
                    CpuState::Idle => of(Mode::Idle),
                    CpuState::Program => of(Mode::Work) + of(Mode::UserSpin) + of(Mode::Switch),
                    CpuState::Spin => of(Mode::Spin),
                    CpuState::Hardirq => of(Mode::Interrupt),
                    CpuState::Tlb => of(Mode::Tlb),
                    CpuState::Others | CpuState::Ncpu | CpuState::Softirq => 0.0,
                })
            }),
            ..Default::default()
        });
    }
    out.finish()
}

fn idle_time(point: &Point) -> Table {
    let mut out = idle_time::Rows::new();
    let spent = |reason| {
        let at = REASONS.iter().position(|r| *r == reason)?;
        Some(point.outcome.idle[at] * PS)
    };
    out.push(idle_time::Row { time: seconds(point), spent: Per::new(spent) });
    out.finish()
}

/// Number of samples, which makes a share exact to 0.001 %.
const SAMPLES: f64 = 1e5;

/// Samples as a timer would have taken them.
fn samples(model: &Model, point: &Point) -> Table {
    let mut out = samples::Rows::new();
    let o = &point.outcome;
    let total = o.mode(Mode::Work) + o.mode(Mode::UserSpin) + o.mode(Mode::Switch);
    let mut put = |class: SampleClass, detail: &str, x: f64| {
        let n = (SAMPLES * x / total.max(1.0)).round() as u64;
        if n > 0 {
            out.push(samples::Row {
                at: Some(CpuState::Program),
                class: Some(class),
                detail: detail.into(),
                process: model.name.as_str().into(),
                samples: Some(n),
                ..Default::default()
            });
        }
    };
    let work: f64 = o.activities.iter().map(|x| *x as f64).sum();
    let weights: f64 = model.mix.iter().map(|s| s.weight).sum();
    if weights > 0.0 {
        for share in &model.mix {
            put(share.class, &share.detail, work * share.weight / weights);
        }
    } else {
        put(SampleClass::User, "", work);
    }
    put(SampleClass::UserSpin, "", o.mode(Mode::UserSpin));
    put(SampleClass::Switch, "", o.mode(Mode::Switch));
    out.finish()
}

/// Samples that waited for lines which threads share.
fn data(model: &Model, point: &Point) -> Table {
    let mut out = data::Rows::new();
    let o = &point.outcome;
    let total = o.mode(Mode::Work) + o.mode(Mode::UserSpin) + o.mode(Mode::Switch);
    for (at, line) in (1u64..).zip(&model.line) {
        let time = o.activities.get(usize::from(FIRST_LINE) + at as usize - 1).copied().unwrap_or(0);
        if time > 0 {
            out.push(data::Row {
                time: seconds(point),
                process: model.name.as_str().into(),
                pid: Some(1),
                object: line.name.as_str().into(),
                line: format!("{:#x}", 64 * at).into(),
                cause: Some(UserCause::SharedLine),
                sharing: "true".into(),
                threads: Some(point.threads.into()),
                samples: Some(SAMPLES * time as f64 / total.max(1.0)),
                ..Default::default()
            });
        }
    }
    out.finish()
}

fn kernel_locks(model: &Model, point: &Point) -> Table {
    let mut out = locks::Rows::new();
    for ((name, kind, owner), stats) in point.locks.iter().zip(&point.outcome.locks) {
        if *owner == Owner::Kernel && stats.contended > 0 {
            out.push(locks::Row {
                lock: name.as_str().into(),
                ty: kind.name().into(),
                process: model.name.as_str().into(),
                count: Some(stats.contended),
                spin: Some(stats.spin as f64 * PS),
                block: Some(stats.block as f64 * PS),
                max: Some(stats.longest as f64 * 1e-6),
                ..Default::default()
            });
        }
    }
    out.finish()
}

fn user_locks(model: &Model, point: &Point) -> Table {
    let mut out = user_locks::Rows::new();
    for ((name, kind, owner), stats) in point.locks.iter().zip(&point.outcome.locks) {
        if *owner == Owner::User && stats.contended > 0 {
            out.push(user_locks::Row {
                lock: name.as_str().into(),
                ty: kind.name().into(),
                process: model.name.as_str().into(),
                pid: Some(1),
                count: Some(stats.contended),
                wakes: Some(stats.contended),
                spin: Some(stats.spin as f64 * PS),
                block: Some(stats.block as f64 * PS),
                max: Some(stats.longest as f64 * 1e-6),
                ..Default::default()
            });
        }
    }
    out.finish()
}

fn first_waits(point: &Point) -> Table {
    let mut out = first_waits::Rows::new();
    for ((name, kind, owner), waits) in point.locks.iter().zip(&point.outcome.first) {
        if *owner == Owner::Serial {
            continue;
        }
        for bin in waits.bins() {
            out.push(first_waits::Row {
                lock: name.as_str().into(),
                ty: kind.name().into(),
                pid: (*owner == Owner::User).then_some(1),
                ahead: Some(0),
                from: Some(bin.from * 1e-3),
                to: Some(bin.to * 1e-3),
                count: Some(bin.count as u64),
                time: seconds(point),
            });
        }
    }
    out.finish()
}

fn threads(model: &Model, point: &Point) -> Table {
    let mut out = threads::Rows::new();
    for (tid, (_, micro, voluntary, involuntary)) in (1u64..).zip(&point.outcome.threads) {
        let spent = |state: Microstate| {
            let at = MICRO.iter().position(|m| *m == state)?;
            Some(micro[at] as f64 * PS)
        };
        out.push(threads::Row {
            time: seconds(point),
            pid: Some(1),
            tid: Some(tid),
            process: model.name.as_str().into(),
            thread: model.name.as_str().into(),
            micro: Per::new(spent),
            vcx: Some(*voluntary),
            icx: Some(*involuntary),
            ..Default::default()
        });
    }
    out.finish()
}

fn events(point: &Point) -> Table {
    let mut out = events::Rows::new();
    let o = &point.outcome;
    for (event, n) in [
        (Counter::Switches, o.switches.0 + o.switches.1),
        (Counter::ShootdownsSent, o.shootdowns),
        (Counter::ShootdownsReceived, o.interrupts),
    ] {
        out.push(events::Row { time: seconds(point), event: Some(event), count: Some(n) });
    }
    out.finish()
}

fn summary(point: &Point) -> Table {
    let mut out = summary::Rows::new();
    out.push(summary::Row {
        elapsed: seconds(point),
        cpus: Some(point.cpus as u64),
        steal: Some(0.0),
        ..Default::default()
    });
    out.finish()
}
