//! The onion of an ordinary user: everything visible of their own processes without BPF.
//!
//! | what | from | how exact |
//! | --- | --- | --- |
//! | the program's time on each CPU | a perf clock that every thread inherits (`sampler.rs`) | exact, however short the threads |
//! | its user and system time | wait4(2), as the reaper of all that it leaves behind; /proc before that | as the kernel's ticks divide |
//! | user code and stacks | the same perf event's timer | sampled |
//! | causes of the time of user code, and its data | that timer's registers, and the code | estimated from samples |
//! | idle, interrupts, other programs | /proc/stat (`capacity.rs`) | to the tick |
//! | run-queue waiting | schedstat of each thread, by looks (`processes.rs`) | exact for threads that were looked at |
//! | what idle CPUs were idle for | run queues, and what threads sleep in at a look (`idle.rs`) | sampled by looks |
//! | faults, switches, I/O | wait4(2), /proc | exact |
//! | waits for pthread locks | a preloaded library, if asked for (`locks.rs`) | exact |
//!
//! Parts that cannot be separated form one layer, named for all of them. Between this and root there are steps, a view
//! each: with CAP_PERFMON, or a lower `perf_event_paranoid`, samples of the kernel are visible too. `more.rs` names
//! the next step.

mod capacity;
mod idle;
mod locks;
mod more;
mod pauses;
mod processes;
mod sampler;
mod tables;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ncpu_instructions::Registers;
use ncpu_machine::events::stacks::Record;
use ncpu_machine::process;
use ncpu_schema::{CpuState, View, drops, summary};
use ncpu_table::Table;
use rustix::event::{PollFd, PollFlags};

use crate::bpf_support::Stack;
use crate::engine::Config;
use crate::names::Symbols;
use crate::observation::room::Room;
use crate::observation::samples::Samples;
use crate::observation::shortage::Shortage;
use crate::observation::throttle::Throttle;
use crate::observation::{Cadence, Until};
use crate::program::processes::started_by;
use crate::program::{Counts, Ended, Target};
use capacity::{Program, Spent, Ticks, divide};
use idle::{Idle, Look};
use locks::{Locks, Moment};
use more::Rules;
use pauses::Pauses;
use processes::{Accounts, Doing, Processes, Thread};
use sampler::{Sampler, Whom};

/// The shortest time between two looks, and the part of a CPU that they may take: one over this.
const SHORTEST: Duration = Duration::from_millis(20);
const PART: u32 = 200;

/// Threads that have ended whose names are kept.
const MOST_GONE: usize = 10_000;

/// A process shorter than this, in seconds, is so few ticks long that the kernel's division of its own time into user
/// and system says little.
const SHORT: f64 = 0.04;

/// A running observation of one's own processes.
pub struct Unprivileged {
    hz: u32,
    sampler: Option<Sampler>,
    /// The error, if the sampler could not be opened.
    refused: Option<io::Error>,
    rules: Rules,
    /// Why there is no more than this, where the user has all rights.
    limit: Option<String>,
    /// All processes of the machine are the program.
    everything: bool,
    /// Whether the process is our child, with all that it leaves behind.
    ours: Option<u32>,
    processes: Processes,
    symbols: Symbols,
    kernel_names: bool,
    samples: Samples,
    pauses: Pauses,
    /// Names of threads, by number.
    comms: HashMap<u32, String>,
    /// Names of threads that have ended: they may have held a lock.
    gone: HashMap<u32, String>,
    /// Processes that were started meanwhile.
    started: u64,
    lost: u64,
    began: Instant,
    first: Ticks,
    /// Seconds since the observation began, and what the ticks were then: of the last table.
    now: (f64, Ticks),
    /// Resources that watched processes had used before.
    before: Accounts,
    /// Resources of processes that the program left behind and that ended meanwhile.
    orphans: Accounts,
    /// The most that [`Unprivileged::accounts`] said.
    so_far: Accounts,
    own: Duration,
    idle: Idle,
    last: LastLook,
    /// The sums in the tables handed over so far.
    told: Told,
    throttle: Throttle,
    room: Room,
    shortage: Shortage,
    /// Where the preloaded library tells.
    locks: Option<Locks>,
    notes: Vec<String>,
}

