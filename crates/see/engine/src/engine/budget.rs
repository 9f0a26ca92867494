//! The budget of each group of probes: how much of a program's time they may take.
//!
//! A group of probes counts its hits. Hits times the cost of one, measured on this machine, is what the group takes. A
//! [`Budget`] is asked at each look, [`FIRST_LOOK`] after attaching and then every [`EVERY`], and answers with the share of
//! the time for which the group may be on. Nothing here touches the kernel.

use std::time::Duration;

/// `--probes`: how much the program may be slowed by probes that run at each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probes {
    /// No such probes.
    Off,
    /// As many as the budget allows.
    #[default]
    Auto,
    /// All, whatever they cost.
    All,
}

/// When a group is looked at first after it was attached.
pub const FIRST_LOOK: Duration = Duration::from_millis(20);
/// How often it is looked at afterwards.
pub const EVERY: Duration = Duration::from_millis(50);

/// Part of the machine's capacity that a group may take.
const OF_CAPACITY: f64 = 0.02;
/// Part of the program's time on CPU that it may take. Half of the speed that a program may lose: a probe also costs the
/// caches and the threads that wait for the one that was hit.
const OF_PROGRAM: f64 = 0.025;
/// Part of one CPU that matters to nobody, however little the program runs.
const FREE: f64 = 0.0025;
/// The same as a part of the capacity, for a group that all programs hit and not the observed one alone.
const FREE_OF_ALL: f64 = 0.002;
/// A group that was over its limit is thinned out to this part of it, so that it does not return to the limit at once.
const AIM: f64 = 0.5;
/// Unused limit is saved, at most the limit of [`SAVED`] ns, so that a short burst does not end exact counting. A group begins with
/// the limit of [`AT_FIRST`] ns.
const SAVED: f64 = 1e9;
const AT_FIRST: f64 = 0.2e9;
/// The share of a group that was thinned out grows no faster than this from one look to the next: what a program does in a
/// short window is not what it does always.
const GROWTH: f64 = 2.0;

/// Time that a group of probes took between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Look {
    /// ns between the looks.
    pub elapsed: f64,
    /// CPUs of the machine.
    pub cpus: f64,
    /// ns that the program ran, summed over CPUs.
    pub ran: f64,
    /// ns for which the group was on, at most `elapsed`.
    pub on: f64,
    /// ns that its probes took: hits times the cost of one.
    pub took: f64,
    /// Whether hits may follow one another, however many CPUs there are, as those of waits for one lock: each then delays
    /// the whole program, whether it runs or waits, so the limit is a part of `elapsed` and not of `ran`.
    pub serial: bool,
    /// The part of the limit by capacity that a group has which all programs hit; 0: only the observed one hits it.
    pub part: f64,
}

impl Look {
    /// ns that the group may take in this time.
    pub fn limit(&self) -> f64 {
        let of_program = OF_PROGRAM * if self.serial { self.elapsed } else { self.ran };
        let (part, free) = match self.part > 0.0 {
            true => (self.part, FREE_OF_ALL * self.cpus),
            false => (1.0, FREE),
        };
        of_program.max(free * self.elapsed).min(part * OF_CAPACITY * self.cpus * self.elapsed)
    }

    /// ns that it would take if it were always on.
    fn always(&self) -> f64 {
        if self.on > 0.0 { self.took * (self.elapsed / self.on).max(1.0) } else { 0.0 }
    }
}

/// The budget of a group of probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    probes: Probes,
    share: f64,
    /// ns that the group may take beyond its limit; nothing before the first look.
    credit: Option<f64>,
    /// ns that it may take beyond its limit at first, and not again.
    first: f64,
    /// The most of `share` from when the group was thinned out.
    most: f64,
}

impl Budget {
    /// Of a group that has just been attached.
    pub fn new(probes: Probes) -> Budget {
        Budget {
            probes,
            share: if probes == Probes::Off { 0.0 } else { 1.0 },
            credit: None,
            first: 0.0,
            most: 1.0,
        }
    }

    /// Once thinned out, the group is on for at most this share of the time, however seldom it is hit then. For probes that may stop
    /// a program: threads that stand still hit nothing.
    pub fn at_most(self, most: f64) -> Budget {
        Budget { most, ..self }
    }

    /// That may take `ns` more at first.
    pub fn at_first(self, ns: f64) -> Budget {
        Budget { first: ns, ..self }
    }

    /// The share of the time for which the group is on: 1 is always.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Takes a look into account; the share of the time for which the group may be on from now on. A look in which the
    /// group was never on changes nothing.
    pub fn look(&mut self, look: &Look) -> f64 {
        if self.probes != Probes::Auto || look.on <= 0.0 || look.elapsed <= 0.0 {
            return self.share;
        }
        let limit = look.limit();
        let forgiven = (look.took - limit).clamp(0.0, self.first);
        self.first -= forgiven;
        let look = Look { took: look.took - forgiven, ..*look };
        let always = look.always();
        let per_ns = limit / look.elapsed;
        let credit = self.credit.unwrap_or(per_ns * AT_FIRST) + limit - look.took;
        let credit = credit.min(per_ns * SAVED);
        self.credit = Some(credit.max(-per_ns * SAVED));
        let aim = limit * AIM;
        let stays = self.share == 1.0 && (always <= limit || credit > 0.0);
        let wanted = if stays || always <= aim { 1.0 } else { aim / always };
        let thinned = self.share < 1.0;
        self.share = wanted.min(if thinned { self.share * GROWTH } else { 1.0 });
        if thinned || self.share < 1.0 {
            self.share = self.share.min(self.most);
        }
        self.share
    }
}

