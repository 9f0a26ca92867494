//! The discrete-event simulation: threads on CPUs, locks, lines, interrupts, memory.
//!
//! Every instant of every CPU is charged to exactly one [`Mode`], and every instant of an idle CPU to exactly one
//! reason, so that the layers of the onion sum to the capacity by construction, as the engine's do.

mod locks;
mod ops;
mod queue;
mod sched;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use ncpu_schema::{IdleReason, Microstate};

pub use crate::random::{Random, Time};
pub use ops::OWNED_NS;
pub use queue::{Event, Queue};

use crate::first::Waits;
use crate::hardware::{Hardware, Order, Place};
use crate::program::{Activity, Op, Program};
use locks::Lock;

/// No thread, CPU or lock.
const NONE: u32 = u32::MAX;
/// Events between two questions whether to stop.
const ASK_EVERY: u64 = 1 << 16;

/// Picoseconds of a time in nanoseconds.
fn ps(ns: f64) -> u64 {
    (ns * 1e3) as u64
}

/// The activity of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Idle,
    /// The program's work.
    Work,
    /// Waits for a kernel lock.
    Spin,
    /// Waits for a lock of the program's own.
    UserSpin,
    /// Switches threads.
    Switch,
    /// Handles timers and devices.
    Interrupt,
    /// Sends or answers TLB shootdowns.
    Tlb,
}

/// Number of modes.
pub const MODES: usize = 7;

/// Why CPUs idle, in the order in which idle CPUs are handed to waiting threads.
pub const REASONS: [IdleReason; 6] = [
    IdleReason::RunQueue,
    IdleReason::KernelLock,
    IdleReason::UserLock,
    IdleReason::Io,
    IdleReason::Serial,
    IdleReason::Asleep,
];

/// Microstates of a thread.
pub const MICRO: [Microstate; 6] =
    [Microstate::Usr, Microstate::Sys, Microstate::Trp, Microstate::Lck, Microstate::Slp, Microstate::Lat];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Running,
    Spinning,
    /// Off CPU; the index into `REASONS`.
    Waiting(u8),
    /// Asleep for no one's sake.
    Asleep,
    Ended,
}

#[derive(Debug)]
struct Thread {
    class: u16,
    state: State,
    bound: bool,
    pc: u32,
    /// Its CPU, or the one it ran on last.
    cpu: u32,
    /// Work left of the segment it was taken off CPU in, and what that was.
    left: u64,
    mode: Mode,
    activity: u16,
    /// Locks held, the latest last, and which of them are shared.
    held: Vec<(u32, bool)>,
    /// Of those, kernel locks: it is not preempted meanwhile.
    unpreemptible: u32,
    /// Lock it waits for, since when, spun meanwhile, and since when it spins.
    wait: u32,
    wait_since: u64,
    /// The last-level cache that it reads the lock's line from.
    wait_in: u32,
    /// Nobody else waited for it.
    first: bool,
    spun: u64,
    spin_since: u64,
    epoch: u32,
    since: u64,
    micro: [u64; 6],
    voluntary: u64,
    involuntary: u64,
}

#[derive(Debug)]
struct Cpu {
    place: Place,
    thread: u32,
    mode: Mode,
    activity: u16,
    /// Work left of the segment, at full speed; and since when.
    left: f64,
    since: u64,
    rate: f64,
    /// Events of an earlier epoch are void.
    epoch: u32,
    /// Time that interrupts took from the segment and that is still to be paid, by kind.
    stolen_tlb: u64,
    stolen_irq: u64,
    /// The segment is such time: the thread's own goes on behind it.
    paying: bool,
    run: VecDeque<u32>,
    sliced: bool,
    slice_epoch: u32,
    resched: bool,
    used: [u64; MODES],
}

