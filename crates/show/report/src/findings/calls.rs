//! System calls: one kind at a high rate, loops in which a call returns for nothing, and processes that begin and end.

use std::collections::{HashMap, HashSet};

use ncpu_schema::{IdleReason, Layer, Microstate, SampleClass, threads};

use super::claim::{Claim, Kind, Source};
use super::places::{Most, Place, is_wrapper};
use super::results::Results;
use super::system_calls::{MAPPING, SYNC, call_in, call_of};
use super::view::{Sampled, View, on_cpu};
use crate::causes::When;
use crate::onion::evidence::charged;

/// Calls by which processes and threads begin and end.
pub(super) const LIVES: [&str; 9] =
    ["execve", "clone", "clone3", "vfork", "fork", "wait4", "waitid", "exit", "exit_group"];

/// Calls that wait for any of several descriptors.
const READY: [&str; 7] = ["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"];

/// Those that look at each descriptor, each time.
const LOOKS: [&str; 4] = ["poll", "ppoll", "select", "pselect6"];

/// The part of a call on the way into the kernel and out of it from which the call is short.
const SHORT: f64 = 0.12;

/// Short processes a second that are many.
pub(super) const MANY: f64 = 40.0;

/// A short process's CPU time, on average, of which most is for having the process.
const BRIEF: f64 = 0.006;

/// The same by the process's name: a server of PostgreSQL reads the catalogue before it does anything.
fn brief(name: &str) -> f64 {
    const SERVER: f64 = 0.03;
    if name == "postgres" { SERVER } else { BRIEF }
}

/// What a process's calls took.
#[derive(Default)]
struct Taken {
    /// In the kernel.
    inside: Vec<usize>,
    /// On the way into it and out of it, and in the function that calls it.
    entry: Vec<usize>,
    seconds: f64,
    at_entry: f64,
}

/// Samples by process and call.
struct Calls<'a> {
    of: HashMap<(&'a str, &'a str), Taken>,
    results: HashMap<(&'a str, &'a str), Results>,
}

