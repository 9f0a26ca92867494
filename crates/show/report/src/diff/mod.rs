//! Changes between two sides of recordings: layers, locks, calls, functions, waits, events and memory, each for a unit
//! of work, with the interval of the difference.

mod flame;
mod gate;
mod html;
mod judge;
pub(crate) mod quantity;
mod text;

use std::collections::BTreeSet;

use ncpu_record::Recording;
use ncpu_schema::View;
use ncpu_table::{Column, Kind, Table, Unit};

pub use gate::{Gate, GateError, Met};
pub use html::page;
pub use judge::Change;
pub use quantity::Section;
use quantity::{Figure, Quantities};
pub use text::render;

/// Below this share of a section a quantity does not count: there are always many small ones, and some differ by
/// chance.
const MATERIAL: f64 = 0.01;

/// One side: recordings of the same thing.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// How the user names it.
    pub name: &'a str,
    /// The recordings.
    pub recordings: &'a [Recording],
    /// Units of work done in each recording, if known.
    pub work: Option<&'a [f64]>,
}

/// The divisor of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// A unit of the work that the user counts.
    Work,
    /// A run of the command from start to end.
    Run,
    /// A second observed.
    Second,
}

impl Per {
    /// In words, after a unit.
    pub fn words(self) -> &'static str {
        match self {
            Per::Work => "a unit of work",
            Per::Run => "a run",
            Per::Second => "a second",
        }
    }
}

/// The conclusion that the interval of a change allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// More on side B.
    Grew,
    /// Less on side B.
    Shrank,
    /// The interval holds zero, or it is too small to matter.
    Same,
    /// One recording on each side: how much runs vary is not known.
    Unproven,
}

impl Verdict {
    /// The word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Grew => "grew",
            Verdict::Shrank => "shrank",
            Verdict::Same => "same",
            Verdict::Unproven => "unproven",
        }
    }
}

/// A figure on both sides.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The kind of figure.
    pub section: Section,
    /// Of what.
    pub name: String,
    /// Both sides and the interval.
    pub change: Change,
    /// The conclusion.
    pub verdict: Verdict,
}

/// Both sides beside each other.
#[derive(Clone, Debug)]
pub struct Diff {
    /// The names of the sides.
    pub names: [String; 2],
    /// How many recordings each has.
    pub counts: [usize; 2],
    /// The divisor of figures.
    pub per: Per,
    /// CPU-seconds of capacity per unit, the mean of each side.
    pub capacity: [f64; 2],
    /// Units of work a second.
    pub rate: Change,
    /// The figures: by section, largest change first.
    pub entries: Vec<Entry>,
    /// Stacks of each side for the flame graphs: seconds per unit by kind (on-cpu, spin, off-cpu) and stack.
    stacks: [flame::Stacks; 2],
    /// In what the machines or commands differ.
    pub differences: Vec<String>,
    /// Notes for the reader: figures that could not be compared, or are missing.
    pub notes: Vec<String>,
}

