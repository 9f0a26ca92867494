//! What may be chance: differences of means, outliers, and many tests at once.

use statrs::distribution::{ContinuousCDF, FisherSnedecor, Normal, StudentsT};

/// The chance of a false finding among those told, or of any at all where a test says so.
pub const LEVEL: f64 = 0.05;

/// A mean with its 95 % interval, and how likely one so far from 0 is where there is nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval.
    pub half: f64,
    /// Two-sided, by Student's t.
    pub p: f64,
}

/// The mean of values; `None` of fewer than two.
pub fn mean(values: &[f64]) -> Option<Mean> {
    let sample = Sample::of(values)?;
    Some(of_t(sample.mean, (sample.variance / sample.n).sqrt(), sample.n - 1.0))
}

/// Counts, sums and sums of squares of two samples whose means are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// How many.
    pub n: f64,
    /// Their sum.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
}

impl Moments {
    /// The sample; `None` of fewer than two values.
    pub fn sample(&self) -> Option<Sample> {
        let mean = self.sum / self.n;
        let variance = ((self.squares - self.sum * mean) / (self.n - 1.0)).max(0.0);
        (self.n >= 2.0).then_some(Sample { n: self.n, mean, variance })
    }
}

/// A sample of two values or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Values.
    pub n: f64,
    /// Their mean.
    pub mean: f64,
    /// Their variance.
    pub variance: f64,
}

impl Sample {
    /// Of values; `None` of fewer than two.
    pub fn of(values: &[f64]) -> Option<Sample> {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (values.len() >= 2).then_some(Sample { n, mean, variance })
    }
}

/// The difference of two means whose spreads may differ (Welch, Biometrika 34, 1947).
pub fn welch(before: Sample, after: Sample) -> Mean {
    let [a, b] = [before, after].map(|s| s.variance / s.n);
    // Not a number where neither has any spread, and then not looked at.
    let freedom = (a + b).powi(2) / (a * a / (before.n - 1.0) + b * b / (after.n - 1.0));
    of_t(after.mean - before.mean, (a + b).sqrt(), freedom)
}

/// The quantile of Student's t that a value exceeds, in either direction, with probability `level`.
pub fn student(freedom: f64, level: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - level / 2.0))
}

/// The probability that Student's t lies below a value.
pub fn student_below(value: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |t| t.cdf(value))
}

/// P(F > f) of Fisher's distribution with the degrees of freedom of numerator and denominator.
pub fn f_tail(f: f64, above: usize, below: usize) -> f64 {
    match FisherSnedecor::new(above as f64, below as f64) {
        Ok(_) if f.is_nan() || f <= 0.0 => 1.0,
        Ok(distribution) => distribution.sf(f),
        Err(_) => 1.0,
    }
}

fn of_t(mean: f64, error: f64, freedom: f64) -> Mean {
    // Without any spread the least difference is certain, and none is none.
    if error <= 0.0 {
        return Mean { mean, half: 0.0, p: if mean == 0.0 { 1.0 } else { 0.0 } };
    }
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(t) => Mean {
            mean,
            half: error * student(freedom, LEVEL),
            p: (2.0 * t.cdf(-(mean / error).abs())).clamp(0.0, 1.0),
        },
        Err(_) => Mean { mean, half: f64::INFINITY, p: 1.0 },
    }
}

/// Adjusts p-values for their number, so that of those below a level that share is false on average, however the tests
/// depend on each other (Benjamini and Yekutieli, Annals of Statistics 29, 2001). Layers do: they sum to one.
pub fn adjusted(p: &[f64]) -> Vec<f64> {
    let m = p.len() as f64;
    let dependence: f64 = (1..=p.len()).map(|i| 1.0 / i as f64).sum();
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    let mut out = vec![1.0; p.len()];
    let mut least: f64 = 1.0;
    for (i, &at) in order.iter().enumerate() {
        let rank = m - i as f64;
        least = least.min(p[at] * m * dependence / rank);
        out[at] = least;
    }
    out
}

