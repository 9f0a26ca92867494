//! Switches of threads: all are followed, or some of those of threads that sleep often, where following all would cost too much.
//!
//! Programs at `sched_waking`, `sched_wakeup` and `sched_switch` run with the lock of a run queue held, at each switch of each
//! thread. Where that exceeds the budget, the first two are attached in short windows only. `sched_switch` stays, so where
//! CPUs are, and how long threads run, sleep and stand on run queues, is measured at each switch all the same. Of a thread that
//! falls asleep more than a hundred times a second, one sleep in several ([`FOLLOWED`]) that begin outside of the windows is followed,
//! by chance, and stands for the others. Windows show who wakes threads, and who stands on a queue while CPUs idle.

use std::time::{Duration, Instant};

use libbpf_rs::Link;

use super::around::Around;
use super::budget::{Budget, EVERY, FIRST_LOOK, Look, Probes};
use super::layout::CpuSlot;
use super::{Config, Engine, load, skel};
use crate::bpf_support::{Mapped, Result, monotonic_ns};

/// How long a window lasts and the mean time from one to the next, ns.
const WINDOW: f64 = 5e6;
const PERIOD: f64 = 200e6;
/// Outside of windows, the engine follows one in N sleeps of threads that sleep often: the least N and the largest, powers of two. Where a
/// thread sleeps a hundred times a second, one in 64 would often be none.
const FOLLOWED: [u32; 2] = [4, 64];
/// One run in this many is timed (`OWN_MASK` of cpu_states.h).
const TIMED: f64 = 64.0;
/// Of the capacity that a group of probes may take, the part for switches: they happen all the time, in all programs.
const PART: f64 = 0.4;
/// Below this part of the limit the budget is looked at less often.
const NEAR: f64 = 0.25;
const SELDOM: u64 = 4;
/// Of what is known of a switch's cost, this much is kept at each look.
const KEPT: f64 = 0.7;

/// Work of all CPUs so far.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    switches: u64,
    wakeups: u64,
    /// ns of the runs that were timed.
    own_ns: u64,
    /// ns that the program ran.
    ran: u64,
    /// CPUs.
    cpus: usize,
}

impl Done {
    fn now(slots: &Mapped<CpuSlot>, cpus: usize) -> Done {
        let mut done = Done { cpus, ..Done::default() };
        for slot in (0..slots.len()).map(|i| slots.get(i)) {
            done.switches += slot.switches;
            done.wakeups += slot.wakeups;
            done.own_ns += slot.own_ns;
            done.ran += slot.ran();
        }
        done
    }
}

/// Whether the programs at wake-ups are attached.
pub(super) struct Switches {
    /// The programs, with the engine's tables.
    programs: Box<skel::EngineSkel<'static>>,
    budget: Budget,
    /// The length of windows and the mean time from one to the next, ns, whatever the budget says.
    forced: Option<(f64, f64)>,
    /// Sleeps need not all be followed.
    may_thin: bool,
    links: Vec<Link>,
    around: Around,
    /// ns, when a window was opened or closed last.
    turned: u64,
    /// ns, when to open, to close or to look next.
    next: u64,
    /// At the last look, ns and what was done.
    looked: (u64, Done),
    /// ns of a switch with all that belongs to it, where wake-ups are traced.
    cost: f64,
    /// Not all are followed at the moment.
    thinned: bool,
    /// The largest N so far, where one in N sleeps was followed.
    seldom: u32,
    /// ns in which not all were followed.
    thin_ns: u64,
    /// At the last look the cost was near the limit.
    near: bool,
    /// The largest cost that was seen, as a part of the capacity.
    beyond: f64,
}

impl Switches {
    /// Attaches the programs at wake-ups. It takes the kernel `around` to call them.
    pub fn attach(config: &Config, programs: skel::EngineSkel<'static>, around: Around) -> Result<Switches> {
        let ns = |d: Duration| d.as_nanos() as f64;
        let now = monotonic_ns();
        // Without locks there are still switches.
        let probes = if config.probes == Probes::All { Probes::All } else { Probes::Auto };
        Ok(Switches {
            budget: Budget::new(probes),
            forced: config.switch_windows.map(|[window, period]| (ns(window), ns(period))),
            may_thin: probes != Probes::All && load::scheduler_times_waits(config),
            links: load::attach_wakes(&programs.progs)?,
            programs: Box::new(programs),
            around,
            turned: now,
            next: u64::MAX,
            looked: (now, Done::default()),
            cost: 0.0,
            thinned: false,
            seldom: FOLLOWED[0],
            thin_ns: 0,
            near: true,
            beyond: 0.0,
        })
    }

    fn begin(&mut self, now: u64, done: Done) {
        self.turned = now;
        self.looked = (now, done);
        self.next = if self.may_thin { now + FIRST_LOOK.as_nanos() as u64 } else { u64::MAX };
    }

    fn lengths(&self) -> (f64, f64) {
        self.forced.unwrap_or((WINDOW, PERIOD))
    }

    /// Whether wake-ups are traced at the moment.
    fn on(&self) -> bool {
        !self.links.is_empty()
    }

    /// Counts the time since the last turn, at which wake-ups began to be traced, or ceased.
    fn turn_to(&mut self, now: u64) {
        if !self.on() {
            self.thin_ns += now.saturating_sub(self.turned);
        }
        self.turned = now;
    }

