//! The slope of time over dose.
//!
//! Windows come in blocks: a block has one window of each dose, in random order, within a second or so. Each block has a speed
//! of its own, so phases of the program and of its neighbours cancel. The time of an operation at dose x, over that at dose 0,
//! is 1 + βx where the place binds alike at all doses, and has a knee or a curve where another place takes over. β at dose
//! 0 is wanted. Four shapes are fitted: a line, a parabola, and lines with a knee at each inner dose. The answer is their
//! mixture, weighted by Akaike's criterion, so its interval covers the choice of the shape too.

use ncpu_statistics::{middle, student_below};

/// A window of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Windows with the same number are compared with each other.
    pub block: usize,
    /// ns that a hit of the place was made longer, on average.
    pub dose: f64,
    /// Operations a second.
    pub speed: f64,
}

/// Blocks that a slope needs.
pub const LEAST_BLOCKS: usize = 3;

/// A residual further out than this many standard deviations counts less.
const OUTLIER: f64 = 2.5;

/// Weights of the shapes before the data: a line, a parabola, a knee at each inner dose.
const PRIOR: [f64; 4] = [0.4, 0.2, 0.2, 0.2];

/// One shape's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    weight: f64,
    slope: f64,
    error: f64,
    freedom: f64,
}

/// The relative growth of an operation's time per ns of dose, at dose 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Slope {
    parts: Vec<Part>,
    /// The share of the shapes with a curve or a knee in the answer, 0–1.
    pub curved: f64,
}

impl Slope {
    /// Its mean.
    pub fn value(&self) -> f64 {
        self.parts.iter().map(|part| part.weight * part.slope).sum()
    }

    /// The interval that holds it with probability 1 − `level`.
    pub fn interval(&self, level: f64) -> (f64, f64) {
        (self.quantile(level / 2.0), self.quantile(1.0 - level / 2.0))
    }

    fn below(&self, slope: f64) -> f64 {
        let part = |p: &Part| match p.error > 0.0 {
            true => p.weight * student_below((slope - p.slope) / p.error, p.freedom),
            false => p.weight * f64::from(u8::from(slope >= p.slope)),
        };
        self.parts.iter().map(part).sum()
    }

    fn quantile(&self, p: f64) -> f64 {
        let reach = |side: f64| {
            let ends = self.parts.iter().map(|part| part.slope + side * 200.0 * part.error);
            ends.fold(self.value(), if side < 0.0 { f64::min } else { f64::max })
        };
        let (mut low, mut high) = (reach(-1.0), reach(1.0));
        for _ in 0..200 {
            let mid = low + (high - low) / 2.0;
            if self.below(mid) < p {
                low = mid;
            } else {
                high = mid;
            }
        }
        low + (high - low) / 2.0
    }
}