impl<'a> Calls<'a> {
    fn of(view: &View<'a>) -> Calls<'a> {
        let mut of: HashMap<(&'a str, &'a str), Taken> = HashMap::new();
        // By which function each call is made, by process: what is at the way in is known by that.
        let mut by: HashMap<(&'a str, &'a str), HashMap<&'a str, f64>> = HashMap::new();
        let add = |taken: &mut Taken, at: usize, entry: bool| {
            let seconds = view.samples[at].seconds;
            if entry { &mut taken.entry } else { &mut taken.inside }.push(at);
            taken.seconds += seconds;
            taken.at_entry += if entry { seconds } else { 0.0 };
        };
        let mut unknown = Vec::new();
        for (at, sample) in view.samples.iter().enumerate() {
            let leaf = sample.user.first().copied().unwrap_or("");
            match call_of(sample) {
                Some("entry") => unknown.push(at),
                Some(call) => {
                    *by.entry((sample.process, leaf)).or_default().entry(call).or_default() += sample.seconds;
                    add(of.entry((sample.process, call)).or_default(), at, false);
                }
                None if sample.class == SampleClass::User => unknown.push(at),
                None => {}
            }
        }
        for at in unknown {
            let sample = &view.samples[at];
            let Some(&leaf) = sample.user.first() else { continue };
            let Some(calls) = by.get(&(sample.process, leaf)) else { continue };
            let top = calls.iter().max_by(|a, b| a.1.total_cmp(b.1).then_with(|| b.0.cmp(a.0)));
            let Some((&call, _)) = top else { continue };
            // Code of the program's own that makes a call is not a part of it.
            if !sample.kernel.is_empty() || is_wrapper(leaf, call) || leaf == "[vdso]" {
                add(of.entry((sample.process, call)).or_default(), at, true);
            }
        }
        // The function that makes a call names the call of a result, as it does at the way in.
        let mut results: HashMap<(&'a str, &'a str), Results> = HashMap::new();
        for ((process, leaf), found) in super::results::by_function(view) {
            let calls = by.get(&(process, leaf));
            let top = calls
                .and_then(|calls| calls.iter().max_by(|a, b| a.1.total_cmp(b.1).then_with(|| b.0.cmp(a.0))));
            if let Some((&call, _)) = top {
                results.entry((process, call)).or_default().add(&found);
            }
        }
        Calls { of, results }
    }
}

/// Seconds by microstate of the threads of a process that were on CPU at all.
fn states(view: &View<'_>, process: &str, of: &[Microstate]) -> f64 {
    let Ok(Some(t)) = threads::Reader::open(view.context.recording) else { return 0.0 };
    let rows = t.rows().filter(|&row| t.process.get(row) == Some(process));
    rows.flat_map(|row| of.iter().map(move |&m| (row, m))).filter_map(|(row, m)| t.micro.get(row, m)).sum()
}

/// Functions of the kernel that walk a list, and call others for what they find in it: only their own time is that of the walk.
const WALKS: [&str; 3] = ["posix_lock_inode", "posix_test_lock", "wait_consider_task"];

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let calls = Calls::of(view);
    let mut claims = processes(view);
    claims.extend(herd(view, &calls));
    claims.extend(connections(view));
    claims.extend(opened(view, &calls));
    claims.extend(made(view, &calls));
    let least = 0.01 * view.capacity();
    for ((process, call), taken) in &calls.of {
        let mut functions = Most::default();
        for &at in taken.inside.iter() {
            let kernel = &view.samples[at].kernel;
            let of = kernel.iter().find(|f| view.entry(When::CallFunction, f).is_some());
            let of = of.filter(|f| !WALKS.contains(*f) || kernel.first() == Some(*f));
            functions.add(of.copied().unwrap_or(""), view.samples[at].seconds);
        }
        let mut function = functions.top().filter(|(_, share)| *share >= 0.3).map(|(f, _)| f);
        // One sample or two on the way in are there by chance.
        let met: u64 = taken.entry.iter().map(|&at| view.samples[at].samples).sum();
        let tiny =
            MOVES.contains(call) && calls.results.get(&(*process, *call)).is_some_and(Results::are_tiny);
        let short = tiny || taken.at_entry >= SHORT * taken.seconds && met >= 3;
        // A call that waits for children does not work, but for one that looks at many of them.
        let waits = ["wait4", "waitid"].contains(call);
        if waits && short {
            function = None;
        }
        let polls = *call == "wait4" && polls_children(calls.results.get(&(*process, *call)));
        let skip = LIVES.contains(call) && !polls && !(waits && function.is_some())
            || MAPPING.contains(call)
            || SYNC.contains(call)
            || *call == "futex";
        let samples: u64 = taken.inside.iter().chain(&taken.entry).map(|&at| view.samples[at].samples).sum();
        if skip || taken.seconds < least || samples < 5 {
            continue;
        }
        let of_process = view.on_cpu(process);
        let ready = READY.contains(call);
        let results = calls.results.get(&(*process, *call));
        let error = results.and_then(Results::error);
        let when = if let Some(function) = &function {
            (vec![When::CallFunction], function.clone())
        } else if let Some(error) = error.filter(|_| short || PATHS.contains(call)) {
            (vec![When::CallFails], format!("{call} {error}"))
        } else if LOOKS.contains(call) && !short && taken.seconds >= 0.05 * view.capacity() {
            (vec![When::ManyDescriptors], call.to_string())
        } else if ready
            && taken.seconds >= if short { 0.4 } else { MOSTLY } * of_process
            && (never_sleeps(view, process, of_process) || view.has_tireless_thread(process, RARELY))
        {
            (vec![When::EmptyWakeUps], call.to_string())
        } else if short || PATHS.contains(call) {
            (vec![When::CallAtRate], call.to_string())
        } else {
            continue;
        };
        let mut found = claim(view, process, call, taken, when, results);
        // Each sample met another call, or nearly: sleeps that are fewer do not lie between calls.
        let between = super::waiting::sleeps_of(view, process).filter(|(count, _)| *count >= samples as f64);
        if let (Some((count, slept)), true) = (between, function.is_some()) {
            let each = crate::onion::evidence::length(slept / count);
            found.line("sleeps", format!("{each} between, {} times", super::numbers::grouped(count)));
        }
        claims.push(found);
    }
    claims
}

