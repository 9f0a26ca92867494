//! Whether two sides differ, and by how much at least.

use ncpu_statistics::{LEVEL, student};

use super::quantity::Figure;

/// Degrees of freedom that the spread of all quantities together lends to each one. With two or three recordings a
/// side a quantity's own spread is mostly chance: one that happens to repeat exactly would always seem to differ.
const LENT: f64 = 2.0;

/// A difference B − A with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Mean of side A.
    pub a: f64,
    /// Mean of side B.
    pub b: f64,
    /// Half-width of the interval of b − a.
    pub half: f64,
}

impl Change {
    /// B − A.
    pub fn by(&self) -> f64 {
        self.b - self.a
    }

    /// Whether the interval excludes zero.
    pub fn is_told_apart(&self) -> bool {
        self.by().abs() > self.half
    }
}

fn mean(figures: &[Figure]) -> f64 {
    figures.iter().map(|f| f.value).sum::<f64>() / figures.len().max(1) as f64
}

/// Squared deviations from the mean of a side.
fn squares(figures: &[Figure]) -> f64 {
    let mean = mean(figures);
    figures.iter().map(|f| (f.value - mean).powi(2)).sum()
}

/// How large a quantity is, and its relative variance between recordings of a side.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    level: f64,
    variance: f64,
}

/// Mean over all recordings of both sides.
pub fn level(a: &[Figure], b: &[Figure]) -> f64 {
    a.iter().chain(b).map(|f| f.value).sum::<f64>() / (a.len() + b.len()).max(1) as f64
}

/// The spread of a quantity, pooled over both sides; `None` where neither has two recordings, or all is zero.
pub fn spread(a: &[Figure], b: &[Figure]) -> Option<Spread> {
    let free = (a.len() + b.len()).checked_sub(2).filter(|&f| f > 0)? as f64;
    let level = level(a, b);
    (level > 0.0).then(|| Spread { level, variance: (squares(a) + squares(b)) / free / level.powi(2) })
}

/// The relative variance to lend a quantity of size `level`: the upper quartile of all, since lending too little to a
/// quantity that varies much makes false alarms, and lending too much costs power. Small quantities are of few
/// samples and vary more, as one over the size: the variance that they lend to a larger one is smaller by this
/// factor. Without a size to compare each lends its own variance. `None` of nothing.
pub fn lent<'a>(spreads: impl Iterator<Item = &'a Spread>, level: Option<f64>) -> Option<f64> {
    let mut variances: Vec<f64> =
        spreads.map(|s| s.variance * level.map_or(1.0, |level| (s.level / level).min(1.0))).collect();
    variances.sort_by(f64::total_cmp);
    variances.get(variances.len() * 3 / 4).copied()
}

/// The change of one quantity among `alike` that are judged together. `lent` is the relative variance that quantities
/// of its size have ([`lent`]).
///
/// With one recording on each side only the error of samples is known, and the interval is of that: how much runs
/// vary is not in it. Otherwise it is Student's interval of the difference of means, its variance drawn towards `lent`
/// (Smyth's moderated t, doi:10.2202/1544-6115.1027), at 95 % for all `alike` quantities together (Bonferroni).
pub fn change(a: &[Figure], b: &[Figure], lent: Option<f64>, alike: usize) -> Change {
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sampled = |side: &[Figure]| {
        side.iter().map(|f| f.error.powi(2)).sum::<f64>() / (side.len().max(1) as f64).powi(2)
    };
    let from_samples = sampled(a) + sampled(b);
    let free = (a.len() + b.len()).saturating_sub(2) as f64;
    let half = if free > 0.0 {
        let own = (squares(a) + squares(b)) / free;
        let (lent, weight) = lent.map_or((0.0, 0.0), |v| (v * level(a, b).powi(2), LENT));
        let drawn = (own * free + lent * weight) / (free + weight);
        let between = drawn * (1.0 / a.len() as f64 + 1.0 / b.len() as f64);
        // The scatter of samples alone is a floor: recordings agree no better than that.
        student(free + weight, LEVEL / alike.max(1) as f64) * between.max(from_samples).sqrt()
    } else {
        1.959_964 * from_samples.sqrt()
    };
    Change { a: mean_a, b: mean_b, half }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(values: &[f64]) -> Vec<Figure> {
        values.iter().map(|&value| Figure { value, error: 0.0 }).collect()
    }

    #[test]
    fn one_recording_a_side_has_the_error_of_its_samples() {
        let f = |value| vec![Figure { value, error: 0.3 }];
        let c = change(&f(10.0), &f(11.0), None, 18);
        assert!((c.half - 1.959_964 * 0.3 * 2f64.sqrt()).abs() < 1e-9);
        assert_eq!((c.by(), c.is_told_apart()), (1.0, true));
    }

    #[test]
    fn samples_are_a_floor() {
        let f = |v: f64| vec![Figure { value: v, error: 1.0 }; 2];
        assert!(!change(&f(10.0), &f(11.0), Some(0.0), 1).is_told_apart(), "exact repetition is chance");
    }

    /// Families of 20 quantities without a difference: seldom does one of a family seem to differ; and a change of a
    /// third is seen in a large one, though most are small and vary much.
    #[test]
    fn few_false_alarms() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut normal = |sd: f64| {
            let u: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            1.0 + sd * u
        };
        for each in [2, 3, 5] {
            let (mut alarms, mut seen) = (0, 0);
            const FAMILIES: usize = 400;
            for _ in 0..FAMILIES {
                // Quantities differ in size, and in how much they vary beside what their size does.
                let family: Vec<[Vec<Figure>; 2]> = (0..20)
                    .map(|i| {
                        let size = [1.0, 0.5, 0.1, 0.02][i / 5];
                        let sd = [0.01, 0.02, 0.03, 0.05][i % 4] / f64::sqrt(size);
                        [0, 1].map(|_| side(&(0..each).map(|_| size * normal(sd)).collect::<Vec<_>>()))
                    })
                    .collect();
                let spreads: Vec<Spread> = family.iter().filter_map(|[a, b]| spread(a, b)).collect();
                let change =
                    |a: &[Figure], b: &[Figure]| change(a, b, lent(spreads.iter(), Some(level(a, b))), 20);
                alarms += usize::from(family.iter().any(|[a, b]| change(a, b).is_told_apart()));
                let grown = side(&family[0][1].iter().map(|f| f.value * 4.0 / 3.0).collect::<Vec<_>>());
                seen += usize::from(change(&family[0][0], &grown).is_told_apart());
            }
            assert!(alarms <= FAMILIES / 10, "{each} a side: {alarms} of {FAMILIES} families alarmed");
            assert!(seen >= FAMILIES * 9 / 10, "{each} a side: {seen} of {FAMILIES} seen");
        }
    }
}