/// The look before.
struct LastLook {
    at: Instant,
    next: Instant,
    ticks: Ticks,
    /// ns of the program's clocks.
    clock: u64,
}

/// Sums that the tables handed over so far add up to.
#[derive(Default)]
struct Told {
    spent: BTreeMap<u32, Spent>,
    kernel: f64,
    idle: Idle,
    looks: u64,
    met: Counts,
    threads: HashMap<u32, Thread>,
    /// Threads that have ended since the last table.
    ended: Vec<(u32, Thread)>,
    /// ns that threads stood on run queues: of threads that have ended, and the total already reported.
    waited: (u64, u64),
    migrations: HashMap<u32, u64>,
    /// The end of the last table of threads.
    time: f64,
}

impl Unprivileged {
    /// Begins to observe a process and all it starts; `None` where that is not a process, which takes root. `ours`
    /// says that it is a child of this process, held before its `exec`; `locks` is the directory in which it notes its
    /// waits for locks.
    pub fn begin(config: &Config, ours: bool, hz: u32, locks: Option<&Path>) -> Option<Unprivileged> {
        let Target::Tree(pid) = config.target else { return None };
        Some(Unprivileged::observe(config, Some(pid), ours, hz, locks))
    }

    /// Begins to observe what a user with all rights asks for on a kernel that cannot load the engine; `None` for a cgroup.
    /// `limit` says why, in a line.
    pub fn on_old_kernel(
        config: &Config,
        ours: bool,
        hz: u32,
        locks: Option<&Path>,
        limit: String,
    ) -> Option<Unprivileged> {
        let pid = match config.target {
            Target::Tree(pid) => Some(pid),
            Target::All => None,
            Target::Cgroup { .. } => return None,
        };
        let mut out = Unprivileged::observe(config, pid, ours, hz, locks);
        out.limit = Some(limit);
        Some(out)
    }

    /// Without a process, all are observed.
    fn observe(config: &Config, pid: Option<u32>, ours: bool, hz: u32, locks: Option<&Path>) -> Unprivileged {
        let root = Path::new("/");
        if ours {
            // SAFETY: an attribute of this process. Refused, time of processes left behind is known from their clocks.
            unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        }
        let mut symbols = Symbols::new();
        let mut processes = match pid {
            Some(pid) => Processes::of(root, pid),
            None => Processes::all(root),
        };
        processes.look(true);
        let running: Vec<u32> = processes.threads.keys().copied().collect();
        let whom = match pid {
            None => Whom::Everyone,
            Some(pid) if ours => Whom::Held(pid),
            Some(_) => Whom::Running(&running),
        };
        let first = Ticks::read();
        let opened = Sampler::open(whom, &first.cpus(), hz).and_then(|s| s.start(whom).map(|()| s));
        let (sampler, refused) = match opened {
            Ok(sampler) => (Some(sampler), None),
            Err(e) => (None, Some(e)),
        };
        let deep = sampler.as_ref().is_some_and(|s| s.view != View::UserCode);
        let kernel_names = deep && symbols.load_kernel().is_none();
        let mut out = Unprivileged {
            hz,
            sampler,
            refused,
            rules: Rules::read(root),
            limit: None,
            everything: pid.is_none(),
            ours: pid.filter(|_| ours),
            before: Accounts::default(),
            orphans: Accounts::default(),
            so_far: Accounts::default(),
            processes,
            symbols,
            kernel_names,
            samples: Samples::new(config.patterns.clone(), config.source_lines),
            pauses: Pauses::default(),
            comms: HashMap::new(),
            gone: HashMap::new(),
            started: 0,
            lost: 0,
            own: own(),
            idle: Idle::default(),
            told: Told::default(),
            throttle: Throttle::begin(&config.target),
            room: Room::begin(&config.target),
            shortage: Shortage::begin(),
            locks: None,
            notes: Vec::new(),
            last: LastLook {
                at: Instant::now(),
                next: Instant::now() + SHORTEST,
                ticks: Ticks::default(),
                clock: 0,
            },
            first,
            now: Default::default(),
            began: Instant::now(),
        };
        match locks.map(Locks::of).transpose() {
            Ok(locks) => out.locks = locks,
            Err(e) => out.note(format!("waits for user locks are not known: {e}")),
        }
        // Resources used before are not part of this observation.
        out.before = out.processes.accounts();
        out.told.threads = out.processes.threads.iter().map(|(tid, t)| (*tid, t.clone())).collect();
        out.told.waited.1 = out.waited();
        out.told.migrations = out.processes.migrations();
        // A held process has the name of this one until its `exec`.
        let threads = out.processes.threads.iter().filter(|(tid, _)| out.ours != Some(**tid));
        out.comms = threads.map(|(tid, t)| (*tid, t.name.clone())).collect();
        out.first = Ticks::read();
        out.last.ticks = out.first.clone();
        out.began = Instant::now();
        out
    }

