//! Fits a law to measured points: the posterior of its parameters, by an ensemble of walkers.

use super::law::{At, Law, MOST, Parameters};
use super::matrix;
use ncpu_foresee::sim::Random;

/// The prior of a law's parameters, before any point is seen: a normal distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct Belief {
    /// The law of these parameters.
    pub law: Law,
    /// Means.
    pub mean: Vec<f64>,
    /// Covariances.
    pub covariance: Vec<Vec<f64>>,
    precision: Vec<Vec<f64>>,
    root: Vec<Vec<f64>>,
}

impl Belief {
    /// A belief; `None` where these are no means and covariances of the law's parameters.
    pub fn new(law: Law, mean: Vec<f64>, covariance: Vec<Vec<f64>>) -> Option<Belief> {
        let n = law.size();
        if mean.len() != n || covariance.len() != n || covariance.iter().any(|row| row.len() != n) {
            return None;
        }
        let precision = matrix::inverse(&covariance)?;
        let root = matrix::cholesky(&covariance);
        Some(Belief { law, mean, covariance, precision, root })
    }

    /// A weak prior, for any program: next to nothing is known.
    pub fn weak(law: Law) -> Belief {
        let (n, all) = (law.size(), law.parameters());
        let diagonal = |power: i32| -> Vec<Vec<f64>> {
            (0..n)
                .map(|i| (0..n).map(|j| if i == j { all[i].2.powi(power) } else { 0.0 }).collect())
                .collect()
        };
        Belief {
            law,
            mean: all.iter().map(|p| p.1).collect(),
            covariance: diagonal(2),
            precision: diagonal(-2),
            root: diagonal(1),
        }
    }

    fn log(&self, p: &Parameters, first: &First) -> f64 {
        let n = self.mean.len();
        let mut off = [0.0; MOST];
        for i in 0..n {
            off[i] = p[i] - self.mean[i];
        }
        off[0] = (off[0] - first.work) / first.doubt;
        let mut sum = 0.0;
        for (x, row) in off.iter().zip(&self.precision) {
            sum -= 0.5 * x * row.iter().zip(&off).map(|(a, b)| a * b).sum::<f64>();
        }
        sum
    }

    /// Parameters drawn from it, less far from the mean than they might be: where walkers begin.
    fn draw(&self, first: &First, random: &mut Random) -> Parameters {
        let n = self.mean.len();
        let normal: Vec<f64> = (0..n).map(|_| 0.7 * random.normal()).collect();
        let mut p = [0.0; MOST];
        for (x, (mean, root)) in p.iter_mut().zip(self.mean.iter().zip(&self.root)) {
            *x = mean + root.iter().zip(&normal).map(|(a, b)| a * b).sum::<f64>();
        }
        p[0] = self.mean[0] + first.doubt * (p[0] - self.mean[0]) + first.work;
        p
    }
}

/// The work of a unit by the first point.
struct First {
    /// The time of a unit on one thread with the speed that all have together, as a logarithm.
    work: f64,
    /// How many times less sure that is than at N = 1: N threads may have lost up to N times already.
    doubt: f64,
}

impl First {
    fn of(point: &Point) -> First {
        First { work: (point.0.threads() / point.1).ln(), doubt: 1.0 + point.0.n.max(1.0).ln() }
    }
}

/// A point: where, and the throughput measured.
pub type Point = (At, f64);

/// The posterior of a law, once points have been seen.
#[derive(Clone, Debug)]
pub struct Posterior {
    /// The law of these parameters.
    pub law: Law,
    /// Equally likely parameters.
    pub draws: Vec<Parameters>,
    /// The work of a unit that was assumed before any point; `work` of the belief is relative to it.
    pub work: f64,
    /// The point with the largest N.
    pub last: Point,
}

