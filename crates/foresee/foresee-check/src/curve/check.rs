//! How well curves are foretold: fitted to their first part, held to the rest.

use std::collections::BTreeMap;

use ncpu_table::{Column, Kind, Table, Unit};
use rayon::prelude::*;

use super::belief::Beliefs;
use super::fit::Belief;
use super::forecast::Fitted;
use super::matrix::solve;
use super::set::{Curve, Sets};
use super::what_if;

/// A curve's extrapolation.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Index of the curve.
    pub curve: usize,
    /// Fitted up to Nmax over this.
    pub beyond: f64,
    /// Points fitted.
    pub fitted: usize,
    /// For each point beyond: N, measured, foretold, band.
    pub points: Vec<(f64, f64, f64, f64, f64)>,
}

impl Judged {
    /// Mean of |foretold / measured - 1|.
    pub fn mean_error(&self) -> f64 {
        self.errors().iter().sum::<f64>() / self.points.len() as f64
    }

    /// |foretold / measured - 1| of each point.
    pub fn errors(&self) -> Vec<f64> {
        self.points.iter().map(|p| (p.2 / p.1 - 1.0).abs()).collect()
    }

    /// How many times too much or too little at the largest N.
    pub fn off(&self) -> f64 {
        self.points.last().map_or(1.0, |p| (p.2 / p.1).max(p.1 / p.2))
    }

    /// Points inside the band.
    pub fn covered(&self) -> usize {
        self.points.iter().filter(|p| p.3 <= p.1 && p.1 <= p.4).count()
    }
}

/// Splits a curve into what is fitted and what is foretold; `None` where there is nothing of either.
pub fn split(curve: &Curve, beyond: f64) -> Option<usize> {
    let most = curve.points.last()?.0.n;
    let fitted = curve.points.iter().filter(|p| p.0.n <= most / beyond).count();
    (fitted >= 2 && fitted < curve.points.len()).then_some(fitted)
}

/// Extrapolates a curve.
pub fn judge(index: usize, curve: &Curve, beyond: f64, beliefs: &[Belief]) -> Option<Judged> {
    let fitted = split(curve, beyond)?;
    let laws = Fitted::to(&curve.points[..fitted], beliefs)?;
    let points = curve.points[fitted..]
        .iter()
        .map(|(at, x)| {
            let f = laws.forecast(at);
            (at.n, *x, f.x, f.low, f.high)
        })
        .collect();
    Some(Judged { curve: index, beyond, fitted, points })
}

/// Means of something by family, families weighing the same.
pub fn by_family(sets: &Sets, all: &[Judged], of: impl Fn(&Judged) -> f64) -> f64 {
    let mut families = BTreeMap::<&str, (f64, f64)>::new();
    for j in all {
        let f = families.entry(&sets.curves[j.curve].family).or_default();
        f.0 += of(j);
        f.1 += 1.0;
    }
    families.values().map(|f| f.0 / f.1).sum::<f64>() / families.len().max(1) as f64
}

/// The Universal Scalability Law, fitted to the same points with each point's relative error weighing the same; its
/// 1/X is linear in the parameters, and the best of the faces on which none is negative is taken.
fn usl(points: &[(f64, f64)]) -> Option<impl Fn(f64) -> f64 + use<>> {
    let basis = |n: f64| [1.0 / n, (n - 1.0) / n, n - 1.0];
    let mut best: Option<(f64, [f64; 3])> = None;
    for face in 0b001u32..=0b111 {
        let used: Vec<usize> = (0..3).filter(|i| face >> i & 1 == 1).collect();
        if used.len() > points.len() {
            continue;
        }
        // Normal equations of sum (1 - X f)^2.
        let k = used.len();
        let mut a = vec![vec![0.0; k + 1]; k];
        for &(n, x) in points {
            let b = basis(n);
            for i in 0..k {
                for j in 0..k {
                    a[i][j] += x * x * b[used[i]] * b[used[j]];
                }
                a[i][k] += x * b[used[i]];
            }
        }
        let Some(solution) = solve(a) else { continue };
        if solution.iter().any(|c| *c < 0.0) {
            continue;
        }
        let mut c = [0.0; 3];
        for (i, v) in used.iter().zip(&solution) {
            c[*i] = *v;
        }
        let error: f64 = points
            .iter()
            .map(|&(n, x)| (1.0 - x * basis(n).iter().zip(&c).map(|(b, c)| b * c).sum::<f64>()).powi(2))
            .sum();
        if best.is_none_or(|(least, _)| error < least - 1e-12) {
            best = Some((error, c));
        }
    }
    let (_, c) = best?;
    Some(move |n: f64| 1.0 / basis(n).iter().zip(&c).map(|(b, c)| b * c).sum::<f64>())
}

