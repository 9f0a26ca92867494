//! From a slope to the gain of a repair.
//!
//! A place *binds* by the share of its dose that the program's speed feels: 1 where every hit delays all of the program, as a
//! lock that is always held does; 1/P where P CPUs work side by side and a hit delays one of them; 0 where nobody waits for it.
//!
//! - Work (a call, a fault, a function): without the place, an operation is shorter by the time in the place, times the
//!   part of it that binds. Of S CPU-seconds a second in it, this is b·S of the time.
//! - A lock: its removal leaves what the program does without contention. That is measured and not extrapolated: one CPU has no
//!   contention, so P times its speed on one CPU is the *anchor*. A lock that binds in part brings the program that part of the way,
//!   or as far as its waits are of what contention costs in all, where that is more.

use ncpu_schema::DosePlace;

use crate::fit::Slope;
use crate::place::{Candidate, is_exclusive};

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The figure.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Figure {
    /// Maps the figure and both ends by a function that grows or falls all along.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Figure {
        let (value, a, b) = (f(self.value), f(self.low), f(self.high));
        Figure { value, low: a.min(b), high: a.max(b) }
    }

    /// This figure, with the relative error of another, independent one: they add as squares.
    fn with_error_of(self, other: Figure) -> Figure {
        let value = self.value;
        let down = (self.value / self.low).ln().hypot((other.value / other.low).ln());
        let up = (self.high / self.value).ln().hypot((other.high / other.value).ln());
        Figure { value, low: value * (-down).exp(), high: value * up.exp() }
    }
}

/// Measurements of the program, beside its places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Program {
    /// CPUs that it may use, without the part that other programs took.
    pub cpus: f64,
    /// Its threads that compute; 0 where that is not known.
    pub threads: usize,
    /// Speed of one such program on each CPU over the program's own, if that was measured: without
    /// contention.
    pub anchor: Option<Figure>,
}

/// The share of its dose that the program feels: the slope over hits per ns.
pub fn binding(slope: &Slope, hits_per_second: f64, level: f64) -> Option<Figure> {
    let hits_per_ns = hits_per_second / 1e9;
    let (low, high) = slope.interval(level);
    (hits_per_ns > 0.0).then(|| Figure {
        value: slope.value() / hits_per_ns,
        low: low / hits_per_ns,
        high: high / hits_per_ns,
    })
}

/// A repair of a cause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Repair {
    /// It is gone.
    Removed,
    /// It takes half the time: a shorter critical section, or a call that does half the work.
    Halved,
    /// It is split into this many independent parts: a lock for each, or a call for this many pieces of work
    /// at once.
    Split(f64),
}

/// Speed after a repair over speed before; `None` where too little is known for it.
pub fn gain(candidate: &Candidate, binds: Figure, program: Program, repair: Repair) -> Option<Figure> {
    match is_exclusive(candidate.kind) {
        true => lock(candidate, binds, program, repair),
        false => {
            let gone = match repair {
                Repair::Removed => 1.0,
                Repair::Halved => 0.5,
                Repair::Split(parts) => 1.0 - 1.0 / parts.max(1.0),
            };
            let busy = candidate.busy?;
            let gain = |b: f64, busy: f64| shorter(gone * b.clamp(0.0, 1.0) * busy);
            Some(Figure {
                value: gain(binds.value, busy),
                low: gain(binds.low, busy / candidate.within),
                high: gain(binds.high, busy * candidate.within),
            })
        }
    }
}

/// The part of a lock's effect beyond that of work side by side, 0–1.
pub fn serial(binds: f64, cpus: f64) -> f64 {
    match cpus > 1.0 {
        true => ((binds - 1.0 / cpus) / (1.0 - 1.0 / cpus)).clamp(0.0, 1.0),
        // One CPU has nobody beside.
        false => 0.0,
    }
}

fn lock(candidate: &Candidate, binds: Figure, program: Program, repair: Repair) -> Option<Figure> {
    let mut serial = binds.map(|b| serial(b, program.cpus));
    // The total cost of contention is known. A lock that binds for certain causes the part of it that its waits make
    // up.
    let lost = program.anchor.map_or(0.0, |anchor| 1.0 - 1.0 / anchor.value.max(1.0));
    if serial.low > 0.0 && lost > 0.0 {
        let of_waits = candidate.busy.map(|busy| busy / program.cpus / lost);
        let of_layers = candidate.bound.map(|bound| (1.0 - 1.0 / bound.max(1.0)) / lost);
        let both = [of_waits, of_layers].into_iter().flatten().map(|share| share.clamp(0.0, 1.0));
        let (mut least, mut most) = (f64::INFINITY, 0.0f64);
        for share in both {
            (least, most) = (least.min(share), most.max(share));
        }
        if least.is_finite() {
            serial = Figure {
                value: serial.value.max((least + most) / 2.0),
                low: serial.low.max(least),
                high: serial.high.max(most),
            };
        }
    }
    // The factor by which the repair shortens an operation, while the lock is the only bottleneck.
    let times_shorter = match repair {
        Repair::Removed => f64::INFINITY,
        Repair::Halved => 2.0,
        Repair::Split(parts) => parts.max(1.0),
    };
    match program.anchor {
        Some(anchor) => {
            let speed =
                |serial: f64, anchor: f64| 1.0 / (1.0 - serial + serial / anchor.max(1.0).min(times_shorter));
            let of_binding = serial.map(|s| speed(s, anchor.value));
            let of_anchor = anchor.map(|a| speed(serial.value, a));
            Some(of_binding.with_error_of(of_anchor))
        }
        // The CPU time of its waiters comes back, if nothing else does.
        None if candidate.kind == DosePlace::KernelLock && repair == Repair::Removed => {
            let busy = candidate.busy?;
            Some(serial.map(|s| shorter(s * busy / program.cpus)))
        }
        None => None,
    }
}

