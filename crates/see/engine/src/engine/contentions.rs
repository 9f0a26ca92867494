//! Contentions of kernel locks: all are counted, or those in short windows where tracing all of them would cost too much.
//!
//! Even a program that does nothing at `contention_begin` and `contention_end` takes half of the speed of a program that
//! mostly waits for one lock: all waiters pay for what happens while it is held. So between windows the programs are detached, which
//! leaves nothing but a jump in the kernel's code. Windows come at random, so that they do not keep step with the program.
//!
//! That holds where waits spin. Where more than one in a hundred sleeps, the programs stay attached: a sleep costs more than
//! tracing it does, and its time is known exactly.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use libbpf_rs::Link;

use super::budget::{Budget, Coverage, EVERY, FIRST_LOOK, Look, Probes};
use super::layout::CpuSlot;
use super::{Config, Engine, skel};
use crate::bpf_support::{Mapped, Result, load, monotonic_ns};

/// ns that a contention takes on CPU: two tracepoints, their programs, and now and then the walk of a stack.
const COST: f64 = 300.0;
/// How long a window lasts, ns. It is shorter only where the budget leaves less in the longest time between windows.
const WINDOW: f64 = 10e6;
const SHORTEST: f64 = 1e6;
const PERIOD: f64 = 200e6;
/// A window that closed late is followed by a longer gap, in proportion, at most this many times.
const LATE: f64 = 5.0;
/// Attaching and detaching stops all CPUs for a moment: they take at most one part of this many of the time.
const SWITCHING: f64 = 50.0;
/// Number of windows whose rates are kept, to show how much windows differ: an interval may have
/// one window only.
const RATES: usize = 64;
/// Waits are counted in windows only where at most this part of them sleeps.
const SLEEPING: f64 = 0.01;
/// Of what is known of that, this much is kept at each look.
const KEPT: f64 = 0.9;

/// The kernel side's words that say when contentions are counted.
struct Gate<'a> {
    bss: Option<&'a mut skel::types::bss>,
    /// Where threads sleep for kernel locks; empty where that cannot be known, and nothing where it is not known yet.
    code: &'a mut dyn FnMut() -> Option<Vec<Range<u64>>>,
}

impl Gate<'_> {
    /// They are counted from now on.
    fn open(&mut self) {
        self.turn();
    }

    /// Whether sleeps for locks can be recognized while contentions are not counted; `None` where that is not known
    /// yet.
    fn may_close(&mut self) -> Option<bool> {
        let bss = self.bss.as_mut()?;
        if bss.lock_code[0].end == 0 {
            for (to, range) in bss.lock_code.iter_mut().zip((self.code)()?) {
                (to.start, to.end) = (range.start, range.end);
            }
        }
        Some(bss.lock_code[0].end != 0)
    }

    /// They are not, from this time on.
    fn close(&mut self, now: u64) {
        if let Some(bss) = &mut self.bss {
            bss.lock_closed = now;
        }
        // `lock_closed` before `lock_epoch`.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        self.turn();
    }

    fn turn(&mut self) {
        if let Some(bss) = &mut self.bss {
            bss.lock_epoch = bss.lock_epoch.wrapping_add(1);
        }
    }
}

/// Work of all CPUs so far.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Contentions that were counted.
    events: u64,
    /// Sleeps in them.
    sleeps: u64,
    /// CPUs.
    cpus: usize,
}

impl Done {
    fn now(slots: &Mapped<CpuSlot>, cpus: usize) -> Done {
        let mut done = Done { cpus, ..Done::default() };
        for slot in (0..slots.len()).map(|i| slots.get(i)) {
            done.events += slot.lock_events;
            done.sleeps += slot.lock_sleeps;
        }
        done
    }
}

/// Whether the programs are attached, and since when.
pub(super) struct Contentions {
    budget: Budget,
    /// The length of windows and the mean time from one to the next, ns, whatever the budget says.
    forced: Option<(f64, f64)>,
    links: Vec<Link>,
    /// ns, when the programs were attached; nothing between windows.
    open: Option<u64>,
    /// ns, when to open, to close or to look next.
    next: u64,
    /// At the last look at the budget: ns, ns attached until then, and what was done.
    looked: (u64, u64, Done),
    /// ns attached in all, this window not included.
    on: u64,
    /// Contentions counted before this window.
    before: u64,
    /// At the last [`Contentions::take`]: ns, and ns attached until then.
    taken: (u64, u64),
    /// Windows that have closed since then.
    closed: usize,
    /// Contentions per ns in the last windows.
    rates: VecDeque<f64>,
    last: Coverage,
    /// ns that it takes to attach and detach, the mean of the last few.
    switching: f64,
    windows: u64,
    /// Contentions that were counted, and sleeps in them; older ones count less.
    lately: (f64, f64),
    /// ns that tracing took where it was beyond the budget and stayed, and ns of that time.
    beyond: (f64, f64),
    /// Sleeps for locks cannot be recognized between windows.
    blind: bool,
}

