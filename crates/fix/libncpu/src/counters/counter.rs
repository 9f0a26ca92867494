//! Counts that every CPU adds to on its own cache line.
//!
//! # Where it comes from
//!
//! Per-CPU counters are as old as kernels for many CPUs. In user space a thread may lose its CPU between
//! finding its slot and adding to it. So the addition must be atomic, which is most of a shared counter's
//! cost on one CPU. Restartable sequences (`rseq(2)`, Paul Turner, Andrew Hunter, Mathieu Desnoyers) avoid
//! that: the kernel restarts the sequence if the thread is moved or interrupted in it, so a plain addition is
//! enough.
//!
//! # Invariant and memory ordering
//! A slot is written either only by restartable sequences of threads on its CPU or, where a process has none,
//! only by atomic additions; never by both. Threads on a CPU without a slot add to `spare`, atomically. Sums
//! are of relaxed loads: a concurrent addition may or may not be included, and additions that happened before
//! the call are.

use crate::percpu::boxed;
use crate::percpu::{OutOfMemory, Padded};
use crate::sys::{self, AtomicI64, Ordering::Relaxed};

/// `N` counters. The counters of one CPU lie side by side, because a program updates its statistics together.
pub struct Statistics<const N: usize> {
    slots: Box<[Padded<[AtomicI64; N]>]>,
    /// For CPUs that were not possible when this was made.
    spare: [AtomicI64; N],
}

impl<const N: usize> Statistics<N> {
    /// All zero.
    pub fn new() -> Result<Statistics<N>, OutOfMemory> {
        let zero = || [const { AtomicI64::new(0) }; N];
        Ok(Statistics { slots: boxed(sys::topology().cpus(), |_| Padded(zero()))?, spare: zero() })
    }

    /// Adds to counter `which`. Wraps around. Panics if `which` is out of range.
    #[inline]
    pub fn add(&self, which: usize, n: i64) {
        let spare = &self.spare[which];
        let first: *const Padded<[AtomicI64; N]> = self.slots.as_ptr();
        // SAFETY: the stride is the distance of two slots, and each slot has `N > which` counters.
        let added = unsafe {
            sys::add_here(
                first.cast::<AtomicI64>().add(which),
                size_of::<Padded<[AtomicI64; N]>>(),
                self.slots.len(),
                n,
            )
        };
        if !added {
            spare.fetch_add(n, Relaxed);
        }
    }

    /// The sum of counter `which` over all CPUs.
    pub fn sum(&self, which: usize) -> i64 {
        self.slots
            .iter()
            .fold(self.spare[which].load(Relaxed), |sum, slot| sum.wrapping_add(slot.0[which].load(Relaxed)))
    }
}

/// One counter.
///
/// ```
/// let hits = libncpu::Counter::new()?;
/// std::thread::scope(|s| {
///     for _ in 0..4 {
///         s.spawn(|| (0..1000).for_each(|_| hits.add(1)));
///     }
/// });
/// assert_eq!(hits.sum(), 4000);
/// # Ok::<(), libncpu::OutOfMemory>(())
/// ```
pub struct Counter(Statistics<1>);

impl Counter {
    /// Zero.
    pub fn new() -> Result<Counter, OutOfMemory> {
        Ok(Counter(Statistics::new()?))
    }

    /// Adds; wraps around.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.add(0, n);
    }

    /// The sum over all CPUs. O(CPUs).
    pub fn sum(&self) -> i64 {
        self.0.sum(0)
    }
}
