//! Locks of the program, and conditions by which threads hand work to one another: all that a lock costs, in whatever layer.
//!
//! A wait for a user lock costs in many layers: the calls that sleep and wake, the kernel's lock for the bucket of the futex,
//! the switches, the interrupts by which another CPU learns of the thread, its time on a run queue, the CPUs that idle
//! meanwhile, and the lock's own instructions. Calls and instructions have stacks, which name the function that takes the lock;
//! the others are counted for a process, and a lock has the part of them that its waits are of all switches.

use std::collections::{HashMap, HashSet};

use ncpu_record::Recording;
use ncpu_schema::{
    Error, IdleReason, InterruptKind, Layer, Runnable, SampleClass, UserCause, lock_callers, locks,
    user_causes, user_locks,
};

use super::claim::{Claim, Kind, Source};
use super::hot::passes;
use super::libraries::{begins_with, c_name, is_collectors_worker, is_lock_function, is_thread_start, waits};
use super::names::short;
use super::numbers::grouped;
use super::places::{Most, Place, is_library, is_line};
use super::small_tasks::hands_out;
use super::view::{Sampled, View, Woken};
use crate::causes::{self, When};
use crate::locks::is_held_lock;
use crate::onion::Onion;
use crate::onion::evidence::{Charged, charged, length};

/// Patterns of locks of which a process has one.
const INTERPRETERS: [&str; 2] = ["GIL", "GVL"];

/// Hand-offs a second below which threads may as well hand work to one another.
const FINE: f64 = 1000.0;

/// The part of what the program runs from which hand-offs cost more than queues of work do.
const WORTH: f64 = 0.05;

/// The mean wait of a hand-off that is fine, seconds.
const BRIEF: f64 = 2e-3;

/// A thread that is busy for this part of the time is the bottleneck of the threads that wait for it.
const BOTTLENECK: f64 = 0.85;

/// The relative error of seconds that are given by the part which waits are of all switches.
const DOUBT: f64 = 0.25;

/// A lock, or the locks of a kind, by where it is waited for.
#[derive(Debug)]
struct Waited<'a> {
    process: &'a str,
    /// The function that waits; `None` where it is not known.
    place: Option<&'a str>,
    held: bool,
    pattern: Option<&'a str>,
    advice: Option<&'a str>,
    /// Each lock's name with its thread-seconds.
    names: Vec<(&'a str, f64)>,
    waits: f64,
    block: f64,
    spin: f64,
    longest: f64,
    /// Seconds that its waiters then stood on run queues, and until idle CPUs had woken for them; `None` where that was not
    /// measured.
    woken: Option<(f64, f64)>,
    /// Stacks of waiters, innermost first, with their waits.
    stacks: Vec<(Vec<&'a str>, f64)>,
    wakers: Vec<&'a str>,
    /// Its rows of table `user_locks`.
    rows: Vec<usize>,
}

/// A lock of the program as causes name it, for predictions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedLock {
    /// Its name.
    pub name: String,
    /// Its rows of table `user_locks`: one lock at several addresses, in several processes, by readers and writers.
    pub rows: Vec<usize>,
    /// CPU-seconds that waiting for it cost, in all layers together.
    pub lost: f64,
    /// CPU-seconds of code in which it may be held: that of the function that takes it, with what it calls.
    pub inside: f64,
    /// CPU-seconds of the instructions that take it and give it back: in lock functions called there, and atomic ones.
    pub entering: f64,
}

/// The locks of a recording's program that somebody holds while others wait, longest waited for first.
///
/// # Errors
/// A table is not what the schema says.
pub fn named_locks(recording: &Recording) -> Result<Vec<NamedLock>, Error> {
    let (context, layers) = Onion::context(recording, causes::current())?;
    let view = View::new(context, layers)?;
    let all = together(&view, waited(&view));
    let parts = parts(&view, &all);
    let mut order: Vec<usize> = (0..all.len()).filter(|&at| all[at].held && all[at].waits > 0.0).collect();
    let time = |lock: &Waited<'_>| lock.block + lock.spin;
    order.sort_by(|a, b| time(&all[*b]).total_cmp(&time(&all[*a])));
    let mut out: Vec<NamedLock> = Vec::new();
    for at in order {
        let lost = claim(&view, &all, at, &parts).asked();
        let (inside, entering) = (inside(&view, &all[at]), entering(&view, &all[at]));
        let (name, rows) = (all[at].name(), all[at].rows.clone());
        // Processes of a program, and readers and writers, wait for one lock.
        match out.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                known.rows.extend(rows);
                known.lost += lost;
                known.inside = known.inside.max(inside);
                known.entering = known.entering.max(entering);
            }
            None => out.push(NamedLock { name, rows, lost, inside, entering }),
        }
    }
    Ok(out)
}

/// CPU-seconds of the instructions that take a lock and give it back, in the program's code.
fn entering(view: &View<'_>, lock: &Waited<'_>) -> f64 {
    let takers = lock.takers();
    let called = |sample: &&Sampled<'_>| {
        sample.process == lock.process
            && sample.kernel.is_empty()
            && site(sample).is_some_and(|(site, within)| within && takers.contains(&site))
    };
    let functions: f64 = view.samples.iter().filter(called).map(|sample| sample.seconds).sum();
    let Ok(Some(t)) = user_causes::Reader::open(view.context.recording) else { return functions };
    let inlined = t.rows().filter(|&row| {
        t.instruction.get(row) == Some("atomic") && t.function.get(row).is_some_and(|f| takers.contains(&f))
    });
    let samples: f64 = inlined.filter_map(|row| t.samples.get(row)).sum();
    let all: u64 = view.samples.iter().map(|sample| sample.samples).sum();
    let seconds: f64 = view.samples.iter().map(|sample| sample.seconds).sum();
    functions + samples * seconds / (all.max(1) as f64)
}

