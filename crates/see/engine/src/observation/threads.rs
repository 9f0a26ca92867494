//! The time of each thread between two readings of the kernel side's records.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use ncpu_schema::{Microstate, Per, threads};
use ncpu_table::Table;

use super::{Observation, seconds};
use crate::engine::{Costs, Coverage, Struck, ThreadOut, divide};

/// A thread's number and when it began: numbers come again.
pub type ThreadKey = (u32, u64);

/// The last reported state of a thread, and the number of tables since then in which it was missing.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub told: ThreadOut,
    pub missing: u32,
}

/// Number of tables in which a thread may be missing before its last record comes. A thread whose record was dropped
/// is forgotten then.
pub const MISSING: u32 = 32;

impl Observation {
    /// The time of each thread since the last table: living threads from the iterator, ended ones from
    /// their last record. Also the seconds that all of them stood on run queues, and table `bound`.
    /// `struck` is how often a timer met user code, and anything of the program.
    pub(super) fn thread_table(
        &mut self,
        t: f64,
        struck: (u64, u64),
        spins: Coverage,
    ) -> (Table, f64, Table) {
        let living = self.engine.threads().unwrap_or_else(|e| {
            self.note(format!("no threads: {e}"));
            Vec::new()
        });
        // Threads that have slept since the observation began have nothing but their lives to tell.
        let traced = self.engine.measures()[Microstate::Usr as usize];
        let (living, still): (Vec<ThreadOut>, Vec<ThreadOut>) =
            living.into_iter().partition(|thread| traced || thread.has_run());
        self.process_names.living(living.len() + still.len());
        self.thread_names.living(living.len() + still.len());
        for thread in &still {
            self.process_names.set(thread.tgid, thread.process());
            self.thread_names.set(thread.tid, thread.name());
        }
        self.follow_processes(&living);
        let ended = std::mem::take(&mut self.exited);
        let once = listed_once(&ended, &living);
        let mut known = std::mem::take(&mut self.threads);
        if struck.1 > 0 && !self.engine.calls_off() {
            self.engine.learn(&seen_by_timer(struck, &once, &known));
        }
        // Of threads that no tick has met.
        let mut all_ticks = [0; 3];
        for (now, _) in &once {
            let ticks = new_ticks(now, &last_of(&known, now));
            all_ticks.iter_mut().zip(ticks).for_each(|(all, n)| *all += n);
        }
        let (costs, signals) = (self.engine.costs(), self.engine.counts_signals());
        let measured = self.engine.measures();
        let mut out = threads::Rows::new();
        let mut queued = 0.0;
        let mut kept = HashMap::with_capacity(living.len());
        for (now, alive) in once {
            let key = (now.tid, now.start);
            let before = known.remove(&key).map(|k| k.told).unwrap_or_default();
            if alive {
                self.process_names.set(now.tgid, now.process());
                self.thread_names.set(now.tid, now.name());
                kept.insert(key, Known { told: *now, missing: 0 });
            }
            let span = Span::between(now, before, costs.as_ref(), all_ticks);
            let stood = span.spent(Microstate::Lat);
            queued += stood;
            self.queued.thread(now, stood);
            if let Some(tenants) = &mut self.tenants {
                tenants.thread(
                    now,
                    &before,
                    stood,
                    span.spent(Microstate::Lck) + seconds(now.spin, before.spin),
                );
            }
            out.push(threads::Row {
                ended: Some((!alive && now.tid == now.tgid).into()),
                ..span.row(t, &measured, signals, spins)
            });
        }
        // A thread leaves the kernel's list a little before its last record comes, which is the difference to this.
        for (key, Known { told, missing }) in known {
            if missing < MISSING {
                kept.insert(key, Known { told, missing: missing + 1 });
            }
        }
        self.threads = kept;
        (out.finish(), queued, self.queued.bound(t))
    }

    /// Tells the parts that follow processes which ones live.
    fn follow_processes(&mut self, living: &[ThreadOut]) {
        self.throttle.met(living.iter().map(|t| t.tgid));
        let mut pids: Vec<u32> = living.iter().map(|t| t.tgid).collect();
        pids.sort_unstable();
        pids.dedup();
        // Of a whole machine no process stands for the others: the first may be a kernel thread that keeps to one CPU.
        let first = pids.first().copied().filter(|_| !self.whole_machine);
        self.program = self.target.filter(|pid| pids.binary_search(pid).is_ok()).or(first);
        if let Some(room) = &mut self.room {
            room.look(&pids);
        }
        self.engine.forget_goroutines(&pids);
        if let Some(locks) = &mut self.user_locks {
            locks.living(&pids, Instant::now());
        }
    }
}

/// The last record of a thread: zeros where it is new.
fn last_of(known: &HashMap<ThreadKey, Known>, now: &ThreadOut) -> ThreadOut {
    known.get(&(now.tid, now.start)).map(|k| k.told).unwrap_or_default()
}

/// How often a timer met the thread since `before`, by [`Microstate::ON_CPU`].
fn new_ticks(now: &ThreadOut, before: &ThreadOut) -> [u64; 3] {
    std::array::from_fn(|i| u64::from(now.ticks[i].saturating_sub(before.ticks[i])))
}

