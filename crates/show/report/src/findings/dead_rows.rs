//! Rows of PostgreSQL's tables that are deleted or replaced and still walked by look-ups in an index, since they cannot be removed yet.

use std::collections::HashMap;

use super::claim::{Claim, Kind, Source};
use super::places::Most;
use super::view::{Sampled, View};
use crate::causes::When;

/// The part of capacity, and of the server's time on CPU, that look-ups take.
const LEAST: f64 = 0.05;
const OF_PROCESS: f64 = 0.2;

/// The part of a look-up's time in which it asks whether a row that it cannot see is dead to all, from which most rows are.
const ASKS: f64 = 0.03;

/// Samples of it from which a part is known.
const SEEN: u64 = 5;

/// By which a look-up steps from one entry of an index to the next.
const LOOKS: [&str; 3] = ["index_getnext_slot", "index_getnext_tid", "index_fetch_heap"];

/// What it asks for rows alone that it cannot see.
const DEAD: [&str; 4] =
    ["HeapTupleIsSurelyDead", "GlobalVisTestFor", "GlobalVisTestIsRemovableXid", "GlobalVisIsRemovableXid"];

#[derive(Default)]
struct LookUps {
    samples: Vec<usize>,
    asks: f64,
    seen: u64,
    callers: Most,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<&str, LookUps> = HashMap::new();
    let looks_up = |s: &Sampled<'_>| {
        let below = s.user.iter().rposition(|f| *f == "standard_ExecutorRun")?;
        s.user[..below].iter().any(|f| LOOKS.contains(f)).then_some(below)
    };
    for (at, sample) in view.samples.iter().enumerate() {
        let Some(below) = looks_up(sample) else { continue };
        let sum = of.entry(sample.process).or_default();
        sum.samples.push(at);
        let inner = &sample.user[..below];
        // Pages are looked at for rows to remove as well.
        if inner.iter().any(|f| DEAD.contains(f)) && inner.contains(&"heap_hot_search_buffer") {
            sum.asks += sample.seconds;
            sum.seen += sample.samples;
        }
        let named = inner.iter().find(|f| f.starts_with("Exec") || LOOKS.contains(f));
        sum.callers.add(named.unwrap_or(&""), sample.seconds);
    }
    let mut claims = Vec::new();
    for (process, sum) in of {
        let seconds = view.sample_seconds(&sum.samples);
        if seconds < LEAST * view.capacity()
            || seconds < OF_PROCESS * view.on_cpu(process)
            || sum.asks < ASKS * seconds
            || sum.seen < SEEN
        {
            continue;
        }
        let mut claim = Claim::new(Kind::Runtime, [When::DeadRows], process).with("process", process);
        claim.key = format!("dead rows {process}");
        for &at in &sum.samples {
            claim.ask(Source::Sample(at), view.samples[at].seconds, "walking through rows");
        }
        claim.line("called in", sum.callers.words(2));
        claims.push(claim);
    }
    claims
}