/// One law's verdict over many curves, families weighing the same.
#[derive(Clone, Copy, Debug, Default)]
struct Verdict {
    curves: usize,
    mean: f64,
    median: f64,
    off: f64,
    covered: Option<f64>,
}

fn verdict(sets: &Sets, all: &[Judged], banded: bool) -> Verdict {
    let mut points = BTreeMap::<&str, f64>::new();
    for j in all {
        *points.entry(&sets.curves[j.curve].family).or_default() += j.points.len() as f64;
    }
    let mut errors: Vec<(f64, f64)> = all
        .iter()
        .flat_map(|j| {
            let weight = 1.0 / points[sets.curves[j.curve].family.as_str()];
            j.errors().into_iter().map(move |e| (e, weight))
        })
        .collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = 0.5 * errors.iter().map(|e| e.1).sum::<f64>();
    let mut sum = 0.0;
    let median = errors.iter().find(|e| {
        sum += e.1;
        sum >= half
    });
    Verdict {
        curves: all.len(),
        mean: by_family(sets, all, Judged::mean_error),
        median: median.map_or(0.0, |e| e.0),
        off: by_family(sets, all, |j| j.off().ln()).exp(),
        covered: banded.then(|| by_family(sets, all, |j| j.covered() as f64 / j.points.len() as f64)),
    }
}

/// Judges all curves with the laws and, beside them, with the USL fitted by least squares.
pub fn all(sets: &Sets, beyond: f64, beliefs: &Beliefs) -> (Vec<Judged>, Vec<Judged>) {
    let indices: Vec<usize> = (0..sets.curves.len()).collect();
    let ours = indices
        .par_iter()
        .filter_map(|&i| judge(i, &sets.curves[i], beyond, beliefs.without(&sets.curves[i].family)));
    let theirs = indices.iter().filter_map(|&i| {
        let curve = &sets.curves[i];
        let fitted = split(curve, beyond)?;
        let seen: Vec<(f64, f64)> = curve.points[..fitted].iter().map(|(at, x)| (at.n, *x)).collect();
        let law = usl(&seen)?;
        let points = curve.points[fitted..].iter().map(|(at, x)| (at.n, *x, law(at.n), 0.0, 0.0)).collect();
        Some(Judged { curve: i, beyond, fitted, points })
    });
    (ours.collect(), theirs.collect())
}

/// Families of the published curves, of all of which `docs/foresee.md` claims something.
const FAMILIES: [&str; 8] =
    ["altix page faults", "cna", "icelake page faults", "litl", "mctop", "postgres", "rwsem", "tlb"];

/// Whether all published families are there: the claims are of all of them together.
pub fn published(sets: &Sets) -> bool {
    let there = |family: &&str| sets.curves.iter().any(|c| c.family == **family);
    sets.missing.is_empty() && FAMILIES.iter().all(there)
}

