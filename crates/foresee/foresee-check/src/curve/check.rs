//! How well curves are predicted: fitted to their first part, compared with the rest.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_table::{Column, Kind, Table, Unit};
use rayon::prelude::*;

use super::belief::{Beliefs, Believed};
use super::forecast::{Fitted, weighted};
use super::matrix::solve;
use super::set::{Curve, Sets};
use super::what_if;

/// A point beyond those fitted.
#[derive(Clone, Copy, Debug)]
pub struct Beyond {
    /// Measured over predicted, as a logarithm.
    pub off: f64,
    /// Whether it lies in the band.
    pub covered: Option<bool>,
    /// Continuous ranked probability score of ln X.
    pub crps: f64,
    /// Logarithm of the probability density of ln X.
    pub log_score: Option<f64>,
    /// Squared error of the probability that less is done there than at the last point fitted.
    pub brier: f64,
}

/// A curve's extrapolation.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Index of the curve.
    pub curve: usize,
    /// Points fitted.
    pub fitted: usize,
    /// The points beyond, in the order of N.
    pub points: Vec<Beyond>,
}

impl Judged {
    fn mean(&self, of: impl Fn(&Beyond) -> f64) -> f64 {
        self.points.iter().map(of).sum::<f64>() / self.points.len() as f64
    }

    /// Mean of |predicted / measured - 1|.
    pub fn mean_error(&self) -> f64 {
        self.mean(|p| ((-p.off).exp() - 1.0).abs())
    }

    /// |predicted / measured - 1| of each point.
    pub fn errors(&self) -> Vec<f64> {
        self.points.iter().map(|p| ((-p.off).exp() - 1.0).abs()).collect()
    }

    /// How many times too much or too little at the largest N.
    pub fn off(&self) -> f64 {
        self.points.last().map_or(1.0, |p| p.off.abs().exp())
    }

    /// Share of the points inside the band.
    pub fn covered(&self) -> f64 {
        self.mean(|p| f64::from(u8::from(p.covered == Some(true))))
    }
}

/// Extrapolates a curve.
fn judge(index: usize, curve: &Curve, beyond: f64, believed: &Believed) -> Option<Judged> {
    let fitted = curve.split(beyond)?;
    let laws = Fitted::to(&curve.points[..fitted], believed)?;
    let last = curve.points[fitted - 1].1;
    let points = curve.points[fitted..]
        .iter()
        .map(|(at, x)| {
            let f = laws.forecast(at);
            Beyond {
                off: (x / f.x).ln(),
                covered: Some(f.low <= *x && *x <= f.high),
                crps: f.chances.crps(x.ln()),
                log_score: Some(f.chances.log_score(x.ln())),
                brier: (f.chances.at_most(last.ln()) - f64::from(u8::from(*x < last))).powi(2),
            }
        })
        .collect();
    Some(Judged { curve: index, fitted, points })
}

/// Extrapolates a curve by a law without chances: it is certain of what it says.
fn certain(index: usize, curve: &Curve, beyond: f64, law: Certain) -> Option<Judged> {
    let fitted = curve.split(beyond)?;
    let seen: Vec<(f64, f64)> = curve.points[..fitted].iter().map(|(at, x)| (at.n, *x)).collect();
    let predict: Box<dyn Fn(f64) -> f64> = match law {
        Certain::Usl => Box::new(usl(&seen)?),
        Certain::Last => Box::new(move |_| seen[fitted - 1].1),
    };
    let last = curve.points[fitted - 1].1;
    let points = curve.points[fitted..]
        .iter()
        .map(|(at, x)| {
            let off = (x / predict(at.n)).ln();
            let sure = f64::from(u8::from(predict(at.n) < last));
            let brier = (sure - f64::from(u8::from(*x < last))).powi(2);
            Beyond { off, covered: None, crps: off.abs(), log_score: None, brier }
        })
        .collect();
    Some(Judged { curve: index, fitted, points })
}

/// Baselines of forecasts.
#[derive(Clone, Copy)]
enum Certain {
    /// The Universal Scalability Law.
    Usl,
    /// No change from the last point.
    Last,
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
    bias: f64,
    crps: f64,
    brier: f64,
    chances: Option<(f64, f64)>,
}

