//! Waits that are neither for locks nor for devices: sleeps of a fixed length that others wait for, pools of a fixed size, delayed
//! ACKs, and messages.

use std::collections::{HashMap, HashSet};

use ncpu_schema::{Layer, Microstate, sleepers, threads, user_locks};

use super::asleep::{active, by_place, idle, is_named, keeps_house, place, sleeps};
use super::claim::{Claim, Kind, Source};
use super::connections::both_ends;
use super::delayed_acks;
use super::devices::{self, LEAST, OFTEN};
use super::libraries::{self, is_java_sleep, waits};
use super::loops::runs_callback;
use super::messages;
use super::numbers::{grouped, rate_words};
use super::places::{Most, Place};
use super::system_calls::call_in;
use super::user_locks::is_start;
use super::view::{Slept, View, on_cpu};
use crate::causes::When;
use crate::onion::evidence::length;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let slept = &view.slept;
    let mut claims: Vec<Claim> = delayed_acks::claims(view, slept).into_iter().collect();
    claims.extend(pools(view, slept));
    // A thread that waits for an ACK or for a pool may wait about as long as another sleeps; the sleep is not the cause then.
    let known = !claims.is_empty();
    claims.extend(fixed_sleeps(view, slept).into_iter().filter(|_| !known));
    claims.extend(sleeps_in(view, slept));
    claims.extend(waits_in(view, slept));
    claims.extend(requests(view, slept));
    claims.extend(frequent_sleeps(view));
    claims.extend(timer_reads(view, slept));
    claims.extend(devices::claims(view));
    claims.extend(full(view, slept));
    claims.extend(messages::small_window(view, slept));
    claims.extend(messages::claims(view, slept));
    claims
}

/// A part of what it costs that threads fall asleep and are woken.
pub(super) fn wakes(view: &View<'_>, claim: &mut Claim, part: f64, interrupts: &'static str) {
    for (layer, what) in [
        (Layer::Switches, "switches"),
        (Layer::WakeUp, "CPUs waking up"),
        (Layer::RunQueue, "queueing of woken threads"),
        (Layer::Interrupts, interrupts),
    ] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * part, what);
    }
}

/// Whether a thread sleeps for a time by a call that waits for descriptors, of which it has none but one to be woken by: a function
/// that is there to sleep, of old programs and of PostgreSQL.
fn sleeps_by_select(s: &Slept<'_>) -> bool {
    let is_sleep = |frame: &&str| {
        let name = libraries::c_name(frame);
        name.ends_with("sleep") || name == "WaitLatch"
    };
    s.awaits_descriptors() && s.user.iter().take(4).any(is_sleep)
}

/// Whether most of a process's sleeps in a call are a runtime's own.
fn mostly_keeps_house(view: &View<'_>, process: &str, call: &str) -> bool {
    let of = || view.slept.iter().filter(|s| s.process == process && call_in(&s.kernel) == Some(call));
    let own: f64 = of().filter(|s| keeps_house(s)).map(|s| s.count).sum();
    own > 0.5 * of().map(|s| s.count).sum::<f64>()
}

