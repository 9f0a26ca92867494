//! Garbage collectors and compilers of languages' runtimes, and known functions of libraries below a line of a script.

use std::collections::{HashMap, HashSet};

use ncpu_schema::{Layer, SampleClass, threads};

use super::claim::{Claim, Kind, Source};
use super::inlined::Inlined;
use super::libraries::{begins_with, c_name, is_allocator, is_c_allocator};
use super::places::{INTERPRETER, Most, Place, begins, is_library, is_line};
use super::view::{Sampled, Slept, View};
use crate::causes::When;
use crate::onion::evidence::collectors::{
    COMPILES, Collector, OPTIMIZES, allocates, allocates_in_java, collector, is_java_machines,
};

/// The part of capacity from which something is claimed.
const LEAST: f64 = 0.01;

/// The part of capacity that a program's code takes from which it stands out that it is interpreted.
const INTERPRETS: f64 = 0.1;

/// The part of the program's time on CPU that a known function has from which it is a cause.
const KNOWN: f64 = 0.3;

/// The part of a process's time on CPU that filling memory takes from which it is a cause.
const FILLED: f64 = 0.05;

/// The part of the time in code of the compiler C1 that C2 would spare, at least; twice of it at most. A loop of sums, products and
/// shifts took 1.7 times as long by C1 (OpenJDK 17), where 0.43 of the time are spared.
const SPARED: f64 = 0.3;

/// The rank of an entry from which on its functions are such as programs hardly call, and the part that these have to have.
const PARTICULAR: u8 = 53;
const KNOWN_PARTICULAR: f64 = 0.15;

/// The entry of whole libraries that programs had better call less.
const ANY_LIBRARY: &str = "functions-of-libraries";

/// The part of capacity from which compiling stands out: V8 starts sooner, with more than one compiler.
const COMPILING: f64 = 0.1;
const COMPILING_V8: f64 = 0.15;

/// The part of the program's time on CPU below which a collector is what such programs have.
const COLLECTS: f64 = 0.15;

/// The part of a collector's time in copies of pages from which these are its trouble.
const COPIES: f64 = 0.1;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut claims = collectors(view);
    claims.extend(compilers(view));
    claims.extend(interpreted(view));
    claims.extend(interpreted_by_v8(view));
    claims.extend(not_compiled(view));
    claims.extend(filled(view));
    claims.extend(grown(view));
    claims.extend(functions(view, When::Function, |sample| &sample.user));
    claims.extend(functions(view, When::NextOfMany, step));
    // Its page faults are a matter of fresh memory.
    claims.extend(functions(view, When::BulkMemory, |sample| match sample.class {
        SampleClass::User => &sample.user[..1.min(sample.user.len())],
        _ => &[],
    }));
    claims
}

/// Whether a page is copied that two processes share. Memory that was read first and is written then has the kernel's page of
/// zeros until that: it gets a fresh page.
pub(super) fn copies_page(sample: &Sampled<'_>) -> bool {
    sample.class != SampleClass::Zeroing && writes_to_shared(sample)
}

/// Whether a fault is a write to a page that is not the process's own yet.
pub(super) fn writes_to_shared(sample: &Sampled<'_>) -> bool {
    ["do_wp_page", "wp_page_copy", "__wp_page_copy_user", "do_cow_fault"].iter().any(|f| sample.in_kernel(f))
}