/// The most functions between one that only takes a lock and the one that holds it: `__enter__`, a guard's constructor.
const WRAPPERS: usize = 3;

/// CPU-seconds of code in which a lock may be held. A function in which nothing is seen but the taking of the lock only wraps
/// that: its caller holds the lock.
fn inside(view: &View<'_>, lock: &Waited<'_>) -> f64 {
    let mut takers = lock.takers();
    for _ in 0..WRAPPERS {
        let seconds = inside_of(view, lock.process, &takers);
        if seconds > 0.0 {
            return seconds;
        }
        let callers = lock.stacks.iter().filter_map(|(stack, _)| {
            let last = stack.iter().rposition(|f| takers.contains(f))?;
            stack.get(last + 1).copied()
        });
        takers = callers.filter(|f| !is_start(f)).collect();
    }
    0.0
}

/// CPU-seconds of code of a process in some functions and what they call, without that of locks.
fn inside_of(view: &View<'_>, process: &str, functions: &[&str]) -> f64 {
    let of = |sample: &&Sampled<'_>| {
        sample.process == process
            && sample.user.iter().any(|f| functions.contains(f))
            && !in_futex(sample)
            && !sample.user.first().is_some_and(|leaf| is_lock_function(leaf))
    };
    view.samples.iter().filter(of).map(|sample| sample.seconds).sum()
}

impl<'a> Waited<'a> {
    /// The stack that waited longest.
    fn stack(&self) -> &[&'a str] {
        self.stacks.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(&[], |(stack, _)| stack)
    }

    /// Its name: a symbol or path, else what it is to its users, else where it is waited for.
    fn name(&self) -> String {
        let (name, most) = self.names.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied().unwrap_or(("", 0.0));
        let one = most > 0.5 * self.names.iter().map(|(_, s)| s).sum::<f64>() || self.names.len() == 1;
        let symbol = one && !name.is_empty() && !name.starts_with("0x");
        // Threads of Go wait for a word within the mutex.
        let name = match self.pattern {
            Some("sync.Mutex" | "sync.RWMutex") => name.split("+0x").next().unwrap_or(name),
            _ => name,
        };
        let place = self.shown().map(short);
        let pattern = self.pattern.filter(|p| !p.starts_with("pthread"));
        if let Some(whole) = pattern.filter(|pattern| INTERPRETERS.contains(pattern)) {
            return whole.to_string();
        }
        // A variable of a library is known by its function where every file has one of its name.
        let (bare, file) =
            name.split_once(" (").map_or((name, ""), |(bare, file)| (bare, file.trim_end_matches(')')));
        let file = if file.starts_with("libc.so") { "glibc" } else { file };
        match (symbol, pattern, place) {
            (true, Some(pattern), Some(place)) if pattern == name => format!("{pattern} in {place}"),
            (true, _, Some(place)) if matches!(bare, "lock" | "mutex" | "m" | "mu") && !file.is_empty() => {
                format!("lock of {place} ({file})")
            }
            (true, ..) if !file.is_empty() => format!("{bare} ({file})"),
            (true, ..) => name.to_string(),
            (false, Some(pattern), Some(place)) if !place.contains(pattern) => {
                format!("{pattern} in {place}")
            }
            (false, Some(pattern), _) => pattern.to_string(),
            (false, None, Some(place)) => {
                format!("{} in {place}", if self.held { "mutex" } else { "condition" })
            }
            (false, None, None) => name.to_string(),
        }
    }

    /// The place as users of a runtime know it: what called the runtime's own functions.
    fn shown(&self) -> Option<&'a str> {
        let place = self.place?;
        let stack = self.stack();
        let from = stack.iter().position(|f| *f == place).unwrap_or(stack.len());
        let outside = stack[from..].iter().find(|f| !is_of_runtime(f));
        Some(outside.filter(|f| is_of_runtime(place) && !is_start(f)).copied().unwrap_or(place))
    }

    /// The functions that take it.
    fn takers(&self) -> Vec<&'a str> {
        let called = |stack: &[&'a str]| stack.iter().find(|f| !is_lock_function(f)).copied();
        let known = self.place.into_iter().chain(self.shown());
        let known = known.chain(self.stacks.iter().filter_map(|(stack, _)| called(stack)));
        // All code of a program without symbols has one name.
        known.filter(|place| !place.starts_with("[unknown")).collect()
    }

    fn is_file(&self) -> bool {
        self.names.iter().any(|(name, _)| name.starts_with('/'))
    }

    /// The callers of the place, outermost first; empty if the name of the lock has them.
    fn callers(&self) -> String {
        let stack = self.stack();
        let from = self.shown().and_then(|place| stack.iter().position(|f| *f == place)).unwrap_or(0);
        let frames: Vec<String> = stack[from.min(stack.len())..]
            .iter()
            .filter(|f| !is_start(f))
            .take(3)
            .map(|f| short(f))
            .collect();
        let callers = match (frames.is_empty(), self.shown()) {
            (true, Some(place)) => short(place),
            _ => frames.into_iter().rev().collect::<Vec<_>>().join(" → "),
        };
        if self.name().ends_with(&format!(" in {callers}")) { String::new() } else { callers }
    }
}

/// The part of the wake-ups that one place of the program makes to be what gives the work.
const GIVES: f64 = 0.5;

