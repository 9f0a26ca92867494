//! Changes between two periods, judged by machine.
//!
//! A machine's recordings resemble each other, so a thousand recordings of ten machines are less evidence
//! than they seem. Here each machine gives one difference for each layer and lock, its share of capacity
//! after minus that before. A group's change is the mean of its machines' differences, with Student's
//! interval over machines. Whether one machine changed is judged by the spread of its recordings (Welch).
//! Both are adjusted for the number of tests.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_statistics::{LEVEL, Mean, Moments, adjusted, mean, welch};
use ncpu_table::{Column, Kind, Table, Unit};

use crate::ask::{Asked, By, Question};
use crate::{Result, labels};

/// The least number of machines of a group for a judgement.
pub const FEWEST: usize = 3;

/// A layer or a lock.
pub type Subject = (String, String);

/// A machine's data in the two periods.
#[derive(Clone, Debug, Default)]
struct Machine {
    group: Vec<String>,
    host: String,
    /// Recordings and capacity in microseconds, before and after.
    whole: [(f64, f64); 2],
    /// Microseconds, sum and sum of squares of parts per million, before and after.
    subjects: BTreeMap<Subject, [(f64, Moments); 2]>,
}

/// A change of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The group.
    pub group: Vec<String>,
    /// The layer or lock that changed.
    pub subject: Subject,
    /// Mean share of its machines, before and after.
    pub shares: [f64; 2],
    /// The change, its interval, and its p-value adjusted.
    pub change: Mean,
    /// The number of machines of the group, and of those that changed beyond their own noise in this
    /// direction.
    pub machines: (usize, usize),
}

/// A change of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Its group.
    pub group: Vec<String>,
    /// Its name.
    pub host: String,
    /// The layer or lock that changed.
    pub subject: Subject,
    /// Its shares before and after.
    pub shares: [f64; 2],
    /// The change.
    pub change: Mean,
    /// Recordings before and after.
    pub recordings: [u64; 2],
}

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Groups, largest change first.
    pub changes: Vec<Change>,
    /// Machines, largest change first.
    pub machines: Vec<Changed>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Queries the changes by at least `least` of capacity.
///
/// # Errors
/// As [`Asked::ask`].
pub fn ask(asked: &mut Asked, question: &Question, least: f64) -> Result<Answer> {
    let raw = asked.ask("regress", include_str!("../sql/regress.sql"), question)?;
    Ok(judge(&raw, &question.by, least))
}

/// The machines of the rows, by name.
fn machines(raw: &Table, by: &[By]) -> BTreeMap<String, Machine> {
    let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
    for r in 0..raw.num_rows() {
        let (Some(name), Some(period)) = (raw.text(r, "machine"), raw.int(r, "period")) else { continue };
        let at = usize::from(period > 0);
        let number = |c: &str| raw.number(r, c).unwrap_or(0.0);
        let machine = machines.entry(name.into()).or_default();
        machine.group = by.iter().map(|b| labels::decoded(raw.text(r, &b.name).unwrap_or(""))).collect();
        machine.host = raw.text(r, "host").unwrap_or("").into();
        match raw.text(r, "subject").unwrap_or("") {
            "machine" => machine.whole[at] = (number("recordings"), number("us")),
            subject => {
                let key = (subject.to_string(), raw.text(r, "name").unwrap_or("").to_string());
                let moments = Moments { n: 0.0, sum: number("ppm"), squares: number("squares") };
                machine.subjects.entry(key).or_default()[at] = (number("us"), moments);
            }
        }
    }
    machines
}

/// The part of each machine's capacity that some layers take, before and after, of machines with recordings in both periods.
pub(crate) fn shares(raw: &Table, layers: &[&str]) -> BTreeMap<String, [f64; 2]> {
    let mut out = BTreeMap::new();
    for (name, machine) in machines(raw, &[]) {
        if machine.whole.iter().any(|(n, capacity)| *n <= 0.0 || *capacity <= 0.0) {
            continue;
        }
        let mut sums = [0.0; 2];
        for ((subject, layer), cells) in &machine.subjects {
            if subject == "layer" && layers.contains(&layer.as_str()) {
                (0..2).for_each(|i| sums[i] += cells[i].0 / machine.whole[i].1);
            }
        }
        out.insert(name, sums);
    }
    out
}

