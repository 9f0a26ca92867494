//! A remedy tried on a few machines of a fleet first.
//!
//! A plan chooses these machines, the canaries, by chance, and is kept in the fleet: `fixes/NAME.json`. After the remedy is
//! in place on them and all machines have recordings again, each machine gives one difference: the share of its capacity that could come
//! back, after minus before. The canaries' mean difference less that of the other machines is what the remedy does, since what changed
//! for all, as load does, is in both (Welch's interval over machines, as `regress` judges).

use std::collections::BTreeSet;

use ncpu_schema::Layer;
use ncpu_statistics::{LEVEL, Mean, Sample, mean, welch};
use ncpu_table::{Column, Kind, Table, Unit};
use serde::{Deserialize, Serialize};

use crate::ask::{Asked, Question};
use crate::when::Period;
use crate::{Error, Result, labels, regress};

/// The least number of canaries, and of machines to compare them with.
pub const FEWEST: usize = regress::FEWEST;

/// A machine of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// Its identity.
    pub machine: String,
    /// Its name when the plan was made.
    pub host: String,
}

/// Which machines get a remedy first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The remedy, in the user's words.
    pub remedy: String,
    /// The condition that chose the machines, in SQL.
    pub filter: Option<String>,
    /// The period before the remedy.
    pub before: String,
    /// Those that get it.
    pub canaries: Vec<Chosen>,
    /// Those that they are compared with.
    pub others: Vec<Chosen>,
}

fn file(name: &str) -> Result<String> {
    match labels::is_key(name) {
        true => Ok(format!("fixes/{name}.json")),
        false => Err(Error::Usage(format!("`{name}` cannot name a fix: use 1 to 64 of a-z A-Z 0-9 _ - ."))),
    }
}

/// Chooses canaries among the machines that have recordings in the period before, and keeps the plan.
///
/// # Errors
/// There are too few machines, or a plan of this name; the fleet cannot be read or written.
pub fn plan(asked: &mut Asked, name: &str, remedy: &str, before: &str, part: f64) -> Result<Plan> {
    let file = file(name)?;
    let mut question = Question::new(Vec::new(), None, None, None)?;
    question.period = Period::parse(before)?;
    let rows = asked.ask("machines", include_str!("../sql/machines_of.sql"), &question)?;
    let text = |row: usize, column: &str| rows.text(row, column).unwrap_or_default().to_string();
    let all = (0..rows.num_rows())
        .map(|row| Chosen { machine: text(row, "machine"), host: text(row, "host") })
        .collect();
    let (canaries, others) = choose(all, part).map_err(|n| {
        Error::Fleet(format!("{n} machines have recordings in {before}: a fix needs {}", 2 * FEWEST))
    })?;
    let plan =
        Plan { remedy: remedy.into(), filter: asked.filter(), before: before.into(), canaries, others };
    let bytes = serde_json::to_vec_pretty(&plan).map_err(|e| Error::Fleet(format!("{file}: {e}")))?;
    match asked.store().put_new(&file, &bytes)? {
        true => Ok(plan),
        false => {
            Err(Error::Fleet(format!("{} has a fix `{name}` already: choose another name", asked.root())))
        }
    }
}

/// A part of machines, by chance, and the rest; their number where they are too few.
fn choose(mut all: Vec<Chosen>, part: f64) -> std::result::Result<(Vec<Chosen>, Vec<Chosen>), usize> {
    if all.len() < 2 * FEWEST {
        return Err(all.len());
    }
    let wanted = (part * all.len() as f64).ceil() as usize;
    let wanted = wanted.clamp(FEWEST, all.len() - FEWEST);
    fastrand::shuffle(&mut all);
    let mut others = all.split_off(wanted);
    all.sort_by(|a, b| a.host.cmp(&b.host));
    others.sort_by(|a, b| a.host.cmp(&b.host));
    Ok((all, others))
}

/// The plan of this name.
///
/// # Errors
/// There is none, or it is damaged.
pub fn read(asked: &Asked, name: &str) -> Result<Plan> {
    let file = file(name)?;
    let Some(bytes) = asked.store().get(&file)? else {
        let root = asked.root();
        return Err(Error::Fleet(format!("{root} has no fix `{name}`: --remedy and --before plan one")));
    };
    serde_json::from_slice(&bytes).map_err(|e| Error::Fleet(format!("{file} of {}: {e}", asked.root())))
}