impl Cpu {
    /// Whether an interrupt delays something: a thread that spins until a lock is free is not delayed by
    /// it.
    fn works(&self) -> bool {
        self.thread != NONE && self.left.is_finite()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    owner: Option<Place>,
    free_at: u64,
}

/// Statistics of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LockStats {
    /// Acquisitions.
    pub taken: u64,
    /// Those that waited.
    pub contended: u64,
    /// Time spinning, ps.
    pub spin: u64,
    /// Time waiting off CPU, ps.
    pub block: u64,
    /// Longest wait, ps.
    pub longest: u64,
    /// Time held, hand-overs included, ps.
    pub held: u64,
}

/// Sums over a stretch of simulated time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Length, ps.
    pub elapsed: u64,
    /// Units of work done.
    pub done: u64,
    /// Units of work of each batch, for bands.
    pub batches: Vec<f64>,
    /// For each CPU, ps in each [`Mode`].
    pub cpus: Vec<[u64; MODES]>,
    /// For each activity, ps.
    pub activities: Vec<u64>,
    /// Idle CPU time by reason, ps.
    pub idle: [f64; 6],
    /// Locks.
    pub locks: Vec<LockStats>,
    /// For each lock, how long those waited that were first in its queue.
    pub first: Vec<Waits>,
    /// Interrupts sent to other CPUs.
    pub interrupts: u64,
    /// TLB shootdowns.
    pub shootdowns: u64,
    /// Voluntary and involuntary switches.
    pub switches: (u64, u64),
    /// Events simulated.
    pub events: u64,
    /// For each thread: class, microstates in ps, voluntary and involuntary switches.
    pub threads: Vec<(u16, [u64; 6], u64, u64)>,
    /// All threads ended.
    pub ended: bool,
}

impl Outcome {
    /// Units of work a second.
    pub fn throughput(&self) -> f64 {
        self.done as f64 * 1e12 / (self.elapsed as f64).max(1.0)
    }

    /// Half-width of the 95 % interval of the throughput over the throughput, from the means of batches; infinite where
    /// there are too few.
    pub fn uncertainty(&self) -> f64 {
        let n = self.batches.len() as f64;
        if n < 5.0 {
            return f64::INFINITY;
        }
        let mean = self.batches.iter().sum::<f64>() / n;
        let var = self.batches.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        if mean > 0.0 { 2.1 * (var / n).sqrt() / mean } else { f64::INFINITY }
    }

    /// Adds time in which all threads sleep, ps.
    pub fn stand_still(&mut self, time: u64) {
        let factor = (self.elapsed + time) as f64 / (self.elapsed as f64).max(1.0);
        self.elapsed += time;
        for cpu in &mut self.cpus {
            cpu[Mode::Idle as usize] += time;
        }
        self.idle[5] += time as f64 * self.cpus.len() as f64;
        for thread in &mut self.threads {
            thread.1[4] += time;
        }
        self.batches.iter_mut().for_each(|n| *n /= factor);
    }

    /// Threads that have a CPU or wait for one or for a lock, on average.
    pub fn active(&self) -> f64 {
        let active = |t: &(u16, [u64; 6], u64, u64)| (t.1.iter().sum::<u64>() - t.1[4]) as f64;
        self.threads.iter().map(active).sum::<f64>() / (self.elapsed as f64).max(1.0)
    }

    /// CPU time in a mode, ps.
    pub fn mode(&self, mode: Mode) -> f64 {
        self.cpus.iter().map(|c| c[mode as usize] as f64).sum()
    }
}

