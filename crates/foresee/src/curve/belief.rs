//! What is believed of programs before a point is seen: learnt from published curves, kept in `data/belief.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::fit::{Belief, Posterior, fit};
use super::law::{NAMES, PARAMETERS};
use super::set::Sets;
use crate::parallel::each as parallel;

const DATA: &str = include_str!("../../data/belief.toml");

/// Beliefs from all families, and from all but each one: a family's curves are judged by what the others say.
#[derive(Clone, Debug, PartialEq)]
pub struct Beliefs {
    /// From all.
    pub all: Belief,
    without: BTreeMap<String, Belief>,
}

/// A parameter's mean and standard deviation, by name.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct File {
    all: BTreeMap<String, [f64; 2]>,
    without: BTreeMap<String, BTreeMap<String, [f64; 2]>>,
}

/// What one may believe of any program: most of it next to nothing.
pub fn weak() -> Belief {
    // work, serial, transfers, waiters, remote work, strands, turbo, sharpness, noise, crowding
    Belief {
        mean: [0.0, -4.0, -3.5, -6.0, -2.0, -1.0, 0.5, -0.5, -3.2, -0.8],
        sd: [0.5, 2.0, 2.0, 2.5, 1.5, 1.0, 1.5, 1.0, 0.6, 1.2],
        astray: ASTRAY,
    }
}

/// How far ln X goes astray for each doubling beyond what was measured: a value at which the bands of the published
/// curves hold about nine of ten points.
const ASTRAY: f64 = 0.17;

static KEPT: LazyLock<Beliefs> = LazyLock::new(|| Beliefs::parse(DATA));

impl Beliefs {
    /// Those that are kept.
    pub fn kept() -> &'static Beliefs {
        &KEPT
    }

    fn parse(text: &str) -> Beliefs {
        let one = |table: &BTreeMap<String, [f64; 2]>| {
            let mut belief = weak();
            for (i, name) in NAMES.iter().enumerate() {
                if let Some([mean, sd]) = table.get(*name) {
                    (belief.mean[i], belief.sd[i]) = (*mean, *sd);
                }
            }
            belief
        };
        match toml::from_str::<File>(text) {
            Ok(file) => Beliefs {
                all: one(&file.all),
                without: file.without.iter().map(|(family, t)| (family.clone(), one(t))).collect(),
            },
            Err(_) => Beliefs { all: weak(), without: BTreeMap::new() },
        }
    }

    /// What may be believed of a family: nothing that was learnt from it.
    pub fn without(&self, family: &str) -> &Belief {
        self.without.get(family).unwrap_or(&self.all)
    }

    /// Learns from whole curves.
    pub fn learn(sets: &Sets) -> Beliefs {
        let weak = weak();
        let fits: Vec<(String, Posterior)> = parallel(&sets.curves, |curve| {
            let enough = curve.points.len() > 3;
            enough.then(|| fit(&curve.points, &weak, 1)).flatten().map(|p| (curve.family.clone(), p))
        })
        .into_iter()
        .flatten()
        .collect();
        let without = fits.iter().map(|(family, _)| (family.clone(), learn(&fits, family, &weak))).collect();
        Beliefs { all: learn(&fits, "", &weak), without }
    }

    /// As a file.
    pub fn told(&self) -> String {
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        let one = |b: &Belief| -> BTreeMap<String, [f64; 2]> {
            (0..PARAMETERS).map(|i| (NAMES[i].to_string(), [round(b.mean[i]), round(b.sd[i])])).collect()
        };
        let file = File {
            all: one(&self.all),
            without: self.without.iter().map(|(family, b)| (family.clone(), one(b))).collect(),
        };
        toml::to_string(&file).unwrap_or_default()
    }
}

/// What whole curves say of the parameters: a belief for curves not seen, from the families but for one.
fn learn(fits: &[(String, Posterior)], without: &str, weak: &Belief) -> Belief {
    let mut families = BTreeMap::<&str, Vec<&Posterior>>::new();
    for (family, posterior) in fits.iter().filter(|f| f.0 != without) {
        families.entry(family).or_default().push(posterior);
    }
    let mut belief = *weak;
    let n = families.len() as f64;
    if n < 3.0 {
        return belief;
    }
    for i in 0..PARAMETERS {
        // Mean and mean square of each family, then of the families.
        let (mut mean, mut square) = (0.0, 0.0);
        for posteriors in families.values() {
            let draws: f64 = posteriors.iter().map(|p| p.draws.len() as f64).sum();
            let all = || posteriors.iter().flat_map(|p| p.draws.iter().map(|d| d[i]));
            mean += all().sum::<f64>() / draws / n;
            square += all().map(|x| x * x).sum::<f64>() / draws / n;
        }
        belief.mean[i] = mean;
        // Few families: a little wider than they are.
        belief.sd[i] = ((square - mean * mean).max(0.0025) * (1.0 + 1.0 / n)).sqrt();
    }
    // Work is relative to the first point.
    belief.mean[0] = weak.mean[0];
    belief.sd[0] = weak.sd[0];
    belief
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_whole() {
        let file: File = toml::from_str(DATA).unwrap();
        for table in file.without.values().chain([&file.all]) {
            assert_eq!(
                table.keys().map(String::as_str).collect::<std::collections::BTreeSet<_>>(),
                NAMES.into()
            );
            assert!(table.values().all(|[m, s]| m.is_finite() && *s > 0.0));
        }
        let kept = Beliefs::kept();
        assert_ne!(kept.without("cna"), &kept.all);
        assert_eq!(kept.without("a family never seen"), &kept.all);
    }
}
