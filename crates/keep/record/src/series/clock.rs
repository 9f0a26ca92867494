//! The time, by the wall clock and by a clock that is never set.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::Place;

/// A moment.
#[derive(Clone, Debug)]
pub(super) struct Now {
    pub unix: f64,
    /// The boot of the machine; empty if unknown.
    pub boot: String,
    /// Seconds since the boot, including suspended ones.
    pub booted: f64,
}

impl Now {
    pub fn read() -> Now {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let booted = clock_gettime(ClockId::Boottime);
        Now {
            unix: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64()),
            boot: boot.trim().into(),
            booted: booted.tv_sec as f64 + booted.tv_nsec as f64 / 1e9,
        }
    }

    /// Seconds since a recording began. Within one boot they are exact, even if the clock was set since. For
    /// another boot the wall clock decides, and a moment in the future counts as recent.
    pub fn since(&self, place: &Place, unix: f64) -> f64 {
        let same = !self.boot.is_empty() && place.boot == self.boot;
        if same { self.booted - place.booted_s } else { self.unix - unix }.max(0.0)
    }
}
