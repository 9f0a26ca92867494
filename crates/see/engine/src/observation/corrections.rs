//! When waits in progress are charged for what has been found out about their futexes.

use std::time::{Duration, Instant};

/// A correction looks at all threads of the machine, so at most one part in this many of the time is spent
/// on it.
const PARTS: u32 = 200;
/// Verdicts wait no longer than this, whatever it takes.
const LATEST: Duration = Duration::from_millis(500);

/// Whether there are verdicts that waits in progress lack, and the time from which on they may be applied.
#[derive(Default)]
pub(super) struct Corrections {
    due: bool,
    after: Option<Instant>,
}

impl Corrections {
    /// A futex was judged.
    pub fn judged(&mut self) {
        self.due = true;
    }

    /// Whether to correct waits now; `last` is when threads are about to be read.
    pub fn begin(&mut self, now: Instant, last: bool) -> bool {
        let begin = self.due && (last || self.after.is_none_or(|after| now >= after));
        self.due &= !begin;
        begin
    }

    /// They were, from `began` to `now`.
    pub fn done(&mut self, began: Instant, now: Instant) {
        self.after = Some(now + ((now - began) * PARTS).min(LATEST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_verdicts_cost_little() {
        let mut corrections = Corrections::default();
        let mut now = Instant::now();
        let took = Duration::from_micros(500);
        let mut count = 0;
        for _ in 0..10_000 {
            corrections.judged();
            if corrections.begin(now, false) {
                corrections.done(now, now + took);
                count += 1;
            }
            now += Duration::from_millis(1);
        }
        // 0.5 ms each of 10 s.
        assert!((90..=100).contains(&count), "{count}");
        corrections.judged();
        assert!(!corrections.begin(now - Duration::from_millis(99), false));
        assert!(corrections.begin(now - Duration::from_millis(99), true), "threads are read");
        assert!(!corrections.begin(now + LATEST, true), "nothing new");
    }
}