fn collectors(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<Collector, Vec<usize>> = HashMap::new();
    let (mut allocating, mut in_java) = (Most::default(), Vec::new());
    let (mut touching, mut touched) = (Most::default(), 0);
    for (at, sample) in view.samples.iter().enumerate() {
        if let Some(collector) = collector(sample.thread, &sample.user) {
            of.entry(collector).or_default().push(at);
        }
        if let Some(function) = allocates(&sample.user) {
            allocating.add(function, sample.seconds);
        } else if let Some(method) = allocates_in_java(&sample.user) {
            allocating.add(method, sample.seconds);
            in_java.push(at);
        } else if sample.layer() == Layer::Faults {
            touching.add(&touches_in_java(&sample.user).unwrap_or_default(), sample.seconds);
            touched += sample.samples;
        }
    }
    // New objects are made without a call: what touches fresh memory of the heap says where.
    if allocating.is_empty() && touched >= TOUCHED {
        allocating = touching;
    }
    let mut allocating = Some(allocating);
    of.into_iter()
        .filter_map(|(collector, samples)| {
            let seconds = view.sample_seconds(&samples);
            // A program that makes objects has a collector: it stands out where it is much of the program's own time.
            if seconds < LEAST * view.capacity() || seconds < COLLECTS * view.context.running {
                return None;
            }
            let (mut copies, mut calls, mut processes) = (0.0, Most::default(), Most::default());
            for &at in &samples {
                let sample = &view.samples[at];
                copies += if copies_page(sample) { sample.seconds } else { 0.0 };
                processes.add(sample.process, sample.seconds);
                let lines: Vec<&str> = sample.user.iter().copied().filter(|frame| is_line(frame)).collect();
                calls.add(lines.first().copied().unwrap_or(""), sample.seconds);
            }
            let of_copies = copies >= COPIES * seconds;
            let allocator = match collector {
                Collector::Go | Collector::Java => {
                    allocating.take().and_then(Most::top).map_or(String::new(), |(f, _)| f)
                }
                _ => String::new(),
            };
            let process = processes.top().map_or(String::new(), |(name, _)| name);
            let from = calls.words(2);
            let limit = limit(view, collector, &process);
            let asked = (collector == Collector::Java).then(|| asked(view, &process, seconds)).flatten();
            let mut subject = collector.language().to_string();
            if boxes(&allocator) {
                subject += " boxes";
            }
            let when = match &limit {
                _ if asked.is_some() => {
                    subject = format!("{subject} {}", asked.as_ref().map_or("", |(what, _)| what));
                    vec![When::CollectorAsked, When::CollectorWork]
                }
                Some((name, _)) => {
                    subject = format!("{subject} {name}");
                    vec![When::CollectorLimit, When::CollectorWork]
                }
                None if of_copies => vec![When::CollectorCopies, When::CollectorWork],
                None => vec![When::CollectorWork],
            };
            let (name, value) = limit.unwrap_or_default();
            let direct = asked.as_ref().is_some_and(|(what, _)| *what == "direct memory");
            let process_name = process.clone();
            let stands = asked.as_ref().map(|(_, places)| places.total());
            let (asks, place) = asked.map_or_else(Default::default, |(_, places)| places.place(&process));
            let mut claim = Claim::new(Kind::Runtime, when, subject)
                .with("place", place)
                .with("name", name)
                .with("value", value)
                .with("language", collector.language())
                .with("process", process)
                .with("from", from.clone())
                .with(
                    "in_function",
                    if allocator.is_empty() { String::new() } else { format!(", in {allocator} first") },
                );
            claim.key = format!("collector {}", collector.language());
            // Threads wait until it has collected.
            if let Some(seconds) = stands {
                claim.stands_still(seconds, view.elapsed());
            }
            if boxes(&allocator) {
                let makes = |s: &&Sampled<'_>| s.user.iter().any(|frame| boxes(frame));
                claim.dear = view.samples.iter().filter(makes).map(|s| s.seconds).sum();
            }
            for &at in &samples {
                let sample = &view.samples[at];
                let what = match sample.layer() {
                    _ if copies_page(sample) => "copying pages shared since fork",
                    Layer::Faults => "page faults of it",
                    _ if sample.user.iter().any(|f| f.starts_with("runtime.gcAssistAlloc")) => {
                        "help by threads that allocate"
                    }
                    _ => "marking and sweeping",
                };
                claim.ask(Source::Sample(at), sample.seconds, what);
            }
            // Buffers outside of the heap are made, filled with zeros and freed.
            for (at, sample) in view.samples.iter().enumerate().filter(|_| direct) {
                let makes = sample.user.iter().any(|f| begins_with(f, &DIRECT));
                if makes && sample.process == process_name && !samples.contains(&at) {
                    claim.ask(Source::Sample(at), sample.seconds, "making and freeing buffers");
                }
            }
            for &at in in_java.iter().filter(|_| collector == Collector::Java) {
                claim.ask(Source::Sample(at), view.samples[at].seconds, "taking and zeroing memory");
            }
            claim.line("asked by", asks);
            if !allocator.is_empty() {
                claim.line("allocates", allocator);
            }
            if !from.is_empty() {
                claim.line("called in", from);
            }
            Some(claim)
        })
        .collect()
}

/// Functions by which Java makes and frees buffers outside of the heap.
const DIRECT: [&str; 6] = [
    "java.nio.DirectByteBuffer.",
    "java.nio.DirectByteBuffer$",
    "java.nio.Bits.",
    "Unsafe_AllocateMemory",
    "Unsafe_FreeMemory",
    "Unsafe_SetMemory",
];

/// Page faults and zeroing in methods of Java from which it is known which of them make most objects.
const TOUCHED: u64 = 10;

