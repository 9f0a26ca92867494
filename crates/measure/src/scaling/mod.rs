//! Scaling: throughput at several N, the laws that describe it, and how sure they are.

mod bands;
mod law;
mod tables;
#[cfg(test)]
mod tests;

pub use law::{Law, Usl, distinct, fit, r_squared, squares};
pub use tables::{curve_table, laws_table, points_table};

use crate::stats::{Summary, trim};

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
    /// A warning.
    pub note: String,
}

impl Point {
    /// Statistics of the runs without outliers, and the number of outliers. Under six runs nothing is called
    /// an outlier: the median is all the robustness that a few runs can give.
    pub fn summary(&self) -> (Summary, usize) {
        let kept = self.kept();
        (Summary::of(&kept), self.samples.len() - kept.len())
    }

    /// The runs without outliers.
    fn kept(&self) -> Vec<f64> {
        if self.samples.len() < 6 { self.samples.clone() } else { trim(&self.samples).0 }
    }
}

/// Throughput over N of one program or machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Its name, if there are several.
    pub name: String,
    /// The metric and the unit of the throughput.
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
    /// Parameters on the surface of the 95 % confidence region; empty where the data give none.
    pub region: Vec<Usl>,
    /// Explained share of the variance.
    pub r_squared: f64,
}

impl Fitted {
    /// The 95 % confidence interval of a quantity, by profile likelihood; `None` where the data give no noise to tell it
    /// from.
    pub fn band(&self, of: impl Fn(&Usl) -> f64) -> Option<(f64, f64)> {
        let wider = |(low, high): (f64, f64), x: f64| (low.min(x), high.max(x));
        self.region.iter().map(of).map(|x| (x, x)).reduce(|band, (x, _)| wider(band, x))
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
    /// Figures that are missing, and why; warnings.
    pub notes: Vec<String>,
}

impl Analysis {
    /// Fits the laws.
    pub fn of(curve: Curve) -> Analysis {
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
                    region: bands::region(&used, law, &best),
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

/// Reasons to doubt a fit.
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
    if f.region.is_empty() {
        let repeated = used.iter().any(|p| p.samples.len() > 1);
        notes.push(if repeated || used.len() > f.law.parameters() {
            "no bands: the runs differ too much to bound any of its parameters".into()
        } else {
            "no bands: they take several runs of each N, or more points than parameters".into()
        });
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
