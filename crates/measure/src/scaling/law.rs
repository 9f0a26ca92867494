//! Laws of scaling and their least-squares fit.

/// The Universal Scalability Law, X(N) = λN / (1 + σ(N−1) + κN(N−1)) (Gunther, Guerrilla Capacity Planning,
/// 2007, ch. 4). Without κ it is Amdahl's law; without σ too it is a straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usl {
    /// Throughput of one, in the data's unit.
    pub lambda: f64,
    /// Contention: the share of the work that waits its turn, 0–1.
    pub sigma: f64,
    /// Coherency: what each pair costs to agree, in times of the work of one.
    pub kappa: f64,
}

/// Which law is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// λ and σ; κ = 0.
    Amdahl,
    /// λ, σ and κ.
    Usl,
}

impl Law {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Law::Amdahl => "Amdahl",
            Law::Usl => "USL",
        }
    }

    /// How many parameters it has, and so how many different N it takes to tell them.
    pub fn parameters(self) -> usize {
        match self {
            Law::Amdahl => 2,
            Law::Usl => 3,
        }
    }
}

impl Usl {
    fn denominator(&self, n: f64) -> f64 {
        1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0)
    }

    /// Throughput at N.
    pub fn at(&self, n: f64) -> f64 {
        self.lambda * n / self.denominator(n)
    }

    /// Where the capacity of N goes, as shares that sum to 1: useful work, contention, coherency.
    pub fn shares(&self, n: f64) -> (f64, f64, f64) {
        let all = self.denominator(n);
        (1.0 / all, self.sigma * (n - 1.0) / all, self.kappa * n * (n - 1.0) / all)
    }

    /// N of the highest throughput, √((1−σ)/κ); infinite where more is always better.
    pub fn peak(&self) -> f64 {
        if self.kappa > 0.0 {
            ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt().max(1.0)
        } else {
            f64::INFINITY
        }
    }

    /// The speedup that no N exceeds: at the peak, or Amdahl's 1/σ; infinite for a straight line.
    pub fn limit(&self) -> f64 {
        let peak = self.peak();
        match (peak.is_finite(), self.sigma > 0.0) {
            (true, _) => self.at(peak) / self.lambda,
            (_, true) => 1.0 / self.sigma,
            _ => f64::INFINITY,
        }
    }
}

/// Fits a law to pairs of N and throughput by least squares on the throughput, every point with the same weight,
/// 0 ≤ σ ≤ 1 and κ ≥ 0. `None`: there are fewer different N than parameters, or no throughput above 0.
///
/// A bounded least squares lies inside or on a face of its bounds: each face is fitted without bounds by
/// Levenberg and Marquardt's method (Marquardt 1963), and the best that keeps to the bounds is taken.
pub fn fit(points: &[(f64, f64)], law: Law) -> Option<Usl> {
    let top = points.iter().map(|p| p.1).fold(0.0, f64::max);
    let sound = |&(n, x): &(f64, f64)| n >= 1.0 && n.is_finite() && x.is_finite();
    if distinct(points) < law.parameters() || top <= 0.0 || !points.iter().all(sound) {
        return None;
    }
    let scaled: Vec<(f64, f64)> = points.iter().map(|&(n, x)| (n, x / top)).collect();
    // The parameters held fixed on each face: σ, κ.
    let faces: &[(Option<f64>, Option<f64>)] = match law {
        Law::Usl => &[
            (None, None),
            (Some(0.0), None),
            (Some(1.0), None),
            (None, Some(0.0)),
            (Some(0.0), Some(0.0)),
            (Some(1.0), Some(0.0)),
        ],
        Law::Amdahl => &[(None, Some(0.0)), (Some(0.0), Some(0.0)), (Some(1.0), Some(0.0))],
    };
    let mut best: Option<(f64, Usl)> = None;
    for &(sigma, kappa) in faces {
        let Some(found) = on_face(&scaled, sigma, kappa) else { continue };
        let keeps = keeps(&found);
        let sse = squares(&scaled, &found);
        // Faces come with more freedom first: one with fewer parameters and an equal error is not better.
        if keeps && best.is_none_or(|(least, _)| sse < least * (1.0 - 1e-12)) {
            best = Some((sse, found));
        }
    }
    best.map(|(_, u)| Usl { lambda: u.lambda * top, sigma: u.sigma.clamp(0.0, 1.0), kappa: u.kappa.max(0.0) })
}

