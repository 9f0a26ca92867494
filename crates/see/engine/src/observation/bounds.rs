//! Bounds on the memory of an observation: rows of an interval, and names.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ncpu_symbols::Recent;
pub(super) use ncpu_table::OTHERS as OTHERS_NAME;

use crate::engine::{FutexClass, FutexWaits, Locks, Waits};

/// Rows of an interval: of each kind those with most waiting have rows of their own.
const MOST: usize = 1024;

/// Rows of many locks, of which those that waited least are summed up by what they are. `class` is a futex's.
pub(super) fn of(mut locks: Locks, class: impl Fn(&FutexWaits) -> FutexClass) -> Locks {
    let (mut walked, mut exact) = parted(&mut locks.kernel, |row| row.stack.is_some());
    largest(&mut exact, MOST);
    largest(&mut walked, MOST);
    locks.kernel = [exact, walked].concat();
    locks.futexes.iter_mut().for_each(|row| row.class = class(row));
    largest(&mut locks.futexes, MOST);
    // The walked ones only show where the longest waits were.
    let (walked, mut exact) = parted(&mut locks.traced, |row| row.stack.is_some());
    largest(&mut exact, MOST);
    locks.traced = [exact, walked].concat();
    largest(&mut locks.off_cpu, MOST);
    largest(&mut locks.sleeps, MOST);
    locks
}

/// Rows of stacks that were walked, and the exact ones.
fn parted<W>(rows: &mut Vec<W>, walked: impl FnMut(&W) -> bool) -> (Vec<W>, Vec<W>) {
    std::mem::take(rows).into_iter().partition(walked)
}

/// Keeps the `most` largest rows and sums the others up by their class.
pub(super) fn largest<W: Waits>(rows: &mut Vec<W>, most: usize) {
    if rows.len() <= most {
        return;
    }
    rows.select_nth_unstable_by_key(most, |row| Reverse(row.size()));
    let mut sums: HashMap<W::Class, W> = HashMap::new();
    for row in rows.split_off(most) {
        match sums.entry(row.class()) {
            Entry::Occupied(mut sum) => sum.get_mut().add(&row),
            Entry::Vacant(free) => {
                free.insert(row.unnamed());
            }
        }
    }
    rows.extend(sums.into_values());
}

/// Names by number, kept while the process or thread lives and some time after that.
pub(super) struct Names {
    names: Recent<u32, String>,
    looks: u32,
}

/// Names of ended threads are kept for at least this many intervals.
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

    /// An interval is over, in which `number` threads or processes lived, all of whose names are set in
    /// each interval.
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
    use crate::engine::{KernelLock, OTHERS, Sleeps};

    #[test]
    fn locks_without_number_are_some_and_the_others_by_what_they_are() {
        let row = |i: u64| KernelLock {
            lock: 0xffff_0000 + i,
            stack: None,
            tgid: 7,
            flags: (i % 2) as u32,
            count: 1,
            spin: i,
            block: 0,
            max: i,
        };
        let mut kernel: Vec<KernelLock> = (0..100_000).map(row).collect();
        kernel.extend((0..5000).map(|i| KernelLock { stack: Some(2 + i), ..row(i) }));
        let futex =
            |i| FutexWaits { futex: 0x1000 + i, tgid: 7, count: 1, block: i, ..FutexWaits::default() };
        let futexes: Vec<FutexWaits> = (0..50_000).map(futex).collect();
        let sleep = |i| Sleeps { call: 35 + i % 2, tgid: i, count: 1, slept: i.into(), ..Sleeps::default() };
        let sleeps: Vec<Sleeps> = (0..9000).map(sleep).collect();
        let all = Locks { kernel, futexes, sleeps, ..Locks::default() };
        let told = of(all.clone(), |_| FutexClass::Lock);
        fn sum<W: Waits>(rows: &[W]) -> (u64, u64) {
            rows.iter().map(Waits::size).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        }
        assert_eq!(sum(&all.kernel), sum(&told.kernel), "nothing is lost");
        assert_eq!(sum(&all.futexes), sum(&told.futexes), "nothing is lost");
        assert_eq!(sum(&all.sleeps), sum(&told.sleeps), "nothing is lost");
        assert_eq!(told.kernel.len(), 2 * MOST + 4, "two kinds, exact and walked");
        assert_eq!((told.futexes.len(), told.sleeps.len()), (MOST + 1, MOST + 2));
        let exact = |row: &&KernelLock| row.stack.is_none();
        let largest = told.kernel.iter().filter(exact).filter(|r| r.lock != OTHERS).map(|r| r.spin).min();
        assert_eq!(largest, Some(100_000 - MOST as u64));
        let others: Vec<_> = told.kernel.iter().filter(exact).filter(|r| r.lock == OTHERS).collect();
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
