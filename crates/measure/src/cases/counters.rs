//! One counter that all threads of a process add to: ways to count beside each other.
//!
//! A new way is an `impl Counter` and a line of [`CASES`].

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::primitives::Lock;
use crate::case::{Batch, Bench, Case, Failure, Worker};

/// The cases of this file.
pub const CASES: &[Case] = &[
    counter::<AtomicU64>("counter_atomic", "add 1 to one atomic counter that all threads share"),
    counter::<Sharded>("counter_sharded", "add 1 to the CPU's own atomic of a counter that is split by CPU"),
    counter::<Own>("counter_thread", "add 1 to the thread's own part of a counter"),
    counter::<Mutex<u64>>("counter_mutex", "add 1 to a counter under a std::sync::Mutex"),
];

const fn counter<C: Counter>(name: &'static str, about: &'static str) -> Case {
    Case {
        name,
        about,
        flags: &[],
        setup: |_| Ok(Box::new(Counted { counter: C::new(), done: AtomicU64::new(0) })),
    }
}

trait Counter: Sync + 'static {
    fn new() -> Self;
    fn add(&self, worker: usize);
    fn sum(&self) -> u64;
}

impl Counter for AtomicU64 {
    fn new() -> Self {
        AtomicU64::new(0)
    }
    #[inline]
    fn add(&self, _: usize) {
        self.fetch_add(1, Relaxed);
    }
    fn sum(&self) -> u64 {
        self.load(Relaxed)
    }
}

impl Counter for Mutex<u64> {
    fn new() -> Self {
        Mutex::new(0)
    }
    #[inline]
    fn add(&self, _: usize) {
        self.with(|v| *v += 1);
    }
    fn sum(&self) -> u64 {
        *self.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A part of a counter, on a line of its own and its neighbour, which prefetchers bring along.
#[repr(align(128))]
struct Part(AtomicU64);

fn parts(n: usize) -> Vec<Part> {
    (0..n).map(|_| Part(AtomicU64::new(0))).collect()
}

struct Sharded(Vec<Part>);

impl Counter for Sharded {
    fn new() -> Self {
        let cpus = ncpu_machine::online_cpus("/".as_ref()).map_or(1, |c| c.len());
        Sharded(parts(cpus.next_power_of_two()))
    }
    #[inline]
    fn add(&self, _: usize) {
        // SAFETY: no arguments; where it fails, -1 is as good a number as any.
        let cpu = unsafe { libc::sched_getcpu() } as usize;
        // Still atomic: the thread may move between the two.
        self.0[cpu & (self.0.len() - 1)].0.fetch_add(1, Relaxed);
    }
    fn sum(&self) -> u64 {
        self.0.iter().map(|p| p.0.load(Relaxed)).sum()
    }
}

/// Parts of [`Own`], a power of two: enough for any machine.
const PARTS: usize = 4096;

/// Threads are given parts by index.
struct Own(Vec<Part>);

impl Counter for Own {
    fn new() -> Self {
        Own(parts(PARTS))
    }
    #[inline]
    fn add(&self, worker: usize) {
        let part = &self.0[worker & (PARTS - 1)].0;
        // Nobody else writes it, so it needs no locked instruction.
        part.store(part.load(Relaxed) + 1, Relaxed);
    }
    fn sum(&self) -> u64 {
        self.0.iter().map(|p| p.0.load(Relaxed)).sum()
    }
}

struct Counted<C> {
    counter: C,
    done: AtomicU64,
}

struct Add<'a, C>(&'a Counted<C>, usize);

impl<C: Counter> Batch for Add<'_, C> {
    fn run(&mut self, n: u64) -> u64 {
        for _ in 0..n {
            self.0.counter.add(self.1);
        }
        0
    }
    fn after(&mut self, n: u64) {
        self.0.done.fetch_add(n, Relaxed);
    }
}

impl<C: Counter> Bench for Counted<C> {
    fn worker(&self, me: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        Ok(Box::new(Add(self, me.index)))
    }
    fn figures(&self) -> Vec<(&'static str, f64)> {
        let lost = self.done.load(Relaxed) as f64 - self.counter.sum() as f64;
        if lost == 0.0 { vec![] } else { vec![("lost", lost)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts<C: Counter>() {
        let counter = C::new();
        std::thread::scope(|s| {
            for worker in 0..4 {
                let counter = &counter;
                s.spawn(move || (0..20_000).for_each(|_| counter.add(worker)));
            }
        });
        assert_eq!(counter.sum(), 80_000);
    }

    #[test]
    fn every_counter_counts_all() {
        counts::<AtomicU64>();
        counts::<Sharded>();
        counts::<Own>();
        counts::<Mutex<u64>>();
    }
}
