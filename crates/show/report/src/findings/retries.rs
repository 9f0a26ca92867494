//! Pauses between calls that fail: they are a part of what it costs to try again and again.

use super::claim::{Ask, Claim, Source};
use super::names::short;
use super::view::View;
use crate::causes::When;

/// The part of a failing call's samples that are in the function which pauses, from which on it tries again after each pause.
const MOST: f64 = 0.7;

/// Gives short sleeps to the call that fails between them.
pub(super) fn join(view: &View<'_>, claims: &mut Vec<Claim>) {
    let (pauses, mut rest): (Vec<Claim>, Vec<Claim>) =
        claims.drain(..).partition(|claim| claim.when.contains(&When::FrequentSleeps));
    for pause in pauses {
        let tries = rest.iter_mut().filter(|claim| fails(claim) && pauses_in(view, claim, &pause));
        match tries.max_by(|a, b| a.asked().total_cmp(&b.asked())) {
            Some(claim) => {
                claim.asks.extend(pause.asks.into_iter().map(|ask| Ask { what: "pauses between", ..ask }));
                claim.line(
                    "pauses",
                    format!(
                        "{} each, {} times a second",
                        word(&pause.fields, "each"),
                        word(&pause.fields, "rate")
                    ),
                );
            }
            None => rest.push(pause),
        }
    }
    *claims = rest;
}

fn fails(claim: &Claim) -> bool {
    claim.when.iter().any(|when| matches!(when, When::CallFails | When::RefusedConnections))
}

/// Whether a failing call of a process is mostly made within the function that pauses.
fn pauses_in(view: &View<'_>, claim: &Claim, pause: &Claim) -> bool {
    if word(&claim.fields, "process") != word(&pause.fields, "process") {
        return false;
    }
    let place = word(&pause.fields, "place");
    let (mut within, mut all) = (0.0, 0.0);
    for ask in &claim.asks {
        let Source::Sample(at) = ask.from else { continue };
        let sample = &view.samples[at];
        // The kernel's part of it may have been done for another thread.
        if sample.user.is_empty() {
            continue;
        }
        all += ask.seconds;
        within += if sample.user.iter().any(|frame| short(frame) == place) { ask.seconds } else { 0.0 };
    }
    all > 0.0 && within >= MOST * all
}

fn word<'c>(fields: &'c [(&'static str, String)], name: &str) -> &'c str {
    fields.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
}
