//! Known answers on a machine that other programs may use, for tests only.
//!
//! A test runs the same trial several times, and K of N trials must hold. Whether a trial counts is decided before its
//! outcome is looked at, by [`calm`] and never by figures of ncpu: a product that takes its own time for that of other
//! programs would excuse itself.
//!
//! Tests that need this stand in a module `quiet`, so that `.ci/test quiet` runs them one after another with nothing
//! beside (CONTRIBUTING.md tells more).

mod calm;
mod programs;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use calm::Sample;
pub use programs::{copy_program, script};

/// Part of the machine's CPUs that other programs may take during a trial that counts.
const OTHERS: f64 = 0.15;

/// Time without a test's own work in which the load by others is measured.
const WINDOW: Duration = Duration::from_millis(100);

/// Longest wait for other programs, in all of a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// K of N trials must hold.
#[derive(Clone, Copy)]
pub struct Plan {
    hold: u32,
    of: u32,
    /// Whether it is enough that the first one holds.
    first: bool,
}

/// The first trial, or two of the three after it: fails once in 3000 where a trial holds 95 times in 100, and passes 125
/// times in 1000 where a trial holds once in ten. A run has a hundred of these, which take half of its time if all begin
/// with two trials; then 52 would pass in 1000.
pub const MOST: Plan = Plan { hold: 2, of: 4, first: true };

/// A single trial, for a test that repeats its measurement itself or whose bound leaves nothing to chance.
pub const ONE: Plan = Plan::new(1, 1);

impl Plan {
    /// At least one of the trials must hold.
    pub const fn new(hold: u32, of: u32) -> Plan {
        assert!(0 < hold && hold <= of);
        Plan { hold, of, first: false }
    }

    /// The chance that the test fails although each trial holds with chance `p`.
    pub fn fails(self, p: f64) -> f64 {
        if self.first {
            return (1.0 - p) * Plan::new(self.hold, self.of - 1).fails(p);
        }
        let mut fails = 0.0;
        let mut ways = 1.0;
        for held in 0..self.hold {
            fails += ways * p.powi(held as i32) * (1.0 - p).powi((self.of - held) as i32);
            ways *= f64::from(self.of - held) / f64::from(held + 1);
        }
        fails
    }
}

/// Runs trials of `what` until the plan's verdict is certain, and panics where too few hold. A trial fails by a panic.
///
/// Trials during which other programs took the CPUs do not count, whatever their outcome. Where most are disturbed, and
/// other programs take the CPUs also while this test sleeps, the test is skipped.
pub fn hold(plan: Plan, what: &str, trial: impl FnMut()) {
    let waited = Cell::new(Duration::ZERO);
    let others = |trial: &mut dyn FnMut()| {
        waited.set(waited.get() + wait_for_calm(PATIENCE.saturating_sub(waited.get())));
        let before = Sample::take();
        trial();
        Sample::take().others_since(&before)
    };
    // Nothing but other programs runs while this sleeps.
    let excused = || !waited.get().is_zero() || others_asleep(Duration::from_secs(1)) > OTHERS;
    judge(plan, what, trial, others, excused);
}

/// `others` runs a trial and tells which part of the CPUs other programs took, `excused` whether they do so anyway.
fn judge(
    plan: Plan,
    what: &str,
    mut trial: impl FnMut(),
    mut others: impl FnMut(&mut dyn FnMut()) -> f64,
    excused: impl FnOnce() -> bool,
) {
    let mut trials = Trials { plan, held: 0, failed: 0, void: Vec::new() };
    let mut failure = None;
    let verdict = loop {
        match trials.verdict() {
            Verdict::Open => {}
            verdict => break verdict,
        }
        let mut outcome = Ok(());
        let share = others(&mut || outcome = catch_unwind(AssertUnwindSafe(&mut trial)));
        if trials.count(outcome.is_ok(), share) {
            failure = outcome.err().or(failure);
        }
    };
    let plan = trials.plan;
    match verdict {
        Verdict::Holds | Verdict::Open => {}
        Verdict::Fails => {
            eprintln!(
                "{what}: {} of {} trials held, and {} of {} must: this fails {:.1} times in 1000 where a trial holds 95 \
                 times in 100",
                trials.held,
                trials.held + trials.failed,
                plan.hold,
                plan.of,
                1000.0 * plan.fails(0.95)
            );
            resume_unwind(failure.expect("a trial that failed"));
        }
        Verdict::Disturbed if excused() => {
            eprintln!("skipped: other programs take the CPUs: {what}: {}", trials.disturbances());
        }
        Verdict::Disturbed => panic!(
            "{what}: the CPUs are left alone while this test sleeps, and were not while it ran: {}",
            trials.disturbances()
        ),
    }
}

