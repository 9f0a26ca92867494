//! Priors for programs before a point is seen: learnt from published curves, kept in `data/belief.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::fit::Belief;
use super::law::Law;
use super::set::{Curve, Sets};

const DATA: &str = include_str!("../../data/belief.toml");

/// Beliefs about programs: about each law's parameters, and about the drift from the laws.
#[derive(Clone, Debug, PartialEq)]
pub struct Believed {
    /// Of each law.
    pub laws: Vec<Belief>,
    /// By how much ln X goes astray from the laws for each doubling of N beyond what was measured: scale of a Student's t.
    pub astray: f64,
    /// By how much predictions of what a change gives are off.
    pub changes: Off,
}

impl Believed {
    /// Before anything was learnt.
    pub fn weak() -> Believed {
        Believed {
            laws: Law::ALL.map(Belief::weak).to_vec(),
            astray: 0.1,
            changes: Off { ncpu: 1.0, none: 1.0, root: 1.0 },
        }
    }
}

/// Mean |ln (predicted / measured)| of what a change gives: the scale of the Laplace distribution about what is predicted.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Off {
    /// As ncpu predicts it.
    pub ncpu: f64,
    /// Of saying that nothing changes.
    pub none: f64,
    /// Of the square root of the curve's peak over what it has there.
    pub root: f64,
}

/// Beliefs from all families, and from all but each one: a family's curves are judged by what the others say.
#[derive(Clone, Debug, PartialEq)]
pub struct Beliefs {
    /// From all.
    pub all: Believed,
    /// Without a family, or without a kind of families.
    pub(super) without: BTreeMap<String, Believed>,
    /// Curves that were learnt from, by family: N, and ln X over that of the first point.
    pub(super) seen: BTreeMap<String, Vec<Vec<(f64, f64)>>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct One {
    mean: Vec<f64>,
    covariance: Vec<Vec<f64>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Part {
    astray: f64,
    changes: Off,
    laws: BTreeMap<Law, One>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct File {
    all: Part,
    without: BTreeMap<String, Part>,
    seen: BTreeMap<String, Vec<Vec<(f64, f64)>>>,
}

static KEPT: LazyLock<Beliefs> = LazyLock::new(|| Beliefs::parse(DATA));

impl Beliefs {
    /// Those that are kept.
    pub fn kept() -> &'static Beliefs {
        &KEPT
    }

    fn parse(text: &str) -> Beliefs {
        let one = |of: &Part| {
            let known =
                |law| of.laws.get(&law).and_then(|o| Belief::new(law, o.mean.clone(), o.covariance.clone()));
            let laws = Law::ALL.iter().map(|&law| known(law).unwrap_or_else(|| Belief::weak(law))).collect();
            Believed { laws, astray: of.astray, changes: of.changes }
        };
        match toml::from_str::<File>(text) {
            Ok(file) => Beliefs {
                all: one(&file.all),
                without: file.without.iter().map(|(name, t)| (name.clone(), one(t))).collect(),
                seen: file.seen,
            },
            Err(_) => Beliefs { all: Believed::weak(), without: BTreeMap::new(), seen: BTreeMap::new() },
        }
    }

    /// The beliefs for judging a family: nothing that was learnt from it, by its name or by curves that it shares with a family of
    /// another name; or, `by_kind`, from any family of its kind.
    pub fn of(&self, sets: &Sets, family: &str, by_kind: bool) -> &Believed {
        let of_it = || sets.curves.iter().filter(|c| c.family == family);
        let kind = of_it().next().filter(|_| by_kind).and_then(|c| self.without.get(&c.kind));
        let known = kind.or_else(|| self.without.get(family));
        known.or_else(|| self.without.get(self.same(of_it())?)).unwrap_or(&self.all)
    }

    /// The beliefs for judging each family, as by [`Beliefs::of`].
    pub fn by_family<'a>(&self, sets: &'a Sets, by_kind: bool) -> BTreeMap<&'a str, &Believed> {
        let families: BTreeSet<&str> = sets.curves.iter().map(|c| c.family.as_str()).collect();
        families.into_iter().map(|f| (f, self.of(sets, f, by_kind))).collect()
    }