/// A thread sleeps repeatedly for the same time, and others wait about as long, or one after another.
fn fixed_sleeps(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    // A thread that sleeps below a library's own wait for something is one that waits.
    let known = |s: &Slept<'_>| s.user.iter().any(|f| view.entry(When::SleepsIn, f).is_some());
    // One that sleeps in a callback of an event loop holds the loop up; it does not poll.
    let callback = |s: &Slept<'_>| runs_callback(&s.user).is_some();
    let polls = |s: &&Slept<'_>| sleeps(s) && is_named(s) && !keeps_house(s) && !known(s) && !callback(s);
    let sleeper = by_place(slept, "clock_nanosleep", polls).into_iter().next()?;
    let process = sleeper.first.process;
    // The stacks were met by chance; all sleeps of a process were counted.
    let (count, each) = match sleeps_of(view, process) {
        Some((count, took)) if (0.7..1.4).contains(&(took / sleeper.seconds)) => (count, took / count),
        _ => (sleeper.count, sleeper.each()),
    };
    let often = sleeper.count >= OFTEN * view.elapsed() && sleeper.seconds >= LEAST * view.elapsed();
    if !often || !(2e-4..1.0).contains(&each) {
        return None;
    }
    // Who waits for it: by the program's own words about locks, or in a receive.
    let waits = |s: &&Slept<'_>| {
        let receives = [
            "tcp_recvmsg",
            "unix_stream_read_generic",
            "anon_pipe_read",
            "pipe_read",
            "do_epoll_wait",
            "ep_poll",
            "do_sys_poll",
        ]
        .iter()
        .any(|f| s.in_kernel(f));
        let futex = s.in_kernel("do_futex") && s.wait != "run queue";
        (receives || futex) && !sleeps(s) && !keeps_house(s)
    };
    let waiter = by_place(slept, "futex", waits).into_iter().find(|w| {
        // Several that wait at once have their turn one after another.
        let turns = (w.seconds / view.elapsed()).max(1.0);
        (0.3 * each..4.0 * turns * each).contains(&w.each())
            && w.seconds >= LEAST * view.elapsed()
            && w.count >= 0.3 * sleeper.count
    })?;
    let place = place(sleeper.first, "clock_nanosleep");
    // A place in the C library says nothing of who chose to sleep.
    if place.function().starts_with("__") {
        return None;
    }
    let waits_in = Place::of_frames(&waiter.first.user, "futex");
    let name = if place.function().is_empty() {
        sleeper.first.thread.to_string()
    } else {
        place.function().to_string()
    };
    let when = match answers(slept, sleeper.first, sleeper.count) {
        true => When::SleepBeforeAnswer,
        false => When::FixedSleep,
    };
    let mut claim = Claim::new(Kind::Polling, [when], name.clone())
        .with("place", name)
        .with("waiter", waits_in.function())
        .with("each", length(each))
        .with("rate", rate_words(count / view.elapsed()));
    claim.key = format!("sleep in {}", place.function());
    claim.stands_still(waiter.seconds, view.elapsed());
    idle(view, &mut claim, waiter.seconds / view.elapsed(), "CPUs idle while it sleeps");
    claim.line("sleeps in", place.words());
    claim.line("awaited in", waits_in.words());
    Some(claim)
}

