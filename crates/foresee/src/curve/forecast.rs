//! What fitted laws foretell, together.

use super::fit::{Belief, Point, Posterior, fit};
use super::law::{At, Law};
use crate::sim::Random;

/// A forecast of a throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The throughput.
    pub x: f64,
    /// 90 % band.
    pub low: f64,
    /// 90 % band.
    pub high: f64,
}

/// Fewer points say too little of a law with many parameters: the simplest decides then, and what is foretold goes on from the
/// last point.
const FEW: usize = 4;

/// How much a law weighs in a forecast from few points, and from more. The power law leaves most open, and the USL knows
/// neither packages nor distances.
fn weight(law: Law, few: bool) -> f64 {
    match (few, law) {
        (_, Law::Knee) | (true, Law::Usl) | (false, Law::Power) => 1.0,
        (true, Law::Power) | (false, Law::Usl) => 0.0,
    }
}

/// A forecast from more than a few points is the median of what may be with each throughput weighing X to minus this. With 1
/// it is where the mean of |foretold / X - 1| is least, which throughputs far below the forecast make huge; with 0, the median,
/// where it is as often too high as too low, and where the mean of |ln(foretold / X)| is least. From few points what may be is
/// mostly what was believed, and says nothing of the curve.
const LEAN: f64 = 0.75;
/// Throughputs further from the median than this, in ln X, weigh no more and no less.
const FARTHEST: f64 = 3.0;

/// The bands' ends, as quantiles of what may be: what 90 % of the points of published curves are between, each family's foretold
/// without it.
const BAND: (f64, f64) = (0.07, 0.93);

/// By how much ln X goes astray for each doubling of N beyond what was measured, standard deviation.
const ASTRAY: f64 = 0.05;

/// Laws, fitted to the same points, and what each weighs.
#[derive(Clone, Debug)]
pub struct Fitted {
    laws: Vec<(Posterior, f64)>,
    few: bool,
}

impl Fitted {
    /// Fits each law with its belief; `None` without a point.
    pub fn to(points: &[Point], beliefs: &[Belief]) -> Option<Fitted> {
        let few = points.len() < FEW;
        let weighed = beliefs.iter().map(|b| (b, weight(b.law, few))).filter(|(_, weight)| *weight > 0.0);
        let laws: Vec<(Posterior, f64)> =
            weighed.map(|(b, weight)| Some((fit(points, b, 1)?, weight))).collect::<Option<_>>()?;
        (!laws.is_empty()).then_some(Fitted { laws, few })
    }

    /// Foretells the throughput somewhere, by all laws' draws together.
    pub fn forecast(&self, at: &At) -> Forecast {
        let mut random = Random::new(1 ^ at.n.to_bits());
        let (mut logs, mut all) = (Vec::new(), Vec::new());
        for (posterior, weight) in &self.laws {
            let (law, (last, x)) = (posterior.law, &posterior.last);
            let beyond = (at.n / last.n).log2().max(0.0);
            for p in &posterior.draws {
                let mut log = law.throughput(p, at).ln();
                if self.few {
                    log += (x / law.throughput(p, last)).ln();
                }
                logs.push((log, *weight));
                all.push((log + law.noise(p).hypot(ASTRAY * beyond) * random.normal(), *weight));
            }
        }
        logs.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let middle = weighted(&all, 0.5);
        let x = match self.few {
            true => weighted(&logs, 0.5),
            false => {
                let lean = |(log, weight): &(f64, f64)| {
                    (*log, weight * (-LEAN * (log - middle).clamp(-FARTHEST, FARTHEST)).exp())
                };
                weighted(&all.iter().map(lean).collect::<Vec<_>>(), 0.5)
            }
        };
        let x = x.exp();
        Forecast { x, low: weighted(&all, BAND.0).exp().min(x), high: weighted(&all, BAND.1).exp().max(x) }
    }
}

/// A quantile of sorted numbers with weights.
pub(super) fn weighted(sorted: &[(f64, f64)], q: f64) -> f64 {
    let wanted = q * sorted.iter().map(|s| s.1).sum::<f64>();
    let mut sum = 0.0;
    let found = sorted.iter().find(|(_, weight)| {
        sum += weight;
        sum >= wanted
    });
    found.or(sorted.last()).map_or(f64::NAN, |s| s.0)
}

/// A quantile of sorted numbers.
pub(super) fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Hardware, Order};

    #[test]
    fn quantiles_go_by_weight() {
        let all = [(1.0, 1.0), (2.0, 0.0), (3.0, 2.0), (4.0, 1.0)];
        assert_eq!([0.1, 0.25, 0.3, 0.7, 1.0].map(|q| weighted(&all, q)), [1.0, 1.0, 3.0, 3.0, 4.0]);
    }

    #[test]
    fn a_straight_line_goes_on_and_its_band_widens() {
        let hardware = Hardware::of_shape("1x64x1".parse().unwrap());
        let at = |n: u32| At::of(&hardware, Order::Fill, f64::from(n), 1.0);
        let points: Vec<Point> = [1, 2, 4, 8].iter().map(|&n| (at(n), 10.0 * f64::from(n))).collect();
        let fitted = Fitted::to(&points, &Law::ALL.map(Belief::weak)).unwrap();
        let (near, far) = (fitted.forecast(&at(12)), fitted.forecast(&at(48)));
        assert!((near.x / 120.0 - 1.0).abs() < 0.1, "{near:?}");
        assert!(far.x > 200.0 && far.x < 500.0, "{far:?}");
        assert!(far.high / far.low > near.high / near.low);
        // From few points too.
        let few = Fitted::to(&points[..2], &Law::ALL.map(Belief::weak)).unwrap().forecast(&at(4));
        assert!((few.x / 40.0 - 1.0).abs() < 0.25 && few.low < 40.0 && few.high > 40.0, "{few:?}");
        assert!(Fitted::to(&[], &Law::ALL.map(Belief::weak)).is_none());
    }
}
