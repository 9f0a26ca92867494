//! Runs of benchmarks beside each other, as a table.

use ncpu_table::{Column, Kind, Table, Unit};

use super::{Ratio, geometric_mean};
use crate::stats::Summary;

/// A benchmark of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// Processes.
    pub processes: Option<u64>,
    /// Threads in each.
    pub threads: Option<u64>,
    /// Its number among the run's rows that share all three.
    pub nth: usize,
}

impl Key {
    /// Of a command instead of a benchmark.
    pub fn of_command() -> Key {
        Key { name: "command".into(), ..Key::default() }
    }
}

/// A benchmark's figures in one run.
#[derive(Clone, Debug)]
pub struct Known {
    /// The median; NaN without one.
    pub time: f64,
    /// The median of all samples.
    pub raw: Option<f64>,
    /// The reason for a missing figure.
    pub why: String,
}

impl Known {
    /// Whether there is a figure.
    pub fn measured(&self) -> bool {
        self.time > 0.0 && self.time.is_finite()
    }
}

/// The benchmarks of a run, in its order.
pub type Run = Vec<(Key, Known)>;

/// Reads a table of `ncpu bench`.
///
/// # Errors
/// It has no benchmarks or no times.
pub fn read(table: &Table) -> ncpu_table::Result<Run> {
    ["benchmark", "time"].iter().try_for_each(|c| table.index(c).map(|_| ()))?;
    // JSON has seconds, and is known by its keys; all else has microseconds, as has JSON of before.
    let scale = if table.index("cnt_per_samp").is_ok() { 1e6 } else { 1.0 };
    let mut out = Run::new();
    for r in 0..table.num_rows() {
        let mut key = Key {
            name: table.text(r, "benchmark").unwrap_or("?").into(),
            processes: table.int(r, "prc"),
            threads: table.int(r, "thr"),
            nth: 0,
        };
        key.nth = out.iter().filter(|(k, _)| Key { nth: 0, ..k.clone() } == key).count();
        let known = Known {
            time: table.number(r, "time").map_or(f64::NAN, |x| x * scale),
            raw: table.number(r, "rawmedian").map(|x| x * scale),
            why: table.text(r, "notes").unwrap_or_default().into(),
        };
        out.push((key, known));
    }
    Ok(out)
}

/// Times of A and B that ran next to each other.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    /// Medians.
    pub times: Vec<(f64, f64)>,
    /// Medians of all samples.
    pub raw: Vec<(f64, f64)>,
    /// The reason for missing pairs.
    pub why: String,
}

impl Pairs {
    /// Adds what both had, or why they had not.
    pub fn add(&mut self, a: &Known, b: Option<&Known>) {
        match b {
            None => self.why = "only in A".into(),
            Some(b) if a.measured() && b.measured() => {
                self.times.push((a.time, b.time));
                self.raw.extend(a.raw.zip(b.raw));
            }
            Some(b) => self.why = unmeasured(&[a], &[b]),
        }
    }
}

/// Which has no figure, and why.
fn unmeasured(a: &[&Known], b: &[&Known]) -> String {
    let why = |(name, runs): (&str, &[&Known])| {
        runs.iter().find(|k| !k.measured()).map(|k| format!("{name}: {}", k.why))
    };
    [("A", a), ("B", b)].into_iter().filter_map(why).collect::<Vec<_>>().join("; ")
}

/// A row of the comparison.
struct Row<'a> {
    key: &'a Key,
    times: [Option<f64>; 2],
    ratio: Option<Ratio>,
    raw: [Option<f64>; 2],
    raw_ratio: Option<f64>,
    pairs: Option<u64>,
    notes: String,
}

