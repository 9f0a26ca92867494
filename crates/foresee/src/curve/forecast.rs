//! What fitted laws foretell, together.

use super::fit::{Belief, Point, Posterior, fit};
use super::law::At;
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

/// By how much ln X goes astray for each doubling of N beyond what was measured, standard deviation: with it the bands of
/// the published curves hold about nine of ten points.
const ASTRAY: f64 = 0.08;

/// All laws, fitted to the same points.
#[derive(Clone, Debug)]
pub struct Fitted(Vec<Posterior>);

impl Fitted {
    /// Fits each law with its belief; `None` without a point.
    pub fn to(points: &[Point], beliefs: &[Belief]) -> Option<Fitted> {
        let all: Vec<Posterior> = beliefs.iter().map(|b| fit(points, b, 1)).collect::<Option<_>>()?;
        (!all.is_empty()).then_some(Fitted(all))
    }

    /// Foretells the throughput somewhere, relative to that at the last point measured: from the mean over the laws of the time
    /// that a unit takes. The mean of times leans to the lower throughput where laws disagree, as who must bear an error in
    /// proportion does.
    pub fn forecast(&self, at: &At) -> Forecast {
        let mut random = Random::new(1 ^ at.n.to_bits());
        let (mut time, mut all) = (0.0, Vec::new());
        for posterior in &self.0 {
            let (law, (last, x)) = (posterior.law, &posterior.last);
            let beyond = (at.n / last.n).log2().max(0.0);
            let mut logs: Vec<f64> = posterior
                .draws
                .iter()
                .map(|p| (law.throughput(p, at) / law.throughput(p, last) * x).ln())
                .collect();
            all.extend(posterior.draws.iter().zip(&logs).map(|(p, log)| {
                let sd = law.noise(p).hypot(ASTRAY * beyond);
                log + sd * random.normal()
            }));
            logs.sort_by(f64::total_cmp);
            time += (-quantile(&logs, 0.5)).exp() / self.0.len() as f64;
        }
        all.sort_by(f64::total_cmp);
        let x = 1.0 / time;
        Forecast { x, low: quantile(&all, 0.05).exp().min(x), high: quantile(&all, 0.95).exp().max(x) }
    }
}

/// A quantile of sorted numbers.
pub(super) fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::law::Law;
    use crate::hardware::{Hardware, Order};

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
        assert!(Fitted::to(&[], &Law::ALL.map(Belief::weak)).is_none());
    }
}