/// Where the program wakes threads that wait in a library's functions alone, as those of a pool: its callers, and the function.
fn given_in(view: &View<'_>, lock: &Waited<'_>) -> Option<(String, String)> {
    let library = |frame: &str| {
        is_library(frame) || passes(frame) || hands_out(frame) || is_lock_function(frame) || waits(frame)
    };
    let script = lock.stack().iter().any(|frame| is_line(frame));
    let own = |frame: &&&str| (!script || is_line(frame)) && !library(frame);
    if lock.stack().is_empty() || lock.stack().iter().any(|frame| own(&frame)) {
        return None;
    }
    let wakes = |s: &&Sampled<'_>| s.process == lock.process && s.kernel.contains(&"futex_wake");
    let (mut places, mut all) = (Most::default(), 0.0);
    for sample in view.samples.iter().filter(wakes) {
        all += sample.seconds;
        let has_own = sample.user.iter().any(|frame| own(&frame));
        if has_own {
            places.add(&Place::outside(&sample.user, library).words(), sample.seconds);
        }
    }
    let (words, seconds) = places.largest().map(|(words, seconds)| (words.to_string(), seconds))?;
    let function = words.split(" ← ").next().filter(|f| !f.is_empty())?.to_string();
    (seconds >= GIVES * all).then_some((words, function))
}

/// Whether threads and programs begin with this function.
pub(super) fn is_start(name: &str) -> bool {
    const STARTS: [&str; 9] = [
        "runtime.goexit",
        "start_thread",
        "_start",
        "__libc_start",
        "clone",
        "thread_start",
        "std::thread::_State_impl",
        "std::sys::backtrace::__rust_begin",
        "core::ops::function::FnOnce",
    ];
    let bare = name.trim_start_matches("__GI_");
    bare.trim_start_matches('_') == "clone3"
        || STARTS.iter().any(|start| bare.trim_start_matches('_').starts_with(start.trim_start_matches('_')))
        || name.starts_with("[unknown")
}

/// Whether a function is of a runtime, between the code that takes a lock and the lock.
fn is_of_runtime(name: &str) -> bool {
    const BEGINNINGS: [&str; 14] = [
        "rayon_core::",
        "rayon::",
        "std::thread::local::",
        "SharedRuntime::",
        "InterpreterRuntime::",
        "ObjectMonitor::",
        "ObjectSynchronizer::",
        "JVM_Monitor",
        "[_",
        "[anon]",
        "[Interpreter]",
        "__vfprintf_internal",
        "__vfwprintf_internal",
        "_IO_",
    ];
    begins_with(name, &BEGINNINGS)
}

/// Where a sampled stack is in the functions of a lock: the function that called them, and whether it was in them at all.
fn site<'a>(sample: &Sampled<'a>) -> Option<(&'a str, bool)> {
    let within = sample.user.iter().take_while(|f| is_lock_function(f)).count();
    Some((sample.user.get(within)?, within > 0))
}

fn in_futex(sample: &Sampled<'_>) -> bool {
    sample.in_kernel("do_futex")
        || sample.in_kernel("__x64_sys_futex")
        || sample.in_kernel("__arm64_sys_futex")
}

/// All locks and conditions that threads wait for, by where.
fn waited<'a>(view: &View<'a>) -> Vec<Waited<'a>> {
    let Ok(Some(t)) = user_locks::Reader::open(view.context.recording) else { return Vec::new() };
    let mut all: Vec<Waited<'a>> = Vec::new();
    let mut at: HashMap<_, usize> = HashMap::new();
    for row in t.rows() {
        let (Some(process), Some(ty)) = (t.process.get(row), t.ty.get(row)) else { continue };
        if ty == "unknown" {
            continue;
        }
        // Words of a condition may be taken for a lock by who signals it.
        let condition = t.stack.get(row).is_some_and(|stack| {
            stack.split(';').next().is_some_and(|leaf| c_name(leaf).starts_with("pthread_cond_"))
        });
        let (held, lock) = (is_held_lock(ty) && !condition, t.lock.get(row).unwrap_or(""));
        // Of code without names the file is known.
        let is_place = |caller: &&str| !caller.starts_with('[') || caller.starts_with("[unknown ");
        let place = t.caller.get(row).filter(is_place);
        let pattern = t.pattern.get(row);
        // A static lock is one wherever it is waited for, and so are a file and the lock of a process's interpreter.
        let one = match pattern.filter(|pattern| INTERPRETERS.contains(pattern)) {
            Some(pattern) => pattern,
            None if held && !lock.is_empty() && !lock.starts_with("0x") && pattern != Some(lock) => lock,
            None => "",
        };
        let key = (process, if one.is_empty() { place } else { None }, held, pattern, one);
        let block = t.block.get(row).unwrap_or(0.0);
        let waits = t.count.get(row).unwrap_or(0) as f64;
        let index = *at.entry(key).or_insert_with(|| {
            all.push(Waited {
                process,
                place,
                held,
                pattern,
                advice: t.advice.get(row),
                names: Vec::new(),
                waits: 0.0,
                block: 0.0,
                spin: 0.0,
                longest: 0.0,
                woken: None,
                stacks: Vec::new(),
                wakers: Vec::new(),
                rows: Vec::new(),
            });
            all.len() - 1
        });
        let lock_of = &mut all[index];
        lock_of.rows.push(row);
        lock_of.waits += waits;
        lock_of.block += block;
        lock_of.spin += t.spin.get(row).unwrap_or(0.0);
        lock_of.longest = lock_of.longest.max(t.max.get(row).unwrap_or(0.0) / 1e6);
        if let (Some(queued), Some(waking)) = (t.queued.get(row), t.waking.get(row)) {
            let sum = lock_of.woken.get_or_insert((0.0, 0.0));
            *sum = (sum.0 + queued, sum.1 + waking);
        }
        match lock_of.names.iter_mut().find(|(name, _)| *name == lock) {
            Some((_, sum)) => *sum += block,
            None => lock_of.names.push((lock, block)),
        }
        if let Some(waker) = t.holder.get(row).filter(|waker| !lock_of.wakers.contains(waker)) {
            lock_of.wakers.push(waker);
        }
        let stack: Vec<&str> = t.stack.get(row).unwrap_or("").split(';').filter(|f| !f.is_empty()).collect();
        match lock_of.stacks.iter_mut().find(|(known, _)| *known == stack) {
            Some((_, sum)) => *sum += block,
            None => lock_of.stacks.push((stack, block)),
        }
        // The place with most of the wait stands for it.
        if !one.is_empty() {
            let longest = lock_of.stack().to_vec();
            if let Some(place) = place.filter(|place| longest.contains(place)) {
                lock_of.place = Some(place);
            }
        }
    }
    all
}

