//! Threads and processes that hand small steps to one another by pipes, sockets and counters.

use std::collections::HashSet;

use ncpu_schema::{Layer, SampleClass};

use super::claim::{Claim, Kind, Source};
use super::numbers::{grouped, rate_words};
use super::places::{Most, Place};
use super::system_calls::{call_in, call_of};
use super::view::{Slept, View};
use crate::causes::When;
use crate::onion::evidence::length;

/// Messages a second from which they are often, and how long one is waited for at most.
const OFTEN: f64 = 2000.0;
const SOON: f64 = 2e-3;

/// The user code between two messages below which they are small steps.
const STEP: f64 = 5e-6;

/// Functions of the kernel in which a thread waits for a message.
const READERS: [&str; 8] = [
    "anon_pipe_read",
    "pipe_read",
    "unix_stream_read_generic",
    "eventfd_read",
    "do_msgrcv",
    "wq_sleep",
    "__skb_wait_for_more_packets",
    "tcp_recvmsg",
];

/// Those that wait for a stream's.
const STREAMS: [&str; 2] = ["unix_stream_read_generic", "tcp_recvmsg"];

/// Calls that move messages.
const MOVES: [&str; 10] = [
    "read",
    "write",
    "recvfrom",
    "sendto",
    "recvmsg",
    "sendmsg",
    "msgrcv",
    "msgsnd",
    "mq_timedreceive",
    "mq_timedsend",
];

/// Calls by which a server waits for the next request of any of its connections.
const EVENTS: [&str; 6] = ["epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "pselect6"];

fn waits(s: &Slept<'_>) -> bool {
    READERS.iter().any(|f| s.in_kernel(f))
}

fn places(s: &Slept<'_>) -> Place {
    Place::of_frames(&s.user, call_in(&s.kernel).unwrap_or("read"))
}

fn sum(of: impl Iterator<Item = f64>) -> f64 {
    of.sum()
}

/// How often threads of processes slept in stacks of a kind: stacks are met by chance, switches are counted.
fn times(view: &View<'_>, processes: &[&str], of: impl Fn(&Slept<'_>) -> bool) -> f64 {
    let met = |process: &str, all: bool| {
        sum(view.slept.iter().filter(|s| s.process == process && (all || of(s))).map(|s| s.count))
    };
    sum(processes.iter().map(|process| {
        let part = met(process, false) / met(process, true).max(1.0);
        view.switched.get(*process).map_or(0.0, |s| s.voluntary) * part
    }))
}

/// The server of these clients, if there is one: a process that waits for events at 0.5 to 2 times the rate at which the clients wait for
/// answers. One thread of each side makes nearly all of the switches.
fn server<'a>(view: &View<'a>, clients: &[&str], count: f64) -> Option<&'a str> {
    let mut of: Vec<&str> = view.slept.iter().filter(|s| s.awaits_descriptors()).map(|s| s.process).collect();
    of.sort_unstable();
    of.dedup();
    let alone = |processes: &[&str]| view.switching(processes, ALONE) == 1;
    of.into_iter().find(|process| {
        let often = times(view, &[*process], |s| s.awaits_descriptors());
        !clients.contains(process)
            && (0.5..2.0).contains(&(often / count))
            && alone(&[*process])
            && alone(clients)
    })
}

/// The part of a process's switches that a thread has which does hardly any of them.
const ALONE: f64 = 0.1;

/// The part of the time that a writer waits for room, and the waits of readers for each of its own, of a connection with a small window.
const ROOM: f64 = 0.3;
const EACH: f64 = 10.0;

/// A connection whose writer waits for room while its reader waits for data, a little at a time: few bytes may be on the way.
pub(super) fn small_window(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    let full = |s: &Slept<'_>| s.in_kernel("sk_stream_wait_memory") && s.in_kernel("tcp_sendmsg");
    let empty = |s: &Slept<'_>| s.in_kernel("tcp_recvmsg");
    let writers: Vec<&Slept<'_>> = slept.iter().filter(|s| full(s)).collect();
    let readers: Vec<&Slept<'_>> = slept.iter().filter(|s| empty(s)).collect();
    let mut names: Vec<&str> = readers.iter().map(|s| s.process).collect();
    names.sort_unstable();
    names.dedup();
    let count = times(view, &names, empty);
    let rooms = sum(writers.iter().map(|s| s.count));
    if sum(writers.iter().map(|s| s.seconds)) < ROOM * view.elapsed()
        || count < (OFTEN * view.elapsed()).max(EACH * rooms)
    {
        return None;
    }
    let (mut most, mut processes) = (Most::default(), Most::default());
    for s in &writers {
        most.add(&Place::of_frames(&s.user, call_in(&s.kernel).unwrap_or("write")).words(), s.seconds);
        processes.add(s.process, s.seconds);
    }
    let process = processes.top()?.0;
    let (place, function) = most.place(&process);
    let mut claim = Claim::new(Kind::HandOff, [When::SmallWindow], "a socket")
        .with("process", process.clone())
        .with("place", function)
        .with("object", "a socket")
        .with("rate", rate_words(count / view.elapsed()));
    claim.key = format!("window {process}");
    names.extend(writers.iter().map(|s| s.process));
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| names.contains(&s.process)) {
        let moves = call_of(sample).is_some_and(|call| MOVES.contains(&call) || call == "entry");
        let what = match sample.layer() {
            Layer::Switches | Layer::Interrupts => "switches and wake-ups",
            _ if moves => "in the calls",
            _ => continue,
        };
        claim.ask(Source::Sample(at), sample.seconds, what);
    }
    let part = (count / view.switches().max(1.0)).min(1.0);
    for (layer, what) in [
        (Layer::Switches, "switches and wake-ups"),
        (Layer::WakeUp, "CPUs waking up"),
        (Layer::RunQueue, "queueing of woken threads"),
        (Layer::Interrupts, "acknowledgements and wake-ups"),
        (Layer::Serial, "CPUs idle for it"),
        (Layer::Idle, "CPUs idle for it"),
    ] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * part, what);
    }
    let reader = readers.iter().max_by(|a, b| a.count.total_cmp(&b.count))?;
    claim.line("waits in", place);
    claim.line("reader", places(reader).words());
    let seconds = sum(readers.iter().map(|s| s.seconds));
    claim.line("each", format!("{} waits for data of {}", grouped(count), length(seconds / count.max(1.0))));
    Some(claim)
}