fn table<'a>(unit: Unit, rows: impl IntoIterator<Item = Row<'a>>) -> Table {
    let time = |name: &str, meaning: &str| Column::float(name, unit, Kind::Gauge, meaning);
    let ratio = |name: &str, meaning: &str| Column::float(name, Unit::Share, Kind::Gauge, meaning);
    let columns = [
        Column::text("benchmark", "its name"),
        Column::int("prc", Unit::None, Kind::Key, "processes"),
        Column::int("thr", Unit::None, Kind::Key, "threads in each"),
        time(
            "A",
            "median of A, outliers and disturbed samples left out; of several runs their geometric mean",
        ),
        time("B", "median of B"),
        ratio("ratio", "B over A; of pairs, the median of the pairs' ratios"),
        ratio("low", "lower end of the ratio's 95 % confidence interval; none from one run of each"),
        ratio("high", "upper end of it"),
        Column::text(
            "verdict",
            "slower or faster where the interval does not hold 1, same where it does, unknown where there is none",
        ),
        time("A_raw", "median of A, all samples"),
        time("B_raw", "median of B, all samples"),
        ratio("ratio_raw", "B over A of these"),
        Column::count("pairs", "runs of A next to B"),
        Column::text("notes", "reason for a missing ratio"),
    ];
    let mut out = Table::builder("compare", &columns);
    for Row { key, times, ratio, raw, raw_ratio, pairs, notes } in rows {
        let interval = ratio.and_then(|r| r.interval);
        out.row()
            .text(&key.name)
            .int_opt(key.processes)
            .int_opt(key.threads)
            .float_opt(times[0])
            .float_opt(times[1])
            .float_opt(ratio.map(|r| r.value))
            .float_opt(interval.map(|i| i.0))
            .float_opt(interval.map(|i| i.1))
            .text_opt(ratio.as_ref().map(verdict))
            .float_opt(raw[0])
            .float_opt(raw[1])
            .float_opt(raw_ratio)
            .int_opt(pairs)
            .text(notes);
    }
    out.finish()
}

fn verdict(ratio: &Ratio) -> &'static str {
    match (ratio.differs(), ratio.value > 1.0) {
        (None, _) => "unknown",
        (Some(false), _) => "same",
        (Some(true), true) => "slower",
        (Some(true), false) => "faster",
    }
}

