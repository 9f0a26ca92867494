//! Locks: how threads wait, which thread is next, and the cost of a hand-over.

use std::collections::VecDeque;

use super::{Job, LockStats, Mode, NONE, SPUN, Sim, State, Time, event, ps};
use crate::first::Waits;
use crate::hardware::{Hardware, Place};
use crate::program::{Handover, LockModel, Owner};

#[derive(Debug)]
pub(super) struct Lock {
    pub(super) kind: Handover,
    owner: Owner,
    lines: f64,
    exponential: bool,
    wake_ns: f64,
    holder: u32,
    readers: u32,
    /// Where its line is.
    place: Option<Place>,
    /// Readers write the line one after another.
    free_at: u64,
    /// Waiting threads, and whether to read.
    waiters: VecDeque<(u32, bool)>,
    /// Readers among them that read its line from each last-level cache. Empty if that costs nothing, or the same for
    /// each.
    readers_in: Vec<u32>,
    passes: u32,
    /// Mean length of the hand-over under way, ns.
    handing_ns: f64,
    since: u64,
    pub(super) stats: LockStats,
    pub(super) first: Waits,
}

impl Lock {
    pub(super) fn new(model: &LockModel, hardware: &Hardware) -> Lock {
        let shape = hardware.shape;
        let caches = match model.kind {
            Handover::Ticket { waiter_ns: None } | Handover::TestAndSet { waiter_ns: None } => {
                shape.packages * shape.clusters
            }
            _ => 0,
        };
        Lock {
            kind: model.kind,
            owner: model.owner,
            lines: model.lines,
            exponential: model.exponential,
            wake_ns: model.wake_ns,
            holder: NONE,
            readers: 0,
            place: None,
            free_at: 0,
            waiters: VecDeque::new(),
            readers_in: vec![0; caches as usize],
            passes: 0,
            handing_ns: 0.0,
            since: 0,
            stats: LockStats::default(),
            first: Waits::default(),
        }
    }

    /// The state of a thread that sleeps for it.
    fn waiting(&self) -> State {
        match self.owner {
            Owner::Kernel => State::Waiting(1),
            Owner::User => State::Waiting(2),
            Owner::Serial => State::Asleep,
        }
    }

    /// Whether its holder keeps its CPU.
    fn pins(&self) -> bool {
        self.owner == Owner::Kernel && !self.sleeps()
    }

    /// Whether spinning waiters stop when the holder leaves its CPU.
    fn watches_holder(&self) -> bool {
        matches!(self.kind, Handover::Mutex { .. } | Handover::Rwsem { .. } | Handover::Adaptive)
    }

    pub(super) fn sleeps(&self) -> bool {
        self.watches_holder() || self.kind == Handover::Block
    }
}

