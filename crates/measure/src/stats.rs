//! Statistics of samples: robust, with their confidence.

/// How many scaled median absolute deviations from the median make a sample an outlier.
pub const OUTLIER: f64 = 5.0;

/// Statistics of samples; all in the samples' unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many samples.
    pub n: usize,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Standard deviation of the sample (n − 1).
    pub stddev: f64,
    /// The 95 % confidence interval of the median; the whole range where there are under 6 samples.
    pub interval: (f64, f64),
}

impl Summary {
    /// Of samples in any order; all zero for none.
    pub fn of(samples: &[f64]) -> Summary {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Summary::of_sorted(&sorted)
    }

    fn of_sorted(sorted: &[f64]) -> Summary {
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Summary::default() };
        let n = sorted.len();
        let mean = sorted.iter().sum::<f64>() / n as f64;
        let squares: f64 = sorted.iter().map(|x| (x - mean).powi(2)).sum();
        let (low, high) = median_ranks(n);
        Summary {
            n,
            min,
            max,
            mean,
            median: quantile(sorted, 0.5),
            p95: quantile(sorted, 0.95),
            p99: quantile(sorted, 0.99),
            stddev: if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 },
            interval: (sorted[low], sorted[high]),
        }
    }

    /// Half the confidence interval as a share of the median; infinite for a median of nothing.
    pub fn uncertainty(&self) -> f64 {
        if self.median > 0.0 {
            (self.interval.1 - self.interval.0) / 2.0 / self.median
        } else {
            f64::INFINITY
        }
    }
}

/// The quantile of sorted samples, interpolated between neighbours (Hyndman and Fan's type 7).
///
/// # Panics
/// There are no samples.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// Ranks of the order statistics between which the median lies with at least 95 % confidence: the median
/// exceeds each sample with probability ½, so how many lie below it is binomial (David and Nagaraja, Order
/// Statistics, 7.1). No distribution of the samples is assumed.
fn median_ranks(n: usize) -> (usize, usize) {
    if n < 6 {
        return (0, n - 1);
    }
    // The largest k with P(Binomial(n, ½) < k) ≤ 2.5 %; beyond 200 samples by the normal approximation.
    let k = if n > 200 {
        ((n as f64 - 1.959_964 * (n as f64).sqrt()) / 2.0).floor() as usize
    } else {
        let (mut p, mut below, mut k) = (0.5f64.powi(n as i32), 0.0, 0);
        while below + p <= 0.025 {
            below += p;
            k += 1;
            p *= (n - k + 1) as f64 / k as f64;
        }
        k
    };
    let k = k.max(1);
    (k - 1, n - k)
}

/// Parts samples into those within [`OUTLIER`] scaled median absolute deviations of the median and those
/// beyond (Iglewicz and Hoaglin). The scale is the larger of the deviation and a thousandth of the median,
/// so that samples which agree to the clock's last digit make no outlier of the next digit.
pub fn trim(samples: &[f64]) -> (Vec<f64>, usize) {
    if samples.is_empty() {
        return (Vec::new(), 0);
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = quantile(&sorted, 0.5);
    let mut away: Vec<f64> = sorted.iter().map(|x| (x - median).abs()).collect();
    away.sort_by(f64::total_cmp);
    let scale = (1.4826 * quantile(&away, 0.5)).max(median.abs() / 1000.0);
    let kept: Vec<f64> = samples.iter().copied().filter(|x| (x - median).abs() <= OUTLIER * scale).collect();
    let out = samples.len() - kept.len();
    (kept, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_answers() {
        let s = Summary::of(&[4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!((s.n, s.min, s.max, s.mean, s.median), (5, 1.0, 5.0, 3.0, 3.0));
        assert!((s.stddev - 2.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(s.interval, (1.0, 5.0));
        assert_eq!(Summary::of(&[]), Summary::default());
        assert_eq!(quantile(&[1.0, 2.0], 0.25), 1.25);
    }

    #[test]
    fn ranks_are_the_textbooks() {
        // Tables of the sign test: n = 6 → the extremes; 10 → 2nd and 9th; 20 → 6th and 15th; 100 → 40th and 61st.
        assert_eq!(median_ranks(6), (0, 5));
        assert_eq!(median_ranks(10), (1, 8));
        assert_eq!(median_ranks(20), (5, 14));
        assert_eq!(median_ranks(100), (39, 60));
    }

    #[test]
    fn an_outlier_is_found_and_quiet_samples_have_none() {
        let mut samples = vec![10.0, 10.1, 9.9, 10.05, 9.95, 10.02];
        assert_eq!(trim(&samples).1, 0);
        samples.push(14.0);
        assert_eq!(trim(&samples), (samples[..6].to_vec(), 1));
        assert_eq!(trim(&[5.0; 9]).1, 0);
        let mut one_tick = vec![1000.0; 9];
        one_tick.push(1001.0);
        assert_eq!(trim(&one_tick).1, 0);
    }

    /// A small generator, so that the test is the same each time.
    fn uniform(seed: &mut u64) -> f64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        (*seed >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn the_interval_covers_the_median_as_often_as_it_says() {
        let mut seed = 0x9e37_79b9_7f4a_7c15;
        let runs = 2000;
        // A skewed distribution: exponential, with the median ln 2.
        let covered = (0..runs)
            .filter(|_| {
                let samples: Vec<f64> = (0..31).map(|_| -(1.0 - uniform(&mut seed)).ln()).collect();
                let (low, high) = Summary::of(&samples).interval;
                (low..=high).contains(&std::f64::consts::LN_2)
            })
            .count();
        // At least 95 %, and a discrete interval of 31 samples has 97.1 %; ± 4 standard errors.
        assert!((0.95..0.99).contains(&(covered as f64 / runs as f64)), "{covered} of {runs}");
    }

    proptest! {
        #[test]
        fn order_and_bounds_hold(samples in prop::collection::vec(0.0f64..1e12, 1..300)) {
            let s = Summary::of(&samples);
            prop_assert!(s.min <= s.interval.0 && s.interval.0 <= s.median);
            prop_assert!(s.median <= s.interval.1 && s.interval.1 <= s.max);
            prop_assert!(s.median <= s.p95 && s.p95 <= s.p99 && s.p99 <= s.max);
            let (kept, out) = trim(&samples);
            prop_assert_eq!(kept.len() + out, samples.len());
            prop_assert!(kept.len() * 2 >= samples.len(), "half of the samples are no outliers");
        }
    }
}
