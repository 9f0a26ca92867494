//! Threads that live for short, forks that copy the tables of much memory, and signals.

use std::collections::{HashMap, HashSet};

use ncpu_schema::{InterruptKind, Layer, Microstate, threads};

use super::calls::{LIVES, MANY, short_processes};
use super::claim::{Claim, Kind, Source};
use super::libraries::{begins_thread, c_name, makes_process};
use super::numbers::{grouped, rate_words};
use super::places::{Most, Place};
use super::system_calls::{MAPPING, call_of};
use super::view::{Sampled, View};
use crate::causes::When;
use crate::onion::evidence::length;

/// The part of capacity from which something is claimed.
const LEAST: f64 = 0.01;

/// Seconds of copying for each fork from which that is what a fork costs.
const LARGE: f64 = 1e-3;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut claims: Vec<Claim> = short_threads(view).into_iter().collect();
    claims.extend(large_forks(view));
    claims.extend(signals(view));
    claims
}

/// Threads of one process that begin, do little and end.
fn short_threads(view: &View<'_>) -> Option<Claim> {
    let t = threads::Reader::open(view.context.recording).ok()??;
    // By process: its threads with the time that they were there.
    let mut lived: HashMap<(u64, u64), (&str, f64)> = HashMap::new();
    for row in t.rows() {
        let (Some(pid), Some(tid)) = (t.pid.get(row), t.tid.get(row)) else { continue };
        let all: f64 = Microstate::ALL.iter().filter_map(|&m| t.micro.get(row, m)).sum();
        let known = lived.entry((pid, tid)).or_insert((t.process.get(row).unwrap_or(""), 0.0));
        known.1 += all;
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for ((pid, tid), (process, all)) in &lived {
        if pid != tid && *all < 0.1 * view.elapsed() {
            *counts.entry(process).or_default() += 1;
        }
    }
    let (process, count) = counts.into_iter().max_by_key(|(name, count)| (*count, *name))?;
    let rate = count as f64 / view.elapsed().max(f64::MIN_POSITIVE);
    if rate < MANY {
        return None;
    }
    let mut places = Most::default();
    let mut claim = Claim::new(Kind::Processes, [When::ShortThreads], process).with("process", process);
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.process == process) {
        let call = call_of(sample);
        let lives = call.is_some_and(|call| LIVES.contains(&call));
        let begun = sample.user.iter().any(|frame| begins_thread(frame));
        let what = match sample.layer() {
            _ if lives => "clone and exit",
            Layer::Tlb | Layer::Faults if begun => "memory of stacks",
            _ if call.is_some_and(|call| MAPPING.contains(&call)) && begun => "memory of stacks",
            Layer::Switches => "switches and wake-ups",
            _ => continue,
        };
        if begun && call.is_some_and(|call| call.starts_with("clone")) {
            places.add(&Place::beyond(&sample.user, begins_thread).words(), sample.seconds);
        }
        claim.ask(Source::Sample(at), sample.seconds, what);
    }
    // Each thread is switched to once at least, and so is who waits for its end.
    let part = (2.0 * count as f64 / view.switches().max(1.0)).min(1.0);
    for layer in [Layer::Switches, Layer::WakeUp, Layer::RunQueue] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * part, "switches and wake-ups");
    }
    let (place, function) = places.place(process);
    let mut claim = claim.with("place", function).with("rate", rate_words(rate));
    claim.key = format!("short threads {process}");
    if !place.is_empty() {
        claim.line("begun in", place);
    }
    Some(claim)
}

fn in_any(sample: &Sampled<'_>, functions: &[&str]) -> bool {
    functions.iter().any(|f| sample.in_kernel(f))
}

