//! The reasons why CPUs were idle, adjusted to exact measurements.

use ncpu_schema::{CpuState, IdleReason, Per, Runnable, idle_time, runnable};
use ncpu_table::Table;

use super::seconds;
use crate::engine::{Runnables, Snapshot};

/// Seconds by reason, of [`IdleReason::TOLD_APART`].
type Reasons = [f64; IdleReason::TOLD_APART];

/// Seconds of an interval by the clocks of CPUs and threads.
#[derive(Clone, Copy, Debug, Default)]
struct Exact {
    /// CPUs idled.
    idle: f64,
    /// Of that, a thread of the program had been given to the CPU, which had not woken yet.
    woke: f64,
    /// Threads of the program stood on run queues.
    stood: f64,
}

/// A timer's looks show the reasons of idle CPUs, and how long threads stood on run queues: `looked` seconds. A CPU
/// that has been given a thread and is still waking up is counted among both, and too often: the timer that wakes the
/// same CPU, or wakes late with it, finds its thread still on the queue. The CPU's own clock measures that wake-up. The
/// rest of the idle time beside queues is at most the time that threads stood behind others there; the excess belongs
/// to the other reasons, by their shares. Returns the idle time by reason, and that of CPUs that were waking up:
/// proportions of `exact.idle`, whose sum is that of `looks`, as the sum of the critical path is.
fn held_to(exact: Exact, looked: f64, looks: Reasons) -> (Reasons, f64) {
    let seen: f64 = looks.iter().sum();
    if seen <= 0.0 {
        return (looks, 0.0);
    }
    let mut idle = looks.map(|spent| spent * exact.idle / seen);
    let queue = IdleReason::RunQueue as usize;
    let others: f64 = exact.idle - idle[queue];
    let waking = exact.woke.min(exact.idle);
    // Without those that only waited for a CPU to wake.
    let beside = (idle[queue] - waking).max(0.0);
    let stood = (exact.stood - exact.woke).max(0.0);
    let looked = (looked - exact.woke).max(beside);
    idle[queue] = if looked > 0.0 { beside * (stood / looked).min(1.0) } else { 0.0 };
    let left = (exact.idle - waking - idle[queue]).max(0.0);
    if others > 0.0 {
        let by = left / others;
        idle.iter_mut()
            .enumerate()
            .filter(|(reason, _)| *reason != queue)
            .for_each(|(_, spent)| *spent *= by);
    } else {
        // The threads were about to run, so the program was active.
        idle[IdleReason::Serial as usize] += left;
    }
    let all = idle.iter().sum::<f64>() + waking;
    let by = if all > 0.0 { seen / all } else { 1.0 };
    (idle.map(|spent| spent * by), waking * by)
}

/// The idle time beside run queues, `idled`, by why the threads on them were runnable. Looks tell those apart that were woken from
/// user locks and from sleeps: `woken`; the rest is divided as those threads stood.
fn beside_queues(
    runnables: &[Runnables; Runnable::ALL.len()],
    looks: Reasons,
    woken: [f64; 2],
    idled: Reasons,
) -> [f64; Runnable::ALL.len()] {
    let queue = IdleReason::RunQueue as usize;
    let mut out = [0.0; Runnable::ALL.len()];
    if looks[queue] <= 0.0 {
        return out;
    }
    let by = idled[queue] / looks[queue];
    let apart = [Runnable::UserLock, Runnable::Asleep];
    apart.iter().zip(woken).for_each(|(reason, idle)| out[*reason as usize] = idle * by);
    let rest = (idled[queue] - out.iter().sum::<f64>()).max(0.0);
    let stood = |reason: &Runnable| runnables[*reason as usize].queued as f64;
    let others: Vec<Runnable> = Runnable::ALL.into_iter().filter(|reason| !apart.contains(reason)).collect();
    let all: f64 = others.iter().map(stood).sum();
    if all > 0.0 {
        others.iter().for_each(|reason| out[*reason as usize] = rest * stood(reason) / all);
    } else {
        out[Runnable::Preempted as usize] = rest;
    }
    out
}

/// The idle time of an interval by reason, and the threads that came from run queues.
pub struct Idled {
    /// Seconds by reason, but for CPUs that were waking up: those are `waking`.
    reasons: Reasons,
    waking: f64,
    runnables: [Runnables; Runnable::ALL.len()],
    /// Seconds of CPUs that idled beside the threads of each reason.
    beside: [f64; Runnable::ALL.len()],
    /// Seconds between a thread's wake-up and that of the CPU which had been given it.
    pub woke: f64,
    /// The number of these.
    pub wakings: u64,
}

impl Idled {
    /// What came between two snapshots; `stood`: seconds that threads of the program stood on run queues.
    pub fn between(before: &Snapshot, now: &Snapshot, stood: f64) -> Idled {
        let looks: Reasons = std::array::from_fn(|i| seconds(now.idle[i], before.idle[i]));
        let runnables: [Runnables; Runnable::ALL.len()] =
            std::array::from_fn(|i| now.runnables[i].since(&before.runnables[i]));
        let woke = seconds(runnables.iter().map(|new| new.waking).sum(), 0);
        let idle = |snap: &Snapshot| snap.cpus.iter().map(|(_, at)| at[CpuState::Idle as usize]).sum();
        let exact = Exact { idle: seconds(idle(now), idle(before)), woke, stood };
        let (reasons, waking) = held_to(exact, seconds(now.runnable, before.runnable), looks);
        let woken: [f64; 2] = std::array::from_fn(|i| seconds(now.woken_idle[i], before.woken_idle[i]));
        Idled {
            beside: beside_queues(&runnables, looks, woken, reasons),
            wakings: runnables.iter().map(|new| new.wakings).sum(),
            reasons,
            waking,
            runnables,
            woke,
        }
    }