/// A simulation under way.
#[derive(Debug)]
pub struct Sim<'a> {
    hardware: &'a Hardware,
    program: &'a Program,
    random: Random,
    queue: Queue,
    now: u64,
    cpus: Vec<Cpu>,
    /// CPUs of each core, as indices.
    cores: Vec<Vec<u32>>,
    /// CPUs of each package.
    packages: Vec<Vec<u32>>,
    idle_in: Vec<u32>,
    threads: Vec<Thread>,
    locks: Vec<Lock>,
    lines: Vec<Line>,
    /// When each bank of memory of each package is free again.
    memory: Vec<Vec<u64>>,
    barriers: Vec<Vec<u32>>,
    queues: Vec<Items>,
    jobs: Vec<Job>,
    idle: u32,
    queued: u32,
    /// Threads waiting off CPU by reason.
    waiting: [u32; 4],
    /// Threads that are neither asleep nor ended.
    active: u32,
    flow_at: u64,
    flow: [f64; 6],
    activities: Vec<u64>,
    done: u64,
    events: u64,
    /// How many there are when it is asked again whether to stop.
    ask_at: u64,
    interrupts: u64,
    shootdowns: u64,
    switches: (u64, u64),
    live: u32,
    begun_at: u64,
    batches: Vec<f64>,
    slice: u64,
    strands: f64,
    /// Speed of a CPU whose siblings are idle.
    base: f64,
    /// The microstate of each activity, an index into [`MICRO`].
    micro_of: Vec<usize>,
}

#[derive(Debug, Default)]
struct Items {
    inside: u32,
    putters: VecDeque<u32>,
    getters: VecDeque<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Job {
    /// Finds a CPU something to run.
    Dispatch(u32),
    /// Goes on with a thread that is on CPU.
    Step(u32),
}

const SEGMENT: u64 = 0;
const SLICE: u64 = 1;
const WAKE: u64 = 2;
const TICK: u64 = 3;
const SPUN: u64 = 4;

fn micro_of(activity: &Activity) -> usize {
    match activity.class.as_str() {
        "user" | "line" => 0,
        "fault" => 2,
        _ => 1,
    }
}

fn event(kind: u64, id: u32, epoch: u32) -> u64 {
    kind << 60 | u64::from(id) << 32 | u64::from(epoch)
}

impl<'a> Sim<'a> {
    /// Places the program's threads on the first `cpus` CPUs of the machine.
    pub fn new(
        program: &'a Program,
        hardware: &'a Hardware,
        cpus: usize,
        order: Order,
        seed: u64,
    ) -> Sim<'a> {
        let places = hardware.places(cpus.max(1), order);
        let n = places.len();
        let most = |f: fn(&Place) -> u32| places.iter().map(f).max().unwrap_or(0) as usize + 1;
        let mut cores = vec![Vec::new(); most(|p| p.core)];
        let mut packages = vec![Vec::new(); most(|p| p.package)];
        for (i, p) in (0u32..).zip(&places) {
            cores[p.core as usize].push(i);
            packages[p.package as usize].push(i);
        }
        // All cores of a package at work: what turbo leaves. Between, it falls with their number.
        let used = (n as f64 / (f64::from(hardware.shape.strands) * packages.len() as f64))
            / f64::from(hardware.shape.cores_a_package());
        let base = hardware.speed * (1.0 - (1.0 - hardware.turbo) * used.min(1.0));
        let cpus: Vec<Cpu> = places
            .iter()
            .map(|&place| Cpu {
                place,
                thread: NONE,
                mode: Mode::Idle,
                activity: 0,
                left: 0.0,
                since: 0,
                rate: base,
                epoch: 0,
                stolen_tlb: 0,
                stolen_irq: 0,
                paying: false,
                run: VecDeque::new(),
                sliced: false,
                slice_epoch: 0,
                resched: false,
                used: [0; MODES],
            })
            .collect();
        let idle_in = packages.iter().map(|p| p.len() as u32).collect();
        let mut sim = Sim {
            random: Random::new(seed),
            queue: Queue::default(),
            now: 0,
            idle: n as u32,
            cpus,
            cores,
            idle_in,
            memory: vec![vec![0; hardware.memory.banks()]; packages.len()],
            packages,
            threads: Vec::new(),
            locks: program.locks.iter().map(|l| Lock::new(l, hardware)).collect(),
            lines: vec![Line::default(); program.lines as usize],
            barriers: vec![Vec::new(); program.barriers.len()],
            queues: program.queues.iter().map(|_| Items::default()).collect(),
            jobs: Vec::new(),
            queued: 0,
            waiting: [0; 4],
            active: 0,
            flow_at: 0,
            flow: [0.0; 6],
            activities: vec![0; program.activities.len()],
            done: 0,
            events: 0,
            ask_at: 0,
            interrupts: 0,
            shootdowns: 0,
            switches: (0, 0),
            live: 0,
            begun_at: 0,
            batches: Vec::new(),
            slice: ps(if program.slice_ns > 0.0 { program.slice_ns } else { 3e6 }),
            strands: f64::from(hardware.shape.strands),
            base,
            micro_of: program.activities.iter().map(micro_of).collect(),
            hardware,
            program,
        };
        let mut next = 0;
        for (class, c) in program.classes.iter().enumerate() {
            for _ in 0..c.threads {
                let cpu = (next % n) as u32;
                next += 1;
                sim.add_thread(class as u16, c.bound, cpu);
            }
        }
        if let Some((_, hz)) = program.tick.filter(|t| t.1 > 0.0) {
            for cpu in 0..if program.ticks_on_one { 1 } else { n as u32 } {
                // Ticks of different CPUs do not coincide.
                let at = 1e12 / hz * (f64::from(cpu) + 0.5) / n as f64;
                sim.queue.push(at as u64, event(TICK, cpu, 0));
            }
        }
        sim.work_off();
        sim
    }