/// Forks of processes with so much memory that copying its tables is most of a fork.
fn large_forks(view: &View<'_>) -> Option<Claim> {
    const COPIES: [&str; 5] =
        ["copy_page_range", "copy_p4d_range", "copy_pte_range", "copy_hugetlb_page_range", "dup_mmap"];
    const GIVES_BACK: [&str; 2] = ["exit_mmap", "unmap_page_range"];
    let short = short_processes(view);
    let copying = || view.samples.iter().filter(|s| in_any(s, &COPIES));
    let copies: f64 = copying().map(|s| s.seconds).sum();
    let mut forking = Most::default();
    copying().for_each(|sample| forking.add(sample.process, sample.seconds));
    // Those that live on are known by their process's name, which the one that forks has as well.
    let alive = forking.top().map_or(0, |(process, _)| view.processes(&process).saturating_sub(1));
    let forks = short.iter().map(|s| s.count).sum::<usize>().max(alive).max(1) as f64;
    if copies < LEAST * view.capacity() || copies < LARGE * forks {
        return None;
    }
    let names: HashSet<&str> = short.iter().map(|s| s.name.as_str()).collect();
    let (mut places, mut processes) = (Most::default(), Most::default());
    let mut claim = Claim::new(Kind::Processes, [When::LargeForks], "fork");
    for (at, sample) in view.samples.iter().enumerate() {
        let what = if in_any(sample, &COPIES) {
            processes.add(sample.process, sample.seconds);
            places.add(&Place::beyond(&sample.user, makes_process).words(), sample.seconds);
            "copying page tables"
        } else if names.contains(sample.process) && in_any(sample, &GIVES_BACK) {
            "giving the copy back"
        } else {
            continue;
        };
        claim.ask(Source::Sample(at), sample.seconds, what);
    }
    let process = processes.top()?.0;
    // While a process of one thread forks, the other CPUs have nothing to do.
    let part = copies / view.context.running.max(f64::MIN_POSITIVE);
    claim.ask(
        Source::Layer(Layer::Serial),
        view.beside_stacks(Layer::Serial) * part.min(1.0),
        "CPUs idle meanwhile",
    );
    let (place, function) = places.place(&process);
    let mut claim = claim
        .with("process", process.clone())
        .with("place", function)
        .with("each", length(copies / forks))
        .with("rate", rate_words(forks / view.elapsed()));
    claim.key = format!("large forks {process}");
    claim.line("called in", place);
    Some(claim)
}

/// Signals a second that are many.
const OFTEN: f64 = 1000.0;

/// Signals that were delivered to the process with most of them; `None` where they were not counted.
fn delivered<'a>(view: &View<'a>) -> Option<(f64, &'a str)> {
    let t = threads::Reader::open(view.context.recording).ok()??;
    let mut of: HashMap<&str, u64> = HashMap::new();
    for row in t.rows() {
        *of.entry(t.process.get(row).unwrap_or("")).or_default() += t.sig.get(row).unwrap_or(0);
    }
    of.into_iter().max_by_key(|(name, count)| (*count, *name)).map(|(name, count)| (count as f64, name))
}

/// Beginning of functions of Go's runtime that signal threads.
const PREEMPTS: &str = "runtime.preempt";

/// The sender of a process's signals, its place in the code, and the samples of sending.
fn sender(view: &View<'_>, process: &str) -> (String, String, Vec<(usize, f64)>) {
    const SENDS: [&str; 7] =
        ["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "setxid"];
    const FAULTS: [&str; 3] = ["force_sig_fault", "bad_area_nosemaphore", "bad_area_access_error"];
    // Functions of the C library that signal all threads, and what they do besides.
    let to_all = |f: &&&str| c_name(f).starts_with("nptl_setxid");
    let (mut calls, mut faults) = (Vec::new(), Vec::new());
    let (mut senders, mut places) = (Most::default(), Most::default());
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.process == process) {
        let all = sample.user.iter().find(to_all);
        let call = call_of(sample).filter(|call| SENDS.contains(call));
        if call.is_some() || all.is_some() {
            let preempts = sample.user.iter().any(|f| f.starts_with(PREEMPTS));
            let otherwise = if preempts { PREEMPTS } else { "kill" };
            senders.add(all.copied().unwrap_or(otherwise), sample.seconds);
            let frames: Vec<&str> = match sample.user.iter().rposition(|f| to_all(&f)) {
                Some(at) => sample.user[at..].to_vec(),
                None => sample.user.clone(),
            };
            places.add(&Place::of_frames(&frames, call.unwrap_or("")).words(), sample.seconds);
            calls.push((at, sample.seconds));
        } else if FAULTS.iter().any(|f| sample.in_kernel(f)) {
            faults.push((at, sample.seconds));
        }
    }
    let sum = |of: &[(usize, f64)]| of.iter().map(|(_, s)| s).sum::<f64>();
    if sum(&calls) > sum(&faults) {
        let sender = senders.top().map_or_else(String::new, |(name, _)| name);
        return (sender, places.top().map_or_else(String::new, |(words, _)| words), calls);
    }
    if !faults.is_empty() {
        return ("fault".into(), String::new(), faults);
    }
    ("timer".into(), String::new(), Vec::new())
}

