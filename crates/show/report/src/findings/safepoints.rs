//! A Java virtual machine that waits until all its threads have stopped: one of them runs on, in code that does not look whether it
//! should.

use std::collections::HashMap;

use super::asleep::idle;
use super::claim::{Claim, Kind};
use super::libraries::begins_with;
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;
use crate::onion::evidence::collectors::is_java_machines;

/// The part of an observation that is waited from which it is a cause.
const LEAST: f64 = 0.1;

/// Functions in which the virtual machine waits for its threads.
const WAITS: [&str; 2] = ["SafepointSynchronize::synchronize_threads", "SafepointSynchronize::begin"];

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let awaits = |user: &[&str]| user.iter().any(|frame| begins_with(frame, &WAITS));
    let mut of: HashMap<&str, f64> = HashMap::new();
    for s in view.slept.iter().filter(|s| s.wait != "run queue" && awaits(&s.user)) {
        *of.entry(s.process).or_default() += s.seconds;
    }
    for sample in view.samples.iter().filter(|sample| awaits(&sample.user)) {
        *of.entry(sample.process).or_default() += sample.seconds;
    }
    of.retain(|_, seconds| *seconds >= LEAST * view.elapsed());
    of.into_iter().map(|(process, seconds)| claim(view, process, seconds)).collect()
}

fn claim(view: &View<'_>, process: &str, seconds: f64) -> Claim {
    // The thread that does not stop runs meanwhile, or stands on a run queue: the code that runs most is likely to be it.
    let (mut places, mut all) = (Most::default(), 0.0);
    let own = view.samples.iter().filter(|s| s.process == process && !is_java_machines(s.thread));
    for sample in own {
        all += sample.seconds;
        places.add(&Place::of(sample, "").words(), sample.seconds);
    }
    let share = places.largest().map_or(0.0, |(_, most)| 100.0 * most / all.max(f64::MIN_POSITIVE));
    let (words, place) = places.place(process);
    let mut claim = Claim::new(Kind::SerialCode, [When::SafepointAwaited], process)
        .with("process", process)
        .with("place", place)
        .with("part", format!("{:.0} %", 100.0 * seconds / view.elapsed()));
    claim.key = format!("safepoints {process}");
    claim.waited = Some(seconds);
    claim.lives = view.elapsed();
    idle(view, &mut claim, seconds / view.elapsed(), "CPUs idle for it");
    claim.line("runs", format!("{words} ({share:.0} % of the threads that have to stop)"));
    claim.line("waits", format!("{seconds:.2} of {:.2} s until all threads have stopped", view.elapsed()));
    claim
}