/// Whether the thread that sleeps is asked for something before: it waits for messages in the same function, half as many times.
fn answers(slept: &[Slept<'_>], sleeper: &Slept<'_>, count: f64) -> bool {
    const RECEIVES: [&str; 6] = [
        "tcp_recvmsg",
        "unix_stream_read_generic",
        "unix_dgram_recvmsg",
        "udp_recvmsg",
        "anon_pipe_read",
        "pipe_read",
    ];
    let function =
        |s: &Slept<'_>| Place::of_frames(&s.user, call_in(&s.kernel).unwrap_or("")).function().to_string();
    let place = function(sleeper);
    let asked = slept.iter().filter(|s| {
        s.process == sleeper.process && RECEIVES.iter().any(|f| s.in_kernel(f)) && function(s) == place
    });
    !place.is_empty() && asked.map(|s| s.count).sum::<f64>() >= 0.5 * count
}

/// Requests that a client library makes one after another, while hardly anything of the program runs.
fn requests(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    let of = |s: &&Slept<'_>| s.wait != "run queue" && !s.in_kernel("do_futex") && !sleeps(s);
    let known = |frame: &str| view.entry(When::RequestsInTurn, frame).is_some();
    let (mut places, mut functions, mut seconds, mut count) = (Most::default(), Most::default(), 0.0, 0.0);
    let mut processes = Most::default();
    for s in slept.iter().filter(of) {
        let Some(function) = s.user.iter().find(|frame| known(frame)) else { continue };
        places.add(&Place::beyond(&s.user, known).words(), s.seconds);
        functions.add(function, s.seconds);
        processes.add(s.process, s.seconds);
        seconds += s.seconds;
        count += s.count;
    }
    // Threads that wait at once have several requests in flight.
    let turns = (IN_TURN * view.elapsed()..1.2 * view.elapsed()).contains(&seconds);
    if !turns
        || count < REQUESTS * view.elapsed()
        || active(view).is_none_or(|on| on >= IN_TURN * view.elapsed())
    {
        return None;
    }
    let process = processes.top()?.0;
    let function = functions.top()?.0;
    let (words, place) = places.place(&process);
    let each = length(seconds / count);
    let mut claim = Claim::new(Kind::Peer, [When::RequestsInTurn], function.clone())
        .with("function", super::names::short(&function))
        .with("process", process.clone())
        .with("place", place)
        .with("each", each.clone())
        .with("rate", rate_words(count / view.elapsed()));
    claim.key = format!("requests {process}");
    claim.stands_still(seconds, view.elapsed());
    idle(view, &mut claim, seconds / view.elapsed(), "CPUs idle for answers");
    claim.line("waits in", words);
    claim.line("waits", format!("{} of {each} each", grouped(count)));
    Some(claim)
}

/// The part of an observation that requests in turn wait, and below which all threads are on CPU; and how many there are a second.
const IN_TURN: f64 = 0.5;
const REQUESTS: f64 = 20.0;

/// Sleeps by which a library waits for what it cannot be woken for: a lock of a database, a spinlock.
fn sleeps_in(view: &View<'_>, slept: &[Slept<'_>]) -> Vec<Claim> {
    let mut of: HashMap<&str, (Most, Most, f64, f64, &str)> = HashMap::new();
    for s in slept.iter().filter(|s| sleeps(s) || sleeps_by_select(s)) {
        let known = s.user.iter().find_map(|f| Some((*f, view.entry(When::SleepsIn, f)?)));
        let Some((function, entry)) = known else { continue };
        let sum = of.entry(entry).or_insert_with(|| (Most::default(), Most::default(), 0.0, 0.0, function));
        let within = |f: &str| view.entry(When::SleepsIn, f).is_some();
        sum.0.add(&Place::beyond(&s.user, within).words(), s.seconds);
        sum.1.add(s.process, s.seconds);
        sum.2 += s.seconds;
        sum.3 += s.count;
    }
    let mut claims = Vec::new();
    for (places, processes, seconds, count, function) in of.into_values() {
        if seconds < LEAST * view.elapsed() || count < OFTEN * view.elapsed() {
            continue;
        }
        let process = processes.top().map_or_else(String::new, |(name, _)| name);
        let (words, place) = places.place(&process);
        let mut claim = Claim::new(Kind::Lock, [When::SleepsIn], function)
            .with("function", super::names::short(function))
            .with("process", process)
            .with("place", place.clone())
            .with("each", length(seconds / count))
            .with("rate", rate_words(count / view.elapsed()));
        claim.key = format!("sleeps in {function} {place}");
        claim.stands_still(seconds, view.elapsed());
        idle(view, &mut claim, seconds / view.elapsed(), "CPUs idle while threads sleep");
        claim.line("waits in", words);
        claim.line("sleeps", format!("{} of {} each", grouped(count), length(seconds / count)));
        claims.push(claim);
    }
    claims
}

/// The mean length from which waits below a library's function are long.
const LONG: f64 = 0.02;

/// Long waits below functions that are called for an answer of their own: of name servers.
fn waits_in(view: &View<'_>, slept: &[Slept<'_>]) -> Vec<Claim> {
    let within = |f: &str| view.entry(When::WaitsIn, f).is_some();
    let mut of: HashMap<(&str, &str), Vec<&Slept<'_>>> = HashMap::new();
    for s in slept.iter().filter(|s| s.wait != "run queue") {
        if let Some(entry) = s.user.iter().find_map(|f| view.entry(When::WaitsIn, f)) {
            of.entry((s.process, entry)).or_default().push(s);
        }
    }
    let mut claims = Vec::new();
    for ((process, _), waits) in of {
        let (seconds, count): (f64, f64) =
            (waits.iter().map(|s| s.seconds).sum(), waits.iter().map(|s| s.count).sum());
        if seconds < LEAST * view.elapsed() || seconds < LONG * count || count < 3.0 {
            continue;
        }
        let (mut places, mut functions) = (Most::default(), Most::default());
        for s in waits {
            places.add(&Place::beyond(&s.user, within).words(), s.seconds);
            functions.add(s.user.iter().find(|f| within(f)).unwrap_or(&""), s.seconds);
        }
        let function = functions.top().map_or_else(String::new, |(f, _)| f);
        let (words, place) = places.place(process);
        let each = length(seconds / count);
        let mut claim = Claim::new(Kind::Peer, [When::WaitsIn], function.clone())
            .with("function", super::names::short(&function))
            .with("process", process)
            .with("place", place.clone())
            .with("each", each.clone())
            .with("rate", rate_words(count / view.elapsed()));
        claim.key = format!("waits in {function} {place}");
        claim.stands_still(seconds, view.elapsed());
        idle(view, &mut claim, seconds / view.elapsed(), "CPUs idle for answers");
        claim.line("called in", words);
        claim.line("waits", format!("{} of {each} each", grouped(count)));
        claims.push(claim);
    }
    claims
}