/// Fits the slope; `None` of too few windows, or of doses that are all alike.
pub fn slope(windows: &[Window]) -> Option<Slope> {
    let data = Data::of(windows)?;
    let knees = data.inner_doses();
    let mut shapes: Vec<(f64, Vec<Basis>)> = vec![(PRIOR[0], vec![Basis::Line])];
    shapes.push((PRIOR[1], vec![Basis::Line, Basis::Square]));
    shapes.extend(knees.iter().zip(&PRIOR[2..]).map(|(&at, &p)| (p, vec![Basis::Line, Basis::Knee(at)])));
    // Outliers are judged by the shape that leaves least, so that a curve is not taken for outliers.
    let even = vec![1.0; data.rows.len()];
    let first = shapes.iter().filter_map(|(_, shape)| data.fit(shape, &even));
    let best = first.min_by(|a, b| a.rss.total_cmp(&b.rss))?;
    let (_, spread) = middle(&best.residuals)?;
    let weight =
        |r: &f64| if r.abs() > OUTLIER * spread && spread > 0.0 { OUTLIER * spread / r.abs() } else { 1.0 };
    let weights: Vec<f64> = best.residuals.iter().map(weight).collect();

    let rows = weights.len() as f64;
    let whole = weights.iter().filter(|w| **w >= 1.0).count() as f64 / rows;
    let kept = weights.iter().sum::<f64>() / rows;

    let n = data.rows.len() as f64 - data.blocks as f64;
    let mut parts: Vec<(f64, Part)> = Vec::new();
    for (prior, shape) in &shapes {
        let k = shape.len() as f64;
        let freedom = n - k;
        if freedom < 3.0 {
            continue;
        }
        let Some(fit) = data.fit(shape, &weights) else { continue };
        // Outliers are cut to a size and not left out (Huber): the variance is that of what is left of them, over the square of
        // the share that was not cut.
        let cut: f64 = fit.residuals.iter().zip(&weights).map(|(r, w)| (w * r).powi(2)).sum();
        let variance = cut / freedom * kept / whole.powi(2);
        let penalty = 2.0 * (k + 1.0) + 2.0 * (k + 1.0) * (k + 2.0) / (n - k - 2.0).max(1.0);
        let criterion = n * (fit.rss / n).max(1e-300).ln() + penalty - 2.0 * prior.ln();
        let part = Part {
            weight: 0.0,
            slope: fit.slope / data.most,
            error: (variance * fit.inverse).sqrt() / data.most,
            freedom,
        };
        parts.push((criterion, part));
    }
    let least = parts.iter().map(|(criterion, _)| *criterion).fold(f64::INFINITY, f64::min);
    let raw: Vec<f64> = parts.iter().map(|(criterion, _)| (-(criterion - least) / 2.0).exp()).collect();
    let sum: f64 = raw.iter().sum();
    if parts.is_empty() || !sum.is_finite() {
        return None;
    }
    let parts: Vec<Part> =
        parts.into_iter().zip(&raw).map(|((_, part), raw)| Part { weight: raw / sum, ..part }).collect();
    let curved = 1.0 - parts[0].weight;
    Some(Slope { parts, curved })
}

#[derive(Clone, Copy)]
enum Basis {
    Line,
    Square,
    /// A change of slope at this dose, as a part of the largest.
    Knee(f64),
}

impl Basis {
    fn at(self, x: f64) -> f64 {
        match self {
            Basis::Line => x,
            Basis::Square => x * x,
            Basis::Knee(at) => (x - at).max(0.0),
        }
    }
}

struct Data {
    /// Block, dose as a part of the largest, logarithm of an operation's time.
    rows: Vec<(usize, f64, f64)>,
    blocks: usize,
    most: f64,
}

struct Fit {
    slope: f64,
    /// The slope's place in the inverse of the normal equations' matrix.
    inverse: f64,
    rss: f64,
    residuals: Vec<f64>,
}

impl Data {
    fn of(windows: &[Window]) -> Option<Data> {
        let usable =
            |w: &&Window| w.speed > 0.0 && w.speed.is_finite() && w.dose >= 0.0 && w.dose.is_finite();
        let most = windows.iter().filter(usable).map(|w| w.dose).fold(0.0, f64::max);
        let mut names: Vec<usize> = windows.iter().filter(usable).map(|w| w.block).collect();
        names.sort_unstable();
        names.dedup();
        if most <= 0.0 || names.len() < LEAST_BLOCKS {
            return None;
        }
        let row = |w: &Window| {
            let block = names.binary_search(&w.block).unwrap_or(0);
            (block, w.dose / most, -w.speed.ln())
        };
        Some(Data { rows: windows.iter().filter(usable).map(row).collect(), blocks: names.len(), most })
    }

    /// The two doses between none and the largest: a third and two thirds up the sorted ones that are not 0.
    fn inner_doses(&self) -> Vec<f64> {
        let mut doses: Vec<f64> = self.rows.iter().map(|row| row.1).filter(|&x| x > 0.0).collect();
        doses.sort_by(f64::total_cmp);
        let at = |part: f64| doses[(part * (doses.len() - 1) as f64).round() as usize];
        let all = [at(1.0 / 6.0), at(0.5)];
        all.into_iter().filter(|&x| x < 0.9).collect()
    }