/// The method of Java that touches memory for the first time, and the program's own that calls it.
fn touches_in_java(frames: &[&str]) -> Option<String> {
    let leaf = frames.first().filter(|f| f.contains('.') && !f.contains("::") && !f.starts_with('['))?;
    let java = frames.iter().any(|f| f.starts_with("JavaCalls::") || f.starts_with("JavaThread::"));
    let own = frames.iter().find(|frame| !is_library(frame) && frame.contains('.')).filter(|_| java)?;
    Some(if own == leaf { (*leaf).to_string() } else { format!("{leaf} called in {own}") })
}

/// Whether a function makes an object of a number: `java.lang.Integer.valueOf`.
fn boxes(made_in: &str) -> bool {
    const NUMBERS: [&str; 6] = ["Integer", "Long", "Double", "Float", "Short", "Character"];
    let bare = made_in.split(' ').next().unwrap_or("");
    NUMBERS.iter().any(|number| bare.strip_prefix("java.lang.") == Some(&format!("{number}.valueOf")))
}

/// The part of the time that a collector takes for which threads wait below a call for a collection from which these calls are
/// what it runs for. Its own threads share the work, so that the wait is shorter than their time.
const ASKED: f64 = 0.25;

/// The call by which a program has Java collect, with the places of the calls, where threads wait below it for much of the time that
/// collecting takes.
fn asked(view: &View<'_>, process: &str, seconds: f64) -> Option<(&'static str, Most)> {
    const CALL: &str = "java.lang.Runtime.gc";
    /// By which the library makes room for buffers outside of the heap.
    const RESERVES: &str = "java.nio.Bits.reserveMemory";
    let (mut direct, mut all, mut places) = (0.0, 0.0, Most::default());
    for s in view.slept.iter().filter(|s| s.process == process) {
        let Some(at) = s.user.iter().rposition(|f| *f == CALL || *f == RESERVES) else { continue };
        all += s.seconds;
        direct += if s.user[at] == RESERVES { s.seconds } else { 0.0 };
        let library = |f: &&str| f.starts_with("java.") || f.starts_with("jdk.") || f.starts_with("sun.");
        let program: Vec<&str> = s.user[at + 1..].iter().copied().skip_while(library).collect();
        places.add(&Place::of_frames(&program, "futex").words(), s.seconds);
    }
    let what = if direct >= 0.5 * all { "direct memory" } else { "System.gc" };
    (all >= ASKED * seconds).then_some((what, places))
}

/// A setting in a process's environment that has its collector run more often than it would, with its value.
fn limit(view: &View<'_>, collector: Collector, process: &str) -> Option<(&'static str, String)> {
    /// Of the live heap by which Go's grows between collections.
    const USUAL: u64 = 100;
    if collector != Collector::Go {
        return None;
    }
    let set = |name| super::pools::setting(view, process, name);
    let growth = set("GOGC").filter(|growth| *growth < USUAL).map(|growth| ("GOGC", growth.to_string()));
    growth.or_else(|| set("GOMEMLIMIT").map(|bytes| ("GOMEMLIMIT", ncpu_table::size::words(bytes))))
}

/// Processes with a Java virtual machine that began without a compiler, and interprets all code, or without the one that optimizes.
fn interpreted(view: &View<'_>) -> Vec<Claim> {
    let Ok(Some(t)) = threads::Reader::open(view.context.recording) else { return Vec::new() };
    let mut of: HashMap<&str, Vec<&str>> = HashMap::new();
    for row in t.rows() {
        of.entry(t.process.get(row).unwrap_or("")).or_default().push(t.thread.get(row).unwrap_or(""));
    }
    // These threads hardly run after the start: an observation that began later has not all of them, and may have missed
    // compilers that had no work.
    const AT_THE_START: [&str; 4] = ["VM Thread", "Signal Dispatch", "Finalizer", "Reference Handl"];
    of.retain(|_, threads| {
        let has = |start: &str| threads.iter().any(|thread| thread.starts_with(start));
        AT_THE_START.iter().all(|start| has(start)) && !OPTIMIZES.iter().any(|start| has(start))
    });
    let mut claims = Vec::new();
    for (process, threads) in of {
        let compiled = threads.iter().any(|thread| thread.starts_with(COMPILES));
        let runs = |s: &Sampled<'_>| {
            s.process == process && s.class == SampleClass::User && !is_java_machines(s.thread)
        };
        let samples: Vec<usize> =
            view.samples.iter().enumerate().filter(|(_, s)| runs(s)).map(|(at, _)| at).collect();
        if view.sample_seconds(&samples) < INTERPRETS * view.capacity() {
            continue;
        }
        let (when, part, what) = match compiled {
            true => (When::LightlyCompiled, SPARED, "what optimized code would spare"),
            false => (When::Interpreted, 1.0, "interpreting"),
        };
        let mut claim = slowly_run(view, (when, "Java"), ("Java", process), &samples, (part, what));
        claim.key = format!("{} {process}", when.word());
        if compiled {
            // The upper end: a third of the time is left.
            claim.dear = claim.asked();
        }
        claims.push(claim);
    }
    claims
}

