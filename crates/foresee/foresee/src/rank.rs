//! Every fix that there is something for, tried and put into the order of what each gives.

use ncpu_record::Recording;
use rayon::prelude::*;

use crate::fix::{self, Fix};
use crate::foretell::{self, Effort, Point};
use crate::hardware::{Hardware, Order};
use crate::model::Model;
use crate::tables;

/// Tries every fix that makes sense for a model, on all cores, at a point: what is told of each, best first, and by how much
/// it multiplies the point's throughput. Those that were not done when told to stop are left out.
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
) -> Result<Vec<Tried<T>>, fix::Error> {
    let all = fix::all(model, hardware, order, at.cpus);
    let tried = all.par_iter().map(|fix| {
        if stop() {
            return Ok(None);
        }
        let (mut model, mut hardware, mut order) = (model.clone(), hardware.clone(), order);
        fix.apply(&mut model, &mut hardware, &mut order)?;
        let point = foretell::point(&model, &hardware, at.cpus, order, effort, stop)?;
        let told = told(&tables::recording(&model, &hardware, &point, Vec::new()), &point);
        let gain = point.throughput / at.throughput;
        Ok((!stop()).then(|| Tried { fix: fix.clone(), gain, told }))
    });
    let mut ranked: Vec<Tried<T>> = tried.filter_map(Result::transpose).collect::<Result<_, fix::Error>>()?;
    ranked.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    Ok(ranked)
}

/// A fix that was tried.
#[derive(Clone, Debug)]
pub struct Tried<T> {
    /// The fix.
    pub fix: Fix,
    /// The throughput with it over that without.
    pub gain: f64,
    /// What is told of it.
    pub told: T,
}