    /// Seconds idle for a reason; `None` for one that looks do not tell apart.
    fn spent(&self, reason: IdleReason) -> Option<f64> {
        match reason {
            IdleReason::WakeUp => Some(self.waking),
            reason => self.reasons.get(reason as usize).copied(),
        }
    }

    /// Seconds idle by reason.
    pub fn by_reason(&self) -> [f64; IdleReason::ALL.len()] {
        IdleReason::ALL.map(|reason| self.spent(reason).unwrap_or(0.0))
    }

    /// Table `idle_time`.
    pub fn table(&self, t: f64) -> Table {
        let mut rows = idle_time::Rows::new();
        rows.push(idle_time::Row { time: Some(t), spent: Per::new(|reason| self.spent(reason)) });
        rows.finish()
    }

    /// Table `runnable`.
    pub fn runnable_table(&self, t: f64) -> Table {
        let mut rows = runnable::Rows::new();
        for ((reason, new), idle) in Runnable::ALL.iter().zip(self.runnables).zip(self.beside) {
            if new.count > 0 || idle > 0.0 {
                rows.push(runnable::Row {
                    time: Some(t),
                    reason: Some(*reason),
                    count: Some(new.count),
                    queued: Some(new.queued as f64 / 1e9),
                    waking: Some(new.waking as f64 / 1e9),
                    idle: Some(idle),
                });
            }
        }
        rows.finish()
    }
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

    fn same(a: Reasons, b: Reasons) -> bool {
        a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12)
    }

    #[test]
    fn no_more_idle_time_is_due_to_queues_than_threads_queued() {
        let exact = Exact { idle: 4.25, woke: 0.0, stood: 0.5 };
        let (held, waking) = held_to(exact, 1.25, reasons(1.25, 2.0, 1.0));
        assert!(same(held, reasons(0.5, 2.5, 1.25)) && waking == 0.0, "{held:?} {waking}");
    }

    #[test]
    fn idle_time_beside_full_queues_keeps_its_share_of_them() {
        // Of 10 s on queues one looked idle; there were 8 s.
        let (held, _) = held_to(Exact { idle: 1.0, woke: 0.0, stood: 8.0 }, 10.0, reasons(1.0, 0.0, 0.0));
        assert!(same(held, reasons(0.8, 0.2, 0.0)), "{held:?}");
        // Threads that may use one CPU of two.
        let (held, _) = held_to(Exact { idle: 4.0, woke: 0.01, stood: 12.0 }, 12.0, reasons(4.0, 0.0, 0.0));
        assert!((held[QUEUE] - 3.99).abs() < 0.01, "{held:?}");
    }

    #[test]
    fn a_cpu_that_wakes_for_its_thread_is_no_queue() {
        // Two threads that wake each other: looks see 1.36 s beside queues, clocks 0.52 s, nearly all on idle CPUs.
        let exact = Exact { idle: 4.0, woke: 0.5, stood: 0.52 };
        let (held, waking) = held_to(exact, 1.36, reasons(1.36, 2.64, 0.0));
        assert_eq!(waking, 0.5);
        assert!(held[QUEUE] <= 0.02 + 1e-12, "{held:?}");
        assert!((held.iter().sum::<f64>() + waking - 4.0).abs() < 1e-12, "{held:?}");
        // Looks may miss what was short.
        let (held, waking) = held_to(exact, 0.1, reasons(0.1, 3.9, 0.0));
        assert!(held[QUEUE] == 0.0 && waking == 0.5 && (held[SERIAL] - 3.5).abs() < 1e-12, "{held:?}");
    }

    #[test]
    fn idle_time_beside_queues_is_that_of_the_threads_on_them() {
        let mut runnables = [Runnables::default(); Runnable::ALL.len()];
        runnables[Runnable::Preempted as usize].queued = 3_000_000;
        runnables[Runnable::New as usize].queued = 1_000_000;
        // Looks saw 4 s beside queues, of which 2 are true.
        let (looks, idled) = (reasons(4.0, 0.0, 0.0), reasons(2.0, 2.0, 0.0));
        let of = beside_queues(&runnables, looks, [2.0, 1.0], idled);
        let near = |reason: Runnable, wanted: f64| (of[reason as usize] - wanted).abs() < 1e-12;
        assert!(near(Runnable::UserLock, 1.0) && near(Runnable::Asleep, 0.5), "{of:?}");
        assert!(near(Runnable::Preempted, 0.375) && near(Runnable::New, 0.125), "{of:?}");
        let none = beside_queues(&runnables, reasons(0.0, 1.0, 0.0), [0.0; 2], reasons(0.0, 1.0, 0.0));
        assert_eq!(none, [0.0; Runnable::ALL.len()]);
        let alone = beside_queues(&[Runnables::default(); 6], looks, [0.0; 2], idled);
        assert!((alone.iter().sum::<f64>() - 2.0).abs() < 1e-12, "nothing is lost: {alone:?}");
    }

    #[test]
    fn looks_that_tell_less_than_there_was_stand() {
        for (stood, looked) in [(2.0, 1.0), (1.0, 1.0)] {
            let exact = Exact { idle: 6.0, woke: 0.0, stood };
            assert!(same(held_to(exact, looked, reasons(1.0, 2.0, 3.0)).0, reasons(1.0, 2.0, 3.0)));
        }
        // Nobody looked: nothing is known.
        let exact = Exact { idle: 6.0, woke: 1.0, stood: 1.0 };
        assert_eq!(held_to(exact, 0.0, reasons(0.0, 0.0, 0.0)), (reasons(0.0, 0.0, 0.0), 0.0));
    }
}