/// How often the threads of a process slept for a time, and for how many seconds.
pub(super) fn sleeps_of(view: &View<'_>, process: &str) -> Option<(f64, f64)> {
    let t = sleepers::Reader::open(view.context.recording).ok()??;
    let rows = t.rows().filter(|&row| {
        t.process.get(row) == Some(process) && t.call.get(row).is_some_and(|call| call.ends_with("nanosleep"))
    });
    let sum = rows.fold((0.0, 0.0), |sum, row| {
        (sum.0 + t.count.get(row).unwrap_or(0) as f64, sum.1 + t.slept.get(row).unwrap_or(0.0))
    });
    (sum.0 > 0.0).then_some(sum)
}

/// How often time ran out in calls of a process, at most: a sleep that another thread ended was shorter than its timeout.
pub(super) fn timeouts(view: &View<'_>, process: &str, of: impl Fn(&str) -> bool) -> f64 {
    let Ok(Some(t)) = sleepers::Reader::open(view.context.recording) else { return 0.0 };
    let rows =
        t.rows().filter(|&row| t.process.get(row) == Some(process) && t.call.get(row).is_some_and(&of));
    rows.map(|row| {
        let asked = t.asked.get(row).unwrap_or(0.0).max(f64::MIN_POSITIVE);
        t.count.get(row).unwrap_or(0) as f64 * (t.slept.get(row).unwrap_or(0.0) / asked).min(1.0)
    })
    .sum()
}

/// Timeouts that run out at a high rate: switches, timers and calls for nothing.
fn frequent_sleeps(view: &View<'_>) -> Option<Claim> {
    let t = sleepers::Reader::open(view.context.recording).ok()??;
    let mut all: HashMap<(&str, &str), (f64, f64, f64, u64)> = HashMap::new();
    for row in t.rows() {
        let (Some(call), Some(process), Some(count)) =
            (t.call.get(row), t.process.get(row), t.count.get(row))
        else {
            continue;
        };
        let sum = all.entry((call, process)).or_default();
        sum.0 += count as f64;
        sum.1 += t.asked.get(row).unwrap_or(0.0);
        sum.2 += t.slept.get(row).unwrap_or(0.0);
        sum.3 = sum.3.max(t.threads.get(row).unwrap_or(0));
    }
    let programs = all.into_iter().filter(|((call, process), _)| !mostly_keeps_house(view, process, call));
    let ((call, process), (count, asked, took, threads)) = programs.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    // Timeouts that ran out took as long as was asked for, or longer.
    if call == "futex" || took < 0.8 * asked {
        return None;
    }
    frequent(
        view,
        When::FrequentSleeps,
        &Wakeups { call, process, count, each: asked / count, took, threads },
    )
}

/// Reads of timers that expire at a high rate.
fn timer_reads(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    let of = |s: &&Slept<'_>| s.in_kernel("timerfd_read_iter") || s.in_kernel("timerfd_read");
    let mut processes = Most::default();
    slept.iter().filter(of).for_each(|s| processes.add(s.process, s.count));
    let (process, _) = processes.top()?;
    let of = || slept.iter().filter(of).filter(|s| s.process == process);
    let count: f64 = of().map(|s| s.count).sum();
    let threads: HashSet<&str> = of().map(|s| s.thread).collect();
    // A thread wakes once a period.
    let each = threads.len() as f64 * view.elapsed() / count;
    let took = count * each;
    let wakeups =
        Wakeups { call: "read", process: &process, count, each, took, threads: threads.len() as u64 };
    frequent(view, When::TimerReads, &wakeups)
}

/// Wake-ups of threads by time alone.
struct Wakeups<'a> {
    call: &'a str,
    process: &'a str,
    count: f64,
    /// Seconds from one to the next.
    each: f64,
    /// Seconds that they slept, all together.
    took: f64,
    threads: u64,
}

/// Whether a function of the kernel is the interrupt of a CPU's timer.
fn is_of_timers(function: &str) -> bool {
    ["hrtimer_interrupt", "hrtimer_wakeup", "__hrtimer_run_queues", "local_apic_timer_interrupt"]
        .contains(&function)
        || function.ends_with("apic_timer_interrupt")
        || function == "arch_timer_handler_virt"
}

