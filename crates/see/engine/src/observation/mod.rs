//! One observation of a program or a machine, as tables.
//!
//! The tables (`tables.rs` lists them) are handed to a sink as they grow, a delta each interval, so
//! that the same code serves a live view, a recording and the report at the end.
//!
#![doc = include_str!("README.md")]

mod backends;
mod bandwidth;
mod bounds;
mod cadence;
mod call_locks;
mod call_results;
mod corrections;
mod critical_path;
mod goroutines;
mod idle;
mod interrupts;
mod lengths;
pub(crate) mod locks;
mod losses;
mod placement;
mod queued;
mod receive;
mod requests;
pub(crate) mod room;
pub(crate) mod samples;
mod served;
mod settings;
pub(crate) mod shortage;
mod stat;
mod tenants;
mod thread_time;
mod threads;
pub(crate) mod throttle;
mod tick;
mod user_code;
mod user_locks;
mod waiters;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use ncpu_machine::process::{self, Stat as ProcessStat};
use ncpu_schema::{drops, summary};
use ncpu_table::Table;
use rustix::event::{PollFd, PollFlags};

use crate::bpf_support;
use crate::bpf_support::namespace::{self, process_dir};
use crate::counters;
use crate::engine::{Config, Engine, Places, Snapshot, ThreadOut};
use crate::names::{Symbols, Unwinds};
use crate::program::{Ended, Target};
use bandwidth::Bandwidth;
use bounds::Names;
pub(crate) use cadence::Cadence;
use corrections::Corrections;
use critical_path::CriticalPath;
use goroutines::Goroutines;
use interrupts::Interrupts;
use locks::LockTables;
use placement::Placement;
use queued::Queued;
use requests::Devices;
use room::Room;
use samples::Samples;
pub use samples::ThreadStack;
use served::SlowRequests;
use settings::Settings;
use shortage::Shortage;
use stat::Stat;
use tenants::Tenants;
use thread_time::ThreadTime;
use threads::{Known, MISSING, ThreadKey};
use throttle::Throttle;
use user_locks::UserLocks;

/// Notes kept: some name processes and files, of which there are ever more.
const MAX_NOTES: usize = 100;
/// How often the code of a program that has been let go is looked for, a millisecond apart.
const TRIES: usize = 10;

/// A running observation.
pub struct Observation {
    engine: Engine,
    symbols: Symbols,
    samples: Samples,
    path: CriticalPath,
    locks: LockTables,
    places: Places,
    /// `None` where the configuration does not ask for it.
    user_locks: Option<UserLocks>,
    /// As those, and where idle CPUs are to be explained.
    goroutines: Option<Goroutines>,
    corrections: Corrections,
    before: Snapshot,
    sleeps: HashMap<u32, u64>,
    threads: HashMap<ThreadKey, Known>,
    /// `None` where the configuration does not ask for it.
    thread_time: Option<ThreadTime>,
    slow: SlowRequests,
    exited: Vec<ThreadOut>,
    process_names: Names,
    thread_names: Names,
    notes: Vec<String>,
    stat: Stat,
    /// Ticks that the hypervisor had taken when the last tables of tenants were made.
    stolen: u64,
    throttle: Throttle,
    interrupts: Interrupts,
    devices: Devices,
    settings: Settings,
    queued: Queued,
    /// A process of the program, the one observed where it lives.
    program: Option<u32>,
    target: Option<u32>,
    whole_machine: bool,
    /// `None` where the configuration does not ask for it.
    room: Option<Room>,
    shortage: Option<Shortage>,
    bandwidth: Option<Bandwidth>,
    placement: Placement,
    /// `None` without accounts by tenant.
    tenants: Option<Tenants>,
    counters: Option<counters::Collector>,
    unwound: Unwinds,
    /// Where the tables that are written now began: seconds since the observation did, and what was dropped by then.
    since: f64,
    dropped: HashMap<&'static str, u64>,
}

