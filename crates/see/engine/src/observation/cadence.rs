//! When the next tables are due.

use std::time::{Duration, Instant};

/// Moments that lie an interval apart; those that are missed are left out.
pub(crate) struct Cadence {
    interval: Duration,
    next: Instant,
}

impl Cadence {
    /// From now on.
    pub fn of(interval: Duration) -> Cadence {
        Cadence { interval, next: Instant::now() + interval }
    }

    /// Whether one has come by `now`.
    pub fn due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            let missed = (now - self.next).as_nanos() / self.interval.as_nanos().max(1);
            self.next += self.interval * u32::try_from(missed).unwrap_or(u32::MAX - 1).saturating_add(1);
        }
        due
    }

    /// The next one, or the deadline if that is first.
    pub fn until(&self, deadline: Option<Instant>) -> Instant {
        deadline.map_or(self.next, |deadline| deadline.min(self.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_are_missed_are_left_out() {
        let second = Duration::from_secs(1);
        let mut cadence = Cadence::of(second);
        let first = cadence.until(None);
        assert!(!cadence.due(first - second / 2));
        assert!(cadence.due(first) && !cadence.due(first + second / 2));
        assert!(cadence.due(first + second * 7 / 2));
        assert_eq!(cadence.until(None), first + second * 4);
        assert_eq!(cadence.until(Some(first)), first);
    }
}
