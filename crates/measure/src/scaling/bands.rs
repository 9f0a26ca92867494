//! Bands: how sure a fit is of a quantity.
//!
//! A band is a profile-likelihood interval. The throughput at each N is the law's plus normal noise of one unknown size;
//! the confidence region is all parameters whose sum of squares exceeds the least by no more than s²·t², with s² from
//! the residuals and t Student's quantile for their degrees of freedom (Bates and Watts, Nonlinear Regression Analysis,
//! 1988, ch. 6). The band of any quantity, the peak for example, is the range that it takes in that region. So bounds
//! (κ ≥ 0) and skew cost no coverage, which resampling a few points does.

use ncpu_statistics::{LEVEL, f_tail, student};

use super::Point;
use super::law::{Law, Usl};
use crate::stats::Summary;

/// The share of cases in which data that a law does describe are said to deviate from it by more than their noise.
const MISFIT: f64 = 0.05;

/// How much better one kind of noise has to explain the data, as a difference of log-likelihoods, before the other is
/// given up. With fewer data than it takes to tell, a band holds both.
const TOLD_APART: f64 = 3.0;

/// Parameters this far out are as good as infinite: the data bound nothing.
const BEYOND: f64 = 1e6;

/// How the noise grows with the throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Noise {
    /// The same at each N.
    Constant,
    /// The same share of the throughput at each N.
    Relative,
}

/// The data at one N.
struct Datum {
    n: f64,
    /// The median of its runs; its logarithm where the noise is relative.
    x: f64,
    /// One over the variance of that median, in variances of a run.
    weight: f64,
}

struct Data {
    noise: Noise,
    points: Vec<Datum>,
    /// Sum of squares of the runs within each N, and its degrees of freedom.
    pure: (f64, usize),
    runs: usize,
    /// The factor that turns a likelihood of logarithms into one of throughputs.
    jacobian: f64,
}

/// The variance of the median of `r` normal values, in variances of one (Teichroew, Annals of Mathematical Statistics
/// 27, 1956, for up to 7; above, π/(2r) with the first correction, right to 1 %).
fn median_variance(r: usize) -> f64 {
    const EXACT: [f64; 7] = [1.0, 0.5, 0.4487, 0.2982, 0.2868, 0.2147, 0.2104];
    EXACT.get(r - 1).copied().unwrap_or_else(|| {
        let r = r as f64;
        // An even number averages two.
        let even = if r % 2.0 == 0.0 { 0.5 } else { 0.0 };
        std::f64::consts::FRAC_PI_2 / (r + 0.57 + even)
    })
}

impl Data {
    /// `None` where logarithms do not exist.
    fn new(used: &[&Point], noise: Noise) -> Option<Data> {
        let mut data = Data { noise, points: Vec::new(), pure: (0.0, 0), runs: 0, jacobian: 0.0 };
        for point in used {
            let mut kept = point.kept();
            if noise == Noise::Relative {
                if kept.iter().any(|x| *x <= 0.0) {
                    return None;
                }
                kept.iter_mut().for_each(|x| *x = x.ln());
                data.jacobian += kept.iter().sum::<f64>();
            }
            let s = Summary::of(&kept);
            data.pure.0 += s.stddev.powi(2) * (s.n - 1) as f64;
            data.pure.1 += s.n - 1;
            data.runs += s.n;
            data.points.push(Datum { n: point.n, x: s.median, weight: 1.0 / median_variance(s.n) });
        }
        Some(data)
    }

    /// The law of σ and κ at each point, before λ.
    fn shape(&self, sigma: f64, kappa: f64) -> impl Iterator<Item = (f64, f64, f64)> {
        let relative = self.noise == Noise::Relative;
        self.points.iter().map(move |p| {
            let unit = Usl { lambda: 1.0, sigma, kappa }.at(p.n);
            (p.x, if relative { unit.ln() } else { unit }, p.weight)
        })
    }

    /// The best λ, or its logarithm, for σ and κ; the least sum of squares; and the weight with which the sum grows with
    /// the square of the distance from it.
    fn best(&self, sigma: f64, kappa: f64) -> (f64, f64, f64) {
        let relative = self.noise == Noise::Relative;
        let (top, weight) =
            self.shape(sigma, kappa).fold((0.0, 0.0), |(top, weight), (x, y, w)| match relative {
                true => (top + w * (x - y), weight + w),
                false => (top + w * x * y, weight + w * y * y),
            });
        let lambda = top / weight;
        let residual = |x: f64, y: f64| if relative { x - y - lambda } else { x - y * lambda };
        let squares = self.shape(sigma, kappa).map(|(x, y, w)| w * residual(x, y).powi(2)).sum();
        (lambda, squares, weight)
    }

    fn squares(&self, sigma: f64, kappa: f64) -> f64 {
        self.best(sigma, kappa).1
    }

    /// σ of the least sum of squares for κ, and that sum.
    fn over_sigma(&self, kappa: f64) -> (f64, f64) {
        least(|sigma| self.squares(sigma, kappa))
    }

