//! One observation of a program or a machine, as tables.
//!
//! The tables (`tables.rs` lists them) are handed to a sink as they grow, a delta each interval, so
//! that the same code serves a live view, a recording and the report at the end.
//!
#![doc = include_str!("README.md")]

mod backends;
mod bounds;
mod cadence;
mod call_locks;
mod call_results;
mod corrections;
mod critical_path;
mod idle;
mod interrupts;
mod lengths;
pub(crate) mod locks;
mod placement;
mod queued;
mod requests;
pub(crate) mod room;
pub(crate) mod samples;
mod served;
mod settings;
pub(crate) mod shortage;
mod tenants;
mod thread_time;
pub(crate) mod throttle;
mod user_code;
mod user_lines;
mod user_locks;
mod waiters;

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use ncpu_machine::process::{self, Stat as ProcessStat};
use ncpu_schema::{
    Counter, CpuState, IdleReason, Loss, Microstate, Per, Runnable, cpu_time, drops, events, idle_time,
    runnable, sleeps, summary, threads,
};
use ncpu_table::Table;
use rustix::event::{PollFd, PollFlags};

use crate::bpf_support;
use crate::bpf_support::namespace::{self, process_dir};
use crate::counters;
use crate::engine::{
    Config, Coverage, Engine, Event, Places, Runnables, Snapshot, Source, Struck, ThreadOut, divide,
};
use crate::names::{Symbols, Unwinds, call_name};
use crate::program::{Ended, Target};
use bounds::Names;
pub(crate) use cadence::Cadence;
use corrections::Corrections;
use critical_path::CriticalPath;
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
use tenants::Tenants;
use thread_time::ThreadTime;
use throttle::Throttle;
use user_locks::UserLocks;

/// A thread's number and when it began: numbers come again.
type ThreadKey = (u32, u64);

/// Table `runnable` of an interval; `idle`: seconds of CPUs that idled beside the threads of each reason.
fn runnable_table(t: f64, new: &[Runnables], idle: [f64; Runnable::ALL.len()]) -> Table {
    let mut rows = runnable::Rows::new();
    for ((reason, new), idle) in Runnable::ALL.iter().zip(new).zip(idle) {
        if new.count > 0 || idle > 0.0 {
            rows.push(runnable::Row {
                time: Some(t),
                reason: Some(*reason),
                count: Some(new.count),
                queued: Some(new.queued as f64 / 1e9),
                waking: Some(new.waking as f64 / 1e9),
                idle: Some(idle),
            });
        }
    }
    rows.finish()
}

/// The last reported state of a thread, and the number of tables since then in which it was missing.
#[derive(Clone, Copy, Debug)]
struct Known {
    told: ThreadOut,
    missing: u32,
}

/// Number of tables in which a thread may be missing before its last record comes. A thread whose record was dropped
/// is forgotten then.
const MISSING: u32 = 32;

