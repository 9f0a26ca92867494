//! Cache lines that threads share, by what user code waited for: table `data` of a recording.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_record::Recording;
use ncpu_schema::{CpuState, Layer, SampleClass, UserCause, data, samples, user_causes};

use crate::model::{LineModel, Model};
use crate::sim::OWNED_NS;

/// Samples that a line must have, and their share of the program's CPU time.
const SAMPLES: f64 = 8.0;
const SHARE: f64 = 0.01;
/// The most lines that are modelled.
const MOST: usize = 8;
/// Factor on the time of an atomic operation if another CPU has the line.
const DEARER: f64 = 10.0;

/// A line, or lines of one object.
#[derive(Clone, Debug, Default)]
struct Found {
    samples: f64,
    addresses: BTreeSet<String>,
    writers: String,
}

/// Lines that threads share and write, in order of what waiting for them took.
fn found(recording: &Recording) -> Vec<(String, Found)> {
    let Ok(Some(t)) = data::Reader::open(recording) else { return Vec::new() };
    // Each line once, whatever it could be called when it was met.
    let mut lines = BTreeMap::<(u64, &str), (f64, &str, &str)>::new();
    for row in t.rows() {
        let (Some(UserCause::SharedLine), Some(line)) = (t.cause.get(row), t.line.get(row)) else { continue };
        let known = lines.entry((t.pid.get(row).unwrap_or(0), line)).or_default();
        known.0 += t.samples.get(row).unwrap_or(0.0);
        let object = t.object.get(row).unwrap_or("unknown");
        if known.1.is_empty() || known.1 == "unknown" {
            known.1 = object;
        }
        known.2 = t.writers.get(row).unwrap_or(known.2);
    }
    let mut all = BTreeMap::<(String, String), Found>::new();
    for ((_, line), (samples, object, writers)) in lines {
        // Objects on the heap have no name: the functions that write them stand for it.
        let named = !matches!(object, "heap" | "stack" | "unknown") && !object.starts_with('/');
        let key = (object.to_string(), if named { String::new() } else { writers.to_string() });
        let found = all.entry(key).or_default();
        found.samples += samples;
        found.addresses.insert(line.to_string());
        found.writers = writers.to_string();
    }
    let name = |((object, by), found)| {
        (if String::is_empty(&by) { object } else { format!("{object} written by {by}") }, found)
    };
    let mut all: Vec<(String, Found)> = all.into_iter().map(name).collect();
    all.sort_by(|a, b| b.1.samples.total_cmp(&a.1.samples));
    all
}

/// Timer samples of the program on CPU.
fn all_samples(recording: &Recording) -> f64 {
    let Ok(Some(t)) = samples::Reader::open(recording) else { return 0.0 };
    let own = t.rows().filter(|&row| t.at.get(row) == Some(CpuState::Program));
    own.filter_map(|row| t.samples.get(row)).map(|n| n as f64).sum()
}

/// Share of the program's time on CPU in which samples met it in this class.
pub(super) fn sampled(recording: &Recording, class: SampleClass) -> f64 {
    let Ok(Some(t)) = samples::Reader::open(recording) else { return 0.0 };
    let of = |row: &usize| t.at.get(*row) == Some(CpuState::Program) && t.class.get(*row) == Some(class);
    let samples: f64 = t.rows().filter(of).filter_map(|row| t.samples.get(row)).map(|n| n as f64).sum();
    samples / all_samples(recording).max(1.0)
}

/// Puts lines that threads share into a model with `per_unit` ns of CPU time a unit. Returns the recorded wait for each
/// line, ns a unit. On one CPU no thread waits for a line: there its samples give the number of writes.
pub(super) fn put(
    model: &mut Model,
    recording: &Recording,
    per_unit: f64,
    cpus: u32,
    notes: &mut Vec<String>,
) -> Vec<Option<f64>> {
    let mut wanted: Vec<Option<f64>> = model.line.iter().map(|_| None).collect();
    // What `scale --peel` has seen to grow is these lines, measured better.
    if model.line.iter().any(|l| l.name == Layer::User.name()) {
        return wanted;
    }
    let all = all_samples(recording).max(1.0);
    let lines = found(recording).into_iter().filter(|(_, f)| f.samples >= SAMPLES.max(SHARE * all));
    for (name, found) in lines.take(MOST) {
        let ns = found.samples / all * per_unit;
        let writes = ns / if cpus > 1 { super::TRANSFER_NS } else { OWNED_NS };
        notes.push(format!(
            "line {name}: {:.0} % of the CPU time is spent on it by threads that share it, in {}: each write makes the other CPUs wait",
            100.0 * found.samples / all,
            if found.writers.is_empty() { "functions not known" } else { &found.writers }
        ));
        let among = found.addresses.len() as u32;
        model.line.push(LineModel { name, writes, copies: 1, among, bounded: false });
        wanted.push((cpus > 1).then_some(ns));
        model.work_ns = (model.work_ns - ns).max(0.02 * per_unit);
    }
    wanted
}

/// Share of the CPU time in user code that could not be read, where that is most of the user code. Of less of it what was read is an
/// example.
pub(super) fn unread(recording: &Recording) -> f64 {
    let Ok(Some(t)) = user_causes::Reader::open(recording) else { return 0.0 };
    let samples = |wanted: &dyn Fn(Option<UserCause>) -> bool| -> f64 {
        t.rows().filter(|&row| wanted(t.cause.get(row))).filter_map(|row| t.samples.get(row)).sum()
    };
    let (all, unknown) = (samples(&|_| true), samples(&|cause| cause == Some(UserCause::Unknown)));
    if 2.0 * unknown <= all { 0.0 } else { (unknown / all_samples(recording).max(1.0)).min(1.0) }
}

/// Share of the CPU time in atomic operations on lines that are not known to be shared, as far as these would take turns were they one
/// line.
pub(super) fn unseen_atomics(recording: &Recording) -> f64 {
    let Ok(Some(t)) = user_causes::Reader::open(recording) else { return 0.0 };
    let atomic = t.rows().filter(|&row| t.cause.get(row) == Some(UserCause::Atomic));
    let samples: f64 = atomic.filter_map(|row| t.samples.get(row)).sum();
    (DEARER * samples / all_samples(recording).max(1.0)).min(1.0)
}