/// How much of an interval events were counted in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// Events in the interval for each that was counted; 1: all were.
    pub scale: f64,
    /// Half-width of the 95 % interval of `scale`, as a part of it: how much windows differ. `None`: all were counted, or there
    /// were too few windows.
    pub spread: Option<f64>,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage::ALL
    }
}

impl Coverage {
    /// All were counted.
    pub const ALL: Coverage = Coverage { scale: 1.0, spread: None };

    /// Whether figures are scaled.
    pub fn scaled(&self) -> bool {
        self.scale > 1.0
    }

    /// `n`, or ns, of an interval, of what was counted.
    pub fn of(&self, n: u64) -> u64 {
        if self.scaled() { (n as f64 * self.scale).round() as u64 } else { n }
    }

    /// Half-width of the 95 % interval of [`Coverage::of`]: few events, and windows that differ.
    pub fn error(&self, n: u64) -> f64 {
        if !self.scaled() {
            return 0.0;
        }
        let n = n as f64;
        // Of the events, those that were counted are known.
        let chance = 1.96 * n.sqrt() * (1.0 - 1.0 / self.scale).sqrt();
        self.scale * chance.hypot(self.spread.unwrap_or(1.0) * n)
    }

    /// Of an interval with `on` ns of `elapsed` in `windows` windows; `rates` are those of windows like them.
    pub(super) fn from(elapsed: f64, on: f64, windows: usize, rates: &[f64]) -> Coverage {
        // An edge, or the moment between two looks at the clock.
        if on >= 0.999 * elapsed {
            return Coverage::ALL;
        }
        let n = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / n;
        let spread = (rates.len() > 1 && mean > 0.0).then(|| {
            let variance = rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0);
            1.96 * (variance / windows.max(1) as f64 * (1.0 - on / elapsed)).sqrt() / mean
        });
        Coverage { scale: elapsed / on, spread }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_stops_a_program_does_not_grow_because_nothing_is_hit() {
        let look =
            |took: f64| Look { elapsed: 5e6, cpus: 2.0, on: 5e6, took, serial: true, ..Look::default() };
        for most in [0.02, 1.0] {
            let mut budget = Budget::new(Probes::Auto).at_most(most);
            assert_eq!(budget.look(&look(0.0)), 1.0, "nothing was hit, so it is on");
            while budget.look(&look(5e6)) == 1.0 {}
            let mut last = budget.share();
            for _ in 0..50 {
                last = budget.look(&look(0.0));
            }
            assert_eq!(last, most);
        }
    }

    /// 50 ms of two CPUs, both busy with the program.
    fn busy(took: f64) -> Look {
        Look { elapsed: 50e6, cpus: 2.0, ran: 100e6, on: 50e6, took, serial: false, part: 0.0 }
    }

    #[test]
    fn what_is_within_the_budget_stays_on() {
        let mut budget = Budget::new(Probes::Auto);
        for _ in 0..100 {
            assert_eq!(budget.look(&busy(1.9e6)), 1.0);
        }
    }

    #[test]
    fn what_is_beyond_thins_out_at_once_and_comes_back_slowly() {
        let mut budget = Budget::new(Probes::Auto);
        // A whole CPU: 50 ms of probes where 2 ms are allowed, 1 aimed at, and 8 more allowed at first.
        assert_eq!(budget.look(&busy(50e6)), 0.02);
        // A window of 1 ms takes 1 ms of probes.
        let window = Look { on: 1e6, took: 1e6, ..busy(0.0) };
        assert_eq!(budget.look(&window), 0.02);
        // Then the program does something else.
        let quiet = Look { on: 1e6, took: 0.0, ..busy(0.0) };
        let shares: Vec<f64> = (0..7).map(|_| budget.look(&quiet)).collect();
        assert_eq!(shares, [0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]);
    }

    #[test]
    fn a_burst_is_forgiven_once() {
        let mut budget = Budget::new(Probes::Auto);
        assert_eq!(budget.look(&busy(9e6)), 1.0, "8 ns more than the limit are free at first");
        assert!(budget.look(&busy(9e6)) < 1.0, "and then no more");
        let mut saved = Budget::new(Probes::Auto);
        for _ in 0..1000 {
            saved.look(&busy(0.0));
        }
        let bursts = (0..).take_while(|_| saved.look(&busy(12e6)) == 1.0).count();
        assert_eq!(bursts, 3, "what was saved in a second, and not in a minute");
    }

