//! What PostgreSQL's servers work at for a statement: functions of SQL, triggers, languages in the server, files of sorts.

use std::collections::HashMap;

use super::claim::{Claim, Kind, Source};
use super::places::Most;
use super::runtime::least_of_process;
use super::view::{Sampled, View};
use crate::causes::When;

/// The part of capacity from which something is claimed.
const LEAST: f64 = 0.05;

/// By which a server works off what a client sent.
const SERVES: &str = "PostgresMain";

/// By which a statement is executed: a function or trigger may execute others within it.
const EXECUTES: [&str; 4] =
    ["standard_ExecutorRun", "standard_ExecutorFinish", "standard_ExecutorStart", "PortalRunFetch"];

/// Beginnings of functions of languages in the server, which do no work of the statements that they execute.
const LANGUAGES: [&str; 4] = ["plpgsql_", "plperl_", "plpython3_", "pltcl_"];

/// The entry of the rule book for what a server does, and its function: of the innermost statement that has one, the outermost.
fn known<'a>(view: &View<'a>, sample: &Sampled<'a>) -> Option<(&'a str, &'a str)> {
    let serves = sample.user.iter().position(|frame| *frame == SERVES)?;
    let mut nested = false;
    for statement in sample.user[..serves].split_inclusive(|frame| EXECUTES.contains(frame)) {
        let of = |frame: &&'a str| {
            let language = LANGUAGES.iter().any(|start| frame.starts_with(start));
            view.entry(When::SqlFunction, frame).filter(|_| !(nested && language))
        };
        if let Some(found) = statement.iter().rev().find_map(|frame| of(frame).map(|entry| (entry, *frame))) {
            return Some(found);
        }
        nested = true;
    }
    None
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<(&str, &str), (Vec<usize>, Most)> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        let Some((entry, function)) = known(view, sample) else { continue };
        let (samples, functions) = of.entry((sample.process, entry)).or_default();
        samples.push(at);
        functions.add(function, sample.seconds);
    }
    let mut claims = Vec::new();
    for ((process, entry), (samples, functions)) in of {
        let seconds = view.sample_seconds(&samples);
        if seconds < LEAST * view.capacity() || seconds < least_of_process(view, entry) * view.on_cpu(process)
        {
            continue;
        }
        let Some((first, _)) = functions.largest() else { continue };
        let mut claim = Claim::new(Kind::Runtime, [When::SqlFunction], first)
            .with("process", process)
            .with("function", first);
        claim.key = format!("sql {entry} {process}");
        claim.line("functions", functions.words(4));
        for at in samples {
            claim.ask(Source::Sample(at), view.samples[at].seconds, "in these functions");
        }
        claims.push(claim);
    }
    claims
}