/// Those that are frequent, with what they cost in all layers.
fn frequent(view: &View<'_>, when: When, wakeups: &Wakeups<'_>) -> Option<Claim> {
    let Wakeups { call, process, count, each, took, threads } = *wakeups;
    if count < 500.0 * view.elapsed() {
        return None;
    }
    // A stack without a call may be another thread's: a switch by which a running thread loses its CPU, an interrupt that strikes it.
    // The wake-ups have their part of these.
    let part = (count / view.switches().max(1.0)).min(1.0);
    let of_timers = (count / view.timer_interrupts().max(1.0)).min(1.0);
    let of_process = || view.samples.iter().enumerate().filter(|(_, s)| s.process == process);
    let mine = |kernel: &[&str]| call_in(kernel) == Some(call);
    // The way into the kernel is that of a call by the function that makes it.
    let slept = || view.slept.iter().filter(|s| s.process == process && mine(&s.kernel));
    let made_by: HashSet<&str> = (slept().filter_map(|s| s.user.first()))
        .chain(of_process().filter(|(_, s)| mine(&s.kernel)).filter_map(|(_, s)| s.user.first()))
        .copied()
        .collect();
    let mut places = Most::default();
    let mut claim = Claim::new(Kind::Polling, [when], call);
    for (at, sample) in of_process() {
        let leaf = sample.user.first();
        let (what, taken) = match (sample.layer(), call_in(&sample.kernel)) {
            (Layer::Calls | Layer::KernelSpin, Some(of)) if of == call => ("in the call", 1.0),
            (Layer::Calls, None) if leaf.is_some_and(|leaf| made_by.contains(leaf)) => ("in the call", 1.0),
            (Layer::Switches, Some(of)) if of == call => ("switches", 1.0),
            (Layer::Switches, None) => ("switches", part),
            (Layer::Interrupts, _) if sample.kernel.iter().any(|f| is_of_timers(f)) => {
                ("timers and wake-ups", of_timers)
            }
            (Layer::Interrupts, _) => ("timers and wake-ups", part),
            _ => continue,
        };
        places.add(&Place::of(sample, call).words(), sample.seconds * taken);
        claim.ask(Source::Sample(at), sample.seconds * taken, what);
    }
    // Timers strike wherever the thread is; where it slept says more.
    let (mut sleeps, mut names) = (Most::default(), Most::default());
    for s in slept() {
        sleeps.add(&Place::of_frames(&s.user, call).words(), s.count);
        names.add(group(s.thread), s.count);
    }
    let places = if sleeps.is_empty() { places } else { sleeps };
    wakes(view, &mut claim, part, "timers and wake-ups");
    let (place, function) = places.place(process);
    // Where no function has a name, the thread may have one.
    let function = match names.top() {
        Some((thread, _)) if function == process => thread,
        _ => function,
    };
    let mut claim = claim
        .with("call", call)
        .with("process", process)
        .with("place", function.clone())
        .with("each", length(each))
        .with("rate", rate_words(count / view.elapsed()))
        .with("threads", threads.to_string());
    claim.key = format!("sleeps {process} {call}");
    claim.subject = format!("{call} {function}");
    // An event loop does its work in timers, and a thread alone has nobody to wait for: what goes on afterwards waits for the time.
    let alone = call.ends_with("nanosleep") && view.threads(process) == 1;
    if (function == "uv__io_poll" || alone) && threads == 1 {
        idle(view, &mut claim, took / view.elapsed(), "CPUs idle until timers are due");
    }
    if !place.is_empty() {
        claim.line("called in", place);
    }
    Some(claim)
}

/// A thread's name without its number.
pub(super) fn group(thread: &str) -> &str {
    let name = thread.split('/').next().unwrap_or(thread);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-' || c == '#' || c == '_')
}

/// The part of the waits in a place whose wakers must be known.
const KNOWN: f64 = 0.2;

