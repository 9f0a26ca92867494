//! A forecast from several fitted laws together.

use super::belief::Believed;
use super::fit::{Point, Posterior, fit};
use super::law::{At, Law};
use ncpu_foresee::sim::Random;

/// A forecast of a throughput.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// The throughput.
    pub x: f64,
    /// 90 % band.
    pub low: f64,
    /// 90 % band.
    pub high: f64,
    /// The distribution of ln X.
    pub chances: Distribution,
}

/// A draw whose ln X is further from the median than this has the weight of a draw at this distance.
const FARTHEST: f64 = 3.0;
/// Fewer points say too little of a law with many parameters.
const FEW: usize = 4;

/// Whether a law is used with few points, and with more: the power law leaves most open.
fn is_used(law: Law, few: bool) -> bool {
    !few || law != Law::Power
}

/// Few points say something of the next two doublings of N. Farther on, what may be is mostly what was believed before.
const NEAR: f64 = 2.0;
/// How fast that goes: a forecast leans less by this power of the doublings.
const FADES: i32 = 3;
/// The weight of the trend in a forecast, beside the laws. Forecasts of different kinds are wrong in different places,
/// and their mean is wrong less than either; the trend alone is far worse than the laws.
const TREND: f64 = 0.2;
/// How much of the growth that the laws predict is left out, of ln X, from [`NEAR`] doublings on: the third of the forecasts that are
/// averaged is that nothing more is gained. Most programs meet a limit that their first points do not show, and a forecast that is too
/// high costs more than one that is too low.
const STAYS: f64 = 0.4;
/// How much of the last slope goes on: growth slows down.
const DAMPED: f64 = 0.9;
/// The trend is that of the points from the largest N divided by this.
const SPAN: f64 = 4.0;
/// Cores' worth of work that a second strand of a core adds, for the trend.
const STRAND: f64 = 0.3;
/// Slopes of ln X over ln C that make sense: no program gains more than the cores.
const SLOPES: (f64, f64) = (-2.0, 1.0);
/// The band's ends, as quantiles.
const BAND: (f64, f64) = (0.05, 0.95);

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

/// Laws, fitted to the same points.
#[derive(Clone, Debug)]
pub struct Fitted {
    laws: Vec<Posterior>,
    few: bool,
    astray: f64,
    trend: Option<Trend>,
}

impl Fitted {
    /// Fits each law with its belief; `None` without a point.
    pub fn to(points: &[Point], believed: &Believed) -> Option<Fitted> {
        let few = points.len() < FEW;
        let used = believed.laws.iter().filter(|b| is_used(b.law, few));
        let laws: Vec<Posterior> = used.map(|b| fit(points, b, 1)).collect::<Option<_>>()?;
        (!laws.is_empty()).then_some(Fitted { laws, few, astray: believed.astray, trend: Trend::of(points) })
    }

    /// The same laws, taken to go astray by another amount for each doubling.
    pub(super) fn with_astray(&self, astray: f64) -> Fitted {
        Fitted { astray, ..self.clone() }
    }

    /// The distribution of ln X somewhere: the draws of all laws, each continued from the last point and each as likely. A measured point strays
    /// about its law, and a law goes astray from the program further on.
    pub fn chances(&self, at: &At) -> Distribution {
        let mut parts = Vec::new();
        for posterior in &self.laws {
            let (law, (last, x)) = (posterior.law, &posterior.last);
            let beyond = (at.n / last.n).log2().max(0.0);
            parts.extend(posterior.draws.iter().map(|p| {
                let log = (law.throughput(p, at) / law.throughput(p, last) * x).ln();
                (log, law.noise(p).hypot(self.astray * beyond))
            }));
        }
        Distribution { parts }
    }

