//! How long what happens often takes: percentiles of the bins of table `lengths`.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_schema::{Error, Length, lengths, percentiles};
use ncpu_table::Table;

/// Counts by bin, each from a length to another, in ns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bins {
    counts: BTreeMap<(u64, u64), u64>,
    /// Of all counts, those of lengths that others stand for.
    unseen: f64,
}

impl Bins {
    /// Adds lengths of a bin.
    pub fn add(&mut self, from: u64, to: u64, count: u64) {
        let sum = self.counts.entry((from, to)).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Takes in the lengths of another, exactly.
    pub fn merge(&mut self, other: &Bins) {
        other.iter().for_each(|(from, to, count)| self.add(from, to, count));
        self.unseen += other.unseen;
    }

    /// Number of lengths.
    pub fn count(&self) -> u64 {
        self.counts.values().sum()
    }

    /// How many of those were followed, where they stand for the others; `None`: all.
    pub fn seen(&self) -> Option<u64> {
        let unseen = self.unseen.round() as u64;
        (unseen > 0).then(|| self.count().saturating_sub(unseen))
    }

    /// Bins with counts, shortest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts.iter().map(|((from, to), count)| (*from, *to, *count))
    }

    /// The length that a part of them does not exceed, in microseconds, within 1.6 %: the middle of its bin. `None` where there are
    /// none.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let rank = (part * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        let last = || self.counts.iter().next_back();
        found.or_else(last).map(|((from, to), _)| middle(*from, *to))
    }

    /// The sum of all, in seconds, within 1.6 %.
    pub fn sum(&self) -> f64 {
        self.iter().map(|(from, to, count)| middle(from, to) * count as f64 / 1e6).sum()
    }
}

/// The middle of a bin, in microseconds. Bins of single nanoseconds are exact.
fn middle(from: u64, to: u64) -> f64 {
    (from as f64 + to.saturating_sub(1).max(from) as f64) / 2e3
}

/// The key of a distribution: kind, lock, device or call, and process.
pub type Key = (Length, Option<String>, Option<String>);

/// The bins of a table `lengths`, put together.
///
/// # Errors
/// The table is not what the schema says.
pub fn of(table: &Table) -> Result<BTreeMap<Key, Bins>, Error> {
    let t = lengths::Reader::of(table)?;
    let mut out: BTreeMap<Key, Bins> = BTreeMap::new();
    for row in t.rows() {
        let (Some(of), Some(from), Some(to)) = (t.of.get(row), t.from.get(row), t.to.get(row)) else {
            continue;
        };
        let text = |text: Option<&str>| text.map(String::from);
        let key = (of, text(t.name.get(row)), text(t.process.get(row)));
        let ns = |us: f64| (us * 1e3).round() as u64;
        let count = t.count.get(row).unwrap_or(0);
        let bins = out.entry(key).or_default();
        bins.add(ns(from), ns(to), count);
        bins.unseen += t.seen.get(row).map_or(0.0, |seen| (count as f64 - seen).max(0.0));
    }
    Ok(out)
}

/// Percentiles of the lengths of kinds, most of each kind first; `None` if the table has no such lengths.
///
/// # Errors
/// As [`of`].
pub fn table(lengths: &Table, kinds: &[Length]) -> Result<Option<Table>, Error> {
    let mut all: Vec<(Key, Bins)> =
        of(lengths)?.into_iter().filter(|((of, ..), _)| kinds.contains(of)).collect();
    all.sort_by(|a, b| a.0.0.cmp(&b.0.0).then(b.1.sum().total_cmp(&a.1.sum())).then_with(|| a.0.cmp(&b.0)));
    if all.is_empty() {
        return Ok(None);
    }
    let mut rows = percentiles::Rows::new();
    for ((of, name, process), bins) in all {
        rows.push(percentiles::Row {
            of: Some(of),
            name: name.into(),
            process: process.into(),
            count: Some(bins.count()),
            seen: bins.seen(),
            p50: bins.quantile(0.5),
            p90: bins.quantile(0.9),
            p99: bins.quantile(0.99),
            p999: bins.quantile(0.999),
            max: bins.quantile(1.0),
        });
    }
    Ok(Some(rows.finish()))
}

/// Table `percentiles` of a recording; `None` where it has no lengths.
///
/// # Errors
/// As [`of`].
pub fn of_recording(recording: &Recording, kinds: &[Length]) -> Result<Option<Table>, Error> {
    recording.tables.get(lengths::NAME).map_or(Ok(None), |lengths| table(lengths, kinds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bin of a length as the BPF programs have it.
    fn bin(ns: u64) -> (u64, u64) {
        if ns < 32 {
            return (ns, ns + 1);
        }
        let step = 1 << (ns.ilog2() - 5);
        (ns / step * step, ns / step * step + step)
    }

    fn bins(lengths: impl IntoIterator<Item = u64>) -> Bins {
        let mut bins = Bins::default();
        for ns in lengths {
            let (from, to) = bin(ns);
            bins.add(from, to, 1);
        }
        bins
    }

    #[test]
    fn percentiles_are_within_three_per_cent() {
        // A heavy tail: each tenth is ten times as long.
        let lengths: Vec<u64> = (1..=20_000u64).map(|i| 100 + i * i).collect();
        let all = bins(lengths.iter().copied());
        for part in [0.5, 0.9, 0.99, 0.999, 1.0] {
            let truth = lengths[((part * lengths.len() as f64).ceil() as usize).max(1) - 1] as f64 / 1e3;
            let told = all.quantile(part).expect("there are some");
            assert!((told - truth).abs() <= 0.017 * truth, "{part}: {told} for {truth}");
        }
        let sum = lengths.iter().sum::<u64>() as f64 / 1e9;
        assert!((all.sum() - sum).abs() < 0.017 * sum);
        assert_eq!(Bins::default().quantile(0.5), None);
        assert_eq!(bins([7]).quantile(0.5), Some(0.007), "a bin of one nanosecond is exact");
    }

    #[test]
    fn bins_of_two_add_up_exactly() {
        let (a, b) = (bins((0..5000).map(|i| i * 7)), bins((0..5000).map(|i| i * 1000)));
        let mut both = a.clone();
        both.merge(&b);
        assert_eq!(both, bins((0..5000).map(|i| i * 7).chain((0..5000).map(|i| i * 1000))));
        assert_eq!(both.count(), 10_000);
    }

    #[test]
    fn rows_of_several_intervals_are_one() {
        let mut rows = lengths::Rows::new();
        for t in [1.0, 2.0] {
            for (from, to, count) in [(1.0, 1.032, 90), (8.0, 8.256, 10)] {
                rows.push(lengths::Row {
                    time: Some(t),
                    of: Some(Length::RunQueue),
                    from: Some(from),
                    to: Some(to),
                    count: Some(count),
                    // Of the long ones of the first interval one in two was followed.
                    seen: (t == 1.0).then_some(if from > 2.0 { 5.0 } else { 90.0 }),
                    ..Default::default()
                });
            }
        }
        let table = table(&rows.finish(), &Length::ALL).expect("a table").expect("with rows");
        let p = percentiles::Reader::of(&table).expect("percentiles");
        assert_eq!((p.len(), p.count.get(0), p.seen.get(0)), (1, Some(200), Some(195)));
        assert!((p.p50.get(0).expect("there is one") - 1.016).abs() < 0.01);
        assert!((p.p99.get(0).expect("there is one") - 8.128).abs() < 0.01);
    }
}
