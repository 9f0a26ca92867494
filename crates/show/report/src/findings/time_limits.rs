//! Waits with a time limit that runs out again and again, while another thread waits for what comes after it: nobody wakes the thread
//! when there is something to do. Plain sleeps are in [`super::waiting`].

use std::collections::BTreeMap;

use ncpu_schema::{Activity, thread_time};

use super::asleep::{idle, keeps_house};
use super::claim::{Claim, Kind};
use super::devices::{LEAST, OFTEN};
use super::libraries::c_name;
use super::numbers::{grouped, rate_words};
use super::places::Place;
use super::system_calls::call_in;
use super::view::{Slept, View};
use crate::causes::When;
use crate::onion::evidence::length;

/// The part of a wait for which the thread that ends it has slept itself, and the part of all such waits of which it is known.
const ASLEEP: f64 = 0.7;
const KNOWN: f64 = 0.05;

/// Mean limits that are polling: a longer one is there for what hardly happens.
const LIMITS: std::ops::Range<f64> = 2e-4..2.0;

/// How far the mean of a stack's waits may be from that of the waits whose time ran out.
const ALIKE: std::ops::Range<f64> = 0.6..1.6;

/// Waits of a process that are of one kind and for one thing.
#[derive(Clone, Copy, Default)]
struct Sum<'a> {
    seconds: f64,
    waits: f64,
    held: f64,
    asleep: f64,
    /// The call that the thread which ended them slept in.
    holder_in: Option<&'a str>,
}

impl Sum<'_> {
    fn each(&self) -> f64 {
        self.seconds / self.waits.max(1.0)
    }
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let Ok(Some(t)) = thread_time::Reader::open(view.context.recording) else { return Vec::new() };
    let mut sums: BTreeMap<(&str, &str, &str), Sum<'_>> = BTreeMap::new();
    for row in t.rows() {
        let (Some(process), Some(doing)) = (t.process.get(row), t.doing.get(row)) else { continue };
        let kind = match doing {
            Activity::Timer => "timer",
            Activity::Thread | Activity::Lock | Activity::Semaphore => "held",
            _ => continue,
        };
        let sum = sums.entry((process, kind, t.what.get(row).unwrap_or(""))).or_default();
        sum.seconds += t.seconds.get(row).unwrap_or(0.0);
        sum.waits += t.waits.get(row).unwrap_or(0) as f64;
        sum.held += t.held.get(row).unwrap_or(0.0);
        sum.asleep += t.held_asleep.get(row).unwrap_or(0.0);
        sum.holder_in = t.holder_in.get(row).or(sum.holder_in);
    }
    let awaited = sums.iter().filter(|((_, kind, _), sum)| {
        *kind == "held"
            && sum.seconds >= LEAST * view.elapsed()
            && sum.held >= KNOWN * sum.seconds
            && sum.asleep >= ASLEEP * sum.held
    });
    let claims = awaited.filter_map(|((process, _, waiter), awaited)| {
        let call = awaited.holder_in?;
        let expired = sums.get(&(*process, "timer", call))?;
        claim(view, process, call, expired, (*waiter, awaited))
    });
    claims.max_by(|a, b| a.waited.unwrap_or(0.0).total_cmp(&b.waited.unwrap_or(0.0))).into_iter().collect()
}

fn claim(
    view: &View<'_>,
    process: &str,
    call: &str,
    expired: &Sum<'_>,
    (waiter, awaited): (&str, &Sum<'_>),
) -> Option<Claim> {
    let each = expired.each();
    // Several that wait at once have their turn one after another.
    let turns = (awaited.seconds / view.elapsed()).max(1.0);
    if expired.waits < OFTEN * view.elapsed()
        || expired.seconds < LEAST * view.elapsed()
        || !LIMITS.contains(&each)
        || !(0.3 * each..4.0 * turns * each).contains(&awaited.each())
        || call.ends_with("nanosleep")
    {
        return None;
    }
    let of = |s: &&Slept<'_>| {
        s.process == process
            && call_in(&s.kernel) == Some(call)
            && !keeps_house(s)
            && ALIKE.contains(&(s.each() / each))
            // Where the waiter is known by its function, it is not the one that sleeps.
            && (waiter.is_empty() || !s.user.contains(&waiter))
    };
    let sleeper = view.slept.iter().filter(of).max_by(|a, b| {
        (has_limit(a), a.seconds).partial_cmp(&(has_limit(b), b.seconds)).unwrap_or(std::cmp::Ordering::Equal)
    })?;
    // A call that always has a limit says by itself that it has one.
    if call == "futex" && !has_limit(sleeper) {
        return None;
    }
    let place = Place::outside(&sleeper.user, waits);
    let name = if place.function().is_empty() { process } else { place.function() };
    let mut claim = Claim::new(Kind::Polling, [When::LimitAwaited], name)
        .with("place", name)
        .with("process", process)
        .with("call", call)
        .with("waiter", if waiter.is_empty() { "another thread".into() } else { super::names::short(waiter) })
        .with("each", length(each))
        .with("rate", rate_words(expired.waits / view.elapsed()));
    claim.key = format!("time limit in {name}");
    claim.waited = Some(awaited.seconds);
    claim.lives = turns.ceil() * view.elapsed();
    idle(view, &mut claim, awaited.seconds / view.elapsed(), "CPUs idle until time is up");
    claim.line("waits in", place.words());
    claim.line("awaited in", super::names::short(waiter));
    claim.line("time up", format!("{} times after {} each", grouped(expired.waits), length(each)));
    Some(claim)
}

/// Whether a function is of a library between the program and the call that waits.
fn waits(frame: &str) -> bool {
    super::libraries::waits(frame)
        || ["std::", "core::", "<std::", "__gthread"].iter().any(|start| frame.starts_with(start))
        || ["futex_abstimed_wait_common", "epoll_wait", "epoll_pwait", "poll", "ppoll", "select", "pselect"]
            .contains(&c_name(frame))
}

/// Whether a wait is by a function that takes a time limit.
fn has_limit(s: &Slept<'_>) -> bool {
    const WORDS: [&str; 8] = [
        "timedwait",
        "clockwait",
        "timedlock",
        "clocklock",
        "parkNanos",
        "parkUntil",
        "wait_timeout",
        "notetsleep",
    ];
    s.user.iter().any(|frame| WORDS.iter().any(|word| frame.contains(word)))
}
