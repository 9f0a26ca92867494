//! How long to wait between two attempts, and how often to try.

use crate::sys;

/// The most that a thread spins without a sign that the owner runs, before it sleeps; locks learn how much pays.
const SPIN_MOST_US: u32 = 20;
/// What it tries at least.
const SPIN_LEAST_US: u32 = 2;
/// The longest pause of a thread whose attempts keep failing, whatever the number of CPUs: each look takes the lock's line
/// from the owner. A lock that is free now and then is found so before pauses are that long.
const CAP_LEAST_US: u32 = 2;
/// The first pause: a look that comes sooner takes the lock's line from an owner that is about to free it.
const FIRST_NS: u32 = 50;

/// Exponential back-off: pauses between attempts double up to a cap that grows with the number of CPUs, the most
/// threads that can be spinning.
pub(crate) struct Backoff {
    delay: u32,
    cap: u32,
    most: u32,
    /// Pauses so far.
    pub(crate) spent: u32,
}

impl Backoff {
    /// To spin up to `expected` pauses, within what is sensible at all.
    pub(crate) fn new(expected: u32) -> Backoff {
        let us = sys::pauses_per_us();
        Backoff {
            delay: (us * FIRST_NS / 1000).max(1),
            cap: (us * sys::cpus().min(64) / 4).max(us * CAP_LEAST_US),
            most: expected.clamp(us * SPIN_LEAST_US, us * SPIN_MOST_US),
            spent: 0,
        }
    }

    /// Waits before the next attempt; false if it is time to sleep.
    pub(crate) fn wait(&mut self) -> bool {
        if self.spent >= self.most {
            return false;
        }
        sys::pause(self.delay);
        self.spent += self.delay;
        self.delay = (self.delay * 2).min(self.cap);
        true
    }
}