/// Waits until other programs leave the CPUs alone, and tells for how long they did not.
fn wait_for_calm(patience: Duration) -> Duration {
    let begun = Instant::now();
    let mut waited = Duration::ZERO;
    while waited < patience && others_asleep(WINDOW) > OTHERS {
        waited = begun.elapsed();
    }
    waited
}

/// Others' part of the CPUs while this sleeps.
fn others_asleep(time: Duration) -> f64 {
    let before = Sample::take();
    std::thread::sleep(time);
    Sample::take().others_since(&before)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// Another trial decides.
    Open,
    Holds,
    Fails,
    /// Too many trials do not count.
    Disturbed,
}

struct Trials {
    plan: Plan,
    held: u32,
    failed: u32,
    /// Others' parts of the CPUs in trials that do not count.
    void: Vec<f64>,
}

impl Trials {
    fn verdict(&self) -> Verdict {
        let first = self.plan.first && (self.held, self.failed) == (1, 0);
        if first || self.held >= self.plan.hold {
            return Verdict::Holds;
        }
        if self.failed > self.plan.of - self.plan.hold {
            return Verdict::Fails;
        }
        if self.void.len() > 2 * self.plan.of as usize {
            return Verdict::Disturbed;
        }
        Verdict::Open
    }

    /// Whether the trial counts.
    fn count(&mut self, held: bool, others: f64) -> bool {
        match (others > OTHERS, held) {
            (true, _) => self.void.push(others),
            (false, true) => self.held += 1,
            (false, false) => self.failed += 1,
        }
        others <= OTHERS
    }

    fn disturbances(&self) -> String {
        let shares: Vec<String> = self.void.iter().map(|share| format!("{:.0} %", 100.0 * share)).collect();
        format!("{} of the CPUs in trials that do not count", shares.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stated_errors_are_those_of_the_binomial_distribution() {
        let near = |found: f64, exact: f64| assert!((found - exact).abs() < 1e-9, "{found}, {exact}");
        near(MOST.fails(0.95), 0.0003625);
        near(1.0 - MOST.fails(0.1), 0.1252);
        near(ONE.fails(0.95), 0.05);
        near(Plan::new(4, 5).fails(0.9), 0.08146);
    }

    fn after(plan: Plan, outcomes: &[(bool, f64)]) -> Verdict {
        let mut trials = Trials { plan, held: 0, failed: 0, void: Vec::new() };
        for &(held, others) in outcomes {
            assert_eq!(trials.verdict(), Verdict::Open, "{outcomes:?}");
            trials.count(held, others);
        }
        trials.verdict()
    }

    #[test]
    fn trials_end_when_the_verdict_is_certain() {
        let (held, failed, void) = ((true, 0.0), (false, 0.01), (true, 0.5));
        assert_eq!(after(MOST, &[held]), Verdict::Holds);
        assert_eq!(after(Plan::new(2, 4), &[held]), Verdict::Open);
        assert_eq!(after(MOST, &[failed, failed]), Verdict::Open);
        assert_eq!(after(MOST, &[failed, held]), Verdict::Open);
        assert_eq!(after(MOST, &[failed, held, failed]), Verdict::Open);
        assert_eq!(after(MOST, &[failed, held, failed, failed]), Verdict::Fails);
        assert_eq!(after(MOST, &[failed, failed, failed]), Verdict::Fails);
        assert_eq!(after(ONE, &[failed]), Verdict::Fails);
        // What is disturbed counts neither way.
        assert_eq!(after(MOST, &[void, (false, 0.5), held]), Verdict::Holds);
        let mut outcomes = vec![failed];
        outcomes.resize(9, void);
        assert_eq!(after(MOST, &outcomes), Verdict::Open);
        outcomes.push(void);
        assert_eq!(after(MOST, &outcomes), Verdict::Disturbed);
        assert_eq!(after(ONE, &[void, void, void]), Verdict::Disturbed);
    }

    /// A calm machine.
    fn judged(plan: Plan, trial: impl FnMut()) {
        judge(plan, "test", trial, |trial| (trial(), 0.0).1, || unreachable!("it is calm"));
    }

    #[test]
    fn a_trial_that_never_holds_fails_and_one_of_four_may() {
        let mut runs = 0;
        judged(MOST, || {
            runs += 1;
            assert!(runs > 1, "the first");
        });
        assert_eq!(runs, 3);
        let failed = catch_unwind(|| judged(MOST, || panic!("never")));
        assert_eq!(failed.unwrap_err().downcast_ref(), Some(&"never"));
    }

    #[test]
    fn only_other_programs_excuse_a_disturbed_trial() {
        let mut runs = 0;
        let mut disturbed = |excused: bool| {
            catch_unwind(AssertUnwindSafe(|| {
                judge(ONE, "test", || runs += 1, |trial| (trial(), 0.5).1, || excused);
            }))
        };
        assert!(disturbed(true).is_ok());
        assert!(disturbed(false).is_err());
        assert_eq!(runs, 6);
    }
}