/// The reason why the wait ended.
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
    pub fn begin(config: &Config) -> bpf_support::Result<Observation> {
        namespace::find_proc()?;
        // Loaded while the engine attaches, for it takes half as long as attaching.
        let mut symbols = Symbols::of_bpf();
        symbols.load_kernel_aside();
        let mut engine = Engine::attach(config)?;
        // As with throttling: needed only for the onion.
        let (placement, missing) = if config.explain { Placement::begin() } else { Default::default() };
        // Needed only for the onion. Machines without a PMU have no counters.
        let (counters, mut notes) = match config.explain.then(counters::user_code).transpose() {
            Ok(counters) => (counters.flatten(), Vec::new()),
            Err(e) => (None, vec![format!("hardware counters: {e}")]),
        };
        notes.extend(missing);
        if namespace::is_own() {
            notes.push(
                "this is a PID namespace, as of a container: numbers of processes are the machine's, and \
                 functions of programs have no names"
                    .into(),
            );
        }
        let user_locks = config.traces_programs().then(|| UserLocks::begin(&config.target, &mut engine));
        engine.begin(config)?;
        // Baseline of the threads: nothing before this moment is a loss, or a part of a life. Without it a thread would have lived for
        // longer than the observation lasts.
        let before = match engine.threads() {
            Err(e) if engine.tells_tenants() => return Err(e),
            before => before.unwrap_or_default(),
        };
        let thread_time = config.explain.then(|| ThreadTime::begin(&before, MISSING));
        let known = |told: ThreadOut| ((told.tid, told.start), Known { told, missing: 0 });
        let threads = before.into_iter().map(known).collect();
        let mut samples = Samples::new(config.patterns.clone(), config.source_lines);
        let tenants = engine.tells_tenants().then(Tenants::begin);
        if tenants.is_some() {
            samples.count_processes();
        }
        let target = if let Target::Tree(pid) = config.target { Some(pid) } else { None };
        Ok(Observation {
            goroutines: (config.explain && user_locks.is_some())
                .then(|| Goroutines::new(std::thread::available_parallelism().map_or(1, |n| n.get() as u32))),
            user_locks,
            counters,
            stat: Stat::read(),
            stolen: Stat::read().steal,
            // Needed only to explain idle CPUs.
            throttle: if config.explain { Throttle::begin(&config.target) } else { Throttle::default() },
            interrupts: Interrupts::default(),
            devices: Devices::default(),
            settings: Settings::default(),
            queued: if config.explain { Queued::begin(target) } else { Queued::default() },
            program: None,
            whole_machine: config.target == Target::All,
            target,
            room: config.explain.then(|| Room::begin(&config.target)),
            shortage: config.explain.then(Shortage::begin),
            bandwidth: config.tells_tenants().then(Bandwidth::begin).flatten(),
            placement,
            engine,
            symbols,
            samples,
            tenants,
            path: CriticalPath::default(),
            locks: LockTables::new(config.patterns.clone()),
            places: Places::default(),
            corrections: Corrections::default(),
            before: Snapshot::default(),
            sleeps: HashMap::new(),
            threads,
            thread_time,
            slow: SlowRequests::default(),
            exited: Vec::new(),
            process_names: Names::new(),
            thread_names: Names::new(),
            notes,
            unwound: Unwinds::default(),
            since: 0.0,
            dropped: HashMap::new(),
        })
    }

    /// Walks every contention's stack, whatever it costs (`locks -s`).
    pub fn walk_all(&mut self) {
        self.engine.walk_all_locks();
    }

    /// Keeps what each thread was executing, for [`Observation::take_thread_stacks`].
    pub fn keep_thread_stacks(&mut self) {
        self.samples.keep_threads();
    }

    /// The stacks of each thread in the interval of the last tables. Each is returned once.
    pub fn take_thread_stacks(&mut self) -> Vec<ThreadStack> {
        self.samples.take_threads()
    }

    /// Tells the program that is about to be let go, so that its locks are traced from the beginning.
    pub fn expect(&mut self, program: &Path) {
        // The program was held until now; its life begins here.
        if let Some(time) = &mut self.thread_time {
            *time = ThreadTime::begin(&self.engine.threads().unwrap_or_default(), MISSING);
        }
        if let Some(locks) = &mut self.user_locks {
            locks.expect(program, &mut self.engine);
        }
    }

    /// The program has been let go: reads where its code lies while it surely lives. Where all CPUs are taken, the event of its exec
    /// may be read only after its end.
    pub fn begun(&mut self, pid: u32) {
        // The kernel maps its code a little after it has replaced the one that was held.
        for _ in 0..TRIES {
            if self.symbols.note_begun(pid) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Parts of the machine that could not be observed, one line each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.engine.notes();
        notes.extend(self.notes.iter().chain(self.locks.notes()).chain(self.placement.notes()).cloned());
        notes.extend(self.user_locks.iter().flat_map(UserLocks::notes).cloned());
        if self.user_locks.is_some() {
            notes.extend(self.engine.functions_missing().map(|function| {
                format!(
                    "no calls of {function}: no file of the program has a function of this name; compilers put small ones into \
                     their callers, and stripped files have no names"
                )
            }));
        }
        notes.extend(self.symbols.notes());
        notes.extend(self.engine.hotplug_note());
        notes.extend(self.engine.costs().and_then(|costs| costs.uncertain()));
        notes
    }

    /// Handles events until the program behind `pidfd` ends, `deadline` passes or `stop` holds;
    /// calls `sink` with the new rows of every table each `interval`.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn watch<E>(
        &mut self,
        pidfd: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
        interval: Duration,
        stop: &dyn Fn() -> bool,
        sink: &mut dyn FnMut(&Table) -> Result<(), E>,
    ) -> Result<Until, E> {
        let mut cadence = Cadence::of(interval);
        loop {
            self.engine.watch_probes();
            let now = Instant::now();
            self.engine.watch_calls(now);
            if stop() {
                return Ok(Until::Stopped);
            }
            if deadline.is_some_and(|d| now >= d) {
                return Ok(Until::Time);
            }
            if cadence.due(now) {
                self.tick(sink)?;
            }
            if self.placement.due(now) {
                // A look may wait long for the lock of a program's memory; processes that have begun are
                // registered before, while they live.
                self.receive();
                self.engine.rest_contentions();
                self.engine.rest_switches();
                self.look(interval, sink)?;
            }
            if let Some(locks) = &mut self.user_locks {
                locks.look(&mut self.engine, now);
                if let Some(goroutines) = &mut self.goroutines {
                    goroutines.look(locks, now);
                }
            }
            self.trace_flush_calls();
            let Observation { engine, symbols, notes, .. } = &mut *self;
            engine.trace_contentions(&mut || {
                if !symbols.kernel_read() {
                    return None;
                }
                if !symbols.kernel_loaded() {
                    notes.extend(symbols.load_kernel());
                }
                Some(symbols.lock_code())
            });
            engine.trace_switches();
            // Once in a while the ring must be emptied even if nobody wakes us.
            let until = cadence.until(deadline).min(now + Duration::from_millis(100));
            let until = self.user_locks.as_ref().and_then(UserLocks::next).map_or(until, |at| until.min(at));
            let until = self.goroutines.as_ref().and_then(Goroutines::next).map_or(until, |at| until.min(at));
            let until = self.engine.next_calls().map_or(until, |at| until.min(at));
            let until = self.engine.next_contentions().map_or(until, |at| until.min(at));
            let until = self.engine.next_switches().map_or(until, |at| until.min(at));
            let until = self.symbols.next_look().map_or(until, |at| until.min(at));
            let ended = self.wait(pidfd, until.saturating_duration_since(now));
            self.receive();
            if ended {
                return Ok(Until::Ended);
            }
        }
    }

    /// Takes TLB shootdowns from the calls between CPUs, once the kernel's symbols say which those are.
    fn trace_flush_calls(&mut self) {
        if !self.engine.wants_flush_code() || !self.symbols.kernel_read() {
            return;
        }
        if !self.symbols.kernel_loaded() {
            self.notes.extend(self.symbols.load_kernel());
        }
        self.engine.trace_flush_calls(self.symbols.flush_code());
    }

    /// Looks where the program's memory lies. The last look at a process stays valid after it has ended.
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

    /// The kernel's symbols take 30 ms to read, which is waited for when there is something to name.
    fn needs_kernel_names(&self) -> bool {
        !self.symbols.kernel_loaded() && (!self.samples.is_empty() || self.engine.lock_events() > 0)
    }

    /// The number of contentions of which one has its stack walked now.
    pub fn walked_every(&self) -> u32 {
        self.engine.walked_every()
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
        self.conclude(ended, sink)?;
        let rest = self.path.rest(&self.before);
        if rest.num_rows() > 0 {
            sink(&rest)?;
        }
        if ended.is_some() {
            self.notes.extend(self.left_behind());
        }
        Ok(self.notes())
    }

    /// Hands over the last rows and the summary, as [`Observation::finish`] does, and goes on: later rows belong to
    /// other tables, whose times count from the returned moment. Every wait is in the tables of the moment it ends in,
    /// and all CPU time in one of them.
    ///
    /// # Errors
    /// Those of `sink`. Tables that were handed over before are not handed over again.
    pub fn turn<E>(&mut self, sink: &mut dyn FnMut(&Table) -> Result<(), E>) -> Result<f64, E> {
        let concluded = self.conclude(None, sink);
        self.since = self.before.elapsed;
        self.dropped = self.before.drops.iter().copied().collect();
        self.stat = Stat::read();
        if let Some(room) = &mut self.room {
            room.turn();
        }
        if let Some(shortage) = &mut self.shortage {
            shortage.turn();
        }
        self.queued.turn();
        if let Some(tenants) = &mut self.tenants {
            tenants.turn();
        }
        concluded.map(|()| self.since)
    }

    /// The moment when the observation was `elapsed` seconds old.
    pub fn when(&self, elapsed: f64) -> Instant {
        let ago = self.engine.age().saturating_sub(Duration::from_secs_f64(elapsed.max(0.0)));
        let now = Instant::now();
        now.checked_sub(ago).unwrap_or(now)
    }

    /// The rows of the last interval, and the tables of one row for all.
    fn conclude<E>(
        &mut self,
        ended: Option<Ended>,
        sink: &mut dyn FnMut(&Table) -> Result<(), E>,
    ) -> Result<(), E> {
        let stat = Stat::read();
        match self.counters.as_mut().map(counters::Collector::sample).transpose() {
            Ok(Some(table)) => sink(&table)?,
            Ok(None) => {}
            Err(e) => self.note(format!("hardware counters: {e}")),
        }
        self.tick(sink)?;
        let process = |tgid| self.process_names.of(tgid).map(String::from);
        let rest = self.samples.causes(self.before.elapsed, true, &mut self.symbols, &process);
        rest.iter().filter(|t| t.num_rows() > 0).try_for_each(&mut *sink)?;
        let (room, shortage) = (self.room.as_ref(), self.shortage.as_ref());
        let told = room.map(Room::table).into_iter().chain(shortage.into_iter().flat_map(Shortage::tables));
        told.filter(|t| t.num_rows() > 0).try_for_each(|t| sink(&t))?;
        self.look(Duration::ZERO, sink)?;
        let ticks = |now: u64, before: u64| {
            Some(now.saturating_sub(before) as f64 / rustix::param::clock_ticks_per_second() as f64)
        };
        let mut summary = summary::Rows::new();
        summary.push(summary::Row {
            elapsed: Some(self.before.elapsed - self.since),
            user: ended.map(|e| e.user),
            system: ended.map(|e| e.system),
            cpus: Some(self.before.cpus.len() as u64),
            steal: ticks(stat.steal, self.stat.steal),
            iowait: ticks(stat.iowait, self.stat.iowait),
            hz: Some(self.engine.hz().into()),
            status: ended.map(|e| e.status as u64),
            max_rss: ended.map(|e| e.max_rss),
        });
        sink(&summary.finish())?;
        let mut drops = drops::Rows::new();
        for (what, n) in &self.before.drops {
            let new = n.saturating_sub(self.dropped.get(what).copied().unwrap_or(0));
            if new > 0 {
                drops.push(drops::Row { what: (*what).into(), count: Some(new) });
            }
        }
        if drops.is_empty() { Ok(()) } else { sink(&drops.finish()) }
    }

    /// Keeps a note, once.
    fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// A note on processes of the program that outlive the one that was started, as those of a daemon do.
    fn left_behind(&self) -> Option<String> {
        let alive = |pid: u32| {
            let stat = process::read(&process_dir(pid).join("stat")).unwrap_or_default();
            ProcessStat::parse(&stat).is_some_and(|stat| !stat.has_ended())
        };
        let mut left: Vec<(u32, String)> = self
            .threads
            .values()
            .filter(|k| k.missing == 0)
            .map(|k| (k.told.tgid, k.told.process()))
            .collect();
        left.sort_unstable();
        left.dedup_by_key(|(pid, _)| *pid);
        left.retain(|(pid, _)| alive(*pid));
        let (first, name) = left.first()?;
        let who = match left.len() {
            1 => format!("a process of the program lives on ({name} {first})"),
            n => format!("{n} processes of the program live on ({name} {first} and others)"),
        };
        Some(format!("{who}: observed until the command itself ended; `ncpu watch -p {first}` observes on"))
    }
}

/// Seconds between two readings of a counter of nanoseconds.
fn seconds(now: u64, before: u64) -> f64 {
    now.saturating_sub(before) as f64 / 1e9
}