/// What `docs/foresee.md` claims of the published curves and these tables of [`tables`] do not show.
pub fn unmet(tables: &[Table]) -> Vec<String> {
    let number = |table: &str, is: &dyn Fn(&Table, usize) -> bool, column: &str| -> Option<f64> {
        let table = tables.iter().find(|t| t.name() == table)?;
        table.number((0..table.num_rows()).find(|&r| is(table, r))?, column)
    };
    let curves = |beyond: f64, column: &str| {
        let is = |t: &Table, r: usize| {
            t.text(r, "law") == Some("ncpu")
                && t.text(r, "family") == Some("all")
                && t.number(r, "beyond") == Some(beyond)
        };
        number("check", &is, column)
    };
    let change = |column: &str| number("what_ifs", &|t, r| t.text(r, "set") == Some("all"), column);
    let most = f64::INFINITY;
    [
        ("mean error at 4 times, %", curves(4.0, "mean"), 0.0, 25.0),
        ("median error at 4 times, %", curves(4.0, "median"), 0.0, 15.0),
        ("off at Nmax at 4 times", curves(4.0, "off"), 0.0, 1.3),
        ("points in their bands at 4 times, %", curves(4.0, "covered"), 85.0, 95.0),
        ("mean error at 16 times, %", curves(16.0, "mean"), 0.0, 40.0),
        ("off at Nmax at 16 times", curves(16.0, "off"), 0.0, 1.5),
        ("points in their bands at 16 times, %", curves(16.0, "covered"), 85.0, 95.0),
        ("mean error of what a change gives, %", change("error"), 0.0, 25.0),
        ("right signs of what a change gives, %", change("sign"), 85.0, most),
    ]
    .into_iter()
    .filter(|(_, is, from, to)| !is.is_some_and(|x| (*from..=*to).contains(&x)))
    .map(|(what, is, from, to)| {
        let wanted = match (from > 0.0, to < most) {
            (true, true) => format!("{from} to {to}"),
            (true, false) => format!("{from} at least"),
            _ => format!("{to} at most"),
        };
        let is = is.map_or("missing".into(), |x| format!("{x:.2}"));
        format!("{what}: {is}, and {wanted} is claimed")
    })
    .collect()
}