/// Locks that threads wait for and other threads hold.
#[derive(Default)]
pub(super) struct Held<'a> {
    /// Processes and names of those with more than a few waits: symbols, or addresses.
    pub words: Vec<(&'a str, &'a str)>,
    /// Processes and functions that take any, with the thread-seconds waited for them.
    pub takers: HashMap<(&'a str, &'a str), f64>,
}

/// The locks that are held.
pub(super) fn held<'a>(view: &View<'a>) -> Held<'a> {
    let mut held = Held::default();
    for lock in waited(view).into_iter().filter(|lock| lock.held) {
        if is_contended(view, &lock) {
            held.words.extend(lock.names.iter().map(|(name, _)| (lock.process, *name)));
        }
        let takers: HashSet<&str> = lock.takers().into_iter().filter(|f| !f.starts_with('[')).collect();
        for taker in takers {
            *held.takers.entry((lock.process, taker)).or_default() += lock.block + lock.spin;
        }
    }
    held
}

/// Whether most of the waiting is of threads that were woken by a condition and take its mutex again.
fn is_taken_again(lock: &Waited<'_>) -> bool {
    lock.held && taken_again(lock) > 0.5 * lock.block
}

/// Thread-seconds of such waiting.
fn taken_again(lock: &Waited<'_>) -> f64 {
    let again = |stack: &[&str]| {
        stack.iter().any(|f| {
            ["pthread_mutex_cond_lock", "pthread_cond_"].iter().any(|start| c_name(f).starts_with(start))
        })
    };
    lock.stacks.iter().filter(|(stack, _)| again(stack)).map(|(_, s)| s).sum()
}

/// Threads that wait for one condition from which waking them all is a herd, for each CPU and at all; and waits a second.
const HERD_OF_CPU: f64 = 2.0;
const HERD: f64 = 8.0;
const HERD_WAKES: f64 = 2000.0;

/// Samples in calls that wake threads from which it is known what most of them wake.
const WAKES: u64 = 3;

/// Whether most calls that wake threads for a condition wake all that wait, of which there are many more than can run.
fn wakes_all(view: &View<'_>, lock: &Waited<'_>) -> bool {
    let waiters = view.waiters(&lock.rows);
    if lock.held
        || waiters < HERD
        || waiters <= HERD_OF_CPU * view.context.cpus as f64
        || lock.waits < HERD_WAKES * view.elapsed()
    {
        return false;
    }
    let (mut all, mut one) = (0, 0);
    // Where a call says which condition it is for, others do not count.
    let is_of = |sample: &&Sampled<'_>| {
        sample.process == lock.process
            && sample.lock.is_none_or(|name| lock.names.iter().any(|(of, _)| *of == name))
    };
    for sample in view.samples.iter().filter(is_of) {
        if sample.user.iter().take(4).any(|frame| wakes(frame, true)) {
            all += sample.samples;
        } else if sample.user.iter().take(4).any(|frame| wakes(frame, false)) {
            one += sample.samples;
        }
    }
    all >= WAKES && all > one
}

/// Whether a library's function wakes all threads that wait for a condition, or one of them.
fn wakes(frame: &str, all: bool) -> bool {
    const PATHS: [&str; 9] = [
        "std::condition_variable",
        "std::_V2::condition_variable",
        "std::sync::",
        "std::sys::sync::condvar",
        "parking_lot::condvar",
        "java.lang.Object.",
        "java.util.concurrent.locks.",
        "sync.(*Cond).",
        "ObjectMonitor::",
    ];
    let names: [&str; 5] = match all {
        true => ["pthread_cond_broadcast", "notifyAll", "signalAll", "notify_all", "Broadcast"],
        false => ["pthread_cond_signal", "notify", "signal", "notify_one", "Signal"],
    };
    let last = frame.trim_end_matches("()").rsplit(['.', ':']).next().unwrap_or(frame);
    c_name(frame) == names[0] || begins_with(frame, &PATHS) && names.contains(&last)
}

/// Puts the mutex of a fine hand-off to its condition: it is waited for since its threads are woken while it is held.
fn together<'a>(view: &View<'a>, all: Vec<Waited<'a>>) -> Vec<Waited<'a>> {
    // Threads that are all woken for one item take the mutex one after another, in whatever they do next.
    let herds: HashSet<(&str, Option<&str>)> =
        all.iter().filter(|lock| wakes_all(view, lock)).map(|lock| (lock.process, lock.place)).collect();
    let of_herd = |lock: &Waited<'_>| {
        herds.contains(&(lock.process, lock.place)) && lock.held && taken_again(lock) > 0.0
    };
    let (again, mut rest): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|lock| is_taken_again(lock) || of_herd(lock));
    for lock in again {
        let same = |other: &&mut Waited<'a>| {
            is_fine(view, other) && (other.process, other.place) == (lock.process, lock.place)
        };
        match rest.iter_mut().find(same) {
            Some(hand_off) => {
                hand_off.block += lock.block;
                hand_off.spin += lock.spin;
                hand_off.waits += lock.waits;
                hand_off.stacks.extend(lock.stacks);
                hand_off.rows.extend(lock.rows);
                hand_off.names.extend(lock.names.into_iter().map(|(name, _)| (name, 0.0)));
                if let (Some((queued, waking)), Some(sum)) = (lock.woken, &mut hand_off.woken) {
                    *sum = (sum.0 + queued, sum.1 + waking);
                }
            }
            None => rest.push(lock),
        }
    }
    rest
}