/// The cause that these samples of a process are not run as fast as they could be: a part of them is spared.
fn slowly_run(
    view: &View<'_>,
    (when, subject): (When, &'static str),
    (language, process): (&'static str, &str),
    samples: &[usize],
    (part, what): (f64, &'static str),
) -> Claim {
    let mut places = Most::default();
    for &at in samples {
        places.add(&Place::of(&view.samples[at], "").words(), view.samples[at].seconds);
    }
    let (words, place) = places.place(process);
    let mut claim = Claim::new(Kind::Runtime, [when], subject)
        .with("language", language)
        .with("process", process)
        .with("place", place);
    for &at in samples {
        claim.ask(Source::Sample(at), part * view.samples[at].seconds, what);
    }
    claim.line("runs", words);
    claim
}

/// The part of a process's user code that V8's interpreter has where nothing is compiled, and how many seconds of it say so: a program
/// that has just begun interprets what it runs for the first time.
const BY_INTERPRETER: f64 = 0.5;
const INTERPRETED_FOR: f64 = 0.5;

/// Whether a function is a bytecode's in V8's interpreter.
fn is_bytecode_of_v8(frame: &str) -> bool {
    frame.strip_prefix("Builtins_").is_some_and(|name| name.ends_with("Handler"))
}

/// Whether a sample is of V8's compilers, or of what begins or leaves their code.
fn of_compilers_of_v8(sample: &Sampled<'_>) -> bool {
    const OF_COMPILERS: [&str; 6] = [
        "v8::internal::compiler::",
        "v8::internal::maglev::",
        "v8::internal::baseline::",
        "v8::internal::Deoptimizer::",
        "Builtins_InterpreterOnStackReplacement",
        "Builtins_Baseline",
    ];
    let of = |frame: &&str| OF_COMPILERS.iter().any(|start| frame.starts_with(start));
    compiles_beside(sample) || sample.user.iter().any(of)
}

/// Processes of V8 in which its interpreter runs the program all the time, since its compilers are switched off.
fn interpreted_by_v8(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<&str, (Vec<usize>, f64)> = HashMap::new();
    for (at, s) in view.samples.iter().enumerate().filter(|(_, s)| s.class == SampleClass::User) {
        let (bytecodes, all) = of.entry(s.process).or_default();
        *all += s.seconds;
        if s.user.first().is_some_and(|leaf| is_bytecode_of_v8(leaf)) {
            bytecodes.push(at);
        }
    }
    let mut claims = Vec::new();
    for (process, (bytecodes, all)) in of {
        let seconds = view.sample_seconds(&bytecodes);
        if seconds < BY_INTERPRETER * all
            || seconds < INTERPRETED_FOR
            || seconds < INTERPRETS * view.capacity()
            || view.samples.iter().any(|s| s.process == process && of_compilers_of_v8(s))
        {
            continue;
        }
        let interpreted = (When::Interpreted, "V8");
        let mut claim = slowly_run(view, interpreted, ("V8", process), &bytecodes, (1.0, "interpreting"));
        claim.key = format!("interpreted {process}");
        claim.dear = all;
        claims.push(claim);
    }
    claims
}

/// The part of a method's own time in which it is interpreted where it is not compiled.
const NOT_COMPILED: f64 = 0.9;

/// Methods that HotSpot goes on interpreting, while it has compilers.
fn not_compiled(view: &View<'_>) -> Vec<Claim> {
    let Ok(Some(t)) = threads::Reader::open(view.context.recording) else { return Vec::new() };
    let compiler =
        |row: &usize| OPTIMIZES.iter().any(|o| t.thread.get(*row).is_some_and(|n| n.starts_with(o)));
    let with: HashSet<&str> = t.rows().filter(compiler).filter_map(|row| t.process.get(row)).collect();
    let mut of: HashMap<(&str, &str), (Vec<usize>, f64)> = HashMap::new();
    for (at, s) in view.samples.iter().enumerate().filter(|(_, s)| s.class == SampleClass::User) {
        let Some(&leaf) = s.user.first().filter(|_| with.contains(s.process)) else { continue };
        let (interpreted, all) = of.entry((s.process, leaf)).or_default();
        *all += s.seconds;
        if s.user.get(1) == Some(&INTERPRETER) {
            interpreted.push(at);
        }
    }
    // Of the CPUs that other programs left it.
    let left = view.capacity() - view.seconds(Layer::Others);
    let mut claims = Vec::new();
    for ((process, method), (samples, all)) in of {
        let seconds = view.sample_seconds(&samples);
        if seconds < NOT_COMPILED * all || seconds < INTERPRETED_FOR || seconds < INTERPRETS * left {
            continue;
        }
        let interpreted = (When::Interpreted, "method");
        let mut claim = slowly_run(view, interpreted, ("Java", process), &samples, (1.0, "interpreting"));
        claim.key = format!("not compiled {method}");
        claims.push(claim);
    }
    claims
}

/// Whether a sample is of a compiler that works beside the program: those of the Java virtual machine and of V8.
pub(super) fn compiles(sample: &Sampled<'_>) -> bool {
    let thread = sample.thread.split('#').next().unwrap_or("");
    thread.starts_with("C1 CompilerThre") || thread.starts_with("C2 CompilerThre") || compiles_beside(sample)
}

/// Whether a sample is of V8's compilers in a thread of their own.
fn compiles_beside(sample: &Sampled<'_>) -> bool {
    const DISPATCH: [&str; 4] = [
        "v8::internal::OptimizingCompileDispatcher::",
        "v8::internal::maglev::MaglevConcurrentDispatcher::",
        "v8::internal::baseline::ConcurrentBaselineCompiler::",
        "v8::internal::LazyCompileDispatcher::",
    ];
    sample.user.iter().any(|frame| DISPATCH.iter().any(|start| frame.starts_with(start)))
}

/// Whether a sample is of V8's compilers, or throws away what they made, in the program's own thread.
fn compiles_in_place(sample: &Sampled<'_>) -> bool {
    const COMPILES: [&str; 6] = [
        "v8::internal::Compiler::CompileOptimized",
        "v8::internal::Runtime_CompileOptimized",
        "v8::internal::Runtime_NotifyDeoptimized",
        "v8::internal::Deoptimizer::",
        "v8::internal::OptimizedCompilationJob::",
        "v8::internal::compiler::",
    ];
    !compiles_beside(sample)
        && sample.user.iter().any(|frame| COMPILES.iter().any(|start| frame.starts_with(start)))
}

/// Memory that glibc's malloc and free fill with a byte: `MALLOC_PERTURB_` or `glibc.malloc.perturb` is set. Theirs are the only calls of
/// memset right below the allocator's functions, but for calloc, which clears memory.
fn filled(view: &View<'_>) -> Vec<Claim> {
    let fills = |sample: &Sampled<'_>| match &sample.user[..] {
        [leaf, caller, ..] => {
            c_name(leaf).starts_with("memset")
                && is_c_allocator(caller)
                && !c_name(caller).ends_with("calloc")
        }
        _ => false,
    };
    let mut of: HashMap<&str, (Vec<usize>, Most)> = HashMap::new();
    let mut on_cpu: HashMap<&str, f64> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        *on_cpu.entry(sample.process).or_default() += sample.seconds;
        if fills(sample) {
            let (samples, places) = of.entry(sample.process).or_default();
            samples.push(at);
            places.add(&Place::beyond(&sample.user, is_allocator).words(), sample.seconds);
        }
    }
    let mut claims = Vec::new();
    for (process, (samples, places)) in of {
        if view.sample_seconds(&samples) < FILLED * on_cpu[process] {
            continue;
        }
        let (words, place) = places.place(process);
        let mut claim = Claim::new(Kind::Runtime, [When::FilledByMalloc], process)
            .with("process", process)
            .with("place", place);
        claim.key = format!("filled by malloc {process}");
        for at in samples {
            claim.ask(Source::Sample(at), view.samples[at].seconds, "filling memory");
        }
        claim.line("called in", words);
        claims.push(claim);
    }
    claims
}

/// Whether a function of C++'s or Rust's library grows a vector or a text to just the size that it is asked for.
fn grows_exactly(frame: &str) -> bool {
    let cxx =
        ["std::vector<", "std::__cxx11::basic_string<", "std::string::"].iter().any(|t| frame.starts_with(t))
            && frame.split('(').next().is_some_and(|bare| bare.ends_with("::reserve"));
    let rust = frame.trim_start_matches('<').starts_with("alloc::")
        && ["::grow_exact", "::try_reserve_exact", "::reserve_exact"].iter().any(|end| frame.contains(end));
    cxx || rust
}

/// Vectors and texts that are grown by little, again and again, to just the size that is needed next: all is copied each time.
fn grown(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        if sample.user.iter().any(|frame| grows_exactly(frame)) {
            of.entry(sample.process).or_default().push(at);
        }
    }
    of.retain(|process, samples| {
        let seconds = view.sample_seconds(samples);
        seconds >= KNOWN_PARTICULAR * view.on_cpu(process) && seconds >= LEAST * view.capacity()
    });
    let of_process = |(process, samples): (&str, Vec<usize>)| {
        let (mut places, mut functions) = (Most::default(), Most::default());
        let mut claim = Claim::new(Kind::Runtime, [When::ExactGrowth], process);
        for at in samples {
            let sample = &view.samples[at];
            let grows = sample.user.iter().rfind(|frame| grows_exactly(frame)).copied();
            functions.add(&super::names::short(grows.unwrap_or("")), sample.seconds);
            places.add(&Place::beyond(&sample.user, grows_exactly).words(), sample.seconds);
            let what = if sample.layer() == Layer::Faults {
                "page faults of new memory"
            } else {
                "copying all elements"
            };
            claim.ask(Source::Sample(at), sample.seconds, what);
        }
        let (words, place) = places.place(process);
        let function = functions.top().map_or_else(String::new, |(f, _)| f);
        let mut claim = claim.with("process", process).with("place", place).with("function", function);
        claim.key = format!("exact growth {process}");
        claim.line("called in", words);
        claim
    };
    of.into_iter().map(of_process).collect()
}

