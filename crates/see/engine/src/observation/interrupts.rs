//! Interrupts of an interval by kind, as table `interrupts`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use ncpu_schema::{InterruptKind, interrupts};
use ncpu_table::Table;

use crate::engine::{Served, Source};

/// Devices of an interval that have rows of their own, those with most time; the others share one.
const DEVICES: usize = 64;

/// Names of devices, by the number of their interrupt.
#[derive(Default)]
pub(super) struct Interrupts {
    names: HashMap<u32, Option<String>>,
}

impl Interrupts {
    /// Table `interrupts` of what came between two looks.
    pub fn table(
        &mut self,
        t: f64,
        now: &BTreeMap<Source, Served>,
        before: &BTreeMap<Source, Served>,
    ) -> Table {
        let mut new: Vec<(Source, Served)> = now
            .iter()
            .map(|(source, served)| (*source, served.since(before.get(source).copied().unwrap_or_default())))
            .filter(|(_, served)| served.count + served.own > 0)
            .collect();
        new.sort_by_key(|(source, served)| {
            (matches!(source, Source::Device(Some(_))), std::cmp::Reverse(served.ns))
        });
        let kinds = new.iter().filter(|(source, _)| !matches!(source, Source::Device(Some(_)))).count();
        let mut rest = Served::default();
        for (_, served) in new.split_off(new.len().min(kinds + DEVICES)) {
            rest += served;
        }
        if rest != Served::default() {
            match new.iter_mut().find(|(source, _)| *source == Source::Device(None)) {
                Some((_, served)) => *served += rest,
                None => new.push((Source::Device(None), rest)),
            }
        }
        let mut rows = interrupts::Rows::new();
        for (source, served) in new {
            let (kind, number, name) = match source {
                Source::Kind(kind) => (kind, None, None),
                Source::Softirq(name) => (InterruptKind::Softirq, None, Some(name.to_string())),
                Source::Device(number) => {
                    (InterruptKind::Device, number, number.and_then(|number| self.name(number)))
                }
            };
            rows.push(interrupts::Row {
                time: Some(t),
                kind: Some(kind),
                number: number.map(u64::from),
                name: name.into(),
                count: Some(served.count),
                seconds: Some(served.ns as f64 / 1e9),
                own: Some(served.own),
                own_seconds: Some(served.own_ns as f64 / 1e9),
                entry_seconds: Some(served.entry_ns as f64 / 1e9),
            });
        }
        rows.finish()
    }

    fn name(&mut self, number: u32) -> Option<String> {
        // Numbers are few, and given again seldom: when a device goes and another comes.
        self.names.entry(number).or_insert_with(|| device(Path::new("/"), number)).clone()
    }
}

/// The drivers' names for the devices of an interrupt.
fn device(root: &Path, number: u32) -> Option<String> {
    let actions = root.join(format!("sys/kernel/irq/{number}/actions"));
    let name = std::fs::read_to_string(actions).ok()?;
    Some(name.trim().to_string()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_what_came_in_it_and_few_rows() {
        let timer = Source::Kind(InterruptKind::Timer);
        let served =
            |n: u64| Served { count: n, ns: 1000 * n, own: 2 * n, own_ns: 3000 * n, entry_ns: 500 * n };
        let before = BTreeMap::from([(timer, served(10)), (Source::Softirq("NET_RX"), served(4))]);
        let mut now = BTreeMap::from([(timer, served(15)), (Source::Softirq("NET_RX"), served(4))]);
        now.extend((0..100).map(|n| (Source::Device(Some(5000 + n)), served(u64::from(n) + 1))));
        let table = Interrupts::default().table(1.0, &now, &before);
        let rows = interrupts::Reader::of(&table).unwrap();
        assert_eq!(rows.len(), 1 + DEVICES + 1);
        assert_eq!(rows.kind.get(0), Some(InterruptKind::Timer));
        assert_eq!((rows.count.get(0), rows.own.get(0)), (Some(5), Some(10)));
        assert_eq!((rows.seconds.get(0), rows.entry_seconds.get(0)), (Some(5e-6), Some(2.5e-6)));
        let all: u64 = rows.rows().filter_map(|r| rows.count.get(r)).sum();
        assert_eq!(all, 5 + (1..=100).sum::<u64>());
        let largest = rows.rows().find(|&r| rows.kind.get(r) == Some(InterruptKind::Device));
        assert_eq!(largest.and_then(|r| rows.number.get(r)), Some(5099));
    }

    #[test]
    fn devices_are_named_by_their_drivers() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/irq/24");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("actions"), "virtio0-input.0\n").unwrap();
        assert_eq!(device(root.path(), 24).as_deref(), Some("virtio0-input.0"));
        std::fs::write(dir.join("actions"), "\n").unwrap();
        assert_eq!((device(root.path(), 24), device(root.path(), 25)), (None, None));
    }
}