/// The parts that locks have of what is counted for all.
struct Parts {
    /// Waits for locks and conditions, and thread-seconds in locks.
    waits: HashMap<String, f64>,
    block: f64,
    /// Hand-offs of any condition that are fine.
    fine: f64,
    voluntary: f64,
    switches: f64,
    /// Of kernel lock spin, in futex buckets and in run queues.
    buckets: f64,
    queues: f64,
}

fn parts(view: &View<'_>, all: &[Waited<'_>]) -> Parts {
    let mut waits: HashMap<String, f64> = HashMap::new();
    for lock in all {
        *waits.entry(lock.process.to_string()).or_default() += lock.waits;
    }
    let (buckets, queues) = spun_for_futexes(view);
    Parts {
        waits,
        block: all.iter().filter(|lock| lock.held).map(|lock| lock.block).sum(),
        fine: all.iter().filter(|lock| is_fine(view, lock)).map(|lock| lock.waits).sum(),
        voluntary: view.switched.values().map(|s| s.voluntary).sum(),
        switches: view.switches(),
        buckets,
        queues,
    }
}

/// The parts of kernel lock spin that are in buckets of futexes, and in run queues that threads are woken into.
fn spun_for_futexes(view: &View<'_>) -> (f64, f64) {
    let Ok(Some(t)) = locks::Reader::open(view.context.recording) else { return (0.0, 0.0) };
    let mut by_futex: HashMap<&str, bool> = HashMap::new();
    if let Ok(Some(callers)) = lock_callers::Reader::open(view.context.recording) {
        let mut spin: HashMap<&str, (f64, f64)> = HashMap::new();
        for row in callers.rows() {
            let (Some(lock), Some(caller)) = (callers.lock.get(row), callers.caller.get(row)) else {
                continue;
            };
            let seconds = callers.spin.get(row).unwrap_or(0.0);
            let sums = spin.entry(lock).or_default();
            sums.0 += seconds;
            sums.1 += if caller.starts_with("futex_") { seconds } else { 0.0 };
        }
        by_futex.extend(spin.into_iter().map(|(lock, (all, futex))| (lock, futex > 0.5 * all)));
    }
    let (mut all, mut buckets, mut queues) = (0.0, 0.0, 0.0);
    for row in t.rows() {
        let (Some(lock), Some(spin)) = (t.lock.get(row), t.spin.get(row)) else { continue };
        all += spin;
        if lock.starts_with("futex") || by_futex.get(lock) == Some(&true) {
            buckets += spin;
        } else if lock.starts_with("rq(") || lock.ends_with("pi_lock") {
            queues += spin;
        }
    }
    if all > 0.0 { (buckets / all, queues / all) } else { (0.0, 0.0) }
}

/// Whether threads hand work to one another by it in small pieces.
fn is_fine(view: &View<'_>, lock: &Waited<'_>) -> bool {
    // A thread of Go sleeps there whenever no goroutine can run, whatever these wait for.
    let least = if lock.pattern == Some("Go scheduler") { 10.0 * FINE } else { FINE };
    !lock.held && lock.waits >= least * view.elapsed() && lock.block <= BRIEF * lock.waits
}

/// Waits that are few, and the part of the observation that they have to take to say more than that other programs held a holder up.
const FEW: f64 = 10.0;
const LONG: f64 = 0.05;

/// Whether it is waited for at all, to speak of: 100 times a second, or a hundredth of the time; of few waits a twentieth. A runtime's
/// functions that few have waited in stand on the stacks of much else.
fn is_contended(view: &View<'_>, lock: &Waited<'_>) -> bool {
    let least = if lock.waits < FEW && lock.spin <= lock.block { LONG } else { 0.01 };
    lock.waits >= 100.0 * view.elapsed() || lock.block + lock.spin >= least * view.elapsed()
}

/// Whether a lock of Java goes to the thread that has waited longest: a stack of a thread that takes the lock has the class for it.
fn is_fair(view: &View<'_>, lock: &Waited<'_>) -> bool {
    if !lock.held || lock.pattern != Some("java.util.concurrent lock") || lock.waits < FINE * view.elapsed() {
        return false;
    }
    let takers = lock.takers();
    let fair = |user: &[&str]| {
        let of_library =
            |f: &&str| begins_with(f, &["java.util.concurrent.locks."]) && f.contains("$FairSync.");
        user.iter().any(of_library) && user.iter().any(|f| takers.contains(f))
    };
    view.samples.iter().any(|s| s.process == lock.process && fair(&s.user))
        || view.slept.iter().any(|s| s.process == lock.process && fair(&s.user))
}

/// Whether processes wait much for a System V semaphore: it may be a lock as well as a count of work.
fn is_semaphore(view: &View<'_>, lock: &Waited<'_>) -> bool {
    let sysv = lock.names.iter().any(|(name, _)| name.starts_with("semaphore set"));
    sysv && lock.block >= 0.5 * view.elapsed() && lock.waits >= 5.0 * view.elapsed()
}

/// Whether most of the waiting is for new threads to begin: a runtime waits by a lock of its own until a thread that it made has come
/// up.
fn begins_threads(lock: &Waited<'_>) -> bool {
    let of = lock.stacks.iter().filter(|(stack, _)| stack.iter().any(|f| is_thread_start(f)));
    lock.held && of.map(|(_, seconds)| seconds).sum::<f64>() > 0.5 * lock.block
}

/// Whether most of the waiting is that of a collector's workers for its next run: that it runs often is the collector's matter.
fn waits_to_collect(lock: &Waited<'_>) -> bool {
    let of = lock.stacks.iter().filter(|(stack, _)| stack.iter().any(|f| is_collectors_worker(f)));
    of.map(|(_, seconds)| seconds).sum::<f64>() > 0.5 * lock.block
}