impl Sim<'_> {
    pub(super) fn spin_mode(&self, lock: u32) -> Mode {
        if lock != NONE && self.locks[lock as usize].owner == Owner::User {
            Mode::UserSpin
        } else {
            Mode::Spin
        }
    }

    /// Takes a lock, or begins to wait for it; whether the thread goes on at once. `pc` has been advanced.
    pub(super) fn acquire(&mut self, thread: u32, id: u32, shared: bool) -> bool {
        let place = self.place_of(thread);
        // It has slept for it, and nobody else was woken.
        let woken = self.threads[thread as usize].wait == id;
        let lock = &mut self.locks[id as usize];
        let free = match shared {
            // Writers that wait come first.
            true => lock.holder == NONE && (woken || lock.waiters.iter().all(|w| w.1)),
            false => lock.holder == NONE && lock.readers == 0,
        };
        // Fair locks have a queue to join; sleepers' locks may be taken past it.
        if free && (lock.waiters.is_empty() || lock.sleeps() || shared) {
            let from = lock.place.replace(place);
            let move_ns =
                from.map_or(0.0, |from| if from == place { 0.0 } else { self.hardware.move_ns(from, place) });
            let start = lock.free_at.max(self.now);
            // Readers move its word only.
            let cost = ps(if shared { move_ns } else { lock.lines * move_ns });
            if shared {
                lock.free_at = start + cost;
            }
            self.taken(thread, id, shared);
            let wait = if shared { start + cost - self.now } else { cost };
            if wait == 0 {
                return true;
            }
            // There is no holder to wait for, and no tracepoint reports it: a cache miss like any other.
            self.stall(thread, Mode::Work, 0, wait);
            return false;
        }
        let waiting = lock.waiting();
        let kind = lock.kind;
        let first = lock.waiters.is_empty();
        lock.waiters.push_back((thread, shared));
        if let Handover::Ticket { waiter_ns } | Handover::TestAndSet { waiter_ns } = kind {
            let more = self.one_more_reads(thread, id, waiter_ns);
            self.slow_hand_over(id, more);
        }
        let lock = &self.locks[id as usize];
        let (holder, readers) = (lock.holder, lock.readers);
        let t = &mut self.threads[thread as usize];
        if t.wait == NONE {
            t.wait = id;
            t.wait_since = self.now;
            t.spun = 0;
            t.first = first;
            self.locks[id as usize].stats.contended += 1;
        } else if kind == Handover::Block {
            // Each sleep in a futex is a wait, whoever was faster when it was woken.
            self.locks[id as usize].stats.contended += 1;
        }
        let runs = || {
            holder == NONE || matches!(self.threads[holder as usize].state, State::Running | State::Spinning)
        };
        let spin = match kind {
            Handover::Block => None,
            Handover::Mutex { spin_ns } => (runs() && spin_ns > 0.0).then_some(Some(ps(spin_ns))),
            Handover::Rwsem { spin_ns } => (runs() && readers == 0 && !shared).then_some(Some(ps(spin_ns))),
            Handover::Adaptive => runs().then_some(None),
            _ => Some(None),
        };
        match spin {
            Some(limit) => {
                let t = &mut self.threads[thread as usize];
                t.state = State::Spinning;
                t.spin_since = self.now;
                t.left = 0;
                let (cpu, epoch) = (t.cpu, t.epoch);
                let mode = self.spin_mode(id);
                self.begin_segment(cpu, mode, 0, None);
                if let Some(limit) = limit {
                    self.queue.push(self.now + limit, event(SPUN, thread, epoch));
                }
            }
            None => self.leave(thread, waiting),
        }
        false
    }

    /// How much longer a hand-over takes, ns, for a thread that now waits too.
    fn one_more_reads(&mut self, thread: u32, id: u32, waiter_ns: Option<f64>) -> f64 {
        if let Some(ns) = waiter_ns {
            return ns;
        }
        let place = self.place_of(thread);
        self.threads[thread as usize].wait_in = place.cluster;
        let lock = &mut self.locks[id as usize];
        lock.readers_in[place.cluster as usize] += 1;
        if self.hardware.shared_reads && lock.readers_in[place.cluster as usize] > 1 {
            return 0.0;
        }
        lock.place.map_or(0.0, |from| self.hardware.move_ns(from, self.hardware.place_in(place.cluster)))
    }

    /// How much longer a hand-over takes, ns, for those that go on waiting: the line is written, and they read it again.
    fn others_read(&self, id: u32, from: Place, waiter_ns: Option<f64>) -> f64 {
        let lock = &self.locks[id as usize];
        if let Some(ns) = waiter_ns {
            return ns * lock.waiters.len() as f64;
        }
        let of = |(cluster, n): (u32, &u32)| {
            let times = if self.hardware.shared_reads { 1.0 } else { f64::from(*n) };
            times * self.hardware.move_ns(from, self.hardware.place_in(cluster))
        };
        (0..).zip(&lock.readers_in).filter(|(_, n)| **n > 0).map(of).sum()
    }

    /// One more waiter reads the line that is being handed over: the hand-over under way takes longer too.
    fn slow_hand_over(&mut self, id: u32, waiter_ns: f64) {
        let lock = &mut self.locks[id as usize];
        let (holder, was) = (lock.holder, lock.handing_ns);
        if holder == NONE || was <= 0.0 || waiter_ns <= 0.0 {
            return;
        }
        let cpu = self.threads[holder as usize].cpu;
        let c = &self.cpus[cpu as usize];
        if c.thread != holder || !matches!(c.mode, Mode::Spin | Mode::UserSpin) || !c.left.is_finite() {
            return;
        }
        lock.handing_ns = was + waiter_ns;
        self.stretch(cpu, (was + waiter_ns) / was);
    }

    /// Notes that a thread has a lock.
    fn taken(&mut self, thread: u32, id: u32, shared: bool) {
        let lock = &mut self.locks[id as usize];
        if shared {
            lock.readers += 1;
        } else {
            lock.holder = thread;
        }
        lock.since = self.now;
        lock.stats.taken += 1;
        let t = &mut self.threads[thread as usize];
        t.held.push((id, shared));
        t.unpreemptible += u32::from(lock.pins());
        if t.wait == id {
            let waited = self.now - t.wait_since;
            lock.stats.spin += t.spun.min(waited);
            lock.stats.block += waited - t.spun.min(waited);
            lock.stats.longest = lock.stats.longest.max(waited);
            t.wait = NONE;
        }
    }

    /// Releases the lock taken last and passes it to the next waiter. Returns the time, ps, that waking a
    /// sleeper takes.
    pub(super) fn release(&mut self, thread: u32) -> u64 {
        let Some((id, shared)) = self.threads[thread as usize].held.pop() else { return 0 };
        let place = self.place_of(thread);
        let lock = &mut self.locks[id as usize];
        self.threads[thread as usize].unpreemptible -= u32::from(lock.pins());
        lock.handing_ns = 0.0;
        lock.stats.held += self.now - lock.since;
        lock.place = Some(place);
        if shared {
            lock.readers -= 1;
        } else {
            lock.holder = NONE;
        }
        if lock.readers == 0 && lock.holder == NONE && self.pass_on(id, place) {
            return ps(self.locks[id as usize].wake_ns);
        }
        0
    }

    /// Hands a lock on; whether a sleeper was woken.
    fn pass_on(&mut self, id: u32, from: Place) -> bool {
        let mut woken = false;
        loop {
            let Some(at) = self.next(id, from) else { return woken };
            let lock = &mut self.locks[id as usize];
            let Some(&(thread, shared)) = lock.waiters.get(at) else { return woken };
            let all = lock.kind == Handover::Adaptive;
            if woken && !shared && !all || shared && lock.holder != NONE {
                return woken;
            }
            lock.waiters.remove(at);
            if let Some(readers) = lock.readers_in.get_mut(self.threads[thread as usize].wait_in as usize) {
                *readers -= 1;
            }
            // The guarded data moves while the lock is held; the queue's words move if others wait as well.
            let lines = if lock.waiters.is_empty() { lock.lines.min(1.0) } else { lock.lines };
            let (kind, exponential) = (lock.kind, lock.exponential);
            if self.threads[thread as usize].state != State::Spinning && lock.sleeps() {
                // It tries again once it runs; another may be faster.
                self.first_waited(thread, id, 0);
                self.threads[thread as usize].pc = self.back(thread);
                self.wake_by(thread);
                // Readers go together.
                if !shared && !all {
                    return true;
                }
                woken = true;
                continue;
            }
            let place = self.place_of(thread);
            let mut ns = lines * self.hardware.move_ns(from, place);
            if from == place {
                ns = 0.0;
            } else if !self.locks[id as usize].sleeps() {
                ns += self.hardware.handover_ns;
            }
            if let Handover::Ticket { waiter_ns } | Handover::TestAndSet { waiter_ns } = kind {
                ns += self.others_read(id, from, waiter_ns);
            }
            self.locks[id as usize].handing_ns = ns;
            let cost = if exponential { Time::exponential(ns).draw(&mut self.random) } else { ps(ns) };
            self.first_waited(thread, id, cost);
            self.grant(thread, id, shared, cost);
            // Readers that wait go together.
            let lock = &self.locks[id as usize];
            if !shared || !lock.waiters.front().is_some_and(|w| w.1) {
                return woken;
            }
        }
    }

    /// The lock is given to a thread, or is free and it is woken: how long it waited, where nobody waited before it.
    fn first_waited(&mut self, thread: u32, id: u32, more: u64) {
        let t = &mut self.threads[thread as usize];
        if std::mem::take(&mut t.first) && t.wait == id {
            self.locks[id as usize].first.add(self.now - t.wait_since + more);
        }
    }

    /// The next waiter, as an index of the waiters.
    fn next(&mut self, id: u32, from: Place) -> Option<usize> {
        let lock = &self.locks[id as usize];
        let n = lock.waiters.len();
        if n == 0 {
            return None;
        }
        match lock.kind {
            Handover::TestAndSet { .. } => Some(self.random.below(n)),
            Handover::Numa { passes } => {
                let near = (lock.passes < passes)
                    .then(|| lock.waiters.iter().position(|w| self.place_of(w.0).package == from.package))
                    .flatten();
                let lock = &mut self.locks[id as usize];
                lock.passes = if near.is_some() { lock.passes + 1 } else { 0 };
                Some(near.unwrap_or(0))
            }
            // A spinning waiter is faster than one that must be woken.
            Handover::Mutex { .. } | Handover::Rwsem { .. } | Handover::Adaptive => Some(
                lock.waiters
                    .iter()
                    .position(|w| self.threads[w.0 as usize].state == State::Spinning)
                    .unwrap_or(0),
            ),
            _ => Some(0),
        }
    }

    fn grant(&mut self, thread: u32, id: u32, shared: bool, cost: u64) {
        let spinning = self.threads[thread as usize].state == State::Spinning;
        let t = &mut self.threads[thread as usize];
        if spinning {
            t.spun += self.now - t.spin_since;
            t.state = State::Running;
            t.epoch = t.epoch.wrapping_add(1);
        }
        self.taken(thread, id, shared);
        self.locks[id as usize].stats.spin += cost;
        self.locks[id as usize].place = Some(self.place_of(thread));
        if !spinning {
            // Its CPU was taken from it while it waited; all behind it wait until it is back.
            let mode = self.spin_mode(id);
            let t = &mut self.threads[thread as usize];
            (t.left, t.mode) = (cost.max(1), mode);
            return;
        }
        if cost > 0 {
            let mode = self.spin_mode(id);
            self.stall(thread, mode, 0, cost);
        } else {
            let cpu = self.threads[thread as usize].cpu;
            self.account(cpu);
            self.jobs.push(Job::Step(thread));
        }
    }

    /// A spinning thread has reached its limit.
    pub(super) fn spun_enough(&mut self, thread: u32, epoch: u32) {
        let t = &self.threads[thread as usize];
        if t.epoch == epoch && t.state == State::Spinning && t.wait != NONE {
            self.give_up_spinning(thread);
        }
    }

    pub(super) fn give_up_spinning(&mut self, thread: u32) {
        let t = &mut self.threads[thread as usize];
        t.spun += self.now - t.spin_since;
        t.epoch = t.epoch.wrapping_add(1);
        let waiting = self.locks[t.wait as usize].waiting();
        self.leave(thread, waiting);
    }

    /// The holder of locks left its CPU: who spins for a lock that lets waiters sleep need not go on.
    pub(super) fn holder_leaves(&mut self, thread: u32) {
        for i in 0..self.threads[thread as usize].held.len() {
            let (id, _) = self.threads[thread as usize].held[i];
            if !self.locks[id as usize].watches_holder() {
                continue;
            }
            for w in 0..self.locks[id as usize].waiters.len() {
                let waiter = self.locks[id as usize].waiters[w].0;
                if self.threads[waiter as usize].state == State::Spinning {
                    self.give_up_spinning(waiter);
                }
            }
        }
    }

    /// A thread comes back on CPU: whether it still waits for a lock it was spinning for.
    pub(super) fn resume_wait(&self, thread: u32) -> bool {
        let t = &self.threads[thread as usize];
        t.wait != NONE && self.locks[t.wait as usize].waiters.iter().any(|w| w.0 == thread)
    }
}
