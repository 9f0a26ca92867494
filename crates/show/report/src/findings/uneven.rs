//! Threads that meet at a barrier, of which one has most of the work.

use std::collections::BTreeMap;

use ncpu_schema::{Layer, user_locks};

use super::claim::{Claim, Kind, Source};
use super::hot::hot;
use super::numbers::grouped;
use super::places::Most;
use super::view::View;
use crate::causes::When;
use crate::onion::evidence::length;

/// The part of an observation for which a thread runs to be one that has work.
const WORKS: f64 = 0.01;

/// The part of an observation that is waited for at a barrier from which it says something.
const LEAST: f64 = 0.2;

/// The ratio of one thread's work to the others' mean from which the work is uneven.
const UNEVEN: f64 = 2.0;

/// Waits at the barriers of a process.
#[derive(Default)]
struct Met {
    block: f64,
    count: f64,
    names: Most,
    places: Most,
}

/// A claim for each process with such threads.
pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let Ok(Some(t)) = user_locks::Reader::open(view.context.recording) else { return Vec::new() };
    let mut of: BTreeMap<&str, Met> = BTreeMap::new();
    for row in t.rows() {
        let (Some(process), Some(pattern)) = (t.process.get(row), t.pattern.get(row)) else { continue };
        if !pattern.ends_with("barrier") {
            continue;
        }
        let (met, block) = (of.entry(process).or_default(), t.block.get(row).unwrap_or(0.0));
        met.block += block;
        met.count += t.count.get(row).unwrap_or(0) as f64;
        met.names.add(t.lock.get(row).filter(|name| !name.starts_with("0x")).unwrap_or(pattern), block);
        met.places.add(t.caller.get(row).unwrap_or(""), block);
    }
    of.into_iter().filter_map(|(process, met)| claim(view, process, &met)).collect()
}

fn claim(view: &View<'_>, process: &str, met: &Met) -> Option<Claim> {
    let mut work = view.cpu_by_thread(process);
    work.retain(|seconds| *seconds >= WORKS * view.elapsed());
    work.sort_by(|a, b| b.total_cmp(a));
    let (most, others) = work.split_first()?;
    let mean = others.iter().sum::<f64>() / others.len().max(1) as f64;
    if met.block < LEAST * view.elapsed() || others.is_empty() || *most < UNEVEN * mean {
        return None;
    }
    let (code, _) = hot(view).unwrap_or_default();
    let barrier = met.names.largest().map_or("a barrier", |(name, _)| name);
    let mut claim = Claim::new(Kind::SerialCode, [When::UnevenBarrier], process)
        .with("process", process)
        .with("barrier", barrier)
        .with("place", if code.is_empty() { process.to_string() } else { code.clone() })
        .with("times", format!("{:.1}", most / mean));
    claim.key = format!("uneven barrier {process} {barrier}");
    claim.waited = Some(met.block);
    let part = met.block / (others.len() as f64 * view.elapsed());
    claim.ask(
        Source::Layer(Layer::Serial),
        view.beside_stacks(Layer::Serial) * part.min(1.0),
        "CPUs idle for it",
    );
    claim.line("works in", code);
    claim.line("work", format!("{most:.2} CPU-s of one thread, {mean:.2} in the mean of the others"));
    let place = met.places.largest().map_or("", |(place, _)| place);
    let each = length(met.block / met.count.max(1.0));
    claim.line("waits", format!("{} of {each} each at {barrier} in {place}", grouped(met.count)));
    Some(claim)
}
