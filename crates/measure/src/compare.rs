//! Comparing: a ratio of times and how sure it is.
//!
//! Runs of one build differ by more than the samples within each of them show: addresses, frequencies and neighbours are
//! another run's. So an interval comes from several runs, never from the samples of one.

pub mod runs;

use ncpu_statistics::{LEVEL, Sample, student, welch};

use crate::stats::Summary;

/// A ratio and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// B over A.
    pub value: f64,
    /// Both ends of the interval; `None` where the spread of runs is not known.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Of the times of runs made apart: the ratio of geometric means, with Welch's interval on the scale of logarithms
    /// (Biometrika 34, 1947). The interval takes two runs of each at least. `None` where one has no run.
    pub fn of_runs(a: &[f64], b: &[f64]) -> Option<Ratio> {
        // Single runs are divided as they are: logarithms round.
        if let ([a], [b]) = (a, b) {
            let value = b / a;
            return (*a > 0.0 && value > 0.0 && value.is_finite()).then_some(Ratio { value, interval: None });
        }
        let (a, b) = (logarithms(a), logarithms(b));
        match (Sample::of(&a), Sample::of(&b)) {
            (Some(a), Some(b)) => {
                let difference = welch(a, b);
                let [low, high] =
                    [-difference.half, difference.half].map(|off| (difference.mean + off).exp());
                Some(Ratio { value: difference.mean.exp(), interval: Some((low, high)) })
            }
            _ => {
                let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
                let value = (mean(&b) - mean(&a)).exp();
                value.is_finite().then_some(Ratio { value, interval: None })
            }
        }
    }

    /// Of pairs of A and B run next to each other: the median of the pairs' own ratios, which slow drift does not touch.
    /// From six pairs on the interval is that of order statistics, which assumes no distribution; of two to five it is
    /// Student's about the mean of their logarithms. `None` without pairs.
    pub fn of_pairs(pairs: &[(f64, f64)]) -> Option<Ratio> {
        let ratios: Vec<f64> = pairs.iter().map(|(a, b)| b / a).collect();
        let logs = logarithms(&ratios);
        let s = Summary::of(&logs);
        let interval = match s.n {
            0 => return None,
            1 => None,
            2..6 => {
                let half = student((s.n - 1) as f64, LEVEL) * s.stddev / (s.n as f64).sqrt();
                Some((s.mean - half, s.mean + half))
            }
            _ => Some(s.interval),
        };
        Some(Ratio { value: s.median.exp(), interval: interval.map(|(low, high)| (low.exp(), high.exp())) })
    }

    /// Whether B differs from A: 1 is outside of the interval. `None` without an interval.
    pub fn differs(&self) -> Option<bool> {
        self.interval.map(|(low, high)| low > 1.0 || high < 1.0)
    }

    /// Whether B is faster for certain, and at least by `per_cent`.
    pub fn gains(&self, per_cent: f64) -> bool {
        self.interval.is_some_and(|(low, _)| low > 1.0) && self.value >= 1.0 + per_cent / 100.0
    }
}

/// Logarithms of what is above 0.
fn logarithms(values: &[f64]) -> Vec<f64> {
    values.iter().filter(|x| **x > 0.0 && x.is_finite()).map(|x| x.ln()).collect()
}

/// The geometric mean of ratios: the mean of those of which nobody knows which is A.
pub fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    match ratios.into_iter().collect::<Vec<f64>>()[..] {
        [] => None,
        [one] => Some(one),
        ref all => Some((all.iter().map(|x| x.ln()).sum::<f64>() / all.len() as f64).exp()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_ratios() {
        let drift: Vec<(f64, f64)> = (1..=9).map(|i| (f64::from(i), 1.1 * f64::from(i))).collect();
        let r = Ratio::of_pairs(&drift).unwrap();
        let (low, high) = r.interval.unwrap();
        assert!((r.value - 1.1).abs() < 1e-12 && (high - low).abs() < 1e-12, "drift cancels: {r:?}");
        assert_eq!(r.differs(), Some(true));
        assert!(Ratio::of_pairs(&[]).is_none() && Ratio::of_runs(&[1.0], &[]).is_none());
        // Welch's own kind of example, by hand on logarithms: means 0 and 1, variances 2 and 0, two runs of each.
        let e = std::f64::consts::E;
        let r = Ratio::of_runs(&[1.0 / e, e], &[e, e]).unwrap();
        assert!((r.value - e).abs() < 1e-12);
        assert!((r.interval.unwrap().1.ln() - (1.0 + 12.7062)).abs() < 1e-4, "{r:?}");
        assert!((geometric_mean([0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12 && geometric_mean([]).is_none());
    }

    #[test]
    fn one_run_of_each_gives_no_verdict() {
        for r in [
            Ratio::of_runs(&[1.0], &[2.0]),
            Ratio::of_runs(&[1.0, 1.1], &[2.0]),
            Ratio::of_pairs(&[(1.0, 2.0)]),
        ] {
            assert!(r.unwrap().value > 1.8 && r.unwrap().differs().is_none(), "{r:?}");
        }
    }

    #[test]
    fn runs_of_one_build_differ_no_more_often_than_intervals_say() {
        // Each run is off by 3 % of its own, however precise the samples within it are; so it was with two runs of one
        // build here.
        let mut random = fastrand::Rng::with_seed(7);
        let mut run = || (0.03 * ((0..12).map(|_| random.f64()).sum::<f64>() - 6.0)).exp();
        let times = 2000;
        for n in [2, 3, 5, 9] {
            let (mut apart, mut paired) = (0, 0);
            for _ in 0..times {
                let (a, b): (Vec<f64>, Vec<f64>) = (0..n).map(|_| (run(), run())).unzip();
                apart += u32::from(Ratio::of_runs(&a, &b).unwrap().differs().unwrap());
                let pairs: Vec<(f64, f64)> = a.into_iter().zip(b).collect();
                paired += u32::from(Ratio::of_pairs(&pairs).unwrap().differs().unwrap());
            }
            // 5 % with four standard errors, √(0.05·0.95/2000) each.
            let share = |n: u32| f64::from(n) / f64::from(times);
            assert!(share(apart) < 0.07 && share(paired) < 0.07, "{n} runs: {apart} {paired} of {times}");
            // Intervals that hold everything say nothing.
            assert!(n == 2 || share(paired) > 0.03, "{n} runs: {paired} of {times}");
        }
    }

    proptest! {
        #[test]
        fn the_other_way_round_is_one_over_it(
            a in prop::collection::vec(1e-3f64..1e6, 1..9), b in prop::collection::vec(1e-3f64..1e6, 1..9),
        ) {
            let (r, s) = (Ratio::of_runs(&a, &b).unwrap(), Ratio::of_runs(&b, &a).unwrap());
            prop_assert!((r.value * s.value - 1.0).abs() < 1e-9);
            prop_assert_eq!(r.differs(), s.differs());
            if let Some((low, high)) = r.interval {
                prop_assert!(low <= r.value && r.value <= high);
                let back = s.interval.unwrap();
                prop_assert!((low.ln() + back.1.ln()).abs() < 1e-6 && (high.ln() + back.0.ln()).abs() < 1e-6);
            }
        }
    }
}
