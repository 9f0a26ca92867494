//! Garbage collectors, by the functions on the stacks of timer samples.

use std::collections::HashMap;

use ncpu_schema::{StackKind, chance, stacks};

use super::Context;
use super::kinds::{Collector as Evidence, CpuSeconds, Share};
use crate::causes::When;
use crate::onion::case::Case;
use std::fmt;

/// Below this part of the program's time nothing is said.
const LEAST: f64 = 0.02;

/// A collector of a language's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Collector {
    Go,
    Java,
    DotNet,
    V8,
    Python,
}

impl Collector {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Collector::Go => "Go's garbage collector",
            Collector::Java => "Java's garbage collector",
            Collector::DotNet => ".NET's garbage collector",
            Collector::V8 => "V8's garbage collector",
            Collector::Python => "Python's garbage collector",
        }
    }

    /// The word of entries of the rule book.
    pub(crate) const fn language(self) -> &'static str {
        match self {
            Collector::Go => "Go",
            Collector::Java => "Java",
            Collector::DotNet => ".NET",
            Collector::V8 => "V8",
            Collector::Python => "Python",
        }
    }
}

/// Functions of Go's runtime that mark or sweep, and those that make an allocating goroutine help.
const GO: [&str; 26] = [
    "gcBgMarkWorker",
    "gcAssistAlloc",
    "gcAssistAlloc1",
    "gcParkAssist",
    "gcDrain",
    "gcDrainN",
    "gcDrainMarkWorkerDedicated",
    "gcDrainMarkWorkerFractional",
    "gcDrainMarkWorkerIdle",
    "gcStart",
    "gcMarkDone",
    "gcMarkTermination",
    "gcSweep",
    "markroot",
    "markrootBlock",
    "markrootSpans",
    "scanobject",
    "scanblock",
    "scanSpan",
    "scanstack",
    "greyobject",
    "tryDeferToSpanScan",
    "bgsweep",
    "sweepone",
    "deductSweepCredit",
    "gcFlushBgCredit",
];

/// Names of threads of the Java virtual machine that collect; some are followed by their number.
const JAVA_THREADS: [&str; 9] = [
    "GC Thread",
    "G1 Conc",
    "G1 Main Marker",
    "G1 Refine",
    "G1 Service",
    "ZWorker",
    "ZWorkerYoung",
    "ZWorkerOld",
    "Shenandoah GC T",
];

/// Beginnings of the names of a Java virtual machine's own threads: those that compile, and the others.
pub(crate) const OPTIMIZES: [&str; 2] = ["C2 CompilerThre", "JVMCI"];
pub(crate) const COMPILES: &str = "C1 CompilerThre";
const MACHINE: [&str; 5] = ["VM ", "GC Thread", "G1 ", "ZWorker", "Shenandoah"];

/// Whether a thread is a Java virtual machine's own and not its program's.
pub(crate) fn is_java_machines(thread: &str) -> bool {
    OPTIMIZES.iter().chain(&[COMPILES]).chain(&MACHINE).any(|start| thread.starts_with(start))
}

/// Classes and functions by which the virtual machine's own thread collects.
const JAVA: [&str; 8] = [
    "DefNewGeneration",
    "GenMarkSweep",
    "SerialFullGC",
    "SerialHeap",
    "PSScavenge",
    "PSParallelCompact",
    "G1YoungCollector",
    "G1FullCollector",
];

const V8: [&str; 12] = [
    "Scavenger",
    "ScavengerCollector",
    "MarkCompactCollector",
    "MinorMarkSweepCollector",
    "MinorMarkCompactCollector",
    "ConcurrentMarking",
    "IncrementalMarking",
    "Sweeper",
    "ArrayBufferSweeper",
    "Evacuator",
    "FullEvacuator",
    "MainMarkingVisitor",
];

const PYTHON: [&str; 9] = [
    "gc_collect_main",
    "gc_collect_region",
    "gc_collect_full",
    "gc_collect_increment",
    "gc_collect_young",
    "gc_collect_generations",
    "gc_collect_internal",
    "deduce_unreachable",
    "_Py_RunGC",
];

/// The parts of a function's name without its parameters.
fn parts(frame: &str) -> impl Iterator<Item = &str> {
    let name = frame.split(['(', '<']).next().unwrap_or(frame);
    name.rsplit(' ').next().unwrap_or(name).split("::")
}

