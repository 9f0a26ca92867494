//! Work that is given to threads of a kind by a rule, most of it to one.

use std::collections::BTreeMap;

use ncpu_schema::{Layer, Microstate, threads, user_locks};

use super::claim::{Claim, Kind, Source};
use super::libraries::begins_thread;
use super::names::short;
use super::places::{Most, Place, begins};
use super::view::{Sampled, View, on_cpu};
use super::waiting::group;
use crate::causes::When;
use crate::locks::is_held_lock;

/// Threads of a kind, at least.
const OF_KIND: usize = 3;

/// The part of the work of a kind that one thread has, and of the observation for which it runs or stands for a CPU.
const MOST: f64 = 0.7;
const RESTLESS: f64 = 0.85;

/// The part of threads' work below other functions than the one that most of it is below from which they are not of one kind.
const ELSEWHERE: f64 = 0.1;

/// The part of the observation that a thread waits for that one: it has more to give.
const AWAITED: f64 = 0.3;

/// A thread of a kind.
#[derive(Default)]
struct Thread<'a> {
    name: &'a str,
    ran: f64,
    queued: f64,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let Ok(Some(t)) = threads::Reader::open(view.context.recording) else { return Vec::new() };
    let mut kinds: BTreeMap<(&str, u64, &str), BTreeMap<u64, Thread<'_>>> = BTreeMap::new();
    for row in t.rows() {
        let (Some(process), Some(name), Some(tid)) = (t.process.get(row), t.thread.get(row), t.tid.get(row))
        else {
            continue;
        };
        // The first thread gives the work.
        let pid = t.pid.get(row).unwrap_or(0);
        if tid == pid {
            continue;
        }
        let thread = kinds.entry((process, pid, group(name))).or_default().entry(tid).or_default();
        thread.name = name;
        thread.ran += on_cpu(&t, row).unwrap_or(0.0);
        thread.queued += t.micro.get(row, Microstate::Lat).unwrap_or(0.0);
    }
    let of_kind = kinds.iter().filter(|(_, of)| of.len() >= OF_KIND);
    of_kind.filter_map(|((process, ..), of)| claim(view, process, of)).collect()
}

fn claim(view: &View<'_>, process: &str, of: &BTreeMap<u64, Thread<'_>>) -> Option<Claim> {
    let (tid, most) = of.iter().max_by(|a, b| a.1.ran.total_cmp(&b.1.ran))?;
    let all: f64 = of.values().map(|thread| thread.ran).sum();
    if most.ran < MOST * all || most.ran + most.queued < RESTLESS * view.elapsed() {
        return None;
    }
    if differ(view, process, most.name) {
        return None;
    }
    let (waited, waiter) = awaited(view, process, *tid)?;
    if waited < AWAITED * view.elapsed() {
        return None;
    }
    let mut places = Most::default();
    for sample in view.samples.iter().filter(|s| s.process == process && s.thread == most.name) {
        places.add(&Place::of_frames(&sample.user, "").words(), sample.seconds);
    }
    let (words, place) = places.place(process);
    let mut claim = Claim::new(Kind::SerialCode, [When::SkewedWork], process)
        .with("process", process)
        .with("thread", most.name)
        .with("threads", of.len().to_string())
        .with("part", format!("{:.0} %", 100.0 * most.ran / all.max(f64::MIN_POSITIVE)))
        .with("place", place)
        .with("waiter", waiter);
    claim.key = format!("skewed work {process}");
    claim.waited = Some(waited.min(view.elapsed()));
    for layer in [Layer::Serial, Layer::Idle] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer), "CPUs idle while it works");
    }
    claim.line("works in", words);
    let rest = (all - most.ran) / (of.len() - 1) as f64;
    claim.line("others", format!("{rest:.2} CPU-s each, {:.2} of this one", most.ran));
    Some(claim)
}

/// Whether threads of a name began with different functions, for a part of their work that matters: these are of different kinds.
/// A thread of Go runs goroutines of all kinds.
fn differ(view: &View<'_>, process: &str, name: &str) -> bool {
    let mut roots = Most::default();
    for sample in view.samples.iter().filter(|s| s.process == process && s.thread == name) {
        let root = sample.user.iter().rev().find(|f| !begins(f) && !begins_thread(f) && !f.starts_with('['));
        roots.add(root.copied().unwrap_or(""), sample.seconds);
    }
    let elsewhere = roots.total() - roots.largest().map_or(0.0, |(_, seconds)| seconds);
    roots.total() > 0.0 && elsewhere >= ELSEWHERE * roots.total() || runs_goroutines(&view.samples, process)
}

/// Whether a process is a program of Go.
fn runs_goroutines(samples: &[Sampled<'_>], process: &str) -> bool {
    const OWN: [&str; 3] = ["runtime.goexit", "runtime.mcall", "runtime.mstart"];
    let mut frames = samples.iter().filter(|s| s.process == process).flat_map(|s| &s.user);
    frames.any(|frame| OWN.iter().any(|own| frame.starts_with(own)))
}

/// Thread-seconds for which threads wait, for no lock, until this thread wakes them, and where most of it is.
fn awaited(view: &View<'_>, process: &str, tid: u64) -> Option<(f64, String)> {
    let t = user_locks::Reader::open(view.context.recording).ok()??;
    let waker = format!("/{tid}");
    let (mut sum, mut places) = (0.0, Most::default());
    for row in t.rows().filter(|&row| t.process.get(row) == Some(process)) {
        let lock = t.ty.get(row).is_none_or(is_held_lock);
        if lock || !t.holder.get(row).is_some_and(|holder| holder.ends_with(&waker)) {
            continue;
        }
        let block = t.block.get(row).unwrap_or(0.0);
        let frames: Vec<&str> = t.stack.get(row).unwrap_or("").split(';').collect();
        let outside = Place::outside(&frames, super::libraries::waits);
        places.add(&short(outside.function()), block);
        sum += block;
    }
    Some((sum, places.top()?.0))
}

#[cfg(test)]
mod tests {
    use ncpu_schema::SampleClass;

    use super::{Sampled, runs_goroutines};

    #[test]
    fn threads_of_go_are_no_workers() {
        let sample = |process, user: &[&'static str]| Sampled {
            class: SampleClass::User,
            process,
            thread: process,
            user: user.to_vec(),
            kernel: Vec::new(),
            samples: 1,
            seconds: 0.01,
            lock: None,
        };
        let samples = [
            sample("hits", &["main.count", "main.main.func1", "runtime.goexit.abi0"]),
            sample("shards", &["score", "worker", "start_thread"]),
        ];
        assert!(runs_goroutines(&samples, "hits") && !runs_goroutines(&samples, "shards"));
    }
}
