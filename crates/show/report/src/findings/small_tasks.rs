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
const OF_PROCESS: f64 = 0.25;

/// The part of it that is below functions of the program, so that it gives or takes tasks, and does not look for work that is not there.
const GIVEN: f64 = 0.3;

/// A library of tasks, its functions, and those by which its workers look for work without end.
struct Library {
    name: &'static str,
    functions: &'static [&'static str],
    looks: &'static [&'static str],
}

const LIBRARIES: [Library; 5] = [
    Library {
        name: "Java's fork/join pool",
        functions: &[
            "java.util.concurrent.ForkJoin",
            "java.util.concurrent.CountedCompleter",
            "java.util.concurrent.RecursiveTask",
            "java.util.concurrent.RecursiveAction",
            "java.util.stream.AbstractTask",
            "java.util.stream.ReduceOps$ReduceTask",
            "java.util.stream.ForEachOps$ForEachTask",
        ],
        looks: &[],
    },
    Library {
        name: "Java's pool of threads",
        functions: &[
            "java.util.concurrent.ThreadPoolExecutor",
            "java.util.concurrent.FutureTask",
            "java.util.concurrent.AbstractExecutorService",
            "java.util.concurrent.CompletableFuture",
            "java.util.concurrent.LinkedBlockingQueue",
            "java.util.concurrent.ArrayBlockingQueue",
        ],
        looks: &[],
    },
    Library {
        name: "Rayon",
        functions: &["rayon_core::", "rayon::iter::plumbing", "crossbeam_deque::", "crossbeam_epoch::"],
        looks: &["rayon_core::registry::WorkerThread::wait_until", "rayon_core::sleep"],
    },
    Library {
        name: "TBB",
        functions: &["tbb::detail::"],
        looks: &["tbb::detail::r1::outermost_worker_waiter", "tbb::detail::r1::market"],
    },
    Library {
        name: "concurrent.futures",
        functions: &[
            "ThreadPoolExecutor.",
            "_WorkItem.",
            "_worker (thread.py:",
            "Future.",
            "Executor.map",
            "ProcessPoolExecutor.",
        ],
        looks: &[],
    },
];

/// The library that a sample is the work of: its innermost function, locks and allocators left out, is the library's.
fn library_of(sample: &Sampled<'_>) -> Option<usize> {
    let script = sample.user.iter().any(|frame| is_line(frame));
    let says = |frame: &&&str| {
        let runtime = frame.starts_with("jdk.internal.misc.") || frame.starts_with("Unsafe_");
        let between = is_allocator(frame) || frame.starts_with("core::") || frame.starts_with("alloc::");
        at(frame).is_some() || !(waits(frame) || runtime || between)
    };
    let frames = || sample.user.iter().filter(|frame| !script || is_line(frame));
    let inner = *frames().find(says)?;
    let library = at(inner)?;
    let looks = LIBRARIES[library].looks;
    (looks.is_empty() || !sample.user.iter().any(|frame| begins_with(frame, looks))).then_some(library)
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
            |frame: &&&str| at(frame).is_none() && !is_library(frame) && !passes(frame) && !waits(frame);
        let script = sample.user.iter().any(|frame| is_line(frame));
        if sample.user.iter().filter(|frame| !script || is_line(frame)).any(|frame| own(&frame)) {
            tasks.given += sample.seconds;
            let library = |frame: &str| at(frame).is_some() || is_library(frame) || waits(frame);
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