    /// The parameters λ at the ends of what is allowed for σ and κ.
    fn lambdas(&self, sigma: f64, kappa: f64, limit: f64) -> [f64; 2] {
        let (lambda, squares, weight) = self.best(sigma, kappa);
        let away = ((limit - squares).max(0.0) / weight).sqrt();
        let of = |x: f64| if self.noise == Noise::Relative { x.exp() } else { x.max(f64::MIN_POSITIVE) };
        [of(lambda - away), of(lambda + away)]
    }

    /// The log-likelihood of the residuals (without the part of the data that the parameters took up, as restricted
    /// maximum likelihood has it); `least` is their sum of squares about the law.
    fn likelihood(&self, least: f64, parameters: usize) -> f64 {
        let free = self.runs.saturating_sub(parameters) as f64;
        -free / 2.0 * (self.pure.0 + least).ln() - free / self.runs as f64 * self.jacobian
    }

    /// How far the sum of squares may exceed the least: s²·t². `None` where the size of the noise is not known.
    fn allowance(&self, least: f64, parameters: usize) -> Option<f64> {
        let (pure, within) = self.pure;
        let about = self.points.len().checked_sub(parameters)?;
        // Where the points lie further from the law than their runs from each other, the law is wrong by the
        // difference, and runs alone would make it too sure.
        let misfit = about > 0
            && within > 0
            && f_tail(least / about as f64 / (pure / within as f64), about, within) < MISFIT;
        let (squares, degrees) = if misfit { (least, about) } else { (pure + least, within + about) };
        (degrees > 0).then(|| squares / degrees as f64 * student(degrees as f64, LEVEL).powi(2))
    }
}

/// Where a function of 0–1 with one minimum has it, and its value; the ends count too. Parabolas through the three best
/// places, golden sections where those do not help (Brent, Algorithms for Minimization without Derivatives, 1973, ch. 5).
fn least(f: impl Fn(f64) -> f64) -> (f64, f64) {
    const GOLDEN: f64 = 0.381_966_011_250_105;
    const NEAR: f64 = 1e-9;
    let (mut low, mut high) = (0.0, 1.0);
    let mut best = (GOLDEN, f(GOLDEN));
    let (mut second, mut third) = (best, best);
    let (mut step, mut before) = (0.0f64, 0.0f64);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        let near = 1e-8 * best.0 + NEAR;
        if (best.0 - middle).abs() <= 2.0 * near - (high - low) / 2.0 {
            break;
        }
        let r = (best.0 - second.0) * (best.1 - third.1);
        let q = (best.0 - third.0) * (best.1 - second.1);
        let (mut p, mut q) = ((best.0 - third.0) * q - (best.0 - second.0) * r, 2.0 * (q - r));
        if q > 0.0 {
            p = -p;
        }
        q = q.abs();
        let parabola = before.abs() > near
            && p.abs() < (q * before / 2.0).abs()
            && p > q * (low - best.0)
            && p < q * (high - best.0);
        (before, step) = match parabola {
            true => (step, p / q),
            false => {
                let larger = if best.0 < middle { high - best.0 } else { low - best.0 };
                (larger, GOLDEN * larger)
            }
        };
        let at = best.0 + if step.abs() >= near { step } else { near.copysign(step) };
        let new = (at, f(at));
        if new.1 <= best.1 {
            if at < best.0 {
                high = best.0
            } else {
                low = best.0
            }
            (third, second, best) = (second, best, new);
        } else {
            if at < best.0 {
                low = at
            } else {
                high = at
            }
            if new.1 <= second.1 || second.0 == best.0 {
                (third, second) = (second, new);
            } else if new.1 <= third.1 || third.0 == best.0 || third.0 == second.0 {
                third = new;
            }
        }
    }
    [(0.0, f(0.0)), (1.0, f(1.0))]
        .into_iter()
        .fold(best, |best, end| if end.1 <= best.1 { end } else { best })
}

/// Between `inside`, where a function is not above 0, and `outside`: the last place where it is not, by false position
/// (the Illinois method, which halves the value of an end that stays).
fn edge(inside: f64, outside: f64, f: impl Fn(f64) -> f64) -> f64 {
    let (mut a, mut b) = ((inside, f(inside).min(0.0)), (outside, f(outside)));
    if b.1 <= 0.0 {
        return outside;
    }
    let mut kept = 0;
    for step in 0..100 {
        if (a.0 - b.0).abs() <= 1e-9 * (inside - outside).abs() {
            break;
        }
        // A jump gives no slope to go by, so that every third step halves.
        let share = if step % 3 == 2 { 0.5 } else { (a.1 / (a.1 - b.1)).clamp(0.001, 0.999) };
        let at = a.0 + (b.0 - a.0) * share;
        let value = f(at);
        if value <= 0.0 {
            if kept == 1 {
                b.1 /= 2.0;
            }
            (a, kept) = ((at, value), 1);
        } else {
            if kept == -1 {
                a.1 /= 2.0;
            }
            (b, kept) = ((at, value), -1);
        }
    }
    a.0
}

