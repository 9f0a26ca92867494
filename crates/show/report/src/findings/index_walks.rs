//! Statements of PostgreSQL that step through many entries of an index for what they return.

use std::collections::HashMap;

use super::claim::{Claim, Kind, Source};
use super::view::View;
use crate::causes::When;

/// The part of capacity, and of the server's time on CPU, that walking takes: little is done with the rows.
const LEAST: f64 = 0.05;
const OF_PROCESS: f64 = 0.7;

/// The part of it in which a B-tree goes on to its next entry, and what it may spend to find first ones.
const STEPS: f64 = 0.1;
const FINDS: f64 = 0.05;

/// Samples of steps from which their part is known.
const SEEN: u64 = 10;

/// By which a statement takes the next row that an index has.
const TAKES: [&str; 3] = ["index_getnext_slot", "index_getnext_tid", "index_fetch_heap"];

#[derive(Default)]
struct Walk {
    samples: Vec<usize>,
    steps: f64,
    seen: u64,
    finds: f64,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<&str, Walk> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        let Some(runs) = sample.user.iter().position(|f| *f == "standard_ExecutorRun") else { continue };
        let inner = &sample.user[..runs];
        if !inner.iter().any(|f| TAKES.contains(f)) {
            continue;
        }
        let walk = of.entry(sample.process).or_default();
        walk.samples.push(at);
        if inner.contains(&"_bt_next") {
            walk.steps += sample.seconds;
            walk.seen += sample.samples;
        }
        walk.finds += if inner.contains(&"_bt_first") { sample.seconds } else { 0.0 };
    }
    let mut claims = Vec::new();
    for (process, walk) in of {
        let seconds = view.sample_seconds(&walk.samples);
        if seconds < LEAST * view.capacity()
            || seconds < OF_PROCESS * view.on_cpu(process)
            || walk.steps < STEPS * seconds
            || walk.seen < SEEN
            || walk.finds > FINDS * seconds
        {
            continue;
        }
        let mut claim = Claim::new(Kind::Runtime, [When::IndexWalk], "PostgreSQL").with("process", process);
        claim.key = format!("index walk {process}");
        for at in walk.samples {
            claim.ask(Source::Sample(at), view.samples[at].seconds, "stepping from row to row");
        }
        claims.push(claim);
    }
    claims
}
