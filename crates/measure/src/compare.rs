//! Comparing: the ratio of two medians and how sure it is.

use crate::stats::Summary;

/// A ratio and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// B over A.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A median and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Ratio {
    /// Of medians that were measured apart. Their intervals need not be symmetric: on the scale of logarithms a ratio is
    /// a difference, and the limits of a difference are recovered from the limits of its parts (Zou and Donner,
    /// Statistics in Medicine 27, 2008). `None` for medians that are not above 0.
    pub fn of(a: Estimate, b: Estimate) -> Option<Ratio> {
        let sound =
            |e: &Estimate| e.low > 0.0 && e.low <= e.median && e.median <= e.high && e.high.is_finite();
        if !sound(&a) || !sound(&b) {
            return None;
        }
        let (up, down) = (|e: Estimate| (e.high / e.median).ln(), |e: Estimate| (e.median / e.low).ln());
        let value = b.median / a.median;
        Some(Ratio {
            value,
            low: value * (-down(b).hypot(up(a))).exp(),
            high: value * up(b).hypot(down(a)).exp(),
        })
    }

    /// Of pairs of A and B measured next to each other: the median of the pairs' own ratios, which slow drift does not
    /// touch, with the interval of order statistics, which assumes no distribution. Under six pairs the interval is
    /// their whole range and holds the median less surely than 95 %. `None` without pairs.
    pub fn of_pairs(pairs: &[(f64, f64)]) -> Option<Ratio> {
        let ratios: Vec<f64> =
            pairs.iter().map(|(a, b)| b / a).filter(|r| r.is_finite() && *r > 0.0).collect();
        let s = Summary::of(&ratios);
        (s.n > 0).then_some(Ratio { value: s.median, low: s.interval.0, high: s.interval.1 })
    }

    /// Whether B differs from A: 1 is outside of the interval.
    pub fn significant(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// The geometric mean of ratios: the mean of those of which nobody knows which is A.
pub fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = ratios.into_iter().map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn estimate(median: f64, low: f64, high: f64) -> Estimate {
        Estimate { median, low, high }
    }

    #[test]
    fn known_ratios() {
        let r = Ratio::of(estimate(10.0, 10.0, 10.0), estimate(20.0, 19.0, 22.0)).unwrap();
        assert_eq!((r.value, r.significant()), (2.0, true));
        assert!(
            (r.low - 1.9).abs() < 1e-12 && (r.high - 2.2).abs() < 1e-12,
            "an exact A takes nothing away: {r:?}"
        );
        let same = Ratio::of(estimate(10.0, 9.0, 11.0), estimate(10.5, 9.5, 11.5)).unwrap();
        assert!(!same.significant());
        assert!(Ratio::of(estimate(0.0, 0.0, 0.0), estimate(1.0, 1.0, 1.0)).is_none());
        let drift: Vec<(f64, f64)> = (1..=9).map(|i| (f64::from(i), 1.1 * f64::from(i))).collect();
        let r = Ratio::of_pairs(&drift).unwrap();
        assert!((r.value - 1.1).abs() < 1e-12 && (r.high - r.low).abs() < 1e-12, "drift cancels: {r:?}");
        assert!(Ratio::of_pairs(&[]).is_none());
        assert!((geometric_mean([0.5, 2.0]).unwrap() - 1.0).abs() < 1e-12 && geometric_mean([]).is_none());
    }

    #[test]
    fn the_interval_holds_the_ratio_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(7);
        let times = 2000;
        let mut held = 0;
        for _ in 0..times {
            // Medians of 25 skewed samples each; the true ratio of medians is 1.3.
            let mut of = |scale: f64| {
                let samples: Vec<f64> =
                    (0..25).map(|_| scale * (1.0 - 0.3 * (1.0 - random.f64()).ln())).collect();
                let s = Summary::of(&samples);
                estimate(s.median, s.interval.0, s.interval.1)
            };
            let (a, b) = (of(1.0), of(1.3));
            let r = Ratio::of(a, b).unwrap();
            held += usize::from((r.low..=r.high).contains(&1.3));
        }
        // The parts' intervals of order statistics hold 95.7 % and more; ± 4 standard errors.
        assert!((0.94..0.99).contains(&(held as f64 / f64::from(times))), "{held} of {times}");
    }

    proptest! {
        #[test]
        fn the_other_way_round_is_one_over_it(
            a in 1e-3f64..1e6, b in 1e-3f64..1e6, da in 0.0f64..0.5, ua in 0.0f64..2.0, db in 0.0f64..0.5, ub in 0.0f64..2.0,
        ) {
            let a = estimate(a, a * (1.0 - da), a * (1.0 + ua));
            let b = estimate(b, b * (1.0 - db), b * (1.0 + ub));
            let (r, s) = (Ratio::of(a, b).unwrap(), Ratio::of(b, a).unwrap());
            prop_assert!(r.low <= r.value && r.value <= r.high);
            prop_assert!((r.low * s.high - 1.0).abs() < 1e-9 && (r.high * s.low - 1.0).abs() < 1e-9);
            prop_assert_eq!(r.significant(), s.significant());
        }
    }
}
