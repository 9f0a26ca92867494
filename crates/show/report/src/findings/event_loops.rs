//! Event loops that stand still: a callback waits in a call, and everything else that the loop has to do waits behind it.

use std::collections::HashMap;

use super::claim::{Claim, Kind, Source};
use super::late::Sum;
use super::libraries::{begins_with, is_java_sleep};
use super::loops::runs_callback;
use super::places::{Most, Place, begins, is_library, is_line};
use super::system_calls::call_in;
use super::view::{Slept, View};
use crate::causes::When;

/// Waits a second that are a pattern and not a few.
const OFTEN: f64 = 5.0;

/// The part of a process's time on CPU that a loop's own code has where it does nothing else, and the one in which tasks let go.
const OWN: f64 = 0.3;
const AT_ONCE: f64 = 1.0 / 30.0;
/// The same where the loop's code has most of it: a task that lets go does so in a few instructions, and some samples are enough.
const MOSTLY_OWN: f64 = 0.6;
const SELDOM_AT_ONCE: f64 = 1.0 / 100.0;

/// The part of capacity that such a process has.
const LEAST: f64 = 0.05;

/// Whether a thread waits in a call until something comes or happens: not for a lock, which a runtime's own threads take turns with.
fn waits(s: &Slept<'_>) -> Option<&'static str> {
    const CALLS: [&str; 22] = [
        "read",
        "readv",
        "recvfrom",
        "recvmsg",
        "write",
        "writev",
        "sendto",
        "sendmsg",
        "connect",
        "accept",
        "accept4",
        "poll",
        "ppoll",
        "select",
        "pselect6",
        "epoll_wait",
        "epoll_pwait",
        "nanosleep",
        "clock_nanosleep",
        "wait4",
        "waitid",
        "flock",
    ];
    if s.wait != "asleep" {
        return None;
    }
    // Java sleeps by a futex.
    if s.user.iter().any(|frame| is_java_sleep(frame)) {
        return Some("Thread.sleep");
    }
    let call = call_in(&s.kernel)?;
    CALLS.iter().find(|of| **of == call).copied()
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<(&str, &str), Sum<'_>> = HashMap::new();
    for s in &view.slept {
        let Some(call) = waits(s) else { continue };
        if let Some(name) = runs_callback(&s.user) {
            of.entry((s.process, name)).or_default().add(s, call, "");
        }
    }
    let large = of.into_iter().filter(|(_, sum)| sum.is_large(view) && sum.is_often(view, OFTEN));
    let blocked = large.map(|((_, name), sum)| {
        let mut claim = sum.claim(view, When::BlockedLoop, Kind::Pool).with("library", name);
        claim.subject = name.to_string();
        claim
    });
    blocked.chain(without_waiting(view)).chain(node_without_waiting(view)).collect()
}

/// Whether a frame is asyncio's loop at work.
fn goes_round(frame: &str) -> bool {
    begins_with(frame, &["BaseEventLoop._run_once (base_events.py:", "_run_once (base_events.py:"])
}

/// Whether a frame lets a task go until its time, or until all others had their turn.
fn lets_go(frame: &str) -> bool {
    begins_with(frame, &["sleep (tasks.py:", "__sleep0 (tasks.py:"])
}

/// The part of an observation that a loop waits for events below which it hardly ever does.
const NEVER: f64 = 0.3;

/// Seconds that a process waits for events.
fn awaits_events(view: &View<'_>, process: &str) -> f64 {
    let waits = |s: &&Slept<'_>| s.process == process && s.wait != "run queue" && s.awaits_descriptors();
    view.slept.iter().filter(waits).map(|s| s.seconds).sum()
}

/// Loops that go round and never wait, since a task lets go for no time, and asks again.
fn without_waiting(view: &View<'_>) -> Vec<Claim> {
    const TIMERS: [&str; 4] = [
        "BaseEventLoop.call_later (",
        "BaseEventLoop.call_at (",
        "call_later (base_events",
        "call_at (base_events",
    ];
    #[derive(Default)]
    struct Round {
        all: f64,
        own: Vec<usize>,
        at_once: f64,
        timed: f64,
        places: Most,
    }
    let mut of: HashMap<&str, Round> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        let round = of.entry(sample.process).or_default();
        round.all += sample.seconds;
        if !sample.user.iter().any(|frame| goes_round(frame)) {
            continue;
        }
        // Below a line of the program's the time is the program's.
        if sample.user.iter().find(|frame| is_line(frame)).is_some_and(|line| is_library(line)) {
            round.own.push(at);
        }
        if sample.user.iter().any(|frame| lets_go(frame)) {
            match sample.user.iter().any(|frame| begins_with(frame, &TIMERS)) {
                true => round.timed += sample.seconds,
                false => {
                    round.at_once += sample.seconds;
                    round.places.add(&Place::beyond(&sample.user, lets_go).words(), sample.seconds);
                }
            }
        }
    }
    let spins = |of: &Round| {
        let own = view.sample_seconds(&of.own);
        let has = |part: f64, at_once: f64| own >= part * of.all && of.at_once >= at_once * of.all;
        (has(OWN, AT_ONCE) || has(MOSTLY_OWN, SELDOM_AT_ONCE)) && of.at_once > 2.0 * of.timed
    };
    of.into_iter()
        .filter(|(_, round)| round.all >= LEAST * view.capacity() && spins(round))
        .filter(|(process, _)| awaits_events(view, process) < NEVER * view.elapsed())
        .map(|(process, round)| {
            let (place, function) = round.places.place(process);
            let mut claim = Claim::new(Kind::Polling, [When::LoopSpins], "asyncio")
                .with("process", process)
                .with("library", "asyncio")
                .with("place", function);
            claim.key = format!("loop {process}");
            for &at in &round.own {
                claim.ask(Source::Sample(at), view.samples[at].seconds, "rounds of the event loop");
            }
            claim.line("asked in", place);
            claim
        })
        .collect()
}

