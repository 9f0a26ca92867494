//! Tasks that do less than it takes a library to hand them out: much of a process's time on CPU is the library's own.

use std::collections::{HashMap, HashSet};

use ncpu_schema::SampleClass;

use super::claim::{Claim, Kind, Source};
use super::hot::passes;
use super::libraries::{begins_with, is_allocator, waits};
use super::places::{Most, Place, is_library, is_line};
use super::runtime::compiles;
use super::view::{Sampled, View};
use crate::causes::When;

/// The part of capacity, and of the process's time on CPU, that handing out takes.
const LEAST: f64 = 0.05;
const OF_PROCESS: f64 = 0.15;

/// The part of it that is below functions of the program, so that it gives or takes tasks, and does not look for work that is not there.
const GIVEN: f64 = 0.3;

/// A library of tasks, and functions by which it hands them out. Those that run tasks are no part: compilers put the tasks into them.
struct Library {
    name: &'static str,
    functions: &'static [&'static str],
}

const LIBRARIES: [Library; 5] = [
    Library {
        name: "Java's fork/join pool",
        functions: &[
            "java.util.concurrent.ForkJoinPool.externalPush",
            "java.util.concurrent.ForkJoinPool.externalSubmit",
            "java.util.concurrent.ForkJoinPool.signalWork",
            "java.util.concurrent.ForkJoinPool.awaitWork",
            "java.util.concurrent.ForkJoinPool.scan",
            "java.util.concurrent.ForkJoinPool.tryCompensate",
            "java.util.concurrent.ForkJoinPool.helpJoin",
            "java.util.concurrent.ForkJoinPool.awaitJoin",
            "java.util.concurrent.ForkJoinPool$WorkQueue.push",
            "java.util.concurrent.ForkJoinPool$WorkQueue.tryUnpush",
            "java.util.concurrent.ForkJoinPool$WorkQueue.tryRemove",
            "java.util.concurrent.ForkJoinPool$WorkQueue.growArray",
            "java.util.concurrent.ForkJoinTask.fork",
            "java.util.concurrent.ForkJoinTask.join",
            "java.util.concurrent.ForkJoinTask.awaitDone",
            "java.util.concurrent.ForkJoinTask.setDone",
            "java.util.concurrent.ForkJoinTask.signalWaiters",
            "java.util.concurrent.ForkJoinWorkerThread.<init>",
        ],
    },
    Library {
        name: "Java's pool of threads",
        functions: &[
            "java.util.concurrent.ThreadPoolExecutor.execute",
            "java.util.concurrent.ThreadPoolExecutor.getTask",
            "java.util.concurrent.ThreadPoolExecutor.addWorker",
            "java.util.concurrent.AbstractExecutorService.submit",
            "java.util.concurrent.LinkedBlockingQueue",
            "java.util.concurrent.ArrayBlockingQueue",
        ],
    },
    Library {
        name: "Rayon",
        functions: &[
            "rayon_core::registry::Registry::inject",
            "rayon_core::latch::",
            "rayon_core::sleep::Sleep::wake",
            "rayon_core::sleep::Sleep::new_jobs",
            "crossbeam_deque::",
            "crossbeam_epoch::",
        ],
    },
    Library {
        name: "TBB",
        functions: &[
            "tbb::detail::r1::spawn",
            "tbb::detail::r1::allocate",
            "tbb::detail::r1::deallocate",
            "tbb::detail::r1::arena_slot",
            "tbb::detail::r1::arena::advertise_new_work",
        ],
    },
    Library {
        name: "concurrent.futures",
        functions: &["ThreadPoolExecutor.submit", "_worker (thread.py:", "Future."],
    },
];

/// The library that a sample is the work of: its innermost function, locks and allocators left out, is the library's.
fn library_of(sample: &Sampled<'_>) -> Option<usize> {
    let script = sample.user.iter().any(|frame| is_line(frame));
    let says = |frame: &&&str| at(frame).is_some() || !is_between(frame);
    let frames = || sample.user.iter().filter(|frame| !script || is_line(frame));
    let inner = *frames().find(says)?;
    at(inner)
}

