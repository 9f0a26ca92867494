//! A word on which one thread waits for its turn. Queue locks pass the lock on with it.

use crate::locks::probe;
use crate::sys::{self, ALL, Futex, Ordering, wake_at};
use Ordering::{Acquire, Relaxed, Release};

const WAITING: u32 = 0;
const SLEEPING: u32 = u32::MAX;
/// Spinning on an own cache line disturbs no other CPU, so it may last longer than a context switch takes.
const SPIN_US: u32 = 10;

/// Set by one thread and awaited by another, which alone reads it and then may free its memory.
pub(crate) struct Turn(Futex);

impl Turn {
    pub(crate) const fn new() -> Turn {
        Turn(Futex::new(WAITING))
    }

    /// Resets the word. To be called before other threads can see it.
    pub(crate) fn reset(&self) {
        self.0.store(WAITING, Relaxed);
    }

    /// Waits for the grant and returns its value. An acquire. `lock` is the address that tracers see.
    pub(crate) fn wait(&self, lock: *const ()) -> u32 {
        for _ in 0..sys::pauses_per_us() * SPIN_US {
            let seen = self.0.load(Acquire);
            if seen != WAITING {
                return seen;
            }
            sys::pause(1);
        }
        if let Err(seen) = self.0.compare_exchange(WAITING, SLEEPING, Acquire, Acquire) {
            return seen;
        }
        loop {
            probe::queue_block(lock);
            self.0.wait(SLEEPING, ALL, None, false);
            probe::queue_wakeup(lock);
            let seen = self.0.load(Acquire);
            if seen != SLEEPING {
                return seen;
            }
        }
    }

    /// Grants the turn with a `what` that is neither 0 nor `u32::MAX`. Returns whether the waiter was asleep.
    /// A release.
    ///
    /// The waiter may return, and the word be freed, before the wake-up, which uses only the address.
    pub(crate) fn grant(&self, what: u32) -> bool {
        debug_assert!(what != WAITING && what != SLEEPING);
        let address = self.0.address();
        let asleep = self.0.swap(what, Release) == SLEEPING;
        if asleep {
            wake_at(address, 1, ALL, false);
        }
        asleep
    }
}
