//! Tracing of each call and fault, within its budget: beyond it a timer samples what threads do.

use std::time::{Duration, Instant};

use libbpf_rs::Link;
use ncpu_schema::CpuState;

use super::budget::{Budget, EVERY, FIRST_LOOK, Look, Probes};
use super::layout::{CpuSlot, ProbeCounts};
use super::{Costs, Engine, STRIKES_HZ};
use crate::bpf_support::Mapped;

/// `enum probe_group` of probe_counts.h.
const CALLS: usize = 3;
const FAULTS: usize = 4;
const ALL_CALLS: usize = 5;
/// Time between looks while calls or faults come.
const BUSY: Duration = Duration::from_millis(10);
/// ns that a call and a fault are taken to cost where it could not be measured.
const UNKNOWN: [f64; 2] = [300.0, 600.0];
/// A measured cost is taken for no less than this part of that: where other programs disturbed the process that was measured most
/// while nothing was traced, tracing seems to cost nothing.
const LEAST: f64 = 0.25;
/// ns that the probes may take beyond their limit at first: a program that is started maps its libraries and touches them, once.
const STARTS: f64 = 3e6;
/// ns that a call of another program costs: its way is longer, and the programs end at once.
const OTHERS: f64 = 100.0;

/// The probes on calls and faults, and their hits.
pub(super) struct PerCall {
    /// Detach when dropped.
    links: Vec<Link>,
    hits: Mapped<ProbeCounts>,
    /// Of the program, and of the machine.
    budgets: [Budget; 2],
    next: Instant,
    at: Instant,
    seen: Seen,
    /// Calls and faults a second, and seconds since the observation began, when it was too much.
    over: Option<([f64; 2], f64)>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    calls: u64,
    faults: u64,
    all: u64,
    ran: u64,
}

impl PerCall {
    /// With what has been attached.
    pub fn new(links: Vec<Link>, hits: Mapped<ProbeCounts>, probes: Probes) -> PerCall {
        let now = Instant::now();
        PerCall {
            links,
            hits,
            budgets: [Budget::new(probes).at_first(STARTS); 2],
            next: now,
            at: now,
            seen: Seen::default(),
            over: None,
        }
    }

    fn seen(&self, slots: &Mapped<CpuSlot>) -> Seen {
        let mut seen = Seen::default();
        for cpu in 0..self.hits.len() {
            let of = self.hits.get(cpu).of;
            seen.calls += of[CALLS].hits;
            seen.faults += of[FAULTS].hits;
            seen.all += of[ALL_CALLS].hits;
            let at = slots.get(cpu).at;
            seen.ran += at[CpuState::Program as usize] + at[CpuState::Spin as usize];
        }
        seen
    }

    /// Whether both budgets hold, after another look.
    fn holds(&mut self, slots: &Mapped<CpuSlot>, costs: Option<Costs>, cpus: usize) -> bool {
        let now = Instant::now();
        let seen = self.seen(slots);
        let was = std::mem::replace(&mut self.seen, seen);
        let elapsed = now.saturating_duration_since(std::mem::replace(&mut self.at, now)).as_nanos() as f64;
        let cost = costs
            .map_or(UNKNOWN, |c| std::array::from_fn(|i| [c.call, c.fault][i].all().max(LEAST * UNKNOWN[i])));
        let [calls, faults, all, ran] = [
            seen.calls - was.calls,
            seen.faults - was.faults,
            seen.all - was.all,
            seen.ran.saturating_sub(was.ran),
        ]
        .map(|n| n as f64);
        let own = calls * cost[0] + faults * cost[1];
        let look = Look { elapsed, cpus: cpus as f64, ran, on: elapsed, took: own, ..Look::default() };
        // Of the others only the part of the capacity matters.
        let machine =
            Look { ran: elapsed * cpus as f64, took: own + (all - calls).max(0.0) * OTHERS, ..look };
        let holds = self.budgets[0].look(&look) >= 1.0 && self.budgets[1].look(&machine) >= 1.0;
        if !holds {
            let per_second = 1e9 / elapsed.max(1.0);
            self.over = Some(([calls.max(all), faults].map(|n| n * per_second), 0.0));
        }
        self.next = now + if all + faults > 0.0 { BUSY } else { EVERY };
        holds
    }
}