/// Whether a function is what a library takes memory, wakes and waits by.
fn is_between(frame: &str) -> bool {
    const RUNTIME: [&str; 4] = ["jdk.internal.misc.", "Unsafe_", "core::", "alloc::"];
    waits(frame) || is_allocator(frame) || begins_with(frame, &RUNTIME)
}

/// Whether a function is a library's that hands out tasks.
pub(super) fn hands_out(frame: &str) -> bool {
    at(frame).is_some()
}

/// The library that a function is of.
fn at(frame: &str) -> Option<usize> {
    // Names of Python's classes are those of many programs.
    let fits = |library: &Library| match library.name {
        "concurrent.futures" => {
            let file = frame.contains(" (thread.py:") || frame.contains(" (_base.py:");
            file && begins_with(frame, library.functions)
        }
        _ => begins_with(frame, library.functions),
    };
    LIBRARIES.iter().position(fits)
}

#[derive(Default)]
struct Tasks<'a> {
    samples: Vec<usize>,
    given: f64,
    places: Most,
    functions: Most,
    /// Functions of the program that call the library.
    callers: HashSet<&'a str>,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<(&str, usize), Tasks<'_>> = HashMap::new();
    let mut on_cpu: HashMap<&str, f64> = HashMap::new();
    for (number, sample) in view.samples.iter().enumerate() {
        *on_cpu.entry(sample.process).or_default() += if compiles(sample) { 0.0 } else { sample.seconds };
        let Some(library) = library_of(sample) else { continue };
        let tasks = of.entry((sample.process, library)).or_default();
        tasks.samples.push(number);
        let function = sample.user.iter().find(|frame| at(frame).is_some());
        tasks.functions.add(&super::names::short(function.map_or("", |f| f)), sample.seconds);
        // Workers without a task have nobody of the program above them.
        let own =
            |frame: &&&str| at(frame).is_none() && !is_library(frame) && !passes(frame) && !is_between(frame);
        let script = sample.user.iter().any(|frame| is_line(frame));
        if sample.user.iter().filter(|frame| !script || is_line(frame)).any(|frame| own(&frame)) {
            tasks.given += sample.seconds;
            let library = |frame: &str| at(frame).is_some() || is_library(frame) || is_between(frame);
            tasks.callers.extend(sample.user.iter().find(|frame| !library(frame)));
            tasks.places.add(&Place::outside(&sample.user, library).words(), sample.seconds);
        }
    }
    let mut claims = Vec::new();
    for ((process, library), tasks) in of {
        let seconds = view.sample_seconds(&tasks.samples);
        if seconds < LEAST * view.capacity()
            || seconds < OF_PROCESS * on_cpu[process]
            || tasks.given < GIVEN * seconds
        {
            continue;
        }
        let (words, place) = tasks.places.place(process);
        let name = LIBRARIES[library].name;
        let mut claim = Claim::new(Kind::Runtime, [When::SmallTasks], name)
            .with("process", process)
            .with("place", place)
            .with("library", name);
        claim.key = format!("small tasks {name} {process}");
        // Compilers put parts of the library into its callers.
        let calls = |s: &&Sampled<'_>| {
            let leaf = s.user.first().filter(|leaf| tasks.callers.contains(**leaf));
            s.process == process && s.class == SampleClass::User && leaf.is_some()
        };
        claim.dear = view.samples.iter().filter(calls).map(|s| s.seconds).sum();
        for at in tasks.samples {
            claim.ask(Source::Sample(at), view.samples[at].seconds, "handing out tasks");
        }
        claim.line("given in", words);
        claim.line("in", tasks.functions.words(3));
        claims.push(claim);
    }
    claims
}