/// Threads or processes that hand small steps to one another by pipes, sockets and counters.
pub(super) fn claims(view: &View<'_>, slept: &[Slept<'_>]) -> Option<Claim> {
    let of: Vec<&Slept<'_>> = slept.iter().filter(|s| waits(s)).collect();
    let stacks = sum(of.iter().map(|s| s.count));
    let mut names: Vec<&str> = of.iter().map(|s| s.process).collect();
    names.sort_unstable();
    names.dedup();
    let count = times(view, &names, waits);
    let seconds = sum(of.iter().map(|s| s.seconds));
    let often =
        count >= OFTEN * view.elapsed() && seconds <= SOON * count * (seconds / view.elapsed()).max(1.0);
    if !often {
        return None;
    }
    let ends: HashSet<(&str, String)> =
        of.iter().filter(|s| s.count >= 0.1 * stacks).map(|s| (s.thread, places(s).words())).collect();
    // Both ends may wait in one function.
    let two = ends.len() >= 2 || view.switching(&names, 0.05) >= 2;
    let (mut most, mut processes) = (Most::default(), Most::default());
    for s in &of {
        most.add(&places(s).words(), s.count);
        processes.add(s.process, s.count);
    }
    let top = of.iter().max_by(|a, b| a.count.total_cmp(&b.count))?;
    let stream = STREAMS.iter().any(|f| top.in_kernel(f));
    let most_of =
        |process: &&str| sum(of.iter().filter(|s| s.process == *process).map(|s| s.count)) >= ALONE * stacks;
    let clients: Vec<&str> = names.iter().copied().filter(most_of).collect();
    let served = if stream { server(view, &clients, count) } else { None };
    names = if served.is_some() { clients } else { names };
    let process = processes.top()?.0;
    let (place, function) = most.place(&process);
    let object = match READERS.iter().position(|f| top.in_kernel(f)) {
        _ if served.is_some() => "a connection",
        Some(0 | 1) => "a pipe",
        Some(3) => "an eventfd",
        Some(4 | 5) => "a message queue",
        _ => "a socket",
    };
    names.extend(served);
    let mut claim = Claim::new(Kind::HandOff, [When::Messages], object)
        .with("process", process.clone())
        .with("server", served.unwrap_or(""))
        .with("place", function)
        .with("object", object)
        .with("rate", rate_words(count / view.elapsed()));
    claim.key = format!("messages {process} {object}");
    let both = if served.is_some() { 2.0 } else { 1.0 };
    let part = (both * count / view.switches().max(1.0)).min(1.0);
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| names.contains(&s.process)) {
        let what = match call_of(sample) {
            Some(call) if MOVES.contains(&call) || call == "entry" => "in the calls",
            Some(call) if Some(sample.process) == served && EVENTS.contains(&call) => "in the calls",
            _ if matches!(sample.layer(), Layer::Switches | Layer::Interrupts) => "switches and wake-ups",
            _ => continue,
        };
        claim.ask(Source::Sample(at), sample.seconds, what);
    }
    for (layer, what) in [
        (Layer::Switches, "switches and wake-ups"),
        (Layer::WakeUp, "CPUs waking up"),
        (Layer::RunQueue, "queueing of woken threads"),
        (Layer::Interrupts, "softirqs and wake-ups"),
    ] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * part, what);
    }
    let user = view.samples.iter().filter(|s| s.class == SampleClass::User && names.contains(&s.process));
    let user = sum(user.map(|s| s.seconds));
    // Both ends do hardly anything else; of two threads of which one waits while the other runs, each message costs more than what they
    // do with it.
    if !(two && user < STEP * count || served.is_some() && user < claim.asked()) {
        return None;
    }
    let serial = view.beside_stacks(Layer::Serial) * part;
    claim.ask(Source::Layer(Layer::Serial), serial, "CPUs idle for it");
    claim.line("waits in", place);
    claim.line("each", format!("{} of {}", grouped(count), length(seconds / count.max(1.0))));
    Some(claim)
}