/// The compilers of the Java virtual machine and of V8.
fn compilers(view: &View<'_>) -> Vec<Claim> {
    let of_v8 = |s: &Sampled<'_>| compiles_beside(s) || compiles_in_place(s);
    let java = compiler(view, "Java", COMPILING, |s| compiles(s) && !compiles_beside(s));
    java.into_iter().chain(compiler(view, "V8", COMPILING_V8, of_v8)).collect()
}

/// One of them, from this part of capacity on. A program that runs on compiles for a while.
fn compiler(view: &View<'_>, language: &str, least: f64, of: impl Fn(&Sampled<'_>) -> bool) -> Option<Claim> {
    let of: Vec<usize> = (0..view.samples.len()).filter(|&at| of(&view.samples[at])).collect();
    if of.is_empty() || view.sample_seconds(&of) < least * view.capacity() {
        return None;
    }
    // Of compilers in threads of their own nobody called them.
    let mut places = Most::default();
    for s in of.iter().map(|&at| &view.samples[at]).filter(|s| compiles_in_place(s)) {
        let lines: Vec<&str> = s.user.iter().copied().filter(|frame| is_line(frame)).collect();
        places.add(&Place::of_frames(&lines, "").words(), s.seconds);
    }
    let (words, place) = places.place(language);
    let mut claim = Claim::new(Kind::Runtime, [When::Compiling], language)
        .with("language", language)
        .with("place", place);
    claim.key = format!("compiling {language}");
    // Code that was thrown away is interpreted meanwhile.
    let interprets = |s: &&Sampled<'_>| {
        let leaf = s.user.first().filter(|leaf| leaf.starts_with("Builtins_"));
        language == "V8" && s.class == SampleClass::User && leaf.is_some() && !compiles_in_place(s)
    };
    claim.dear = view.samples.iter().filter(interprets).map(|s| s.seconds).sum();
    for at in of {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "compiling");
    }
    claim.line("called in", words);
    Some(claim)
}