/// Files that are opened, read or made, and closed again, one after another.
fn opened(view: &View<'_>, calls: &Calls<'_>) -> Vec<Claim> {
    const OF_FILES: [&str; 14] = [
        "openat",
        "open",
        "read",
        "pread64",
        "write",
        "close",
        "fstat",
        "newfstat",
        "newfstatat",
        "fstatat",
        "statx",
        "lseek",
        "unlink",
        "unlinkat",
    ];
    let mut processes: HashMap<&str, Vec<(&str, &Taken)>> = HashMap::new();
    for ((process, call), taken) in calls.of.iter().filter(|((_, call), _)| OF_FILES.contains(call)) {
        processes.entry(process).or_default().push((call, taken));
    }
    let mut claims = Vec::new();
    for (process, mut of) in processes {
        of.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds).then_with(|| a.0.cmp(b.0)));
        let part = |wanted: &[&str]| -> f64 {
            of.iter().filter(|(call, _)| wanted.contains(call)).map(|(_, taken)| taken.seconds).sum()
        };
        let (all, opens, closes) = (part(&OF_FILES), part(&["openat", "open"]), part(&["close"]));
        let fails = calls.results.get(&(process, "openat")).and_then(Results::error).is_some();
        // A file that is opened once is read for long.
        if opens < 0.01 * view.capacity() || opens < 0.2 * all || closes < 0.05 * all || fails {
            continue;
        }
        let (mut places, mut kinds, mut functions) = (Most::default(), Most::default(), Most::default());
        let mut claim = Claim::new(Kind::Calls, [When::FilesOpened], process);
        for (call, taken) in &of {
            kinds.add(call, taken.seconds);
            for (&at, what) in taken
                .inside
                .iter()
                .map(|at| (at, "in the calls"))
                .chain(taken.entry.iter().map(|at| (at, "into the kernel and back")))
            {
                let sample = &view.samples[at];
                let known = sample.kernel.iter().find(|f| view.entry(When::CallFunction, f).is_some());
                functions.add(known.copied().unwrap_or(""), sample.seconds);
                if *call == "openat" || *call == "open" {
                    places.add(&Place::of(sample, call).words(), sample.seconds);
                }
                claim.ask(Source::Sample(at), sample.seconds, what);
            }
        }
        // Another entry is more particular where it has these functions: directories, files of processes.
        if functions.top().is_some_and(|(_, share)| share >= 0.3) {
            continue;
        }
        let (place, function) = places.place(process);
        let mut claim = claim.with("process", process).with("place", function).with("calls", kinds.words(3));
        claim.key = format!("files {process}");
        claim.line("called in", place);
        claims.push(claim);
    }
    claims
}

/// Calls that make an object of the kernel which has a descriptor and no name, and which programs usually keep.
const MAKES: [&str; 12] = [
    "epoll_create",
    "epoll_create1",
    "timerfd_create",
    "eventfd",
    "eventfd2",
    "signalfd",
    "signalfd4",
    "pipe",
    "pipe2",
    "memfd_create",
    "io_uring_setup",
    "pidfd_open",
];

/// The part of a process's time on CPU that making such objects takes from which it is a pattern, and that of their ends, of it.
const MADE: f64 = 0.05;
const ENDED: f64 = 0.2;