/// Whether it is within the bounds; one reached to within rounding is kept to.
fn keeps(u: &Usl) -> bool {
    (-1e-9..=1.0 + 1e-9).contains(&u.sigma) && u.kappa >= -1e-12
}

/// The number of different N.
pub fn distinct(points: &[(f64, f64)]) -> usize {
    let mut ns: Vec<f64> = points.iter().map(|p| p.0).collect();
    ns.sort_by(f64::total_cmp);
    ns.dedup();
    ns.len()
}

/// Sum of squared residuals.
pub fn squares(points: &[(f64, f64)], law: &Usl) -> f64 {
    points.iter().map(|&(n, x)| (x - law.at(n)).powi(2)).sum()
}

/// The share of the throughput's variance that the law explains.
pub fn r_squared(points: &[(f64, f64)], law: &Usl) -> f64 {
    let mean = points.iter().map(|p| p.1).sum::<f64>() / points.len() as f64;
    let total: f64 = points.iter().map(|p| (p.1 - mean).powi(2)).sum();
    if total > 0.0 { 1.0 - squares(points, law) / total } else { f64::NAN }
}

/// The best λ for given σ and κ, which is linear in it.
fn with_lambda(points: &[(f64, f64)], sigma: f64, kappa: f64) -> Usl {
    let unit = Usl { lambda: 1.0, sigma, kappa };
    let (xy, yy) = points.iter().fold((0.0, 0.0), |(xy, yy), &(n, x)| {
        let y = unit.at(n);
        (xy + x * y, yy + y * y)
    });
    Usl { lambda: xy / yy, ..unit }
}

/// Where Levenberg and Marquardt begin: N/X = 1/λ + (σ/λ)(N−1) + (κ/λ)N(N−1) is linear, and with weights X⁴/N²
/// its squares are those of X to first order.
fn linearised(points: &[(f64, f64)], sigma: Option<f64>, kappa: Option<f64>) -> Option<Usl> {
    // Columns of the unknowns 1/λ, σ/λ, κ/λ; a fixed one is added to the first.
    let mut a = [[0.0; 3]; 3];
    let mut b = [0.0; 3];
    let free = [true, sigma.is_none(), kappa.is_none()];
    for &(n, x) in points.iter().filter(|p| p.1 > 0.0) {
        let w = x.powi(4) / n.powi(2);
        let (s, k) = (n - 1.0, n * (n - 1.0));
        let row = [1.0 + sigma.unwrap_or(0.0) * s + kappa.unwrap_or(0.0) * k, s, k];
        for i in 0..3 {
            for j in 0..3 {
                a[i][j] += w * row[i] * row[j];
            }
            b[i] += w * row[i] * (n / x);
        }
    }
    let [c, s, k] = solve(a, b, free)?;
    (c > 0.0).then(|| Usl { lambda: 1.0 / c, sigma: sigma.unwrap_or(s / c), kappa: kappa.unwrap_or(k / c) })
}