/// Threads that wait in one place for what threads of their own kind give back: connections, buffers, permits.
fn pools(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    struct Waited<'a> {
        chain: Vec<&'a str>,
        process: &'a str,
        block: f64,
        count: f64,
        /// Of `block`, where it is known who woke them, and where that was one of their own kind.
        known: f64,
        by_own: f64,
    }
    let t = user_locks::Reader::open(view.context.recording).ok()??;
    let mut all: HashMap<(&str, &str), Waited<'_>> = HashMap::new();
    for row in t.rows() {
        let (Some(process), Some(stack), Some(ty)) = (t.process.get(row), t.stack.get(row), t.ty.get(row))
        else {
            continue;
        };
        // At a barrier threads wait for the slowest of their kind, and nobody gives anything back.
        let barrier =
            t.pattern.get(row).into_iter().chain(stack.split(';').take(3)).any(|f| f.contains("barrier"));
        let semaphore = t.lock.get(row).is_some_and(|lock| lock.starts_with("semaphore set"));
        // One that sleeps for a time waits for nobody.
        let sleeps = stack.split(';').any(is_java_sleep);
        // Threads of a collector wait for one another.
        let house = stack.split(';').any(libraries::keeps_house);
        if ty == "lock" || semaphore || barrier || sleeps || house {
            continue;
        }
        let chain: Vec<&str> = stack.split(';').skip_while(|frame| waits(frame)).take(3).collect();
        // A thread's first function says nothing of what it waits for.
        let Some(&site) = chain.first().filter(|site| !is_start(site)) else { continue };
        let threads: Vec<&str> = slept
            .iter()
            .filter(|s| s.process == process && s.user.contains(&site))
            .map(|s| group(s.thread))
            .collect();
        let waker = t.holder.get(row).filter(|holder| !holder.is_empty()).map(group);
        let block = t.block.get(row).unwrap_or(0.0);
        let sum = all.entry((process, site)).or_insert(Waited {
            chain,
            process,
            block: 0.0,
            count: 0.0,
            known: 0.0,
            by_own: 0.0,
        });
        sum.block += block;
        sum.count += t.count.get(row).unwrap_or(0) as f64;
        // Wake-ups that were not followed name nobody.
        sum.known += if waker.is_some() { block } else { 0.0 };
        sum.by_own += if waker.is_some_and(|waker| threads.contains(&waker)) { block } else { 0.0 };
    }
    let top = all.into_values().max_by(|a, b| a.by_own.total_cmp(&b.by_own))?;
    let waiting = top.block / view.elapsed();
    // Idle workers wait for work that others give them; here those give back who wait.
    let own = top.by_own >= 0.5 * top.known && top.known >= KNOWN * top.block;
    if waiting < 1.5 || !own || top.count < OFTEN * view.elapsed() {
        return None;
    }
    let site = super::names::short(top.chain[0]);
    let of_kind = |s: &&Slept<'_>| s.process == top.process && s.user.contains(&top.chain[0]);
    let mut kinds = Most::default();
    for s in slept.iter().filter(of_kind) {
        kinds.add(group(s.thread), s.seconds);
    }
    let kind = kinds.top().map_or(String::new(), |(kind, _)| kind);
    // Threads without names of their own are of any kind.
    if kind == group(top.process) {
        return None;
    }
    // They may have begun late.
    let (threads, lived) = threads_of(view, top.process, &kind);
    let waiting = if lived > 0.0 { threads as f64 * top.block / lived } else { waiting }.min(threads as f64);
    let threads = threads.max(waiting.round() as usize);
    // One thread has nobody of its kind that could give anything back.
    if threads == 1 {
        return None;
    }
    let size = threads.saturating_sub(waiting.round() as usize);
    let place = top.chain.iter().map(|f| super::names::short(f)).collect::<Vec<_>>().join(" ← ");
    let from = top.chain.get(1).map_or(String::new(), |f| super::names::short(f));
    let mut claim = Claim::new(Kind::Pool, [When::Pool], site.clone())
        .with("site", site)
        .with("place", from)
        .with("waiting", format!("{waiting:.0}"))
        .with("threads", threads.to_string())
        .with("size", size.to_string());
    claim.key = format!("pool {}", top.chain[0]);
    claim.waited = Some(top.block);
    claim.lives = lived;
    idle(view, &mut claim, waiting / threads.max(1) as f64, "CPUs idle for it");
    claim.line("waits in", place);
    claim.line("waits", format!("{} of {} each", grouped(top.count), length(top.block / top.count.max(1.0))));
    Some(claim)
}

