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
mod switches;
mod tenants;
mod thread_time;
mod uprobes;
mod usdt;
mod waits;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{Iter, Link, MapCore, RingBuffer};
use ncpu_files::reader::Source as FileSource;
use ncpu_schema::{CpuState, IdleReason, Microstate, Runnable};
use ncpu_symbols::PythonAt;

use crate::bpf_support::ring::{self, Inbox};
use crate::bpf_support::{Error, Mapped, Result, comm, monotonic_ns, perf, read};

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

use around::{Around, Pair};
use calibrate::Gauge;
use contentions::Contentions;
use per_call::PerCall;
use switches::Switches;
use tenants::Tenants;
use uprobes::{Group, Programs, Uprobes};

use layout::{
    Calls, CpuSlot, FirstSlot, IoRow, LengthSlot, Lengths, LockSlot, ProbeCounts, RequestSlot, TimeSlot,
};

/// How often a timer tells user code from the kernel where calls and faults are traced, on each CPU.
const STRIKES_HZ: u32 = 997;

/// How far ahead the ends of the observed time are set, nanoseconds.
const AHEAD: u64 = 20_000;

/// Everything counted since the observation began.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Seconds since the observation began.
    pub elapsed: f64,
    /// Per CPU that was seen: its number and ns by [`CpuState`].
    pub cpus: Vec<(usize, [u64; CpuState::ALL.len()])>,
    /// ns of idle CPUs by [`IdleReason`], by the leader's timer.
    pub idle: [u64; IdleReason::TOLD_APART],
    /// ns of idle CPUs while threads of the program ran, and ns for which there were any, by [`IdleReason`].
    pub busy: [(u64, u64); IdleReason::TOLD_APART],
    /// ns of idle CPUs while one was about to run, by [`IdleReason`].
    pub queued: [u64; IdleReason::TOLD_APART],
    /// ns of idle CPUs that no wake-up has ended yet, and for how long, by [`IdleReason`].
    pub pending: [(u64, u64); IdleReason::TOLD_APART],
    /// Ticks of the leader's timer.
    pub ticks: u64,
    /// ns that threads stood on run queues, summed.
    pub runnable: u64,
    /// Times a timer met threads of the program in user code, and anywhere; none where tracing moves no time between these.
    pub struck: (u64, u64),
    /// Threads of the program that were runnable and came on CPU, by reason.
    pub runnables: [Runnables; Runnable::ALL.len()],
    /// Of the CPUs that idled beside run queues, ns for threads woken from user locks, and from sleeps.
    pub woken_idle: [u64; 2],
    /// TLB shootdowns sent.
    pub tlb_sent: u64,
    /// TLB shootdowns answered.
    pub tlb_received: u64,
    /// Interrupts and softirqs served, by kind and device.
    pub interrupts: BTreeMap<Source, Served>,
    /// Context switches.
    pub switches: u64,
    /// Switches the kernel did not trace, found out at the next event.
    pub unseen_switches: u64,
    /// Counts of dropped records by kind: never silent.
    pub drops: Vec<(&'static str, u64)>,
}

/// Threads that were runnable and came on CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Runnables {
    /// How often.
    pub count: u64,
    /// ns that they stood on run queues of CPUs that ran something else.
    pub queued: u64,
    /// ns for which idle CPUs had been given one of them, and had not woken yet.
    pub waking: u64,
    /// Threads for which CPUs woke so.
    pub wakings: u64,
}

