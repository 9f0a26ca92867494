//! Scaling: throughput at several N, the laws that describe it, and how sure they are.

mod law;
mod tables;
#[cfg(test)]
mod tests;

pub use law::{Law, Usl, distinct, fit, r_squared, squares};
pub use tables::{curve_table, laws_table, points_table};

use crate::stats::{Summary, quantile, trim};

/// How often the data is resampled for a band.
pub const REPLICATES: usize = 1000;

/// Throughput measured at one N.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// How many CPUs, threads or users.
    pub n: f64,
    /// CPUs it ran on, as a list; empty where not known.
    pub cpus: String,
    /// Throughput of each run, in the order of time.
    pub samples: Vec<f64>,
    /// Runs that gave none.
    pub failed: usize,
    /// More threads than CPUs.
    pub oversubscribed: bool,
    /// What to beware of.
    pub note: String,
}

impl Point {
    /// Statistics of the runs without outliers, and how many those were. Under six runs nothing is called an
    /// outlier: the median is all the robustness so few can give.
    pub fn summary(&self) -> (Summary, usize) {
        if self.samples.len() < 6 {
            return (Summary::of(&self.samples), 0);
        }
        let (kept, out) = trim(&self.samples);
        (Summary::of(&kept), out)
    }
}

/// Throughput over N of one program or machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// What it is called, where there are several.
    pub name: String,
    /// What the throughput is of, and in what.
    pub metric: String,
    /// Its points, in the order of N.
    pub points: Vec<Point>,
    /// CPUs of the machine; unknown for data from elsewhere.
    pub machine: Option<f64>,
}

/// A law fitted to a curve.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Which law.
    pub law: Law,
    /// Its parameters.
    pub best: Usl,
    /// Parameters from resampled data; empty where there is nothing to resample.
    pub replicates: Vec<Usl>,
    /// Explained share of the variance.
    pub r_squared: f64,
}

impl Fitted {
    /// The 95 % bootstrap percentile interval of a quantity (Efron and Tibshirani 1993, ch. 13).
    pub fn band(&self, of: impl Fn(&Usl) -> f64) -> Option<(f64, f64)> {
        let mut values: Vec<f64> = self.replicates.iter().map(of).collect();
        if values.is_empty() {
            return None;
        }
        values.sort_by(f64::total_cmp);
        // Infinities do not interpolate.
        let at = |q: f64| {
            let x = quantile(&values, q);
            if x.is_nan() { f64::INFINITY } else { x }
        };
        Some((at(0.025), at(0.975)))
    }
}

/// A curve and what can be said of it.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The curve.
    pub curve: Curve,
    /// Amdahl's law and the USL, those that the points suffice for.
    pub fits: Vec<Fitted>,
    /// N above which points were left out of the fit, if any were.
    pub fitted_to: Option<f64>,
    /// What cannot be said, and why; what to beware of.
    pub notes: Vec<String>,
}

impl Analysis {
    /// Fits the laws; `seed` makes the resampling repeatable.
    pub fn of(curve: Curve, seed: u64) -> Analysis {
        let good: Vec<&Point> = curve.points.iter().filter(|p| !p.samples.is_empty()).collect();
        let within: Vec<&Point> = good.iter().copied().filter(|p| !p.oversubscribed).collect();
        let over = good.len() - within.len();
        let mut notes = Vec::new();
        // Beyond the CPUs there is no more hardware to scale over: such points would be taken for contention.
        let (used, fitted_to) = match (over, within.len()) {
            (0, _) => (good, None),
            (_, 4..) => {
                let last = within.iter().map(|p| p.n).fold(0.0, f64::max);
                notes.push(format!("N beyond {last} is more than there are CPUs: shown, not fitted"));
                (within, Some(last))
            }
            _ => {
                notes.push(format!(
                    "{over} of {} points have more threads than there are CPUs: the fit is over threads, and the lack \
                     of CPUs is in its contention",
                    good.len()
                ));
                (good, None)
            }
        };
        let mut fits = Vec::new();
        for law in [Law::Amdahl, Law::Usl] {
            let points: Vec<(f64, f64)> = used.iter().map(|p| (p.n, p.summary().0.median)).collect();
            match fit(&points, law) {
                Some(best) => fits.push(Fitted {
                    law,
                    best,
                    replicates: resample(&used, &points, law, &best, seed),
                    r_squared: r_squared(&points, &best),
                }),
                None => notes.push(too_few(law, distinct(&points))),
            }
        }
        notes.extend(doubts(&used, &fits));
        Analysis { curve, fits, fitted_to, notes }
    }

    /// A law's fit, where there is one.
    pub fn fitted(&self, law: Law) -> Option<&Fitted> {
        self.fits.iter().find(|f| f.law == law)
    }

    /// The fit with most parameters.
    pub fn fullest(&self) -> Option<&Fitted> {
        self.fits.last()
    }

    /// Throughput of one: measured, else the law's, else that of the smallest N shared out among it.
    pub fn one(&self) -> Option<f64> {
        let first = self.curve.points.iter().find(|p| !p.samples.is_empty())?;
        let median = first.summary().0.median;
        Some(match self.fullest() {
            _ if first.n == 1.0 => median,
            Some(f) => f.best.lambda,
            None => median / first.n,
        })
    }
}

