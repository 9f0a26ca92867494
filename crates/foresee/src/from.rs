//! A model from a recording.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_table::Table;

use crate::hardware::{Hardware, Order};
use crate::model::{LockPart, Model, Recorded, Share};
use crate::sim::Sim;

/// Why a recording gives no model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is of another command, or was cut off before its first interval.
    #[error(
        "the recording has no table `{0}`: record with `ncpu run --record`, or was it cut off in its first interval?"
    )]
    Missing(&'static str),
    /// The program did nothing.
    #[error("the recorded program used no CPU time: there is nothing to foretell from")]
    Nothing,
    /// The recording is of a machine that there is not.
    #[error("{0}")]
    Shape(#[from] crate::hardware::ShapeError),
    /// A model that cannot be simulated.
    #[error("{0}")]
    Model(#[from] crate::model::Error),
}

/// A model and what is to be known of it.
#[derive(Clone, Debug)]
pub struct Learnt {
    /// The model.
    pub model: Model,
    /// What was assumed or could not be told.
    pub notes: Vec<String>,
}

fn sum(table: &Table, column: &str) -> f64 {
    (0..table.num_rows()).filter_map(|r| table.number(r, column)).sum()
}

/// Locks whose waits are less than this share of the program's CPU time tell nothing.
const LEAST: f64 = 0.0005;
/// The most locks that are modelled.
const MOST_LOCKS: usize = 8;

struct Worker {
    threads: u32,
    cpu: f64,
    sleep: f64,
}

/// The threads that do the work: those with a tenth of the CPU time of the busiest, or more.
fn workers(recording: &Recording, elapsed: f64) -> Option<Worker> {
    let table = recording.tables.get("threads")?;
    let mut threads = BTreeMap::<u64, (f64, f64)>::new();
    for row in 0..table.num_rows() {
        let number = |c: &str| table.number(row, c).unwrap_or(0.0);
        let Some(tid) = table.int(row, "tid") else { continue };
        let t = threads.entry(tid).or_default();
        let on_cpu = number("USR") + number("SYS") + number("TRP");
        let on_cpu = table.number(row, "CPU").unwrap_or(on_cpu);
        t.0 += on_cpu;
        // Without root nobody tells what it slept for.
        t.1 += match table.number(row, "SLP") {
            Some(slept) => slept + number("DFL") + number("TFL"),
            None => number("OFF"),
        };
    }
    let most = threads.values().map(|t| t.0).fold(0.0, f64::max);
    let busy: Vec<&(f64, f64)> = threads.values().filter(|t| t.0 > 0.1 * most).collect();
    // Threads that came and went were not all there at once.
    let lived = |t: &(f64, f64)| ((t.0 + t.1) / elapsed).min(1.0);
    let present = busy.iter().map(|t| lived(t)).sum::<f64>();
    (most > 0.0).then(|| Worker {
        threads: if table.num_rows() > 64 && present < 0.25 * busy.len() as f64 {
            present.round().max(1.0) as u32
        } else {
            busy.len() as u32
        },
        cpu: busy.iter().map(|t| t.0).sum(),
        sleep: busy.iter().map(|t| t.1).sum(),
    })
}

/// Reads a model out of a recording; `throughput` is how many units of work a second it did, where
/// the recording does not tell it, and `bound` how
/// many CPUs the program was bound to, where not to all.
///
/// # Errors
/// It is no observation of a program, or the program did nothing.
pub fn recording(
    recording: &Recording,
    throughput: Option<f64>,
    bound: Option<u32>,
) -> Result<Learnt, Error> {
    let table = |name: &'static str| recording.tables.get(name).ok_or(Error::Missing(name));
    let cpu_time = table("cpu_time")?;
    let mut notes = Vec::new();
    if recording.manifest.view.is_some() {
        let locks = match recording.tables.contains_key("user_locks") {
            true => "the kernel's locks are not known, and the model has none of them",
            false => {
                "the program's locks are not known, and the model has none (`ncpu run --preload locks` records those of \
                 pthreads)"
            }
        };
        notes.push(format!(
            "recorded without root: {locks}; time in calls and faults is work like any other, and waiting for locks or work \
             that could not be told apart is taken for work that only one thread can do; record it as root for more"
        ));
    }
    let all = cpu_time.group_by(&["CPU"]).map_or(1, |t| t.num_rows()).max(1) as u32;
    let cpus = bound.map_or(all, |n| n.clamp(1, all));
    let last = (0..cpu_time.num_rows()).filter_map(|r| cpu_time.number(r, "t")).fold(0.0, f64::max);
    let told = |c: &str| recording.tables.get("summary").and_then(|s| s.number(0, c));
    let elapsed = told("elapsed").unwrap_or(last);
    let target = sum(cpu_time, "target");
    let spin = sum(cpu_time, "spin");
    if target <= 0.0 || elapsed <= 0.0 {
        return Err(Error::Nothing);
    }
    // Of what others took, the part on the program's CPUs.
    let others = (sum(cpu_time, "other") + sum(cpu_time, "ncpu") + told("steal").unwrap_or(0.0))
        * f64::from(cpus)
        / f64::from(all);
    let capacity = f64::from(cpus) * elapsed;
    if others > 0.05 * capacity {
        notes.push(format!(
            "other programs, ncpu and the hypervisor took {:.0} % of the recorded capacity; the program is taken to have \
             had the rest to itself, which is coarse: record where it is quiet",
            100.0 * others / capacity
        ));
    }
    // As if it had had the machine to itself.
    let own = elapsed * (1.0 - others / capacity).max(0.05);

    let worker = workers(recording, elapsed).unwrap_or_else(|| {
        notes.push("the recording has no table `threads`: one worker a CPU is assumed".into());
        Worker { threads: cpus, cpu: target, sleep: 0.0 }
    });
    let running = (worker.cpu / own).clamp(1.0, f64::from(cpus));

    let throughput = throughput.or(recording.manifest.throughput.as_ref().map(|t| t.per_second));
    let throughput_known = throughput.is_some();
    // Without a figure a unit is a microsecond of the program's CPU time here.
    let units = throughput.map_or(target * 1e6, |x| x * own * elapsed / own);
    if !throughput_known {
        notes.push(
            "no throughput is known (`ncpu run --metric`, or --throughput here): a unit of work is what took a microsecond of the program's CPU time when \
             recorded; ratios mean what they say"
                .into(),
        );
    }
    let mut model = Model {
        name: recording.manifest.command.join(" "),
        unit: if throughput_known { "units".into() } else { "CPU microseconds".into() },
        cv: 1.0,
        memory: "interleaved".into(),
        ..Model::default()
    };
    model.lock = locks(recording, own, running, units, worker.threads.min(cpus), &mut notes);
    let held: f64 = model.lock.iter().map(|l| l.takes * l.hold_ns).sum();
    let per_unit = target / units * 1e9;
    model.work_ns = (per_unit - held).max(0.05 * per_unit);
    model.mix = mix(recording);

    let idle = |c: &str| recording.tables.get("idle_time").map_or(0.0, |t| sum(t, c));
    // Of the time in which CPUs idled for want of threads, as much as one thread's running would leave idle.
    // Those who cannot tell waiting for work from waiting for a lock.
    let serial_idle = idle("serial") + idle("ulock or serial");
    let sleeping = worker.sleep.min((f64::from(worker.threads) * elapsed - worker.cpu).max(0.0));
    let io_share = {
        let io = idle("io") + idle("klock or io");
        if io + serial_idle + idle("asleep") > 0.0 { io / (io + serial_idle + idle("asleep")) } else { 0.0 }
    };
    if cpus > 1 && serial_idle > 0.02 * capacity && worker.threads > 1 {
        // One of c CPUs works, the others idle.
        let serial = (serial_idle / f64::from(cpus - 1)).min(target);
        model.serial_ns = serial / units * 1e9;
        model.work_ns = (model.work_ns - model.serial_ns).max(0.02 * per_unit);
        notes.push(format!(
            "{:.1} % of the capacity idled while fewer threads ran than there were CPUs: taken as {:.1} % of the work that only one \
             thread can do; a program that lacks threads for another reason is foretold too low",
            100.0 * serial_idle / capacity,
            100.0 * serial / target
        ));
    } else if sleeping > 0.02 * f64::from(worker.threads) * elapsed {
        let each = sleeping / units * 1e9;
        model.io_ns = each * io_share;
        model.sleep_ns = each * (1.0 - io_share);
    }
    let tlb = sum(cpu_time, "tlb");
    if tlb > 0.001 * target {
        let events = recording.tables.get("events");
        let sent: f64 = events.map_or(0.0, |t| {
            (0..t.num_rows())
                .filter(|&r| t.text(r, "event").is_some_and(|e| e.starts_with("TLB shootdowns sent")))
                .filter_map(|r| t.number(r, "count"))
                .sum()
        });
        let targets = (running - 1.0).max(0.2);
        model.shootdowns = sent / targets / units;
        notes.push(
            "shootdowns are those of the whole machine; each is taken to reach all CPUs that run the program"
                .into(),
        );
    }
    model.recorded = Some(Recorded {
        cpus,
        cpu_model: recording.manifest.cpu_model.clone(),
        threads: worker.threads,
        throughput: units / elapsed * (elapsed / own),
        layers: layers(cpu_time, target, spin, tlb, own * f64::from(cpus)),
    });
    refine(&mut model, recording, own)?;
    Ok(Learnt { model, notes })
}

/// The layers to be reproduced, as shares of what the program could have had.
fn layers(cpu_time: &Table, target: f64, spin: f64, tlb: f64, capacity: f64) -> Vec<(String, f64)> {
    let idle = sum(cpu_time, "idle");
    [("work", target), ("kernel lock spin", spin), ("TLB shootdown", tlb), ("idle", idle)]
        .into_iter()
        .map(|(name, s)| (name.to_string(), s / capacity))
        .collect()
}

/// What the program's CPU time went to, by its samples.
fn mix(recording: &Recording) -> Vec<Share> {
    let Some(samples) = recording.tables.get("samples") else { return Vec::new() };
    let mut shares = BTreeMap::<(String, String), f64>::new();
    for row in 0..samples.num_rows() {
        let (Some("target"), Some(class)) = (samples.text(row, "at"), samples.text(row, "class")) else {
            continue;
        };
        let detail = samples.text(row, "detail").unwrap_or_default();
        *shares.entry((class.into(), detail.into())).or_default() +=
            samples.number(row, "samples").unwrap_or(0.0);
    }
    let mut all: Vec<Share> =
        shares.into_iter().map(|((class, detail), weight)| Share { class, detail, weight }).collect();
    all.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    all.truncate(24);
    all
}

/// Locks by what waiting for them took. How often each was taken is not recorded, only how often somebody had to wait:
/// with R threads running, a share rho of the time held and A acquisitions, A rho (R-1)/R wait, and rho = A S / elapsed.
fn locks(
    recording: &Recording,
    elapsed: f64,
    running: f64,
    units: f64,
    threads: u32,
    notes: &mut Vec<String>,
) -> Vec<LockPart> {
    let mut found = Vec::new();
    for (name, kernel) in [("locks", true), ("user_locks", false)] {
        let Some(table) = recording.tables.get(name).and_then(|t| t.group_by(&["lock", "type"]).ok()) else {
            continue;
        };
        for row in 0..table.num_rows() {
            let number = |c: &str| table.number(row, c).unwrap_or(0.0);
            let kind = table.text(row, "type").unwrap_or_default();
            if !kernel && !["lock", "mutex", "queue lock", "rwlock"].contains(&kind) {
                continue;
            }
            let lock = table.text(row, "lock").unwrap_or_default().to_string();
            found.push((lock, kind.to_string(), kernel, number("count"), number("spin") + number("block")));
        }
    }
    found.sort_by(|a, b| b.4.total_cmp(&a.4));
    let total = found.len();
    found.retain(|f| f.3 >= 20.0 && f.4 > LEAST * elapsed);
    found.truncate(MOST_LOCKS);
    if total > found.len() && found.is_empty() {
        notes.push(
            "no lock was waited for enough to be modelled; record with more threads or more CPUs, or write locks into a model \
             (--to-model)"
                .into(),
        );
    }
    let running = running.min(f64::from(threads)).max(1.05);
    found
        .into_iter()
        .map(|(name, kind, kernel, count, wait)| {
            let kind = match kind.as_str() {
                "mutex" | "rwsem" | "rwlock" => "mutex",
                "lock" | "percpu-rwsem" | "rt_mutex" => "mutex",
                _ if kernel => "qspin",
                _ => "mutex",
            };
            let hold = wait / count;
            let takes = (count * elapsed * running / (hold * (running - 1.0))).sqrt();
            // It cannot be held for longer than there was.
            let takes = takes.max(count).min(0.9 * elapsed / hold.max(1e-12)).max(count);
            LockPart {
                name,
                kind: kind.into(),
                kernel,
                takes: takes / units,
                hold_ns: hold * 1e9,
                cv: 0.5,
                reads: 0.0,
                copies: 1,
                waiter_ns: 20.0,
            }
        })
        .collect()
}

/// Simulates the recorded machine and adjusts acquisitions and hold times until as many wait for each lock, and as long,
/// as did.
fn refine(model: &mut Model, recording: &Recording, elapsed: f64) -> Result<(), Error> {
    let Some(recorded) = model.recorded.clone() else { return Ok(()) };
    if model.lock.is_empty() {
        return Ok(());
    }
    let mut wanted = Vec::new();
    for lock in &model.lock {
        let table = recording.tables.get(if lock.kernel { "locks" } else { "user_locks" });
        let (mut count, mut wait) = (0.0, 0.0);
        if let Some(t) = table {
            for r in (0..t.num_rows()).filter(|&r| t.text(r, "lock") == Some(&lock.name)) {
                count += t.number(r, "count").unwrap_or(0.0);
                wait += t.number(r, "spin").unwrap_or(0.0) + t.number(r, "block").unwrap_or(0.0);
            }
        }
        wanted.push((count / elapsed, wait / count.max(1.0) * 1e9));
    }
    let hardware = recorded_machine(&recorded)?;
    let demand = model.work_ns + model.lock.iter().map(|l| l.takes * l.hold_ns).sum::<f64>();
    for _ in 0..8 {
        let (program, _) = model.program(recorded.threads, recorded.cpus)?;
        let out = Sim::new(&program, &hardware, recorded.cpus as usize, Order::Spread, 11).steady(
            0.01,
            3_000_000,
            &|| false,
        );
        let seconds = out.elapsed as f64 * 1e-12;
        let mut at = 0;
        for (lock, (rate, wait)) in model.lock.iter_mut().zip(&wanted) {
            let stats = &out.locks[at..at + lock.copies as usize];
            at += lock.copies as usize;
            let count: u64 = stats.iter().map(|s| s.contended).sum();
            let waited: u64 = stats.iter().map(|s| s.spin + s.block).sum();
            if count == 0 || seconds <= 0.0 {
                lock.takes *= 2.0;
                continue;
            }
            let got_rate = count as f64 / seconds;
            let got_wait = waited as f64 / count as f64 * 1e-3;
            let step = |want: f64, got: f64, power: f64| (want / got).clamp(0.2, 5.0).powf(power);
            lock.hold_ns *= step(*wait, got_wait, 0.7);
            // The rate goes with takes squared.
            lock.takes *= step(*rate, got_rate, 0.5);
        }
        // Holding is a part of the same CPU time.
        let held: f64 = model.lock.iter().map(|l| l.takes * l.hold_ns).sum();
        if held > 0.95 * demand {
            let part = 0.95 * demand / held;
            for lock in &mut model.lock {
                lock.takes *= part;
            }
        }
        let held: f64 = model.lock.iter().map(|l| l.takes * l.hold_ns).sum();
        model.work_ns = (demand - held).max(0.05 * demand);
    }
    Ok(())
}

/// The machine of a recording, as far as it is known: its CPUs as cores of one package, and latencies of its kin.
///
/// # Errors
/// It had no CPU, or more than are simulated.
pub fn recorded_machine(recorded: &Recorded) -> Result<Hardware, crate::hardware::ShapeError> {
    let shape = format!("1x{}x1", recorded.cpus).parse()?;
    let mut hardware = Hardware::of_shape(shape);
    hardware.turbo = 1.0;
    hardware.name = "the recorded machine".into();
    Ok(hardware)
}
