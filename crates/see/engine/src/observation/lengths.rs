//! Table `lengths`: how long what happens often takes, by bins.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use ncpu_schema::{Length, lengths};
use ncpu_table::Table;

use super::bounds::{Names, OTHERS_NAME};
use super::locks::LockTables;
use super::requests::Devices;
use crate::engine::{CalledFunction, LengthCount, Protocol};
use crate::names::{Symbols, call_name};

/// Locks, devices or calls of a kind that have rows of their own in an interval: those with most time.
const MOST: usize = 12;

/// The key of a distribution: kind, code and process.
type Key = (Length, u64, u32);

/// The table of an interval.
pub(super) fn table(
    t: f64,
    counts: &[LengthCount],
    locks: &mut LockTables,
    symbols: &mut Symbols,
    processes: &Names,
    devices: &mut Devices,
    functions: &[CalledFunction],
) -> Table {
    let mut sizes: HashMap<Key, u64> = HashMap::new();
    for of in counts {
        *sizes.entry((of.of, of.what, of.tgid)).or_default() += of.count.saturating_mul(of.to);
    }
    let mut order: Vec<(Key, u64)> = sizes.into_iter().collect();
    order.sort_by_key(|(key, size)| (key.0, Reverse(*size), key.1, key.2));
    // Names given so far, by kind.
    let mut told: HashMap<Length, usize> = HashMap::new();
    let mut names: HashMap<Key, (Option<String>, Option<String>)> = HashMap::new();
    for (key, _) in order {
        let (of, what, tgid) = key;
        let number = told.entry(of).or_default();
        *number += 1;
        let name = match (*number <= MOST, of) {
            (_, Length::RunQueue | Length::WakeUp | Length::Slice | Length::Late) => (None, None),
            (false, _) => (Some(OTHERS_NAME.into()), None),
            (_, Length::KernelLock) => (Some(locks.kernel_name(what)), None),
            (_, Length::UserLock | Length::FileLock | Length::Semaphore) => {
                (Some(locks.name_of(symbols, tgid, what).to_string()), processes.of(tgid).map(String::from))
            }
            (_, Length::Device) => {
                (Some(devices.name(((what >> 32) as u32, (what as u32) >> 1)).to_owned()), None)
            }
            (_, Length::Request) => {
                (Some(Protocol::name(what, functions)), processes.of(tgid).map(String::from))
            }
            (_, Length::Call) => (Some(call_name(what.saturating_sub(2) as u32)), None),
        };
        names.insert(key, name);
    }
    // Kind, object, program, and the two bounds of the bin.
    type Of = (Length, Option<String>, Option<String>, u64, u64);
    let mut sums: BTreeMap<Of, (u64, f64)> = BTreeMap::new();
    for of in counts {
        let (name, process) = names.get(&(of.of, of.what, of.tgid)).cloned().unwrap_or_default();
        let sum = sums.entry((of.of, name, process, of.from, of.to)).or_default();
        *sum = (sum.0 + of.count, sum.1 + of.seen);
    }
    let mut rows = lengths::Rows::new();
    for ((of, name, process, from, to), (count, seen)) in sums {
        rows.push(lengths::Row {
            time: Some(t),
            of: Some(of),
            name: name.into(),
            process: process.into(),
            from: Some(from as f64 / 1e3),
            to: Some(to as f64 / 1e3),
            count: Some(count),
            seen: Some(seen),
        });
    }
    rows.finish()
}