/// Notes kept: some name processes and files, of which there are ever more.
const MAX_NOTES: usize = 100;

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
        // Baseline of the threads: nothing before this moment is a loss.
        let before = if engine.tells_tenants() { Some(engine.threads()?) } else { None };
        let thread_time = config.explain.then(|| match &before {
            Some(before) => ThreadTime::begin(before, MISSING),
            None => ThreadTime::begin(&engine.threads().unwrap_or_default(), MISSING),
        });
        let known = |told: ThreadOut| ((told.tid, told.start), Known { told, missing: 0 });
        let threads = before.into_iter().flatten().map(known).collect();
        let mut samples = Samples::new(config.patterns.clone());
        let tenants = engine.tells_tenants().then(Tenants::begin);
        if tenants.is_some() {
            samples.count_processes();
        }
        let target = if let Target::Tree(pid) = config.target { Some(pid) } else { None };
        Ok(Observation {
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

    fn receive(&mut self) {
        for event in self.engine.drain() {
            self.tell_pythons();
            match event {
                Event::Sample { at, mut stack, copy, idling, pauses, registers, cpu, time, futex } => {
                    self.note_process(stack.tgid, &stack.comm);
                    self.unwound += self.symbols.complete(&mut stack, copy.as_ref()).0;
                    self.process_names.met(stack.tgid, &stack.comm);
                    self.path.sample(&stack, idling);
                    if at == CpuState::Program {
                        self.settings.met(stack.tgid);
                        self.path.beside(&stack, pauses, cpu, time, self.engine.hz());
                    }
                    let registers = registers.map(|registers| (registers, time));
                    self.samples.add(at, stack, pauses, futex, registers);
                }
                Event::Exit(mut thread) => {
                    // Its last waits may have been judged since.
                    if self.locks.is_lock(thread.tgid, thread.unjudged, thread.unjudged_place) {
                        thread.last_waits_were_for_a_lock();
                    }
                    self.placement.met(thread.tgid);
                    self.process_names.set(thread.tgid, thread.process());
                    self.thread_names.set(thread.tid, thread.name());
                    if let Some(time) = &mut self.thread_time {
                        time.ended.push(*thread);
                    }
                    self.exited.push(*thread);
                }
                Event::Request(slow) => self.slow.met(*slow),
                Event::Tenant(new) => {
                    if let Some(tenants) = &mut self.tenants {
                        tenants.meet(&new);
                    }
                }
                Event::LockStack(id, stack) => {
                    self.process_names.met(stack.tgid, &stack.comm);
                    self.locks.lock_stack(id, stack);
                }
                Event::UserLockStack(id, stack) => {
                    self.note_process(stack.tgid, &stack.comm);
                    self.process_names.met(stack.tgid, &stack.comm);
                    self.locks.user_lock_stack(id, stack);
                }
                Event::Exec(pid, comm) => {
                    self.note_process(pid, &comm);
                    if let Some(locks) = &mut self.user_locks {
                        locks.began(pid, Instant::now());
                    }
                }
                Event::OffCpu { id, chain, mut stack, copy } => {
                    self.note_process(stack.tgid, &stack.comm);
                    let (unwound, marks) = self.symbols.complete(&mut stack, copy.as_ref());
                    self.unwound += unwound;
                    if let Some(chain) = chain
                        && let Some(place) = self.places.meet(chain, id, copy.as_ref(), &marks)
                    {
                        self.engine.tell_place(&place);
                    }
                    self.locks.off_stack(id, stack);
                }
                Event::Futex { address, stack, copy, again, number } => {
                    self.note_process(stack.tgid, &stack.comm);
                    self.locks.met(&stack, &self.engine);
                    if let Some(number) = number {
                        self.locks.met_in_call(&mut self.symbols, address, &stack, copy.as_ref(), number);
                        continue;
                    }
                    for verdict in self.locks.judge(&mut self.symbols, address, &stack, copy.as_ref(), again)
                    {
                        self.engine.judge_futex(&verdict);
                        self.corrections.judged();
                    }
                }
            }
        }
        for verdict in self.locks.judge_again(&mut self.symbols) {
            self.engine.judge_futex(&verdict);
            self.corrections.judged();
        }
        self.tell_pythons();
        self.correct(false);
    }

    fn note_process(&mut self, tgid: u32, comm: &str) {
        self.symbols.note(tgid, comm);
        self.tell_pythons();
    }

    /// Tells the kernel side of processes of Python as soon as they are known: what it sends until then has no functions.
    fn tell_pythons(&mut self) {
        if self.symbols.next_look().is_some_and(|at| at <= Instant::now()) {
            self.symbols.look(Instant::now());
        }
        for (tgid, at) in self.symbols.new_pythons() {
            self.engine.tell_python(tgid, &at);
        }
    }

    /// Charges waits for futexes that have been judged since they began: their threads wait still, or have
    /// just waited.
    fn correct(&mut self, last: bool) {
        let began = Instant::now();
        if !self.corrections.begin(began, last) {
            return;
        }
        if let Err(e) = self.engine.correct_waits() {
            self.note(format!("a thread's first wait for a user lock is missing from the table: {e}"));
        }
        self.corrections.done(began, Instant::now());
    }

    /// The kernel's symbols take 30 ms to read, which is waited for when there is something to name.
    fn needs_kernel_names(&self) -> bool {
        !self.symbols.kernel_loaded() && (!self.samples.is_empty() || self.engine.lock_events() > 0)
    }

    /// The number of contentions of which one has its stack walked now.
    pub fn walked_every(&self) -> u32 {
        self.engine.walked_every()
    }

    fn tick<E>(&mut self, sink: &mut dyn FnMut(&Table) -> Result<(), E>) -> Result<(), E> {
        self.engine.rest_contentions();
        self.engine.rest_switches();
        self.engine.follow_hotplug();
        self.live_up_to_now();
        // Counters before events: a stack is sent before anything is counted for it.
        let mut locks = self.engine.locks();
        let asked = std::mem::take(&mut locks.requests);
        let stood = std::mem::take(&mut locks.queued);
        let lost = std::mem::take(&mut locks.lost);
        let (spins, coverage) = match self.tenants {
            Some(_) => (tenants::spins(&locks.kernel), locks.coverage),
            None => (Vec::new(), crate::engine::Coverage::ALL),
        };
        let times = std::mem::take(&mut locks.times);
        let counts = std::mem::take(&mut locks.lengths);
        let answered = std::mem::take(&mut locks.served);
        let mut snap = self.engine.snapshot();
        snap.keep_counted(&self.before);
        self.receive();
        self.correct(true);
        // The next steps may take long, and locks of programs that have just begun may not wait for them.
        if let Some(locks) = &mut self.user_locks {
            locks.look(&mut self.engine, Instant::now());
        }
        let t = snap.elapsed;

        let mut cpu_time = cpu_time::Rows::new();
        for (cpu, at) in &snap.cpus {
            // In the order of their numbers.
            let before = self.before.cpus.binary_search_by_key(cpu, |(c, _)| *c);
            let before = before.map_or_else(|_| Default::default(), |at| self.before.cpus[at].1);
            cpu_time.push(cpu_time::Row {
                time: Some(t),
                cpu: Some(*cpu as u64),
                spent: Per::new(|state| since(at[state as usize], before[state as usize])),
                kernel: None,
            });
        }
        let struck = (snap.struck.0 - self.before.struck.0, snap.struck.1 - self.before.struck.1);
        let (threads, queued, bound) = self.thread_table(t, struck, locks.coverage);
        let seconds = |ns: u64| ns as f64 / 1e9;
        let looks: idle::Reasons =
            std::array::from_fn(|i| seconds(snap.idle[i].saturating_sub(self.before.idle[i])));
        let looked = seconds(snap.runnable.saturating_sub(self.before.runnable));
        let runnables: [Runnables; Runnable::ALL.len()] =
            std::array::from_fn(|i| snap.runnables[i].since(&self.before.runnables[i]));
        let woke = seconds(runnables.iter().map(|new| new.waking).sum());
        let wakings = runnables.iter().map(|new| new.wakings).sum();
        let idle_in = |snap: &Snapshot| snap.cpus.iter().map(|(_, at)| at[CpuState::Idle as usize]).sum();
        let idle_ns = |now: u64, before: u64| seconds(now.saturating_sub(before));
        let exact = idle::Exact { idle: idle_ns(idle_in(&snap), idle_in(&self.before)), woke, stood: queued };
        let (idled, waking) = idle::held_to(exact, looked, looks);
        let woken: [f64; 2] =
            std::array::from_fn(|i| seconds(snap.woken_idle[i].saturating_sub(self.before.woken_idle[i])));
        let runnable = runnable_table(t, &runnables, idle::beside_queues(&runnables, looks, woken, idled));
        let mut idle = idle_time::Rows::new();
        let idled = |reason: IdleReason| match reason {
            IdleReason::WakeUp => Some(waking),
            reason => idled.get(reason as usize).copied(),
        };
        idle.push(idle_time::Row { time: Some(t), spent: Per::new(idled) });
        let b = &self.before;
        let unwound = std::mem::take(&mut self.unwound);
        let interrupts = self.interrupts.table(t, &snap.interrupts, &b.interrupts);
        let mut events = events::Rows::new();
        for (event, n) in [
            (Counter::ShootdownsSent, snap.tlb_sent - b.tlb_sent),
            (Counter::ShootdownsReceived, snap.tlb_received - b.tlb_received),
            (Counter::Interrupts, served(false, &snap).saturating_sub(served(false, b))),
            (Counter::Softirqs, served(true, &snap).saturating_sub(served(true, b))),
            (Counter::Switches, snap.switches - b.switches),
            (Counter::UntracedSwitches, snap.unseen_switches - b.unseen_switches),
            (Counter::RunQueueMicroseconds, (queued * 1e6) as u64),
            (Counter::WakeUpMicroseconds, (woke * 1e6) as u64),
            (Counter::IdleWakeUps, wakings),
            (Counter::IdleTicks, snap.ticks - b.ticks),
            (Counter::StacksUnwound, unwound.stacks),
            (Counter::StacksWhole, unwound.whole),
        ] {
            events.push(events::Row { time: Some(t), event: Some(event), count: Some(n) });
        }
        if let Some(shortage) = &mut self.shortage {
            let delayed = Some(shortage.look());
            events.push(events::Row { time: Some(t), event: Some(Counter::DelayedAcks), count: delayed });
        }

        if self.needs_kernel_names()
            && let Some(note) = self.symbols.load_kernel()
        {
            self.notes.push(note);
        }
        let path = self.path.table(
            t,
            &locks.path,
            [&self.before, &snap],
            &|id| self.locks.off_stack_of(id),
            &mut self.symbols,
            &self.process_names,
            &|user| self.samples.spins_for(user),
        );
        self.before = snap;
        let process = |tgid| self.process_names.of(tgid).map(String::from);
        let locks = self.locks.tables(t, locks, &mut self.symbols, &self.process_names, &self.thread_names);
        let lives = self.thread_time.as_mut().map(|time| {
            let (processes, threads) = (&self.process_names, &self.thread_names);
            time.table(t, &times, &mut self.locks, &mut self.symbols, processes, threads)
        });
        let functions = self.engine.functions();
        let mut names = served::Names {
            locks: &mut self.locks,
            symbols: &mut self.symbols,
            processes: &self.process_names,
            threads: &self.thread_names,
            functions: &functions,
        };
        let [served, parts] = served::tables(t, &answered, &mut names);
        let slow = self.slow.table(t, &self.engine, &mut names);
        let lengths = lengths::table(
            t,
            &counts,
            &mut self.locks,
            &mut self.symbols,
            &self.process_names,
            &mut self.devices,
            &functions,
        );
        let named = &mut self.locks;
        let [samples, stacks, results] = self.samples.tables(
            t,
            &mut self.symbols,
            self.engine.hz(),
            &process,
            &mut |symbols, tgid, futex| named.name_of(symbols, tgid, futex),
        );
        let [causes, data] = self.samples.causes(t, false, &mut self.symbols, &process);
        let forgotten = self.locks.forgotten();
        forgotten.futexes.iter().for_each(|key| self.engine.forget_futex(*key));
        if forgotten.some {
            self.engine.send_again();
        }
        let mut sleeps = sleeps::Rows::new();
        for (nr, ns) in self.engine.sleep_calls() {
            let before = self.sleeps.insert(nr, ns).unwrap_or(0);
            if ns > before {
                sleeps.push(sleeps::Row {
                    call: call_name(nr).into(),
                    seconds: since(ns, before),
                    time: Some(t),
                });
            }
        }
        let [throttled, cgroups] = self.throttle.tables(t);
        let of_reason = |reason: IdleReason| idled(reason).unwrap_or(0.0);
        let whose = self.tenant_tables(t, IdleReason::ALL.map(of_reason), lost, spins, coverage);
        let tables = [
            cpu_time.finish(),
            idle.finish(),
            events.finish(),
            interrupts,
            threads,
            samples,
            causes,
            data,
            results,
            stacks,
            sleeps.finish(),
            path,
            throttled,
            cgroups,
            self.devices.table(t, asked, &self.process_names),
            self.queued.table(t, stood, self.program, &self.process_names),
            bound,
            runnable,
            lengths,
            served,
            parts,
            slow,
            self.settings.table(t, &self.process_names),
        ];
        self.symbols.forget_unused(Instant::now());
        for table in tables.iter().chain(&lives).chain(&locks).chain(&whose).filter(|t| t.num_rows() > 0) {
            sink(table)?;
        }
        Ok(())
    }

    /// The tables of tenants, of what came since the last ones.
    fn tenant_tables(
        &mut self,
        t: f64,
        idle: [f64; IdleReason::ALL.len()],
        lost: Vec<crate::engine::Lost>,
        spins: Vec<tenants::Spin>,
        coverage: crate::engine::Coverage,
    ) -> Vec<Table> {
        let Some(tenants) = &mut self.tenants else { return Vec::new() };
        let shares = self.engine.take_tenants(&self.before, &tenants.take_living());
        let stolen = Stat::read().steal;
        let ticks = stolen.saturating_sub(std::mem::replace(&mut self.stolen, stolen));
        let (locks, devices) = (&self.locks, &mut self.devices);
        tenants.tables(tenants::Interval {
            t,
            shares,
            idle,
            sampled: self.samples.take_processes(),
            lost,
            spins,
            coverage,
            steal: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            lock: &mut |cause, lock| match cause {
                Loss::Device => devices.name(crate::engine::device_of(lock)).into(),
                _ => locks.kernel_name(lock),
            },
        })
    }

    /// Takes in the lives of threads before waits are read: a wait that ends in between counts as one in progress,
    /// under its reason. Threads that end in between come with the next tables.
    fn live_up_to_now(&mut self) {
        if self.thread_time.is_none() {
            return;
        }
        self.receive();
        let living = self.engine.threads().unwrap_or_default();
        if let Some(time) = &mut self.thread_time {
            let ended = std::mem::take(&mut time.ended);
            time.threads(&listed_once(&ended, &living));
        }
    }

    /// The time of each thread since the last table: living threads from the iterator, ended ones from
    /// their last record. Also the seconds that all of them stood on run queues, and table `bound`.
    /// `struck` is how often a timer met user code, and anything of the program.
    fn thread_table(&mut self, t: f64, struck: (u64, u64), spins: Coverage) -> (Table, f64, Table) {
        let mut out = threads::Rows::new();
        let mut queued = 0.0;
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
        let ended = std::mem::take(&mut self.exited);
        let once = listed_once(&ended, &living);
        for thread in &still {
            self.process_names.set(thread.tgid, thread.process());
            self.thread_names.set(thread.tid, thread.name());
        }
        let (measured, signals) = (self.engine.measures(), self.engine.counts_signals());
        let mut known = std::mem::take(&mut self.threads);
        if struck.1 > 0 && !self.engine.calls_off() {
            let mut seen = Struck { user: struck.0, all: struck.1, ..Struck::default() };
            for (now, _) in &once {
                let before = known.get(&(now.tid, now.start)).map(|k| k.told).unwrap_or_default();
                let ns = |state: Microstate| {
                    now.micro[state as usize].saturating_sub(before.micro[state as usize]) as f64
                };
                seen.usr += ns(Microstate::Usr);
                seen.on_cpu += Microstate::ON_CPU.map(ns).iter().sum::<f64>();
                seen.calls += now.scl.saturating_sub(before.scl) as f64;
                seen.faults += now.faults.saturating_sub(before.faults) as f64;
            }
            self.engine.learn(&seen);
        }
        let costs = self.engine.costs();
        let ticks_of = |now: &ThreadOut, before: &ThreadOut| -> [u64; 3] {
            std::array::from_fn(|i| u64::from(now.ticks[i].saturating_sub(before.ticks[i])))
        };
        // Of threads that no tick has met.
        let mut all_ticks = [0; 3];
        for (now, _) in &once {
            let before = known.get(&(now.tid, now.start)).map(|k| k.told).unwrap_or_default();
            all_ticks.iter_mut().zip(ticks_of(now, &before)).for_each(|(all, n)| *all += n);
        }
        let mut kept = HashMap::with_capacity(living.len());
        for (now, alive) in once {
            let key = (now.tid, now.start);
            let before = known.remove(&key).map(|k| k.told).unwrap_or_default();
            if alive {
                self.process_names.set(now.tgid, now.process());
                self.thread_names.set(now.tid, now.name());
                kept.insert(key, Known { told: *now, missing: 0 });
            }
            let new = |now: u64, before: u64| Some(now.saturating_sub(before));
            let traced = |count: Option<u64>| count.filter(|_| measured[Microstate::Usr as usize]);
            let [lck, slp] = [Microstate::Lck, Microstate::Slp].map(|state| state as usize);
            // Sleep that turned out to be a wait for a lock after it was reported stays sleep.
            let told_as_sleep = before.micro[slp].saturating_sub(now.micro[slp]);
            let spent = |state: Microstate| {
                let i = state as usize;
                since(now.micro[i], before.micro[i] + if i == lck { told_as_sleep } else { 0 })
            };
            // The overhead of tracing a thread's calls and faults is not the thread's own time.
            let mut on_cpu = Microstate::ON_CPU.map(|state| spent(state).unwrap_or(0.0));
            let own = costs.map(|costs| {
                let calls = now.scl.saturating_sub(before.scl);
                costs.take(&mut on_cpu, calls, now.faults.saturating_sub(before.faults))
            });
            let untraced = since(now.untraced, before.untraced).unwrap_or(0.0).min(on_cpu[0]);
            let divided =
                if untraced > 0.0 { divide(untraced, ticks_of(now, &before), all_ticks) } else { None };
            if let Some((parts, _)) = divided {
                on_cpu[0] -= untraced;
                on_cpu.iter_mut().zip(parts).for_each(|(spent, part)| *spent += part);
            }
            let stood = spent(Microstate::Lat).unwrap_or(0.0);
            queued += stood;
            self.queued.thread(now, stood);
            if let Some(tenants) = &mut self.tenants {
                let locked =
                    spent(Microstate::Lck).unwrap_or(0.0) + since(now.spin, before.spin).unwrap_or(0.0);
                tenants.thread(now, &before, stood, locked);
            }
            let told = |state: Microstate| on_cpu.get(state as usize).copied().or_else(|| spent(state));
            out.push(threads::Row {
                time: Some(t),
                pid: Some(now.tgid.into()),
                tid: Some(now.tid.into()),
                process: now.process().into(),
                thread: now.name().into(),
                micro: Per::new(|state: Microstate| told(state).filter(|_| measured[state as usize])),
                own,
                spin: since(spins.of(now.spin.saturating_sub(before.spin)), 0),
                vcx: new(now.vcx, before.vcx),
                icx: new(now.icx, before.icx),
                // Those of which some were not traced are not known.
                scl: traced(new(now.scl, before.scl)).filter(|_| untraced == 0.0),
                error: divided.map(|(_, error)| error),
                sig: new(now.sig, before.sig).filter(|_| signals),
                minf: new(now.minf, before.minf),
                majf: new(now.majf, before.majf),
                cpu: Microstate::ON_CPU.into_iter().map(spent).sum(),
                off: None,
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

/// The threads of a table, each with whether it lives, ended ones first. A thread that was still listed while it ended counts
/// once.
fn listed_once<'a>(ended: &'a [ThreadOut], living: &'a [ThreadOut]) -> Vec<(&'a ThreadOut, bool)> {
    let over: HashSet<ThreadKey> = ended.iter().map(|t| (t.tid, t.start)).collect();
    let living = living.iter().filter(|t| !over.contains(&(t.tid, t.start)));
    ended.iter().map(|t| (t, false)).chain(living.map(|t| (t, true))).collect()
}

/// Softirqs, or interrupts, without ncpu's own.
fn served(softirqs: bool, snap: &Snapshot) -> u64 {
    let of = |(source, _): &(&Source, _)| matches!(source, Source::Softirq(_)) == softirqs;
    snap.interrupts.iter().filter(of).map(|(_, served)| served.count).sum()
}

/// Seconds between two readings of a counter of nanoseconds.
fn since(now: u64, before: u64) -> Option<f64> {
    Some(now.saturating_sub(before) as f64 / 1e9)
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
