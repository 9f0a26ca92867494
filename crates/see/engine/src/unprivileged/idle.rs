//! The reasons why CPUs were idle, from looks at the program's threads.

use ncpu_schema::IdleReason;

/// Sums since the previous look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// Seconds since then.
    pub seconds: f64,
    /// CPUs.
    pub cpus: f64,
    /// CPU-seconds idle.
    pub idle: f64,
    /// Seconds that threads stood on run queues, summed.
    pub waited: f64,
    /// Seconds on CPU of all threads.
    pub ran: f64,
    /// Seconds on CPU of the busiest thread.
    pub busiest: f64,
    /// Seconds on CPU of threads that came and went in between, a part of `ran`.
    pub unseen: f64,
    /// Whether a thread is runnable now.
    pub active: bool,
    /// Seconds off CPU that threads waited for user locks, where the preloaded library tells.
    pub locks: f64,
    /// Threads that wait for I/O now.
    pub io: usize,
    /// Threads blocked in the kernel now, for a lock or for I/O.
    pub blocked: usize,
    /// Threads asleep in futexes now, for what is not known.
    pub futex: usize,
}

/// Idle seconds by reason, and how often was looked.
#[derive(Clone, Debug, Default)]
pub(super) struct Idle {
    pub spent: [f64; IdleReason::ALL.len()],
    pub looks: u64,
    /// Seconds that the busiest thread ran beyond those of a look.
    ahead: f64,
}

/// A running thread's time is brought up to date at the scheduler's ticks, so a look finds it behind by up to one, and
/// the next ahead.
const BEHIND: f64 = 0.01;

impl Idle {
    /// Gives the idle time since the last look to those who waited, in the order in which the engine does.
    pub fn add(&mut self, look: &Look) {
        self.looks += 1;
        if look.seconds <= 0.0 {
            return;
        }
        // The program was active for at least as long as its busiest thread, and at most for the sum of all. Threads
        // that were too short to be seen are taken to have run one after another.
        let busiest = look.busiest + look.unseen + self.ahead;
        self.ahead = (busiest - look.seconds).clamp(0.0, BEHIND);
        let least = busiest.min(look.seconds);
        let active = if look.active { look.ran.min(look.seconds).max(least) } else { least };
        // Idle time has the resolution of a tick, so only its share while nothing was active counts.
        let could = look.cpus * look.seconds - look.ran;
        let asleep = (look.cpus * (look.seconds - active) / could.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        let mut left = look.idle;
        let mut give = |reason: IdleReason, seconds: f64| {
            let seconds = seconds.clamp(0.0, left);
            left -= seconds;
            self.spent[reason as usize] += seconds;
        };
        give(IdleReason::RunQueue, look.waited);
        give(IdleReason::KernelLockOrIo, look.blocked as f64 * look.seconds);
        give(IdleReason::UserLock, look.locks);
        give(IdleReason::Io, look.io as f64 * look.seconds);
        give(IdleReason::Asleep, look.idle * asleep);
        give(IdleReason::LockOrSerial, look.futex as f64 * look.seconds);
        give(IdleReason::Serial, f64::INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(look: Look) -> Vec<(IdleReason, f64)> {
        let mut idle = Idle::default();
        idle.add(&look);
        assert!((idle.spent.iter().sum::<f64>() - look.idle).abs() < 1e-9, "{idle:?}");
        let all = IdleReason::ALL.into_iter().map(|r| (r, idle.spent[r as usize]));
        all.filter(|(_, s)| *s > 0.0).collect()
    }

    #[test]
    fn a_thread_that_seems_behind_at_one_look_and_ahead_at_the_next_ran_throughout() {
        let mut idle = Idle::default();
        let look = Look { seconds: 0.02, cpus: 2.0, idle: 0.02, active: true, ..Look::default() };
        for ran in [0.022, 0.018, 0.023, 0.017] {
            idle.add(&Look { ran, busiest: ran, ..look });
        }
        assert!((idle.spent[IdleReason::Serial as usize] - 0.08).abs() < 1e-9, "{idle:?}");
    }

    #[test]
    fn idle_time_goes_to_those_who_wait() {
        let one = Look {
            seconds: 1.0,
            cpus: 4.0,
            idle: 3.0,
            ran: 1.0,
            busiest: 1.0,
            active: true,
            ..Look::default()
        };
        assert_eq!(divided(one), [(IdleReason::Serial, 3.0)]);
        assert_eq!(
            divided(Look { futex: 1, ..one }),
            [(IdleReason::Serial, 2.0), (IdleReason::LockOrSerial, 1.0)]
        );
        assert_eq!(
            divided(Look { waited: 1.0, io: 1, blocked: 9, ..one }),
            [(IdleReason::RunQueue, 1.0), (IdleReason::KernelLockOrIo, 2.0)]
        );
        assert_eq!(
            divided(Look { ran: 0.0, busiest: 0.0, active: false, idle: 4.0, futex: 3, ..one }),
            [(IdleReason::Asleep, 4.0)]
        );
        // Short processes, one after another.
        assert_eq!(
            divided(Look { ran: 1.0, busiest: 0.0, unseen: 1.0, active: false, idle: 3.0, ..one }),
            [(IdleReason::Serial, 3.0)]
        );
        // One of three waits for a lock that the fourth has; the others for what the library does not know, and for nothing.
        assert_eq!(
            divided(Look { locks: 1.0, futex: 1, ..one }),
            [(IdleReason::UserLock, 1.0), (IdleReason::Serial, 1.0), (IdleReason::LockOrSerial, 1.0)]
        );
        // Ticks tell more idle time than there can be.
        assert_eq!(
            divided(Look { ran: 0.0, busiest: 0.0, active: false, idle: 5.0, ..one }),
            [(IdleReason::Asleep, 5.0)]
        );
        // Half of the time a thread ran.
        assert_eq!(
            divided(Look { ran: 0.5, busiest: 0.5, active: false, idle: 3.5, ..one }),
            [(IdleReason::Serial, 1.5), (IdleReason::Asleep, 2.0)]
        );
    }
}