    /// Least squares of ln(1 + Σ θ·basis) plus a level for each block.
    fn fit(&self, shape: &[Basis], weights: &[f64]) -> Option<Fit> {
        let k = shape.len();
        let mut theta = vec![0.0; k];
        let mut last = f64::INFINITY;
        let mut out = None;
        for _ in 0..50 {
            let (residuals, jacobian) = self.centred(shape, &theta, weights)?;
            let rss: f64 = residuals.iter().zip(weights).map(|(r, w)| w * r * r).sum();
            let (mut a, mut b) = ([[0.0; 2]; 2], [0.0; 2]);
            for ((r, j), w) in residuals.iter().zip(&jacobian).zip(weights) {
                for i in 0..k {
                    b[i] += w * j[i] * r;
                    for l in 0..k {
                        a[i][l] += w * j[i] * j[l];
                    }
                }
            }
            let inverse = inverse(a, k)?;
            out = Some(Fit { slope: theta[0], inverse: inverse[0][0], rss, residuals });
            if (last - rss).abs() <= 1e-12 * (1.0 + rss) {
                break;
            }
            last = rss;
            let step: Vec<f64> = (0..k).map(|i| (0..k).map(|l| inverse[i][l] * b[l]).sum()).collect();
            let mut part = 1.0;
            // A step that would make an operation's time vanish is cut.
            while part > 1e-3 {
                let next: Vec<f64> = theta.iter().zip(&step).map(|(t, s)| t + part * s).collect();
                if self.rows.iter().all(|row| time(shape, &next, row.1) > 0.05) {
                    theta = next;
                    break;
                }
                part /= 2.0;
            }
        }
        out
    }

    /// Residuals and derivatives, each less the mean of its block.
    fn centred(&self, shape: &[Basis], theta: &[f64], weights: &[f64]) -> Option<(Vec<f64>, Vec<[f64; 2]>)> {
        let mut residuals = Vec::with_capacity(self.rows.len());
        let mut jacobian = Vec::with_capacity(self.rows.len());
        let mut means = vec![[0.0; 4]; self.blocks];
        for (&(block, x, y), w) in self.rows.iter().zip(weights) {
            let u = time(shape, theta, x);
            if u <= 0.0 {
                return None;
            }
            let r = y - u.ln();
            let mut j = [0.0; 2];
            for (j, basis) in j.iter_mut().zip(shape) {
                *j = basis.at(x) / u;
            }
            for (sum, value) in means[block].iter_mut().zip([1.0, r, j[0], j[1]]) {
                *sum += w * value;
            }
            residuals.push(r);
            jacobian.push(j);
        }
        for ((&(block, ..), r), j) in self.rows.iter().zip(&mut residuals).zip(&mut jacobian) {
            let [n, of_r, of_j0, of_j1] = means[block];
            *r -= of_r / n;
            j[0] -= of_j0 / n;
            j[1] -= of_j1 / n;
        }
        Some((residuals, jacobian))
    }
}

/// An operation's time over that at dose 0.
fn time(shape: &[Basis], theta: &[f64], x: f64) -> f64 {
    1.0 + shape.iter().zip(theta).map(|(basis, theta)| theta * basis.at(x)).sum::<f64>()
}