fn on_face(points: &[(f64, f64)], sigma: Option<f64>, kappa: Option<f64>) -> Option<Usl> {
    if let (Some(s), Some(k)) = (sigma, kappa) {
        return Some(with_lambda(points, s, k));
    }
    let starts = [
        linearised(points, sigma, kappa),
        Some(with_lambda(points, sigma.unwrap_or(0.01), kappa.unwrap_or(1e-4))),
        Some(with_lambda(points, sigma.unwrap_or(0.3), kappa.unwrap_or(1e-2))),
    ];
    let free = [true, sigma.is_none(), kappa.is_none()];
    let sound = |u: &Usl| u.lambda > 0.0 && points.iter().all(|p| u.denominator(p.0) > 0.0);
    let fits = starts.into_iter().flatten().filter(sound).map(|start| descend(points, start, free));
    fits.min_by(|a, b| squares(points, a).total_cmp(&squares(points, b)))
}

/// Levenberg and Marquardt's descent from a start.
fn descend(points: &[(f64, f64)], start: Usl, free: [bool; 3]) -> Usl {
    let mut at = start;
    let mut sse = squares(points, &at);
    let mut damping = 1e-3;
    for _ in 0..200 {
        let mut a = [[0.0; 3]; 3];
        let mut g = [0.0; 3];
        for &(n, x) in points {
            let d = at.denominator(n);
            let y = at.lambda * n / d;
            let slope = [n / d, -y * (n - 1.0) / d, -y * n * (n - 1.0) / d];
            for i in 0..3 {
                for j in 0..3 {
                    a[i][j] += slope[i] * slope[j];
                }
                g[i] += slope[i] * (x - y);
            }
        }
        let mut moved = false;
        while damping < 1e12 {
            let mut damped = a;
            (0..3).for_each(|i| damped[i][i] *= 1.0 + damping);
            let step = solve(damped, g, free).map(|s| Usl {
                lambda: at.lambda + s[0],
                sigma: at.sigma + s[1],
                kappa: at.kappa + s[2],
            });
            let better = step.filter(|u| {
                u.lambda > 0.0 && points.iter().all(|p| u.denominator(p.0) > 0.0) && squares(points, u) < sse
            });
            if let Some(next) = better {
                let gained = sse - squares(points, &next);
                at = next;
                moved = gained > 1e-15 * sse;
                sse -= gained;
                damping = (damping / 10.0).max(1e-12);
                break;
            }
            damping *= 10.0;
        }
        if !moved || sse <= 0.0 {
            break;
        }
    }
    at
}

/// Solves a symmetric system of the free unknowns by elimination with pivoting; the others stay 0.
pub(super) fn solve(a: [[f64; 3]; 3], b: [f64; 3], free: [bool; 3]) -> Option<[f64; 3]> {
    let on: Vec<usize> = (0..3).filter(|&i| free[i]).collect();
    // Each unknown in a unit that makes its diagonal 1: κ is 10⁻⁴ where λ is 1.
    let unit: Vec<f64> = on.iter().map(|&i| 1.0 / a[i][i].sqrt()).collect();
    if unit.iter().any(|u| !u.is_finite()) {
        return None;
    }
    let n = on.len();
    let mut m: Vec<Vec<f64>> = (0..n)
        .map(|r| {
            let mut row: Vec<f64> = (0..n).map(|c| a[on[r]][on[c]] * unit[r] * unit[c]).collect();
            row.push(b[on[r]] * unit[r]);
            row
        })
        .collect();
    for c in 0..n {
        let pivot = (c..n).max_by(|&p, &q| m[p][c].abs().total_cmp(&m[q][c].abs()))?;
        if m[pivot][c].abs() < 1e-14 {
            return None;
        }
        m.swap(c, pivot);
        for r in c + 1..n {
            let f = m[r][c] / m[c][c];
            let above = m[c].clone();
            m[r].iter_mut().zip(&above).skip(c).for_each(|(x, y)| *x -= f * y);
        }
    }
    let mut x = [0.0; 3];
    for r in (0..n).rev() {
        let known: f64 = (r + 1..n).map(|k| m[r][k] * x[on[k]] / unit[k]).sum();
        x[on[r]] = (m[r][n] - known) / m[r][r] * unit[r];
    }
    Some(x)
}
