//! Every applicable fix, tried and sorted by its gain.

use ncpu_record::Recording;
use rayon::prelude::*;

use crate::fix::{self, Fix};
use crate::foretell::{self, Effort, Point};
use crate::hardware::{Hardware, Order};
use crate::model::Model;
use crate::tables;

/// Tries every fix that makes sense for a model, on all cores, at a point. Returns a report on each, best first, and
/// the factor by which it multiplies the point's throughput. A fix with a gain is tried with another seed as well, and
/// its gain is the smaller of the two. Fixes that were not tried when `stop` came are left out.
///
/// # Errors
/// As [`foretell::point`].
pub fn rank<T: Send>(
    model: &Model,
    hardware: &Hardware,
    at: &Point,
    order: Order,
    effort: &Effort,
    stop: &(dyn Fn() -> bool + Sync),
    told: impl Fn(&Recording, &Point) -> T + Sync,
) -> Result<Ranked<T>, fix::Error> {
    let all = fix::all(model, hardware, order, at.cpus);
    let seeded = |k: u64| Effort { seed: effort.seed + (k << 8), ..*effort };
    let again = (0..SEEDS).into_par_iter().map(|k| -> Result<f64, fix::Error> {
        Ok(foretell::point(model, hardware, at.cpus, order, &seeded(k + 1), stop)?.throughput)
    });
    let again: Vec<f64> = again.collect::<Result<_, _>>()?;
    let logs: Vec<f64> = again.iter().chain([&at.simulated]).map(|x| x.max(1e-300).ln()).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let variance = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (logs.len() - 1) as f64;
    // Of the ratio of two simulations.
    let scatter = (2.0 * (2.0 * variance).sqrt()).exp() - 1.0;
    let tried = all.par_iter().map(|fix| {
        if stop() {
            return Ok(None);
        }
        let (mut model, mut hardware, mut order) = (model.clone(), hardware.clone(), order);
        fix.apply(&mut model, &mut hardware, &mut order)?;
        let mut point = foretell::point(&model, &hardware, at.cpus, order, effort, stop)?;
        let mut gain = point.throughput.max(1e-300).ln() - mean;
        if gain > LEAST {
            let other = foretell::point(&model, &hardware, at.cpus, order, &seeded(1), stop)?;
            gain = gain.min(other.throughput.max(1e-300).ln() - mean);
        }
        let gain = gain.exp();
        // The forecast with the fix has the same relative error as the one without.
        point.throughput = gain * at.throughput;
        let told = told(&tables::recording(&model, &hardware, &point, Vec::new()), &point);
        Ok((!stop()).then(|| Tried { fix: fix.clone(), gain, told }))
    });
    let mut tried: Vec<Tried<T>> = tried.filter_map(Result::transpose).collect::<Result<_, fix::Error>>()?;
    tried.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    Ok(Ranked { tried, scatter: scatter.max(LEAST) })
}

/// Further simulations of the point without any fix.
const SEEDS: u64 = 3;
/// A smaller change is within the width that a point is simulated to.
const LEAST: f64 = 0.02;

/// Fixes in order.
#[derive(Clone, Debug)]
pub struct Ranked<T> {
    /// Best first.
    pub tried: Vec<Tried<T>>,
    /// By what share the ratio of two simulations of the same point differs from 1.
    pub scatter: f64,
}

/// A fix that was tried.
#[derive(Clone, Debug)]
pub struct Tried<T> {
    /// The fix.
    pub fix: Fix,
    /// The throughput with it over that without.
    pub gain: f64,
    /// The report on it.
    pub told: T,
}