/// Instances of epoll, timers, pipes and the like that are made and closed again, one after another.
fn made(view: &View<'_>, calls: &Calls<'_>) -> Vec<Claim> {
    // Descriptors of these are closed as well.
    const OTHERS: [&str; 6] = ["openat", "open", "socket", "accept", "accept4", "connect"];
    let seconds = |process: &str, of: &[&str]| -> f64 {
        of.iter().filter_map(|call| calls.of.get(&(process, *call))).map(|taken| taken.seconds).sum()
    };
    let mut processes: Vec<&str> =
        calls.of.keys().filter(|(_, call)| MAKES.contains(call)).map(|(process, _)| *process).collect();
    processes.sort_unstable();
    processes.dedup();
    processes.retain(|process| {
        let makes = seconds(process, &MAKES);
        makes >= 0.01 * view.capacity()
            && makes >= MADE * view.on_cpu(process)
            && seconds(process, &["close"]) >= ENDED * makes
            && seconds(process, &OTHERS) <= 0.2 * makes
    });
    let of_process = |process: &&str| {
        let (mut places, mut kinds) = (Most::default(), Most::default());
        let mut claim = Claim::new(Kind::Calls, [When::ObjectsMade], *process);
        // An instance of epoll takes its list of descriptors with it.
        let told = MAKES[..2].iter().any(|call| calls.of.contains_key(&(*process, *call)));
        let parts = MAKES
            .iter()
            .map(|call| (*call, "making them"))
            .chain([("close", "closing them")])
            .chain(told.then_some(("epoll_ctl", "telling them what to wait for")));
        for (call, what) in parts {
            let Some(taken) = calls.of.get(&(*process, call)) else { continue };
            for &at in taken.inside.iter().chain(&taken.entry) {
                let sample = &view.samples[at];
                if MAKES.contains(&call) {
                    kinds.add(call, sample.seconds);
                    places.add(&Place::of(sample, call).words(), sample.seconds);
                }
                claim.ask(Source::Sample(at), sample.seconds, what);
            }
        }
        let (words, place) = places.place(process);
        let mut claim = claim.with("process", *process).with("place", place).with("calls", kinds.words(3));
        claim.key = format!("objects made {process}");
        claim.line("called in", words);
        claim
    };
    processes.iter().map(of_process).collect()
}

/// Connections of TCP that are made and ended at such a rate that they cost.
fn connections(view: &View<'_>) -> Option<Claim> {
    const CONNECTS: [&str; 4] =
        ["tcp_v4_connect", "tcp_v6_connect", "__inet_stream_connect", "inet_stream_connect"];
    const LIVES: [&str; 12] = [
        "inet_create",
        "inet6_create",
        "inet_accept",
        "inet_csk_accept",
        "inet_release",
        "inet6_release",
        "tcp_close",
        "__tcp_close",
        "tcp_conn_request",
        "tcp_v4_syn_recv_sock",
        "tcp_v6_syn_recv_sock",
        "tcp_rcv_state_process",
    ];
    const ACCEPTED: [&str; 4] =
        ["inet_accept", "inet_csk_accept", "tcp_v4_syn_recv_sock", "tcp_v6_syn_recv_sock"];
    // A packet that says that nobody listens.
    const REFUSED: [&str; 4] = ["tcp_v4_send_reset", "tcp_v6_send_reset", "tcp_reset", "tcp_done_with_error"];
    let any = |s: &Sampled<'_>, of: &[&str]| of.iter().any(|f| s.in_kernel(f));
    let mut places = Most::default();
    let mut processes = Most::default();
    let (mut refused, mut accepted) = (0.0, 0.0);
    let mut claim = Claim::new(Kind::Calls, [When::Connections], "");
    for (at, sample) in view.samples.iter().enumerate() {
        let connects = any(sample, &CONNECTS);
        if !connects && !any(sample, &LIVES) {
            continue;
        }
        refused += if any(sample, &REFUSED) { sample.seconds } else { 0.0 };
        accepted += if any(sample, &ACCEPTED) { sample.seconds } else { 0.0 };
        if connects {
            places.add(&Place::of(sample, "connect").words(), sample.seconds);
            processes.add(sample.process, sample.seconds);
        }
        claim.ask(
            Source::Sample(at),
            sample.seconds,
            if connects { "connecting" } else { "accepting and closing" },
        );
    }
    if places.total() < 0.005 * view.capacity() || claim.asked() < 0.01 * view.capacity() {
        return None;
    }
    let (process, _) = processes.top()?;
    let (place, function) = places.place(&process);
    claim.subject = process.clone();
    // A connection that is made ends by a reset at times; one that is refused makes no socket of a server.
    if refused >= 0.05 * claim.asked() && accepted <= 0.1 * refused {
        claim.when = vec![When::RefusedConnections];
    }
    let mut claim = claim.with("process", process.clone()).with("place", function);
    claim.key = format!("connections {process}");
    claim.line("made in", place);
    Some(claim)
}

