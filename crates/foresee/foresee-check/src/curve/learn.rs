//! Learns what to believe of programs from whole curves.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::belief::{Beliefs, Believed, POINTS, shape};
use super::fit::{Belief, Posterior, roughly};
use super::forecast::Fitted;
use super::law::Law;
use super::set::{Curve, Sets};
use super::what_if;

/// Learns from whole curves, all again for each family that is left out, and for each kind of several families.
pub fn beliefs(sets: &Sets) -> Beliefs {
    let curves = some(sets);
    let mut kinds = BTreeMap::<&str, BTreeSet<&str>>::new();
    for c in &curves {
        kinds.entry(&c.kind).or_default().insert(&c.family);
    }
    let families: BTreeSet<&str> = kinds.values().flatten().copied().collect();
    let several = kinds.iter().filter(|(_, families)| families.len() > 1).map(|(kind, _)| *kind);
    let left_out: Vec<&str> = families.iter().copied().chain(several).chain([""]).collect();
    let jobs: Vec<(&str, Law)> = left_out.iter().flat_map(|f| Law::ALL.map(|law| (*f, law))).collect();
    let laws: Vec<Belief> = jobs.par_iter().map(|(without, law)| learn(&curves, without, *law)).collect();
    let without: BTreeMap<String, Believed> = left_out
        .iter()
        .zip(laws.chunks(Law::ALL.len()))
        .map(|(name, laws)| (name.to_string(), Believed { laws: laws.to_vec(), ..Believed::weak() }))
        .collect();
    let mut seen = BTreeMap::<String, Vec<Vec<(f64, f64)>>>::new();
    for c in &curves {
        seen.entry(c.family.clone()).or_default().extend(shape(c));
    }
    let scores: Vec<(&Curve, Vec<f64>)> =
        curves.par_iter().flat_map(|c| scores(c, &without[&c.family])).collect();
    let mut learnt = Beliefs { all: Believed::weak(), without, seen };
    let changes = what_if::all(sets, &learnt);
    for (name, believed) in &mut learnt.without {
        believed.astray = least_surprised(&scores, name);
        believed.changes = what_if::off(sets, &changes, name);
    }
    learnt.all = learnt.without.remove("").unwrap_or_else(Believed::weak);
    learnt
}

/// Amounts by which laws may go astray.
const AMOUNTS: [f64; 10] = [0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.35];

/// Of a curve's extrapolations, the mean log score for each amount by which laws may go astray.
fn scores<'a>(curve: &&'a Curve, believed: &Believed) -> Vec<(&'a Curve, Vec<f64>)> {
    let curve: &Curve = curve;
    let score = |beyond: f64| {
        let fitted = curve.split(beyond)?;
        let laws = Fitted::to(&curve.points[..fitted], believed)?;
        let rest = &curve.points[fitted..];
        let of = |astray: &f64| {
            let laws = laws.with_astray(*astray);
            let sum: f64 = rest.iter().map(|(at, x)| laws.chances(at).log_score(x.ln())).sum();
            sum / rest.len() as f64
        };
        Some((curve, AMOUNTS.iter().map(of).collect()))
    };
    [4.0, 16.0].into_iter().filter_map(score).collect()
}

/// The amount by which laws go astray that makes what was measured least surprising, families weighing the same.
fn least_surprised(scores: &[(&Curve, Vec<f64>)], without: &str) -> f64 {
    let mut families = BTreeMap::<&str, (Vec<f64>, f64)>::new();
    for (curve, scores) in scores.iter().filter(|(c, _)| c.family != without && c.kind != without) {
        let sums = families.entry(&curve.family).or_insert_with(|| (vec![0.0; AMOUNTS.len()], 0.0));
        sums.0.iter_mut().zip(scores).for_each(|(sum, x)| *sum += x);
        sums.1 += 1.0;
    }
    let mean = |i: usize| families.values().map(|(sums, n)| sums[i] / n).sum::<f64>();
    let best = (0..AMOUNTS.len()).max_by(|a, b| mean(*a).total_cmp(&mean(*b)));
    best.map_or(Believed::weak().astray, |i| AMOUNTS[i])
}

/// Curves of a family that are learnt from, at most: of larger families every Nth.
const FAMILY: usize = 25;
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

/// Learns the prior of a law's parameters from whole curves: the prior is the mean of the curves' posteriors, each
/// fitted with that very prior (expectation maximisation). The curves of family `without` are left out.
fn learn(curves: &[&Curve], without: &str, law: Law) -> Belief {
    let mut belief = Belief::weak(law);
    for round in 0..ROUNDS {
        let mut families = BTreeMap::<&str, Vec<Posterior>>::new();
        for curve in curves.iter().filter(|c| c.family != without && c.kind != without) {
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
