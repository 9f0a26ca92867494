//! The onion at each point.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ncpu_observe::engine::{Config, Target};
use ncpu_observe::observation::{Observation, Until};
use ncpu_record::Recording;
use ncpu_report::onion::{Onion, within};
use ncpu_report::scale::{Peel, layers_table};
use ncpu_table::Table;

use super::plan::{Measure, Plan, Spot};
use super::runs::Done;
use crate::command::{Done as Ran, Held};
use crate::sink::Sink;

/// Timer samples a second on each CPU.
const HZ: u32 = 99;

/// What peeling left.
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
    let progress = std::io::stderr().is_terminal();
    let mut peels = Vec::new();
    let mut failed = Vec::new();
    for (at, spot) in plan.spots.iter().enumerate() {
        if !done.has_figure(at) {
            continue;
        }
        if progress {
            eprint!("\r\x1b[Kpeeling N = {}", spot.n);
            std::io::stderr().flush()?;
        }
        let Some((ran, recording)) = observe(spot, stop)? else { break };
        let peeled = measure.of(&ran).and_then(|throughput| {
            let recording = match &spot.cpus {
                Some(cpus) => within(&recording, cpus),
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
    if progress {
        eprint!("\r\x1b[K");
    }
    Ok(Peeled { table: layers_table(&peels), failed })
}

/// Observes one run; `None` where it was stopped.
fn observe(spot: &Spot, stop: &AtomicBool) -> anyhow::Result<Option<(Ran, Recording)>> {
    let words = spot.argv.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let mut held = Held::new(&spot.argv, spot.cpus.as_ref())?;
    let mut sink = Sink::open(words, 1.0, None)?;
    let mut observation = Observation::begin(&Config::onion(Target::Tree(held.child.pid()), HZ))?;
    let begin = Instant::now();
    held.child.release()?;
    let mut take = |t: &Table| sink.table(t);
    let until = observation.watch(Some(held.child.pidfd()), None, Duration::from_secs(1), stop, &mut take)?;
    let elapsed = begin.elapsed().as_secs_f64();
    if until == Until::Stopped || stop.load(Ordering::Relaxed) {
        held.stop();
        return Ok(None);
    }
    let ran = held.done(elapsed)?;
    let notes = observation.finish(Some(ran.ended), &mut take)?;
    let (recording, _) = sink.finish(notes)?;
    Ok(Some((ran, recording)))
}
