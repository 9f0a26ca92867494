//! Chance: intervals of figures that come from few samples.

/// The normal's quantile of a 95 % interval.
const Z: f64 = 1.959_964;

/// The 95 % interval of a share that `n` of `of` samples showed (Wilson, Journal of the American Statistical
/// Association 22, 1927). Unlike the textbook's p ± z√(p(1−p)/n) it has a width where all samples or none agree.
pub fn share(n: u64, of: u64) -> (f64, f64) {
    if of == 0 {
        return (0.0, 1.0);
    }
    let (total, p) = (of as f64, n as f64 / of as f64);
    let scale = 1.0 / (1.0 + Z * Z / total);
    let centre = scale * (p + Z * Z / (2.0 * total));
    let half = scale * Z * (p * (1.0 - p) / total + Z * Z / (4.0 * total * total)).sqrt();
    ((centre - half).clamp(0.0, p), (centre + half).clamp(p, 1.0))
}

/// Half the width of that interval, the wider half where it is lopsided.
pub fn half_width(n: u64, of: u64) -> f64 {
    let (low, high) = share(n, of);
    let p = n as f64 / of.max(1) as f64;
    (p - low).max(high - p)
}

/// Whether `n` samples against `m` exclude, with 95 % confidence, that the second is as frequent as the first: a sign
/// test, exact for few samples. It takes six against none.
pub fn exceeds(n: u64, m: u64) -> bool {
    let all = n + m;
    if all > 1000 {
        return share(n, all).0 > 0.5;
    }
    // P(at least n of all by tossing a coin), from the largest count down.
    let mut p = 0.5f64.powi(all as i32);
    let mut tail = 0.0;
    for k in (n..=all).rev() {
        tail += p;
        p *= k as f64 / (all - k + 1) as f64;
    }
    n > m && tail <= 0.025
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_the_textbooks() {
        // Newcombe, Statistics in Medicine 17, 1998, table I, method 3: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (n, of, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let (l, h) = share(n, of);
            assert!((l - low).abs() < 1e-4 && (h - high).abs() < 1e-4, "{n} of {of}: {l} {h}");
        }
        assert!(half_width(300, 300) > 0.01, "300 samples of 300 are not a certainty");
        assert_eq!(share(0, 0), (0.0, 1.0));
    }

    #[test]
    fn a_few_samples_are_no_majority() {
        assert!(!exceeds(3, 0) && !exceeds(5, 0) && exceeds(6, 0));
        assert!(!exceeds(0, 0) && !exceeds(2, 9) && !exceeds(60, 45) && exceeds(70, 40));
        // From the exact test to the normal's: 95 % of a thousand coins lie within 31.
        assert!(!exceeds(525, 470) && exceeds(535, 465) && !exceeds(525, 480) && exceeds(540, 470));
    }
}