    /// Predicts the throughput somewhere: by all laws' draws together, by the last point, and by the trend.
    ///
    /// Each draw weighs 1/X, so the median is where the mean of |forecast / X - 1| is least: a forecast that is too high makes it larger than
    /// one that is too low. From few points that holds nearby only.
    pub fn forecast(&self, at: &At) -> Forecast {
        let chances = self.chances(at);
        let all = chances.sample(1 ^ at.n.to_bits());
        let middle = quantile(&all, 0.5);
        let inverse: Vec<(f64, f64)> =
            all.iter().map(|log| (*log, (-(log - middle).clamp(-FARTHEST, FARTHEST)).exp())).collect();
        let (last, last_x) = self.laws.first().map_or((at.n, middle), |p| (p.last.0.n, p.last.1.ln()));
        let beyond = (at.n / last).log2().max(0.0);
        let lean = if self.few { (NEAR / beyond.max(NEAR)).powi(FADES) } else { 1.0 };
        let by_laws = middle + lean * (weighted(&inverse, 0.5) - middle);
        let by_laws = by_laws - STAYS * (beyond / NEAR).min(1.0) * (by_laws - last_x).max(0.0);
        let trend = self.trend.filter(|_| beyond > 0.0);
        let x = trend.map_or(by_laws, |t| by_laws + TREND * (t.log(at) - by_laws));
        let (low, high) = (quantile(&all, BAND.0).min(x), quantile(&all, BAND.1).max(x));
        Forecast { x: x.exp(), low: low.exp(), high: high.exp(), chances }
    }
}

/// Student's t distributions with four degrees of freedom, each as likely: where they lie, and how wide they are. Tails are long, since
/// programs do what no law has.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    parts: Vec<(f64, f64)>,
}

impl Distribution {
    /// A number from each part, sorted.
    fn sample(&self, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed);
        let mut all: Vec<f64> = self
            .parts
            .iter()
            .map(|(log, spread)| {
                let squares = -0.5 * (random.unit() * random.unit()).max(1e-300).ln();
                log + spread * random.normal() / squares.max(1e-9).sqrt()
            })
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn mean(&self, of: impl Fn(f64, f64) -> f64) -> f64 {
        self.parts.iter().map(|&(log, spread)| of(log, spread)).sum::<f64>() / self.parts.len() as f64
    }

    /// Logarithm of the probability density of what was measured.
    pub fn log_score(&self, log: f64) -> f64 {
        let density = |at: f64, spread: f64| {
            let t = (log - at) / spread;
            0.375 * (1.0 + 0.25 * t * t).powf(-2.5) / spread
        };
        self.mean(density).max(1e-300).ln()
    }

    /// How likely ln X is at most this.
    pub fn at_most(&self, log: f64) -> f64 {
        let below = |at: f64, spread: f64| {
            let t = (log - at) / spread;
            let s = 1.0 + 0.25 * t * t;
            0.5 + 0.375 * t / s.sqrt() * (1.0 - t * t / s / 12.0)
        };
        self.mean(below).clamp(0.0, 1.0)
    }

    /// Continuous ranked probability score of what was measured: the mean distance from it less half of the mean distance between two
    /// draws. A forecast without a band has its own distance.
    pub fn crps(&self, log: f64) -> f64 {
        let thinned = Distribution { parts: self.parts.iter().step_by(THINNED).copied().collect() };
        let all = thinned.sample(7);
        let n = all.len() as f64;
        let off = all.iter().map(|x| (x - log).abs()).sum::<f64>() / n;
        let apart: f64 = (0..).zip(&all).map(|(i, x)| x * (2.0 * f64::from(i) + 1.0 - n)).sum();
        off - apart / (n * n)
    }
}