fn verdict(sets: &Sets, all: &[Judged]) -> Verdict {
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
    let banded = all.iter().flat_map(|j| &j.points).all(|p| p.log_score.is_some());
    Verdict {
        curves: all.len(),
        mean: by_family(sets, all, Judged::mean_error),
        median: weighted(&errors, 0.5),
        off: by_family(sets, all, |j| j.off().ln()).exp(),
        bias: by_family(sets, all, |j| j.mean(|p| -p.off)),
        crps: by_family(sets, all, |j| j.mean(|p| p.crps)),
        brier: by_family(sets, all, |j| j.mean(|p| p.brier)),
        chances: banded.then(|| {
            let log = by_family(sets, all, |j| j.mean(|p| p.log_score.unwrap_or(f64::NAN)));
            (by_family(sets, all, Judged::covered), log)
        }),
    }
}

/// Names of what forecasts are made by.
const OURS: &str = "ncpu";
const KINDS: &str = "ncpu, kind left out";

/// Judges all curves with the laws, each family by what was learnt from the others; again with all families of its kind left out; and,
/// beside them, by the USL fitted by least squares and by the last point.
fn all(sets: &Sets, beyond: f64, beliefs: &Beliefs) -> Vec<(&'static str, Vec<Judged>)> {
    let indices: Vec<usize> = (0..sets.curves.len()).collect();
    let (by_name, by_kind) = (beliefs.by_family(sets, false), beliefs.by_family(sets, true));
    let ours =
        |believed: &BTreeMap<&str, &Believed>, wanted: &(dyn Fn(&str) -> bool + Sync)| -> Vec<Judged> {
            let of = |&i: &usize| {
                let curve = &sets.curves[i];
                let judged =
                    wanted(&curve.family).then(|| judge(i, curve, beyond, believed[curve.family.as_str()]));
                judged.flatten()
            };
            indices.par_iter().filter_map(of).collect()
        };
    let named = ours(&by_name, &|_| true);
    // Others are the only one of their kind.
    let differ = |f: &str| by_name[f] != by_kind[f];
    let mut kinds = ours(&by_kind, &differ);
    kinds.extend(named.iter().filter(|j| !differ(&sets.curves[j.curve].family)).cloned());
    let by = |law: Certain| -> Vec<Judged> {
        indices.iter().filter_map(|&i| certain(i, &sets.curves[i], beyond, law)).collect()
    };
    vec![(OURS, named), (KINDS, kinds), ("USL", by(Certain::Usl)), ("last point", by(Certain::Last))]
}