/// The largest gain that is shown for work: what remains of so little time is not known.
pub const MOST_GAIN: f64 = 20.0;

/// The speed of operations that take `less` less time, a part of theirs; [`MOST_GAIN`] at most.
pub fn shorter(less: f64) -> f64 {
    1.0 / (1.0 - less.clamp(0.0, 1.0 - 1.0 / MOST_GAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(kind: DosePlace, busy: f64) -> Candidate {
        Candidate { busy: Some(busy), ..Candidate::new(kind, "x", 1e6) }
    }

    fn figure(value: f64) -> Figure {
        Figure { value, low: value, high: value }
    }

    fn gain_of(candidate: &Candidate, binds: f64, anchor: Option<f64>, repair: Repair) -> f64 {
        let program = Program { cpus: 4.0, threads: 8, anchor: anchor.map(figure) };
        gain(candidate, figure(binds), program, repair).unwrap().value
    }

    #[test]
    fn a_lock_that_is_always_held_gives_the_anchor() {
        let lock = candidate(DosePlace::KernelLock, 1.0);
        assert_eq!(gain_of(&lock, 1.0, Some(3.5), Repair::Removed), 3.5);
        assert_eq!(gain_of(&lock, 1.0, Some(3.5), Repair::Halved), 2.0);
        assert_eq!(gain_of(&lock, 1.0, Some(3.5), Repair::Split(8.0)), 3.5);
        // One that delays its holder alone gives nothing, whatever the anchor.
        assert_eq!(gain_of(&lock, 0.25, Some(3.5), Repair::Removed), 1.0);
        assert_eq!(gain_of(&lock, 0.0, Some(3.5), Repair::Removed), 1.0);
        // Nor does any where the program is as fast as without contention.
        assert_eq!(gain_of(&lock, 1.0, Some(0.9), Repair::Removed), 1.0);
        // Without an anchor the CPU time of the waiters is what is known to come back.
        assert!((gain_of(&lock, 1.0, None, Repair::Removed) - 1.0 / 0.75).abs() < 1e-12);
        let program = Program { cpus: 4.0, threads: 8, anchor: None };
        assert_eq!(gain(&lock, figure(1.0), program, Repair::Halved), None);
    }

    #[test]
    fn a_lock_that_binds_has_the_part_of_contention_that_its_waits_take() {
        // Contention takes half of the CPUs, and waits for this lock all of that.
        let lock = candidate(DosePlace::KernelLock, 2.0);
        let binds = Figure { value: 0.5, low: 0.3, high: 0.7 };
        let program = Program { cpus: 4.0, threads: 8, anchor: Some(figure(2.0)) };
        let gain_of = |lock: &Candidate, binds| gain(lock, binds, program, Repair::Removed).unwrap().value;
        assert!((gain_of(&lock, binds) - 2.0).abs() < 1e-12);
        // With fewer waits it is the reason of less, down to what its dose says.
        let part = Candidate { busy: Some(0.1), ..lock.clone() };
        assert!((gain_of(&part, binds) - 1.0 / (1.0 - 1.0 / 3.0 + 1.0 / 6.0)).abs() < 1e-12);
        // One that may not bind at all gets nothing for its waits.
        assert_eq!(gain_of(&lock, Figure { value: 0.25, low: 0.2, high: 0.3 }), 1.0);
    }

    #[test]
    fn work_gives_its_time_as_far_as_it_binds() {
        let call = candidate(DosePlace::Call, 1.6);
        // 40 % of four CPUs, side by side.
        assert!((gain_of(&call, 0.25, None, Repair::Removed) - 1.0 / 0.6).abs() < 1e-12);
        assert!((gain_of(&call, 0.25, None, Repair::Halved) - 1.0 / 0.8).abs() < 1e-12);
        assert!((gain_of(&call, 0.25, None, Repair::Split(4.0)) - 1.0 / 0.7).abs() < 1e-12);
        // The same in threads that nobody waits for.
        assert_eq!(gain_of(&call, 0.0, None, Repair::Removed), 1.0);
        let unknown = Candidate { busy: None, ..call };
        let program = Program { cpus: 4.0, threads: 8, anchor: None };
        assert_eq!(gain(&unknown, figure(0.25), program, Repair::Removed), None);
    }

    #[test]
    fn a_guessed_time_widens_the_interval_of_what_binds_for_certain() {
        // A place that binds wholly has no error of its own once it is cut at 1.
        let binds = Figure { value: 1.3, low: 1.2, high: 1.4 };
        let program = Program { cpus: 4.0, threads: 8, anchor: None };
        let guessed = Candidate { within: 2.0, ..candidate(DosePlace::WakeUps, 0.2) };
        let found = gain(&guessed, binds, program, Repair::Removed).unwrap();
        let of = |busy: f64| 1.0 / (1.0 - busy);
        let off = [found.value / of(0.2), found.low / of(0.1), found.high / of(0.4)];
        assert!(off.iter().all(|off| (off - 1.0).abs() < 1e-12), "{found:?}");
    }

    #[test]
    fn both_errors_are_in_the_interval() {
        let lock = candidate(DosePlace::KernelLock, 0.1);
        let program =
            Program { cpus: 2.0, threads: 8, anchor: Some(Figure { value: 4.0, low: 3.6, high: 4.4 }) };
        let binds = Figure { value: 0.9, low: 0.8, high: 1.0 };
        let found = gain(&lock, binds, program, Repair::Removed).unwrap();
        let one = gain(&lock, figure(0.9), program, Repair::Removed).unwrap();
        assert!(found.low < one.low && found.high > one.high, "{found:?} {one:?}");
        assert!(found.low < found.value && found.value < found.high);
    }
}
