//! The engine behind `run`, `watch`, `locks` and `threads`: attaches the BPF programs of
//! `engine.bpf.c`, reads what they count, and says what is missing.
//!
//! Nothing is copied out of the kernel an event at a time but stacks seen for the first time, timer
//! samples and threads that end; the rest is counters that [`Engine::snapshot`] reads by mmap.
//!
#![doc = include_str!("README.md")]

mod around;
pub mod budget;
mod calibrate;
mod config;
mod contentions;
mod counted;
mod entering;
mod events;
mod first_waits;
mod functions;
mod go;
mod hotplug;
mod interrupts;
mod layout;
mod lengths;
mod load;
mod per_call;
mod places;
mod requests;
mod served;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unused)]
mod skel;
mod snapshot;
mod switches;
mod tables;
mod tell;
mod tenants;
mod thread_time;
mod uprobes;
mod usdt;
mod waits;

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use libbpf_rs::{Iter, Link, RingBuffer};
use ncpu_files::reader::Source as FileSource;
use ncpu_schema::Microstate;
use ncpu_symbols::{PythonAt, V8At};

use crate::bpf_support::ring::{self, Inbox};
use crate::bpf_support::{Error, Result, comm, monotonic_ns, perf, read};

pub use budget::{Coverage, Probes};
pub(crate) use calibrate::Struck;
pub use calibrate::{Cost, Costs};
pub use config::Config;
pub use events::{Event, Idling};
pub use first_waits::{FirstOf, FirstWaits};
pub use functions::{CalledFunction, MOST_FUNCTIONS};
pub use interrupts::{Served, Source};
pub use ncpu_symbols::{Pattern, Patterns};

pub(crate) use layout::OTHERS;
pub use layout::{Cause, FutexClass, ThreadOut, UserLock, Verdict, Wait};
pub(crate) use layout::{futex_key, site_key, wait_event};
pub(crate) use lengths::LengthCount;
pub use requests::Requests;
pub(crate) use requests::device_of;
pub use served::Slow;
pub(crate) use served::{Protocol, RequestRow, RequestWait, latency_bin};
pub use snapshot::{Runnables, Snapshot};
pub use tenants::NewTenant;
pub(crate) use tenants::{Shares, Spent};
pub(crate) use thread_time::{Life, TimeRow, role_hash};
pub(crate) use waits::Waits;
pub use waits::{Charged, FutexWaits, KernelLock, Locks, Lost, OffCpu, Queued, Sleeps, TracedLock, Woken};

/// Numbers of tenants that are always the same.
pub(crate) mod tenant {
    pub(crate) use super::tenants::{FIRST, IDLE, KERNEL, NCPU, OTHERS};
}

pub(crate) use per_call::divide;
pub(crate) use places::{Place, Places};

use around::{Around, Measuring};
use calibrate::Gauge;
use contentions::Contentions;
use per_call::PerCall;
use switches::Switches;
use tables::Tables;
use tenants::Tenants;
use uprobes::{Group, Programs, Uprobes};

use layout::{Calls, CpuSlot, LockSlot};

/// How often a timer tells user code from the kernel where calls and faults are traced, on each CPU.
const STRIKES_HZ: u32 = 997;

/// Longest that events are taken out of the ring at once: two observers of the whole machine send each other stacks for
/// what they do with stacks, and an interval would not end.
const AT_ONCE: Duration = Duration::from_millis(200);
/// Events that are taken before the clock is looked at.
const BATCH: usize = 256;

/// Rounds in which the existing threads get tenants when an observation begins: enough to give away all numbers.
const SEED_ROUNDS: usize = 8;

/// How far ahead the ends of the observed time are set, nanoseconds.
const AHEAD: u64 = 20_000;