/// The inverse of the upper left `k` × `k` of a symmetric matrix; `None` where it has none.
fn inverse(a: [[f64; 2]; 2], k: usize) -> Option<[[f64; 2]; 2]> {
    if k == 1 {
        return (a[0][0] > 1e-12).then(|| [[1.0 / a[0][0], 0.0], [0.0, 0.0]]);
    }
    let determinant = a[0][0] * a[1][1] - a[0][1] * a[1][0];
    (determinant > 1e-9 * a[0][0] * a[1][1]).then(|| {
        [[a[1][1] / determinant, -a[0][1] / determinant], [-a[1][0] / determinant, a[0][0] / determinant]]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of a program with the time `shape(x)` at dose x; noise of 3 % a window, phases of the blocks, and a
    /// neighbour that takes a third of the speed of one window in twenty.
    fn windows(random: &mut fastrand::Rng, blocks: usize, shape: impl Fn(f64) -> f64) -> Vec<Window> {
        let mut out = Vec::new();
        let mut phase: f64 = 0.0;
        for block in 0..blocks {
            phase += 0.05 * normal(random);
            if random.f64() < 0.1 {
                phase += 0.5 * normal(random);
            }
            for dose in [0.0, 100.0, 200.0, 400.0] {
                let burst = if random.f64() < 0.05 { 0.7 } else { 1.0 };
                let speed = burst * (phase + 0.03 * normal(random)).exp() / shape(dose);
                out.push(Window { block, dose, speed });
            }
        }
        out
    }

    fn normal(random: &mut fastrand::Rng) -> f64 {
        (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
    }

    /// The share of 1,000 experiments whose 95 % interval holds the slope at dose 0, and the mean of their slopes.
    fn coverage(seed: u64, blocks: usize, slope_at_0: f64, shape: impl Fn(f64) -> f64) -> (f64, f64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut held, mut sum) = (0, 0.0);
        for _ in 0..1000 {
            let slope = slope(&windows(&mut random, blocks, &shape)).unwrap();
            let (low, high) = slope.interval(0.05);
            assert!(low <= high);
            held += usize::from(low <= slope_at_0 && slope_at_0 <= high);
            sum += slope.value();
        }
        (f64::from(held as u32) / 1000.0, sum / 1000.0)
    }

    #[test]
    fn intervals_hold_the_slope_of_a_line() {
        for (seed, blocks) in [(1, 6), (2, 12), (3, 30)] {
            let (held, mean) = coverage(seed, blocks, 5e-4, |x| 1.0 + 5e-4 * x);
            assert!((0.88..=0.998).contains(&held), "{blocks} blocks: {held}");
            assert!((mean / 5e-4 - 1.0).abs() < 0.08, "{blocks} blocks: {mean}");
        }
    }

    #[test]
    fn intervals_hold_a_slope_of_nothing() {
        let (held, mean) = coverage(4, 12, 0.0, |_| 1.0);
        assert!((0.88..=0.998).contains(&held), "{held}");
        assert!(mean.abs() < 3e-5, "{mean}");
    }

    #[test]
    fn intervals_hold_the_slope_below_a_knee() {
        // Another place is passed by at 150 ns, and this one binds beyond.
        let knee = |x: f64| 1.0 + 2e-4 * x + 1.2e-3 * (x - 150.0).max(0.0);
        for (seed, blocks) in [(5, 8), (6, 24)] {
            let (held, _) = coverage(seed, blocks, 2e-4, knee);
            assert!((0.88..=0.998).contains(&held), "{blocks} blocks: {held}");
        }
        let mut random = fastrand::Rng::with_seed(7);
        let found = slope(&windows(&mut random, 24, knee)).unwrap();
        assert!(found.curved > 0.9, "{found:?}");
    }

    #[test]
    fn intervals_hold_the_slope_of_a_curve() {
        for (seed, bend) in [(8, 8e-7), (9, -5e-7)] {
            let (held, _) = coverage(seed, 16, 6e-4, |x| 1.0 + 6e-4 * x + bend * x * x);
            assert!((0.88..=0.998).contains(&held), "{bend}: {held}");
        }
    }

    #[test]
    fn too_little_is_no_slope() {
        let window = |block, dose| Window { block, dose, speed: 1.0 };
        assert_eq!(slope(&[]), None);
        assert_eq!(slope(&[window(0, 0.0), window(0, 10.0), window(1, 0.0), window(1, 10.0)]), None);
        let same: Vec<Window> = (0..20).map(|block| window(block / 4, 0.0)).collect();
        assert_eq!(slope(&same), None);
    }

    #[test]
    fn without_noise_the_slope_is_exact() {
        let flat: Vec<Window> = (0..16)
            .map(|i| {
                let dose = [0.0, 100.0, 200.0, 400.0][i % 4];
                Window { block: i / 4, dose, speed: (1.0 + (i / 4) as f64) / (1.0 + 1e-3 * dose) }
            })
            .collect();
        let found = slope(&flat).unwrap();
        assert!((found.value() / 1e-3 - 1.0).abs() < 1e-3, "{found:?}");
    }
}