/// The next step with a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It helps for certain.
    Adopt,
    /// It may help: this number of canaries would tell.
    Widen(usize),
    /// Its gain is below the least that is asked for.
    Drop,
    /// It harms for certain.
    Undo,
}

impl Verdict {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Adopt => "adopt",
            Verdict::Widen(_) => "widen",
            Verdict::Drop => "drop",
            Verdict::Undo => "undo",
        }
    }
}

/// A judgement of a remedy.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Of the canaries and of the others: machines, mean shares before and after, and the mean difference.
    pub groups: [(usize, [f64; 2], Mean); 2],
    /// The effect of the remedy: the difference of the differences.
    pub effect: Mean,
    /// The next step.
    pub verdict: Verdict,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Judges a remedy by recordings after it: of the layers that could come back, or of one layer. `least` is the least part of capacity
/// that it is to give.
///
/// # Errors
/// Too few machines have recordings in both periods; as [`Asked::ask`].
pub fn judge(
    asked: &mut Asked,
    plan: &Plan,
    after: Period,
    layer: Option<Layer>,
    least: f64,
) -> Result<Answer> {
    let question = Question::of_change(Vec::new(), Period::parse(&plan.before)?, after)?;
    let raw = asked.ask("regress", include_str!("../sql/regress.sql"), &question)?;
    of_rows(&raw, plan, layer, least)
}

/// Judges the rows of `sql/regress.sql`.
fn of_rows(raw: &Table, plan: &Plan, layer: Option<Layer>, least: f64) -> Result<Answer> {
    let layers: Vec<&str> = match layer {
        Some(layer) => vec![layer.name()],
        None => Layer::ALL.iter().filter(|l| l.recoverable()).map(|l| l.name()).collect(),
    };
    let seen = regress::shares(raw, &layers);
    let mut notes = Vec::new();
    let mut of = |chosen: &[Chosen], what: &str| -> Result<Vec<[f64; 2]>> {
        let names: BTreeSet<&str> = chosen.iter().map(|c| c.machine.as_str()).collect();
        let shares: Vec<[f64; 2]> = seen
            .iter()
            .filter(|(name, _)| names.contains(name.as_str()))
            .map(|(_, shares)| *shares)
            .collect();
        if shares.len() < FEWEST {
            return Err(Error::Fleet(format!(
                "{} of {} {what} have recordings before and after: {FEWEST} are needed",
                shares.len(),
                names.len()
            )));
        }
        if shares.len() < names.len() {
            let left = names.len() - shares.len();
            notes.push(format!(
                "{left} of {} {what} have recordings in one period only and are left out",
                names.len()
            ));
        }
        Ok(shares)
    };
    let both = [of(&plan.canaries, "canaries")?, of(&plan.others, "other machines")?];
    let few = || Error::Fleet("too few machines".into());
    let differences = both.each_ref().map(|shares| shares.iter().map(|s| s[1] - s[0]).collect::<Vec<f64>>());
    let group = |at: usize| -> Result<(usize, [f64; 2], Mean)> {
        let n = both[at].len();
        let middle = [0, 1].map(|i| both[at].iter().map(|s| s[i]).sum::<f64>() / n as f64);
        Ok((n, middle, mean(&differences[at]).ok_or_else(few)?))
    };
    let sample = |at: usize| Sample::of(&differences[at]).ok_or_else(few);
    let effect = welch(sample(1)?, sample(0)?);
    let groups = [group(0)?, group(1)?];
    let verdict = verdict(&effect, groups[0].0, groups[0].0 + groups[1].0, least);
    Ok(Answer { groups, effect, verdict, notes })
}