    /// A learnt family that some of these curves are of.
    fn same<'a>(&self, curves: impl Iterator<Item = &'a Curve>) -> Option<&str> {
        let shapes: Vec<Vec<(f64, f64)>> = curves.filter_map(shape).collect();
        let twins = |seen: &[Vec<(f64, f64)>]| {
            shapes.iter().filter(|s| seen.iter().any(|other| is_same(s, other))).count()
        };
        let all = self.seen.iter().map(|(family, seen)| (twins(seen), family));
        all.max().filter(|(twins, _)| *twins > 0).map(|(_, family)| family.as_str())
    }

    /// As a file.
    pub fn told(&self) -> String {
        let round = |x: &f64| (x * 1e4).round() / 1e4;
        let one = |all: &Believed| -> Part {
            let told = |b: &Belief| One {
                mean: b.mean.iter().map(round).collect(),
                covariance: b.covariance.iter().map(|row| row.iter().map(round).collect()).collect(),
            };
            Part {
                astray: all.astray,
                changes: all.changes,
                laws: all.laws.iter().map(|b| (b.law, told(b))).collect(),
            }
        };
        let file = File {
            all: one(&self.all),
            without: self.without.iter().map(|(family, b)| (family.clone(), one(b))).collect(),
            seen: self.seen.clone(),
        };
        toml::to_string(&file).unwrap_or_default()
    }
}

/// Points of a curve that says something of a law.
pub(super) const POINTS: usize = 4;

/// Two curves are the same where ln X differs by no more than this at each N that both have, at least [`POINTS`] of them.
const SAME: f64 = 0.02;
/// Straight lines are alike, whosever they are: a curve has a shape where ln X is this far from that of a straight line somewhere.
const BENT: f64 = 0.2;

/// A curve without its unit; `None` of a straight line.
pub(super) fn shape(curve: &Curve) -> Option<Vec<(f64, f64)>> {
    let first = curve.points.first()?;
    let points: Vec<(f64, f64)> =
        curve.points.iter().map(|(at, x)| (at.n, ((x / first.1).ln() * 1e3).round() / 1e3)).collect();
    let bent = points.iter().any(|(n, log)| (log - (n / first.0.n).ln()).abs() > BENT);
    (bent && points.len() >= POINTS).then_some(points)
}

fn is_same(a: &[(f64, f64)], b: &[(f64, f64)]) -> bool {
    let both: Vec<f64> =
        a.iter().filter_map(|(n, x)| b.iter().find(|(m, _)| m == n).map(|(_, y)| x - y)).collect();
    let (low, high) =
        both.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), d| (l.min(*d), h.max(*d)));
    both.len() >= POINTS && high - low <= SAME
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_whole() {
        let file: File = toml::from_str(DATA).unwrap();
        for table in file.without.values().chain([&file.all]) {
            assert!(table.astray > 0.0 && table.changes.ncpu > 0.0);
            for law in Law::ALL {
                let one = &table.laws[&law];
                assert!(Belief::new(law, one.mean.clone(), one.covariance.clone()).is_some());
                assert!((0..law.size()).all(|i| one.covariance[i][i] > 0.0));
            }
        }
        let kept = Beliefs::kept();
        assert!(kept.seen.keys().all(|family| kept.without.contains_key(family)));
        assert_ne!(kept.without["cna"], kept.all);
    }

    #[test]
    fn a_family_is_not_judged_by_what_was_learnt_from_it() {
        let read = |dir: &std::path::Path| Sets::read(dir, None).unwrap();
        let published = read(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sets"));
        let kept = Beliefs::kept();
        assert_eq!(kept.of(&published, "cna", false), &kept.without["cna"]);
        assert_eq!(kept.of(&published, "cna", true), &kept.without["spinlocks"]);
        assert_eq!(kept.of(&published, "litl", true), &kept.without["litl"]);
        // The same curve under another name, in another unit and with other points left out.
        let stock =
            published.curves.iter().find(|c| c.set == "cna-locktorture" && c.name == "stock").unwrap();
        let points: Vec<String> =
            stock.points.iter().skip(1).map(|(at, x)| format!("[{}, {}]", at.n, 3.0 * x)).collect();
        let dir = tempfile::tempdir().unwrap();
        let set = |family: &str, points: &str| {
            let text = format!("family = \"{family}\"\nmachine = \"4x18x2\"\n[points]\nc = [{points}]\n");
            std::fs::write(dir.path().join(format!("{family}.toml")), text).unwrap();
        };
        set("renamed", &points.join(", "));
        set("straight", "[1, 1], [2, 2], [4, 4], [8, 8], [16, 16]");
        set("new", "[1, 1], [2, 1.5], [4, 1.1], [8, 2.9], [16, 1]");
        let sets = read(dir.path());
        assert_eq!(kept.of(&sets, "renamed", false), &kept.without["cna"]);
        for unknown in ["straight", "new"] {
            assert_eq!(kept.of(&sets, unknown, false), &kept.all, "{unknown}");
        }
    }
}