/// Judges the rows of `sql/regress.sql`, one per machine, period and subject.
pub fn judge(raw: &Table, by: &[By], least: f64) -> Answer {
    let mut machines = machines(raw, by);
    let seen = machines.len();
    machines.retain(|_, m| m.whole.iter().all(|(n, capacity)| *n > 0.0 && *capacity > 0.0));
    let mut answer = Answer::default();
    if machines.len() < seen {
        answer.notes.push(format!(
            "{} of {seen} machines have recordings in one period only and are left out",
            seen - machines.len()
        ));
    }
    let subjects: BTreeSet<&Subject> = machines.values().flat_map(|m| m.subjects.keys()).collect();
    let mut groups: BTreeMap<&[String], Vec<&Machine>> = BTreeMap::new();
    for machine in machines.values() {
        groups.entry(&machine.group).or_default().push(machine);
    }
    let few = groups.iter().filter(|(_, m)| m.len() < FEWEST).count();
    if few > 0 {
        answer.notes.push(format!("{few} groups have fewer than {FEWEST} machines and are not judged"));
    }
    // All tests are made before any is judged, because their number matters.
    let (mut changes, mut own) = (Vec::new(), Vec::new());
    for subject in subjects {
        for (group, members) in &groups {
            let mut differences = Vec::with_capacity(members.len());
            let mut sums = [0.0; 2];
            let mut there = false;
            for machine in members {
                let cells = machine.subjects.get(subject).copied().unwrap_or_default();
                let shares = [0, 1].map(|i| cells[i].0 / machine.whole[i].1);
                there |= shares != [0.0; 2];
                differences.push(shares[1] - shares[0]);
                (0..2).for_each(|i| sums[i] += shares[i]);
                // Fewer than three values do not determine a spread.
                let sample = |i: usize| {
                    let moments = Moments { n: machine.whole[i].0, ..cells[i].1 };
                    moments.sample().filter(|sample| sample.n >= 3.0)
                };
                if shares != [0.0; 2]
                    && let Some((before, after)) = sample(0).zip(sample(1))
                {
                    let change = welch(before, after);
                    own.push(Changed {
                        group: machine.group.clone(),
                        host: machine.host.clone(),
                        subject: subject.clone(),
                        shares,
                        change: Mean { half: change.half / 1e6, mean: shares[1] - shares[0], p: change.p },
                        recordings: [0, 1].map(|i| machine.whole[i].0 as u64),
                    });
                }
            }
            if there
                && members.len() >= FEWEST
                && let Some(change) = mean(&differences)
            {
                changes.push(Change {
                    group: group.to_vec(),
                    subject: subject.clone(),
                    shares: sums.map(|s| s / members.len() as f64),
                    change,
                    machines: (members.len(), 0),
                });
            }
        }
    }
    let p = adjusted(&changes.iter().map(|c| c.change.p).collect::<Vec<_>>());
    changes.iter_mut().zip(p).for_each(|(c, p)| c.change.p = p);
    let p = adjusted(&own.iter().map(|c| c.change.p).collect::<Vec<_>>());
    own.iter_mut().zip(p).for_each(|(c, p)| c.change.p = p);
    let beyond = |m: &Mean| m.p < LEVEL && m.mean.abs() >= least;
    own.retain(|c| beyond(&c.change));
    changes.retain(|c| beyond(&c.change));
    for change in &mut changes {
        let same = |c: &&Changed| {
            c.subject == change.subject
                && c.group == change.group
                && (c.change.mean > 0.0) == (change.change.mean > 0.0)
        };
        change.machines.1 = own.iter().filter(same).count();
    }
    changes.sort_by(|a, b| {
        let by_size = b.change.mean.abs().total_cmp(&a.change.mean.abs());
        by_size.then_with(|| (&a.group, &a.subject).cmp(&(&b.group, &b.subject)))
    });
    own.sort_by(|a, b| {
        let by_size = b.change.mean.abs().total_cmp(&a.change.mean.abs());
        by_size.then_with(|| (&a.host, &a.subject).cmp(&(&b.host, &b.subject)))
    });
    answer.changes = changes;
    answer.machines = own;
    answer
}

fn of_groups(by: &[By]) -> Vec<Column> {
    by.iter().map(|b| Column::text(&b.name, "the group, after")).collect()
}

fn of_change(subject: &str) -> Vec<Column> {
    let percent = |name: &str, meaning: &str| Column::float(name, Unit::Percent, Kind::Gauge, meaning);
    vec![
        Column::text("what", "layer of the onion, or kernel lock by its spin time"),
        Column::text("name", "which one"),
        percent("before", &format!("share of {subject}'s capacity before")),
        percent("after", &format!("share of {subject}'s capacity after")),
        percent("change", "after minus before"),
        percent("low", "lower end of its 95 % interval"),
        percent("high", "upper end of its 95 % interval"),
    ]
}

impl Answer {
    /// The groups as a table.
    pub fn table(&self, by: &[By], top: Option<u64>) -> Table {
        let mut columns = of_groups(by);
        columns.extend(of_change("the group"));
        columns.push(Column::count("machines", "machines of the group with recordings in both periods"));
        columns.push(Column::count(
            "changed",
            "those of them that changed in this direction beyond their own noise",
        ));
        columns.push(Column::float(
            "p",
            Unit::None,
            Kind::Gauge,
            "chance of it where nothing changed, adjusted",
        ));
        let mut out = Table::builder("regress", &columns);
        for c in self.changes.iter().take(top.map_or(usize::MAX, |n| n as usize)) {
            let row = c.group.iter().fold(out.row(), |row, g| row.text(g));
            cells(row, &c.subject, c.shares, &c.change)
                .int(c.machines.0 as u64)
                .int(c.machines.1 as u64)
                .float(c.change.p);
        }
        out.finish()
    }

    /// The machines as a table.
    pub fn machines(&self, by: &[By], top: Option<u64>) -> Table {
        let mut columns = of_groups(by);
        columns.push(Column::text("host", "the machine"));
        columns.extend(of_change("the machine"));
        columns.push(Column::count("recordings before", "recordings before"));
        columns.push(Column::count("recordings after", "recordings after"));
        columns.push(Column::float(
            "p",
            Unit::None,
            Kind::Gauge,
            "chance of it where nothing changed, adjusted",
        ));
        let mut out = Table::builder("changed", &columns);
        for c in self.machines.iter().take(top.map_or(usize::MAX, |n| n as usize)) {
            let row = c.group.iter().fold(out.row(), |row, g| row.text(g));
            cells(row.text(&c.host), &c.subject, c.shares, &c.change)
                .int(c.recordings[0])
                .int(c.recordings[1])
                .float(c.change.p);
        }
        out.finish()
    }
}

fn cells<'a>(
    row: ncpu_table::Row<'a>,
    subject: &Subject,
    shares: [f64; 2],
    change: &Mean,
) -> ncpu_table::Row<'a> {
    row.text(&subject.0)
        .text(&subject.1)
        .float(100.0 * shares[0])
        .float(100.0 * shares[1])
        .float(100.0 * change.mean)
        .float(100.0 * (change.mean - change.half))
        .float(100.0 * (change.mean + change.half))
}