impl Engine {
    /// Observing begins: what came before was not looked at.
    pub(super) fn begin_calls(&mut self) {
        let now = Instant::now();
        if let Some(calls) = &mut self.per_call {
            calls.seen = calls.seen(&self.tables.slots);
            (calls.at, calls.next) = (now, now + FIRST_LOOK.min(BUSY));
        }
    }

    /// When [`Engine::watch_calls`] has something to look at next; nothing where calls are not traced.
    pub fn next_calls(&self) -> Option<Instant> {
        self.per_call.as_ref().filter(|calls| calls.over.is_none()).map(|calls| calls.next)
    }

    /// Looks at what the tracing of calls and faults takes. Where that is too much they are traced no more, and a timer samples
    /// what threads do.
    pub fn watch_calls(&mut self, now: Instant) {
        let (cpus, age) = (self.online.cpus.len(), self.age().as_secs_f64());
        let Some(calls) = &mut self.per_call else { return };
        if calls.over.is_some() || now < calls.next || calls.holds(&self.tables.slots, self.costs, cpus) {
            return;
        }
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.calls_off = 1;
        }
        detach(&mut calls.links);
        if let Some((_, at)) = &mut calls.over {
            *at = age;
        }
        // CPUs that come trace nothing either.
        self.micro = false;
        for timers in self.timers.values_mut() {
            timers.end_faults();
        }
        // The timer runs already where what tracing costs is known.
        if self.strike_hz == 0 {
            self.strike_hz = STRIKES_HZ;
            for cpu in self.online.cpus.clone() {
                if let Err(e) = self.start_striking(cpu) {
                    self.notes.push(format!("USR, SYS and TRP are not sampled on CPU {cpu}: {e}"));
                }
            }
        }
    }

    /// Whether calls are traced no more.
    pub fn calls_off(&self) -> bool {
        self.per_call.as_ref().is_some_and(|calls| calls.over.is_some())
    }

    /// A line about calls that are sampled.
    pub(super) fn calls_note(&self) -> Option<String> {
        let (per_second, at) = self.per_call.as_ref()?.over?;
        let ([calls, faults], hz) = (per_second, self.strike_hz);
        Some(format!(
            "{calls:.0} system calls and {faults:.0} faults a second are too many to trace: from {at:.2} s on USR, SYS and TRP are \
             divided by {hz} samples a second, which is uncertain by {:.0} % of a thread's second on CPU (column error), and SCL \
             is not counted; --probes all traces them all",
            100.0 * 1.96 * (0.25 / f64::from(hz.max(1))).sqrt()
        ))
    }
}

/// Detaches several at a time: the kernel waits for a grace period for each.
fn detach(links: &mut Vec<Link>) {
    const AT_ONCE: usize = 16;
    while !links.is_empty() {
        let some = links.drain(..links.len().min(AT_ONCE));
        std::thread::scope(|scope| {
            for link in some {
                scope.spawn(move || drop(link));
            }
        });
    }
}

/// Divides time on CPU that was not traced among USR, SYS and TRP by the ticks of a timer; half-widths of the 95 % intervals. Where
/// no tick fell into it, by those of `all` threads.
pub(crate) fn divide(untraced: f64, ticks: [u64; 3], all: [u64; 3]) -> Option<([f64; 3], f64)> {
    let sum = |ticks: &[u64; 3]| ticks.iter().sum::<u64>();
    let by = if sum(&ticks) > 0 { ticks } else { all };
    let n = sum(&by) as f64;
    if n == 0.0 {
        return None;
    }
    let parts = by.map(|t| t as f64 / n);
    // With half a tick more of each kind: some room for chance where one was never met.
    let p = (by[0] as f64 + 0.5) / (n + 1.0);
    // The ticks of others say little of this thread.
    let error = if sum(&ticks) > 0 { 1.96 * (p * (1.0 - p) / n).sqrt() } else { 1.0 };
    Some((parts.map(|part| part * untraced), error.min(1.0) * untraced))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untraced_time_is_divided_as_its_ticks_are() {
        let (parts, error) = divide(1.0, [100, 850, 50], [0; 3]).expect("ticks");
        assert_eq!(parts, [0.1, 0.85, 0.05]);
        assert!((error - 0.0186).abs() < 1e-3, "{error}");
        let (parts, error) = divide(0.001, [0; 3], [1, 1, 2]).expect("of all");
        assert_eq!((parts, error), ([0.00025, 0.00025, 0.0005], 0.001));
        assert_eq!(divide(1.0, [0; 3], [0; 3]), None);
    }
}