const WALKERS: usize = 40;
/// How long walkers walk.
#[derive(Clone, Copy)]
struct Length {
    steps: usize,
    /// Steps that are forgotten.
    burn: usize,
    /// One draw in this many steps is taken, since those between are much alike.
    every: usize,
}
/// After fewer steps walkers still show where they began: with 700 the mean error of the published curves is a point larger.
const LONG: Length = Length { steps: 2400, burn: 1200, every: 24 };
/// Degrees of freedom of the errors' Student's t: few, since a curve may have a point that fits no law.
const DEGREES: f64 = 4.0;

/// Fits a law to points, by the affine-invariant ensemble of Goodman and Weare (2010); `None` without a point.
///
/// `work` of the belief is taken relative to the first point: the unit of a throughput says nothing.
pub fn fit(points: &[Point], belief: &Belief, seed: u64) -> Option<Posterior> {
    walk(points, belief, seed, LONG)
}

/// [`fit`] in fewer steps, where many curves are averaged.
pub(super) fn roughly(points: &[Point], belief: &Belief, seed: u64) -> Option<Posterior> {
    walk(points, belief, seed, Length { steps: 300, burn: 140, every: 8 })
}

fn walk(points: &[Point], belief: &Belief, seed: u64, length: Length) -> Option<Posterior> {
    let first = points.iter().min_by(|a, b| a.0.n.total_cmp(&b.0.n))?;
    let last = *points.iter().max_by(|a, b| a.0.n.total_cmp(&b.0.n))?;
    let law = belief.law;
    let first = First::of(first);
    let log = |p: &Parameters| {
        let noise = law.noise(p);
        let mut sum = belief.log(p, &first);
        for (at, x) in points {
            let e = (x / law.throughput(p, at)).ln() / noise;
            sum -= 0.5 * (DEGREES + 1.0) * (1.0 + e * e / DEGREES).ln() + noise.ln();
        }
        if sum.is_finite() { sum } else { f64::NEG_INFINITY }
    };
    let mut random = Random::new(seed);
    let mut walkers: Vec<(Parameters, f64)> = (0..WALKERS)
        .map(|_| {
            let p = belief.draw(&first, &mut random);
            (p, log(&p))
        })
        .collect();
    let n = law.size();
    let mut draws = Vec::with_capacity(WALKERS * (length.steps - length.burn) / length.every);
    for step in 0..length.steps {
        for i in 0..WALKERS {
            let mut j = random.below(WALKERS - 1);
            j += usize::from(j >= i);
            // g(z) ~ 1/sqrt(z) on [1/2, 2].
            let z = (1.0 + random.unit()).powi(2) / 2.0;
            let mut p = walkers[j].0;
            for (k, x) in p.iter_mut().enumerate().take(n) {
                *x += z * (walkers[i].0[k] - *x);
            }
            let value = log(&p);
            if random.unit().ln() < (n as f64 - 1.0) * z.ln() + value - walkers[i].1 {
                walkers[i] = (p, value);
            }
        }
        if step >= length.burn && step % length.every == 0 {
            draws.extend(walkers.iter().map(|w| w.0));
        }
    }
    Some(Posterior { law, draws, work: first.work, last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_foresee::hardware::{Hardware, Order};

    #[test]
    fn a_law_is_found_again() {
        let hardware = Hardware::of_shape("2x16x2".parse().unwrap());
        let at = |n: u32| At::of(&hardware, Order::Spread, f64::from(n), 1.0);
        for law in Law::ALL {
            let mut truth: Parameters = [0.0; MOST];
            for (x, p) in truth.iter_mut().zip(law.parameters()) {
                *x = p.1;
            }
            let points: Vec<Point> =
                [1, 2, 4, 8, 16, 32].iter().map(|&n| (at(n), law.throughput(&truth, &at(n)))).collect();
            let found = fit(&points, &Belief::weak(law), 1).unwrap();
            let mean = |of: &dyn Fn(&Parameters) -> f64| {
                found.draws.iter().map(of).sum::<f64>() / found.draws.len() as f64
            };
            let off = mean(&|p| (law.throughput(p, &at(16)) / law.throughput(&truth, &at(16))).ln());
            assert!(off.abs() < 0.03, "{law:?}: {off}");
            assert!(fit(&[], &Belief::weak(law), 1).is_none());
        }
    }
}
