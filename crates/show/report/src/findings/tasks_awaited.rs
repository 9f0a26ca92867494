//! Tasks of a pool of threads that wait for other tasks, which the same pool would have to run: while all its threads wait, none of
//! these is begun.

use std::collections::{HashMap, HashSet};

use ncpu_schema::{Layer, threads};

use super::claim::{Claim, Kind, Source};
use super::libraries::begins_with;
use super::names::short;
use super::numbers::grouped;
use super::places::{Most, Place};
use super::view::View;
use super::waiting::{group, idle};
use crate::causes::When;
use crate::onion::evidence::length;

/// The part of the time of a pool's threads that they wait in tasks, from which the pool is full of these; and that they wait for work,
/// below which there is always some.
const WAIT: f64 = 0.6;
const WITHOUT: f64 = 0.1;

/// The part of an observation that a pool's threads have waited in tasks.
const SEEN: f64 = 0.3;

/// The part of such waits for which others of the process run tasks from which it is not known whose tasks are awaited.
const OTHERS: f64 = 0.1;

/// The part of the capacity that idles, or that other programs have.
const IDLE: f64 = 0.1;

/// A library's pools: functions that run a task, have a thread wait for one, and wait within a task for another's result.
struct Pools {
    name: &'static str,
    runs: &'static [&'static str],
    without: &'static [&'static str],
    awaits: &'static [&'static str],
}

const POOLS: [Pools; 2] = [
    Pools {
        name: "Java's ThreadPoolExecutor",
        runs: &["java.util.concurrent.FutureTask.run", "java.util.concurrent.ThreadPoolExecutor.runWorker"],
        without: &["java.util.concurrent.ThreadPoolExecutor.getTask"],
        awaits: &[
            "java.util.concurrent.FutureTask.get",
            "java.util.concurrent.FutureTask.awaitDone",
            "java.util.concurrent.AbstractExecutorService.invoke",
            "java.util.concurrent.AbstractExecutorService.doInvokeAny",
        ],
    },
    Pools {
        name: "Python's ThreadPoolExecutor",
        runs: &["_WorkItem.run (thread.py:", "run (thread.py:"],
        without: &["_queue_SimpleQueue_get"],
        awaits: &["Future.result (_base.py:", "result (_base.py:"],
    },
];

/// The time of a pool's threads.
#[derive(Default)]
struct Time {
    waiting: f64,
    waits: f64,
    without: f64,
    /// Running tasks or waiting in them for something else.
    others: f64,
    places: Most,
    functions: Most,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    if view.idle() + view.seconds(Layer::Others) < IDLE * view.capacity() {
        return Vec::new();
    }
    POOLS.iter().flat_map(|pools| of_library(view, pools)).collect()
}

fn of_library(view: &View<'_>, pools: &Pools) -> Vec<Claim> {
    let has = |user: &[&str], starts: &[&str]| user.iter().any(|frame| begins_with(frame, starts));
    let mut of: HashMap<(&str, &str), Time> = HashMap::new();
    for s in view.slept.iter() {
        let time = || (s.process, group(s.thread));
        if has(&s.user, pools.without) {
            of.entry(time()).or_default().without += s.seconds;
        } else if has(&s.user, pools.runs) {
            let time = of.entry(time()).or_default();
            let awaits = |frame: &str| begins_with(frame, pools.awaits);
            if let Some(function) = s.user.iter().find(|frame| awaits(frame)) {
                time.waiting += s.seconds;
                time.waits += s.count;
                time.places.add(&Place::beyond(&s.user, awaits).words(), s.seconds);
                time.functions.add(&short(function), s.seconds);
            } else {
                time.others += s.seconds;
            }
        }
    }
    for sample in view.samples.iter().filter(|sample| has(&sample.user, pools.runs)) {
        of.entry((sample.process, group(sample.thread))).or_default().others += sample.seconds;
    }
    let mut found = Vec::new();
    for ((process, threads), time) in &of {
        let size = size(view, process, threads) as f64;
        let elsewhere: f64 = of
            .iter()
            .filter(|((other, name), _)| other == process && name != threads)
            .map(|(_, time)| time.others + time.waiting)
            .sum();
        // They may have begun late.
        let whole = time.waiting + time.without + time.others;
        let full = time.waiting >= WAIT * whole && time.without < WITHOUT * whole;
        let seen = time.waiting >= SEEN * size * view.elapsed();
        if size >= 2.0 && full && seen && elsewhere < OTHERS * time.waiting {
            found.push(claim(view, pools, process, threads, time, size));
        }
    }
    found
}

/// The threads of a process whose names are alike but for their numbers.
fn size(view: &View<'_>, process: &str, name: &str) -> usize {
    let Ok(Some(t)) = threads::Reader::open(view.context.recording) else { return 0 };
    let of = t.rows().filter(|&row| {
        t.process.get(row) == Some(process) && t.thread.get(row).is_some_and(|thread| group(thread) == name)
    });
    of.filter_map(|row| t.tid.get(row)).collect::<HashSet<_>>().len()
}

fn claim(view: &View<'_>, pools: &Pools, process: &str, threads: &str, time: &Time, size: f64) -> Claim {
    let waiting = time.waiting / view.elapsed();
    let (words, place) = time.places.largest().map_or((String::new(), process.to_string()), |(words, _)| {
        (words.to_string(), words.split(" ← ").next().unwrap_or(process).to_string())
    });
    let function = time.functions.largest().map_or("", |(function, _)| function);
    let each = length(time.waiting / time.waits.max(1.0));
    let mut claim = Claim::new(Kind::Pool, [When::TasksAwaited], pools.name)
        .with("process", process)
        .with("pool", pools.name)
        .with("place", place)
        .with("function", function)
        .with("waiting", format!("{waiting:.1}"))
        .with("size", format!("{size}"))
        .with("each", each.clone());
    claim.key = format!("tasks awaited {process} {threads}");
    claim.waited = Some(time.waiting);
    claim.lives = size * view.elapsed();
    let part = (time.waiting / (size * view.elapsed())).min(1.0);
    idle(view, &mut claim, part, "CPUs idle meanwhile");
    for layer in [Layer::UserLock, Layer::LockOrSerial] {
        claim.ask(Source::Layer(layer), part * view.beside_stacks(layer), "CPUs idle meanwhile");
    }
    claim.line("waits in", words);
    claim.line("waits", format!("{} of {each} each, by threads {threads}", grouped(time.waits)));
    claim
}