/// The comparison of runs that were made apart.
pub fn apart(a: &[Run], b: &[Run]) -> Table {
    let mut keys: Vec<&Key> = Vec::new();
    for (key, _) in a.iter().chain(b).flatten() {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    table(
        Unit::MicrosecondsPerCall,
        keys.into_iter().map(|key| {
            let [of_a, of_b] = [a, b].map(|runs| {
                runs.iter()
                    .flatten()
                    .filter(|(k, _)| k == key)
                    .map(|(_, known)| known)
                    .collect::<Vec<&Known>>()
            });
            let [times_a, times_b] = [&of_a, &of_b]
                .map(|runs| runs.iter().filter(|k| k.measured()).map(|k| k.time).collect::<Vec<f64>>());
            let raw = [&of_a, &of_b]
                .map(|runs| geometric_mean(runs.iter().filter_map(|k| k.raw).filter(|x| *x > 0.0)));
            let ratio = Ratio::of_runs(&times_a, &times_b);
            Row {
                key,
                notes: match (of_a.is_empty(), of_b.is_empty(), &ratio) {
                    (_, _, Some(_)) => String::new(),
                    (_, true, None) => "only in A".into(),
                    (true, _, None) => "only in B".into(),
                    (false, false, None) => unmeasured(&of_a, &of_b),
                },
                times: [geometric_mean(times_a), geometric_mean(times_b)],
                ratio,
                raw,
                raw_ratio: raw[0].zip(raw[1]).map(|(a, b)| b / a),
                pairs: None,
            }
        }),
    )
}

/// The comparison of runs next to each other.
pub fn paired(unit: Unit, pairs: &[(Key, Pairs)]) -> Table {
    let medians = |of: &[(f64, f64)]| {
        let median = |times: Vec<f64>| {
            let s = Summary::of(&times);
            (s.n > 0).then_some(s.median)
        };
        [median(of.iter().map(|p| p.0).collect()), median(of.iter().map(|p| p.1).collect())]
    };
    table(
        unit,
        pairs.iter().map(|(key, pairs)| Row {
            key,
            times: medians(&pairs.times),
            ratio: Ratio::of_pairs(&pairs.times),
            raw: medians(&pairs.raw),
            raw_ratio: Ratio::of_pairs(&pairs.raw).map(|r| r.value),
            pairs: Some(pairs.times.len() as u64),
            notes: pairs.why.clone(),
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { name: name.into(), processes: Some(1), threads: Some(2), nth: 0 }
    }

    fn known(time: f64) -> Known {
        Known { time, raw: Some(2.0 * time), why: "no such call".into() }
    }

    /// As `ncpu bench -o json` and all other formats have it.
    fn bench(times: &[(&str, f64)], json: bool) -> Table {
        let mut columns = vec![
            Column::text("benchmark", ""),
            Column::int("prc", Unit::None, Kind::Key, ""),
            Column::float("time", Unit::Microseconds, Kind::Gauge, ""),
            Column::float("rawmedian", Unit::Microseconds, Kind::Gauge, ""),
        ];
        if json {
            columns.push(Column::int("cnt_per_samp", Unit::None, Kind::Gauge, ""));
        }
        let mut out = Table::builder("bench", &columns);
        for (name, time) in times {
            let row = out.row().text(name).int(1).float(*time).float(3.0 * time);
            if json {
                row.int(1);
            }
        }
        out.finish()
    }

    #[test]
    fn rows_alike_are_told_apart_by_their_number() {
        let run = read(&bench(&[("getpid", 0.5), ("open", 4.0), ("getpid", 0.25)], false)).unwrap();
        let found: Vec<_> = run.iter().map(|(k, f)| (k.name.as_str(), k.processes, k.nth, f.time)).collect();
        let one = Some(1);
        assert_eq!(found, [("getpid", one, 0, 0.5), ("open", one, 0, 4.0), ("getpid", one, 1, 0.25)]);
        assert_eq!(run[1].1.raw, Some(12.0));
        let json = read(&bench(&[("getpid", 0.5e-6)], true)).unwrap();
        assert!((json[0].1.time - 0.5).abs() < 1e-12 && (json[0].1.raw.unwrap() - 1.5).abs() < 1e-12);
        let other = Table::builder("x", &[Column::text("benchmark", "")]).finish();
        assert!(read(&other).unwrap_err().to_string().contains("no column `time`"));
    }

    #[test]
    fn runs_apart_are_compared_by_their_means() {
        let a =
            vec![vec![(key("fast"), known(2.0)), (key("gone"), known(1.0)), (key("fails"), known(0.0))]; 2];
        let b =
            vec![
                vec![(key("fast"), known(1.0)), (key("new"), known(1.0)), (key("fails"), known(f64::NAN))];
                2
            ];
        let t = apart(&a, &b);
        let notes: Vec<_> =
            (0..t.num_rows()).map(|r| (t.text(r, "benchmark").unwrap(), t.text(r, "notes"))).collect();
        let fails = "A: no such call; B: no such call";
        let expected = [("fast", ""), ("gone", "only in A"), ("fails", fails), ("new", "only in B")];
        assert_eq!(notes, expected.map(|(name, why)| (name, Some(why))));
        assert_eq!(
            (t.number(0, "A"), t.number(0, "B"), t.number(0, "ratio")),
            (Some(2.0), Some(1.0), Some(0.5))
        );
        assert_eq!(
            (t.text(0, "verdict"), t.number(0, "A_raw"), t.number(0, "ratio_raw")),
            (Some("faster"), Some(4.0), Some(0.5))
        );
        assert_eq!((t.int(0, "prc"), t.int(0, "thr"), t.int(0, "pairs")), (Some(1), Some(2), None));
        assert_eq!((t.number(1, "A"), t.number(1, "B"), t.text(1, "verdict")), (Some(1.0), None, None));
        let once = apart(&a[..1], &b[..1]);
        assert_eq!(
            (once.text(0, "verdict"), once.number(0, "low")),
            (Some("unknown"), None),
            "one run of each"
        );
    }

    #[test]
    fn pairs_have_the_median_of_their_ratios() {
        let mut pairs = Pairs::default();
        for (a, b) in [(1.0, 1.5), (2.0, 3.0), (4.0, 6.0)] {
            pairs.add(&known(a), Some(&known(b)));
        }
        let mut none = Pairs::default();
        none.add(&known(1.0), None);
        let mut failed = Pairs::default();
        failed.add(&known(1.0), Some(&known(0.0)));
        let t = paired(Unit::Milliseconds, &[(key("x"), pairs), (key("y"), none), (key("z"), failed)]);
        assert_eq!((t.number(0, "A"), t.number(0, "B"), t.int(0, "pairs")), (Some(2.0), Some(3.0), Some(3)));
        assert!(
            (t.number(0, "ratio").unwrap() - 1.5).abs() < 1e-12 && t.text(0, "verdict") == Some("slower")
        );
        assert_eq!((t.number(0, "A_raw"), t.number(0, "B_raw")), (Some(4.0), Some(6.0)));
        assert_eq!(
            (t.int(1, "pairs"), t.number(1, "A"), t.text(1, "notes")),
            (Some(0), None, Some("only in A"))
        );
        assert_eq!(t.text(2, "notes"), Some("B: no such call"));
    }

    #[test]
    fn a_verdict_needs_an_interval_without_1() {
        let of = |value, interval| verdict(&Ratio { value, interval });
        assert_eq!(of(1.2, Some((1.1, 1.3))), "slower");
        assert_eq!(of(0.8, Some((0.7, 0.9))), "faster");
        assert_eq!(of(1.2, Some((0.9, 1.5))), "same");
        assert_eq!(of(1.2, None), "unknown");
    }
}