/// The frames of a sample among which entries look for functions that they name.
type Looks = for<'s, 'a> fn(&'s Sampled<'a>) -> &'s [&'a str];

/// Where threads of Java wait for what their virtual machine's own thread does for them.
fn asked_for_in(view: &View<'_>, function: &str) -> Most {
    let mut places = Most::default();
    let waits = |s: &&Slept<'_>| s.user.iter().any(|f| f.starts_with("VMThread::execute"));
    for s in view.slept.iter().filter(|_| function.starts_with("VM_")).filter(waits) {
        let program: Vec<&str> = s
            .user
            .iter()
            .copied()
            .skip_while(|f| f.contains("::") || !f.split('@').next().is_some_and(|bare| bare.contains('.')))
            .collect();
        places.add(&Place::of_frames(&program, "futex").words(), s.seconds);
    }
    if !places.is_empty() || !function.starts_with("VM_") {
        return places;
    }
    // Waits that are short may be in no stack: what these threads do besides.
    const ASK: [&str; 3] =
        ["java.lang.Thread.getAllStackTraces", "java.lang.Thread.dumpThreads", "sun.management.ThreadImpl"];
    for s in &view.samples {
        if let Some(at) = s.user.iter().rposition(|f| ASK.iter().any(|start| f.starts_with(start))) {
            places.add(&Place::of_frames(&s.user[at + 1..], "").words(), s.seconds);
        }
    }
    places
}

