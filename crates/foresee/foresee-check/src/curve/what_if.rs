//! What a change of the one thing that all pass through gives: foretold from the whole curve before it.

use std::collections::BTreeMap;

use ncpu_table::{Column, Kind, Table, Unit};

use super::belief::Beliefs;
use super::fit::{Posterior, fit};
use super::forecast::{quantile, weighted};
use super::law::{self, At, Change, Law, Rest};
use super::set::{Curve, Sets, WhatIf};
use ncpu_foresee::sim::Random;
use rayon::prelude::*;

/// Differences larger than this count as such.
const LOUD: f64 = 1.3;

/// What else all pass through, as a share of what they do before the change: between these, any power being as likely. A
/// curve says nothing of the next bottleneck; that a program has one, and not a small one, is certain.
const THROUGH: (f64, f64) = (0.3, 1.0);
/// What waiters add that stays. Some of a collapse is another's: of threads that lost their CPU, or of memory.
const WAITERS: (f64, f64) = (0.1, 1.0);

/// The ratio foretold at a place, over draws of what the curve leaves open.
fn ratio(posterior: &Posterior, at: &At, what: &WhatIf) -> f64 {
    let mut random = Random::new(1 ^ at.n.to_bits());
    let mut between = |(low, high): (f64, f64)| low * f64::powf(high / low, random.unit());
    let mut logs: Vec<f64> = posterior
        .draws
        .iter()
        .map(|p| {
            let rest = match what.alone {
                true => Rest::NONE,
                false => Rest { through: between(THROUGH), waiters: between(WAITERS) },
            };
            law::ratio(p, at, what.fix, rest).ln()
        })
        .collect();
    logs.sort_by(f64::total_cmp);
    least_off(&logs).exp()
}

/// Of sorted logarithms of what a ratio may be, that where the mean of |foretold / measured - 1| is least: the median, with
/// each ratio weighing its inverse.
fn least_off(logs: &[f64]) -> f64 {
    let middle = quantile(logs, 0.5);
    let inverse: Vec<(f64, f64)> = logs.iter().map(|log| (*log, (middle - log).exp())).collect();
    weighted(&inverse, 0.5)
}

/// How many times more a curve has had with fewer threads than it has there. Locks collapse faster than any law here; what a
/// curve has lost since its peak is what their waiters took.
fn lost(before: &Curve, at: &At, x: f64) -> f64 {
    let fewer = before.points.iter().filter(|p| p.0.n <= at.n).map(|p| p.1);
    fewer.fold(x, f64::max) / x
}

/// What a change gives: of a lock that stays, but costs its waiters nothing or less, halfway between what the law says and
/// what the curve has lost.
fn gain(posterior: &Posterior, before: &Curve, at: &At, x: f64, what: &WhatIf) -> f64 {
    let by_law = ratio(posterior, at, what);
    match what.fix {
        Change::Queue | Change::Numa | Change::Split(_) => (by_law * lost(before, at, x)).sqrt(),
        Change::Nothing | Change::Removed => by_law,
    }
}

/// Ratios measured and foretold of pairs of curves.
#[derive(Default)]
struct Group {
    pairs: u64,
    /// Nothing was changed: it has no sign.
    null: bool,
    points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy)]
struct Verdict {
    error: f64,
    none: f64,
    sign: Option<f64>,
}

impl Group {
    fn part(&self, loud: bool) -> Vec<(f64, f64)> {
        self.points.iter().copied().filter(|(m, _)| (m.ln().abs() > LOUD.ln()) == loud).collect()
    }

    fn verdict(&self, loud: bool) -> Option<Verdict> {
        let points = self.part(loud);
        let mean = |of: &dyn Fn(f64, f64) -> f64| {
            100.0 * points.iter().map(|&(m, f)| of(m, f)).sum::<f64>() / points.len() as f64
        };
        (!points.is_empty()).then(|| Verdict {
            error: mean(&|m, f| (f / m - 1.0).abs()),
            none: mean(&|m, _| (1.0 / m - 1.0).abs()),
            sign: (!self.null).then(|| mean(&|m, f| f64::from(u8::from((m > 1.0) == (f > 1.0))))),
        })
    }
}