/// Threads of a process from which on they may be woken together for what one of them gets.
const HERD: usize = 8;

/// The user code behind a wake-up below which there was nothing to do.
const NOTHING: f64 = 1e-6;

/// The process with many threads that wake at a high rate from waiting for descriptors, with hardly any user code behind.
fn idle_wakers<'a>(view: &View<'a>) -> Option<(&'a str, &'a str)> {
    let t = threads::Reader::open(view.context.recording).ok()??;
    let mut of: HashMap<&str, HashMap<u64, u64>> = HashMap::new();
    for row in t.rows() {
        let threads = of.entry(t.process.get(row).unwrap_or("")).or_default();
        *threads.entry(t.tid.get(row).unwrap_or(0)).or_default() += t.vcx.get(row).unwrap_or(0);
    }
    let often = |threads: &HashMap<u64, u64>| {
        threads.values().filter(|&&n| n as f64 >= 20.0 * view.elapsed()).count() >= HERD
    };
    let sum = |threads: &HashMap<u64, u64>| threads.values().sum::<u64>() as f64;
    let (process, threads) =
        of.into_iter().filter(|(_, t)| often(t)).max_by(|a, b| sum(&a.1).total_cmp(&sum(&b.1)))?;
    let (mut ready, mut asleep, mut user) = (HashMap::<&str, f64>::new(), 0.0, 0.0);
    for s in view.slept.iter().filter(|s| s.process == process) {
        asleep += s.count;
        if let Some(call) = call_in(&s.kernel).filter(|call| READY.contains(call) || ACCEPTS.contains(call)) {
            *ready.entry(call).or_default() += s.count;
        }
    }
    for s in view.samples.iter().filter(|s| s.process == process && s.class == SampleClass::User) {
        user += s.seconds;
    }
    let call =
        ready.iter().max_by(|a, b| a.1.total_cmp(b.1).then_with(|| b.0.cmp(a.0))).map(|(call, _)| *call)?;
    let wakes = sum(&threads) * ready.values().sum::<f64>() / f64::max(asleep, 1.0);
    // Threads whose time was up were woken by nobody.
    let wakes = wakes - super::waiting::timeouts(view, process, |call| READY.contains(&call));
    (wakes >= 2000.0 * view.elapsed() && user <= NOTHING * wakes).then_some((process, call))
}

/// Calls that take a connection.
const ACCEPTS: [&str; 2] = ["accept", "accept4"];