/// The part of a program's time on CPU that functions of an entry have at least.
pub(super) fn least_of_process(view: &View<'_>, entry: &str) -> f64 {
    if view.context.causes.rank(entry) >= PARTICULAR { KNOWN_PARTICULAR } else { KNOWN }
}

/// The step of an iterator that Python code asks for by next(), and not in a loop.
fn step<'s, 'a>(sample: &'s Sampled<'a>) -> &'s [&'a str] {
    match sample.user.iter().position(|frame| *frame == "builtin_next") {
        Some(at @ 1..) => &sample.user[at - 1..at],
        _ => &[],
    }
}

/// Whether a function is of C++'s or Rust's standard library.
fn is_cxx_library(frame: &str) -> bool {
    is_library(frame) && frame.contains("::")
}

/// A sample of a function that an entry names, the part of it, and the function's name where it was inlined.
type Known<'a> = (usize, f64, Option<&'a str>);

/// The part of a library's call that known functions have from which the call is made for their sake.
const FOR_THEM: f64 = 0.5;

/// The library's function that a program calls, and that the outermost known function works for.
fn call_of<'a>(sample: &Sampled<'a>, known: impl Fn(&str) -> bool) -> Option<&'a str> {
    let outside = &sample.user[sample.user.iter().rposition(|frame| known(frame))? + 1..];
    let between = outside.iter().take_while(|frame| is_library(frame) && !is_line(frame)).count();
    let called = between.checked_sub(1).map(|at| outside[at])?;
    // Beyond it is a function of the program.
    outside.get(between).filter(|frame| !begins(frame)).map(|_| called)
}

/// Seconds of a library's calls beside those of known functions, where the calls are mostly these: `snprintf` of what writes a
/// floating-point number. A program without the functions makes no such calls.
fn rest_of_calls(view: &View<'_>, samples: &HashSet<usize>, known: impl Fn(&str) -> bool) -> f64 {
    let mut calls: HashMap<(&str, &str), (f64, f64)> = HashMap::new();
    for sample in samples.iter().map(|&at| &view.samples[at]) {
        if let Some(call) = call_of(sample, &known) {
            calls.entry((sample.process, call)).or_default().0 += sample.seconds;
        }
    }
    if calls.is_empty() {
        return 0.0;
    }
    for (_, sample) in view.samples.iter().enumerate().filter(|(at, _)| !samples.contains(at)) {
        let of = sample.user.iter().rev().find(|frame| calls.contains_key(&(sample.process, **frame)));
        if let Some((_, rest)) = of.and_then(|call| calls.get_mut(&(sample.process, *call))) {
            *rest += sample.seconds;
        }
    }
    let theirs = calls.into_values().filter(|(of, rest)| *of >= FOR_THEM * (of + rest));
    theirs.map(|(_, rest)| rest).sum()
}

/// Whether the kernel gives a Java virtual machine a page of its heap: code that writes new objects meets it first, whatever it
/// writes, until the collector gives the same memory again.
fn is_page_of_java_heap(sample: &Sampled<'_>) -> bool {
    sample.layer() == Layer::Faults && sample.user.iter().any(|f| f.starts_with("JavaCalls::"))
}

/// Whether these are turns that Go's runtime gives up itself, as in runtime.GC, which waits until all is swept. The rest of giving up a
/// turn is on a stack of the runtime's own, without a caller.
fn yields_of_the_runtime(view: &View<'_>, samples: &[Known<'_>]) -> bool {
    let (mut of_runtime, mut of_program) = (0.0, 0.0);
    for &(at, part, _) in samples {
        let user = &view.samples[at].user;
        let Some(call) = user.iter().rposition(|f| *f == "runtime.Gosched") else { continue };
        match user.get(call + 1) {
            Some(caller) if caller.starts_with("runtime.") => of_runtime += part * view.samples[at].seconds,
            _ => of_program += part * view.samples[at].seconds,
        }
    }
    of_runtime > of_program
}

