//! One observation of a program or a machine, as tables.
//!
//! The tables (`tables.rs` lists them) are handed to a sink as they grow, a delta each interval, so
//! that the same code serves a live view, a recording and the report at the end.

mod child;
mod locks;
mod placement;
mod room;
pub(crate) mod samples;
mod shortage;
mod tables;
mod throttle;
mod user_locks;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ncpu_table::Table;
use rustix::event::{PollFd, PollFlags};

pub use child::{Child, Ended, Setting, StartError};

use crate::engine::{self, Config, Engine, Event, Snapshot, ThreadOut};
use crate::hardware;
use locks::LockTables;
use placement::Placement;
use room::Room;
use samples::{Samples, Symbols};
use shortage::Shortage;
use throttle::Throttle;
use user_locks::UserLocks;

/// Stacks walked a second on the whole machine, of contentions and of waits off CPU; see
/// [`Engine::walk_every`].
const WALKS_PER_SECOND: u64 = 400;

/// A running observation.
pub struct Observation {
    engine: Engine,
    symbols: Symbols,
    samples: Samples,
    locks: LockTables,
    /// `None` where nobody wants to know.
    user_locks: Option<UserLocks>,
    before: Snapshot,
    sleeps: HashMap<u32, u64>,
    threads: HashMap<(u32, u64), ThreadOut>,
    exited: Vec<ThreadOut>,
    process_names: HashMap<u32, String>,
    thread_names: HashMap<u32, String>,
    notes: Vec<String>,
    stat: Stat,
    throttle: Throttle,
    /// `None` where nobody wants to know.
    room: Option<Room>,
    shortage: Option<Shortage>,
    placement: Placement,
    hardware: Option<hardware::Collector>,
    lock_events: u64,
    every: u32,
    off_every: u32,
    walk_all: bool,
}

/// What ended the waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The program has ended.
    Ended,
    /// The time is up.
    Time,
    /// The user asked to stop.
    Stopped,
}

impl Observation {
    /// Attaches and begins counting.
    ///
    /// # Errors
    /// See [`Engine::attach`].
    pub fn begin(config: &Config) -> engine::Result<Observation> {
        let mut engine = Engine::attach(config)?;
        // As with throttling: of use to who explains where capacity went.
        let (placement, missing) = if config.leader { Placement::begin() } else { Default::default() };
        // Only who peels wants to know; a machine without counters has none to tell of.
        let (hardware, mut notes) = match config.leader.then(hardware::user_code).transpose() {
            Ok(counters) => (counters.flatten(), Vec::new()),
            Err(e) => (None, vec![format!("hardware counters: {e}")]),
        };
        notes.extend(missing);
        let user_locks = config.user_locks.then(|| UserLocks::begin(&config.target, &mut engine));
        engine.begin(config)?;
        Ok(Observation {
            user_locks,
            hardware,
            stat: Stat::read(),
            // Only who explains idle CPUs wants to know.
            throttle: if config.leader { Throttle::begin(&config.target) } else { Throttle::default() },
            room: config.leader.then(|| Room::begin(&config.target)),
            shortage: config.leader.then(Shortage::begin),
            placement,
            engine,
            symbols: Symbols::new(),
            samples: Samples::default(),
            locks: LockTables::new(),
            before: Snapshot::default(),
            sleeps: HashMap::new(),
            threads: HashMap::new(),
            exited: Vec::new(),
            process_names: HashMap::new(),
            thread_names: HashMap::new(),
            notes,
            lock_events: 0,
            every: 16,
            off_every: 1,
            walk_all: false,
        })
    }

    /// Walks every contention's stack, whatever it costs (`locks -s`).
    pub fn walk_all(&mut self) {
        self.walk_all = true;
        self.every = 1;
        self.engine.walk_every(1, self.off_every);
    }

    /// Tells the program that is about to be let go, so that its locks are traced from the beginning.
    pub fn expect(&mut self, program: &Path) {
        if let Some(locks) = &mut self.user_locks {
            locks.expect(program, &mut self.engine);
        }
    }

