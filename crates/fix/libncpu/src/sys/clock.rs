//! Time on `CLOCK_MONOTONIC`.

use std::time::Duration;

/// A point on `CLOCK_MONOTONIC`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    /// The current time; takes about 20 ns.
    pub fn now() -> Instant {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is writable; the clock always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
        Instant(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    /// The point `after` from now; far durations saturate.
    pub fn after(after: Duration) -> Instant {
        Instant(Instant::now().0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The point `seconds` and `nanoseconds` on `CLOCK_MONOTONIC`; `None` if they are out of range.
    pub fn from_timespec(seconds: i64, nanoseconds: i64) -> Option<Instant> {
        if !(0..1_000_000_000).contains(&nanoseconds) {
            return None;
        }
        let seconds = u64::try_from(seconds.max(0)).ok()?;
        Some(Instant(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds as u64)))
    }

    /// Nanoseconds on `CLOCK_MONOTONIC`.
    pub fn ns(self) -> u64 {
        self.0
    }

    /// The point `ns` later.
    pub fn plus(self, ns: u64) -> Instant {
        Instant(self.0.saturating_add(ns))
    }

    /// Nanoseconds since `earlier`, 0 if it is later.
    pub fn since(self, earlier: Instant) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whether this point has passed.
    pub fn passed(self) -> bool {
        Instant::now() >= self
    }

    pub(super) fn timespec(self) -> libc::timespec {
        libc::timespec {
            tv_sec: i64::try_from(self.0 / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (self.0 % 1_000_000_000) as _,
        }
    }
}

/// The time on `CLOCK_MONOTONIC` in ns.
pub fn clock() -> u64 {
    Instant::now().ns()
}