/// Functions that entries name, where most of the program's time on CPU is in them.
fn functions(view: &View<'_>, when: When, looks: Looks) -> Vec<Claim> {
    // A stack that breaks off says nothing of who called, and one of compiled code alone whose names are not known nothing at all.
    let broken = |f: &&str| f.starts_with("[forgotten") || *f == "[unknown]";
    let whole = |s: &&Sampled<'_>| {
        !s.user.iter().any(broken) && (s.user.is_empty() || s.user.iter().any(|f| *f != "[anon]"))
    };
    // Compilers of a runtime work while the program is young.
    let all: f64 = view.samples.iter().filter(|s| !compiles(s)).filter(whole).map(|s| s.seconds).sum();
    let named = |frame| view.entry(when, frame).map(|entry| (entry, frame));
    let inlined = Inlined::new(view, named);
    let mut of: HashMap<&str, Vec<Known<'_>>> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| !is_page_of_java_heap(s)) {
        // A function that an entry names may call one of another entry: each has what it asks for.
        let known: Vec<Option<&str>> = looks(sample).iter().map(|frame| view.entry(when, frame)).collect();
        let mut entries: Vec<&str> = known.iter().copied().flatten().collect();
        // A library's function that an entry names has others of the library called: these are the library's own matter.
        entries.retain(|&entry| {
            let outermost = known.iter().rposition(|of| *of == Some(entry)).map_or(0, |at| at + 1);
            let callers = looks(sample)[outermost..].iter().zip(&known[outermost..]);
            // That the library is called at all says less than a function of it that another entry names.
            let hides = |of: &Option<&str>| of.is_some_and(|of| of == entry || of != ANY_LIBRARY);
            !callers.take_while(|(frame, _)| is_cxx_library(frame)).any(|(_, of)| hides(of))
        });
        entries.sort_unstable();
        entries.dedup();
        // Functions that were put into the innermost one.
        let leaf = looks(sample).first().filter(|_| sample.class == SampleClass::User);
        for &((entry, function), part) in leaf.and_then(|leaf| inlined.parts.get(leaf)).into_iter().flatten()
        {
            if !entries.contains(&entry) {
                of.entry(entry).or_default().push((at, part, Some(function)));
            }
        }
        entries.into_iter().for_each(|entry| of.entry(entry).or_default().push((at, 1.0, None)));
    }
    let mut claims = Vec::new();
    for (entry, samples) in of {
        let seconds: f64 = samples.iter().map(|&(at, part, _)| part * view.samples[at].seconds).sum();
        let known = least_of_process(view, entry);
        // Of the CPUs that other programs left it.
        let left = view.capacity() - view.seconds(Layer::Others);
        if seconds < known * all || seconds < 0.05 * left || yields_of_the_runtime(view, &samples) {
            continue;
        }
        let (mut functions, mut lines, mut processes) = (Most::default(), Most::default(), Most::default());
        for &(at, part, inlined) in &samples {
            let sample = &view.samples[at];
            let seconds = part * sample.seconds;
            processes.add(sample.process, seconds);
            let known = |frame: &str| view.entry(when, frame) == Some(entry);
            // The outermost is what the program called.
            let called = inlined.or_else(|| looks(sample).iter().rfind(|frame| known(frame)).copied());
            functions.add(called.unwrap_or(""), seconds);
            // Threads of Go that look for work have no caller of the program's.
            if !sample.user.iter().all(|frame| known(frame) || frame.starts_with("runtime.")) {
                lines.add(&Place::beyond(&sample.user, known).words(), seconds);
            }
        }
        let Some((function, _)) = functions.top() else { continue };
        let process = processes.top().map_or_else(String::new, |(name, _)| name);
        let asked = asked_for_in(view, &function);
        let (place, line) = if asked.is_empty() { lines.place(&process) } else { asked.place(&process) };
        let mut claim = Claim::new(Kind::Runtime, [when], function.clone())
            .with("function", super::names::short(&function))
            .with("process", process)
            .with("place", line);
        claim.key = format!("function {function}");
        for &(at, part, _) in &samples {
            claim.ask(Source::Sample(at), part * view.samples[at].seconds, "in the function");
        }
        let known = |frame: &str| view.entry(when, frame) == Some(entry);
        let samples: HashSet<usize> = samples.iter().map(|&(at, ..)| at).collect();
        claim.dear += rest_of_calls(view, &samples, known);
        claim.line("called in", place);
        claims.push(claim);
    }
    claims
}