impl Diff {
    /// Compares two sides.
    ///
    /// # Errors
    /// A recording holds no observation, or a table of it is not what the schema says.
    pub fn of(a: Side<'_>, b: Side<'_>) -> Result<Diff, ncpu_schema::Error> {
        let sides = [a, b];
        let read =
            |side: &Side<'_>| side.recordings.iter().map(Quantities::of).collect::<Result<Vec<_>, _>>();
        let mut quantities = [read(&a)?, read(&b)?];
        let mut notes = Vec::new();
        let views: BTreeSet<Option<&str>> =
            sides.iter().flat_map(|s| s.recordings).map(|r| r.manifest.view.map(View::name)).collect();
        if views.len() > 1 {
            quantities.iter_mut().flatten().for_each(Quantities::merge);
            notes.push(
                "not all were recorded with the same rights: layers that one of them does not distinguish are compared \
                 together"
                    .into(),
            );
        }
        let all = || quantities.iter().flatten();
        let told = told_work(sides, &quantities, &mut notes);
        let given = [0, 1]
            .map(|s| sides[s].work.map(<[f64]>::to_vec).or_else(|| told.as_ref().map(|t| t[s].clone())));
        let per = match &given {
            [Some(_), Some(_)] => Per::Work,
            _ if all().all(|q| q.ran) => Per::Run,
            _ => Per::Second,
        };
        let work: [Vec<f64>; 2] = [0, 1].map(|s| {
            quantities[s]
                .iter()
                .enumerate()
                .map(|(i, q)| match (per, &given[s]) {
                    (Per::Work, Some(work)) => work.get(i).copied().unwrap_or(1.0),
                    (Per::Second, _) => q.elapsed,
                    _ => 1.0,
                })
                .map(|w| w.max(f64::MIN_POSITIVE))
                .collect()
        });
        let mean = |s: usize, of: &dyn Fn(&Quantities, f64) -> f64| {
            let n = quantities[s].len().max(1) as f64;
            quantities[s].iter().zip(&work[s]).map(|(q, &w)| of(q, w)).sum::<f64>() / n
        };
        let capacity = [0, 1].map(|s| mean(s, &|q, w| q.capacity / w));
        let rates = [0, 1].map(|s| -> Vec<Figure> {
            let rate = |(q, w): (&Quantities, &f64)| w / q.elapsed.max(f64::MIN_POSITIVE);
            quantities[s].iter().zip(&work[s]).map(rate).map(|value| Figure { value, error: 0.0 }).collect()
        });
        let rate = judge::change(&rates[0], &rates[1], None, 1);

        let (mut shared, missing) = sections(&quantities);
        if views.len() > 1 {
            // The sides counted different events, so that most would seem to have come or gone.
            shared.retain(|s| *s != Section::Events);
        }
        notes.extend(missing);
        let names: BTreeSet<&(Section, String)> =
            all().flat_map(|q| q.of.keys()).filter(|(section, _)| shared.contains(section)).collect();
        let figures: Vec<Pair<'_>> = names
            .into_iter()
            .map(|key| (key, [0, 1].map(|s| side_of(&quantities[s], &work[s], key))))
            .collect();
        let mut diff = Diff {
            names: [a.name.into(), b.name.into()],
            counts: [a.recordings.len(), b.recordings.len()],
            per,
            capacity,
            rate,
            entries: judge(&figures, capacity),
            stacks: [0, 1].map(|s| flame::stacks(sides[s].recordings, &work[s])),
            differences: differences(sides),
            notes,
        };
        diff.notes.extend(left_unsaid(sides));
        if diff.is_unproven() {
            diff.notes.push(
                "one recording on each side: the intervals are of samples alone, and runs vary by more. Record \
                 each side several times to learn what changed and what is chance"
                    .into(),
            );
        }
        Ok(diff)
    }

    /// Whether the spread of runs is unknown on both sides.
    pub fn is_unproven(&self) -> bool {
        self.counts == [1, 1]
    }

    /// The figures of a section, largest change first.
    pub fn section(&self, section: Section) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |e| e.section == section)
    }

    /// The table `diff`: a row for each figure.
    pub fn table(&self) -> Table {
        let number = |name: &str, meaning: &str| Column::float(name, Unit::Figure, Kind::Gauge, meaning);
        let mut out = Table::builder(
            "diff",
            &[
                Column::text("section", "what kind of figure"),
                Column::text("name", "of what"),
                Column::text("unit", "of the figures"),
                Column::text("per", "what they are divided by"),
                number("a", "mean of the first side"),
                number("b", "mean of the second side"),
                number("change", "b - a"),
                number("low", "lower end of its 95 % interval"),
                number("high", "upper end"),
                number("ratio", "b / a; none where a is 0"),
                Column::text("verdict", "grew, shrank, same, or unproven with one recording a side"),
            ],
        );
        for e in &self.entries {
            let c = e.change;
            out.row()
                .text(e.section.name())
                .text(&e.name)
                .text(match e.section.unit() {
                    Unit::Figure => "events",
                    unit => unit.symbol(),
                })
                .text_opt(e.section.per_work().then(|| self.per.words()))
                .float(c.a)
                .float(c.b)
                .float(c.by())
                .float(c.by() - c.half)
                .float(c.by() + c.half)
                .float_opt((c.a > 0.0).then(|| c.b / c.a))
                .text(e.verdict.word());
        }
        out.finish()
    }
}