/// [`collector`] of a folded stack, the thread's name first.
pub(super) fn collector_of(stack: &str) -> Option<Collector> {
    let (thread, frames) = stack.split_once(';')?;
    let frames: Vec<&str> = frames.split(';').filter(|frame| !frame.ends_with("_[k]")).collect();
    collector(thread, &frames)
}

/// The collector that a stack of the program's functions is a part of, in any order. Names are compared whole; a thread's
/// name, which any program may choose, counts where the stack is the virtual machine's.
pub(crate) fn collector(thread: &str, frames: &[&str]) -> Option<Collector> {
    let frames = || frames.iter().copied();
    for frame in frames() {
        if let Some(name) = frame.strip_prefix("runtime.") {
            // `(*gcWork).put`, `gcBgMarkWorker.func2`
            let own = name.split('.').next().unwrap_or(name);
            if GO.contains(&own) || matches!(own, "(*gcWork)" | "(*sweepLocked)") {
                return Some(Collector::Go);
            }
        }
        let first: Vec<&str> = parts(frame).take(4).collect();
        match first[..] {
            ["WKS" | "SVR", "gc_heap", ..] => return Some(Collector::DotNet),
            ["v8", "internal", class, ..] if V8.contains(&class) => return Some(Collector::V8),
            [
                "v8",
                "internal",
                "Heap",
                "CollectGarbage" | "PerformGarbageCollection" | "Scavenge" | "MarkCompact",
            ] => {
                return Some(Collector::V8);
            }
            [class, _] if JAVA.contains(&class) => return Some(Collector::Java),
            [name] if PYTHON.contains(&name) => return Some(Collector::Python),
            _ => {}
        }
    }
    let of = |files: [&str; 2], entry: &str| {
        frames().any(|frame| {
            parts(frame).eq([entry]) || files.iter().any(|file| frame == format!("[unknown {file}]"))
        })
    };
    let name = thread.split('#').next().unwrap_or(thread);
    if JAVA_THREADS.contains(&name) && of(["libjvm.so", "libjvm.so"], "thread_native_entry") {
        return Some(Collector::Java);
    }
    let dotnet = matches!(thread, ".NET Server GC" | ".NET BGC");
    (dotnet && of(["libcoreclr.so", "libclrgc.so"], "GCThreadStub")).then_some(Collector::DotNet)
}

/// The method that allocates, of a stack of a Java virtual machine, innermost first, in which it takes memory of the heap
/// itself: large arrays, and new buffers of threads.
pub(crate) fn allocates_in_java<'a>(frames: &[&'a str]) -> Option<&'a str> {
    let mut inside = frames.iter().copied().skip_while(|f| !f.starts_with("MemAllocator::allocate")).skip(1);
    inside.find(|f| f.contains('.') && !f.contains("::") && !f.starts_with('['))
}

/// The function of the program that allocates, of a stack of Go, innermost first, in which something is allocated.
pub(crate) fn allocates<'a>(frames: &[&'a str]) -> Option<&'a str> {
    let mut inside = frames.iter().copied().skip_while(|f| *f != "runtime.mallocgc").skip(1);
    inside.find(|f| !f.starts_with("runtime."))
}

/// The collector that most of the time goes to, its CPU-seconds, and who allocates most.
struct Collecting {
    collector: Collector,
    seconds: f64,
    by: Option<(String, f64)>,
}

fn collecting(context: &Context<'_>) -> Option<Collecting> {
    let table = stacks::Reader::open(context.recording).ok().flatten()?;
    let mut of: HashMap<Collector, u64> = HashMap::new();
    let mut by: HashMap<&str, u64> = HashMap::new();
    let (mut all, mut allocating) = (0u64, 0u64);
    for row in table.rows().filter(|&r| table.kind.get(r) == Some(StackKind::OnCpu)) {
        let (Some(stack), Some(n)) = (table.stack.get(row), table.samples.get(row)) else { continue };
        let add = |sum: &mut u64| *sum = sum.saturating_add(n);
        add(&mut all);
        if let Some(collector) = collector_of(stack) {
            add(of.entry(collector).or_default());
        }
        let frames: Vec<&str> = stack.rsplit(';').collect();
        if let Some(function) = allocates(&frames) {
            add(by.entry(function).or_default());
            add(&mut allocating);
        }
    }
    let (collector, n) = of.into_iter().max_by_key(|&(_, n)| n)?;
    // The lower end of the 95 % interval.
    if chance::share(n, all).0 < LEAST {
        return None;
    }
    let top = by.into_iter().max_by_key(|&(function, n)| (n, std::cmp::Reverse(function)));
    let by = top.filter(|&(_, n)| n > allocating / 2 && n >= 10);
    Some(Collecting {
        collector,
        seconds: context.running * n as f64 / all.max(1) as f64,
        by: by.map(|(function, n)| (function.to_string(), n as f64 / allocating as f64)),
    })
}

