//! Code of a parallel program that runs while its other threads have nothing to do.

use std::collections::HashMap;

use ncpu_schema::{IdleReason, Layer, critical_path};

use super::claim::{Claim, Kind, Source};
use super::names::short;
use super::teams;
use super::view::{Sampled, View};
use crate::causes::When;
use crate::onion::evidence::collectors::{collector, is_java_machines};
use crate::onion::evidence::{Charged, charged};

/// The part of an observation that a thread runs to be one of those a program is divided into.
const WORKS: f64 = 0.05;

/// The part of the capacity from which a serial part is a cause.
const LEAST: f64 = 0.05;

/// The same of a thread that goes through many functions.
const OF_MANY: f64 = 0.1;

/// A part of the serial phases that is named.
const NAMED: f64 = 0.1;

/// The code that the others wait for, largest first.
pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let layer = Layer::Serial;
    let idle = view.beside_stacks(layer);
    let spins: Vec<(usize, f64)> = view
        .samples
        .iter()
        .enumerate()
        .filter(|(_, sample)| sample.layer() == layer)
        .map(|(at, sample)| (at, sample.seconds))
        .collect();
    if !is_parallel(view) {
        return Vec::new();
    }
    let mut claims = Vec::new();
    for row in charged(&view.context, IdleReason::Serial) {
        // Code that runs beside other threads most of the time does not make a program serial: its parts are uneven, or other programs
        // had held one of them up.
        if !row.runs()
            || row.share < NAMED
            || view.busy_workers(&row.process, WORKS) < 2
            || !(runs_alone(view, &row) || is_between_regions(view, &row))
            || is_of_team(view, &row)
        {
            continue;
        }
        // A program without symbols has no names of functions, and [unknown …] names no place.
        let is_named = |f: &&str| !f.is_empty() && !f.starts_with("[unknown");
        let code: Vec<String> = row.code.split(" <- ").filter(is_named).map(short).collect();
        let place = if row.wanders() { String::new() } else { code.first().cloned().unwrap_or_default() };
        let when = if place.is_empty() { When::SerialThread } else { When::SerialCode };
        let subject = if place.is_empty() { row.thread.clone() } else { place.clone() };
        let mut claim = Claim::new(Kind::SerialCode, [when], subject)
            .with("thread", row.thread.clone())
            .with("place", place.clone())
            .with("callers", code.iter().rev().cloned().collect::<Vec<_>>().join(" → "));
        claim.key = format!("serial {} {place}", row.thread);
        claim.ask(Source::Layer(layer), idle * row.share, "CPUs idle for it");
        for (at, seconds) in &spins {
            claim.ask(Source::Sample(*at), seconds * row.share, "spinning for it");
        }
        // Every program begins and ends with one thread. Of a thread in many functions nobody knows what to divide, or to make faster.
        let least = if place.is_empty() { OF_MANY } else { LEAST };
        if claim.asked() < least * view.capacity() {
            continue;
        }
        claim.line("alone for", format!("{:.2} s of {:.2}", row.seconds, view.elapsed()));
        claims.push(claim);
    }
    claims
}

/// The part of the time in which a CPU was left idle from which the rest, which other programs had, is like it.
const LIKE_THE_REST: f64 = 0.7;

/// Whether threads of the program run at the same time for a tenth of what they run: a program of one thread, or of processes
/// one after the other, has no serial part; it is serial as a whole. A runtime's collector and compilers run beside any program.
fn is_parallel(view: &View<'_>) -> bool {
    let alone = seconds_alone(view);
    let running = view.context.running;
    let of_runtime = |s: &&Sampled<'_>| is_java_machines(s.thread) || collector(s.thread, &s.user).is_some();
    let runtime: f64 = view.samples.iter().filter(of_runtime).map(|s| s.seconds).sum();
    // Where others had a CPU for a while, the program that uses no more than one was alone beside them as well: a Go program's one
    // goroutine moves between threads, and a script begins one process after the other.
    let left = left_idle(view);
    let of_one = running - runtime <= 1.05 * view.elapsed() && left >= LIKE_THE_REST;
    // The code that runs beside the runtime is not alone either.
    running - alone / if of_one { left } else { 1.0 } - 2.0 * runtime >= 0.1 * running
}

