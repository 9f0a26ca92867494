//! Fits the law to measured points: the posterior of its parameters by an ensemble of walkers, and what it foretells.

use super::law::{self, At, PARAMETERS, Parameters};
use crate::sim::Random;

/// What is believed of a parameter before any point is seen: mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Belief {
    /// Means.
    pub mean: Parameters,
    /// Standard deviations.
    pub sd: Parameters,
    /// By how much ln X goes astray for each doubling of N beyond what was measured, standard deviation.
    pub astray: f64,
}

/// A point: where, and the throughput measured.
pub type Point = (At, f64);

/// What is left to believe once points have been seen.
#[derive(Clone, Debug)]
pub struct Posterior {
    /// Equally likely parameters.
    pub draws: Vec<Parameters>,
    /// Largest N seen.
    pub seen: f64,
    astray: f64,
    seed: u64,
    last: Point,
}

/// A forecast of a throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The middle: as likely too low as too high.
    pub x: f64,
    /// 90 % band.
    pub low: f64,
    /// 90 % band.
    pub high: f64,
}

const WALKERS: usize = 40;
const STEPS: usize = 700;
const BURN: usize = 300;
/// Degrees of freedom of the errors' Student's t: few, since a curve may have a point that fits no law.
const DEGREES: f64 = 4.0;
fn log_posterior(p: &Parameters, points: &[Point], belief: &Belief) -> f64 {
    let mut sum = 0.0;
    for ((x, mean), sd) in p.iter().zip(&belief.mean).zip(&belief.sd) {
        let z = (x - mean) / sd;
        sum -= 0.5 * z * z;
    }
    let noise = law::noise(p);
    for (at, x) in points {
        let e = (x / law::throughput(p, at)).ln() / noise;
        sum -= 0.5 * (DEGREES + 1.0) * (1.0 + e * e / DEGREES).ln() + noise.ln();
    }
    if sum.is_finite() { sum } else { f64::NEG_INFINITY }
}

/// Fits the law to points, by the affine-invariant ensemble of Goodman and Weare (2010); `None` without a point.
///
/// `work` of the belief is taken relative to the first point: the unit of a throughput says nothing.
pub fn fit(points: &[Point], belief: &Belief, seed: u64) -> Option<Posterior> {
    let first = points.iter().min_by(|a, b| a.0.n.total_cmp(&b.0.n))?;
    let seen = points.iter().map(|p| p.0.n).fold(0.0, f64::max);
    let mut belief = *belief;
    // What one thread would take if all had its speed.
    belief.mean[0] += ((first.0.cores + first.0.strands) / first.1).ln();
    let mut random = Random::new(seed);
    let mut walkers: Vec<(Parameters, f64)> = (0..WALKERS)
        .map(|_| {
            let mut p = belief.mean;
            for (x, sd) in p.iter_mut().zip(&belief.sd) {
                *x += 0.7 * sd * random.normal();
            }
            (p, log_posterior(&p, points, &belief))
        })
        .collect();
    let mut draws = Vec::with_capacity(WALKERS * (STEPS - BURN) / 8);
    for step in 0..STEPS {
        for i in 0..WALKERS {
            let mut j = random.below(WALKERS - 1);
            j += usize::from(j >= i);
            // g(z) ~ 1/sqrt(z) on [1/2, 2].
            let z = (1.0 + random.unit()).powi(2) / 2.0;
            let mut p = walkers[j].0;
            for (k, x) in p.iter_mut().enumerate() {
                *x += z * (walkers[i].0[k] - *x);
            }
            let value = log_posterior(&p, points, &belief);
            if random.unit().ln() < (PARAMETERS as f64 - 1.0) * z.ln() + value - walkers[i].1 {
                walkers[i] = (p, value);
            }
        }
        if step >= BURN && step % 8 == 0 {
            draws.extend(walkers.iter().map(|w| w.0));
        }
    }
    let last = *points.iter().max_by(|a, b| a.0.n.total_cmp(&b.0.n))?;
    Some(Posterior { draws, seen, astray: belief.astray, seed, last })
}

impl Posterior {
    /// Foretells a quantity: `of` gives it for parameters; `n` is how far beyond what was seen it is.
    pub fn forecast_of(&self, n: f64, of: impl Fn(&Parameters) -> f64) -> Forecast {
        let mut random = Random::new(self.seed ^ n.to_bits());
        let mut middle: Vec<f64> = self.draws.iter().map(|p| of(p).ln()).collect();
        let beyond = (n / self.seen).log2().max(0.0);
        let mut all: Vec<f64> = self
            .draws
            .iter()
            .zip(&middle)
            .map(|(p, x)| {
                x + (law::noise(p).powi(2) + (self.astray * beyond).powi(2)).sqrt() * random.normal()
            })
            .collect();
        middle.sort_by(f64::total_cmp);
        all.sort_by(f64::total_cmp);
        let at = |v: &[f64], q: f64| v[((v.len() - 1) as f64 * q).round() as usize].exp();
        Forecast { x: at(&middle, 0.5), low: at(&all, 0.05), high: at(&all, 0.95) }
    }

    /// Foretells the throughput somewhere.
    pub fn forecast(&self, at: &At) -> Forecast {
        let (last, x) = &self.last;
        self.forecast_of(at.n, |p| law::throughput(p, at) * x / law::throughput(p, last))
    }

    /// Mean of each parameter.
    pub fn mean(&self) -> Parameters {
        let mut mean = [0.0; PARAMETERS];
        for draw in &self.draws {
            for (m, x) in mean.iter_mut().zip(draw) {
                *m += x / self.draws.len() as f64;
            }
        }
        mean
    }
}