/// A collector's CPU-seconds.
pub(super) fn collected(context: &Context<'_>) -> Option<Evidence> {
    let Collecting { collector, seconds, by } = collecting(context)?;
    let (allocator, allocator_share) = by.map(|(function, part)| (function, Share(part))).unzip();
    Some(Evidence {
        collector: collector.name().into(),
        seconds: CpuSeconds(seconds),
        share: Share(seconds / context.running.max(f64::MIN_POSITIVE)),
        allocator,
        allocator_share,
    })
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Evidence { collector, seconds, share, allocator, allocator_share } = self;
        let share = share.percent();
        write!(f, "{collector}: {:.2} CPU-s, {share:.0} % of the program's time on CPU", seconds.0)?;
        match (allocator, allocator_share) {
            (Some(function), Some(part)) => {
                write!(f, "; {:.0} % of allocations' time is in {function}", part.percent())
            }
            _ => Ok(()),
        }
    }
}

/// A collector, for the rule book.
pub(in crate::onion) fn collector_case(context: &Context<'_>) -> Option<Case> {
    let Collecting { collector, by, .. } = collecting(context)?;
    let function = by.map_or(String::new(), |(function, _)| format!(", in {function} first"));
    Some(Case::new(When::Collector).of(collector.language()).with("in_function", function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_known_by_whole_names() {
        for (stack, wanted) in [
            (
                "gogc;runtime.goexit.abi0;runtime.gcBgMarkWorker;runtime.systemstack.abi0;runtime.gcDrain;runtime.scanobject",
                Collector::Go,
            ),
            (
                "gogc;main.main.func1;main.handle;runtime.newobject;runtime.mallocgc;runtime.gcAssistAlloc",
                Collector::Go,
            ),
            ("gogc;runtime.gcBgMarkWorker.func2;runtime.(*gcWork).balance", Collector::Go),
            (
                "GC Thread#1;__clone3;start_thread;thread_native_entry(Thread*);Thread::call_run();WorkerThread::run()",
                Collector::Java,
            ),
            ("G1 Conc#0;start_thread;[unknown libjvm.so]", Collector::Java),
            (
                "VM Thread;thread_native_entry(Thread*);VMThread::run();DefNewGeneration::collect(bool, bool)",
                Collector::Java,
            ),
            (".NET Server GC;start_thread;[unknown libclrgc.so]", Collector::DotNet),
            ("dotnet;SVR::gc_heap::mark_object_simple(unsigned char**)", Collector::DotNet),
            (
                "node;main;v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace);v8::internal::Scavenger::Process(v8::JobDelegate*)",
                Collector::V8,
            ),
            ("V8Worker;v8::internal::ConcurrentMarking::RunMajor(v8::JobDelegate*)", Collector::V8),
            ("python3;main;gc_collect_main;deduce_unreachable", Collector::Python),
        ] {
            assert_eq!(collector_of(stack), Some(wanted), "{stack}");
        }
        for stack in [
            "gogc;main.main;main.gcDrain",
            "gogc;main.handle;runtime.newobject;runtime.mallocgc",
            "app;runtime::gcDrain",
            "app;runtime.gcDrainage",
            "GC Thread#1;start_thread;work",
            "GC Threads;start_thread;[unknown libjvm.so]",
            "app;my::Scavenger::run()",
            "app;v8::internal::ScavengerTable::get()",
            "app;f(v8::internal::Scavenger*)",
            "python3;collect (gc.py:7)",
            "app;gc_collect_main_table",
            ".NET BGC;start_thread;work",
            "app",
        ] {
            assert_eq!(collector_of(stack), None, "{stack}");
        }
    }

    #[test]
    fn who_allocates_is_the_programs_own() {
        let stack =
            "gogc;main.main.func1;main.handle;runtime.newobject;runtime.mallocgc;runtime.gcAssistAlloc";
        let allocates = |stack: &'static str| allocates(&stack.rsplit(';').collect::<Vec<_>>());
        assert_eq!(allocates(stack), Some("main.handle"));
        assert_eq!(allocates("gogc;main.handle;runtime.memmove"), None);
    }
}