/// By set and change, and of all with families weighing the same: how far the ratio is off where the change made more
/// than 1.3 times of a difference, and how often its sign was right there.
pub(super) fn table(sets: &Sets, beliefs: &Beliefs) -> Table {
    let percent = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Mean, meaning);
    let mut out = Table::builder(
        "what_ifs",
        &[
            Column::text("set", "file; `all` counts each family the same"),
            Column::text("fix", "the change"),
            Column::int("pairs", Unit::None, Kind::Count, "curves before and after"),
            Column::int(
                "points",
                Unit::None,
                Kind::Count,
                "points where the change made more than 1.3 times of a difference",
            ),
            percent("error", "mean of |ratio foretold / ratio measured - 1| there"),
            percent("no change", "the same of saying that nothing changes"),
            percent(
                "sign",
                "of those, faster foretold where it was faster, slower where slower; null where nothing was changed",
            ),
            Column::int("quiet", Unit::None, Kind::Count, "points where it made less"),
            percent("quiet error", "mean of |ratio foretold / ratio measured - 1| there"),
        ],
    );
    let all = sets.what_ifs.par_iter().filter_map(|w| {
        let (before, after) = (&sets.curves[w.before], &sets.curves[w.after]);
        let knee = beliefs.without(&before.family).iter().find(|b| b.law == Law::Knee)?;
        let posterior = fit(&before.points, knee, 1)?;
        let measured = |n: f64| after.points.iter().find(|p| p.0.n == n).map(|p| p.1);
        let points: Vec<(f64, f64)> = before
            .points
            .iter()
            .filter(|(at, _)| at.n > 1.0)
            .filter_map(|(at, x)| Some((measured(at.n)? / x, gain(&posterior, before, at, *x, w))))
            .collect();
        Some((before, w.fix, points))
    });
    let all: Vec<_> = all.collect();
    let mut groups = BTreeMap::<(String, String), Group>::new();
    let mut families = BTreeMap::<&str, Group>::new();
    for (before, fix, points) in all {
        let set = groups.entry((before.set.clone(), format!("{fix:?}").to_lowercase())).or_default();
        set.null = fix == Change::Nothing;
        let mut into = vec![set];
        if fix != Change::Nothing {
            into.push(families.entry(&before.family).or_default());
        }
        for group in into {
            group.pairs += 1;
            group.points.extend(&points);
        }
    }
    let mean = |of: &dyn Fn(&Group) -> Option<f64>| {
        let all: Vec<f64> = families.values().filter_map(of).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let count = |loud| families.values().map(|g| g.part(loud).len() as u64).sum::<u64>();
    out.row()
        .text("all")
        .text("families weigh the same")
        .int(families.values().map(|g| g.pairs).sum::<u64>())
        .int(count(true))
        .float_opt(mean(&|g| g.verdict(true).map(|v| v.error)))
        .float_opt(mean(&|g| g.verdict(true).map(|v| v.none)))
        .float_opt(mean(&|g| g.verdict(true).and_then(|v| v.sign)))
        .int(count(false))
        .float_opt(mean(&|g| g.verdict(false).map(|v| v.error)));
    for ((set, fix), group) in &groups {
        let (loud, quiet) = (group.verdict(true), group.verdict(false));
        out.row()
            .text(set)
            .text(fix)
            .int(group.pairs)
            .int(group.part(true).len() as u64)
            .float_opt(loud.map(|v| v.error))
            .float_opt(loud.map(|v| v.none))
            .float_opt(loud.and_then(|v| v.sign))
            .int(group.part(false).len() as u64)
            .float_opt(quiet.map(|v| v.error));
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_foresee::hardware::{Hardware, Order};

    #[test]
    fn the_ratio_foretold_is_off_least_on_average() {
        let logs: Vec<f64> = (0..1000).map(|i| (f64::from(i) / 500.0 - 1.0) * 1.5).collect();
        let off = |at: f64| logs.iter().map(|log| ((at - log).exp() - 1.0).abs()).sum::<f64>();
        let found = least_off(&logs);
        assert!(found < -0.3, "{found}");
        assert!(off(found) <= off(found + 0.05) && off(found) <= off(found - 0.05), "{found}");
    }

    #[test]
    fn what_was_lost_is_what_lies_below_the_peak() {
        let hardware = Hardware::of_shape("1x8x1".parse().unwrap());
        let point = |(n, x): (f64, f64)| (At::of(&hardware, Order::Fill, n, 1.0), x);
        let points: Vec<_> = [(1.0, 10.0), (2.0, 20.0), (4.0, 10.0), (8.0, 5.0)].map(point).to_vec();
        let name = |s: &str| s.to_string();
        let curve = Curve {
            set: name("s"),
            family: name("f"),
            group: name(""),
            name: name("c"),
            points: points.clone(),
        };
        let lost: Vec<f64> = points.iter().map(|(at, x)| lost(&curve, at, *x)).collect();
        assert_eq!(lost, [1.0, 1.0, 2.0, 4.0]);
    }
}