/// Everything attached; detaches when dropped.
pub struct Engine {
    /// First, for its thread uses what follows. Nothing where locks of programs are not traced.
    uprobes: Option<Uprobes>,
    /// Locks of programs are traced.
    user_locks: bool,
    /// Functions whose calls are requests, and whether a file has it.
    functions: Vec<(CalledFunction, bool)>,
    per_call: Option<PerCall>,
    skel: Box<skel::EngineSkel<'static>>,
    /// Held, for they detach when dropped.
    links: Vec<Link>,
    /// Of the program that sees each flush of a TLB.
    flushes: Vec<Link>,
    /// Those stay, or have gone.
    flushes_stay: bool,
    ring: RingBuffer<'static>,
    inbox: Inbox<Event>,
    /// Those of before it began that are needed.
    early: Vec<Event>,
    tables: Tables,
    /// Waits without room that were reported so far.
    first_others: u64,
    /// The arrays of lengths as read at the last call.
    length_before: Vec<u32>,
    /// `None` without accounts by tenant.
    tenants: Option<Tenants>,
    start: Vec<CpuSlot>,
    began: u64,
    ended: Option<u64>,
    /// Requests to devices, once the observation has ended.
    unseen_ends: u64,
    notes: Vec<String>,
    hz: u32,
    /// Whether the end of faults is watched.
    micro: bool,
    online: hotplug::Online,
    /// CPUs that came or went since the observation began.
    changed: BTreeSet<u32>,
    /// The timers of each CPU.
    timers: HashMap<usize, hotplug::Timers>,
    lead: Option<perf::Timer>,
    contentions: Contentions,
    switches: Switches,
    /// Until it has been asked.
    gauge: Option<Gauge>,
    /// Programs that were attached to measure, until counting begins.
    to_detach: (Option<OwnedFd>, Vec<Link>),
    /// How often a timer tells user code from the kernel, on each CPU; 0: none does.
    strike_hz: u32,
    costs: Option<Costs>,
    /// The process that was measured: nobody's program.
    gauged: Option<u32>,
}

impl Engine {
    /// Loads and attaches what `config` asks for and the kernel has. Counting begins with
    /// [`Engine::begin`].
    ///
    /// # Errors
    /// Fails without privileges, BTF or `sched_switch`. Anything else that is missing is listed by
    /// [`Engine::notes`] and left out.
    pub fn attach(config: &Config) -> Result<Engine> {
        let mut notes = Vec::new();
        if config.probes == Probes::Off {
            notes.push(
                "--probes off: waits for locks, system calls, faults and requests to devices are not traced"
                    .into(),
            );
        }
        crate::bpf_support::log::keep();
        // Untraced it is measured before anything is attached.
        let gauge = match config.traces_calls().then(Gauge::start).transpose() {
            Ok(gauge) => gauge,
            Err(e) => {
                notes.push(format!("what tracing costs is not known, and lies in USR and SYS: {e}"));
                None
            }
        };
        hotplug::room_for_events(config.traces_calls(), &mut notes);
        let measuring = Measuring::start();
        let loaded = load::load(config, &mut notes);
        let around = measuring.end();
        let (mut loaded, interrupts) = loaded?;
        let skel = &mut loaded.skel;
        let cpus = crate::bpf_support::load::cpu_parts()?;
        let tables = Tables::map(&skel.maps, cpus)?;
        let (around, nothing) = around.map_or_else(
            |e| {
                notes.push(format!(
                    "calling the programs at switches takes a time that is not known, and not in \"ncpu itself\": {e}"
                ));
                (Around::default(), None)
            },
            |(around, nothing)| (around, Some(nothing)),
        );
        if let Some(bss) = &mut skel.maps.bss_data {
            (bss.switch_ns, bss.wake_ns) = (around.switch as u64, around.wake as u64);
        }
        let gauges = entering::measure(skel, &interrupts)?;
        // Before the first thread comes.
        let mut tenants = Tenants::open(skel, cpus)?;
        tenants.iter_mut().try_for_each(|tenants| tenants.offer(skel))?;
        let links = load::attach(&loaded, &interrupts)?;
        let load::Loaded { skel, switches } = loaded;
        let switches = Switches::attach(config, switches, around)?;
        let flushes = load::attach_flushes(&skel)?;
        let contentions = Contentions::attach(config, &skel.progs)?;
        let traced = load::attach_calls(&skel, config, &mut notes)?;
        let (ring, inbox) = ring::open(&skel.maps.ring, events::decode)?;
        let per_call = match config.traces_calls() {
            true => Some(PerCall::new(traced, tables::hits(&skel.maps, cpus)?, config.probes)),
            false => None,
        };
        if config.probes == Probes::Off && !config.functions.is_empty() {
            notes.push("--probes off: calls of functions are not followed".into());
        }
        let uprobes = match config.traces_programs() {
            true => Some(uprobes_for(config, &skel, cpus)?),
            false => None,
        };
        Ok(Engine {
            uprobes,
            user_locks: config.traces_user_locks(),
            functions: config.functions.iter().map(|f| (f.clone(), false)).collect(),
            per_call,
            skel: Box::new(skel),
            links,
            flushes,
            flushes_stay: false,
            ring,
            inbox,
            early: Vec::new(),
            tables,
            first_others: 0,
            length_before: vec![0; lengths::ARRAYS * lengths::BINS],
            tenants,
            start: Vec::new(),
            began: 0,
            ended: None,
            unseen_ends: 0,
            notes,
            hz: 0,
            micro: false,
            online: hotplug::Online::default(),
            changed: BTreeSet::new(),
            timers: HashMap::new(),
            lead: None,
            contentions,
            switches,
            gauge,
            to_detach: (nothing, gauges),
            strike_hz: 0,
            costs: None,
            gauged: None,
        })
    }