    /// The view that the user's rights allow.
    pub fn view(&self) -> View {
        self.sampler.as_ref().map_or(View::Accounts, |s| s.view)
    }

    /// Observes until the program behind `pidfd` ends, `deadline` passes or `stop` is set; calls `sink` with the new
    /// rows of every table each `interval`.
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
        let mut cadence = Cadence::of(interval);
        loop {
            let now = Instant::now();
            if stop.load(Ordering::Relaxed) {
                return Ok(Until::Stopped);
            }
            if deadline.is_some_and(|d| now >= d) {
                return Ok(Until::Time);
            }
            if cadence.due(now) {
                self.tick(false, None, sink)?;
            } else if now >= self.last.next {
                self.look(false);
            }
            let until = cadence.until(deadline).min(self.last.next);
            let ended = self.wait(pidfd, until.saturating_duration_since(Instant::now()));
            self.receive();
            self.reap();
            if ended {
                return Ok(Until::Ended);
            }
        }
    }

    /// Waits for a ring that fills up, the program's end or the time; says whether it ended.
    fn wait(&self, pidfd: Option<BorrowedFd<'_>>, time: Duration) -> bool {
        let wakers = self.sampler.iter().flat_map(Sampler::wakers);
        let mut fds: Vec<PollFd<'_>> = pidfd
            .iter()
            .map(|fd| fd.as_fd())
            .chain(wakers)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let time =
            rustix::time::Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        // Interrupted by a signal: the loop looks at `stop`.
        let _ = rustix::event::poll(&mut fds, Some(&time));
        pidfd.is_some() && fds.first().is_some_and(|fd| !fd.revents().is_empty())
    }

    /// Takes what the rings hold.
    fn receive(&mut self) {
        let Some(sampler) = &mut self.sampler else { return };
        let own = std::process::id();
        let machine = sampler.view == View::Machine;
        let (records, lost) = sampler.drain();
        self.lost += lost.div_ceil(64);
        // The way to its `exec` goes under the name that the program has from then on.
        if let Some(pid) = self.ours.filter(|pid| !self.comms.contains_key(pid)) {
            let name = records.iter().find_map(|(_, record)| match record {
                Record::Name { tid, name, .. } if *tid == pid => Some(name.clone()),
                _ => None,
            });
            self.comms.extend(name.map(|name| (pid, name)));
        }
        for (time, record) in records {
            match record {
                Record::Sample { pid, tid, kernel, user, registers } => {
                    let at = match pid {
                        0 => continue,
                        _ if self.processes.has(pid) || !machine => CpuState::Program,
                        _ if pid == own => continue,
                        _ => CpuState::Others,
                    };
                    let comm = match self.comms.get(&tid).or_else(|| self.gone.get(&tid)) {
                        Some(comm) => comm.clone(),
                        None => comm_of(pid, tid),
                    };
                    self.comms.entry(tid).or_insert_with(|| comm.clone());
                    self.symbols.note(pid, tid, &comm);
                    let mut stack = Stack { tgid: pid, tid, comm, kernel, user };
                    self.symbols.complete(&mut stack, None);
                    // In the kernel they are those of the way into it.
                    let in_user_code = at == CpuState::Program && stack.kernel.is_empty();
                    let registers = Registers::of_perf(&registers).filter(|_| in_user_code);
                    let pauses =
                        registers.is_some_and(|registers| self.pauses.at(&self.symbols, pid, &registers));
                    if let Some(registers) = registers {
                        self.samples.keep_code(&self.symbols, pid, registers.ip());
                    }
                    let registers = registers.map(|registers| (Box::new(registers), time));
                    self.samples.add(at, stack, pauses, None, registers);
                }
                Record::Name { tid, name, .. } => drop(self.comms.insert(tid, name)),
                Record::Began { pid, parent, tid, by } => {
                    if let Some(name) = self.comms.get(&by).cloned() {
                        self.comms.insert(tid, name);
                    }
                    if pid == tid && (!machine || self.processes.has(parent)) {
                        self.started += 1;
                        self.processes.met(pid);
                    }
                }
                // Its last samples may lie in the ring of another CPU.
                Record::Ended { .. } => {}
                Record::Lost(n) => self.lost += n,
            }
        }
    }

    /// Waits for what the program left behind, whose parent we are now.
    fn reap(&mut self) {
        let Some(ours) = self.ours else { return };
        let own = Path::new("/proc/self");
        for pid in process::threads(own)
            .into_iter()
            .filter_map(|tid| started_by(&own.join(format!("task/{tid}"))).ok())
            .flatten()
            .filter(|&pid| pid != ours && self.processes.has(pid))
            .collect::<Vec<_>>()
        {
            let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
            // SAFETY: both pointers are to live locals.
            let got = unsafe { libc::wait4(pid as i32, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
            if got == pid as i32 {
                // SAFETY: zeroed is a valid rusage, and wait4 has filled it.
                self.orphans.add(&Accounts::from(&Ended::from_wait(status, &unsafe { usage.assume_init() })));
            }
        }
    }

    /// Looks at the threads, and at what CPUs were idle for since the last look.
    fn look(&mut self, full: bool) {
        // Processes that have begun are known from here on.
        self.receive();
        let at = Instant::now();
        // Started processes are reported by events, if there are any.
        if self.sampler.is_none() || full {
            self.processes.find();
        }
        let before: HashMap<u32, (u64, u64, u64)> =
            self.processes.threads.iter().map(|(tid, t)| (*tid, (t.start, t.ran, t.waited))).collect();
        let gone = self.processes.look(full);
        for (tid, thread) in gone {
            self.told.waited.0 += thread.waited;
            if self.gone.len() >= MOST_GONE {
                self.gone.clear();
            }
            self.gone.insert(tid, self.comms.remove(&tid).unwrap_or_else(|| thread.name.clone()));
            self.told.ended.push((tid, thread));
        }
        let waits = self.look_at_locks();
        let ticks = Ticks::read();
        let mut look = Look {
            seconds: (at - self.last.at).as_secs_f64(),
            cpus: self.first.cpus().len() as f64,
            idle: ticks.idle(&self.last.ticks),
            ..Look::default()
        };
        let mut off_cpu: HashMap<u32, f64> = HashMap::new();
        for (tid, now) in &self.processes.threads {
            let (_, ran, waited) =
                before.get(tid).copied().filter(|(start, ..)| *start == now.start).unwrap_or((0, 0, 0));
            let ran = now.ran.saturating_sub(ran) as f64 / 1e9;
            let waited = now.waited.saturating_sub(waited) as f64 / 1e9;
            look.ran += ran;
            look.busiest = look.busiest.max(ran);
            look.waited += waited;
            off_cpu.insert(*tid, (look.seconds - ran - waited).max(0.0));
            match now.doing {
                Doing::Runnable => look.active = true,
                Doing::Futex if waits.waiting.contains(tid) => {}
                Doing::Futex => look.futex += 1,
                Doing::Io => look.io += 1,
                Doing::Blocked => look.blocked += 1,
                Doing::Asleep => {}
            }
        }
        // A wait for a lock is on CPU and on run queues too.
        look.locks = waits.waited.iter().map(|(tid, s)| s.min(off_cpu.get(tid).copied().unwrap_or(*s))).sum();
        // Most short processes come and go between two looks; the clocks have seen them.
        if let Some(clocks) = self.sampler.as_ref().and_then(|s| s.clocks().ok()) {
            let ns: u64 = clocks.iter().map(|(_, ns)| ns).sum();
            let ran = ns.saturating_sub(self.last.clock) as f64 / 1e9;
            look.unseen = (ran - look.ran).max(0.0);
            look.ran += look.unseen;
            self.last.clock = ns;
        }
        self.idle.add(&look);
        // Looks take at most a small part of a CPU, for any number of threads.
        let cost = at.elapsed();
        self.last = LastLook { at, next: at + SHORTEST.max(cost * PART), ticks, ..self.last };
    }

    /// The waits of the program's threads, as the preloaded library notes them.
    fn look_at_locks(&mut self) -> locks::Look {
        let Some(locks) = &mut self.locks else { return locks::Look::default() };
        let waits = locks.look(Moment::now());
        for new in &waits.new {
            // Its mappings name the locks when it has ended.
            self.symbols.note_maps(new.pid, &new.name, &new.maps);
            self.processes.names.entry(new.pid).or_insert_with(|| new.name.clone());
            self.processes.met(new.pid);
        }
        locks.look_for_library(self.processes.threads.values().map(|t| (t.pid, &*t.name)));
        waits
    }

    /// Resources that the program used since the observation began, as known so far; after its end, those of all
    /// processes it waited for.
    fn accounts(&mut self, ended: Option<&Ended>) -> Accounts {
        let mut sum = self.orphans;
        if let Some(ended) = ended {
            sum.add(&Accounts::from(ended));
        }
        sum.add(&self.processes.accounts());
        let sum = sum.since(&self.before);
        // Processes that nobody waits for take their accounts with them.
        if sum.user + sum.system >= self.so_far.user + self.so_far.system {
            self.so_far = sum;
        }
        self.so_far
    }

    /// The program's time in the kernel, of `program` seconds on CPU; `None` where its samples tell it.
    fn in_kernel(&self, program: f64, accounts: &Accounts, now: &Ticks) -> Option<f64> {
        if matches!(self.view(), View::Machine | View::Program) {
            return None;
        }
        let (mut user, mut system) = (accounts.user, accounts.system);
        if self.short_lived(program, now) {
            (user, system) = now.user_and_system(&self.first);
        }
        Some(program * system / (user + system).max(f64::MIN_POSITIVE))
    }

    /// Whether the program is processes so short that the kernel's division of their times says little, and has the
    /// machine to itself so that the machine's ticks say more: each process's time is divided as its own ticks are, and
    /// where there was none it is all user time.
    fn short_lived(&self, program: f64, now: &Ticks) -> bool {
        let started = if self.sampler.is_some() {
            self.started
        } else {
            now.started.saturating_sub(self.first.started)
        };
        let (user, system) = now.user_and_system(&self.first);
        program < SHORT * started as f64 && program > 0.9 * (user + system) && program > 50.0 * SHORT
    }

    fn waited(&self) -> u64 {
        self.told.waited.0 + self.processes.threads.values().map(|t| t.waited).sum::<u64>()
    }

    fn tick<E>(
        &mut self,
        last: bool,
        ended: Option<&Ended>,
        sink: &mut dyn FnMut(&Table) -> Result<(), E>,
    ) -> Result<(), E> {
        // All at one moment; what follows takes its time.
        let elapsed = self.began.elapsed().as_secs_f64();
        let now = Ticks::read();
        let mut clocks = self.clocks();
        let own = (own() - self.own).as_secs_f64();
        self.receive();
        self.reap();
        self.look(true);
        let accounts = self.accounts(ended);
        let used = accounts.user + accounts.system;
        if let Some(clocks) = &mut clocks {
            // A clock stops a little before its process has ended, and its accounts do not.
            let sum: f64 = clocks.values().sum();
            let missed = (used / sum.max(f64::MIN_POSITIVE)).max(1.0);
            clocks.values_mut().filter(|_| sum > 0.0).for_each(|clock| *clock *= missed);
        }
        let program = match &clocks {
            _ if self.everything => Program::Everything,
            Some(clocks) => Program::ByCpu(clocks),
            None => Program::Together(used),
        };
        let spent = divide(elapsed, &self.first, &now, &program, own);
        let sum: f64 = spent.values().map(|s| s[CpuState::Program as usize]).sum();
        let kernel = self.in_kernel(sum, &accounts, &now);

        self.now = (elapsed, now);

        let tables = [
            self.cpu_time(elapsed, spent, kernel),
            self.idle_time(elapsed),
            self.events(elapsed, &accounts),
            self.threads(elapsed),
        ];
        tables.iter().filter(|t| t.num_rows() > 0).try_for_each(&mut *sink)?;
        let pids = self.processes.pids();
        self.throttle.met(pids.iter().copied());
        self.room.look(&pids);
        self.shortage.look();
        let process = |tgid: u32| self.processes.names.get(&tgid).cloned();
        let [samples, stacks, results] =
            self.samples.tables(elapsed, &mut self.symbols, self.hz, &process, &mut |_, _, _| {
                unreachable!("samples without root have no futexes")
            });
        let [throttled, cgroups] = self.throttle.tables(elapsed);
        let (names, comms, gone) = (&self.processes.names, &self.comms, &self.gone);
        let thread = |tid| comms.get(&tid).or_else(|| gone.get(&tid)).or_else(|| names.get(&tid)).cloned();
        let lives = |pid| ended.is_none() && self.processes.has(pid);
        let symbols = &mut self.symbols;
        let locks =
            self.locks.as_mut().map(|l| l.table(elapsed, Moment::now(), lives, symbols, names, thread));
        if let Some(locks) = locks.filter(|t| t.num_rows() > 0) {
            sink(&locks)?;
        }
        self.pauses.forget();
        let causes = self.samples.causes(elapsed, last, &mut self.symbols, &process);
        let rest = [samples, stacks, results, throttled, cgroups].into_iter().chain(causes);
        rest.filter(|t| t.num_rows() > 0).try_for_each(|t| sink(&t))
    }

    /// The program's seconds on each CPU, where there are clocks.
    fn clocks(&mut self) -> Option<BTreeMap<u32, f64>> {
        match self.sampler.as_ref()?.clocks() {
            Ok(clocks) => Some(clocks.into_iter().map(|(cpu, ns)| (cpu, ns as f64 / 1e9)).collect()),
            Err(e) => {
                self.note(format!("the program's time by CPU is estimated: its clocks cannot be read: {e}"));
                None
            }
        }
    }

    /// Keeps a note for the end, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Ends counting and hands over the last rows, with the summary; gives the notes.
    ///
    /// # Errors
    /// What `sink` returns.
    pub fn finish<E>(
        mut self,
        ended: Option<Ended>,
        sink: &mut dyn FnMut(&Table) -> Result<(), E>,
    ) -> Result<Vec<String>, E> {
        if let Some(sampler) = &self.sampler {
            sampler.stop();
        }
        self.tick(true, ended.as_ref(), sink)?;
        let told = std::iter::once(self.room.table()).chain(self.shortage.tables());
        told.filter(|t| t.num_rows() > 0).try_for_each(|t| sink(&t))?;
        let (elapsed, now) = std::mem::take(&mut self.now);
        let mut summary = summary::Rows::new();
        summary.push(summary::Row {
            elapsed: Some(elapsed),
            user: ended.map(|e| e.user),
            system: ended.map(|e| e.system),
            cpus: Some(self.first.cpus().len() as u64),
            steal: Some(now.steal(&self.first)),
            iowait: Some(now.iowait(&self.first)),
            hz: Some(if self.sampler.is_some() { self.hz.into() } else { 0 }),
            status: ended.map(|e| e.status as u64),
            max_rss: ended.map(|e| e.max_rss),
        });
        sink(&summary.finish())?;
        let untold = self.locks.iter().flat_map(Locks::untold);
        let mut lost = drops::Rows::new();
        let mut any = false;
        for (what, n) in
            [("records of perf events", self.lost)].into_iter().chain(untold).filter(|(_, n)| *n > 0)
        {
            lost.push(drops::Row { what: what.into(), count: Some(n) });
            any = true;
        }
        if any {
            sink(&lost.finish())?;
        }
        self.conclude(ended.as_ref(), &now);
        Ok(self.notes)
    }
}

/// The CPU time of this process.
fn own() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The name of a thread that has no record.
fn comm_of(pid: u32, tid: u32) -> String {
    let name = process::name(format!("/proc/{pid}/task/{tid}").as_ref());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "[unknown]".into())
}
