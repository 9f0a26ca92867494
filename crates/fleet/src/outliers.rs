//! Machines unlike their kin: those of the same kernel, processor, size and labels.
//!
//! A machine is compared with the middle of its kin, layer by layer and lock by lock, in units of their spread; both are
//! medians, so that outliers do not hide each other. How far off is too far follows from the number of comparisons.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_table::{Column, Kind, Table, Unit};

use crate::ask::{Asked, By, Question};
use crate::statistics::{middle, threshold};
use crate::{Result, labels};

/// Kin that are needed for a machine to be unlike them.
pub const FEWEST: usize = 8;

/// The spread is taken to be at least this part of the least difference that is told: kin that agree to a hair would
/// make an outlier of anyone.
const SPREAD: f64 = 0.1;

/// A machine that is unlike its kin.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// What it has in common with its kin.
    pub group: Vec<String>,
    /// Its name.
    pub host: String,
    /// Layer or lock, and which one.
    pub subject: (String, String),
    /// Its share of its capacity.
    pub share: f64,
    /// The middle of its kin's.
    pub middle: f64,
    /// How many spreads it is off.
    pub off: f64,
    /// How many kin there are, itself among them.
    pub kin: usize,
}

/// What is unlike.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Those that are, most unlike first.
    pub outliers: Vec<Outlier>,
    /// What the user should know.
    pub notes: Vec<String>,
}

#[derive(Default)]
struct Machine {
    host: String,
    capacity: f64,
    subjects: BTreeMap<(String, String), f64>,
}

/// Asks for machines that are off by at least `least` of capacity.
///
/// # Errors
/// As [`Asked::ask`].
pub fn ask(asked: &mut Asked, question: &Question, least: f64) -> Result<Answer> {
    let raw = asked.ask("outliers", include_str!("../sql/outliers.sql"), question)?;
    Ok(judge(&raw, &question.by, least))
}

/// Judges rows of a machine and a subject: see `sql/outliers.sql`.
pub fn judge(raw: &Table, by: &[By], least: f64) -> Answer {
    let mut groups: BTreeMap<Vec<String>, BTreeMap<String, Machine>> = BTreeMap::new();
    for r in 0..raw.num_rows() {
        let Some(name) = raw.text(r, "machine") else { continue };
        let group = by.iter().map(|b| labels::decoded(raw.text(r, &b.name).unwrap_or(""))).collect();
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
    let mut answer = Answer::default();
    let alone: usize = groups.values().filter(|g| g.len() < FEWEST).map(BTreeMap::len).sum();
    if alone > 0 {
        answer.notes.push(format!(
            "{alone} machines have fewer than {} kin: nothing is said of them (--by says what kin have in common)",
            FEWEST - 1
        ));
    }
    groups.retain(|_, g| g.len() >= FEWEST);
    let subjects = |g: &BTreeMap<String, Machine>| -> BTreeSet<(String, String)> {
        g.values().flat_map(|m| m.subjects.keys().cloned()).collect()
    };
    let tests: usize = groups.values().map(|g| g.len() * subjects(g).len()).sum();
    let limit = threshold(tests);
    for (group, machines) in &groups {
        for subject in subjects(machines) {
            let share = |m: &Machine| match m.capacity > 0.0 {
                true => m.subjects.get(&subject).copied().unwrap_or(0.0) / m.capacity,
                false => 0.0,
            };
            let shares: Vec<f64> = machines.values().map(share).collect();
            let Some((centre, spread)) = middle(&shares) else { continue };
            let spread = spread.max(SPREAD * least);
            for (machine, share) in machines.values().zip(shares) {
                let off = (share - centre) / spread;
                if off.abs() > limit && (share - centre).abs() >= least {
                    answer.outliers.push(Outlier {
                        group: group.clone(),
                        host: machine.host.clone(),
                        subject: subject.clone(),
                        share,
                        middle: centre,
                        off,
                        kin: machines.len(),
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

impl Answer {
    /// As a table.
    pub fn table(&self, by: &[By], top: Option<u64>) -> Table {
        let percent = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Gauge, meaning);
        let mut columns = vec![
            Column::text("host", "the machine"),
            Column::text("what", "layer of the onion, or kernel lock by what it spun"),
            Column::text("name", "which one"),
            percent("share", "share of its capacity"),
            percent("kin's", "the middle of its kin's"),
            Column::float("off", Unit::None, Kind::Gauge, "how many spreads of its kin it is off"),
            Column::count("kin", "how many they are"),
        ];
        columns.extend(by.iter().map(|b| Column::text(&b.name, "what they have in common")));
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
