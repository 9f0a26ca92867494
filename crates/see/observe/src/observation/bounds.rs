//! What keeps an observation from growing with what it meets: rows of an interval, and names.

use std::cmp::Reverse;
use std::collections::HashMap;

use ncpu_symbols::Recent;
pub(super) use ncpu_table::OTHERS as OTHERS_NAME;

use crate::engine::{LockRow, Locks, OTHERS};

/// Rows of an interval: of each kind those with most waiting are told one by one.
const MOST: usize = 1024;

/// Rows of many locks, of which those that waited least are summed up by what they are. `class` is a futex's.
pub(super) fn of(mut locks: Locks, class: impl Fn(&LockRow) -> u32) -> Locks {
    let (mut walked, mut exact) = parted(&mut locks.kernel);
    largest(&mut exact, other);
    largest(&mut walked, other_walked);
    locks.kernel = [exact, walked].concat();
    largest(&mut locks.user, |row| LockRow { lock: OTHERS, futex: class(row) << 16, ..LockRow::default() });
    // The walked ones only show where the longest waits were.
    let (walked, mut exact) = parted(&mut locks.traced);
    largest(&mut exact, other);
    locks.traced = [exact, walked].concat();
    largest(&mut locks.off_cpu, other_walked);
    // Sleeps are told apart by their call, which `lock` is.
    keep(&mut locks.sleeps, |row| row.block, |row| LockRow { lock: row.lock, ..LockRow::default() });
    locks
}

/// Rows of stacks that were walked, and the exact ones.
fn parted(rows: &mut Vec<LockRow>) -> (Vec<LockRow>, Vec<LockRow>) {
    std::mem::take(rows).into_iter().partition(|row| row.stack != 0)
}

fn other(row: &LockRow) -> LockRow {
    LockRow { lock: OTHERS, flags: row.flags, ..LockRow::default() }
}

fn other_walked(row: &LockRow) -> LockRow {
    LockRow { stack: OTHERS, ..other(row) }
}

fn largest(rows: &mut Vec<LockRow>, class: impl Fn(&LockRow) -> LockRow) {
    keep(rows, |row| row.spin + row.block, class);
}

/// Keeps the [`MOST`] largest rows and sums the others up by their class, a row without counts.
fn keep(rows: &mut Vec<LockRow>, size: impl Fn(&LockRow) -> u64, class: impl Fn(&LockRow) -> LockRow) {
    if rows.len() <= MOST {
        return;
    }
    rows.select_nth_unstable_by_key(MOST, |row| Reverse((size(row), row.count)));
    let mut sums: HashMap<(u64, u64, u32, u32), LockRow> = HashMap::new();
    for row in rows.split_off(MOST) {
        let class = class(&row);
        let key = (class.lock, class.stack, class.flags, class.futex);
        let sum = sums.entry(key).or_insert(class);
        sum.count += row.count;
        sum.spin += row.spin;
        sum.block += row.block;
        sum.max = sum.max.max(row.max);
        sum.wakes += row.wakes;
    }
    rows.extend(sums.into_values());
}

/// Names by number, for as long as those live that have them, and some time after that.
pub(super) struct Names {
    names: Recent<u32, String>,
    looks: u32,
}

/// The ended are known for so many intervals at least.
const LOOKS: u32 = 16;

impl Names {
    pub fn new() -> Names {
        // Turned by `living`, which knows how many are wanted.
        Names { names: Recent::new(usize::MAX), looks: 0 }
    }

    pub fn of(&self, number: u32) -> Option<&str> {
        self.names.peek(&number).map(String::as_str)
    }

    pub fn set(&mut self, number: u32, name: String) {
        self.names.insert(number, name);
    }

    /// Sets the name of one that has none yet.
    pub fn met(&mut self, number: u32, name: &str) {
        if self.names.get(&number).is_none() {
            self.names.insert(number, name.into());
        }
    }

    /// An interval is over, in which so many lived, all of whose names are set in each.
    pub fn living(&mut self, number: usize) {
        self.looks += 1;
        if self.looks >= LOOKS || self.names.len() > 4 * number + 4 * MOST {
            self.looks = 0;
            self.names.turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_without_number_are_some_and_the_others_by_what_they_are() {
        let row = |i: u64| LockRow {
            lock: 0xffff_0000 + i,
            tgid: 7,
            flags: (i % 2) as u32,
            count: 1,
            spin: i,
            max: i,
            ..LockRow::default()
        };
        let mut kernel: Vec<LockRow> = (0..100_000).map(row).collect();
        kernel.extend((0..5000).map(|i| LockRow { stack: 2 + i, ..row(i) }));
        let user = (0..50_000).map(|i| LockRow { futex: 1 << 16, ..row(i) }).collect();
        let sleeps =
            (0..9000).map(|i| LockRow { lock: 35 + i % 2, tgid: i as u32, block: i, ..row(i) }).collect();
        let sum = |rows: &[LockRow]| {
            rows.iter().map(|r| (r.count, r.spin)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        };
        let all = Locks { kernel, user, sleeps, ..Locks::default() };
        let told = of(all.clone(), |_| 1);
        for (all, told, rows) in [
            (&all.kernel, &told.kernel, 2 * MOST + 4),
            (&all.user, &told.user, MOST + 1),
            (&all.sleeps, &told.sleeps, MOST + 2),
        ] {
            assert_eq!(told.len(), rows);
            assert_eq!(sum(all), sum(told), "nothing is lost");
        }
        let largest = told.kernel.iter().filter(|r| r.lock != OTHERS && r.stack == 0).map(|r| r.spin).min();
        assert_eq!(largest, Some(100_000 - MOST as u64));
        let others: Vec<_> = told.kernel.iter().filter(|r| r.lock == OTHERS && r.stack == 0).collect();
        assert_eq!(others.iter().map(|r| r.max).max(), Some(100_000 - MOST as u64 - 1));
        assert!(others.iter().all(|r| r.tgid == 0));
    }

    #[test]
    fn names_of_the_living_stay() {
        let mut names = Names::new();
        for round in 0..1000 {
            (0..50).for_each(|living| names.set(living, format!("living {living}")));
            (0..200).for_each(|n| names.met(1000 + round * 200 + n, "short"));
            assert_eq!(names.of(1000 + round * 200), Some("short"));
            names.living(50);
            assert!((0..50).all(|living| names.of(living).is_some()));
            assert!(names.names.len() < 20_000, "{}", names.names.len());
        }
        assert_eq!(names.of(1000), None);
    }
}