/// CPUs that idle beside what is claimed, where the program runs one thread at a time as a whole: what takes it less time has fewer
/// CPUs idle beside it.
pub(super) fn idles_beside(view: &View<'_>, claim: &Claim) -> f64 {
    let idle = view.beside_stacks(Layer::Serial);
    let rows = charged(&view.context, IdleReason::Serial);
    let alone: f64 = rows.iter().filter(|row| row.runs()).map(|row| row.seconds).sum();
    // Where other programs had the CPUs beside it, it may have been alone as well.
    if idle <= 0.0 || view.context.running - alone / left_idle(view) >= 0.1 * view.context.running {
        return 0.0;
    }
    let mut of: HashMap<&str, (f64, f64)> = HashMap::new();
    for sample in &view.samples {
        of.entry(sample.process).or_default().0 += sample.seconds;
    }
    let mut asked = 0.0;
    for ask in &claim.asks {
        match ask.from {
            Source::Sample(at) => of.entry(view.samples[at].process).or_default().1 += ask.seconds,
            Source::Layer(Layer::Serial) => asked += ask.seconds,
            Source::Layer(_) => {}
        }
    }
    let beside = rows.iter().filter(|row| row.runs()).map(|row| match of.get(&*row.process) {
        Some((all, claimed)) if *all > 0.0 => idle * row.share * (claimed / all).min(1.0),
        _ => 0.0,
    });
    (beside.sum::<f64>() - asked).clamp(0.0, idle)
}

/// Whether the code is a part of OpenMP's parallel regions or of their beginning and end: others wait at the region's end for it, since
/// it stood behind other programs, has more work, or the region is small.
fn is_of_team(view: &View<'_>, row: &Charged) -> bool {
    match row.wanders() {
        true => teams::is_mostly_in_library(view, &row.process),
        false => row.code.split(" <- ").any(teams::is_region),
    }
}

/// Whether the code is between the parallel regions of a team of OpenMP: its other threads have nothing to do then, whether they sleep,
/// spin, or other programs have their CPUs.
fn is_between_regions(view: &View<'_>, row: &Charged) -> bool {
    let mut of_process = view.samples.iter().filter(|s| s.process == row.process);
    !row.wanders() && of_process.any(|s| s.user.iter().any(|f| teams::is_region(f)))
}

/// Whether code runs alone for most of the time that it runs.
fn runs_alone(view: &View<'_>, row: &Charged) -> bool {
    let functions: Vec<&str> = row.code.split(" <- ").filter(|f| !f.is_empty()).collect();
    if row.wanders() || functions.is_empty() {
        return true;
    }
    let of = |user: &[&str]| functions.iter().zip(user).all(|(a, b)| a == b) && user.len() >= functions.len();
    let own = view.samples.iter().filter(|s| s.process == row.process && of(&s.user));
    // An observation without stacks that say what CPUs did cannot tell.
    view.samples.is_empty() || row.seconds >= 0.5 * left_idle(view) * own.map(|s| s.seconds).sum::<f64>()
}

/// For how long one thread ran while CPUs idled, by looks at them: a look may find another reason why they idle, so that the time that
/// is charged to the code that ran is less.
fn seconds_alone(view: &View<'_>) -> f64 {
    let Ok(Some(t)) = critical_path::Reader::open(view.context.recording) else { return 0.0 };
    let serial = t
        .rows()
        .filter(|&row| t.reason.get(row) == Some(IdleReason::Serial) && t.doing.get(row) == Some("running"));
    serial.filter_map(|row| t.seconds.get(row)).sum()
}

/// The part of the CPUs' time that the program did not use in which they idled or spun: other programs had the rest. Where that
/// is most of it, two fifths: less says nothing about who ran beside whom.
fn left_idle(view: &View<'_>) -> f64 {
    let spun = view.samples.iter().filter(|s| s.layer() == Layer::Serial).map(|s| s.seconds).sum::<f64>();
    let idle = view.idle() + spun;
    let others: f64 =
        [Layer::Others, Layer::Ncpu, Layer::Steal].map(|layer| view.seconds(layer)).iter().sum();
    if others <= 0.0 { 1.0 } else { (idle / (idle + others)).max(0.4) }
}

/// The thread that runs alone while CPUs idle, where its program is serial as a whole.
pub(super) fn alone(view: &View<'_>) -> Option<String> {
    let rows = charged(&view.context, IdleReason::Serial);
    let top = rows.iter().find(|row| row.runs())?;
    // Whatever code it runs.
    let same = |row: &&Charged| row.runs() && (&row.process, &row.thread) == (&top.process, &top.thread);
    let share: f64 = rows.iter().filter(same).map(|row| row.share).sum();
    let large = view.seconds(Layer::Serial) >= 0.1 * view.capacity();
    let serial = !is_parallel(view) || view.busy_threads(&top.process, WORKS) < 2;
    (large && share >= 0.5 && serial).then(|| top.thread.clone())
}
