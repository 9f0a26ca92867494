//! Tasks of a pool of threads that wait for other tasks, which the same pool would have to run: while all its threads wait, none of
//! these is begun. And threads that wait for each task of a pool before they submit the next.

use std::collections::{HashMap, HashSet};

use ncpu_schema::{Layer, threads};

use super::asleep::idle;
use super::claim::{Claim, Kind, Source};
use super::libraries::begins_with;
use super::names::short;
use super::numbers::{grouped, rate_words};
use super::places::{Most, Place};
use super::view::View;
use super::waiting::group;
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
    /// Whether its threads take turns for a lock of their runtime: several that compute do no more than one.
    takes_turns: bool,
    runs: &'static [&'static str],
    without: &'static [&'static str],
    awaits: &'static [&'static str],
}

const POOLS: [Pools; 3] = [
    Pools {
        name: "Java's ThreadPoolExecutor",
        takes_turns: false,
        runs: &[
            "java.util.concurrent.FutureTask.run",
            "java.util.concurrent.ThreadPoolExecutor.runWorker",
            "java.util.concurrent.CompletableFuture$AsyncSupply.run",
            "java.util.concurrent.CompletableFuture$AsyncRun.run",
        ],
        without: &[
            "java.util.concurrent.ThreadPoolExecutor.getTask",
            "java.util.concurrent.ForkJoinPool.awaitWork",
        ],
        awaits: &[
            "java.util.concurrent.FutureTask.get",
            "java.util.concurrent.FutureTask.awaitDone",
            "java.util.concurrent.AbstractExecutorService.invoke",
            "java.util.concurrent.AbstractExecutorService.doInvokeAny",
            "java.util.concurrent.CompletableFuture.get",
            "java.util.concurrent.CompletableFuture.join",
            "java.util.concurrent.CompletableFuture.waitingGet",
        ],
    },
    Pools {
        name: "Python's ThreadPoolExecutor",
        takes_turns: true,
        runs: &["_WorkItem.run (thread.py:", "run (thread.py:"],
        without: &["_queue_SimpleQueue_get"],
        awaits: &["Future.result (_base.py:", "result (_base.py:"],
    },
    Pools {
        name: "multiprocessing's Pool",
        takes_turns: false,
        runs: &["worker (pool.py:"],
        without: &["SimpleQueue.get (queues.py:", "get (queues.py:"],
        awaits: &["ApplyResult.get (pool.py:", "ApplyResult.wait (pool.py:"],
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
    POOLS
        .iter()
        .flat_map(|pools| of_library(view, pools).into_iter().chain(one_at_a_time(view, pools)))
        .collect()
}

/// How often a second results are awaited from which it is a pattern, and the parts of the tasks for which the pool's threads wait for
/// work and of the awaiting that they work.
const OFTEN: f64 = 20.0;
const ASKS: f64 = 0.3;
const ONE: std::ops::Range<f64> = 0.5..1.2;

/// The part of a pool's time in tasks that these wait, where computing ones take turns.
const MOSTLY: f64 = 0.6;

/// One thread outside of a pool that waits for each task before it submits the next.
fn one_at_a_time(view: &View<'_>, pools: &Pools) -> Option<Claim> {
    let has = |user: &[&str], starts: &[&str]| user.iter().any(|frame| begins_with(frame, starts));
    let awaits = |frame: &str| begins_with(frame, pools.awaits);
    let (mut seconds, mut waits, mut works, mut sleeps, mut asks) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let (mut places, mut functions, mut processes) = (Most::default(), Most::default(), Most::default());
    for s in view.slept.iter().filter(|s| s.wait != "run queue") {
        // It may wait for the lock of its runtime wherever it is.
        if s.user.contains(&"take_gil") {
            continue;
        }
        // A thread of the pool without work is below the function that runs tasks, too.
        if has(&s.user, pools.without) {
            asks += s.count;
        } else if has(&s.user, pools.runs) {
            works += s.seconds;
            sleeps += s.seconds;
        } else if let Some(function) = s.user.iter().find(|frame| awaits(frame)) {
            seconds += s.seconds;
            waits += s.count;
            places.add(&Place::beyond(&s.user, awaits).words(), s.seconds);
            functions.add(&short(function), s.seconds);
            processes.add(s.process, s.seconds);
        }
    }
    let computes = view.samples.iter().filter(|s| has(&s.user, pools.runs) && !has(&s.user, pools.without));
    works += computes.map(|s| s.seconds).sum::<f64>();
    let one = (WAIT * view.elapsed()..1.1 * view.elapsed()).contains(&seconds)
        && waits >= OFTEN * view.elapsed()
        && asks >= ASKS * waits
        && ONE.contains(&(works / seconds));
    if !one || pools.takes_turns && sleeps < MOSTLY * works {
        return None;
    }
    let process = processes.top()?.0;
    let (words, place) = places.place(&process);
    let each = length(seconds / waits);
    let mut claim = Claim::new(Kind::Pool, [When::OneTask], pools.name)
        .with("process", process.clone())
        .with("pool", pools.name)
        .with("place", place)
        .with("function", functions.largest().map_or("", |(function, _)| function))
        .with("rate", rate_words(waits / view.elapsed()))
        .with("each", each.clone());
    claim.key = format!("one task {process}");
    claim.stands_still(seconds, view.elapsed());
    idle(view, &mut claim, seconds / view.elapsed(), "CPUs idle meanwhile");
    for layer in [Layer::UserLock, Layer::LockOrSerial] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer), "CPUs idle meanwhile");
    }
    claim.line("waits in", words);
    claim.line("waits", format!("{} of {each} each", grouped(waits)));
    claim.line(
        "the pool",
        format!("works {works:.2} thread-s meanwhile, and waits for work {} times", grouped(asks)),
    );
    Some(claim)
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