    /// Starts the timers, then counting: attaching is left out of what is observed.
    ///
    /// # Errors
    /// The sampling timers cannot be opened.
    pub fn begin(&mut self, config: &Config) -> Result<()> {
        self.meet_cpus(config.as_on);
        let online = self.online.cpus.clone();
        if let Some(hz) = config.sample_hz {
            self.hz = config.rate_for(online.len(), hz);
            if let Some(bss) = &mut self.skel.maps.bss_data {
                bss.sample_hz = self.hz;
            }
            if self.hz < hz {
                self.notes.push(format!(
                    "sampling at {} Hz instead of {hz} on {} CPUs: {} samples a second are enough",
                    self.hz,
                    online.len(),
                    Config::MAX_SAMPLES
                ));
            }
            for &cpu in &online {
                match self.start_timers(cpu) {
                    Ok(()) => {}
                    Err(e) if cpu == online[0] => {
                        self.notes.push(format!("no sampling: {e}"));
                        self.hz = 0;
                        break;
                    }
                    Err(e) => self.notes.push(format!("no sampling on CPU {cpu}: {e}")),
                }
            }
        }
        // From now on; the events that end faults have been attached with the tracepoints.
        self.micro = config.traces_calls();
        if config.explain {
            self.pass_lead();
        }
        if let Some(gauge) = self.gauge.take() {
            self.gauged = Some(gauge.pid());
            match self.calibrate(&gauge) {
                Ok(costs) => {
                    self.strike_hz = config.rate_for(online.len(), STRIKES_HZ);
                    self.notes.push(costs.note(self.strike_hz));
                    self.costs = Some(costs);
                    for &cpu in &online {
                        if let Err(e) = self.start_striking(cpu) {
                            self.notes.push(format!("no samples of user code on CPU {cpu}: {e}"));
                        }
                    }
                }
                Err(e) => {
                    self.notes.push(format!("what tracing costs is not known, and lies in USR and SYS: {e}"))
                }
            }
        }
        if config.traces_calls() || config.explain {
            // Threads that sleep through the first interval must be known to have slept.
            self.seed()?;
        }
        self.mark(&self.online.cpus);
        self.receive_early();
        self.start = (0..self.tables.slots.len()).map(|i| self.tables.slots.get(i)).collect();
        // A moment ahead, so that all CPUs know it when it comes.
        self.began = monotonic_ns() + AHEAD;
        if let Some(data) = &mut self.skel.maps.data_data {
            data.observe_from = self.began;
        }
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.observing = 1;
        }
        // Detaching takes 20 ms and more, so a thread does it; if none can be started, it happens here.
        let to_detach = std::mem::take(&mut self.to_detach);
        let _ = std::thread::Builder::new().name("ncpu-detach".into()).spawn(move || drop(to_detach));
        if let Some(uprobes) = &mut self.uprobes {
            uprobes.begin();
        }
        self.begin_calls();
        self.begin_contentions();
        self.begin_switches();
        Ok(())
    }

    /// Meets the threads that are there already, in rounds: each has room and numbers for a part of the tenants.
    fn seed(&mut self) -> Result<()> {
        for _ in 0..SEED_ROUNDS {
            if let Some(bss) = &mut self.skel.maps.bss_data {
                bss.tenants_missed = 0;
            }
            self.iterate(&self.skel.progs.seed_threads)?;
            self.receive_early();
            let missed = self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.tenants_missed);
            let Some(tenants) = self.tenants.as_mut().filter(|_| missed > 0) else { break };
            tenants.offer(&mut self.skel)?;
        }
        Ok(())
    }

    /// Events of before the observation. Those of threads that ended then, some of our own, are dropped.
    fn receive_early(&mut self) {
        let _ = self.ring.consume();
        self.early.extend(self.inbox.take().into_iter().filter(|event| matches!(event, Event::Tenant(_))));
    }

    /// Whether [`Engine::trace_flush_calls`] has something to do.
    pub fn wants_flush_code(&self) -> bool {
        !self.flushes.is_empty() && !self.flushes_stay && self.skel.progs.call_begins.autoload()
    }

    /// Takes TLB shootdowns from the calls between CPUs from now on: `code` is where the function is that they call. The kernel
    /// traces flushes at each switch to another process, too, which costs more than all else that switches are traced for.
    pub fn trace_flush_calls(&mut self, code: Option<u64>) {
        self.flushes_stay = true;
        let Some(code) = code else { return };
        match load::attach_flush_calls(&self.skel) {
            Ok(links) => self.links.extend(links),
            Err(e) => return self.notes.push(format!("TLB shootdowns are traced at each switch: {e}")),
        }
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.tlb_code = code;
        }
        self.flushes.clear();
    }

    /// Watches from now on over what probes in programs take. With the capabilities that this thread has by now: it may have
    /// given some up since the engine was attached.
    pub fn watch_probes(&mut self) {
        let Some(uprobes) = &mut self.uprobes else { return };
        uprobes.watch();
        if uprobes.locks_off()
            && let Some(bss) = &mut self.skel.maps.bss_data
        {
            bss.user_locks_off = 1;
        }
    }

    /// The microstates that are measured, by [`Microstate`]: calls and faults are traced on request only.
    pub fn measures(&self) -> [bool; Microstate::ALL.len()] {
        let calls = self.per_call.is_some();
        let begins = &self.skel.progs;
        let faults = calls && (begins.page_fault_user.autoload() || begins.fault_counted.autoload());
        [calls, calls, faults, faults, faults, true, true, true]
    }

    /// Whether signals are counted.
    pub fn counts_signals(&self) -> bool {
        self.skel.progs.signal_deliver.autoload()
    }

    /// Whether [`Engine::end`] has been called.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Ends counting; what was counted stays readable.
    pub fn end(&mut self) {
        if self.ended.is_some() {
            return;
        }
        let mut until;
        loop {
            until = monotonic_ns() + AHEAD;
            if let Some(data) = &mut self.skel.maps.data_data {
                data.observe_until = until;
            }
            // Held up in between, CPUs may have counted past it.
            if monotonic_ns() < until {
                break;
            }
        }
        while monotonic_ns() < until {
            std::hint::spin_loop();
        }
        self.ended = Some(until);
        if let Some(uprobes) = &mut self.uprobes {
            uprobes.end();
        }
        self.contentions.end(until);
        self.switches.end(until);
        self.mark(&perf::online_cpus());
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.observing = 0;
        }
        match self.unseen_ends(until) {
            Ok(unseen) => self.unseen_ends = unseen,
            Err(e) => {
                self.notes.push(format!("requests to devices whose end was not seen are not counted: {e}"))
            }
        }
    }

    /// Makes every CPU charge its time up to now.
    fn mark(&self, cpus: &[usize]) {
        crate::bpf_support::load::run_on(&self.skel.progs.mark, cpus);
    }

    /// Missing parts of this machine, and probes that were thinned out or detached, one line each.
    pub fn notes(&self) -> Vec<String> {
        let probes = self.uprobes.iter().flat_map(|uprobes| uprobes.notes(self.age().as_secs_f64()));
        self.notes
            .iter()
            .cloned()
            .chain(probes)
            .chain(self.calls_note())
            .chain(self.contentions_notes())
            .chain(self.switches_note())
            .collect()
    }

    /// The overhead of tracing in the microstates of a thread; `None` where calls and faults are not traced, or
    /// where it could not be measured.
    pub fn costs(&self) -> Option<Costs> {
        self.costs
    }

    /// Learns from the program itself what tracing adds to user code.
    pub(crate) fn learn(&mut self, seen: &Struck) {
        if let Some(costs) = &mut self.costs {
            costs.learn(seen);
        }
    }

    /// The sampling rate in use, Hz a CPU; 0 without sampling.
    pub fn hz(&self) -> u32 {
        self.hz
    }

    /// Becomes readable when the kernel side wants to be heard at once.
    pub(crate) fn ring_fd(&self) -> i32 {
        self.ring.epoll_fd()
    }

    /// Returns the events there are now: all once the observation has ended, and before those of [`AT_ONCE`] at most.
    pub fn drain(&mut self) -> Vec<Event> {
        let begun = Instant::now();
        while self.ring.consume_raw_n(BATCH) == BATCH as i32
            && (self.ended.is_some() || begun.elapsed() < AT_ONCE)
        {}
        let mut events = std::mem::take(&mut self.early);
        events.extend(self.inbox.take());
        if self.gauged.is_some() {
            events.retain(|e| !matches!(e, Event::Exit(thread) if Some(thread.tgid) == self.gauged));
        }
        events
    }

    /// Traces the user locks of a program or library that has static tracepoints for them, and the functions whose calls are
    /// requests, in all present and future processes that run it. Returns the number of probes; most files have none. `process`: the
    /// directory in `/proc` of one that has mapped it; `program`: it runs it.
    ///
    /// # Errors
    /// The file cannot be read or is damaged, or the kernel has no uprobes.
    pub fn trace_file(
        &mut self,
        file: &FileSource,
        path: &Path,
        process: &Path,
        program: bool,
    ) -> std::result::Result<usize, String> {
        let Some(uprobes) = &mut self.uprobes else { return Ok(0) };
        let (own, go) = match self.user_locks {
            true => (usdt::probes(file)?, go::probes(file)?),
            false => Default::default(),
        };
        let mut found = own.len() + go.len();
        let (mut calls, mut refused) = (Vec::new(), None);
        for (number, (function, is_found)) in self.functions.iter_mut().enumerate() {
            match function.probes(number, file, path, program) {
                Ok(None) => continue,
                Ok(Some(probes)) => {
                    found += probes.returns.len() + probes.begins.len();
                    calls.push((probes, function.clone()));
                }
                Err(e) => refused = Some(e),
            }
            *is_found = true;
        }
        // The kernel reads the instruction, and nothing ends its wait for a file system that does not answer. No program can fork
        // meanwhile.
        if found > 0 && file.may_not_answer(process) {
            return Err("its file system is another process or machine, or a user's own".into());
        }
        uprobes.attach(Group::Static, file, own, &self.skel.progs.user_lock)?;
        uprobes.attach(Group::Go, file, go, &self.skel.progs.go_lock)?;
        for (probes, function) in calls {
            let leaves = probes.leaves;
            uprobes.attach_function(file, probes, &self.skel.progs.function_call)?;
            if leaves {
                self.notes.push(format!(
                    "calls of {function} may end by a jump into another file: what is done there for them is not counted"
                ));
            }
        }
        refused.map_or(Ok(found), Err)
    }

    /// Functions whose calls are requests.
    pub(crate) fn functions(&self) -> Vec<CalledFunction> {
        self.functions.iter().map(|(function, _)| function.clone()).collect()
    }

    /// Those of them that no file has.
    pub(crate) fn functions_missing(&self) -> impl Iterator<Item = &CalledFunction> {
        self.functions.iter().filter(|(_, found)| !found).map(|(function, _)| function)
    }

    /// Walks every contention's stack from now on, whatever it costs.
    pub fn walk_all_locks(&mut self) {
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.walk_all_locks = 1;
        }
        self.contentions.count_all();
    }

    /// The largest number of contentions of which one has its stack walked now, of all CPUs.
    pub fn walked_every(&self) -> u32 {
        if self.skel.maps.bss_data.as_ref().is_some_and(|bss| bss.walk_all_locks != 0) {
            return 1;
        }
        let one_in = |slot: CpuSlot| (slot.lock_walks.mask + 1) * (slot.time_mask + 1);
        (0..self.tables.slots.len()).map(|i| one_in(self.tables.slots.get(i))).max().unwrap_or(1)
    }

    /// How long it observes now; nothing before it begins.
    pub fn age(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.began))
    }

    /// Charges the waits in progress for futexes that have been judged since they began.
    ///
    /// # Errors
    /// The iterator cannot be run.
    pub fn correct_waits(&self) -> Result<()> {
        self.iterate(&self.skel.progs.correct_waits).map(|_| ())
    }

    /// Contentions begun so far.
    pub fn lock_events(&self) -> u64 {
        (0..self.tables.slots.len()).map(|i| self.tables.slots.get(i).lock_events).sum()
    }

    /// Takes what was counted since the last call out of the lock tables of all CPUs: kernel locks, user locks
    /// (futexes), stacks off CPU.
    pub fn locks(&mut self) -> Locks {
        let mut sums: HashMap<(u64, u64, u32, u32), LockSlot> = HashMap::new();
        // Nobody writes once it has ended.
        let old = if self.ended.is_some() { self.half() } else { self.turn_over() };
        for table in [&mut self.tables.locks, &mut self.tables.other_locks] {
            let half = table.len() / layout::HALVES;
            let part = half / self.tables.slots.len().max(1);
            // CPUs that nothing ran on have no rows, and there may be many of them.
            let used = |cpu: &usize| {
                let slot = self.tables.slots.get(*cpu);
                slot.last != 0 || slot.switches != 0
            };
            let parts = (0..self.tables.slots.len()).filter(used).map(|cpu| old * half + cpu * part);
            for s in table.take(parts.flat_map(|start| start..start + part)) {
                waits::add(sums.entry((s.lock, s.stack, s.tgid, s.kind)).or_default(), &s);
            }
        }
        self.forget_ended();
        let goroutines = self.uprobes.as_ref().map_or(Coverage::ALL, Uprobes::coverage);
        let mut locks = Locks {
            requests: self.requests(old),
            first: self.first_waits(old),
            times: self.time_rows(old),
            served: self.served_rows(old),
            lengths: self.length_counts(old),
            goroutines,
            coverage: self.contentions.take(self.ended.unwrap_or_else(monotonic_ns)),
            ..Locks::default()
        };
        sums.values().for_each(|row| locks.put(row));
        locks
    }

    /// The half of the lock table that is written now.
    fn half(&self) -> usize {
        self.skel.maps.bss_data.as_ref().map_or(0, |bss| bss.lock_half as usize)
    }

    /// Has the other half of the lock table written from now on; the one that was until now.
    fn turn_over(&mut self) -> usize {
        let old = self.half();
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.lock_half = 1 - old as u32;
            bss.interval = bss.interval.wrapping_add(1);
        }
        // Programs that run meanwhile may still write to the old one. The kernel waits for all of them to end here.
        // SAFETY: a call without pointers.
        let waited = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
        if waited != 0 {
            // Not to be had with nohz_full CPUs; no program takes a thousandth of this.
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        old
    }

    /// ns asleep by system call number, since attaching.
    pub fn sleep_calls(&self) -> Vec<(u32, u64)> {
        let mut sums = [0u64; size_of::<Calls>() / 8];
        for cpu in 0..self.tables.calls.len() {
            let calls = self.tables.calls.get(cpu);
            sums.iter_mut().zip(calls.ns).for_each(|(sum, ns)| *sum += ns);
        }
        sums.into_iter().enumerate().filter(|(_, ns)| *ns > 0).map(|(nr, ns)| (nr as u32, ns)).collect()
    }

    fn iterate(&self, program: &libbpf_rs::ProgramMut<'_>) -> Result<Vec<u8>> {
        let bpf = |doing| move |source| Error::Bpf { doing, source };
        let link = program.attach_iter_with_opts(libbpf_rs::IterOpts::None);
        let link = link.map_err(bpf("attaching a thread iterator"))?;
        let mut iter = Iter::new(&link).map_err(bpf("opening a thread iterator"))?;
        let mut bytes = Vec::new();
        let io = |source| Error::Io { doing: "reading a thread iterator", source };
        iter.read_to_end(&mut bytes).map_err(io)?;
        Ok(bytes)
    }

    /// The program's living threads, by a BPF iterator: no file of /proc is opened.
    ///
    /// # Errors
    /// The iterator cannot be run.
    pub fn threads(&self) -> Result<Vec<ThreadOut>> {
        let bytes = self.iterate(&self.skel.progs.dump_threads)?;
        Ok(bytes.chunks_exact(size_of::<ThreadOut>()).filter_map(read).collect())
    }
}

/// What attaches to programs that are found.
fn uprobes_for(config: &Config, skel: &skel::EngineSkel<'static>, cpus: usize) -> Result<Uprobes> {
    let progs = &skel.progs;
    let programs = Programs {
        go: &progs.go_lock,
        user: &progs.user_lock,
        function: config.traces_functions().then_some(&progs.function_call),
        let_go: &progs.let_goroutines_go,
        forget_calls: config.traces_functions().then_some(&progs.forget_calls),
        multi: load::many_uprobes(),
    };
    let (hits, slots) = (tables::hits(&skel.maps, cpus)?, tables::slots(&skel.maps, cpus)?);
    Ok(Uprobes::new(config.probes, &programs, hits, slots))
}

impl ThreadOut {
    /// The thread's name.
    pub fn name(&self) -> String {
        comm(&self.comm)
    }

    /// The process's name.
    pub fn process(&self) -> String {
        comm(&self.group)
    }
}