/// All locks that are waited for, and all fine hand-offs.
pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let all = together(view, waited(view));
    let parts = parts(view, &all);
    all.iter()
        .enumerate()
        .filter(|(_, lock)| {
            is_contended(view, lock)
                && !begins_threads(lock)
                && !waits_to_collect(lock)
                && (lock.held || is_fine(view, lock) || is_semaphore(view, lock))
        })
        .map(|(at, _)| claim(view, &all, at, &parts))
        .filter(|claim| claim.kind != Kind::HandOff || claim.asked() >= WORTH * view.context.running)
        .collect()
}

fn claim(view: &View<'_>, all: &[Waited<'_>], at: usize, parts: &Parts) -> Claim {
    let lock = &all[at];
    let name = lock.name();
    let place = lock.shown().map_or_else(String::new, short);
    let (kind, when) = match (lock.held, lock.is_file()) {
        (true, true) => (Kind::Lock, vec![When::FileLock]),
        (true, false) if lock.advice.is_some() => (Kind::Lock, vec![When::Lock, When::LockOfPattern]),
        (true, false) => (Kind::Lock, vec![When::Lock]),
        (false, _) if is_semaphore(view, lock) => (Kind::Lock, vec![When::Semaphore]),
        (false, _) if wakes_all(view, lock) => (Kind::HandOff, vec![When::HandOff, When::WokenAll]),
        (false, _) => (Kind::HandOff, vec![When::HandOff]),
    };
    let mut when = when;
    if is_fair(view, lock) {
        when.push(When::FairLock);
    }
    let callers = lock.callers();
    let given = if lock.held { None } else { given_in(view, lock) };
    // libuv's own function names the queue: functions called `worker` wait in many programs.
    let library = lock.stack().iter().find(|frame| frame.starts_with("uv_")).copied().unwrap_or("");
    let subject =
        [&name, lock.pattern.unwrap_or(""), &place, lock.place.unwrap_or(""), &callers, library].join(" ");
    // Names that say what it is.
    let of_kind = ["lock ", "mutex ", "condition "].iter().any(|kind| name.starts_with(kind))
        || lock.pattern.is_some_and(|pattern| name.contains(pattern));
    let mut claim = Claim::new(kind, when, subject)
        .with("lock", name.clone())
        .with("named", if of_kind { name.clone() } else { format!("lock {name}") })
        .with(
            "place",
            match &given {
                Some((_, giver)) => giver.clone(),
                None if place.is_empty() => lock.process.to_string(),
                None => place.clone(),
            },
        )
        .with(
            "callers",
            match &given {
                Some((_, giver)) => format!("{giver} → {place}"),
                None if callers.is_empty() => lock.process.to_string(),
                None => callers,
            },
        )
        .with("rate", format!("{:.0}", lock.waits / view.elapsed().max(f64::MIN_POSITIVE)))
        .with("remedy", lock.advice.unwrap_or(""));
    claim.key = format!("{} {name} {place}", kind.word());
    claim.waited = Some(lock.block + lock.spin);
    claim.lives = if lock.held { view.waiters(&lock.rows) * view.elapsed() } else { 0.0 };
    claim.doubt = DOUBT;
    samples(view, all, at, parts, &mut claim);
    layers(view, lock, parts, &mut claim);
    lines(view, lock, given, parts, &mut claim);
    claim
}

/// What samples show to be the lock's.
fn samples(view: &View<'_>, all: &[Waited<'_>], at: usize, parts: &Parts, claim: &mut Claim) {
    let lock = &all[at];
    let places = lock.takers();
    let leaves: Vec<&str> = lock
        .stacks
        .iter()
        .filter(|(stack, _)| stack.len() > 1)
        .filter_map(|(stack, _)| stack.first().copied())
        .collect();
    // Data that threads use in turn is in the cache of the one before.
    let atomics = atomics(view, lock.block >= 0.1 * view.elapsed());
    let of_process =
        |place: &str| all.iter().any(|other| other.process == lock.process && other.place == Some(place));
    let part_of_waits = lock.waits / parts.waits.get(lock.process).copied().unwrap_or(0.0).max(1.0);
    let part_of_switches = lock.waits / parts.voluntary.max(1.0);
    for (index, sample) in view.samples.iter().enumerate() {
        if sample.process != lock.process {
            continue;
        }
        let from = Source::Sample(index);
        // The call says itself which lock it is for, where threads have slept for that one.
        let is = |lock: &Waited<'_>| {
            lock.process == sample.process && lock.names.iter().any(|(name, _)| Some(*name) == sample.lock)
        };
        if is(lock) {
            let what = match sample.layer() {
                Layer::Switches | Layer::Interrupts => "switches and wake-ups",
                Layer::KernelSpin => "kernel's futex buckets",
                _ => "futex calls",
            };
            claim.ask(from, sample.seconds, what);
            continue;
        }
        if sample.lock.is_some() && all.iter().any(is) {
            continue;
        }
        let Some((site, within)) = site(sample) else {
            // On the way to or from another thread, or told of one.
            if sample.class == SampleClass::Switch || is_wake_up(sample) {
                claim.ask(from, sample.seconds * part_of_switches.min(1.0), "switches and wake-ups");
            }
            continue;
        };
        let futex = in_futex(sample);
        let within = within
            || sample.user.first().is_some_and(|leaf| {
                leaves.contains(leaf) && places.iter().any(|p| sample.user[1..].contains(p))
            });
        let what = match (sample.layer(), sample.kernel.is_empty()) {
            (Layer::UserLock, _) => "spinning",
            (Layer::Switches | Layer::Interrupts, _) => "switches and wake-ups",
            (Layer::KernelSpin, _) => "kernel's futex buckets",
            (_, true) => "lock functions",
            _ if lock.is_file() => "lock calls",
            _ => "futex calls",
        };
        let at_place =
            places.contains(&site) || within && sample.user.iter().take(4).any(|f| places.contains(f));
        if at_place && (within || futex) {
            claim.ask(from, sample.seconds, what);
        } else if futex && within && !of_process(site) {
            // Given back elsewhere: of which lock is not known.
            claim.ask(from, sample.seconds * part_of_waits, what);
        } else if is_monitor(lock) && !at_place && begins_with(sample.user[0], &["ObjectMonitor::"]) {
            // Of code without names it is not known which monitor it spins for.
            let monitors = all.iter().filter(|other| other.process == lock.process && is_monitor(other));
            let spun_for = lock.block / monitors.map(|other| other.block).sum::<f64>().max(f64::MIN_POSITIVE);
            claim.ask(from, sample.seconds * spun_for, "spinning");
        } else if sample.layer() == Layer::UserLock && lock.held {
            let spun_for = lock.block / parts.block.max(f64::MIN_POSITIVE);
            claim.ask(from, sample.seconds * if at_place { 1.0 } else { spun_for }, "spinning");
        } else if lock.held
            && sample.class == SampleClass::User
            && sample.user.iter().any(|f| places.contains(f))
        {
            // The lock's own instructions may be inlined where it is taken. The rest is code that is run with the lock, and what its
            // place costs where others write the same lines.
            let leaf = sample.user.first().filter(|leaf| places.contains(leaf));
            let inlined = leaf.and_then(|leaf| atomics.get(leaf)).copied().unwrap_or(0.0);
            claim.ask(from, sample.seconds * inlined, "lock functions");
            claim.dear += sample.seconds * (1.0 - inlined);
        }
        if is_wake_up(sample) && !(at_place && (within || futex)) {
            claim.ask(from, sample.seconds * part_of_switches.min(1.0), "switches and wake-ups");
        }
    }
}

