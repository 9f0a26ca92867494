//! `ncpu lines --sets`: words and stacks of a process that compete for the same set of a cache.

use std::str::FromStr;

use ncpu_lines::{Kind, Report};
use ncpu_machine::Topology;
use ncpu_remedy::colour::{self, index};
use ncpu_table::Table;

/// A cache whose sets are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The data cache of a level of this machine.
    Level(u32),
    /// The second level of the UltraSPARC T2, whose index is hashed.
    T2,
}

impl FromStr for Which {
    type Err = String;
    fn from_str(text: &str) -> Result<Which, String> {
        match text {
            "t2" => Ok(Which::T2),
            "l1" => Ok(Which::Level(1)),
            "l2" => Ok(Which::Level(2)),
            _ => Err("give l1, l2 or t2".into()),
        }
    }
}

/// Findings.
pub struct Found {
    /// The sets, as a table.
    pub table: Table,
    /// Notes on it.
    pub notes: Vec<String>,
}

/// Elements of an array that are looked at.
const ELEMENTS: u64 = 4096;

/// Which words and stacks of process `pid` share sets. `all` takes every word for used, not only those that locks,
/// atomics and counters are.
///
/// # Errors
/// The machine does not describe such a cache, the process is gone, or frames of its pages cannot be seen (root).
pub fn find(
    which: Which,
    machine: &Topology,
    pid: u32,
    reports: &[Report],
    all: bool,
    only: Option<&str>,
) -> anyhow::Result<Found> {
    let cache = match which {
        Which::T2 => colour::Cache { level: 2, size: 4 << 20, ways: 16, line: 64 },
        Which::Level(level) => {
            let found = colour::caches(machine).into_iter().find(|c| c.level == level);
            found.ok_or_else(|| {
                anyhow::anyhow!("this machine does not describe a data cache of level {level} with its ways")
            })?
        }
    };
    let index = if which == Which::T2 { index::Index::UltraSparcT2 } else { cache.index() };
    let mut hot = Vec::new();
    for (word, stride) in reports.iter().flat_map(|r| &r.words) {
        let used = matches!(word.kind, Kind::Lock | Kind::Atomic | Kind::Counter);
        if !(used || all) || only.is_some_and(|text| !word.name.contains(text)) {
            continue;
        }
        match stride.filter(|&s| s > 0 && s < word.size) {
            Some(stride) => hot.extend((0..(word.size / stride).min(ELEMENTS)).map(|i| index::Hot {
                name: format!("{}[{i}]", word.name.trim_end_matches("[]")),
                address: word.address + i * stride,
                stack: false,
            })),
            None => hot.push(index::Hot { name: word.name.clone(), address: word.address, stack: false }),
        }
    }
    let words = hot.len();
    let mut notes = Vec::new();
    let (stacks, unasked) = colour::stacks(pid)?;
    if unasked > 0 {
        notes.push(format!("{unasked} threads could not be asked where their stacks are"));
    }
    let threads = stacks.len();
    hot.extend(stacks);
    // Beyond a page, the set depends on where in memory the page is.
    if index.colours(ncpu_machine::page_size()) > 1 {
        let absent = colour::to_physical(pid, &mut hot)?;
        if absent > 0 {
            notes.push(format!("{absent} words lie on pages that are not in memory"));
        }
        notes.push("sets follow from frames of pages; a guest's frames are not the machine's".into());
    }
    let conflicts = index::conflicts(&hot, index, cache.line, cache.ways as usize);
    notes.insert(
        0,
        format!(
            "{words} words and {threads} stacks in {} sets of {} lines; {} sets are wanted by more",
            index.sets(),
            cache.ways,
            conflicts.len()
        ),
    );
    if conflicts.iter().any(|c| c.members.iter().filter(|m| m.stack).count() > cache.ways as usize / 2) {
        notes.push("`ncpu preload stackbias -- CMD` begins each stack elsewhere".into());
    }
    Ok(Found { table: colour::conflicts_table(&conflicts, cache.ways), notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_have_names() {
        assert_eq!("l1".parse(), Ok(Which::Level(1)));
        assert_eq!("t2".parse(), Ok(Which::T2));
        assert!("l9".parse::<Which>().is_err());
    }
}