    /// What could not be observed, one line each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.engine.notes().to_vec();
        notes.extend(self.notes.iter().chain(self.locks.notes()).chain(self.placement.notes()).cloned());
        notes.extend(self.user_locks.iter().flat_map(UserLocks::notes).cloned());
        notes.extend(self.engine.hotplug_note());
        notes
    }

    /// Handles events until the program behind `pidfd` ends, `deadline` passes or `stop` is set;
    /// calls `sink` with the new rows of every table each `interval`.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn watch<E>(
        &mut self,
        pidfd: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
        interval: Duration,
        stop: &AtomicBool,
        sink: &mut dyn FnMut(&Table) -> Result<(), E>,
    ) -> Result<Until, E> {
        let mut next = Instant::now() + interval;
        loop {
            let now = Instant::now();
            if stop.load(Ordering::Relaxed) {
                return Ok(Until::Stopped);
            }
            if deadline.is_some_and(|d| now >= d) {
                return Ok(Until::Time);
            }
            if now >= next {
                self.tick(sink)?;
                next += interval * (1 + (now - next).as_nanos() as u32 / interval.as_nanos().max(1) as u32);
            }
            if self.placement.due(now) {
                self.look(interval, sink)?;
            }
            if let Some(locks) = &mut self.user_locks {
                locks.look(&mut self.engine, now);
            }
            // Once in a while the ring must be emptied even if nobody wakes us.
            let until = next.min(deadline.unwrap_or(next)).min(now + Duration::from_millis(100));
            let until = self.user_locks.as_ref().and_then(UserLocks::next).map_or(until, |at| until.min(at));
            let ended = self.wait(pidfd, until.saturating_duration_since(now));
            self.receive();
            if ended {
                return Ok(Until::Ended);
            }
        }
    }

    /// Looks where the program's memory lies. What a process showed at its last look stands when it has
    /// ended.
    fn look<E>(
        &mut self,
        interval: Duration,
        sink: &mut dyn FnMut(&Table) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.placement.on() {
            return Ok(());
        }
        for thread in self.engine.threads().unwrap_or_default() {
            self.placement.met(thread.tgid);
        }
        self.placement.look(interval).iter().filter(|t| t.num_rows() > 0).try_for_each(sink)
    }

    /// Waits for the ring buffer's wake-up, the program's end or the time; says whether it ended.
    fn wait(&self, pidfd: Option<BorrowedFd<'_>>, time: Duration) -> bool {
        // SAFETY: the engine owns the ring buffer's descriptor and outlives this call.
        let ring = unsafe { BorrowedFd::borrow_raw(self.engine.ring_fd()) };
        let mut fds = vec![PollFd::from_borrowed_fd(ring, PollFlags::IN)];
        fds.extend(pidfd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let time =
            rustix::time::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        // Interrupted by a signal: the loop looks at `stop`.
        let _ = rustix::event::poll(&mut fds, Some(&time));
        fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
    }

    fn receive(&mut self) {
        for event in self.engine.drain() {
            match event {
                Event::Sample(at, stack) => {
                    self.symbols.note(stack.tgid, &stack.comm);
                    self.process_names.entry(stack.tgid).or_insert_with(|| stack.comm.clone());
                    self.samples.add(at, stack);
                }
                Event::Exit(thread) => {
                    self.placement.met(thread.tgid);
                    self.process_names.insert(thread.tgid, thread.process());
                    self.thread_names.insert(thread.tid, thread.name());
                    self.exited.push(*thread);
                }
                Event::LockStack(id, stack) => {
                    self.process_names.entry(stack.tgid).or_insert_with(|| stack.comm.clone());
                    self.locks.lock_stack(id, stack);
                }
                Event::UserLockStack(id, stack) => {
                    self.symbols.note(stack.tgid, &stack.comm);
                    self.process_names.entry(stack.tgid).or_insert_with(|| stack.comm.clone());
                    self.locks.user_lock_stack(id, stack);
                }
                Event::Exec(pid) => {
                    if let Some(locks) = &mut self.user_locks {
                        locks.began(pid, Instant::now());
                    }
                }
                Event::OffCpu(id, stack) => {
                    self.symbols.note(stack.tgid, &stack.comm);
                    self.locks.off_stack(id, stack);
                }
                Event::Futex { address, word, value, stack } => {
                    self.symbols.note(stack.tgid, &stack.comm);
                    let tgid = stack.tgid;
                    if let Some(class) = self.locks.judge(&mut self.symbols, address, word, value, stack) {
                        self.engine.judge_futex(tgid, address, class);
                    }
                }
            }
        }
    }

    /// Walks fewer stacks where there is more to walk: a walk costs ten times the rest.
    fn tune(&mut self, seconds: f64, switches: u64) {
        let seconds = seconds.max(0.01);
        let one_in = |n: u64| {
            ((n as f64 / seconds) as u64 / WALKS_PER_SECOND).clamp(1, 65_536).next_power_of_two() as u32
        };
        let events = self.engine.lock_events();
        let every = if self.walk_all { 1 } else { one_in(events - self.lock_events) };
        let off_every = one_in(switches);
        self.lock_events = events;
        if (every, off_every) != (self.every, self.off_every) {
            (self.every, self.off_every) = (every, off_every);
            self.engine.walk_every(every, off_every);
        }
    }

    /// The kernel's symbols take 30 ms to read, so not before there is something to name.
    fn needs_kernel_names(&self) -> bool {
        !self.symbols.kernel_loaded() && (!self.samples.is_empty() || self.lock_events > 0)
    }

    /// One stack in so many contentions is walked now.
    pub fn walked_every(&self) -> u32 {
        self.every
    }

    fn tick<E>(&mut self, sink: &mut dyn FnMut(&Table) -> Result<(), E>) -> Result<(), E> {
        self.engine.follow_hotplug();
        // Counters before events: a stack is sent before anything is counted for it.
        let locks = self.engine.locks();
        let snap = self.engine.snapshot();
        self.receive();
        // What follows may take its time, and programs that have just begun may not.
        if let Some(locks) = &mut self.user_locks {
            locks.look(&mut self.engine, Instant::now());
        }
        self.tune(snap.elapsed - self.before.elapsed, snap.switches - self.before.switches);
        let t = snap.elapsed;

        let mut cpu_time = tables::cpu_time();
        for (cpu, at) in &snap.cpus {
            let before = self.before.cpus.iter().find(|(c, _)| c == cpu).map_or([0; 8], |(_, at)| *at);
            let mut row = cpu_time.row().float(t).int(*cpu as u64);
            for (now, before) in at.iter().zip(before) {
                row = row.float(now.saturating_sub(before) as f64 / 1e9);
            }
        }
        let mut idle = tables::idle_time();
        let mut row = idle.row().float(t);
        for (now, before) in snap.idle.iter().zip(self.before.idle) {
            row = row.float(now.saturating_sub(before) as f64 / 1e9);
        }
        let b = &self.before;
        let mut counters = tables::counters();
        for (event, n) in [
            ("TLB shootdowns sent", snap.tlb_sent - b.tlb_sent),
            ("TLB shootdowns received", snap.tlb_received - b.tlb_received),
            ("interrupts", snap.irqs - b.irqs),
            ("softirqs", snap.softirqs - b.softirqs),
            ("context switches", snap.switches - b.switches),
            ("context switches not traced", snap.unseen_switches - b.unseen_switches),
            ("run-queue waiting, us", (snap.runnable - b.runnable) / 1000),
            ("idle ticks", snap.ticks - b.ticks),
        ] {
            counters.row().float(t).text(event).int(n);
        }
        self.before = snap;
        if let Some(shortage) = &mut self.shortage {
            shortage.look();
        }

        let threads = self.thread_table(t);
        if self.needs_kernel_names()
            && let Some(note) = self.symbols.load_kernel()
        {
            self.notes.push(note);
        }
        let (samples, stacks) = self.samples.tables(&mut self.symbols, self.engine.hz());
        let locks = self.locks.tables(&locks, &mut self.symbols, &self.process_names, &self.thread_names);
        let mut sleeps = tables::sleeps();
        for (nr, ns) in self.engine.sleep_calls() {
            let before = self.sleeps.insert(nr, ns).unwrap_or(0);
            if ns > before {
                sleeps.row().text(call_name(nr)).float((ns - before) as f64 / 1e9);
            }
        }
        let tables = [
            cpu_time.finish(),
            idle.finish(),
            counters.finish(),
            threads,
            samples,
            stacks,
            sleeps.finish(),
            self.throttle.table(t),
        ];
        for table in tables.iter().chain(&locks).filter(|t| t.num_rows() > 0) {
            sink(table)?;
        }
        Ok(())
    }

    /// What each thread did since the last table: living ones from the iterator, ended ones from
    /// what they left behind.
    fn thread_table(&mut self, t: f64) -> Table {
        let mut out = tables::threads();
        let living = self.engine.threads().unwrap_or_else(|e| {
            let note = format!("no threads: {e}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
            Vec::new()
        });
        self.throttle.met(living.iter().map(|t| t.tgid));
        let mut pids: Vec<u32> = living.iter().map(|t| t.tgid).collect();
        pids.sort_unstable();
        pids.dedup();
        if let Some(room) = &mut self.room {
            room.look(&pids);
        }
        if let Some(locks) = &mut self.user_locks {
            locks.living(&pids, Instant::now());
        }
        let ended = std::mem::take(&mut self.exited);
        let mut kept = HashMap::with_capacity(living.len());
        for (now, alive) in living.iter().map(|t| (t, true)).chain(ended.iter().map(|t| (t, false))) {
            let key = (now.tid, now.start);
            let before = self.threads.get(&key).copied().unwrap_or_default();
            if alive {
                self.process_names.insert(now.tgid, now.process());
                self.thread_names.insert(now.tid, now.name());
                kept.insert(key, *now);
            }
            let mut row = out
                .row()
                .float(t)
                .int(now.tgid.into())
                .int(now.tid.into())
                .text(now.process())
                .text(now.name());
            for (now, before) in now.micro.iter().zip(before.micro) {
                row = row.float(now.saturating_sub(before) as f64 / 1e9);
            }
            row = row.float(now.spin.saturating_sub(before.spin) as f64 / 1e9);
            for (now, before) in [
                (now.vcx, before.vcx),
                (now.icx, before.icx),
                (now.scl, before.scl),
                (now.sig, before.sig),
                (now.minf, before.minf),
                (now.majf, before.majf),
            ] {
                row = row.int(now.saturating_sub(before));
            }
        }
        self.threads = kept;
        out.finish()
    }

    /// Ends counting and hands over the last rows, with the summary.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn finish<E>(
        mut self,
        ended: Option<Ended>,
        sink: &mut dyn FnMut(&Table) -> Result<(), E>,
    ) -> Result<Vec<String>, E> {
        self.engine.end();
        let stat = Stat::read();
        match self.hardware.as_mut().map(hardware::Collector::sample).transpose() {
            Ok(Some(table)) => sink(&table)?,
            Ok(None) => {}
            Err(e) => self.notes.push(format!("hardware counters: {e}")),
        }
        self.tick(sink)?;
        let (room, shortage) = (self.room.as_ref(), self.shortage.as_ref());
        let told = room.map(Room::table).into_iter().chain(shortage.into_iter().flat_map(Shortage::tables));
        told.filter(|t| t.num_rows() > 0).try_for_each(|t| sink(&t))?;
        self.look(Duration::ZERO, sink)?;
        let mut summary = tables::summary();
        let ticks = |now: u64, before: u64| {
            now.saturating_sub(before) as f64 / rustix::param::clock_ticks_per_second() as f64
        };
        summary
            .row()
            .float(self.before.elapsed)
            .float_opt(ended.map(|e| e.user))
            .float_opt(ended.map(|e| e.system))
            .int(self.before.cpus.len() as u64)
            .float(ticks(stat.steal, self.stat.steal))
            .float(ticks(stat.iowait, self.stat.iowait))
            .int(self.engine.hz().into())
            .int_opt(ended.map(|e| e.status as u64))
            .int_opt(ended.map(|e| e.max_rss));
        sink(&summary.finish())?;
        let mut drops = tables::drops();
        for (what, n) in &self.before.drops {
            drops.row().text(what).int(*n);
        }
        if !drops.is_empty() {
            sink(&drops.finish())?;
        }
        Ok(self.notes())
    }
}

/// The name of a system call.
pub(crate) fn call_name(nr: u32) -> String {
    match syscalls::Sysno::new(nr as usize) {
        Some(call) => call.name().into(),
        None => format!("syscall {nr}"),
    }
}

/// The machine-wide line of /proc/stat: what only the kernel's own accounting knows.
#[derive(Clone, Copy, Debug, Default)]
struct Stat {
    iowait: u64,
    steal: u64,
}

impl Stat {
    fn read() -> Stat {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut words = text.lines().next().unwrap_or("").split_ascii_whitespace().skip(1);
        let mut field = |n: usize| words.nth(n).and_then(|w| w.parse().ok()).unwrap_or(0);
        // cpu user nice system idle iowait irq softirq steal
        Stat { iowait: field(4), steal: field(2) }
    }
}