/// `n` places from `low` to `high`, both among them, closer together near the ends.
fn places(low: f64, high: f64, n: usize) -> impl Iterator<Item = f64> {
    (0..n).map(move |i| {
        let angle = std::f64::consts::PI * i as f64 / (n - 1) as f64;
        low + (high - low) * (1.0 - angle.cos()) / 2.0
    })
}

/// Parameters all over the surface of the 95 % confidence region: the range of a quantity over them is its band.
/// Empty where the data tell nothing of the noise or bound nothing.
pub(super) fn region(used: &[&Point], law: Law, best: &Usl) -> Vec<Usl> {
    let mut kinds: Vec<(f64, Vec<Usl>)> = Vec::new();
    for noise in [Noise::Constant, Noise::Relative] {
        let Some(data) = Data::new(used, noise) else { continue };
        match of_kind(&data, law) {
            Some((_, surface)) if surface.is_empty() => return Vec::new(),
            Some(kind) => kinds.push(kind),
            None => return Vec::new(),
        }
    }
    let likeliest = kinds.iter().map(|k| k.0).fold(f64::NEG_INFINITY, f64::max);
    let mut all: Vec<Usl> = kinds
        .into_iter()
        .filter(|(likelihood, _)| *likelihood >= likeliest - TOLD_APART || likelihood.is_infinite())
        .flat_map(|(_, surface)| surface)
        .collect();
    all.push(*best);
    all
}

/// The region for one kind of noise, and that kind's log-likelihood. `None`: the size of the noise is not known. An
/// empty region: it has no end.
fn of_kind(data: &Data, law: Law) -> Option<(f64, Vec<Usl>)> {
    const SLICES: usize = 25;
    const ACROSS: usize = 13;
    // κ from 0 to infinity as 0 to 1, with the middle where it begins to matter.
    let widest = data.points.iter().map(|p| p.n).fold(2.0, f64::max);
    let kappa = |v: f64| v / (1.0 - v).max(1.0 / BEYOND) / widest;
    let profile = |v: f64| data.over_sigma(kappa(v)).1;
    let (at, squares) = match law {
        Law::Usl => least(profile),
        Law::Amdahl => (0.0, profile(0.0)),
    };
    let limit = squares + data.allowance(squares, law.parameters())?;
    let likelihood = data.likelihood(squares, law.parameters());
    let (low, high) = match law {
        Law::Usl => (edge(at, 0.0, |v| profile(v) - limit), edge(at, 1.0, |v| profile(v) - limit)),
        Law::Amdahl => (0.0, 0.0),
    };
    if high >= 1.0 {
        return Some((likelihood, Vec::new()));
    }
    let mut surface = Vec::new();
    let slices = if law == Law::Usl { SLICES } else { 2 };
    for v in places(low, high, slices) {
        let kappa = kappa(v);
        let (middle, _) = data.over_sigma(kappa);
        let above = |sigma: f64| data.squares(sigma, kappa) - limit;
        for sigma in places(edge(middle, 0.0, above), edge(middle, 1.0, above), ACROSS) {
            surface.extend(data.lambdas(sigma, kappa, limit).map(|lambda| Usl { lambda, sigma, kappa }));
        }
    }
    Some((likelihood, surface))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minima_and_edges_are_found() {
        for at in [0.0, 1e-6, 0.013, 0.5, 0.97, 1.0] {
            let (x, y) = least(|x| (x - at).powi(2) + (x - at).powi(4));
            assert!((x - at).abs() < 1e-6 && y < 1e-12, "{at}: {x}");
            let (x, _) = least(|x| (x - at).abs().sqrt());
            assert!((x - at).abs() < 1e-6, "{at}: {x}");
        }
        assert!((edge(0.2, 1.0, |x| x * x - 0.25) - 0.5).abs() < 1e-8);
        assert!((edge(0.8, 0.0, |x| 0.25 - x * x) - 0.5).abs() < 1e-8);
        assert!((edge(0.0, 1.0, |x| if x < 0.3 { -1e-9 } else { 1e9 }) - 0.3).abs() < 1e-6);
        assert_eq!(edge(0.2, 1.0, |_| -1.0), 1.0);
    }

    #[test]
    fn medians_vary_as_the_tables_say() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut normal = || (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        for r in [1, 2, 3, 5, 7, 8, 9, 20, 31] {
            let medians: Vec<f64> = (0..20_000)
                .map(|_| Summary::of(&(0..r).map(|_| normal()).collect::<Vec<_>>()).median)
                .collect();
            let variance = Summary::of(&medians).stddev.powi(2);
            assert!(
                (variance / median_variance(r) - 1.0).abs() < 0.05,
                "{r}: {variance} {}",
                median_variance(r)
            );
        }
    }
}