fn is_monitor(lock: &Waited<'_>) -> bool {
    lock.held && lock.pattern == Some("Java monitor")
}

/// By function, the part of its samples that waited for atomic instructions; `lines`: or for lines that threads share.
fn atomics<'a>(view: &View<'a>, lines: bool) -> HashMap<&'a str, f64> {
    let sums = view.samples_by_cause(|instruction, cause| {
        let atomic = instruction == Some("atomic");
        match cause {
            Some(UserCause::SharedLine) => atomic || lines,
            Some(UserCause::Atomic) => atomic,
            _ => false,
        }
    });
    sums.into_iter()
        .map(|(function, (atomic, all))| (function, atomic / f64::max(all, f64::MIN_POSITIVE)))
        .collect()
}

/// Whether a CPU is told that a thread was woken for it.
fn is_wake_up(sample: &Sampled<'_>) -> bool {
    sample.layer() == Layer::Interrupts
        && sample.kernel.iter().any(|f| {
            f.contains("sysvec_reschedule_ipi")
                || *f == "scheduler_ipi"
                || f.contains("sysvec_call_function_single")
                || f.contains("sched_ttwu_pending")
        })
}

/// The lock's part of what no stack stands for.
fn layers(view: &View<'_>, lock: &Waited<'_>, parts: &Parts, claim: &mut Claim) {
    let of_voluntary = (lock.waits / parts.voluntary.max(1.0)).min(1.0);
    let of_switches = (lock.waits / parts.switches.max(1.0)).min(1.0);
    let all_waits: f64 = parts.waits.values().sum();
    let of_waits = lock.waits / all_waits.max(1.0);
    let mut of = |layer: Layer, part: f64, what| {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * part, what)
    };
    of(Layer::KernelSpin, parts.buckets * of_waits, "kernel's futex buckets");
    of(Layer::KernelSpin, parts.queues * of_voluntary, "switches and wake-ups");
    of(Layer::Switches, of_switches, "switches and wake-ups");
    let (of_queues, of_waking) = of_woken(view, lock).unwrap_or((of_switches, of_voluntary));
    of(Layer::WakeUp, of_waking, "CPUs waking up");
    of(Layer::RunQueue, of_queues, "queueing of woken threads");
    if lock.held {
        let of_locks = lock.block / parts.block.max(f64::MIN_POSITIVE);
        // CPUs idle for a lock no longer than threads wait for it: the layer holds waits for semaphores and the like as well.
        let most = lock.block * view.context.cpus as f64;
        for layer in [Layer::UserLock, Layer::LockOrSerial] {
            let part = (most / view.beside_stacks(layer).max(f64::MIN_POSITIVE)).min(of_locks);
            of(layer, part, "CPUs idle for it");
        }
    } else if is_semaphore(view, lock) {
        of(Layer::Serial, (lock.block / view.elapsed()).min(1.0), "CPUs idle for it");
    } else if is_fine(view, lock) {
        let others = 1.0 - of_bottleneck(view, lock);
        of(Layer::Serial, others * lock.waits / parts.fine.max(1.0), "CPUs idle for it");
    }
    let wake_ups = view.in_interrupts(InterruptKind::Reschedule) + view.in_interrupts(InterruptKind::Call);
    claim.ask(Source::Layer(Layer::Interrupts), wake_ups * of_voluntary, "switches and wake-ups");
}

/// The part of serial phases in which one thread of the program ran, where that thread is busy nearly all the time: the others wait
/// until it has done its work, however that is handed over. Of Go this is not known: a thread runs goroutines of all kinds.
fn of_bottleneck(view: &View<'_>, lock: &Waited<'_>) -> f64 {
    if lock.pattern == Some("Go scheduler") || view.busiest_thread(lock.process) < BOTTLENECK {
        return 0.0;
    }
    let in_futex = |code: &str| code.split(" <- ").next().is_some_and(is_lock_function);
    let rows = charged(&view.context, IdleReason::Serial);
    let own = rows.iter().filter(|row| row.process == lock.process && row.runs() && !in_futex(&row.code));
    own.map(|row| row.share).sum::<f64>().min(1.0)
}

/// The parts that a lock's waiters have of the idle time beside run queues, and of wake-up latency; `None` where that was not
/// measured.
fn of_woken(view: &View<'_>, lock: &Waited<'_>) -> Option<(f64, f64)> {
    let (queued, waking) = lock.woken?;
    parts_of_woken(&view.runnable, lock.held, lock.waits, queued, waking)
}