fn too_few(law: Law, n: usize) -> String {
    let points = if n == 1 { "point" } else { "points" };
    match (law, n) {
        (Law::Amdahl, _) => {
            format!("{n} {points}: no law can be fitted; the serial share takes two different N at least")
        }
        (Law::Usl, _) => format!(
            "{n} {points}: coherency (kappa) and the peak cannot be told; the USL has three parameters, so give three \
             different N at least, better six"
        ),
    }
}

/// What makes a fit doubtful.
fn doubts(used: &[&Point], fits: &[Fitted]) -> Vec<String> {
    let mut notes = Vec::new();
    let Some(f) = fits.last() else { return notes };
    if used.len() == f.law.parameters() {
        notes.push(format!(
            "{} points for {} parameters: {} goes through all of them, so nothing tells whether it holds",
            used.len(),
            f.law.parameters(),
            match f.law {
                Law::Amdahl => "Amdahl's law",
                Law::Usl => "the USL",
            }
        ));
    }
    if f.replicates.is_empty() {
        notes.push("no bands: they take three runs of each N, or more points than parameters".into());
    }
    let first = used.iter().min_by(|a, b| a.n.total_cmp(&b.n));
    if let Some(first) = first
        && f.best.sigma == 0.0
        && used.iter().any(|p| p.summary().0.median / p.n > 1.05 * first.summary().0.median / first.n)
    {
        notes.push(
            "some points do more than N times the work of one: caches or start-up costs that N divides; the laws \
             know no such gain"
                .into(),
        );
    }
    // Where even the quietest reading of the runs is not what the law says, the law is wrong there, not the runs.
    let off = used.iter().filter_map(|p| {
        let (s, _) = p.summary();
        let says = f.best.at(p.n);
        let share = s.median / says - 1.0;
        let outside = s.n < 3 || says < s.interval.0 || says > s.interval.1;
        (outside && share.abs() > 0.1).then_some((p.n, share))
    });
    if let Some((n, share)) = off.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())) {
        notes.push(format!(
            "at N = {n} the {} is off by {:+.0} %: it describes this program badly there",
            f.law.name(),
            100.0 * share
        ));
    }
    notes
}

/// Fits to resampled data. With three runs of each point or more, runs are drawn anew within each point, their
/// deviations from its median stretched by √(r/(r−1)) since so few are too close together (Davison and Hinkley 1997,
/// 2.3). Otherwise, with more points than parameters, each point's own residual is given a random weight of mean 0 and
/// variance 1 (Wu's wild bootstrap of 1986 with Webb's six weights), since the noise of a throughput differs with N.
/// Residuals are divided by √(1−p/m), which the fit took from them, and stretched by Student's t over the normal's
/// quantile, for they are few.
fn resample(used: &[&Point], points: &[(f64, f64)], law: Law, best: &Usl, seed: u64) -> Vec<Usl> {
    let mut random = fastrand::Rng::with_seed(seed);
    let summaries: Vec<(f64, Vec<f64>)> = used
        .iter()
        .map(|p| {
            let kept = if p.samples.len() < 6 { p.samples.clone() } else { trim(&p.samples).0 };
            (Summary::of(&kept).median, kept)
        })
        .collect();
    let m = points.len();
    let repeated = summaries.iter().all(|(_, runs)| runs.len() >= 3);
    if !repeated && m <= law.parameters() {
        return Vec::new();
    }
    let free = m.saturating_sub(law.parameters()).max(1);
    let stretch = (m as f64 / free as f64).sqrt() * student(free) / 1.959_964;
    let residuals: Vec<f64> = points.iter().map(|&(n, x)| (x - best.at(n)) * stretch).collect();
    let weights = [0.5f64.sqrt(), 1.0, 1.5f64.sqrt()];
    let mut draw = || -> Vec<(f64, f64)> {
        points
            .iter()
            .zip(&summaries)
            .zip(&residuals)
            .map(|((&(n, _), (median, runs)), residual)| {
                let x = if repeated {
                    let r = runs.len();
                    let stretch = (r as f64 / (r - 1) as f64).sqrt();
                    let drawn: Vec<f64> =
                        (0..r).map(|_| median + stretch * (runs[random.usize(..r)] - median)).collect();
                    Summary::of(&drawn).median
                } else {
                    let sign = if random.bool() { 1.0 } else { -1.0 };
                    best.at(n) + sign * weights[random.usize(..3)] * residual
                };
                (n, x.max(0.0))
            })
            .collect()
    };
    (0..REPLICATES).filter_map(|_| law::refit(&draw(), law, best)).collect()
}

/// The 97.5 % quantile of Student's t.
fn student(degrees: usize) -> f64 {
    const TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    match TABLE.get(degrees - 1) {
        Some(t) => *t,
        // Cornish and Fisher's expansion, right to 0.1 % from here on.
        None => {
            let (z, d): (f64, f64) = (1.959_964, degrees as f64);
            z + (z.powi(3) + z) / (4.0 * d) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * d * d)
        }
    }
}