    #[test]
    fn what_a_start_takes_is_forgiven_however_little_it_runs() {
        let rare = |took: f64| Look { ran: 0.5e6, ..busy(took) };
        let mut budget = Budget::new(Probes::Auto).at_first(3e6);
        for took in [1e6, 2e6] {
            assert_eq!(budget.look(&rare(took)), 1.0);
        }
        assert!(budget.look(&rare(3e6)) < 1.0, "and no more of it");
        assert!(Budget::new(Probes::Auto).look(&rare(2e6)) < 1.0);
    }

    #[test]
    fn half_of_the_limit_is_needed_to_come_back() {
        let mut budget = Budget::new(Probes::Auto);
        budget.look(&busy(12e6));
        assert!(budget.share() < 0.5, "{budget:?}");
        for _ in 0..20 {
            budget.look(&busy(1.5e6));
        }
        assert!(budget.share() < 1.0, "three quarters of the limit: {budget:?}");
        budget.look(&busy(0.9e6));
        assert_eq!(budget.share(), 1.0);
    }

    #[test]
    fn one_thread_on_a_large_machine_is_slowed_no_more_than_on_a_small_one() {
        // The probes that are still on after ten seconds: the saved budget is used up.
        let after = |look: Look| {
            let mut budget = Budget::new(Probes::Auto);
            for _ in 0..200 {
                let share = budget.share();
                budget.look(&Look { on: share * look.on, took: share * look.took, ..look });
            }
            budget.share()
        };
        let one = Look { cpus: 512.0, ran: 50e6, ..busy(5e6) };
        assert!(after(one) < 1.0, "a tenth of its time");
        // 512 threads that wait for one another: hits one after the other hold all of them up.
        let many = Look { cpus: 512.0, ran: 512.0 * 50e6, serial: true, ..busy(25e6) };
        assert!(after(many) < 0.05);
        assert_eq!(after(Look { serial: false, ..many }), 1.0);
    }

    #[test]
    fn a_program_that_hardly_runs_keeps_its_probes() {
        let rare = Look { ran: 0.5e6, ..busy(0.1e6) };
        assert_eq!(Budget::new(Probes::Auto).look(&rare), 1.0);
    }

    #[test]
    fn more_windows_give_a_better_figure() {
        assert_eq!(Coverage::from(1e9, 0.9999e9, 0, &[]), Coverage::ALL);
        let even = Coverage::from(1e9, 0.05e9, 4, &[1e-3; 4]);
        assert_eq!((even.scale, even.spread, even.of(1000)), (20.0, Some(0.0), 20_000));
        // That 1,000 were counted and not a few more is chance.
        assert!((even.error(1000) - 20.0 * 1.96 * (0.95f64 * 1000.0).sqrt()).abs() < 1e-6);
        let uneven = [0.0, 2e-3, 0.0, 2e-3];
        let [few, many] = [4, 16].map(|n| Coverage::from(1e9, 0.05e9, n, &uneven).error(1000));
        assert!(few > 0.5 * 20_000.0 && many < 0.55 * few, "{few} {many}");
        assert_eq!(Coverage::from(1e9, 0.05e9, 1, &[1e-3]).spread, None, "one window says nothing of others");
    }

    #[test]
    fn all_and_off_have_no_budget() {
        assert_eq!(Budget::new(Probes::All).look(&busy(1e9)), 1.0);
        assert_eq!(Budget::new(Probes::Off).look(&busy(0.0)), 0.0);
    }

    proptest! {
        /// A program that does the same all the time: whatever it does, its probes take no more than the limit in the
        /// long run, and the share stays between 0 and 1.
        #[test]
        fn probes_keep_to_their_limit(
            cpus in 1u32..1024,
            ran in 0.0f64..1.0,
            rate in 0.0f64..2.0,
            serial: bool,
            looks in 1usize..40,
        ) {
            let mut budget = Budget::new(Probes::Auto);
            let cpus = f64::from(cpus);
            let (mut all, mut allowed) = (0.0, 0.0);
            for n in 0..looks {
                let on = 50e6 * budget.share();
                let took = on * rate * cpus;
                let look = Look { elapsed: 50e6, cpus, ran: ran * cpus * 50e6, on, took, serial, part: 0.0 };
                let share = budget.look(&look);
                prop_assert!((0.0..=1.0).contains(&share));
                // Saved at first, and the look that exceeded the limit.
                if n == 0 {
                    allowed = AT_FIRST / 50e6 * look.limit() + rate * cpus * 50e6;
                }
                (all, allowed) = (all + took, allowed + look.limit());
                prop_assert!(all <= allowed * (1.0 + 1e-9), "{look:?} {share}");
            }
        }

        /// More hits never give a larger share.
        #[test]
        fn more_hits_never_pay(took in 0.0f64..1e9, more in 0.0f64..1e9, share in 0.001f64..1.0) {
            let start = Budget { probes: Probes::Auto, share, credit: None, first: 0.0, most: 1.0 };
            let (mut one, mut other) = (start, start);
            prop_assert!(one.look(&busy(took)) >= other.look(&busy(took + more)));
        }
    }
}
