//! How long to wait between two attempts, and how often to try.

use crate::sys;

/// The longest time that a thread spins before it sleeps, without evidence that the owner runs. Locks learn
/// how much spinning pays.
const SPIN_MOST_US: u32 = 20;
/// The shortest such time.
const SPIN_LEAST_US: u32 = 2;
/// The longest pause between failing attempts of a thread, whatever the number of CPUs: each attempt takes
/// the lock's line from the owner. A lock that becomes free now and then is found free before pauses grow
/// that long.
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
    /// Spins for up to `expected` pauses, within fixed bounds.
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