/// The middle of values, and the spread around it that a normal's standard deviation would be (1.4826 × the median of
/// distances); a few strange ones among them change neither. `None` of nothing.
pub fn middle(values: &[f64]) -> Option<(f64, f64)> {
    let centre = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    Some((centre, 1.4826 * median(&distances)?))
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n % 2 {
        _ if n == 0 => None,
        1 => Some(sorted[n / 2]),
        _ => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

/// How many standard deviations off a value must be for the chance that one of so many is, where all are normal, to be
/// [`LEVEL`].
pub fn threshold(tests: usize) -> f64 {
    let tail = LEVEL / 2.0 / tests.max(1) as f64;
    Normal::new(0.0, 1.0).map_or(f64::INFINITY, |normal| -normal.inverse_cdf(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_the_textbooks() {
        // Student's sleep data (Biometrika 6, 1908): ten differences, t = 4.0621, p = 0.00283; R's interval.
        let differences = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let m = mean(&differences).unwrap();
        assert!(
            (m.mean - 1.58).abs() < 1e-9 && (m.half - 0.8799).abs() < 1e-3 && (m.p - 0.00283).abs() < 1e-5,
            "{m:?}"
        );
        // The same data as two samples: R's t.test gives p = 0.07939.
        let of = |v: &[f64]| Moments {
            n: v.len() as f64,
            sum: v.iter().sum(),
            squares: v.iter().map(|x| x * x).sum(),
        };
        let one = of(&[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
        let two = of(&[1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
        let w = welch(one.sample().unwrap(), two.sample().unwrap());
        assert!((w.mean - 1.58).abs() < 1e-9 && (w.p - 0.07939).abs() < 1e-4, "{w:?}");
        assert!((w.mean - w.half + 0.2054832).abs() < 1e-3, "{w:?}");
        assert_eq!(mean(&[1.0]), None);
        assert_eq!(Moments { n: 1.0, ..one }.sample(), None);
        assert_eq!(mean(&[0.5, 0.5]).unwrap(), Mean { mean: 0.5, half: 0.0, p: 0.0 });
        assert_eq!(mean(&[0.0, 0.0]).unwrap().p, 1.0);
    }

    /// scipy.stats.ttest_ind(after, before, equal_var=False): p, degrees of freedom and 95 % interval.
    #[test]
    fn samples_of_other_sizes_and_spreads() {
        let before = [3.1, 2.9, 3.4, 3.0, 3.3, 2.8, 3.2, 3.1, 3.0, 3.3, 2.9, 3.2];
        for (before, after, p, half) in [
            (&before[..], &[4.9, 2.2, 6.8, 3.0][..], 0.354_061_995, 3.266_765_386),
            (&before[..5], &[4.9, 3.2, 5.8, 4.0, 5.1, 4.4], 0.010_995_777, 0.951_896_028),
        ] {
            let found = welch(Sample::of(before).unwrap(), Sample::of(after).unwrap());
            assert!((found.p - p).abs() < 1e-6 && (found.half - half).abs() < 1e-5, "{found:?}");
        }
        let [five, six] = [[5.0; 4], [6.0; 4]].map(|values| Sample::of(&values).unwrap());
        assert_eq!(welch(five, six), Mean { mean: 1.0, half: 0.0, p: 0.0 });
        assert_eq!(welch(five, five), Mean { mean: 0.0, half: 0.0, p: 1.0 });
        // scipy.stats.t.cdf.
        for (value, freedom, below) in
            [(2.015, 5.0, 0.949_996_914), (-1.3, 3.5, 0.136_297_708), (0.0, 2.0, 0.5)]
        {
            assert!((student_below(value, freedom) - below).abs() < 1e-6, "{value} {freedom}");
        }
        assert!(student_below(1.0, 0.0).is_nan());
    }

    #[test]
    fn quantiles_and_tails_are_the_tables() {
        for (freedom, t) in [(1, 12.706), (5, 2.571), (11, 2.201), (30, 2.042), (120, 1.980)] {
            let got = student(f64::from(freedom), LEVEL);
            assert!((got / t - 1.0).abs() < 1e-3, "{freedom}: {got}");
        }
        assert!((student(10.0, LEVEL / 5.0) - 3.169).abs() < 1e-3, "0.5 % a side");
        // 5 % points of F (Abramowitz and Stegun, table 26.9).
        for (f, a, b) in [(161.4, 1, 1), (6.61, 1, 5), (2.84, 4, 21), (3.48, 5, 9), (1.53, 60, 60)] {
            assert!((f_tail(f, a, b) - 0.05).abs() < 2e-3, "{f} {a} {b}: {}", f_tail(f, a, b));
        }
        assert_eq!((f_tail(0.0, 3, 3), f_tail(f64::INFINITY, 3, 3), f_tail(f64::NAN, 3, 3)), (1.0, 0.0, 1.0));
    }

    #[test]
    fn many_tests_need_more() {
        // R: p.adjust(c(0.01, 0.02, 0.03, 0.5), "BY").
        let got = adjusted(&[0.01, 0.5, 0.03, 0.02]);
        for (got, want) in got.iter().zip([0.08333333, 1.0, 0.08333333, 0.08333333]) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        assert!(adjusted(&[]).is_empty());
        assert!((threshold(1) - 1.959964).abs() < 1e-5);
        assert!(threshold(20_000) > 4.6 && threshold(20_000) < 5.0);
    }

    #[test]
    fn the_middle_is_not_moved_by_a_few() {
        let (centre, spread) = middle(&[1.0, 2.0, 3.0, 4.0, 1000.0]).unwrap();
        assert_eq!((centre, spread), (3.0, 1.4826));
        // scipy.stats.median_abs_deviation of these is 10.
        let (centre, spread) = middle(&[10.0, 10.0, 20.0, 20.0, 40.0, 60.0, 90.0]).unwrap();
        assert!(centre == 20.0 && (spread - 14.826).abs() < 1e-9, "{spread}");
        assert_eq!(middle(&[]), None);
        assert_eq!(middle(&[1.0, 2.0]).unwrap().0, 1.5);
    }
}
