//! Outliers: machines that differ from their kin, the machines with the same kernel, processor, size and
//! labels.
//!
//! A machine is compared with the median of its kin, layer by layer and lock by lock, in units of their
//! spread. Both are medians, so outliers do not hide each other. The threshold follows from the number of
//! comparisons.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_statistics::{middle, threshold};
use ncpu_table::{Column, Kind, Table, Unit};

use crate::ask::{self, Asked, By, Question};
use crate::{Result, labels};

/// The least number of kin for a comparison.
pub const FEWEST: usize = 8;

/// The spread is at least this part of the least reported difference: otherwise nearly equal kin would make
/// every machine an outlier.
const SPREAD: f64 = 0.1;

/// A machine that differs from its kin.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// The values that it shares with its kin.
    pub group: Vec<String>,
    /// Its name.
    pub host: String,
    /// Layer or lock, and which one.
    pub subject: (String, String),
    /// Its share of its capacity.
    pub share: f64,
    /// The median of its kin.
    pub middle: f64,
    /// Its distance in spreads.
    pub off: f64,
    /// The number of its kin, including itself.
    pub kin: usize,
}

/// Result of a search for outliers.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The outliers, largest distance first.
    pub outliers: Vec<Outlier>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

#[derive(Default)]
struct Machine {
    host: String,
    capacity: f64,
    subjects: BTreeMap<(String, String), f64>,
}

impl Machine {
    fn share(&self, subject: &(String, String)) -> f64 {
        match self.capacity > 0.0 {
            true => self.subjects.get(subject).copied().unwrap_or(0.0) / self.capacity,
            false => 0.0,
        }
    }
}

/// Machines that are compared with each other.
struct Kin<'a> {
    /// The values that they share.
    group: Vec<String>,
    machines: Vec<&'a Machine>,
    /// Machines without closer kin: only they are judged here.
    judged: Vec<bool>,
}

impl Kin<'_> {
    fn subjects(&self) -> BTreeSet<(String, String)> {
        self.machines.iter().flat_map(|m| m.subjects.keys().cloned()).collect()
    }
}

/// The columns in which kin agree by default.
pub const BY: [&str; 4] = ["kernel", "cpu_model", "cpus", "labels"];

/// Queries the machines that differ by at least `least` of capacity. Without groups in the question, kin
/// agree in as many of [`BY`] as leaves at least [`FEWEST`] of them.
///
/// # Errors
/// As [`Asked::ask`].
pub fn ask(asked: &mut Asked, question: &Question, least: f64) -> Result<Answer> {
    if !question.by.is_empty() {
        let raw = asked.ask("outliers", include_str!("../sql/outliers.sql"), question)?;
        return Ok(judge(&raw, &question.by, least, false));
    }
    let question = Question { by: ask::by(&BY.map(String::from))?, ..question.clone() };
    let raw = asked.ask("outliers", include_str!("../sql/outliers.sql"), &question)?;
    Ok(judge(&raw, &question.by, least, true))
}

/// Judges the rows of `sql/outliers.sql`, one per machine and subject. With `widen`, groups by [`BY`] that
/// are too small are judged with machines that have less in common.
pub fn judge(raw: &Table, by: &[By], least: f64, widen: bool) -> Answer {
    let mut groups: BTreeMap<Vec<String>, BTreeMap<String, Machine>> = BTreeMap::new();
    for r in 0..raw.num_rows() {
        let Some(name) = raw.text(r, "machine") else { continue };
        // `Asked::ask` has decoded them.
        let group = by.iter().map(|b| raw.text(r, &b.name).unwrap_or("").to_string()).collect();
        let machine = groups.entry(group).or_default().entry(name.into()).or_default();
        machine.host = raw.text(r, "host").unwrap_or("").into();
        let us = raw.number(r, "us").unwrap_or(0.0);
        match raw.text(r, "subject").unwrap_or("") {
            "machine" => machine.capacity = us,
            subject => {
                let name = raw.text(r, "name").unwrap_or("").to_string();
                machine.subjects.insert((subject.into(), name), us);
            }
        }
    }
    let kin = if widen { widened(&groups) } else { plain(&groups) };
    let mut answer = Answer::default();
    let all: usize = groups.values().map(BTreeMap::len).sum();
    let judged: usize = kin.iter().map(|k| k.judged.iter().filter(|judged| **judged).count()).sum();
    if judged < all {
        answer.notes.push(format!(
            "{} machines have fewer than {} kin and are not judged (--by selects what kin have in common)",
            all - judged,
            FEWEST - 1
        ));
    }
    let tests: usize = kin.iter().map(|k| k.machines.len() * k.subjects().len()).sum();
    let limit = threshold(tests);
    for kin in &kin {
        for subject in kin.subjects() {
            let shares: Vec<f64> = kin.machines.iter().map(|m| m.share(&subject)).collect();
            let Some((centre, spread)) = middle(&shares) else { continue };
            let spread = spread.max(SPREAD * least);
            let judged = kin.machines.iter().zip(shares).zip(&kin.judged).filter(|(_, judged)| **judged);
            for ((machine, share), _) in judged {
                let off = (share - centre) / spread;
                if off.abs() > limit && (share - centre).abs() >= least {
                    answer.outliers.push(Outlier {
                        group: kin.group.clone(),
                        host: machine.host.clone(),
                        subject: subject.clone(),
                        share,
                        middle: centre,
                        off,
                        kin: kin.machines.len(),
                    });
                }
            }
        }
    }
    answer.outliers.sort_by(|a, b| {
        let size = |o: &Outlier| (o.share - o.middle).abs();
        size(b).total_cmp(&size(a)).then_with(|| (&a.host, &a.subject).cmp(&(&b.host, &b.subject)))
    });
    answer
}

