//! The gain from a change of the one bottleneck that all threads pass through: predicted from the whole
//! curve before it.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_table::{Column, Kind, Table, Unit};

use super::belief::{Beliefs, Off};
use super::fit::{Posterior, fit};
use super::forecast::{quantile, weighted};
use super::law::{self, At, Change, Law, Rest};
use super::set::{Curve, Sets, WhatIf};
use ncpu_foresee::sim::Random;
use rayon::prelude::*;

/// Differences larger than this count as such.
const LOUD: f64 = 1.3;

/// Other bottlenecks that all threads pass through, as a share of the time in the changed one before: log-uniform
/// between these bounds. A curve shows nothing of the next bottleneck; that a program has one, and not a small one, is
/// certain.
const THROUGH: (f64, f64) = (0.3, 1.0);
/// The part of the waiters' cost that stays. Some of a collapse has another cause: threads that lost their
/// CPU, or memory.
const WAITERS: (f64, f64) = (0.1, 1.0);

/// The predicted ratio at a place, over draws of the parameters that the curve leaves open.
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

/// Of sorted logarithms of possible ratios, the one with the least mean of |predicted / measured - 1|: the median, with
/// each ratio weighted by its inverse.
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

/// Of a program whose lock stays, but costs its waiters nothing or less, this much of what the law says, as a logarithm, and of what the
/// curve has lost since its peak: what is lost is another's too.
const PROGRAM: (f64, f64) = (0.3, 0.5);
/// Of a benchmark of nothing but that lock.
const ALONE: (f64, f64) = (0.5, 0.5);

/// The predicted ratio of a change, as a logarithm.
fn gain(posterior: &Posterior, before: &Curve, at: &At, x: f64, what: &WhatIf) -> f64 {
    let by_law = ratio(posterior, at, what).ln();
    let (law, peak) = match what.fix {
        Change::Queue | Change::Numa | Change::Split(_) if what.alone => ALONE,
        Change::Queue | Change::Numa | Change::Split(_) => PROGRAM,
        Change::Nothing | Change::Removed => (1.0, 0.0),
    };
    law * by_law + peak * lost(before, at, x).ln()
}

/// The ratio of a change at a point, measured and predicted, as logarithms.
pub(super) struct Gain {
    before: usize,
    fix: Change,
    measured: f64,
    ncpu: f64,
    root: f64,
}

/// Each change at each point, predicted from the whole curve before it.
pub(super) fn all(sets: &Sets, beliefs: &Beliefs) -> Vec<Gain> {
    let believed = beliefs.by_family(sets, false);
    let of = |w: &WhatIf| -> Option<Vec<Gain>> {
        let (before, after) = (&sets.curves[w.before], &sets.curves[w.after]);
        let knee = believed[before.family.as_str()].laws.iter().find(|b| b.law == Law::Knee)?;
        let posterior = fit(&before.points, knee, 1)?;
        let measured = |n: f64| after.points.iter().find(|p| p.0.n == n).map(|p| p.1);
        let at = |(at, x): &(At, f64)| {
            Some(Gain {
                before: w.before,
                fix: w.fix,
                measured: (measured(at.n)? / x).ln(),
                ncpu: gain(&posterior, before, at, *x, w),
                root: 0.5 * lost(before, at, *x).ln(),
            })
        };
        Some(before.points.iter().filter(|(at, _)| at.n > 1.0).filter_map(at).collect())
    };
    sets.what_ifs.par_iter().filter_map(of).flatten().collect()
}

/// By how much predictions are off, families weighing the same, but for one family or kind.
pub(super) fn off(sets: &Sets, gains: &[Gain], without: &str) -> Off {
    let mut families = BTreeMap::<&str, ([f64; 3], f64)>::new();
    for g in gains.iter().filter(|g| g.fix != Change::Nothing) {
        let curve = &sets.curves[g.before];
        if curve.family == without || curve.kind == without {
            continue;
        }
        let sums = families.entry(&curve.family).or_default();
        for (sum, predicted) in sums.0.iter_mut().zip([g.ncpu, 0.0, g.root]) {
            *sum += (g.measured - predicted).abs();
        }
        sums.1 += 1.0;
    }
    let mean = |i: usize| {
        let all: f64 = families.values().map(|(sums, n)| sums[i] / n).sum();
        if all > 0.0 { all / families.len() as f64 } else { 1.0 }
    };
    Off { ncpu: mean(0), none: mean(1), root: mean(2) }
}

/// Mean error and scores of what was said of some points.
#[derive(Default)]
struct Group {
    pairs: BTreeSet<usize>,
    /// Nothing was changed: it has no sign.
    null: bool,
    points: Vec<Scored>,
}

/// Predictions at a point, scored.
#[derive(Clone, Copy)]
struct Scored {
    measured: f64,
    ncpu: f64,
    root: f64,
    /// Log scores: ncpu, no change, root.
    log: [f64; 3],
    /// Of the probability that the change makes it slower.
    brier: f64,
}

impl Scored {
    fn of(g: &Gain, off: &Off) -> Scored {
        let laplace =
            |predicted: f64, scale: f64| -(2.0 * scale).ln() - (g.measured - predicted).abs() / scale;
        let tail = 0.5 * (-(g.ncpu.abs()) / off.ncpu).exp();
        let slower = if g.ncpu > 0.0 { tail } else { 1.0 - tail };
        Scored {
            measured: g.measured,
            ncpu: g.ncpu,
            root: g.root,
            log: [laplace(g.ncpu, off.ncpu), laplace(0.0, off.none), laplace(g.root, off.root)],
            brier: (slower - f64::from(u8::from(g.measured < 0.0))).powi(2),
        }
    }