    /// Simulates up to a time, or until every thread has ended; whether there is more to come.
    pub fn run_until(&mut self, until: u64) -> bool {
        self.run_until_or(until, u64::MAX, &|| false)
    }

    /// [`Sim::run_until`], unless `stop` ends it before, or there have been `most` events.
    fn run_until_or(&mut self, until: u64, most: u64, stop: &dyn Fn() -> bool) -> bool {
        while self.live > 0 {
            if self.events >= most {
                return true;
            }
            if self.events >= self.ask_at {
                self.ask_at = self.events + ASK_EVERY;
                if stop() {
                    return true;
                }
            }
            if self.queue.next_at().is_some_and(|at| at > until) {
                self.now = until;
                return true;
            }
            let Some(event) = self.queue.pop() else { break };
            self.now = event.at;
            self.events += 1;
            self.happen(event.what);
            if !self.jobs.is_empty() {
                self.work_off();
            }
        }
        false
    }

    fn happen(&mut self, what: u64) {
        let (id, epoch) = ((what >> 32) as u32 & 0x0fff_ffff, what as u32);
        match what >> 60 {
            SEGMENT => self.segment_ends(id, epoch),
            SLICE => self.slice_ends(id, epoch),
            WAKE if self.threads[id as usize].epoch == epoch => self.wake(id),
            SPUN => self.spun_enough(id, epoch),
            TICK => {
                if let Some((ns, hz)) = self.program.tick {
                    let ns = ns * if self.program.ticks_on_one { self.cpus.len() as f64 } else { 1.0 };
                    let cpu = &mut self.cpus[id as usize];
                    if cpu.works() {
                        cpu.stolen_irq += ps(ns);
                    }
                    self.queue.push(self.now + (1e12 / hz) as u64, event(TICK, id, 0));
                }
            }
            _ => {}
        }
    }

    fn work_off(&mut self) {
        while let Some(job) = self.jobs.pop() {
            match job {
                Job::Dispatch(cpu) => self.dispatch(cpu),
                Job::Step(thread) => self.step(thread),
            }
        }
    }

    /// The simulated time, ps.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Units of work done so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Events simulated so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Forgets what was counted so far: what comes is what is reported.
    pub fn begin(&mut self) {
        self.settle();
        self.begun_at = self.now;
        self.flow = [0.0; 6];
        (self.done, self.interrupts, self.shootdowns, self.switches) = (0, 0, 0, (0, 0));
        self.activities.fill(0);
        for cpu in &mut self.cpus {
            cpu.used = [0; MODES];
        }
        for lock in &mut self.locks {
            lock.stats = LockStats::default();
            lock.first = Waits::default();
        }
        for thread in &mut self.threads {
            thread.micro = [0; 6];
            (thread.voluntary, thread.involuntary) = (0, 0);
        }
        self.batches.clear();
    }

