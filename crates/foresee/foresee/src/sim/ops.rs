//! Operations of threads, one by one.

use super::{Job, Mode, NONE, Sim, State, WAKE, event, ps};
use crate::hardware::Place;
use crate::program::{Op, Pick};

/// More operations than this without any time passing is a program that never gets on.
const MOST_AT_ONCE: u32 = 10_000;
/// Operations that may follow each other without any time passing. Each operation beyond these counts as an event, so that the limit on
/// events ends a simulation in which no time passes.
const FREE_AT_ONCE: u32 = 100;

/// Extra cost of a transfer for each doubling of the threads that want the line: shared_mutex of sixteen threads reads
/// 0.86 times what two read.
const CROWDED: f64 = 0.05;

/// Cost of a write to a line that the CPU already has, beside the line's transfers, ns. An atomic operation takes some
/// twenty cycles, 5 ns; but a CPU that gets a line does several operations on it before another takes it. Counters,
/// reference counts and read-write locks of two threads do 2.4 to 3.2 times less on two CPUs than on one, which follows
/// from this figure where a transfer takes 47 ns.
pub const OWNED_NS: f64 = 11.5;

/// Of more lines than these of one operation, each stands for several.
const MOST_PICKED: f64 = 64.0;

impl Sim<'_> {
    pub(super) fn place_of(&self, thread: u32) -> Place {
        self.cpus[self.threads[thread as usize].cpu as usize].place
    }

    fn pick(&mut self, thread: u32, pick: Pick) -> u32 {
        match pick {
            Pick::One => 0,
            Pick::Random(n) => self.random.below(n.max(1) as usize) as u32,
            Pick::Own(n) => thread % n.max(1),
            Pick::Package(n) => self.place_of(thread).package % n.max(1),
        }
    }

    /// The lock that a thread takes. A thread that was woken tries the one again that it waits for.
    fn pick_lock(&mut self, thread: u32, first: u32, pick: Pick) -> u32 {
        match self.threads[thread as usize].wait {
            NONE => first + self.pick(thread, pick),
            wait => wait,
        }
    }

    /// Goes on with a thread on CPU until something takes time.
    pub(super) fn step(&mut self, thread: u32) {
        for at_once in 0..MOST_AT_ONCE {
            self.events += u64::from(at_once >= FREE_AT_ONCE);
            let cpu = self.threads[thread as usize].cpu;
            if self.cpus[cpu as usize].resched && self.threads[thread as usize].unpreemptible == 0 {
                self.threads[thread as usize].left = 0;
                self.cpus[cpu as usize].left = 0.0;
                self.preempt_between(cpu);
                return;
            }
            let op = self.op(thread);
            let t = &mut self.threads[thread as usize];
            let ops = self.program.classes[t.class as usize].ops.len() as u32;
            t.pc = if t.pc + 1 == ops { 0 } else { t.pc + 1 };
            match op {
                Op::Compute { time, activity } => {
                    let work = time.draw(&mut self.random);
                    if work > 0 {
                        return self.work(thread, Mode::Work, *activity, work);
                    }
                }
                Op::Acquire { lock, pick } => {
                    let id = self.pick_lock(thread, *lock, *pick);
                    if !self.acquire(thread, id, false) {
                        return;
                    }
                }
                Op::AcquireShared { lock, pick } => {
                    let id = self.pick_lock(thread, *lock, *pick);
                    if !self.acquire(thread, id, true) {
                        return;
                    }
                }
                Op::Release => {
                    let time = self.release(thread);
                    if time > 0 {
                        return self.stall(thread, Mode::Work, 0, time);
                    }
                }
                Op::Line { line, pick, activity } => {
                    let id = line + self.pick(thread, *pick);
                    let time = self.transfer(thread, id);
                    if time > 0 {
                        return self.stall(thread, Mode::Work, *activity, time);
                    }
                }
                Op::Memory { node, bytes, parallel, activity } => {
                    let time = self.memory_time(thread, *node, *bytes, *parallel);
                    return self.stall(thread, Mode::Work, *activity, time.max(1));
                }
                Op::Sleep { time, io } => {
                    let time = time.draw(&mut self.random);
                    let state = if *io { State::Waiting(3) } else { State::Asleep };
                    self.leave(thread, state);
                    let epoch = self.threads[thread as usize].epoch;
                    self.queue.push(self.now + time, event(WAKE, thread, epoch));
                    return;
                }
                Op::Shootdown { per_package } => {
                    if let Some(time) = self.shootdown(cpu, *per_package) {
                        return self.stall(thread, Mode::Tlb, 0, time);
                    }
                }
                Op::Barrier { barrier } => {
                    if !self.arrive(thread, *barrier) {
                        return;
                    }
                }
                Op::Put { queue } => {
                    if !self.put(thread, *queue) {
                        return;
                    }
                }
                Op::Get { queue } => {
                    if !self.get(thread, *queue) {
                        return;
                    }
                }
                Op::HandOver => {
                    self.leave(thread, State::Asleep);
                    return self.wake_by(thread);
                }
                Op::Sometimes { probability, skip } => {
                    if self.random.unit() > *probability {
                        let t = &mut self.threads[thread as usize];
                        t.pc = (t.pc + skip) % ops;
                    }
                }
                Op::Done => self.done += 1,
                Op::Exit => {
                    self.live -= 1;
                    return self.leave(thread, State::Ended);
                }
            }
        }
        // No time passes in this program: a picosecond does, so that the simulation gets on.
        self.work(thread, Mode::Work, 0, 1);
    }

    /// How long a thread waits for a line, which its CPU has from now on.
    fn transfer(&mut self, thread: u32, line: u32) -> u64 {
        let place = self.place_of(thread);
        let line = &mut self.lines[line as usize];
        let from = line.owner.replace(place);
        let mut ns = match from {
            None => 0.0,
            Some(from) if from == place => OWNED_NS,
            Some(from) => self.hardware.move_ns(from, place),
        };
        let queue = line.free_at.saturating_sub(self.now);
        if queue > 0 {
            ns *= 1.0 + CROWDED * (1.0 + queue as f64 * 1e-3 / ns).log2();
        }
        line.free_at = line.free_at.max(self.now) + ps(ns);
        line.free_at - self.now
    }

    /// A thread comes to a barrier: whether it was the last, and goes on.
    fn arrive(&mut self, thread: u32, barrier: u32) -> bool {
        let at = barrier as usize;
        if self.barriers[at].len() + 1 < self.program.barriers[at] as usize {
            self.barriers[at].push(thread);
            self.leave(thread, State::Asleep);
            return false;
        }
        for waiter in std::mem::take(&mut self.barriers[at]) {
            self.wake_by(waiter);
        }
        true
    }

    /// Puts an item into a queue: whether there was room. Without room the thread sleeps and tries again.
    fn put(&mut self, thread: u32, queue: u32) -> bool {
        let room = self.program.queues[queue as usize];
        let items = &mut self.queues[queue as usize];
        if items.inside >= room {
            items.putters.push_back(thread);
            self.threads[thread as usize].pc = self.back(thread);
            self.leave(thread, State::Asleep);
            return false;
        }
        items.inside += 1;
        if let Some(getter) = items.getters.pop_front() {
            self.wake_by(getter);
        }
        true
    }

    /// Takes an item out of a queue: whether there was one. Without one the thread sleeps and tries again.
    fn get(&mut self, thread: u32, queue: u32) -> bool {
        let items = &mut self.queues[queue as usize];
        if items.inside == 0 {
            items.getters.push_back(thread);
            self.threads[thread as usize].pc = self.back(thread);
            self.leave(thread, State::Asleep);
            return false;
        }
        items.inside -= 1;
        if let Some(putter) = items.putters.pop_front() {
            self.wake_by(putter);
        }
        true
    }

    /// The operation before, which is tried again.
    pub(super) fn back(&self, thread: u32) -> u32 {
        let t = &self.threads[thread as usize];
        let ops = self.program.classes[t.class as usize].ops.len() as u32;
        if t.pc == 0 { ops - 1 } else { t.pc - 1 }
    }

    fn preempt_between(&mut self, cpu: u32) {
        if self.cpus[cpu as usize].run.is_empty() {
            self.cpus[cpu as usize].resched = false;
            let thread = self.cpus[cpu as usize].thread;
            self.jobs.push(Job::Step(thread));
            return;
        }
        self.preempt(cpu);
        let c = &self.cpus[cpu as usize];
        if let Some(&last) = c.run.back() {
            self.threads[last as usize].left = 0;
        }
    }

    fn memory_time(&mut self, thread: u32, node: Option<u32>, bytes: f64, parallel: f64) -> u64 {
        let home = self.place_of(thread).package;
        let n = self.memory.len() as u32;
        let node = match node {
            None => self.random.below(n as usize) as u32,
            Some(u32::MAX) => home,
            Some(node) => node % n,
        };
        let m = &self.hardware.memory;
        let latency = if node == home { m.local_ns } else { m.remote_ns };
        let lines = (bytes / 64.0).max(1.0);
        let service = bytes / m.bandwidth;
        let banks = &mut self.memory[node as usize];
        let n = banks.len();
        // Each line is of any bank. Those of a large piece of memory are of all of them alike.
        let picked = if n == 1 { 1 } else { lines.ceil().min(MOST_PICKED) as u64 };
        let busy = ps(service * n as f64) / picked;
        let mut waited = 0;
        for _ in 0..picked {
            let free_at = &mut banks[if n == 1 { 0 } else { self.random.below(n) }];
            let start = (*free_at).max(self.now);
            *free_at = start + busy;
            waited += start - self.now;
        }
        waited / picked + ps(service.max(latency * lines / parallel.max(1.0)))
    }

    /// Interrupts the other CPUs that run the program; how long the sender is at it, where there are any.
    fn shootdown(&mut self, cpu: u32, per_package: bool) -> Option<u64> {
        let from = self.cpus[cpu as usize].place;
        let mut far: f64 = 0.0;
        let mut targets = 0u64;
        let mut packages = vec![false; self.packages.len()];
        let misses = self.program.shootdown_misses;
        let handle_ns = match self.program.shootdown_handle_ns {
            0.0 => self.hardware.ipi_handle_ns,
            ns => ns,
        };
        for other in 0..self.cpus.len() as u32 {
            let c = &self.cpus[other as usize];
            let place = c.place;
            if other == cpu || c.thread == NONE || misses > 0.0 && self.random.unit() < misses {
                continue;
            }
            targets += 1;
            packages[place.package as usize] = true;
            far = far.max(self.hardware.move_ns(from, place));
            self.interrupt(other, handle_ns);
        }
        self.shootdowns += 1;
        if targets == 0 {
            return None;
        }
        let sends = if per_package { packages.iter().filter(|p| **p).count() as u64 } else { targets };
        self.interrupts += sends;
        let ns = self.hardware.ipi_send_ns * sends as f64 + handle_ns + 2.0 * far;
        (ns > 0.0).then(|| ps(ns))
    }
}
