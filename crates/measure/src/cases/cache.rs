//! Lines that go from cache to cache.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::common::flag;
use crate::case::{Batch, Bench, Case, Failure, Worker};
use crate::place::bind;
use crate::shared::Shared;

/// The cases of this file.
pub const CASES: &[Case] = &[Case {
    name: "cachetocache",
    about: "read and write a word of each worker's memory in turn, 1 KB a step; each worker on a CPU of its own",
    flags: &[flag('s', "SIZE", "512k", "bytes of a worker")],
    setup: |o| {
        let words = o.size('s')? / size_of::<usize>();
        if words < 2 * STEP {
            return Err(Failure::Usage("-s: give at least 2 KB, two steps".into()));
        }
        let zero = |_| AtomicUsize::new(0);
        Ok(Box::new(Chains {
            words,
            // A line each: the locks are not what is measured.
            locks: Shared::slice(16 * o.workers(), zero)?,
            data: Shared::slice(words * o.workers(), zero)?,
            workers: o.workers(),
        }))
    },
}];

/// Words of a step.
const STEP: usize = 128;

struct Chains {
    words: usize,
    locks: Shared<[AtomicUsize]>,
    data: Shared<[AtomicUsize]>,
    workers: usize,
}

impl Chains {
    fn of(&self, worker: usize) -> &[AtomicUsize] {
        &self.data[worker * self.words..][..self.words]
    }
}

impl Bench for Chains {
    fn worker(&self, me: Worker) -> Result<Box<dyn Batch + '_>, Failure> {
        place(me.index)?;
        // Touched first by the worker, so that it lies in its node: a chain backwards.
        for (i, word) in self.of(me.index).iter().enumerate() {
            word.store((i + self.words - STEP) % self.words, Relaxed);
        }
        Ok(Box::new(Walk(self)))
    }
}

/// Puts the calling worker on one of the CPUs it may run on; where it was put on one already, it stays.
fn place(index: usize) -> Result<(), Failure> {
    let machine = ncpu_machine::Topology::read("/".as_ref()).map_err(|e| Failure::Failed(e.to_string()))?;
    let cpus: Vec<u32> = machine.online.and(&machine.allowed).iter().collect();
    match cpus.as_slice() {
        [] | [_] => Ok(()),
        _ => bind(cpus[index % cpus.len()]).map_err(|e| Failure::Failed(e.to_string())),
    }
}

struct Walk<'a>(&'a Chains);

impl Batch for Walk<'_> {
    /// An operation is a step. Workers walk one after the other: it is the lines' travel that counts, not
    /// how much of it goes on at once.
    fn run(&mut self, n: u64) -> u64 {
        let chains = self.0;
        let walk = chains.words / STEP;
        let mut left = n as usize;
        while left > 0 {
            for worker in 0..chains.workers {
                let (lock, chain) = (&chains.locks[16 * worker], chains.of(worker));
                while lock.compare_exchange_weak(0, 1, std::sync::atomic::Ordering::Acquire, Relaxed).is_err()
                {
                    std::thread::yield_now();
                }
                let mut at = 0;
                for _ in 0..walk.min(left) {
                    let next = chain[at].load(Relaxed);
                    // The line must be ours to write.
                    chain[at].store(next, Relaxed);
                    at = next;
                }
                lock.store(0, std::sync::atomic::Ordering::Release);
                left -= walk.min(left);
            }
        }
        0
    }
}