    /// Looks at the budget, opens a window or closes it.
    ///
    /// # Errors
    /// The programs cannot be attached again.
    fn turn(&mut self, bss: &mut skel::types::bss, done: &dyn Fn() -> Done) -> Result<()> {
        let now = monotonic_ns();
        if now < self.next {
            return Ok(());
        }
        if !self.on() {
            // Between windows the cost of a full switch cannot be seen.
            self.looked = (now, done());
            self.open(bss)?;
            self.next = monotonic_ns() + self.lengths().0 as u64;
            return Ok(());
        }
        let share = self.look(now, done());
        if share >= 1.0 {
            if std::mem::take(&mut self.thinned) {
                (bss.pass_mask, bss.look_weight) = (0, 1);
            }
            self.next = now + EVERY.as_nanos() as u64 * if self.near { 1 } else { SELDOM };
            return Ok(());
        }
        let (window, period) = self.lengths();
        let one_in = one_in(share);
        self.seldom = self.seldom.max(one_in);
        (bss.pass_mask, bss.look_weight) = (one_in - 1, (period / window).round() as u32);
        self.close(bss, now);
        Ok(())
    }

    /// The share of the time for which all may be followed from now on, after a time in which they were.
    fn look(&mut self, now: u64, done: Done) -> f64 {
        let (then, before) = self.looked;
        self.looked = (now, done);
        let elapsed = now.saturating_sub(then) as f64;
        let switches = done.switches.saturating_sub(before.switches) as f64;
        let took = TIMED * done.own_ns.saturating_sub(before.own_ns) as f64
            + switches * self.around.switch
            + done.wakeups.saturating_sub(before.wakeups) as f64 * self.around.wake;
        if switches > 0.0 {
            let kept = if self.cost > 0.0 { KEPT } else { 0.0 };
            self.cost = kept * self.cost + (1.0 - kept) * took / switches;
        }
        if self.forced.is_some() {
            return 0.0;
        }
        let look = Look {
            elapsed,
            cpus: done.cpus as f64,
            ran: done.ran.saturating_sub(before.ran) as f64,
            on: elapsed,
            took: switches * self.cost,
            part: PART,
            ..Look::default()
        };
        let share = self.budget.look(&look);
        self.near = look.took > NEAR * look.limit();
        if share < 1.0 {
            self.beyond = self.beyond.max(look.took / (look.cpus * look.elapsed).max(1.0));
        }
        share
    }

    fn open(&mut self, bss: &mut skel::types::bss) -> Result<()> {
        let links = load::attach_wakes(&self.programs.progs)?;
        self.turn_to(monotonic_ns());
        bss.wakes_off = 0;
        self.links = links;
        Ok(())
    }

    fn close(&mut self, bss: &mut skel::types::bss, now: u64) {
        self.turn_to(now);
        bss.wakes_off = 1;
        self.links.clear();
        self.thinned = true;
        let (window, period) = self.lengths();
        let gap = (period - window) * (0.5 + fastrand::f64());
        self.next = monotonic_ns() + gap as u64;
    }

    /// Closes a window before something that takes long.
    fn rest(&mut self, bss: &mut skel::types::bss) {
        if self.thinned && self.on() {
            self.close(bss, monotonic_ns());
        }
    }

    /// Nothing is changed any more.
    pub fn end(&mut self, now: u64) {
        self.turn_to(now);
        self.next = u64::MAX;
    }

    /// A line about sleeps that were only timed.
    fn note(&self, began: u64, now: u64) -> Option<String> {
        if self.thin_ns == 0 {
            return None;
        }
        let elapsed = now.saturating_sub(began).max(1) as f64;
        Some(format!(
            "switches: following all would take {:.1} % of the machine: for {:.0} % of the time, sleeps of threads that sleep more than \
             100 times a second were followed one in {} or more, and scaled, and lengths below 20 us one in 8; times on CPU, \
             asleep and on run queues are measured all the same; --probes all follows all of them",
            100.0 * self.beyond,
            (100.0 * self.thin_ns as f64 / elapsed).min(100.0),
            self.seldom
        ))
    }
}

/// N, where one in N sleeps is followed and the budget allows `share` of what following all of them takes.
fn one_in(share: f64) -> u32 {
    let [often, seldom] = FOLLOWED;
    // The conversion saturates.
    ((1.0 / share).ceil() as u32).clamp(often, seldom).next_power_of_two()
}

impl Engine {
    /// Observing begins.
    pub(super) fn begin_switches(&mut self) {
        let done = Done::now(&self.tables.slots, self.online.cpus.len());
        self.switches.begin(self.began, done);
    }

    /// When [`Engine::trace_switches`] has something to do next; nothing where all switches are followed for good.
    pub fn next_switches(&self) -> Option<Instant> {
        let next = self.switches.next;
        (next != u64::MAX).then(|| Instant::now() + Duration::from_nanos(next.saturating_sub(monotonic_ns())))
    }

    /// Opens or closes a window in which wake-ups are traced, where following all switches would take too much.
    pub fn trace_switches(&mut self) {
        let Engine { skel, tables, online, switches, notes, .. } = self;
        let Some(bss) = skel.maps.bss_data.as_deref_mut() else { return };
        if let Err(e) = switches.turn(bss, &|| Done::now(&tables.slots, online.cpus.len())) {
            switches.next = u64::MAX;
            notes.push(format!("wake-ups were not traced to the end: {e}"));
        }
    }

    /// Closes such a window before something that takes long.
    pub fn rest_switches(&mut self) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            self.switches.rest(bss);
        }
    }

    /// A line about what of the switches was followed.
    pub(super) fn switches_note(&self) -> Option<String> {
        self.switches.note(self.began, self.ended.unwrap_or_else(monotonic_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_just_over_the_budget_has_many_of_its_sleeps_followed() {
        assert_eq!([0.5, 0.2, 0.1, 0.02, 0.001, 0.0].map(one_in), [4, 8, 16, 64, 64, 64]);
    }
}
