//! Several recordings of one program at different CPU counts: what one leaves open, the others decide.

use rayon::prelude::*;

use super::{Error, Learnt};
use crate::foretell::{self, Effort, Input};
use crate::hardware::Order;
use crate::model::{Model, Recorded};
use crate::recorded::recorded_machine;

/// The uncertainty of a recorded throughput, standard deviation of its logarithm.
const NOISE: f64 = 0.03;
/// Rounds in which each input is tried nearer by and further off; each with half the step of the one before.
const ROUNDS: i32 = 4;

const EFFORT: Effort = Effort { within: 0.01, events: 1_000_000, seed: 17 };

/// ln of simulated over recorded throughput.
fn off(model: &Model, recorded: &Recorded) -> Result<f64, Error> {
    let hardware = recorded_machine(recorded)?;
    let same = Model { threads: recorded.threads, ..model.clone() };
    let point = foretell::point(&same, &hardware, recorded.cpus as usize, Order::Spread, &EFFORT, &|| false)?;
    Ok((point.throughput.max(1e-300) / recorded.throughput).ln())
}

fn changed(model: &Model, inputs: &[Input], by: &[f64]) -> Model {
    let mut model = model.clone();
    for (input, z) in inputs.iter().zip(by) {
        input.change(&mut model, z * input.sd);
    }
    model
}

/// The cost of inputs that lie `by` standard deviations from their recorded values: their own distance, and that of the
/// throughputs they give.
fn cost(model: &Model, all: &[Recorded], inputs: &[Input], by: &[f64]) -> Result<f64, Error> {
    let model = changed(model, inputs, by);
    let off = all.par_iter().map(|r| off(&model, r)).collect::<Result<Vec<f64>, Error>>()?;
    Ok(by.iter().map(|z| z * z).sum::<f64>() + off.iter().map(|e| (e / NOISE).powi(2)).sum::<f64>())
}

/// Makes one model of several recordings of the same program: that of the most CPUs, with what is known only roughly of it
/// moved to where it gives the throughputs of all.
///
/// # Errors
/// A machine or a model that cannot be simulated.
pub fn sharpen(mut learnt: Vec<Learnt>) -> Result<Option<Learnt>, Error> {
    let cpus = |l: &Learnt| l.model.recorded.as_ref().map_or(0, |r| r.cpus);
    learnt.sort_by_key(|l| std::cmp::Reverse(cpus(l)));
    let mut learnt = learnt.into_iter();
    let Some(mut best) = learnt.next() else { return Ok(None) };
    let others: Vec<Learnt> = learnt.collect();
    if others.is_empty() {
        return Ok(Some(best));
    }
    let all: Vec<Recorded> =
        std::iter::once(&best).chain(&others).filter_map(|l| l.model.recorded.clone()).collect();
    let inputs = foretell::inputs(&best.model);
    let mut by = vec![0.0; inputs.len()];
    let mut least = cost(&best.model, &all, &inputs, &by)?;
    for round in 0..ROUNDS {
        let step = 1.5 * 0.5f64.powi(round);
        for i in 0..inputs.len() {
            for direction in [-step, step] {
                let mut tried = by.clone();
                tried[i] += direction;
                let c = cost(&best.model, &all, &inputs, &tried)?;
                if c < least {
                    (least, by) = (c, tried);
                    break;
                }
            }
        }
    }
    best.model = changed(&best.model, &inputs, &by);
    for recorded in &all {
        best.notes.push(format!(
            "recorded on {} CPUs: {:+.1} % off its throughput there",
            recorded.cpus,
            100.0 * (off(&best.model, recorded)?.exp() - 1.0)
        ));
    }
    Ok(Some(best))
}