/// Threads of a process by the name without its number, and the thread-seconds that they were there.
fn threads_of(view: &View<'_>, process: &str, kind: &str) -> (usize, f64) {
    let Ok(Some(t)) = threads::Reader::open(view.context.recording) else { return (0, 0.0) };
    let mut tids: std::collections::HashSet<u64> = std::collections::HashSet::new();
    let mut lived = 0.0;
    for row in t.rows() {
        if t.process.get(row) != Some(process) || t.thread.get(row).map(group) != Some(kind) {
            continue;
        }
        tids.extend(t.tid.get(row));
        let off = Microstate::ALL.iter().filter(|m| !Microstate::ON_CPU.contains(m));
        lived += off.filter_map(|&m| t.micro.get(row, m)).sum::<f64>() + on_cpu(&t, row).unwrap_or(0.0);
    }
    (tids.len(), lived)
}

/// Threads that wait for room in a pipe or socket while nothing of the program is active: the reader is slow, and does not compute.
fn full(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    let pipe = |s: &Slept<'_>| s.in_kernel("anon_pipe_write") || s.in_kernel("pipe_write");
    let socket = |s: &Slept<'_>| s.in_kernel("sock_alloc_send_pskb") || s.in_kernel("sk_stream_wait_memory");
    let of: Vec<&Slept<'_>> = slept.iter().filter(|s| pipe(s) || socket(s)).collect();
    let seconds: f64 = of.iter().map(|s| s.seconds).sum();
    let count: f64 = of.iter().map(|s| s.count).sum();
    if seconds < 0.3 * view.elapsed() || count < OFTEN * view.elapsed() {
        return None;
    }
    // Threads that compute may be the readers, several short ones after another as well.
    if active(view).is_none_or(|active| active >= 0.5 * view.elapsed()) {
        return None;
    }
    let (mut places, mut processes, mut pipes) = (Most::default(), Most::default(), 0.0);
    for s in &of {
        places.add(&Place::of_frames(&s.user, call_in(&s.kernel).unwrap_or("write")).words(), s.seconds);
        processes.add(s.process, s.seconds);
        pipes += if pipe(s) { s.seconds } else { 0.0 };
    }
    let process = processes.top()?.0;
    let (place, function) = places.place(&process);
    let object = if pipes >= 0.5 * seconds { "pipe" } else { "socket" };
    // A reader that waits for data while its writer waits for room is not slow.
    let between = of.iter().all(|s| s.in_kernel("tcp_sendmsg") || s.in_kernel("tcp_sendmsg_locked"));
    let when = if between && both_ends(view) { When::HeldBetween } else { When::Full };
    let mut claim = Claim::new(Kind::Peer, [when], object)
        .with("process", process.clone())
        .with("place", function)
        .with("object", object);
    claim.key = format!("full {object} {process}");
    claim.stands_still(seconds, view.elapsed());
    let idle = view.beside_stacks(Layer::Idle) * (seconds / view.elapsed()).min(1.0);
    claim.ask(Source::Layer(Layer::Idle), idle, "CPUs idle for the reader");
    claim.line("waits in", place);
    claim.line("waits", format!("{} of {} each", grouped(count), length(seconds / count.max(1.0))));
    let sleeps = |s: &&Slept<'_>| s.in_kernel("do_nanosleep") || s.in_kernel("hrtimer_nanosleep");
    let sleeper = slept.iter().filter(sleeps).max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    if let Some(s) = sleeper.filter(|s| s.seconds >= LEAST * view.elapsed()) {
        let place = Place::of_frames(&s.user, "clock_nanosleep").words();
        claim.line("meanwhile", format!("{} sleeps {} at a time in {place}", s.thread, length(s.each())));
    }
    Some(claim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_pool_have_one_name() {
        for thread in ["worker-10/27562", "worker-1", "worker-"] {
            assert_eq!(group(thread), "worker", "{thread}");
        }
        assert_eq!(group("C1 CompilerThre"), "C1 CompilerThre");
    }

    #[test]
    fn threads_of_a_collector_that_wait_for_one_another_are_no_pool() {
        let stack =
            "do_futex_wait;PosixSemaphore::wait;WorkGang::run_task;G1RemSet::merge_heap_roots;VMThread::run";
        assert!(stack.split(';').any(libraries::keeps_house) && waits("PosixSemaphore::wait"));
        let own = "do_futex_wait;PosixSemaphore::wait;Permits::take;App::query";
        assert!(!own.split(';').any(libraries::keeps_house));
    }
}