/// Threads that are woken for one connection, which one of them gets.
fn herd(view: &View<'_>, calls: &Calls<'_>) -> Option<Claim> {
    // One that asks again and again sleeps for nothing.
    let voluntary = |process: &str| view.switched.get(process).map_or(0.0, |s| s.voluntary);
    let found = calls.results.iter().find(|((process, call), results)| {
        ACCEPTS.contains(call)
            && results.error() == Some("EAGAIN")
            && voluntary(process) >= 500.0 * view.elapsed()
    });
    let (process, waits) = match found {
        Some(((process, call), _)) => (*process, *call),
        None => idle_wakers(view)?,
    };
    let switched = voluntary(process);
    let accepts = ACCEPTS;
    let call = calls.of.keys().find(|(of, call)| *of == process && accepts.contains(call));
    let call = call.map_or(waits, |(_, call)| call);
    let mut places = Most::default();
    let mut claim = Claim::new(Kind::Calls, [When::Herd], call);
    for ((of, call), taken) in &calls.of {
        if *of != process || !accepts.contains(call) && !READY.contains(call) {
            continue;
        }
        for &at in taken.inside.iter().chain(&taken.entry) {
            let sample = &view.samples[at];
            if accepts.contains(call) {
                places.add(&Place::of(sample, call).words(), sample.seconds);
            }
            claim.ask(Source::Sample(at), sample.seconds, "waking up and asking for nothing");
        }
    }
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.process == process) {
        // A client that connects wakes them all.
        let wakes = sample.in_kernel("ep_poll_callback") || sample.in_kernel("ep_autoremove_wake_function");
        if sample.layer() == Layer::Switches || wakes {
            claim.ask(Source::Sample(at), sample.seconds, "switches and wake-ups");
        }
    }
    let part = (switched / view.switches().max(1.0)).min(1.0);
    for layer in [Layer::Switches, Layer::WakeUp, Layer::RunQueue] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * part, "switches and wake-ups");
    }
    let (place, function) = places.place(process);
    let mut claim = claim
        .with("call", call)
        .with("process", process)
        .with("place", function)
        .with("rate", super::numbers::rate_words(switched / view.elapsed()));
    claim.key = format!("herd {process}");
    claim.line("called in", place);
    Some(claim)
}

/// Calls that return how many bytes they moved.
const MOVES: [&str; 10] =
    ["read", "write", "pread64", "pwrite64", "readv", "writev", "sendto", "recvfrom", "sendmsg", "recvmsg"];

/// Whether the first argument of a call is a descriptor; of calls that are made at high rates.
fn takes_descriptor(call: &str) -> bool {
    const OTHERS: [&str; 22] = [
        "ioctl",
        "fcntl",
        "lseek",
        "fstat",
        "newfstat",
        "close",
        "accept",
        "accept4",
        "connect",
        "epoll_wait",
        "epoll_pwait",
        "epoll_pwait2",
        "epoll_ctl",
        "getdents64",
        "sendfile",
        "splice",
        "recvmmsg",
        "sendmmsg",
        "io_uring_enter",
        "setsockopt",
        "getsockopt",
        "timerfd_settime",
    ];
    MOVES.contains(&call) || OTHERS.contains(&call)
}

/// Whether a process mostly asks for ended children in vain: wait4 returns 0 only with WNOHANG, and if no child has ended.
fn polls_children(results: Option<&Results>) -> bool {
    results.and_then(Results::mean).is_some_and(|pid| pid < 1.0)
}

/// The part of a process's time on CPU that a wait for descriptors has, where it takes time in the kernel itself, from which nothing is
/// done about what it returns: a call that returns several events takes longer than one that returns one.
const MOSTLY: f64 = 0.6;

/// Calls that look up a path.
const PATHS: [&str; 10] =
    ["openat", "open", "stat", "lstat", "fstatat", "access", "faccessat", "faccessat2", "statx", "readlink"];

/// Sleeps a second of a thread that hardly ever sleeps of its own.
const RARELY: f64 = 2000.0;

/// Whether a process's threads that are on CPU hardly ever sleep of their own: one that does is on CPU nearly always, or
/// would be.
fn never_sleeps(view: &View<'_>, process: &str, on_cpu: f64) -> bool {
    let queued = states(view, process, &[Microstate::Lat]);
    let switched = view.switched.get(process).map_or(0.0, |s| s.voluntary);
    // Each look at a descriptor that found none would have been a sleep.
    on_cpu + queued >= 0.5 * view.elapsed() && switched <= RARELY * view.elapsed()
}