/// A quantity and its figures on both sides, one for each recording.
type Pair<'a> = (&'a (Section, String), [Vec<Figure>; 2]);

/// The sections that every recording has, and a word about each that only some have.
fn sections(quantities: &[Vec<Quantities>; 2]) -> (Vec<Section>, Vec<String>) {
    let mut shared = Vec::new();
    let mut notes = Vec::new();
    for section in Section::ALL {
        let lacking = |side: &Vec<Quantities>| side.iter().any(|q| !q.sections.contains(&section));
        match [lacking(&quantities[0]), lacking(&quantities[1])] {
            [false, false] => shared.push(section),
            [true, true] => {}
            [a, _] => notes.push(format!(
                "{} are not compared: table `{}` is missing in {}",
                section.name(),
                section.table(),
                if a { "A" } else { "B" }
            )),
        }
    }
    (shared, notes)
}

/// Units of work by the throughput that the commands themselves told, where all of them told the same one.
fn told_work(
    sides: [Side<'_>; 2],
    quantities: &[Vec<Quantities>; 2],
    notes: &mut Vec<String>,
) -> Option<[Vec<f64>; 2]> {
    let metrics: BTreeSet<Option<&str>> = sides
        .iter()
        .flat_map(|s| s.recordings)
        .map(|r| r.manifest.throughput.as_ref().map(|t| t.metric.as_str()))
        .collect();
    match metrics.into_iter().collect::<Vec<_>>()[..] {
        [Some(_)] => {}
        [None] | [] => return None,
        _ => {
            notes.push(
                "the recordings do not all tell the same throughput (`run --metric`): figures are not for a unit of work"
                    .into(),
            );
            return None;
        }
    }
    let work = |s: usize| {
        let told = |(r, q): (&Recording, &Quantities)| {
            let per_second = r.manifest.throughput.as_ref()?.per_second;
            Some(per_second * q.elapsed).filter(|w| *w > 0.0 && w.is_finite())
        };
        sides[s].recordings.iter().zip(&quantities[s]).map(told).collect::<Option<Vec<f64>>>()
    };
    Some([work(0)?, work(1)?])
}

/// A figure in each recording of a side. One that a recording does not name did not occur in it.
fn side_of(quantities: &[Quantities], work: &[f64], key: &(Section, String)) -> Vec<Figure> {
    let one = |(q, w): (&Quantities, &f64)| {
        let w = if key.0.per_work() { *w } else { 1.0 };
        let f = q.of.get(key).copied().unwrap_or_default();
        Figure { value: f.value / w, error: f.error / w }
    };
    quantities.iter().zip(work).map(one).collect()
}

fn judge(figures: &[Pair<'_>], capacity: [f64; 2]) -> Vec<Entry> {
    let sum = |side: &[Figure]| side.iter().map(|f| f.value).sum::<f64>() / side.len().max(1) as f64;
    // CPU-seconds matter beside the capacity, the others beside what their section holds.
    let scale = |section: Section| match section.unit() {
        Unit::CpuSeconds => capacity[0].max(capacity[1]),
        Unit::Figure => 0.0,
        _ => [0, 1]
            .map(|s| figures.iter().filter(|(k, _)| k.0 == section).map(|(_, f)| sum(&f[s])).sum())
            .into_iter()
            .fold(0.0, f64::max),
    };
    let scales = Section::ALL.map(|s| (s, scale(s)));
    let material = |section: Section, [a, b]: &[Vec<Figure>; 2]| {
        let scale = scales.iter().find(|(s, _)| *s == section).map_or(0.0, |s| s.1);
        sum(a).max(sum(b)) >= MATERIAL * scale
    };
    let matter: Vec<_> = figures.iter().filter(|(k, f)| material(k.0, f)).collect();
    // Per unit, since sizes are compared: level and relative variance of what matters.
    let spreads: Vec<(Unit, judge::Spread)> =
        matter.iter().filter_map(|(k, [a, b])| Some((k.0.unit(), judge::spread(a, b)?))).collect();
    let lent = |section: Section, a: &[Figure], b: &[Figure]| {
        let alike = spreads.iter().filter(|(unit, _)| *unit == section.unit()).map(|(_, spread)| spread);
        judge::lent(alike, (section.unit() != Unit::Figure).then(|| judge::level(a, b)))
    };
    let mut entries: Vec<Entry> = figures
        .iter()
        .map(|(key, [a, b])| {
            let change = judge::change(a, b, lent(key.0, a, b), matter.len());
            let verdict = match (a.len() + b.len() > 2, material(key.0, &[a.clone(), b.clone()])) {
                (false, _) => Verdict::Unproven,
                (true, false) => Verdict::Same,
                (true, true) if !change.is_told_apart() => Verdict::Same,
                (true, true) if change.by() > 0.0 => Verdict::Grew,
                (true, true) => Verdict::Shrank,
            };
            Entry { section: key.0, name: key.1.clone(), change, verdict }
        })
        .collect();
    entries.sort_by(|x, y| {
        // Events have no common unit: by how many times.
        let size = |e: &Entry| match e.section.unit() {
            Unit::Figure => ((e.change.b + 1.0) / (e.change.a + 1.0)).ln().abs(),
            _ => e.change.by().abs(),
        };
        let proven = |e: &Entry| matches!(e.verdict, Verdict::Grew | Verdict::Shrank);
        x.section.cmp(&y.section).then(proven(y).cmp(&proven(x))).then(size(y).total_cmp(&size(x)))
    });
    entries
}

/// Characters of a fact that are printed: a command may be of any length.
const LONGEST_FACT: usize = 400;

/// In what the two sides' machines, kernels and commands differ.
fn differences(sides: [Side<'_>; 2]) -> Vec<String> {
    type Fact = fn(&Recording) -> String;
    let told = |of: Fact| {
        sides.map(|side| {
            let values: BTreeSet<String> = side.recordings.iter().map(of).collect();
            values.into_iter().collect::<Vec<_>>().join(", ")
        })
    };
    let facts: [(&str, Fact); 7] = [
        ("seen", |r| r.manifest.view.map_or("everything", View::name).into()),
        ("CPUs", |r| r.manifest.cpus.to_string()),
        ("processor", |r| r.manifest.cpu_model.clone()),
        ("kernel", |r| r.manifest.kernel.clone()),
        ("host", |r| r.manifest.host.clone()),
        ("command", |r| r.manifest.command.join(" ")),
        ("ncpu", |r| r.manifest.ncpu_version.clone()),
    ];
    facts
        .into_iter()
        .map(|(name, of)| (name, told(of)))
        .filter(|(_, [a, b])| a != b)
        .map(|(name, [a, b])| {
            let or = |s: String| {
                if s.is_empty() { "unknown".to_string() } else { ncpu_table::safe::cut(&s, LONGEST_FACT) }
            };
            format!("{name}: {} -> {}", or(a), or(b))
        })
        .collect()
}

/// Notes for the reader on the recordings themselves.
fn left_unsaid(sides: [Side<'_>; 2]) -> Vec<String> {
    let mut notes = Vec::new();
    for (letter, side) in ["A", "B"].into_iter().zip(sides) {
        let cut = side.recordings.iter().filter(|r| !r.recovered.is_empty()).count();
        if cut > 0 {
            notes.push(format!(
                "{cut} of the {} recordings of {letter} were cut off: their last interval is missing",
                side.recordings.len()
            ));
        }
    }
    notes
}

#[cfg(test)]
mod tests;