/// What the threads did while the timer met them as often as `struck` says.
fn seen_by_timer(
    struck: (u64, u64),
    threads: &[(&ThreadOut, bool)],
    known: &HashMap<ThreadKey, Known>,
) -> Struck {
    let mut seen = Struck { user: struck.0, all: struck.1, ..Struck::default() };
    for (now, _) in threads {
        let before = last_of(known, now);
        let ns =
            |state: Microstate| now.micro[state as usize].saturating_sub(before.micro[state as usize]) as f64;
        seen.usr += ns(Microstate::Usr);
        seen.on_cpu += Microstate::ON_CPU.map(ns).iter().sum::<f64>();
        seen.calls += now.scl.saturating_sub(before.scl) as f64;
        seen.faults += now.faults.saturating_sub(before.faults) as f64;
    }
    seen
}

/// A thread's time between two records.
struct Span<'a> {
    now: &'a ThreadOut,
    before: ThreadOut,
    /// Seconds by [`Microstate::ON_CPU`], without the overhead of tracing.
    on_cpu: [f64; 3],
    /// Seconds of that overhead.
    own: Option<f64>,
    /// Whether a part of its calls and faults was not traced, so that ticks divide the time on CPU.
    untraced: bool,
    /// Half-width of the interval of 95 % of that division.
    error: Option<f64>,
}

impl<'a> Span<'a> {
    /// `all_ticks` are those of all threads, for a thread that no tick has met.
    fn between(
        now: &'a ThreadOut,
        before: ThreadOut,
        costs: Option<&Costs>,
        all_ticks: [u64; 3],
    ) -> Span<'a> {
        let mut span = Span { now, before, on_cpu: [0.0; 3], own: None, untraced: false, error: None };
        // The overhead of tracing a thread's calls and faults is not the thread's own time.
        span.on_cpu = Microstate::ON_CPU.map(|state| span.spent(state));
        span.own = costs.map(|costs| {
            let calls = now.scl.saturating_sub(before.scl);
            costs.take(&mut span.on_cpu, calls, now.faults.saturating_sub(before.faults))
        });
        let untraced = seconds(now.untraced, before.untraced).min(span.on_cpu[0]);
        span.untraced = untraced > 0.0;
        if span.untraced
            && let Some((parts, error)) = divide(untraced, new_ticks(now, &before), all_ticks)
        {
            span.on_cpu[0] -= untraced;
            span.on_cpu.iter_mut().zip(parts).for_each(|(spent, part)| *spent += part);
            span.error = Some(error);
        }
        span
    }

    /// Seconds in a state, as the kernel side counted them.
    fn spent(&self, state: Microstate) -> f64 {
        let [lck, slp] = [Microstate::Lck, Microstate::Slp].map(|state| state as usize);
        let i = state as usize;
        // Sleep that turned out to be a wait for a lock after it was reported stays sleep.
        let told_as_sleep = self.before.micro[slp].saturating_sub(self.now.micro[slp]);
        seconds(self.now.micro[i], self.before.micro[i] + if i == lck { told_as_sleep } else { 0 })
    }

    fn row(
        &self,
        t: f64,
        measured: &[bool; Microstate::ALL.len()],
        signals: bool,
        spins: Coverage,
    ) -> threads::Row<'_> {
        let (now, before) = (self.now, &self.before);
        let new = |now: u64, before: u64| Some(now.saturating_sub(before));
        let told = |state: Microstate| match self.on_cpu.get(state as usize) {
            Some(spent) => *spent,
            None => self.spent(state),
        };
        threads::Row {
            time: Some(t),
            pid: Some(now.tgid.into()),
            tid: Some(now.tid.into()),
            process: now.process().into(),
            thread: now.name().into(),
            micro: Per::new(|state: Microstate| measured[state as usize].then(|| told(state))),
            own: self.own,
            spin: Some(seconds(spins.of(now.spin.saturating_sub(before.spin)), 0)),
            vcx: new(now.vcx, before.vcx),
            icx: new(now.icx, before.icx),
            // Those of which some were not traced are not known.
            scl: new(now.scl, before.scl).filter(|_| measured[Microstate::Usr as usize] && !self.untraced),
            error: self.error,
            sig: new(now.sig, before.sig).filter(|_| signals),
            minf: new(now.minf, before.minf),
            majf: new(now.majf, before.majf),
            cpu: Some(Microstate::ON_CPU.map(|state| self.spent(state)).iter().sum()),
            off: None,
            ended: None,
        }
    }
}

/// The threads of a table, each with whether it lives, ended ones first. A thread that was still listed while it ended counts
/// once.
pub fn listed_once<'a>(ended: &'a [ThreadOut], living: &'a [ThreadOut]) -> Vec<(&'a ThreadOut, bool)> {
    let over: HashSet<ThreadKey> = ended.iter().map(|t| (t.tid, t.start)).collect();
    let living = living.iter().filter(|t| !over.contains(&(t.tid, t.start)));
    ended.iter().map(|t| (t, false)).chain(living.map(|t| (t, true))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_listed_while_it_ends_counts_once() {
        let thread = |tid, start, ticks| ThreadOut { tid, start, ticks: [ticks; 4], ..ThreadOut::default() };
        let ended = [thread(1, 10, 7), thread(2, 10, 1)];
        // Thread 1 is listed still; a new thread has the number of thread 2.
        let living = [thread(1, 10, 7), thread(2, 99, 5), thread(3, 10, 2)];
        let once: Vec<(u32, u64, bool)> =
            listed_once(&ended, &living).iter().map(|(t, alive)| (t.tid, t.start, *alive)).collect();
        assert_eq!(once, [(1, 10, false), (2, 10, false), (2, 99, true), (3, 10, true)]);
        let ticks: u32 = listed_once(&ended, &living).iter().map(|(t, _)| t.ticks[0]).sum();
        assert_eq!(ticks, 15);
    }
}