fn verdict(effect: &Mean, canaries: usize, all: usize, least: f64) -> Verdict {
    // Neither group has any spread: there is nothing to judge by.
    if !effect.half.is_finite() || !effect.p.is_finite() {
        return Verdict::Widen((2 * canaries).min(all.saturating_sub(FEWEST)).max(canaries));
    }
    let certain = effect.p < LEVEL;
    if certain && effect.mean > 0.0 {
        return Verdict::Undo;
    }
    if certain && effect.mean <= -least {
        return Verdict::Adopt;
    }
    // Whether the interval holds a gain that is large enough.
    if effect.mean - effect.half > -least {
        return Verdict::Drop;
    }
    // The interval shrinks as the root of their number.
    let times = (effect.half / effect.mean.abs().max(least).max(1e-6)).powi(2).clamp(2.0, 100.0);
    let wanted = (canaries as f64 * times).ceil() as usize;
    Verdict::Widen(wanted.min(all.saturating_sub(FEWEST)).max(canaries))
}

impl Plan {
    /// The machines as a table.
    pub fn table(&self) -> Table {
        let columns = [
            Column::text("host", "the machine"),
            Column::text("role", "canary: it gets the remedy; other: it is compared with"),
        ];
        let mut out = Table::builder("plan", &columns);
        for (all, role) in [(&self.canaries, "canary"), (&self.others, "other")] {
            for one in all {
                out.row().text(&one.host).text(role);
            }
        }
        out.finish()
    }
}

impl Answer {
    /// The groups and their difference as a table.
    pub fn table(&self) -> Table {
        let percent = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Gauge, meaning);
        let columns = [
            Column::text("group", "canaries, others, or the first less the second: what the remedy does"),
            Column::count("machines", "machines with recordings in both periods"),
            percent("before", "share of capacity that could come back, before"),
            percent("after", "the same, after"),
            percent("change", "after minus before, the mean of its machines"),
            percent("low", "lower end of its 95 % interval"),
            percent("high", "upper end of its 95 % interval"),
            Column::text("verdict", "adopt, widen, drop or undo"),
        ];
        let mut out = Table::builder("fix", &columns);
        for (name, (n, shares, change)) in ["canaries", "others"].iter().zip(&self.groups) {
            let row = out.row().text(name).int(*n as u64).float(100.0 * shares[0]).float(100.0 * shares[1]);
            row.float(100.0 * change.mean)
                .float(100.0 * (change.mean - change.half))
                .float(100.0 * (change.mean + change.half))
                .text_opt(None::<&str>);
        }
        let e = self.effect;
        out.row()
            .text("canaries less others")
            .int((self.groups[0].0 + self.groups[1].0) as u64)
            .float_opt(None)
            .float_opt(None)
            .float(100.0 * e.mean)
            .float(100.0 * (e.mean - e.half))
            .float(100.0 * (e.mean + e.half))
            .text(self.verdict.name());
        out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = 60;

    fn chosen(n: usize) -> Chosen {
        Chosen { machine: format!("id-{n}"), host: format!("web{n}") }
    }

    /// Rows of a fleet whose first machines got a remedy that changes their share by `effect`, while all changed by 2 %.
    fn rows(random: &mut fastrand::Rng, canaries: usize, effect: f64) -> Table {
        let columns = [
            Column::text("machine", ""),
            Column::text("host", ""),
            Column::count("period", ""),
            Column::text("subject", ""),
            Column::text("name", ""),
            Column::count("recordings", ""),
            Column::count("us", ""),
            Column::count("ppm", ""),
            Column::count("squares", ""),
        ];
        let mut out = Table::builder("regress", &columns);
        let whole = 1e9;
        for n in 0..ALL {
            let own = 0.2 + 0.1 * random.f64();
            for period in 0..2u64 {
                let noise = 0.01 * (0..12).map(|_| random.f64() - 0.5).sum::<f64>();
                let changed = if period == 1 { 0.02 + if n < canaries { effect } else { 0.0 } } else { 0.0 };
                let us = (whole * (own + noise + changed).max(0.0)) as u64;
                let mut row = |subject: &str, name: &str, us: u64| {
                    let at = out.row().text(format!("id-{n}")).text(format!("web{n}")).int(period);
                    at.text(subject).text(name).int(10).int(us).int(0).int(0);
                };
                row("machine", "", whole as u64);
                row("layer", Layer::KernelSpin.name(), us / 2);
                row("layer", Layer::RunQueue.name(), us - us / 2);
                row("layer", Layer::User.name(), (0.4 * whole) as u64);
            }
        }
        out.finish()
    }

