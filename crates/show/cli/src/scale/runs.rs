//! The runs: every point in each round, in random order.

use std::sync::atomic::{AtomicBool, Ordering};

use ncpu_measure::scaling::{Curve, Point};
use ncpu_measure::stats::Summary;
use ncpu_observe_core::program::StartError;
use ncpu_table::{Column, Kind, Table, Unit};

use super::plan::Plan;
use crate::command::Held;
use crate::metric::Measure;
use crate::out::{progress, progress_over};

/// A point that fails this number of times without a success is lost and not run again.
const TRIES: usize = 2;

/// One run.
struct Run {
    spot: usize,
    round: usize,
    elapsed: Option<f64>,
    throughput: Result<f64, String>,
    others: Option<f64>,
}

/// All runs, in the order of time.
pub struct Done(Vec<Run>);

/// Runs all points; stops early on request.
///
/// # Errors
/// The command does not exist or cannot be executed.
pub fn all(
    plan: &Plan,
    measure: &Measure,
    rounds: usize,
    seed: u64,
    stop: &AtomicBool,
) -> anyhow::Result<Done> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut done = Done(Vec::new());
    'rounds: for round in 1..=rounds {
        let mut order: Vec<usize> = (0..plan.spots.len()).collect();
        random.shuffle(&mut order);
        for (i, at) in order.into_iter().enumerate() {
            if done.is_lost(at) {
                continue;
            }
            let spot = &plan.spots[at];
            progress(&format!("round {round}/{rounds}, run {}/{}: N = {}", i + 1, plan.spots.len(), spot.n));
            let ran = Held::new(&spot.argv, spot.cpus.as_ref()).and_then(|held| held.run(stop));
            let run = match ran {
                Ok(None) => break 'rounds,
                Ok(Some(run)) => Run {
                    spot: at,
                    round,
                    elapsed: Some(run.elapsed),
                    throughput: measure.of(&run),
                    others: run.others,
                },
                // A name that {n} is a part of may exist for some counts only.
                Err(e) if !done.0.is_empty() && e.downcast_ref::<StartError>().is_some() => {
                    Run { spot: at, round, elapsed: None, throughput: Err(e.to_string()), others: None }
                }
                Err(e) => return Err(e),
            };
            done.0.push(run);
            if stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
        }
    }
    progress_over();
    Ok(done)
}

impl Done {
    fn of(&self, spot: usize) -> impl Iterator<Item = &Run> {
        self.0.iter().filter(move |r| r.spot == spot)
    }

    /// Whether a point gave a figure.
    pub fn has_figure(&self, spot: usize) -> bool {
        self.of(spot).any(|r| r.throughput.is_ok())
    }

    /// Whether a point is given up.
    fn is_lost(&self, spot: usize) -> bool {
        let failed = self.of(spot).filter(|r| r.throughput.is_err()).count();
        failed >= TRIES && failed == self.of(spot).count()
    }

    /// Message for points without a figure.
    pub fn lost(&self, plan: &Plan) -> Vec<String> {
        (0..plan.spots.len())
            .filter(|&at| !self.has_figure(at))
            .filter_map(|at| {
                let why = self.of(at).last()?.throughput.as_ref().err()?;
                Some(format!("N = {} is lost: {why}", plan.spots[at].n))
            })
            .collect()
    }

    /// The share of their CPUs' time that other programs took in the median run, 0–1.
    pub fn disturbance(&self) -> Option<f64> {
        let others: Vec<f64> = self.0.iter().filter_map(|r| r.others).collect();
        (!others.is_empty()).then(|| Summary::of(&others).median)
    }

    /// The throughput over N.
    pub fn curve(&self, plan: &Plan, measure: &Measure) -> Curve {
        let points = plan.spots.iter().enumerate().filter(|(at, _)| self.of(*at).next().is_some());
        let points = points.map(|(at, spot)| {
            let failures: Vec<&String> = self.of(at).filter_map(|r| r.throughput.as_ref().err()).collect();
            Point {
                n: spot.n.into(),
                cpus: spot.cpus.as_ref().map(|c| c.to_list()).unwrap_or_default(),
                samples: self.of(at).filter_map(|r| r.throughput.as_ref().ok().copied()).collect(),
                failed: failures.len(),
                oversubscribed: spot.oversubscribed,
                note: failures.last().map(|why| format!("failed: {why}")).unwrap_or_default(),
            }
        });
        Curve {
            name: String::new(),
            metric: measure.name(),
            points: points.collect(),
            machine: Some(plan.usable as f64),
        }
    }

    /// A row for each run.
    pub fn table(&self, plan: &Plan) -> Table {
        let mut out = Table::builder(
            "runs",
            &[
                Column::id("N", "CPUs or threads"),
                Column::id("round", "round of all points"),
                Column::float("elapsed", Unit::Seconds, Kind::Time, "from start to end"),
                Column::float("throughput", Unit::Figure, Kind::Gauge, "of the run"),
                Column::float(
                    "others",
                    Unit::Percent,
                    Kind::Share,
                    "of its CPUs' time, taken by other programs",
                ),
                Column::text("failure", "why it gave none"),
            ],
        );
        for run in &self.0 {
            out.row()
                .int(plan.spots[run.spot].n.into())
                .int(run.round as u64)
                .float_opt(run.elapsed)
                .float_opt(run.throughput.as_ref().ok().copied())
                .float_opt(run.others.map(|o| 100.0 * o))
                .text_opt(run.throughput.as_ref().err());
        }
        out.finish()
    }
}