impl Runnables {
    /// Since an earlier snapshot.
    pub fn since(&self, before: &Runnables) -> Runnables {
        Runnables {
            count: self.count.saturating_sub(before.count),
            queued: self.queued.saturating_sub(before.queued),
            waking: self.waking.saturating_sub(before.waking),
            wakings: self.wakings.saturating_sub(before.wakings),
        }
    }
}

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
    slots: Mapped<CpuSlot>,
    locks: Mapped<LockSlot>,
    other_locks: Mapped<LockSlot>,
    first_waits: Mapped<FirstSlot>,
    /// Waits without room that were reported so far.
    first_others: u64,
    io_rows: Mapped<IoRow>,
    times: Mapped<TimeSlot>,
    request_rows: Mapped<RequestSlot>,
    lengths: Mapped<Lengths>,
    length_rows: Mapped<LengthSlot>,
    /// The arrays as read at the last call.
    length_before: Vec<u32>,
    calls: Mapped<Calls>,
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
        let (mut skel, interrupts) = load::load(config, &mut notes)?;
        let cpus = crate::bpf_support::load::cpu_parts()?;
        let io = |doing| move |source| Error::Io { doing, source };
        let slots = Mapped::new(&skel.maps.cpu_slots, cpus).map_err(io("mapping the CPU slots"))?;
        let around = Pair::start().and_then(|pair| pair.measure(&|| load::attach_nothing(&skel.progs)));
        let around = around.unwrap_or_else(|e| {
            notes.push(format!(
                "calling the programs at switches takes a time that is not known, and not in \"ncpu itself\": {e}"
            ));
            Around::default()
        });
        if let Some(bss) = &mut skel.maps.bss_data {
            (bss.switch_ns, bss.wake_ns) = (around.switch as u64, around.wake as u64);
        }
        // Before the first thread comes.
        let mut tenants = Tenants::open(&skel, cpus)?;
        tenants.iter_mut().try_for_each(|tenants| tenants.offer(&mut skel))?;
        let links = load::attach(&mut skel, &interrupts)?;
        let switches = Switches::attach(config, &skel.progs, around)?;
        let flushes = load::attach_flushes(&skel)?;
        let contentions = Contentions::attach(config, &skel.progs)?;
        let traced = load::attach_calls(&skel, config, &mut notes)?;
        let lock_count = skel.maps.lock_slots.max_entries() as usize;
        let locks =
            Mapped::to_clear(&skel.maps.lock_slots, lock_count).map_err(io("mapping the lock table"))?;
        let other_count = skel.maps.other_slots.max_entries() as usize;
        let other_locks =
            Mapped::to_clear(&skel.maps.other_slots, other_count).map_err(io("mapping the lock table"))?;
        let first_count = skel.maps.first_slots.max_entries() as usize;
        let first_waits = Mapped::to_clear(&skel.maps.first_slots, first_count)
            .map_err(io("mapping the waits of who was first"))?;
        let io_count = skel.maps.io_rows.max_entries() as usize;
        let io_rows =
            Mapped::to_clear(&skel.maps.io_rows, io_count).map_err(io("mapping the requests to devices"))?;
        let time_count = skel.maps.time_slots.max_entries() as usize;
        let times =
            Mapped::to_clear(&skel.maps.time_slots, time_count).map_err(io("mapping the time off CPU"))?;
        let request_count = skel.maps.request_slots.max_entries() as usize;
        let request_rows = Mapped::to_clear(&skel.maps.request_slots, request_count)
            .map_err(io("mapping the requests of clients"))?;
        let lengths = Mapped::new(&skel.maps.lengths, cpus).map_err(io("mapping the counts of lengths"))?;
        let length_count = skel.maps.length_slots.max_entries() as usize;
        let length_rows = Mapped::to_clear(&skel.maps.length_slots, length_count)
            .map_err(io("mapping the counts of lengths"))?;
        let calls = Mapped::new(&skel.maps.sleep_calls, cpus).map_err(io("mapping the times of calls"))?;
        let (ring, inbox) = ring::open(&skel.maps.ring, events::decode)?;
        let hits = || {
            Mapped::<ProbeCounts>::new(&skel.maps.probe_hits, cpus).map_err(io("mapping the hits of probes"))
        };
        let per_call = config
            .traces_calls()
            .then(|| Ok::<_, Error>(PerCall::new(traced, hits()?, config.probes)))
            .transpose()?;
        if config.probes == Probes::Off && !config.functions.is_empty() {
            notes.push("--probes off: calls of functions are not followed".into());
        }
        let uprobes = config.traces_programs().then(|| -> Result<Uprobes> {
            let hits = hits()?;
            let slots = Mapped::new(&skel.maps.cpu_slots, cpus).map_err(io("mapping the CPU slots"))?;
            let progs = &skel.progs;
            let programs = Programs {
                go: &progs.go_lock,
                user: &progs.user_lock,
                function: config.traces_functions().then_some(&progs.function_call),
                let_go: &progs.let_goroutines_go,
                forget_calls: config.traces_functions().then_some(&progs.forget_calls),
                multi: load::many_uprobes(),
            };
            Ok(Uprobes::new(config.probes, &programs, hits, slots))
        });
        let uprobes = uprobes.transpose()?;
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
            slots,
            locks,
            other_locks,
            first_waits,
            first_others: 0,
            io_rows,
            times,
            request_rows,
            lengths,
            length_rows,
            length_before: vec![0; lengths::ARRAYS * lengths::BINS],
            calls,
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
            self.iterate(&self.skel.progs.seed_threads)?;
        }
        self.mark(&self.online.cpus);
        // Threads that ended before, some of our own.
        let _ = self.ring.consume();
        self.early = self.inbox.take();
        self.early.retain(|event| matches!(event, Event::Tenant(_)));
        self.start = (0..self.slots.len()).map(|i| self.slots.get(i)).collect();
        // A moment ahead, so that all CPUs know it when it comes.
        self.began = monotonic_ns() + AHEAD;
        if let Some(data) = &mut self.skel.maps.data_data {
            data.observe_from = self.began;
        }
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.observing = 1;
        }
        if let Some(uprobes) = &mut self.uprobes {
            uprobes.begin();
        }
        self.begin_calls();
        self.begin_contentions();
        self.begin_switches();
        Ok(())
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
        let faults = calls && self.skel.progs.page_fault_user.autoload();
        [calls, calls, faults, faults, faults, true, true, true]
    }

    /// Whether signals are counted.
    pub fn counts_signals(&self) -> bool {
        self.skel.progs.signal_deliver.autoload()
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

    /// Returns the events there are now.
    pub fn drain(&mut self) -> Vec<Event> {
        let _ = self.ring.consume();
        let mut events = std::mem::take(&mut self.early);
        events.extend(self.inbox.take());
        if self.gauged.is_some() {
            events.retain(|e| !matches!(e, Event::Exit(thread) if Some(thread.tgid) == self.gauged));
        }
        events
    }

    /// Tells the kernel side what waits for a futex, or those at a place, are for.
    pub fn judge_futex(&self, verdict: &Verdict) {
        let (word, value) = verdict.word.unwrap_or((layout::NO_WORD, 0));
        let mut told = Vec::with_capacity(size_of::<layout::KernelVerdict>());
        [verdict.class as u32, verdict.place, word, 0].iter().for_each(|n| told.extend(n.to_ne_bytes()));
        told.extend(value.to_ne_bytes());
        // A full table leaves the wait one for something unknown.
        let _ = self.skel.maps.verdicts.update(&verdict.key.to_ne_bytes(), &told, libbpf_rs::MapFlags::ANY);
    }

    /// Tells the kernel side of a place where threads go to sleep.
    pub(crate) fn tell_place(&self, place: &Place) {
        let key = [place.chain.to_ne_bytes(), place.which.to_ne_bytes()].concat();
        let mut told = [place.id.to_ne_bytes(), place.fold.to_ne_bytes()].concat();
        place.words.iter().for_each(|word| told.extend(word.to_ne_bytes()));
        // Without room the stack is sent again.
        let _ = self.skel.maps.places.update(&key, &told, libbpf_rs::MapFlags::ANY);
    }

    /// Tells the kernel side where a backend of PostgreSQL, and those that are forked from it, points to the number of what
    /// it waits for.
    pub fn tell_wait_events(&self, tgid: u32, at: u64) {
        let events = &self.skel.maps.wait_events;
        // A full table leaves its locks without names.
        let _ = events.update(&tgid.to_ne_bytes(), &at.to_ne_bytes(), libbpf_rs::MapFlags::ANY);
    }

    /// Tells the kernel side where the frames of a process of Python are.
    pub fn tell_python(&self, tgid: u32, at: &PythonAt) {
        // A full table leaves its functions without names; those that have ended make room.
        let told = layout::python(at);
        let pythons = &self.skel.maps.pythons;
        if pythons.update(&tgid.to_ne_bytes(), &told, libbpf_rs::MapFlags::ANY).is_err() {
            for key in pythons.keys() {
                let pid = key.first_chunk().map_or(0, |k| u32::from_ne_bytes(*k));
                if !Path::new(&format!("/proc/{pid}")).exists() {
                    let _ = pythons.delete(&key);
                }
            }
            let _ = pythons.update(&tgid.to_ne_bytes(), &told, libbpf_rs::MapFlags::ANY);
        }
    }

    /// Forgets where that lies.
    pub fn forget_wait_events(&self, tgid: u32) {
        // It may have been one too many before.
        let _ = self.skel.maps.wait_events.delete(&tgid.to_ne_bytes());
    }

    /// Traces the user locks of a program or library that has static tracepoints for them, and the functions whose calls are
    /// requests, in all present and future processes that run it. Returns the number of probes; most files have none. `program`: a
    /// process runs it.
    ///
    /// # Errors
    /// The file cannot be read or is damaged, or the kernel has no uprobes.
    pub fn trace_file(
        &mut self,
        file: &FileSource,
        path: &Path,
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
        // The kernel reads the instruction, and nothing ends its wait for a file system that does not answer.
        if file.is_remote() && found > 0 {
            return Err("its file system is another process or machine".into());
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

    /// Forgets the waits of goroutines whose process has ended, if goroutines are traced.
    pub fn forget_goroutines(&mut self, living: &[u32]) {
        let Some(uprobes) = &self.uprobes else { return };
        let all = uprobes.goroutines_off();
        let waits = &self.skel.maps.go_waits;
        let over = |key: &Vec<u8>| {
            let wait = waits.lookup(key, libbpf_rs::MapFlags::ANY).ok().flatten()?;
            let tgid = read::<layout::GoWait>(&wait)?.tgid;
            (all || living.binary_search(&tgid).is_err()).then_some(())
        };
        let over: Vec<Vec<u8>> = waits.keys().filter(|key| over(key).is_some()).collect();
        // A wait is subtracted only where it is deleted.
        let gone = over.iter().filter(|key| waits.delete(key).is_ok()).count();
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.judged[Wait::UserLock as usize] -= gone as i32;
        }
    }

    /// Has stacks, futexes and programs sent again that were sent before: user space has forgotten them.
    pub fn send_again(&self) {
        let none = vec![0; self.skel.maps.sent.value_size() as usize];
        for cpu in 0..self.skel.maps.sent.max_entries() {
            // One that stays only keeps names away from a few rows.
            let _ = self.skel.maps.sent.update(&cpu.to_ne_bytes(), &none, libbpf_rs::MapFlags::ANY);
        }
    }

    /// Forgets the verdict of a key.
    pub fn forget_futex(&self, key: u64) {
        // It may have been one too many before.
        let _ = self.skel.maps.verdicts.delete(&key.to_ne_bytes());
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
        (0..self.slots.len()).map(|i| one_in(self.slots.get(i))).max().unwrap_or(1)
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
        (0..self.slots.len()).map(|i| self.slots.get(i).lock_events).sum()
    }

    /// Reads all counters; O(CPUs).
    pub fn snapshot(&self) -> Snapshot {
        let end = self.ended.unwrap_or_else(monotonic_ns);
        let mut snap =
            Snapshot { elapsed: end.saturating_sub(self.began) as f64 / 1e9, ..Snapshot::default() };
        let bss = self.skel.maps.bss_data.as_ref();
        let (epoch, closed) = bss.map_or((0, 0), |bss| (bss.lock_epoch, bss.lock_closed));
        let mut drops = [0u64; 9];
        for cpu in 0..self.slots.len() {
            // The CPU charges time meanwhile: with an old `last` beside a new `at` that time would count twice.
            let now = self.slots.get_whole(cpu, |a, b| (a.last, a.at) == (b.last, b.at));
            // Never seen, or seen once and about to come online again.
            if now.last == 0 && now.at == [0; CpuState::ALL.len()] {
                continue;
            }
            let start = self.start.get(cpu).copied().unwrap_or_default();
            let mut at: [u64; CpuState::ALL.len()] = std::array::from_fn(|i| now.at[i]);
            // The state it is in has not been charged yet.
            if now.last != 0 && self.online.cpus.binary_search(&cpu).is_ok() {
                let since = now.last.max(self.began);
                // A wait that a window's end has cut short.
                let cut = if now.lock_epoch == epoch { end } else { closed.clamp(since, end.max(since)) };
                at[now.now_at() as usize] += cut.saturating_sub(since);
                at[now.after_wait() as usize] += end.saturating_sub(cut.max(since));
            }
            snap.cpus.push((cpu, at));
            snap.struck.0 += now.struck_user - start.struck_user;
            snap.struck.1 += now.struck - start.struck;
            for (i, sum) in snap.runnables.iter_mut().enumerate() {
                let (now, start) = (&now.runnable[i], &start.runnable[i]);
                sum.count += now.count - start.count;
                sum.queued += now.queued - start.queued;
                sum.waking += now.waking - start.waking;
                sum.wakings += now.wakings - start.wakings;
            }
            snap.tlb_sent += now.tlb_sent - start.tlb_sent;
            snap.tlb_received += now.tlb_received - start.tlb_received;
            for (i, (now, start)) in now.irqs.iter().zip(&start.irqs).enumerate() {
                if let Some(source) = interrupts::source(i, now.number) {
                    *snap.interrupts.entry(source).or_default() += interrupts::since(now, start);
                }
            }
            snap.switches += now.switches - start.switches;
            snap.unseen_switches += now.unseen - start.unseen;
            let lost = [
                now.drop_lock,
                now.drop_nest,
                now.drop_task,
                now.drop_ring,
                now.lost_fault_end,
                now.drop_io,
                // Of tenants, which all CPUs count together.
                0,
                now.drop_lengths,
                now.drop_requests,
            ];
            drops.iter_mut().zip(lost).for_each(|(sum, n)| *sum += n);
        }
        if let Some(bss) = &self.skel.maps.bss_data {
            snap.idle = bss.idle_ns;
            snap.woken_idle = bss.woken_idle;
            snap.ticks = bss.leader_ticks;
            let both = |idle: &[u64], time: &[u64]| std::array::from_fn(|i| (idle[i], time[i]));
            snap.busy = both(&bss.busy_idle, &bss.busy_time);
            snap.queued = bss.queue_idle;
            snap.pending = both(&bss.pending.idle, &bss.pending.time);
            snap.runnable = bss.runnable_ns;
            drops[5] += bss.io_left_out + self.unseen_ends;
            drops[6] += bss.tenants_missed;
        }
        let names = [
            "lock waits (lock table full)",
            "lock waits (nested too deeply, or an end missed in an interrupt)",
            "threads (no memory for a record)",
            "stacks and samples (ring buffer full)",
            "fault ends (perf throttled)",
            "requests to devices (tables full, or an end missed in an interrupt)",
            "threads of tenants (no number, or no room in the ring buffer, was free): they count as tenant other",
            "lengths of waits (their table full); their sums are not affected",
            "parts of requests (their table full); the count of requests is not affected",
        ];
        snap.drops = names.into_iter().zip(drops).filter(|(_, n)| *n > 0).collect();
        snap
    }

    /// Takes what was counted since the last call out of the lock tables of all CPUs: kernel locks, user locks
    /// (futexes), stacks off CPU.
    pub fn locks(&mut self) -> Locks {
        let mut sums: HashMap<(u64, u64, u32, u32), LockSlot> = HashMap::new();
        // Nobody writes once it has ended.
        let old = if self.ended.is_some() { self.half() } else { self.turn_over() };
        for table in [&mut self.locks, &mut self.other_locks] {
            let half = table.len() / layout::HALVES;
            let part = half / self.slots.len().max(1);
            // CPUs that nothing ran on have no rows, and there may be many of them.
            let used = |cpu: &usize| {
                let slot = self.slots.get(*cpu);
                slot.last != 0 || slot.switches != 0
            };
            let parts = (0..self.slots.len()).filter(used).map(|cpu| old * half + cpu * part);
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
        for cpu in 0..self.calls.len() {
            let calls = self.calls.get(cpu);
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
