//! What time it is, by a clock that people read and by one that nobody sets.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::Place;

/// A moment.
#[derive(Clone, Debug)]
pub(super) struct Now {
    pub unix: f64,
    /// The boot of the machine; empty where it is not known.
    pub boot: String,
    /// Seconds since then, suspended ones too.
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

    /// Seconds since a recording began. Of the same boot they are exact, whatever the clock was set to since; of another
    /// the clock decides, and a moment that is still to come is not long ago.
    pub fn since(&self, place: &Place, unix: f64) -> f64 {
        let same = !self.boot.is_empty() && place.boot == self.boot;
        if same { self.booted - place.booted_s } else { self.unix - unix }.max(0.0)
    }
}