/// The groups that are large enough.
fn plain(groups: &BTreeMap<Vec<String>, BTreeMap<String, Machine>>) -> Vec<Kin<'_>> {
    let large = groups.iter().filter(|(_, machines)| machines.len() >= FEWEST);
    large
        .map(|(group, machines)| Kin {
            group: group.clone(),
            judged: vec![true; machines.len()],
            machines: machines.values().collect(),
        })
        .collect()
}

/// For each machine, enough machines that have most in common with it. Labels by which no machine has kin,
/// such as a rack's, are dropped first; then kernel, processor and CPUs, because a machine's work matters
/// more to its layers; then the labels, those with most values first.
fn widened(groups: &BTreeMap<Vec<String>, BTreeMap<String, Machine>>) -> Vec<Kin<'_>> {
    // The values of each machine by name: a column, or `label:KEY`.
    let mut has: Vec<(BTreeMap<String, String>, &Machine)> = Vec::new();
    for (group, machines) in groups {
        let mut facts = BTreeMap::new();
        for (name, value) in BY.iter().zip(group) {
            match *name {
                "labels" => {
                    facts.extend(labels::pairs(value).map(|(key, value)| (format!("label:{key}"), value)));
                }
                name => drop(facts.insert(name.to_string(), value.clone())),
            }
        }
        has.extend(machines.values().map(|machine| (facts.clone(), machine)));
    }
    let mut values: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (name, value) in has.iter().flat_map(|(facts, _)| facts) {
        *values.entry(name).or_default().entry(value).or_default() += 1;
    }
    let is_label = |name: &str| name.starts_with("label:");
    let alone = |name: &str| values.get(name).is_some_and(|v| v.values().all(|count| *count < FEWEST));
    let mut names: Vec<&str> = values.keys().copied().filter(|name| is_label(name)).collect();
    names.sort_by_key(|name| (!alone(name), std::cmp::Reverse(values.get(name).map_or(0, BTreeMap::len))));
    let first = names.iter().filter(|name| alone(name)).count();
    names.splice(first..first, BY.into_iter().filter(|name| *name != "labels"));

    let mut placed = vec![false; has.len()];
    let mut out = Vec::new();
    for given_up in 0..=names.len() {
        let kept = names.get(given_up..).unwrap_or_default();
        let mut alike: BTreeMap<Vec<Option<&String>>, Vec<usize>> = BTreeMap::new();
        for (at, (facts, _)) in has.iter().enumerate() {
            alike.entry(kept.iter().map(|name| facts.get(*name)).collect()).or_default().push(at);
        }
        for (facts, members) in alike.into_iter().filter(|(_, members)| members.len() >= FEWEST) {
            let judged: Vec<bool> =
                members.iter().map(|at| !std::mem::replace(&mut placed[*at], true)).collect();
            if judged.contains(&true) {
                let facts = kept.iter().copied().zip(facts).filter_map(|(name, value)| Some((name, value?)));
                let machines = members.iter().map(|at| has[*at].1).collect();
                out.push(Kin { group: columns(facts), machines, judged });
            }
        }
    }
    out
}

/// The common values of kin in the columns of [`BY`]; `any` if they differ.
fn columns<'a>(facts: impl Iterator<Item = (&'a str, &'a String)>) -> Vec<String> {
    let facts: BTreeMap<&str, &String> = facts.collect();
    let column = |name: &str| match name {
        "labels" => {
            let labels = facts.iter().filter_map(|(name, value)| Some((name.strip_prefix("label:")?, value)));
            labels.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(";")
        }
        name => facts.get(name).map_or("any", |value| value).to_string(),
    };
    BY.iter().map(|name| column(name)).map(|text| if text.is_empty() { "any".into() } else { text }).collect()
}

impl Answer {
    /// The result as a table; without `by` the columns are those of [`BY`].
    pub fn shown(&self, by: &[By], top: Option<u64>) -> Table {
        match by.is_empty() {
            true => self.table(&BY, top),
            false => self.table(&by.iter().map(|b| b.name.as_str()).collect::<Vec<_>>(), top),
        }
    }

    /// The result as a table.
    fn table(&self, by: &[&str], top: Option<u64>) -> Table {
        let percent = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Gauge, meaning);
        let mut columns = vec![
            Column::text("host", "the machine"),
            Column::text("what", "layer of the onion, or kernel lock by its spin time"),
            Column::text("name", "which one"),
            percent("share", "share of its capacity"),
            percent("kin's", "median of its kin"),
            Column::float("off", Unit::None, Kind::Gauge, "distance from the median, in spreads of its kin"),
            Column::count("kin", "number of its kin"),
        ];
        columns.extend(by.iter().map(|name| Column::text(name, "what they have in common")));
        let mut out = Table::builder("outliers", &columns);
        for o in self.outliers.iter().take(top.map_or(usize::MAX, |n| n as usize)) {
            let row = out
                .row()
                .text(&o.host)
                .text(&o.subject.0)
                .text(&o.subject.1)
                .float(100.0 * o.share)
                .float(100.0 * o.middle)
                .float(o.off)
                .int(o.kin as u64);
            o.group.iter().fold(row, |row, g| row.text(g.trim_matches(';')));
        }
        out.finish()
    }
}