impl Contentions {
    /// Attaches the programs, if they are loaded.
    pub fn attach(config: &Config, progs: &skel::EngineProgs<'_>) -> Result<Contentions> {
        let ns = |d: Duration| d.as_nanos() as f64;
        let links = attach(progs)?;
        let now = monotonic_ns();
        let forced = config.lock_windows.map(|[window, period]| (ns(window), ns(period)));
        Ok(Contentions {
            budget: Budget::new(config.probes),
            forced,
            open: (!links.is_empty()).then_some(now),
            links,
            next: now + FIRST_LOOK.as_nanos() as u64,
            looked: (now, 0, Done::default()),
            on: 0,
            before: 0,
            taken: (now, 0),
            closed: 0,
            rates: VecDeque::new(),
            last: Coverage::ALL,
            switching: 0.0,
            windows: 0,
            lately: (0.0, 0.0),
            beyond: (0.0, 0.0),
            blind: false,
        })
    }

    /// Counting begins now.
    fn begin(&mut self, now: u64, done: Done) {
        self.on = 0;
        self.before = done.events;
        self.open = self.open.map(|_| now);
        self.looked = (now, 0, done);
        self.taken = (now, 0);
        self.next = now + FIRST_LOOK.as_nanos() as u64;
    }

    /// When [`Contentions::turn`] has something to do next, ns; never where nothing is traced.
    fn next(&self) -> Option<u64> {
        (self.open.is_some() || self.windows > 0).then_some(self.next)
    }

    /// ns attached until now.
    fn attached(&self, now: u64) -> u64 {
        self.on + self.open.map_or(0, |since| now.saturating_sub(since))
    }

    /// Opens or closes a window, or looks at the budget.
    ///
    /// # Errors
    /// The programs cannot be attached again.
    fn turn(
        &mut self,
        progs: &skel::EngineProgs<'_>,
        gate: &mut Gate<'_>,
        done: &dyn Fn() -> Done,
    ) -> Result<()> {
        let now = monotonic_ns();
        if self.next().is_none_or(|next| now < next) {
            return Ok(());
        }
        let Some(since) = self.open else {
            let before = done().events;
            self.links = attach(progs)?;
            let opened = monotonic_ns();
            gate.open();
            self.switching += (opened.saturating_sub(now)) as f64;
            (self.before, self.open) = (before, Some(opened));
            self.next = opened + self.lengths().0 as u64;
            return Ok(());
        };
        let what = done();
        let share = self.look(now, what);
        if share >= 1.0 || !self.may_close(gate) {
            self.next = now + EVERY.as_nanos() as u64;
            return Ok(());
        }
        // Before the first window they were always attached: that was none.
        if self.windows > 0 {
            let ns = now.saturating_sub(since).max(1) as f64;
            self.rates.push_back(what.events.saturating_sub(self.before) as f64 / ns);
            if self.rates.len() > RATES {
                self.rates.pop_front();
            }
        }
        self.close(gate, now);
        self.windows += 1;
        self.next = monotonic_ns() + self.gap(now.saturating_sub(since));
        Ok(())
    }

    /// Counts all from now on, whatever that costs.
    pub fn count_all(&mut self) {
        self.budget = Budget::new(Probes::All);
    }

    /// Counting ends, while all that is attached goes on for a moment.
    pub fn end(&mut self, now: u64) {
        self.on = self.attached(now);
        self.open = None;
        self.next = u64::MAX;
    }

    /// Closes a window, as before something that takes long; another comes later.
    fn rest(&mut self, gate: &mut Gate<'_>) {
        let thinned = self.forced.is_some() || (self.budget.share() < 1.0 && !self.sleep());
        if self.windows > 0 && self.open.is_some() && thinned {
            let (now, since) = (monotonic_ns(), self.open.unwrap_or_default());
            self.close(gate, now);
            self.next = now + self.gap(now.saturating_sub(since));
        }
    }

    /// ns to the next window, after one of this length: it may have closed late.
    fn gap(&self, lasted: u64) -> u64 {
        let (window, period) = self.lengths();
        let late = (lasted as f64 / window).clamp(1.0, LATE);
        ((period - window) * late * (0.5 + fastrand::f64())) as u64
    }

    /// Ends the window that is open.
    fn close(&mut self, gate: &mut Gate<'_>, now: u64) {
        let Some(since) = self.open.take() else { return };
        gate.close(now);
        self.on += now.saturating_sub(since);
        self.links.clear();
        self.closed += 1;
        // Half of what it was before, and half of this one.
        self.switching = (self.switching + monotonic_ns().saturating_sub(now) as f64) / 2.0;
    }

    /// The share of the time for which they may be attached from now on.
    fn look(&mut self, now: u64, done: Done) -> f64 {
        let (then, attached, before) = self.looked;
        let on = self.attached(now);
        self.looked = (now, on, done);
        let events = done.events.saturating_sub(before.events) as f64;
        let sleeps = done.sleeps.saturating_sub(before.sleeps) as f64;
        self.lately = (self.lately.0 * KEPT + events, self.lately.1 * KEPT + sleeps);
        if self.forced.is_some() {
            return 0.0;
        }
        let look = Look {
            elapsed: now.saturating_sub(then) as f64,
            cpus: done.cpus as f64,
            on: on.saturating_sub(attached) as f64,
            took: events * COST,
            serial: true,
            ..Look::default()
        };
        let share = self.budget.look(&look);
        if share < 1.0 && (self.blind || self.sleep()) {
            self.beyond = (self.beyond.0 + look.took, self.beyond.1 + look.on);
            return 1.0;
        }
        share
    }

