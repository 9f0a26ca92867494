//! The word in front of a queue: it keeps a queue lock usable while the next thread of its queue is not on a
//! CPU.
//!
//! # Where it comes from
//!
//! A queue lock is handed to the next thread in the queue, which may be asleep, and stays unused until that
//! thread runs. With more threads than CPUs this costs a context switch for each critical section. In Linux'
//! qspinlock only the queue's head looks at the lock itself, and in virtual machines, where the head may not
//! be running, other threads may pass it. Here other threads may pass exactly when the head is known to have
//! been asleep, and a bounded number of times.
//!
//! # Invariant
//!
//! The thread that holds the gate holds the lock: `LOCKED` is set by a compare-and-swap from a value without
//! it, and cleared by that thread. The *head* is the one thread that holds the queue. It alone sets `SLEEPS`,
//! on a value with `LOCKED` on which it then sleeps. The thread that clears `LOCKED` clears `SLEEPS` in the
//! same step, and then wakes the head. So a head sleeps only on a gate that is locked by a thread that will
//! see `SLEEPS`, or the head is about to be woken.
//!
//! `OPEN` says that the head may not be on a CPU. It is set by the unlock that wakes the head, and by a
//! holder that makes a thread the head that was asleep in the queue. While it is set other threads may take
//! the gate before the head. Each is counted; the last of `MOST` closes the gate, and so does the head as it
//! takes the gate. A head goes to sleep only after it has spun for longer than a context switch takes, so it
//! is passed at most `MOST` times each time that it was asleep.
//!
//! # Memory ordering
//!
//! All state is one word: taking is an acquire of it, freeing a release.

use crate::locks::probe;
use crate::sys::{self, ALL, Futex, Ordering, wake_at};
use Ordering::{Acquire, Relaxed, Release};

const LOCKED: u32 = 1;
/// The head sleeps on this word.
const SLEEPS: u32 = 2;
/// The head may not be on a CPU: other threads may pass it.
const OPEN: u32 = 4;
/// Counts the threads that passed the head, from this bit on.
const PASSED: u32 = 8;
/// The number of threads that may pass a head that was asleep: about the number of short critical sections
/// that fit into the time that waking a sleeper takes.
const MOST: u32 = 255;
/// How long the head spins before it sleeps: longer than a context switch takes.
const SPIN_US: u32 = 10;

/// Taken by a queue's head, or by other threads if the head is asleep or the queue is empty.
#[repr(transparent)]
pub(crate) struct Gate(Futex);

impl Gate {
    pub(crate) const fn new() -> Gate {
        Gate(Futex::new(0))
    }

    /// Takes the gate if it is free and the head, if there is one (`queued`), may be passed.
    #[inline]
    pub(crate) fn pass(&self, queued: bool) -> bool {
        let mut seen = self.0.load(Relaxed);
        loop {
            if seen & LOCKED != 0 || (queued && seen & OPEN == 0) {
                return false;
            }
            let open =
                if seen & OPEN == 0 || seen / PASSED + 1 >= MOST { 0 } else { (seen + PASSED) & !SLEEPS };
            match self.0.compare_exchange(seen, open | LOCKED, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the gate as the head. `lock` is the address that tracers see.
    #[inline]
    pub(crate) fn enter(&self, lock: *const ()) {
        let mut seen = self.0.load(Relaxed);
        let mut spins = 0;
        loop {
            if seen & LOCKED == 0 {
                match self.0.compare_exchange(seen, LOCKED, Acquire, Relaxed) {
                    Ok(_) => return,
                    Err(now) => seen = now,
                }
            } else if spins < sys::pauses_per_us() * SPIN_US {
                spins += 1;
                sys::pause(1);
                seen = self.0.load(Relaxed);
            } else {
                seen = self.sleep(seen, lock);
                spins = 0;
            }
        }
    }

    /// Sleeps while the gate is locked; returns its value after that.
    #[cold]
    fn sleep(&self, seen: u32, lock: *const ()) -> u32 {
        if seen & SLEEPS == 0
            && let Err(now) = self.0.compare_exchange(seen, seen | SLEEPS, Relaxed, Relaxed)
        {
            return now;
        }
        probe::queue_block(lock);
        self.0.wait(seen | SLEEPS, ALL, None, false);
        probe::queue_wakeup(lock);
        self.0.load(Relaxed)
    }

    /// With the gate held: lets other threads pass, since the new head was asleep.
    pub(crate) fn open(&self) {
        self.0.fetch_or(OPEN, Relaxed);
    }

    /// Frees the gate.
    #[inline]
    pub(crate) fn leave(&self) {
        if let Err(seen) = self.0.compare_exchange(LOCKED, 0, Release, Relaxed) {
            self.leave_slow(seen);
        }
    }

    #[cold]
    fn leave_slow(&self, mut seen: u32) {
        // The head may take and free the lock, and its memory may be freed, before the wake-up, which uses
        // only the address.
        let address = self.0.address();
        loop {
            let new = if seen & SLEEPS != 0 { OPEN } else { seen & !LOCKED };
            match self.0.compare_exchange(seen, new, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        if seen & SLEEPS != 0 {
            wake_at(address, 1, ALL, false);
        }
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.0.load(Relaxed) & LOCKED != 0
    }

    /// In a forked child, where no other thread uses it.
    pub(crate) fn reset(&self) {
        self.0.store(0, Release);
    }
}
