//! Code of a parallel program that runs while its other threads have nothing to do.

use ncpu_schema::{IdleReason, Layer};

use super::claim::{Claim, Kind, Source};
use super::names::short;
use super::view::View;
use crate::causes::When;
use crate::onion::evidence::charged;

/// The part of an observation that a thread runs to be one of those a program is divided into.
const WORKS: f64 = 0.05;

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
    let mut claims = Vec::new();
    for row in charged(&view.context, IdleReason::Serial) {
        // A program of one thread has no serial part: it is serial.
        if !row.runs() || row.share < NAMED || view.busy_threads(&row.process, WORKS) < 2 {
            continue;
        }
        let code: Vec<String> = row.code.split(" <- ").filter(|f| !f.is_empty()).map(short).collect();
        let place = if row.wanders() { String::new() } else { code.first().cloned().unwrap_or_default() };
        let when = if place.is_empty() { When::SerialThread } else { When::SerialCode };
        let mut claim = Claim::new(
            Kind::SerialCode,
            [when],
            if place.is_empty() { row.thread.clone() } else { place.clone() },
        )
        .with("thread", row.thread.clone())
        .with("place", place.clone())
        .with("callers", code.iter().rev().cloned().collect::<Vec<_>>().join(" → "));
        claim.key = format!("serial {} {place}", row.thread);
        claim.ask(Source::Layer(layer), idle * row.share, "CPUs idle for it");
        for (at, seconds) in &spins {
            claim.ask(Source::Sample(*at), seconds * row.share, "spinning for it");
        }
        if !code.is_empty() {
            claim.line("runs in", code.into_iter().rev().collect::<Vec<_>>().join(" → "));
        }
        claim.line("for", format!("{:.2} s of {:.2}", row.seconds, view.elapsed()));
        claims.push(claim);
    }
    claims
}

/// The thread that runs alone while CPUs idle, where its program has no second that works: it is serial as a whole.
pub(super) fn alone(view: &View<'_>) -> Option<String> {
    let top = charged(&view.context, IdleReason::Serial).into_iter().next()?;
    let large = view.seconds(Layer::Serial) >= 0.1 * view.capacity();
    (large && top.runs() && top.share >= 0.5 && view.busy_threads(&top.process, WORKS) < 2)
        .then_some(top.thread)
}