/// Signals that are delivered at such a rate that they cost.
fn signals(view: &View<'_>) -> Option<Claim> {
    const DELIVERS: [&str; 17] = [
        "irqentry_exit_to_user_mode",
        "exit_to_user_mode_loop",
        "syscall_exit_to_user_mode",
        "arch_do_signal_or_restart",
        "get_signal",
        "handle_signal",
        "x64_setup_rt_frame",
        "setup_rt_frame",
        "do_signal",
        "restore_sigcontext",
        "__x64_sys_rt_sigreturn",
        "__arm64_sys_rt_sigreturn",
        "posix_timer_fn",
        "posix_timer_event",
        "posixtimer_deliver_signal",
        "send_sigqueue",
        "it_real_fn",
    ];
    let (signals, busiest) = delivered(view)?;
    if signals < OFTEN * view.elapsed() {
        return None;
    }
    let handler =
        |s: &Sampled<'_>| s.user.iter().position(|f| c_name(f) == "restore_rt").filter(|at| *at > 0);
    let of: Vec<usize> = (0..view.samples.len())
        .filter(|&at| view.samples[at].process == busiest)
        .filter(|&at| in_any(&view.samples[at], &DELIVERS) || handler(&view.samples[at]).is_some())
        .collect();
    let mut places = Most::default();
    let (sender, sent_in, sending) = sender(view, busiest);
    // Go's runtime has goroutines give way by signals: what makes it do so is the cause.
    if sender == PREEMPTS {
        return None;
    }
    let mut claim = Claim::new(Kind::Calls, [When::Signals], sender);
    for (at, seconds) in sending {
        claim.ask(Source::Sample(at), seconds, "sending them");
    }
    for at in of {
        let sample = &view.samples[at];
        if let Some(frame) = handler(sample) {
            places.add(&super::names::short(sample.user[frame - 1]), sample.seconds);
        } else {
            places.add(&Place::of(sample, "rt_sigreturn").words(), 0.1 * sample.seconds);
        }
        let what = if in_any(sample, &DELIVERS) { "delivering signals" } else { "handling them" };
        claim.ask(Source::Sample(at), sample.seconds, what);
    }
    // Timers that send them interrupt as often.
    let timers = view.in_interrupts(InterruptKind::Timer).min(view.beside_stacks(Layer::Interrupts));
    let part = (signals / view.timer_interrupts().max(1.0)).min(1.0);
    // What sends signals otherwise raises no timers; then these are fewer.
    if part < 1.0 {
        claim.ask(Source::Layer(Layer::Interrupts), timers * part, "timers that send them");
    }
    let (place, function) = places.place(busiest);
    let mut claim = claim
        .with("process", busiest)
        .with("place", function)
        .with("sender", sent_in.split(" ← ").next().filter(|f| !f.is_empty()).unwrap_or(busiest))
        .with("rate", rate_words(signals / view.elapsed()));
    claim.key = format!("signals {busiest}");
    claim.line("sent in", sent_in);
    claim.line("signals", format!("{} a second", grouped(signals / view.elapsed())));
    if !place.is_empty() {
        claim.line("handled in", place);
    }
    Some(claim)
}