/// Families of the published curves, of all of which `docs/foresee.md` claims something.
const FAMILIES: [&str; 12] = [
    "altix page faults",
    "cna",
    "concurrent maps",
    "folly locks",
    "folly rwlocks",
    "icelake page faults",
    "litl",
    "mctop",
    "postgres",
    "rwsem",
    "stream",
    "tlb",
];

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
            t.text(r, "law") == Some(OURS)
                && t.text(r, "family") == Some("all")
                && t.number(r, "beyond") == Some(beyond)
        };
        number("check", &is, column)
    };
    let change = |column: &str| number("what_ifs", &|t, r| t.text(r, "set") == Some("all"), column);
    let better = |than: &str| Some(change("log score")? - change(than)?);
    let most = f64::INFINITY;
    [
        ("mean error at 4 times, %", curves(4.0, "mean"), 0.0, 29.0),
        ("median error at 4 times, %", curves(4.0, "median"), 0.0, 17.0),
        ("off at Nmax at 4 times", curves(4.0, "off"), 0.0, 1.4),
        ("points in their bands at 4 times, %", curves(4.0, "covered"), 85.0, 95.0),
        ("mean error at 16 times, %", curves(16.0, "mean"), 0.0, 49.0),
        ("off at Nmax at 16 times", curves(16.0, "off"), 0.0, 1.9),
        ("points in their bands at 16 times, %", curves(16.0, "covered"), 85.0, 95.0),
        ("mean error of what a change gives, %", change("error"), 0.0, 27.0),
        ("right signs of what a change gives, %", change("sign"), 85.0, most),
        ("log score of what a change gives, over that of no change", better("log no change"), 0.1, most),
        ("log score of what a change gives, over that of the root", better("log root"), 0.1, most),
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
    let float = |name: &str, meaning: &str| Column::float(name, Unit::None, Kind::Mean, meaning);
    let columns = [
        Column::text(
            "law",
            "ncpu's laws, each family judged by what was learnt from the others, or from other kinds; the USL; the last point",
        ),
        Column::text("family", "curves of one origin; those of `all` weigh the same by family"),
        Column::float("beyond", Unit::None, Kind::Key, "fitted up to Nmax over this"),
        Column::int("curves", Unit::None, Kind::Count, "curves"),
        percent("mean", "mean of |predicted / measured - 1| beyond"),
        percent("median", "its median over points"),
        float("off", "how many times too much or too little at Nmax, geometric mean"),
        float("bias", "mean of ln (predicted / measured)"),
        percent("covered", "points beyond that are in the 90 % band"),
        float("CRPS", "continuous ranked probability score of ln X: mean error of what is certain"),
        float("log score", "mean logarithm of the probability density of ln X"),
        float("Brier", "squared error of the probability that less is done than at the last point fitted"),
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
            percent("mean", "mean of |predicted / measured - 1| beyond"),
            Column::float("off", Unit::None, Kind::Mean, "how many times too much or too little at Nmax"),
            percent("covered", "points beyond that are in the 90 % band"),
            percent("USL", "mean of |predicted / measured - 1| of the USL"),
        ],
    );
    for beyond in [4.0, 16.0] {
        let all = all(sets, beyond, beliefs);
        for (law, judged) in &all {
            let families: BTreeSet<&str> =
                judged.iter().map(|j| sets.curves[j.curve].family.as_str()).collect();
            for family in std::iter::once("all").chain(families) {
                let part: Vec<Judged> = judged
                    .iter()
                    .filter(|j| family == "all" || sets.curves[j.curve].family == family)
                    .cloned()
                    .collect();
                let v = verdict(sets, &part);
                out.row()
                    .text(law)
                    .text(family)
                    .float(beyond)
                    .int(v.curves as u64)
                    .float(100.0 * v.mean)
                    .float(100.0 * v.median)
                    .float(v.off)
                    .float(v.bias)
                    .float_opt(v.chances.map(|(covered, _)| 100.0 * covered))
                    .float(v.crps)
                    .float_opt(v.chances.map(|(_, log)| log))
                    .float(v.brier);
            }
        }
        let theirs = all.iter().find(|(law, _)| *law == "USL").map_or(&[][..], |(_, judged)| judged);
        for j in all.iter().find(|(law, _)| *law == OURS).map_or(&[][..], |(_, judged)| judged) {
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
                .float(100.0 * j.covered())
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
            let score = |name: &str| Column::float(name, Unit::None, Kind::Mean, "");
            let mut changes = Table::builder(
                "what_ifs",
                &[
                    Column::text("set", ""),
                    percent("error"),
                    percent("sign"),
                    score("log score"),
                    score("log no change"),
                    score("log root"),
                ],
            );
            changes.row().text("all").float(24.9).float(sign).float(-0.1).float(-1.0).float(-0.5);
            [check.finish(), changes.finish()]
        };
        assert!(unmet(&tables(24.0, 90.0, 96.0)).is_empty());
        assert_eq!(
            unmet(&tables(29.04, 90.0, 96.0)),
            ["mean error at 4 times, %: 29.04, and 29 at most is claimed"]
        );
        let wide = unmet(&tables(24.0, 99.0, 80.0));
        assert_eq!(wide.len(), 3, "{wide:?}");
        assert!(wide[0].ends_with("99.00, and 85 to 95 is claimed"), "{wide:?}");
        assert!(wide[2].ends_with("80.00, and 85 at least is claimed"), "{wide:?}");
        assert_eq!(unmet(&[]).len(), 11);
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