    /// Charges everything up to now.
    fn settle(&mut self) {
        self.flow();
        for cpu in 0..self.cpus.len() as u32 {
            self.account(cpu);
        }
        for thread in 0..self.threads.len() as u32 {
            self.account_off_cpu(thread);
        }
    }

    /// Sums since [`Sim::begin`].
    pub fn outcome(&mut self) -> Outcome {
        self.settle();
        Outcome {
            elapsed: self.now - self.begun_at,
            done: self.done,
            batches: self.batches.clone(),
            cpus: self.cpus.iter().map(|c| c.used).collect(),
            activities: self.activities.clone(),
            idle: self.flow,
            locks: self.locks.iter().map(|l| l.stats).collect(),
            first: self.locks.iter().map(|l| l.first.clone()).collect(),
            interrupts: self.interrupts,
            shootdowns: self.shootdowns,
            switches: self.switches,
            events: self.events,
            threads: self.threads.iter().map(|t| (t.class, t.micro, t.voluntary, t.involuntary)).collect(),
            ended: self.live == 0,
        }
    }

    /// Finds a steady state, then simulates until the throughput is known to `within` (95 % half-width over mean), or
    /// for `most` events. A program whose threads end is simulated to its end.
    ///
    /// Warm-up: windows that double in length until two following ones agree within their noise.
    pub fn steady(&mut self, within: f64, most: u64, stop: &dyn Fn() -> bool) -> Outcome {
        let wanted = (4 * self.threads.len() as u64).max(200);
        let mut window = 1_000_000; // 1 us
        let mut last = None;
        // A window long enough for some work of each thread.
        loop {
            let before = (self.done, self.now);
            let more = self.run_until_or(self.now.saturating_add(window), most / 3, stop);
            if !more || stop() {
                return self.outcome();
            }
            let rate = (self.done - before.0) as f64 / (self.now - before.1) as f64;
            let enough = self.done - before.0 >= wanted;
            let noise = 3.0 / ((self.done - before.0).max(1) as f64).sqrt();
            let settled = last.is_some_and(|l: f64| (rate / l - 1.0).abs() < noise.clamp(0.02, 0.2));
            if enough && settled || self.events >= most / 3 {
                break;
            }
            last = enough.then_some(rate);
            window *= 2;
        }
        self.begin();
        let most = self.events.saturating_add(most);
        let batch = (window / 4).max(1);
        loop {
            let before = self.done;
            let more = self.run_until_or(self.now.saturating_add(batch), most, stop);
            self.batches.push((self.done - before) as f64);
            // Batches that grow in length stay independent of each other.
            if self.batches.len() == 40 {
                self.batches = self.batches.chunks(2).map(|c| c.iter().sum()).collect();
                let batch_now = 2 * batch;
                return self.steadier(batch_now, within, most, stop);
            }
            if !more || self.events >= most || stop() {
                return self.outcome();
            }
        }
    }

    /// Batches until these are alike, or there have been `most` events.
    fn steadier(&mut self, mut batch: u64, within: f64, most: u64, stop: &dyn Fn() -> bool) -> Outcome {
        loop {
            let out_of = self.events >= most || stop();
            let n = self.batches.len() as f64;
            let mean = self.batches.iter().sum::<f64>() / n;
            let var = self.batches.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let narrow = mean > 0.0 && 2.1 * (var / n).sqrt() / mean < within;
            if narrow || out_of {
                return self.outcome();
            }
            let before = self.done;
            let more = self.run_until_or(self.now.saturating_add(batch), most, stop);
            self.batches.push((self.done - before) as f64);
            if !more {
                return self.outcome();
            }
            if self.batches.len() == 40 {
                self.batches = self.batches.chunks(2).map(|c| c.iter().sum()).collect();
                batch *= 2;
            }
        }
    }

    fn op(&self, thread: u32) -> &'a Op {
        let t = &self.threads[thread as usize];
        &self.program.classes[t.class as usize].ops[t.pc as usize]
    }
}