    fn judged(seed: u64, canaries: usize, effect: f64) -> Answer {
        let plan = Plan {
            remedy: "x".into(),
            filter: None,
            before: "2026-11-10".into(),
            canaries: (0..canaries).map(chosen).collect(),
            others: (canaries..ALL).map(chosen).collect(),
        };
        let rows = rows(&mut fastrand::Rng::with_seed(seed), canaries, effect);
        of_rows(&rows, &plan, None, 0.005).unwrap()
    }

    #[test]
    fn what_does_nothing_is_adopted_seldom() {
        let verdicts: Vec<Verdict> = (0..200).map(|seed| judged(seed, 6, 0.0).verdict).collect();
        let count = |which: fn(&Verdict) -> bool| verdicts.iter().filter(|v| which(v)).count();
        assert!(count(|v| *v == Verdict::Adopt) <= 10, "{verdicts:?}");
        assert!(count(|v| *v == Verdict::Undo) <= 10, "{verdicts:?}");
    }

    #[test]
    fn what_helps_is_adopted_and_what_harms_is_undone() {
        for seed in 0..20 {
            // Eight times the spread of a difference.
            let helps = judged(seed, 6, -0.08);
            assert_eq!(helps.verdict, Verdict::Adopt, "{helps:?}");
            assert!((helps.effect.mean + 0.08).abs() < 0.03, "{helps:?}");
            assert_eq!(judged(seed, 6, 0.08).verdict, Verdict::Undo);
            let table = helps.table();
            assert_eq!((table.num_rows(), table.text(2, "verdict")), (3, Some("adopt")));
            assert!(table.number(1, "change").is_some_and(|change| (change - 2.0).abs() < 1.0));
        }
    }

    #[test]
    fn an_open_question_asks_for_more_machines() {
        let mean = |mean: f64, half: f64, p: f64| Mean { mean, half, p };
        assert_eq!(verdict(&mean(-0.01, 0.02, 0.3), 5, 100, 0.005), Verdict::Widen(20));
        // Not more than leaves some to compare with.
        assert_eq!(verdict(&mean(-0.01, 0.2, 0.9), 5, 40, 0.005), Verdict::Widen(37));
        assert_eq!(verdict(&mean(0.0, 0.004, 1.0), 5, 100, 0.005), Verdict::Drop);
        // A gain for certain, and too small.
        assert_eq!(verdict(&mean(-0.002, 0.001, 0.01), 5, 100, 0.005), Verdict::Drop);
        assert!(matches!(verdict(&mean(0.0, f64::NAN, f64::NAN), 5, 100, 0.0), Verdict::Widen(_)));
    }

    #[test]
    fn canaries_are_a_part_and_never_all() {
        let all: Vec<Chosen> = (0..100).map(chosen).collect();
        for (part, canaries) in [(0.05, 5), (0.0, 3), (0.01, 3), (1.0, 97)] {
            let (few, others) = choose(all.clone(), part).unwrap();
            assert_eq!((few.len(), others.len()), (canaries, 100 - canaries));
            assert!(few.iter().all(|one| !others.contains(one)));
        }
        assert_eq!(choose(all[..5].to_vec(), 0.5), Err(5));
    }

    #[test]
    fn machines_without_recordings_are_said() {
        let mut plan = Plan {
            remedy: "x".into(),
            filter: None,
            before: "2026-11-10".into(),
            canaries: (0..6).map(chosen).collect(),
            others: (6..ALL).map(chosen).collect(),
        };
        plan.canaries.push(chosen(1000));
        let rows = rows(&mut fastrand::Rng::with_seed(1), 6, 0.0);
        let answer = of_rows(&rows, &plan, Some(Layer::RunQueue), 0.005).unwrap();
        assert_eq!((answer.groups[0].0, answer.notes.len()), (6, 1));
        assert!(answer.groups[0].1[0] < 0.2, "half of it is in this layer: {answer:?}");
        plan.canaries = vec![chosen(0), chosen(1000), chosen(1001)];
        assert!(of_rows(&rows, &plan, None, 0.005).is_err_and(|e| e.to_string().contains("1 of 3 canaries")));
        assert!(file("../x").is_err() && file("a/b").is_err() && file("web-1.2").is_ok());
    }
}
