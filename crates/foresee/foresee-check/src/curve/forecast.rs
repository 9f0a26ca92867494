//! What fitted laws foretell, together.

use super::fit::{Belief, Point, Posterior, fit};
use super::law::{At, Law};
use ncpu_foresee::sim::Random;

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

/// Throughputs further from the median than this, in ln X, weigh no more and no less.
const FARTHEST: f64 = 3.0;
/// Few points say something of the next two doublings of N. Farther on, what may be is mostly what was believed before.
const NEAR: f64 = 2.0;
/// How fast that goes: a forecast leans less by this power of the doublings.
const FADES: i32 = 6;

/// What the trend weighs in a forecast, beside the laws. Forecasts of different kinds are wrong in different places, and their
/// mean is wrong less than either; the trend alone is far worse than the laws.
const TREND: f64 = 0.2;
/// How much of the last slope goes on: growth slows down.
const DAMPED: f64 = 0.9;
/// The trend is that of the points whose N is at least the largest over this.
const SPAN: f64 = 4.0;
/// What a second strand of a core adds, of a core, for the trend.
const STRAND: f64 = 0.3;
/// Slopes of ln X over ln C that make sense: no program gains more than the cores.
const SLOPES: (f64, f64) = (-2.0, 1.0);

/// The bands' ends, as quantiles of what may be: what 90 % of the points of published curves are between, each family's foretold
/// without it.
const BAND: (f64, f64) = (0.07, 0.93);

/// By how much ln X goes astray for each doubling of N beyond what was measured, standard deviation.
const ASTRAY: f64 = 0.05;

/// The curve as if it went on as it ended: a straight line through its last points, ln X over ln C, damped.
#[derive(Clone, Copy, Debug)]
struct Trend {
    last: Point,
    slope: f64,
}

impl Trend {
    /// `None` where there is one point only.
    fn of(points: &[Point]) -> Option<Trend> {
        let mut sorted: Vec<&Point> = points.iter().collect();
        sorted.sort_by(|a, b| a.0.n.total_cmp(&b.0.n));
        let last = **sorted.last()?;
        let near = sorted.partition_point(|p| p.0.n < last.0.n / SPAN).min(sorted.len().checked_sub(2)?);
        let mean = |of: &dyn Fn(&Point) -> f64| {
            sorted[near..].iter().map(|p| of(p)).sum::<f64>() / (sorted.len() - near) as f64
        };
        let (c, x) = (mean(&|p| cores(&p.0).ln()), mean(&|p| p.1.ln()));
        let spread = mean(&|p| (cores(&p.0).ln() - c).powi(2));
        // Threads beyond the CPUs bring no core: the curve is taken to stay as it is then.
        let slope = match spread > 1e-3 {
            true => mean(&|p| (cores(&p.0).ln() - c) * (p.1.ln() - x)) / spread,
            false => 0.0,
        };
        Some(Trend { last, slope: DAMPED * slope.clamp(SLOPES.0, SLOPES.1) })
    }

    /// ln X there.
    fn log(&self, at: &At) -> f64 {
        self.last.1.ln() + self.slope * (cores(at) / cores(&self.last.0)).ln()
    }
}

fn cores(at: &At) -> f64 {
    at.cores + STRAND * at.strands
}

/// Laws, fitted to the same points, and what each weighs; and the trend of these points.
#[derive(Clone, Debug)]
pub struct Fitted {
    laws: Vec<(Posterior, f64)>,
    few: bool,
    trend: Option<Trend>,
}

impl Fitted {
    /// Fits each law with its belief; `None` without a point.
    pub fn to(points: &[Point], beliefs: &[Belief]) -> Option<Fitted> {
        let few = points.len() < FEW;
        let weighed = beliefs.iter().map(|b| (b, weight(b.law, few))).filter(|(_, weight)| *weight > 0.0);
        let laws: Vec<(Posterior, f64)> =
            weighed.map(|(b, weight)| Some((fit(points, b, 1)?, weight))).collect::<Option<_>>()?;
        (!laws.is_empty()).then_some(Fitted { laws, few, trend: Trend::of(points) })
    }

    /// Foretells the throughput somewhere: by all laws' draws together, and by the trend.
    ///
    /// Each draw weighs 1/X, so the median is where the mean of |foretold / X - 1| is least: what is foretold too high makes it
    /// larger than what is foretold too low. From few points that holds nearby only.
    pub fn forecast(&self, at: &At) -> Forecast {
        let mut random = Random::new(1 ^ at.n.to_bits());
        let mut all = Vec::new();
        let last = self.laws.first().map_or(at.n, |(posterior, _)| posterior.last.0.n);
        let beyond = (at.n / last).log2().max(0.0);
        for (posterior, weight) in &self.laws {
            let (law, (last, x)) = (posterior.law, &posterior.last);
            for p in &posterior.draws {
                let mut log = law.throughput(p, at).ln();
                if self.few {
                    log += (x / law.throughput(p, last)).ln();
                }
                all.push((log + law.noise(p).hypot(ASTRAY * beyond) * random.normal(), *weight));
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let middle = weighted(&all, 0.5);
        let inverse =
            |(log, weight): &(f64, f64)| (*log, weight * (-(log - middle).clamp(-FARTHEST, FARTHEST)).exp());
        let least = weighted(&all.iter().map(inverse).collect::<Vec<_>>(), 0.5);
        let lean = if self.few { (NEAR / beyond.max(NEAR)).powi(FADES) } else { 1.0 };
        let by_laws = middle + lean * (least - middle);
        let trend = self.trend.filter(|_| beyond > 0.0);
        let x = trend.map_or(by_laws, |t| by_laws + TREND * (t.log(at) - by_laws)).exp();
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
    use ncpu_foresee::hardware::{Hardware, Order};

    #[test]
    fn quantiles_go_by_weight() {
        let all = [(1.0, 1.0), (2.0, 0.0), (3.0, 2.0), (4.0, 1.0)];
        assert_eq!([0.1, 0.25, 0.3, 0.7, 1.0].map(|q| weighted(&all, q)), [1.0, 1.0, 3.0, 3.0, 4.0]);
    }

    #[test]
    fn a_trend_goes_on_damped_and_stays_where_no_core_is_left() {
        let hardware = Hardware::of_shape("1x16x1".parse().unwrap());
        let at = |n: u32| At::of(&hardware, Order::Fill, f64::from(n), 1.0);
        let points: Vec<Point> = [1, 2, 4].iter().map(|&n| (at(n), 10.0 * f64::from(n))).collect();
        let trend = Trend::of(&points).unwrap();
        assert!((trend.log(&at(16)) - 40f64.ln() - DAMPED * 4f64.ln()).abs() < 1e-9);
        assert!(Trend::of(&points[..1]).is_none());
        // Sixteen threads and thirty-two on sixteen CPUs.
        let trend = Trend::of(&[(at(16), 160.0), (at(32), 80.0)]).unwrap();
        assert!((trend.log(&at(64)) - 80f64.ln()).abs() < 1e-9);
        // Nothing is gained but by cores.
        let trend = Trend::of(&[(at(8), 10.0), (at(10), 1000.0)]).unwrap();
        assert_eq!(trend.slope, DAMPED);
        // Points far below the last are of another part of the curve.
        let points: Vec<Point> =
            [(1, 1.0), (2, 2.0), (4, 2.0), (8, 2.0), (16, 2.0)].map(|(n, x)| (at(n), x)).to_vec();
        assert!(Trend::of(&points).unwrap().slope.abs() < 1e-9);
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