/// The verdicts as tables: one over all, one by family, one of every curve.
pub fn tables(sets: &Sets, beliefs: &Beliefs) -> Vec<Table> {
    let percent = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Mean, meaning);
    let columns = [
        Column::text("law", "ncpu's laws with their beliefs, or the USL fitted to the same points"),
        Column::text("family", "curves of one origin; those of `all` weigh the same by family"),
        Column::float("beyond", Unit::None, Kind::Key, "fitted up to Nmax over this"),
        Column::int("curves", Unit::None, Kind::Count, "curves"),
        percent("mean", "mean of |foretold / measured - 1| beyond"),
        percent("median", "its median over points"),
        Column::float(
            "off",
            Unit::None,
            Kind::Mean,
            "how many times too much or too little at Nmax, geometric mean",
        ),
        percent("covered", "points beyond that are in the 90 % band"),
    ];
    let mut out = Table::builder("check", &columns);
    let mut every = Table::builder(
        "curves",
        &[
            Column::text("set", "file"),
            Column::text("group", "rows of it"),
            Column::text("curve", "column"),
            Column::float("beyond", Unit::None, Kind::Key, "fitted up to Nmax over this"),
            Column::int("fitted", Unit::None, Kind::Gauge, "points fitted"),
            percent("mean", "mean of |foretold / measured - 1| beyond"),
            Column::float("off", Unit::None, Kind::Mean, "how many times too much or too little at Nmax"),
            percent("covered", "points beyond that are in the 90 % band"),
            percent("USL", "mean of |foretold / measured - 1| of the USL"),
        ],
    );
    for beyond in [4.0, 16.0] {
        let (ours, theirs) = all(sets, beyond, beliefs);
        for (law, judged) in [("ncpu", &ours), ("USL", &theirs)] {
            let mut families: Vec<&str> =
                judged.iter().map(|j| sets.curves[j.curve].family.as_str()).collect();
            families.sort_unstable();
            families.dedup();
            for family in std::iter::once("all").chain(families) {
                let part: Vec<Judged> = judged
                    .iter()
                    .filter(|j| family == "all" || sets.curves[j.curve].family == family)
                    .cloned()
                    .collect();
                let v = verdict(sets, &part, law == "ncpu");
                out.row()
                    .text(law)
                    .text(family)
                    .float(beyond)
                    .int(v.curves as u64)
                    .float(100.0 * v.mean)
                    .float(100.0 * v.median)
                    .float(v.off)
                    .float_opt(v.covered.map(|c| 100.0 * c));
            }
        }
        for j in &ours {
            let curve = &sets.curves[j.curve];
            let usl = theirs.iter().find(|t| t.curve == j.curve).map(|t| 100.0 * t.mean_error());
            every
                .row()
                .text(&curve.set)
                .text(&curve.group)
                .text(&curve.name)
                .float(beyond)
                .int(j.fitted as u64)
                .float(100.0 * j.mean_error())
                .float(j.off())
                .float(100.0 * j.covered() as f64 / j.points.len() as f64)
                .float_opt(usl);
        }
    }
    vec![out.finish(), what_if::table(sets, beliefs), every.finish()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_curves_are_in_the_repository() {
        let sets = Sets::read(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sets"), None).unwrap();
        assert!(published(&sets), "{:?}", sets.missing);
        assert!(sets.curves.len() > 1000, "{}", sets.curves.len());
    }

    #[test]
    fn claims_that_are_not_met_are_told() {
        let percent = |name: &str| Column::float(name, Unit::Percent, Kind::Mean, "");
        let columns = [
            Column::text("law", ""),
            Column::text("family", ""),
            Column::float("beyond", Unit::None, Kind::Key, ""),
            percent("mean"),
            percent("median"),
            percent("off"),
            percent("covered"),
        ];
        let tables = |mean: f64, covered: f64, sign: f64| {
            let mut check = Table::builder("check", &columns);
            for (law, family, beyond, mean) in [
                ("ncpu", "litl", 4.0, 68.0),
                ("USL", "all", 4.0, 70.0),
                ("ncpu", "all", 4.0, mean),
                ("ncpu", "all", 16.0, 36.0),
            ] {
                check
                    .row()
                    .text(law)
                    .text(family)
                    .float(beyond)
                    .float(mean)
                    .float(11.0)
                    .float(1.29)
                    .float(covered);
            }
            let mut changes =
                Table::builder("what_ifs", &[Column::text("set", ""), percent("error"), percent("sign")]);
            changes.row().text("all").float(24.9).float(sign);
            [check.finish(), changes.finish()]
        };
        assert!(unmet(&tables(24.0, 90.0, 96.0)).is_empty());
        assert_eq!(
            unmet(&tables(25.04, 90.0, 96.0)),
            ["mean error at 4 times, %: 25.04, and 25 at most is claimed"]
        );
        let wide = unmet(&tables(24.0, 97.0, 80.0));
        assert_eq!(wide.len(), 3, "{wide:?}");
        assert!(wide[0].ends_with("97.00, and 85 to 95 is claimed"), "{wide:?}");
        assert!(wide[2].ends_with("80.00, and 85 at least is claimed"), "{wide:?}");
        assert_eq!(unmet(&[]).len(), 9);
    }

    #[test]
    fn the_usl_finds_its_own() {
        let law = |n: f64| 100.0 * n / (1.0 + 0.03 * (n - 1.0) + 0.001 * n * (n - 1.0));
        let points: Vec<(f64, f64)> = [1.0, 2.0, 4.0, 8.0].iter().map(|&n| (n, law(n))).collect();
        let found = usl(&points).unwrap();
        assert!((found(64.0) / law(64.0) - 1.0).abs() < 1e-6);
        // A straight line has neither contention nor coherency.
        let found = usl(&[(1.0, 10.0), (2.0, 20.0)]).unwrap();
        assert!((found(50.0) - 500.0).abs() < 1e-6);
    }
}
