//! What is believed of programs before a point is seen: learnt from published curves, kept in `data/belief.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use rayon::prelude::*;

use super::fit::{Belief, Posterior, roughly};
use super::law::Law;
use super::set::{Curve, Sets};

const DATA: &str = include_str!("../../data/belief.toml");

/// Beliefs about each law from all families, and from all but each one: a family's curves are judged by what the others
/// say.
#[derive(Clone, Debug, PartialEq)]
pub struct Beliefs {
    /// From all.
    pub all: Vec<Belief>,
    without: BTreeMap<String, Vec<Belief>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct One {
    mean: Vec<f64>,
    covariance: Vec<Vec<f64>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct File {
    all: BTreeMap<Law, One>,
    without: BTreeMap<String, BTreeMap<Law, One>>,
}

static KEPT: LazyLock<Beliefs> = LazyLock::new(|| Beliefs::parse(DATA));

impl Beliefs {
    /// Those that are kept.
    pub fn kept() -> &'static Beliefs {
        &KEPT
    }

    fn parse(text: &str) -> Beliefs {
        let one = |of: &BTreeMap<Law, One>| -> Vec<Belief> {
            let known =
                |law| of.get(&law).and_then(|o| Belief::new(law, o.mean.clone(), o.covariance.clone()));
            Law::ALL.iter().map(|&law| known(law).unwrap_or_else(|| Belief::weak(law))).collect()
        };
        match toml::from_str::<File>(text) {
            Ok(file) => Beliefs {
                all: one(&file.all),
                without: file.without.iter().map(|(family, t)| (family.clone(), one(t))).collect(),
            },
            Err(_) => Beliefs { all: Law::ALL.map(Belief::weak).to_vec(), without: BTreeMap::new() },
        }
    }

    /// What may be believed of a family: nothing that was learnt from it.
    pub fn without(&self, family: &str) -> &[Belief] {
        self.without.get(family).unwrap_or(&self.all)
    }

    /// Learns from whole curves, all again for each family that is left out.
    pub fn learn(sets: &Sets) -> Beliefs {
        let curves = some(sets);
        let mut families: Vec<&str> = curves.iter().map(|c| c.family.as_str()).collect();
        families.sort_unstable();
        families.dedup();
        families.push("");
        let jobs: Vec<(&str, Law)> = families.iter().flat_map(|f| Law::ALL.map(|law| (*f, law))).collect();
        let mut learnt = jobs
            .par_iter()
            .map(|(without, law)| learn(&curves, without, *law))
            .collect::<Vec<_>>()
            .into_iter();
        let mut without = BTreeMap::new();
        let mut all = Vec::new();
        for family in families {
            let beliefs: Vec<Belief> = learnt.by_ref().take(Law::ALL.len()).collect();
            match family {
                "" => all = beliefs,
                _ => {
                    without.insert(family.to_string(), beliefs);
                }
            }
        }
        Beliefs { all, without }
    }

    /// As a file.
    pub fn told(&self) -> String {
        let round = |x: &f64| (x * 1e4).round() / 1e4;
        let one = |all: &[Belief]| -> BTreeMap<Law, One> {
            let told = |b: &Belief| One {
                mean: b.mean.iter().map(round).collect(),
                covariance: b.covariance.iter().map(|row| row.iter().map(round).collect()).collect(),
            };
            all.iter().map(|b| (b.law, told(b))).collect()
        };
        let file = File {
            all: one(&self.all),
            without: self.without.iter().map(|(family, b)| (family.clone(), one(b))).collect(),
        };
        toml::to_string(&file).unwrap_or_default()
    }
}

/// Curves of a family that are learnt from, at most: one of so many, where there are more.
const FAMILY: usize = 25;
/// Points of a curve that says something of a law.
const POINTS: usize = 4;

fn some(sets: &Sets) -> Vec<&Curve> {
    let mut families = BTreeMap::<&str, Vec<&Curve>>::new();
    for curve in sets.curves.iter().filter(|c| c.points.len() >= POINTS) {
        families.entry(&curve.family).or_default().push(curve);
    }
    families
        .into_values()
        .flat_map(|all| {
            let step = all.len().div_ceil(FAMILY);
            all.into_iter().step_by(step)
        })
        .collect()
}

/// Rounds of learning.
const ROUNDS: u64 = 4;

/// What whole curves say of a law's parameters: what is believed is what the curves, each fitted with that very belief,
/// say on average (expectation maximisation), but for the curves of one family.
fn learn(curves: &[&Curve], without: &str, law: Law) -> Belief {
    let mut belief = Belief::weak(law);
    for round in 0..ROUNDS {
        let mut families = BTreeMap::<&str, Vec<Posterior>>::new();
        for curve in curves.iter().filter(|c| c.family != without) {
            if let Some(posterior) = roughly(&curve.points, &belief, 1 + round) {
                families.entry(&curve.family).or_default().push(posterior);
            }
        }
        if families.len() < 3 {
            return belief;
        }
        belief = moments(&families, law).unwrap_or(belief);
    }
    belief
}

/// How much of what parameters have in common is believed: families are few.
const IN_COMMON: f64 = 0.7;

/// Means and covariances of all families' parameters, families weighing the same.
fn moments(families: &BTreeMap<&str, Vec<Posterior>>, law: Law) -> Option<Belief> {
    let n = law.size();
    let many = families.len() as f64;
    let (mut mean, mut square) = (vec![0.0; n], vec![vec![0.0; n]; n]);
    for all in families.values() {
        let draws: f64 = all.iter().map(|p| p.draws.len() as f64).sum();
        for posterior in all {
            for draw in &posterior.draws {
                let mut draw = *draw;
                draw[0] -= posterior.work;
                for i in 0..n {
                    mean[i] += draw[i] / draws / many;
                    for j in 0..n {
                        square[i][j] += draw[i] * draw[j] / draws / many;
                    }
                }
            }
        }
    }
    // Few families: a little wider than they are.
    let mut covariance: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let of = |j: usize| {
                let c = (square[i][j] - mean[i] * mean[j]) * (1.0 + 1.0 / many);
                if i == j { c.max(0.0025) } else { IN_COMMON * c }
            };
            (0..n).map(of).collect()
        })
        .collect();
    // Work is relative to the first point, and that is all there is to say of it.
    let (_, first, sd) = law.parameters()[0];
    mean[0] = first;
    covariance[0].fill(0.0);
    for row in &mut covariance {
        row[0] = 0.0;
    }
    covariance[0][0] = sd * sd;
    Belief::new(law, mean, covariance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_whole() {
        let file: File = toml::from_str(DATA).unwrap();
        for table in file.without.values().chain([&file.all]) {
            for law in Law::ALL {
                let one = &table[&law];
                assert!(Belief::new(law, one.mean.clone(), one.covariance.clone()).is_some());
                assert!((0..law.size()).all(|i| one.covariance[i][i] > 0.0));
            }
        }
        let kept = Beliefs::kept();
        assert_ne!(kept.without("cna"), &kept.all);
        assert_eq!(kept.without("a family never seen"), &kept.all);
    }
}