fn parts_of_woken(
    runnable: &HashMap<Runnable, Woken>,
    held: bool,
    waits: f64,
    queued: f64,
    waking: f64,
) -> Option<(f64, f64)> {
    let from = runnable.get(if held { &Runnable::UserLock } else { &Runnable::Asleep })?;
    let part = |of: f64, all: f64| if all > 0.0 { (of / all).min(1.0) } else { 0.0 };
    let idle = runnable.values().map(|woken| woken.idle).sum();
    let own = part(from.idle, idle) * part(queued, from.queued);
    // A thread that is woken may take the CPU of another, which then stands on a queue: one for each wake-up at most.
    let taken = runnable.get(&Runnable::Preempted).copied().unwrap_or_default();
    let begun = |reason: &Runnable| matches!(reason, Runnable::New | Runnable::Preempted);
    let woken: f64 = runnable.iter().filter(|(reason, _)| !begun(reason)).map(|(_, woken)| woken.count).sum();
    let displaced = part(taken.idle, idle) * part(waits, woken.max(taken.count));
    Some((own + displaced, part(waking, runnable.values().map(|woken| woken.waking).sum())))
}

fn lines(
    view: &View<'_>,
    lock: &Waited<'_>,
    given: Option<(String, String)>,
    parts: &Parts,
    claim: &mut Claim,
) {
    let callers = lock.callers();
    if !callers.is_empty() {
        claim.line(if lock.held { "taken in" } else { "waits in" }, callers);
    }
    if let Some((words, _)) = given {
        claim.line("given in", words);
    }
    let each = length(lock.block / lock.waits.max(1.0));
    let mut waits = format!("{} of {each} each, longest {}", grouped(lock.waits), length(lock.longest));
    if lock.held && lock.names.len() > 1 {
        waits += &format!("; {} locks", lock.names.len());
    }
    claim.line("waits", waits);
    if lock.held && lock.block > 0.6 * parts.block {
        let path = charged(&view.context, IdleReason::UserLock);
        let top = path.iter().find(|c| c.runs() && !c.wanders());
        let percent = |share: f64| format!("({:.0} %)", 100.0 * share);
        if let Some(top) = top.filter(|top| top.share >= 0.3 && !top.code.is_empty()) {
            let code: Vec<String> = top.code.split(" <- ").map(short).take(2).collect();
            let code = code.join(" ← ");
            claim.line("meanwhile", format!("{} runs {code} {}", top.thread, percent(top.share)));
        } else if let Some((share, sleeper)) = asleep(&path).filter(|(share, _)| *share >= 0.3) {
            let code = sleeper.code.split(" <- ").next().map(short).filter(|code| !code.is_empty());
            let code = code.map_or_else(String::new, |code| format!(", in {code}"));
            let doing = &sleeper.doing;
            claim.line("meanwhile", format!("{} is {doing}{code} {}", sleeper.thread, percent(share)));
        }
    }
}

/// The sleep that others wait for most, with its share of the waits: the row that names the code.
fn asleep(path: &[Charged]) -> Option<(f64, &Charged)> {
    let sleeps = |row: &&Charged| row.doing.starts_with("asleep ") || row.doing.starts_with("waiting for ");
    let same = |a: &Charged, b: &Charged| (&a.thread, &a.doing) == (&b.thread, &b.doing);
    let sum = |row: &Charged| path.iter().filter(|other| same(row, other)).map(|row| row.share).sum::<f64>();
    let most = path.iter().filter(sleeps).max_by(|a, b| sum(a).total_cmp(&sum(b)))?;
    let named = path.iter().find(|row| same(row, most) && !row.code.is_empty());
    Some((sum(most), named.unwrap_or(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_woken_is_known_by_functions_of_libraries() {
        for frame in [
            "pthread_cond_broadcast@@GLIBC_2.3.2",
            "std::condition_variable::notify_all()",
            "<std::sync::poison::condvar::Condvar>::notify_all",
            "sync.(*Cond).Broadcast",
            "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.signalAll",
        ] {
            assert!(wakes(frame, true) && !wakes(frame, false), "{frame}");
        }
        for frame in
            ["___pthread_cond_signal", "std::condition_variable::notify_one()", "java.lang.Object.notify"]
        {
            assert!(wakes(frame, false) && !wakes(frame, true), "{frame}");
        }
        for frame in ["Bus::notify_all", "app::signal", "com.shop.Mail.notifyAll", "main.(*Cond).Broadcast"] {
            assert!(!wakes(frame, true) && !wakes(frame, false), "{frame}");
        }
    }

    fn woken(count: f64, queued: f64, idle: f64) -> Woken {
        Woken { count, queued, waking: 0.0, idle }
    }

    #[test]
    fn queues_are_a_locks_as_far_as_its_waiters_filled_them() {
        let parts = |runnable: &HashMap<Runnable, Woken>| {
            parts_of_woken(runnable, true, 900.0, 3.0, 0.0).expect("it was measured").0
        };
        let mut runnable = HashMap::from([
            (Runnable::UserLock, woken(1000.0, 4.0, 1.0)),
            (Runnable::Preempted, woken(10.0, 5.0, 1.0)),
        ]);
        // Three quarters of its half, and nine tenths of those whose CPUs its waiters took.
        assert!((parts(&runnable) - (0.375 + 0.45)).abs() < 1e-12, "{}", parts(&runnable));
        // Threads that share too few CPUs take them from each other, whatever the lock does.
        runnable.insert(Runnable::Preempted, woken(90_000.0, 5.0, 1.0));
        assert!((parts(&runnable) - (0.375 + 0.005)).abs() < 1e-12, "{}", parts(&runnable));
        assert_eq!(parts_of_woken(&HashMap::new(), true, 1.0, 1.0, 0.0), None, "an older recording");
    }
}