fn claim(
    view: &View<'_>,
    process: &str,
    call: &str,
    taken: &Taken,
    (when, subject): (Vec<When>, String),
    results: Option<&Results>,
) -> Claim {
    let mut places = Most::default();
    for &at in taken.inside.iter().chain(&taken.entry) {
        let sample = &view.samples[at];
        places.add(&Place::of(sample, call).words(), sample.seconds);
    }
    let (place, function) = places.place(process);
    let mut claim = Claim::new(Kind::Calls, when, subject)
        .with("call", call)
        .with("process", process)
        .with("place", function)
        .with("error", results.and_then(Results::error).unwrap_or(""));
    claim.key = format!("call {process} {call}");
    for &at in &taken.inside {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "in the call");
    }
    for &at in &taken.entry {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "into the kernel and back");
    }
    if !place.is_empty() {
        claim.line("called in", place);
    }
    if let Some(results) = results {
        if let Some(bytes) = results.mean().filter(|_| MOVES.contains(&call)) {
            claim.line("moves", format!("{} bytes a call", super::numbers::grouped(bytes)));
        }
        if let Some(descriptor) = results.descriptor().filter(|_| takes_descriptor(call)) {
            claim.line("on", descriptor);
        }
    }
    claim
}

/// A name that short processes have.
pub(super) struct Short {
    pub name: String,
    pub count: usize,
    /// CPU-seconds of all.
    on_cpu: f64,
}

/// Names of processes that begin and end at a high rate, most first.
pub(super) fn short_processes(view: &View<'_>) -> Vec<Short> {
    let Ok(Some(t)) = threads::Reader::open(view.context.recording) else { return Vec::new() };
    struct Lived<'a> {
        name: &'a str,
        all: f64,
        on_cpu: f64,
        ended: u64,
    }
    let mut of: HashMap<u64, Lived<'_>> = HashMap::new();
    // Rows that stand for many processes of a name, where there were too many to hold.
    let mut together: HashMap<&str, (u64, f64)> = HashMap::new();
    for row in t.rows() {
        let Some(name) = t.process.get(row) else { continue };
        let (spent, ended) = (on_cpu(&t, row).unwrap_or(0.0), t.ended.get(row).unwrap_or(0));
        let Some(pid) = t.pid.get(row) else {
            let sum = together.entry(name).or_default();
            *sum = (sum.0 + ended, sum.1 + spent);
            continue;
        };
        let lived = of.entry(pid).or_insert(Lived { name, all: 0.0, on_cpu: 0.0, ended: 0 });
        // The name that it had last.
        lived.name = name;
        lived.all += Microstate::ALL.iter().filter_map(|&m| t.micro.get(row, m)).sum::<f64>();
        lived.on_cpu += spent;
        lived.ended += ended;
    }
    let mut names: Vec<Short> = Vec::new();
    let mut add = |name: &str, count, on_cpu| match names.iter_mut().find(|short| short.name == name) {
        Some(short) => {
            short.count += count;
            short.on_cpu += on_cpu;
        }
        None => names.push(Short { name: name.into(), count, on_cpu }),
    };
    for lived in of.values().filter(|lived| lived.all < 0.1 * view.elapsed()) {
        // A number that a later process has again stands for several.
        add(lived.name, lived.ended.max(1) as usize, lived.on_cpu);
    }
    for (name, (ended, spent)) in together {
        add(name, ended as usize, spent);
    }
    names.retain(|short| short.count >= 5 && short.on_cpu <= brief(&short.name) * short.count as f64);
    names.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    names
}