/// The part of the time of Node's own loop that is not the program's where it does nothing else, that its immediate callbacks have, and
/// above which its callbacks for events have that, so that it has something to do.
const TURNS: f64 = 0.6;
const IMMEDIATE: f64 = 0.3;
const EVENTS: f64 = 0.2;

/// Loops of Node that never wait, since a callback asks for the next turn (`setImmediate`), and does little in each.
fn node_without_waiting(view: &View<'_>) -> Vec<Claim> {
    #[derive(Default)]
    struct Turns {
        all: f64,
        own: Vec<usize>,
        immediate: f64,
        events: f64,
        places: Most,
    }
    let has = |user: &[&str], starts: &[&str]| user.iter().any(|frame| begins_with(frame, starts));
    let mut of: HashMap<&str, Turns> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        // Each worker has a loop of its own.
        if !has(&sample.user, &["uv_run"]) || has(&sample.user, &["node::worker::Worker::"]) {
            continue;
        }
        let turns = of.entry(sample.process).or_default();
        turns.all += sample.seconds;
        let programs = sample.user.iter().any(|frame| is_line(frame) && !begins(frame));
        let immediate = has(&sample.user, &["node::Environment::CheckImmediate"]);
        if !programs {
            turns.own.push(at);
        }
        match (immediate, programs) {
            (true, false) => turns.immediate += sample.seconds,
            (true, true) => turns.places.add(&Place::of(sample, "").words(), sample.seconds),
            (false, _) if has(&sample.user, &["node::InternalMakeCallback", "node::MakeCallback"]) => {
                turns.events += sample.seconds;
            }
            _ => {}
        }
    }
    let spins = |of: &Turns| {
        view.sample_seconds(&of.own) >= TURNS * of.all
            && of.immediate >= IMMEDIATE * of.all
            && of.events <= EVENTS * of.all
    };
    of.into_iter()
        .filter(|(_, turns)| turns.all >= LEAST * view.capacity() && spins(turns))
        .map(|(process, turns)| {
            let (words, place) = turns.places.place(process);
            let mut claim = Claim::new(Kind::Polling, [When::LoopSpins], "Node")
                .with("process", process)
                .with("library", "Node")
                .with("place", place);
            claim.key = format!("loop {process}");
            for &at in &turns.own {
                claim.ask(Source::Sample(at), view.samples[at].seconds, "turns of the event loop");
            }
            claim.line("asked in", words);
            claim
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ncpu_table::{Table, Type};

    use super::super::tests::{recording, stacks};
    use super::runs_callback;
    use crate::findings::Findings;

    /// Table `stacks`: samples on CPU, or seconds asleep.
    fn of_stacks(rows: &[(bool, &str, u64, f64)]) -> Table {
        let definition = ncpu_schema::definition("stacks").unwrap();
        let columns = (definition.columns)();
        let mut out = definition.builder();
        for (on, stack, samples, seconds) in rows {
            let mut row = out.row();
            for column in &columns {
                let text = match &*column.name {
                    "kind" => Some(if *on { "on-cpu" } else { "off-cpu" }),
                    "process" | "thread" => Some("stamps"),
                    "stack" => Some(*stack),
                    "at" => on.then_some("target"),
                    "class" => on.then_some("user"),
                    "wait" => (!on).then_some("asleep"),
                    _ => None,
                };
                row = match column.ty {
                    Type::Text => row.text_opt(text),
                    Type::Int => row.int_opt((column.name == "samples").then_some(*samples)),
                    Type::Float => row.float_opt((column.name == "seconds").then_some(*seconds)),
                };
            }
        }
        out.finish()
    }

    #[test]
    fn a_loop_that_waits_for_events_does_not_go_round_in_vain() {
        const ROUND: &str = "stamps;BaseEventLoop._run_once (base_events.py:1922)";
        let finds = |waited: f64| {
            let lets_go = format!("{ROUND};Handle._run (events.py:80);ask (app.py:7);sleep (tasks.py:640)");
            let asleep = format!("asleep;{ROUND};epoll_wait;do_epoll_wait_[k]");
            let table = of_stacks(&[
                (true, ROUND, 600, 6.0),
                (true, &lets_go, 100, 1.0),
                (false, &asleep, 400, waited),
            ]);
            let samples = stacks(&[("user", ROUND, 700.0)]).remove(1);
            let found = Findings::of(&recording(0.0, vec![table, samples])).unwrap();
            found.list.iter().any(|finding| finding.id == "event-loop-without-waiting")
        };
        assert!(finds(0.1));
        assert!(!finds(6.0));
    }

    #[test]
    fn a_callback_is_known_by_what_runs_it() {
        let tokio = "tokio::runtime::scheduler::multi_thread::worker::Context::run_task";
        for (stack, of) in [
            (
                &[
                    "fetch (a.py:7)",
                    "Handle._run (events.py:80)",
                    "BaseEventLoop._run_once (base_events.py:1922)",
                ][..],
                Some("asyncio"),
            ),
            (
                &["EpollSelector.select (selectors.py:468)", "BaseEventLoop._run_once (base_events.py:1884)"],
                None,
            ),
            (
                &[
                    "poll",
                    "node::SyncProcessRunner::Spawn",
                    "Builtins_JSEntry",
                    "node::InternalMakeCallback",
                    "uv_run",
                ],
                Some("Node"),
            ),
            // A program that has not come to its loop yet may wait.
            (
                &[
                    "poll",
                    "uv_run",
                    "node::SyncProcessRunner::Spawn",
                    "Builtins_JSEntry",
                    "node::LoadEnvironment",
                ],
                None,
            ),
            (&["epoll_pwait", "uv__io_poll", "uv_run", "node::SpinEventLoop"], None),
            (&["std::thread::sleep", "app::serve", "tokio::runtime::task::raw::poll", tokio], Some("tokio")),
            (
                &[
                    "epoll_wait",
                    "mio::poll::Poll::poll",
                    "tokio::runtime::io::driver::Driver::turn",
                    "tokio::runtime::scheduler::multi_thread::worker::Context::park_timeout",
                ],
                None,
            ),
            // Threads for what blocks run tasks as well.
            (
                &[
                    "std::thread::sleep",
                    "app::load",
                    "tokio::runtime::task::raw::poll",
                    "tokio::runtime::blocking::pool::Inner::run",
                ],
                None,
            ),
            (&["recv", "Handle._running (app.py:7)"], None),
            (&[], None),
        ] {
            assert_eq!(runs_callback(stack), of, "{stack:?}");
        }
    }
}