    fn is_loud(&self) -> bool {
        self.measured.abs() > LOUD.ln()
    }
}

/// Percent by which a ratio is off.
fn percent_off(measured: f64, predicted: f64) -> f64 {
    100.0 * ((predicted - measured).exp() - 1.0).abs()
}

impl Group {
    fn mean(&self, wanted: impl Fn(&Scored) -> bool, of: impl Fn(&Scored) -> f64) -> Option<f64> {
        let all: Vec<f64> = self.points.iter().filter(|p| wanted(p)).map(of).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    fn loud(&self, of: impl Fn(&Scored) -> f64) -> Option<f64> {
        self.mean(Scored::is_loud, of)
    }
}

/// By set and change, and of all with families weighing the same: how far the ratio is off where the change made more
/// than 1.3 times of a difference, how often its sign was right there, and how likely all that was measured was said to be.
pub(super) fn table(sets: &Sets, beliefs: &Beliefs) -> Table {
    let percent = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Mean, meaning);
    let score = |name: &str, meaning: &str| Column::float(name, Unit::None, Kind::Mean, meaning);
    let mut out = Table::builder(
        "what_ifs",
        &[
            Column::text("set", "file; `all` counts each family the same"),
            Column::text("fix", "the change"),
            Column::int("pairs", Unit::None, Kind::Count, "curves before it"),
            Column::int(
                "points",
                Unit::None,
                Kind::Count,
                "points where the change made more than 1.3 times of a difference",
            ),
            percent("error", "mean of |ratio predicted / ratio measured - 1| there"),
            percent("no change", "the same of saying that nothing changes"),
            percent("root", "the same of the square root of the curve's peak over what it has there"),
            percent(
                "sign",
                "of those, faster predicted where it was faster, slower where slower; null where nothing was changed",
            ),
            Column::int("quiet", Unit::None, Kind::Count, "points where it made less"),
            percent("quiet error", "mean of |ratio predicted / ratio measured - 1| there"),
            score(
                "log score",
                "mean logarithm of the probability density of the ratio's logarithm, all points",
            ),
            score("log no change", "the same of saying that nothing changes"),
            score("log root", "the same of the square root of peak over now"),
            score("Brier", "squared error of the probability that the change makes it slower"),
        ],
    );
    let mut groups = BTreeMap::<(String, String), Group>::new();
    let mut families = BTreeMap::<&str, Group>::new();
    let believed = beliefs.by_family(sets, false);
    for g in all(sets, beliefs) {
        let before = &sets.curves[g.before];
        let scored = Scored::of(&g, &believed[before.family.as_str()].changes);
        let set = groups.entry((before.set.clone(), format!("{:?}", g.fix).to_lowercase())).or_default();
        set.null = g.fix == Change::Nothing;
        let mut into = vec![set];
        if g.fix != Change::Nothing {
            into.push(families.entry(&before.family).or_default());
        }
        for group in into {
            group.pairs.insert(g.before);
            group.points.push(scored);
        }
    }
    let sign = |p: &Scored| 100.0 * f64::from(u8::from((p.measured > 0.0) == (p.ncpu > 0.0)));
    type Of<'a> = &'a dyn Fn(&Group) -> Option<f64>;
    let columns: [Of<'_>; 9] = [
        &|g| g.loud(|p| percent_off(p.measured, p.ncpu)),
        &|g| g.loud(|p| percent_off(p.measured, 0.0)),
        &|g| g.loud(|p| percent_off(p.measured, p.root)),
        &|g| g.loud(sign).filter(|_| !g.null),
        &|g| g.mean(|p| !p.is_loud(), |p| percent_off(p.measured, p.ncpu)),
        &|g| g.mean(|_| true, |p| p.log[0]),
        &|g| g.mean(|_| true, |p| p.log[1]),
        &|g| g.mean(|_| true, |p| p.log[2]),
        &|g| g.mean(|_| true, |p| p.brier).filter(|_| !g.null),
    ];
    let mut row = |set: &str, fix: &str, groups: &[&Group]| {
        let count =
            |loud: bool| groups.iter().flat_map(|g| &g.points).filter(|p| p.is_loud() == loud).count() as u64;
        let value = |of: Of<'_>| {
            let all: Vec<f64> = groups.iter().filter_map(|g| of(g)).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        };
        let mut cells = columns.iter().map(|of| value(*of));
        let mut next = || cells.next().flatten();
        let row = out.row().text(set).text(fix).int(groups.iter().map(|g| g.pairs.len() as u64).sum::<u64>());
        let row =
            row.int(count(true)).float_opt(next()).float_opt(next()).float_opt(next()).float_opt(next());
        let row = row.int(count(false)).float_opt(next());
        row.float_opt(next()).float_opt(next()).float_opt(next()).float_opt(next());
    };
    row("all", "families weigh the same", &families.values().collect::<Vec<_>>());
    for ((set, fix), group) in &groups {
        row(set, fix, &[group]);
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
            kind: name("f"),
            group: name(""),
            name: name("c"),
            points: points.clone(),
        };
        let lost: Vec<f64> = points.iter().map(|(at, x)| lost(&curve, at, *x)).collect();
        assert_eq!(lost, [1.0, 1.0, 2.0, 4.0]);
    }
}