/// Processes that begin, do little and end.
fn processes(view: &View<'_>) -> Vec<Claim> {
    let short = short_processes(view);
    let count: usize = short.iter().map(|s| s.count).sum();
    let rate = count as f64 / view.elapsed().max(f64::MIN_POSITIVE);
    if rate < MANY {
        return Vec::new();
    }
    let names: HashSet<&str> = short.iter().map(|s| s.name.as_str()).collect();
    let listed = short.iter().take(3).map(|s| s.name.as_str()).collect::<Vec<_>>().join(", ");
    let mut places = Most::default();
    let mut claim = Claim::new(Kind::Processes, [When::ShortLives], listed.clone())
        .with("names", listed)
        .with("rate", super::numbers::rate_words(rate));
    claim.key = "short processes".into();
    for (at, sample) in view.samples.iter().enumerate() {
        let lives = call_of(sample).is_some_and(|call| LIVES.contains(&call));
        let what = match sample.layer() {
            Layer::Faults if names.contains(sample.process) => "page faults of new processes",
            _ if lives => "fork, exec and exit",
            _ if names.contains(sample.process) => "starting up and little work",
            _ => continue,
        };
        if lives && !names.contains(sample.process) {
            places.add(&Place::of(sample, "clone").words(), sample.seconds);
        }
        claim.ask(Source::Sample(at), sample.seconds, what);
    }
    let of_switches =
        |process: &&str| view.switched.get(*process).map_or(0.0, |s| s.voluntary + s.involuntary);
    let all = view.switches();
    let part = (names.iter().map(of_switches).sum::<f64>() / all.max(1.0)).min(1.0);
    for layer in [Layer::RunQueue, Layer::WakeUp, Layer::Switches] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * part, "switches and wake-ups");
    }
    // CPUs idle while the processes run one after another.
    let serial = charged(&view.context, IdleReason::Serial);
    let of_short: f64 = serial.iter().filter(|row| names.contains(&*row.thread)).map(|row| row.share).sum();
    if of_short > 0.0 {
        let begun: f64 = serial.iter().filter(|row| row.code.contains("ork")).map(|row| row.share).sum();
        let idle = view.beside_stacks(Layer::Serial) * (of_short + begun).min(1.0);
        claim.ask(Source::Layer(Layer::Serial), idle, "CPUs idle, one process at a time");
    }
    let each = short
        .iter()
        .take(4)
        .map(|s| format!("{} {}/s", s.name, super::numbers::grouped(s.count as f64 / view.elapsed())));
    claim.line("processes", each.collect::<Vec<_>>().join(", "));
    if let Some((place, _)) = places.top() {
        claim.line("begun in", place);
    }
    // The part of a makefile's shells is served before the rest.
    super::makefiles::shells(view, &claim).into_iter().chain([claim]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{recording, stacks};
    use crate::findings::Findings;
    use crate::fixtures::table;

    /// The first cause of a loop whose thread falls asleep `sleeps` times, beside one that does so all the time.
    fn cause(sleeps: f64, in_call: f64) -> Option<String> {
        let call = "stamps;loop;epoll_wait;do_syscall_64_[k];__x64_sys_epoll_wait_[k];ep_send_events_[k]";
        let mut tables =
            stacks(&[("syscall", call, in_call), ("user", "stamps;loop;serve", 1600.0 - in_call)]);
        tables.push(table(
            "threads",
            &["process", "thread"],
            &["tid", "CPU", "VCX"],
            &[(&["stamps", "loop"], &[7.0, 9.9, sleeps]), (&["stamps", "ticks"], &[8.0, 0.1, 90_000.0])],
        ));
        let found = Findings::of(&recording(0.0, tables)).unwrap();
        found.list.first().map(|finding| finding.id.clone())
    }

    #[test]
    fn a_loop_never_sleeps_though_other_threads_of_its_process_do() {
        assert_eq!(cause(10.0, 1500.0).as_deref(), Some("empty-wake-ups"));
        assert_ne!(cause(90_000.0, 1500.0).as_deref(), Some("empty-wake-ups"));
        // It serves what it was woken for.
        assert_ne!(cause(10.0, 700.0).as_deref(), Some("empty-wake-ups"));
    }
}
