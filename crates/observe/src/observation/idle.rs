//! What idle CPUs were idle for, held to what is known exactly.

use ncpu_schema::IdleReason;

/// Seconds by reason, of [`IdleReason::TOLD_APART`].
pub type Reasons = [f64; IdleReason::TOLD_APART];

/// A timer's looks tell what CPUs were idle for, and how long threads stood on run queues: `queued` seconds, where they
/// stood there for `exact` seconds by their own clocks. A sleeping CPU takes long to wake, the longer under a hypervisor, and
/// the timer that wakes the same CPU, or wakes late with it, then finds its thread still on the queue: the looks tell up to
/// three times too much of two threads that wake each other. What is too much was one of the other reasons, by their shares.
pub fn held_to(exact: f64, queued: f64, mut idle: Reasons) -> Reasons {
    let queue = IdleReason::RunQueue as usize;
    let others: f64 = idle.iter().sum::<f64>() - idle[queue];
    let excess = idle[queue] * (1.0 - (exact / queued).clamp(0.0, 1.0));
    // Without looks there is no ratio, and nothing that could be too much.
    if queued <= 0.0 || excess <= 0.0 {
        return idle;
    }
    idle[queue] -= excess;
    if others > 0.0 {
        let grow = 1.0 + excess / others;
        idle.iter_mut()
            .enumerate()
            .filter(|(reason, _)| *reason != queue)
            .for_each(|(_, spent)| *spent *= grow);
    } else {
        // The threads were about to run, so the program was active.
        idle[IdleReason::Serial as usize] += excess;
    }
    idle
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIAL: usize = IdleReason::Serial as usize;
    const QUEUE: usize = IdleReason::RunQueue as usize;

    fn reasons(queue: f64, serial: f64, asleep: f64) -> Reasons {
        let mut r = [0.0; IdleReason::TOLD_APART];
        r[QUEUE] = queue;
        r[SERIAL] = serial;
        r[IdleReason::Asleep as usize] = asleep;
        r
    }

    #[test]
    fn no_more_idle_time_is_due_to_queues_than_threads_queued() {
        let held = held_to(0.5, 1.25, reasons(1.25, 2.0, 1.0));
        assert!((held[QUEUE] - 0.5).abs() < 1e-12, "{held:?}");
        assert!((held.iter().sum::<f64>() - 4.25).abs() < 1e-12, "{held:?}");
        assert!((held[SERIAL] - 2.5).abs() < 1e-12, "{held:?}");
    }

    #[test]
    fn idle_time_beside_full_queues_keeps_its_share_of_them() {
        // Of 10 s on queues one looked idle; there were 8 s.
        let held = held_to(8.0, 10.0, reasons(1.0, 0.0, 0.0));
        assert!((held[QUEUE] - 0.8).abs() < 1e-12 && (held[SERIAL] - 0.2).abs() < 1e-12, "{held:?}");
    }

    #[test]
    fn looks_that_tell_less_than_there_was_stand() {
        for (exact, queued) in [(2.0, 1.0), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)] {
            assert_eq!(held_to(exact, queued, reasons(1.0, 2.0, 3.0)), reasons(1.0, 2.0, 3.0));
        }
    }
}