/// Every Nth draw is enough for a score.
const THINNED: usize = 4;

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
    fn scores_are_those_of_a_known_distribution() {
        let one = Distribution { parts: vec![(2.0, 0.5); 20_000] };
        // Student's t with four degrees of freedom: density 0.375 at 0, 0.95 at 2.1318.
        assert!((one.log_score(2.0) - (0.375f64 / 0.5).ln()).abs() < 1e-9);
        assert!((one.at_most(2.0) - 0.5).abs() < 1e-9);
        assert!((one.at_most(2.0 + 0.5 * 2.1318) - 0.95).abs() < 1e-4);
        assert!((one.at_most(2.0 - 0.5 * 2.1318) - 0.05).abs() < 1e-4);
        // Its samples are of it: standard deviation 1.414, and the tail is long.
        let all = one.sample(3);
        assert!((quantile(&all, 0.95) - 2.0 - 0.5 * 2.1318).abs() < 0.06, "{}", quantile(&all, 0.95));
        // A certain forecast scores its distance.
        let certain = Distribution { parts: vec![(1.0, 1e-9); 100] };
        assert!((certain.crps(1.5) - 0.5).abs() < 1e-6);
        // Being right and wide is worse than right and narrow, and better than wrong and narrow.
        let wide = Distribution { parts: vec![(1.0, 0.5); 5_000] };
        let narrow = |at: f64| Distribution { parts: vec![(at, 0.05); 5_000] };
        assert!(narrow(1.0).crps(1.0) < wide.crps(1.0) && wide.crps(1.0) < narrow(2.0).crps(1.0));
        assert!(narrow(1.0).log_score(1.0) > wide.log_score(1.0));
        assert!(wide.log_score(1.0) > narrow(2.0).log_score(1.0));
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
    fn growth_is_doubted_with_distance_and_a_fall_is_not() {
        let hardware = Hardware::of_shape("1x64x1".parse().unwrap());
        let at = |n: u32| At::of(&hardware, Order::Fill, f64::from(n), 1.0);
        let by = |x: &dyn Fn(f64) -> f64, n: u32| {
            let points: Vec<Point> = [1, 2, 4, 8].map(|n| (at(n), x(f64::from(n)))).to_vec();
            let mut fitted = Fitted::to(&points, &Believed::weak()).unwrap();
            fitted.trend = None;
            let forecast = fitted.forecast(&at(n));
            let weights = |log: &f64| (*log, (-log).exp());
            let draws: Vec<(f64, f64)> =
                fitted.chances(&at(n)).sample(1 ^ f64::from(n).to_bits()).iter().map(weights).collect();
            (forecast.x.ln() - x(8.0).ln(), weighted(&draws, 0.5) - x(8.0).ln())
        };
        let (one, laws) = by(&|n| 10.0 * n, 16);
        assert!(laws > 0.4 && (one / laws - (1.0 - STAYS / 2.0)).abs() < 0.05, "{one} {laws}");
        let (two, laws) = by(&|n| 10.0 * n, 32);
        assert!(laws > 0.6 && (two / laws - (1.0 - STAYS)).abs() < 0.05, "{two} {laws}");
        let (fall, laws) = by(&|n| 10.0 / n, 32);
        assert!(laws < -1.0 && (fall / laws - 1.0).abs() < 0.05, "{fall} {laws}");
    }

    #[test]
    fn a_straight_line_goes_on_and_its_band_widens() {
        let hardware = Hardware::of_shape("1x64x1".parse().unwrap());
        let at = |n: u32| At::of(&hardware, Order::Fill, f64::from(n), 1.0);
        let points: Vec<Point> = [1, 2, 4, 8].iter().map(|&n| (at(n), 10.0 * f64::from(n))).collect();
        let fitted = Fitted::to(&points, &Believed::weak()).unwrap();
        let (near, far) = (fitted.forecast(&at(12)), fitted.forecast(&at(48)));
        assert!((near.x / 120.0 - 1.0).abs() < 0.1, "{near:?}");
        assert!(far.x > 200.0 && far.x < 500.0, "{far:?}");
        assert!(far.high / far.low > near.high / near.low);
        // From few points too.
        let few = Fitted::to(&points[..2], &Believed::weak()).unwrap().forecast(&at(4));
        assert!((few.x / 40.0 - 1.0).abs() < 0.25 && few.low < 40.0 && few.high > 40.0, "{few:?}");
        // The band is wider for laws that go further astray.
        let astray = fitted.with_astray(0.5).forecast(&at(48));
        assert!(astray.high / astray.low > far.high / far.low);
        assert!(Fitted::to(&[], &Believed::weak()).is_none());
    }
}