    /// Whether more of the waits sleep than windows are for.
    fn sleep(&self) -> bool {
        self.lately.1 > SLEEPING * self.lately.0
    }

    fn may_close(&mut self, gate: &mut Gate<'_>) -> bool {
        let may = gate.may_close();
        self.blind = may == Some(false);
        may == Some(true)
    }

    /// ns that a window lasts, and from one to the next on average.
    fn lengths(&self) -> (f64, f64) {
        if let Some(forced) = self.forced {
            return forced;
        }
        lengths(self.budget.share(), self.switching)
    }

    /// How much of the time since the last call contentions were counted in.
    pub fn take(&mut self, now: u64) -> Coverage {
        let (then, before) = self.taken;
        let on = self.attached(now);
        // Without a window in it, the end of a wait that began before is scaled as that was.
        if on == before {
            return self.last;
        }
        self.taken = (now, on);
        let windows = std::mem::take(&mut self.closed);
        let rates = self.rates.make_contiguous();
        self.last = Coverage::from(now.saturating_sub(then) as f64, (on - before) as f64, windows, rates);
        self.last
    }

    /// Lines about windows, and about what stayed beyond the budget.
    fn notes(&self, began: u64, now: u64) -> Vec<String> {
        let mut notes = Vec::new();
        if self.windows > 0 {
            let elapsed = now.saturating_sub(began).max(1) as f64;
            notes.push(format!(
                "kernel locks: too many waits to count all: counted in short windows, {:.1} % of the time, and scaled; timer samples \
                 show the spinning in between; --probes all counts all of them",
                100.0 * (self.attached(now) as f64 / elapsed).min(1.0)
            ));
        }
        let (took, of) = self.beyond;
        if took > 0.0 {
            let why = if self.blind { "kernel functions have no names" } else { "many of them sleep" };
            notes.push(format!(
                "kernel locks: all waits are traced although that takes some {:.1} % of the time for {:.1} s, because {why}; \
                 --probes off traces none",
                100.0 * took / of.max(1.0),
                of / 1e9
            ));
        }
        notes
    }
}

impl Engine {
    /// Observing begins: what came before was not looked at.
    pub(super) fn begin_contentions(&mut self) {
        let done = Done::now(&self.tables.slots, self.online.cpus.len());
        self.contentions.begin(self.began, done);
    }

    /// When [`Engine::trace_contentions`] has something to do next; nothing where kernel locks are not traced.
    pub fn next_contentions(&self) -> Option<Instant> {
        let next = self.contentions.next()?;
        Some(Instant::now() + Duration::from_nanos(next.saturating_sub(monotonic_ns())))
    }

    /// Opens or closes a window in which contentions are counted, where they are too many to count all. `code` says
    /// where the functions are in which threads sleep for kernel locks.
    pub fn trace_contentions(&mut self, code: &mut dyn FnMut() -> Option<Vec<Range<u64>>>) {
        let Engine { skel, tables, online, contentions, notes, .. } = self;
        let skel = &mut **skel;
        let mut gate = Gate { bss: skel.maps.bss_data.as_deref_mut(), code };
        if let Err(e) =
            contentions.turn(&skel.progs, &mut gate, &|| Done::now(&tables.slots, online.cpus.len()))
        {
            let note = format!("kernel locks were not counted to the end: {e}");
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }

    /// Closes such a window before something that takes long.
    pub fn rest_contentions(&mut self) {
        let mut gate = Gate { bss: self.skel.maps.bss_data.as_deref_mut(), code: &mut || None };
        self.contentions.rest(&mut gate);
    }

    /// Lines about what of the contentions was counted.
    pub(super) fn contentions_notes(&self) -> Vec<String> {
        self.contentions.notes(self.began, self.ended.unwrap_or_else(monotonic_ns))
    }
}

fn lengths(share: f64, switching: f64) -> (f64, f64) {
    let window = WINDOW.min(share * PERIOD).max(SHORTEST);
    let period = (window / share.max(1e-6)).max(switching * SWITCHING).min(PERIOD.max(switching * SWITCHING));
    (window, period.max(window))
}

fn attach(progs: &skel::EngineProgs<'_>) -> Result<Vec<Link>> {
    // An end before its beginning, so that none is missed.
    load::attach([&progs.contention_end, &progs.contention_begin])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_keep_to_their_share() {
        assert_eq!(lengths(0.5, 1e5), (10e6, 20e6));
        assert_eq!(lengths(0.05, 1e5), (10e6, 200e6));
        assert_eq!(lengths(0.01, 1e5), (2e6, 200e6), "shorter ones at the same rate");
        assert_eq!(lengths(1e-4, 1e5), (1e6, 200e6), "no shorter than this");
        assert_eq!(lengths(0.05, 20e6), (10e6, 1e9), "where attaching takes long, more seldom");
    }
}
