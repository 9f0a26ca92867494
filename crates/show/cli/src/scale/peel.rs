//! The onion at each point.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ncpu_engine::engine::Config;
use ncpu_engine::observation::Until;
use ncpu_observe_core::program::Target;
use ncpu_record::Recording;
use ncpu_report::onion::{Onion, within};
use ncpu_report::scale::{Peel, layers_table};
use ncpu_schema::Purpose;
use ncpu_table::Table;

use super::plan::{Plan, Spot};
use super::runs::Done;
use crate::command::{Done as Ran, Held};
use crate::metric::Measure;
use crate::observer::Observer;
use crate::out::{progress, progress_over};
use crate::sink;

/// Timer samples a second on each CPU.
const HZ: u32 = 99;

/// Results of peeling.
pub struct Peeled {
    /// A row for each layer at each point.
    pub table: Table,
    /// Points that could not be peeled.
    pub failed: Vec<String>,
}

/// Peels each point that gave a figure, once. Observed runs are not among those that are measured, since tracing costs
/// the program some of its throughput.
///
/// # Errors
/// Nothing can be observed here.
pub fn all(plan: &Plan, measure: &Measure, done: &Done, stop: &AtomicBool) -> anyhow::Result<Peeled> {
    let mut peels = Vec::new();
    let mut failed = Vec::new();
    for (at, spot) in plan.spots.iter().enumerate() {
        if !done.has_figure(at) {
            continue;
        }
        progress(&format!("peeling N = {}", spot.n));
        let Some((ran, recording)) = observe(spot, stop)? else { break };
        let peeled = measure.of(&ran).and_then(|throughput| {
            let recording = match &spot.cpus {
                Some(cpus) => within(&recording, cpus).map_err(|e| e.to_string())?,
                None => recording,
            };
            let onion = Onion::peel(&recording).map_err(|e| e.to_string())?;
            Ok(Peel { n: spot.n.into(), work: throughput * onion.elapsed, onion })
        });
        match peeled {
            Ok(peel) => peels.push(peel),
            Err(why) => failed.push(format!("peeling N = {}: {why}", spot.n)),
        }
    }
    progress_over();
    Ok(Peeled { table: layers_table(&peels), failed })
}

/// Observes one run; `None` where it was stopped.
///
/// # Errors
/// Nothing can be observed here.
pub fn observe(spot: &Spot, stop: &AtomicBool) -> anyhow::Result<Option<(Ran, Recording)>> {
    let words = spot.argv.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let mut held = Held::new(&spot.argv, spot.cpus.as_ref())?;
    let mut sink = sink::open(Purpose::Run, words, 1.0, None)?;
    let config = Config::onion(Target::Tree(held.child.pid()), HZ);
    let mut observer = Observer::begin(Purpose::Run, &config, true, None, &mut sink)?;
    let begin = Instant::now();
    held.child.release()?;
    let until = observer
        .watch(Some(held.child.pidfd()), None, Duration::from_secs(1), stop, &mut |t| Ok(sink.table(t)?))?;
    let elapsed = begin.elapsed().as_secs_f64();
    if until == Until::Stopped || stop.load(Ordering::Relaxed) {
        held.stop();
        return Ok(None);
    }
    let ran = held.done(elapsed)?;
    let notes = observer.finish(Some(ran.ended), &mut |t| Ok(sink.table(t)?))?;
    let (recording, _) = sink.finish(notes)?;
    Ok(Some((ran, recording)))
}
