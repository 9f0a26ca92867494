//! The engine behind `run`, `watch`, `locks` and `threads`: attaches the BPF programs of
//! `src/bpf/engine.bpf.c`, reads what they count, and tells what could not be had.
//!
//! Nothing is copied out of the kernel an event at a time but stacks seen for the first time, timer
//! samples and threads that end; the rest is counters that [`Engine::snapshot`] reads by mmap.

mod config;
pub(crate) mod events;
mod hotplug;
pub(crate) mod load;
pub(crate) mod mmap;
pub(crate) mod perf;
pub(crate) mod raw;
mod usdt;

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::{Iter, Link, MapCore, RingBuffer, UprobeOpts};

pub use config::{Config, Target};
pub use events::{Event, Stack};
pub use raw::{IDLE, MICRO, ThreadOut, USER_LOCK, WAIT, WHERE, Where};

use mmap::Mapped;
use raw::{CpuSlot, LockSlot};

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unused)]
pub(crate) mod skel {
    include!(concat!(env!("OUT_DIR"), "/engine.skel.rs"));
}

/// How far ahead the ends of the observed time are set, nanoseconds.
const AHEAD: u64 = 20_000;

/// What stops an observation before it begins.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// BPF needs privileges.
    #[error(
        "observing the kernel needs root (or CAP_BPF and CAP_PERFMON): run with sudo; without it there are `ncpu topology` and `ncpu cpus`"
    )]
    NotPermitted,
    /// CO-RE needs the kernel's types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux): observing needs one built with CONFIG_DEBUG_INFO_BTF, as every distribution's since 2021 is"
    )]
    NoBtf,
    /// A tracepoint that everything rests on.
    #[error("this kernel has no tracepoint {0}, which every observation rests on")]
    NoTracepoint(&'static str),
    /// The cgroup cannot be found.
    #[error(
        "cgroup {path}: {source}; give a path below the cgroup v2 mount, such as system.slice/postgresql.service"
    )]
    Cgroup {
        /// The path tried.
        path: String,
        /// Why it cannot be used.
        source: std::io::Error,
    },
    /// libbpf refused.
    #[error("{doing}: {source}")]
    Bpf {
        /// What was being done.
        doing: &'static str,
        /// libbpf's own words.
        source: libbpf_rs::Error,
    },
    /// The kernel refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's own words.
        source: std::io::Error,
    },
}

/// A result of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One lock's waits by one process, from one place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockRow {
    /// Address of the lock (of the futex word for user locks).
    pub lock: u64,
    /// 0 where the row is exact; the stack's identity where it counts walked waits only.
    pub stack: u64,
    /// The waiting process.
    pub tgid: u32,
    /// The tracepoint's flags (`LCB_F_*`).
    pub flags: u32,
    /// Waits that ended.
    pub count: u64,
    /// ns spent waiting on CPU.
    pub spin: u64,
    /// ns spent waiting off CPU.
    pub block: u64,
    /// ns of the longest wait.
    pub max: u64,
    /// The thread most of the waiting is blamed on (user locks).
    pub holder: u32,
    /// Futex operation, `FUTEX_PRIVATE_FLAG << 8`, class << 16 (user locks).
    pub futex: u32,
    /// Waits ended by a waker (user locks).
    pub wakes: u64,
}

/// Everything counted since the observation began.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Seconds since the observation began.
    pub elapsed: f64,
    /// Per CPU that was seen: its number and ns by [`Where`].
    pub cpus: Vec<(usize, [u64; WHERE])>,
    /// ns of idle CPUs by what they were idle for ([`IDLE`]), by the leader's timer.
    pub idle: [u64; 6],
    /// Ticks of the leader's timer.
    pub ticks: u64,
    /// ns that threads stood on run queues, summed.
    pub runnable: u64,
    /// TLB shootdowns sent.
    pub tlb_sent: u64,
    /// TLB shootdowns answered.
    pub tlb_received: u64,
    /// Interrupts handled.
    pub irqs: u64,
    /// Softirqs handled.
    pub softirqs: u64,
    /// Context switches.
    pub switches: u64,
    /// Switches the kernel did not trace, found out at the next event.
    pub unseen_switches: u64,
    /// What was dropped, and how often: never silent.
    pub drops: Vec<(&'static str, u64)>,
}

/// Everything attached; detaches when dropped.
pub struct Engine {
    skel: Box<skel::EngineSkel<'static>>,
    /// Held, for they detach when dropped.
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    inbox: events::Inbox,
    slots: Mapped<CpuSlot>,
    locks: Mapped<LockSlot>,
    start: Vec<CpuSlot>,
    began: u64,
    ended: Option<u64>,
    notes: Vec<String>,
    hz: u32,
    /// Whether the end of faults is watched.
    micro: bool,
    /// The CPUs online at the last look.
    online: Vec<usize>,
    /// CPUs that came or went since the observation began.
    changed: BTreeSet<u32>,
    /// The timers of each CPU.
    timers: HashMap<usize, Vec<Link>>,
    lead: Option<Link>,
    leader: Option<usize>,
}

pub(crate) fn monotonic_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Engine {
    /// Loads and attaches what `config` asks for and the kernel has. Counting begins with
    /// [`Engine::begin`].
    ///
    /// # Errors
    /// No privileges, no BTF, no `sched_switch`; what else is missing is told by
    /// [`Engine::notes`] and left out.
    pub fn attach(config: &Config) -> Result<Engine> {
        let mut notes = Vec::new();
        crate::libbpf_log::keep();
        // One engine a process: its object lives until the process ends.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut skel = load::load(config, storage, &mut notes)?;
        let links = load::attach(&mut skel, config, &mut notes)?;
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|source| Error::Bpf { doing: "counting possible CPUs", source })?;
        let io = |doing| move |source| Error::Io { doing, source };
        let slots = Mapped::new(&skel.maps.cpu_slots, cpus).map_err(io("mapping the CPU slots"))?;
        let lock_count = skel.maps.lock_slots.max_entries() as usize;
        let locks = Mapped::new(&skel.maps.lock_slots, lock_count).map_err(io("mapping the lock table"))?;
        let (ring, inbox) = events::ring(&skel.maps.ring)
            .map_err(|source| Error::Bpf { doing: "opening the ring buffer", source })?;
        Ok(Engine {
            skel: Box::new(skel),
            links,
            ring,
            inbox,
            slots,
            locks,
            start: Vec::new(),
            began: 0,
            ended: None,
            notes,
            hz: 0,
            micro: false,
            online: Vec::new(),
            changed: BTreeSet::new(),
            timers: HashMap::new(),
            lead: None,
            leader: None,
        })
    }

    /// Starts the timers, then counting: attaching is left out of what is observed.
    ///
    /// # Errors
    /// The sampling timers cannot be opened.
    pub fn begin(&mut self, config: &Config) -> Result<()> {
        let online = perf::online_cpus();
        if let Some(hz) = config.sample_hz {
            self.hz = config.rate_for(online.len(), hz);
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
        self.online = online;
        // From now on; the events that end faults have been attached with the tracepoints.
        self.micro = config.micro;
        if let (true, Some(&first)) = (config.leader, self.online.first())
            && let Err(e) = self.lead(first)
        {
            self.notes.push(format!("idle CPUs are not explained: {e}"));
        }
        if config.micro {
            // Threads that sleep through the first interval must be known to have slept.
            self.iterate(&self.skel.progs.seed_threads)?;
        }
        self.mark(&self.online);
        self.start = (0..self.slots.len()).map(|i| self.slots.get(i)).collect();
        // A moment ahead, so that all CPUs know it when it comes.
        self.began = monotonic_ns() + AHEAD;
        if let Some(data) = &mut self.skel.maps.data_data {
            data.observe_from = self.began;
        }
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.observing = 1;
        }
        Ok(())
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
        self.mark(&perf::online_cpus());
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.observing = 0;
        }
    }

    /// Makes every CPU charge its time up to now.
    fn mark(&self, cpus: &[usize]) {
        for &cpu in cpus {
            let input = libbpf_rs::ProgramInput {
                cpu: cpu as u32,
                flags: 1, // BPF_F_TEST_RUN_ON_CPU
                ..Default::default()
            };
            // A CPU that has just gone offline is charged up to its last event instead.
            let _ = self.skel.progs.mark.test_run(input);
        }
    }

    /// What is missing on this machine, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
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
        self.inbox.take()
    }

    /// Tells the kernel side what kind of futex an address is: 1 a lock, 2 a semaphore, 3 a condition.
    pub fn judge_futex(&self, tgid: u32, address: u64, class: u32) {
        let key = ((u64::from(tgid) << 48) ^ address).to_ne_bytes();
        // A full table only leaves the kernel's own guess in place.
        let _ = self.skel.maps.verdicts.update(&key, &class.to_ne_bytes(), libbpf_rs::MapFlags::ANY);
    }

    /// Traces the user locks of a program or library whose static tracepoints tell of their waits, in all
    /// processes that run it or will. The number of tracepoints; most files have none.
    ///
    /// # Errors
    /// The file cannot be read or is damaged, or the kernel has no uprobes.
    pub fn trace_user_locks(&mut self, file: &Path) -> Result<usize, String> {
        let probes = usdt::probes(file)?;
        let program = &self.skel.progs.user_lock;
        if !program.autoload() {
            return Ok(0);
        }
        for probe in &probes {
            let opts = UprobeOpts {
                ref_ctr_offset: probe.semaphore as usize,
                cookie: probe.cookie,
                ..UprobeOpts::default()
            };
            let link = program.attach_uprobe_with_opts(-1, file, probe.offset as usize, opts);
            self.links.push(link.map_err(|e| format!("attaching to {}: {e}", probe.name))?);
        }
        Ok(probes.len())
    }

    /// Walks one stack in `every` (a power of two) contentions, and off-CPU waits, from now on.
    pub fn walk_every(&mut self, locks: u32, off_cpu: u32) {
        if let Some(data) = &mut self.skel.maps.data_data {
            data.lock_walk_mask = locks.next_power_of_two() - 1;
        }
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.off_walk_mask = off_cpu.next_power_of_two() - 1;
        }
    }

    /// Contentions begun so far, to tune [`Engine::walk_every`] by.
    pub fn lock_events(&self) -> u64 {
        (0..self.slots.len()).map(|i| self.slots.get(i).lock_events).sum()
    }

    /// Reads all counters; O(CPUs).
    pub fn snapshot(&self) -> Snapshot {
        let end = self.ended.unwrap_or_else(monotonic_ns);
        let mut snap =
            Snapshot { elapsed: end.saturating_sub(self.began) as f64 / 1e9, ..Snapshot::default() };
        let mut drops = [0u64; 5];
        for cpu in 0..self.slots.len() {
            let now = self.slots.get(cpu);
            // Never seen, or seen once and about to come online again.
            if now.last == 0 && now.at == [0; WHERE] {
                continue;
            }
            let start = self.start.get(cpu).copied().unwrap_or_default();
            let mut at: [u64; WHERE] = std::array::from_fn(|i| now.at[i]);
            // The state it is in has not been charged yet.
            if now.last != 0 && self.online.binary_search(&cpu).is_ok() {
                at[now.now_at() as usize] += end.saturating_sub(now.last.max(self.began));
            }
            snap.cpus.push((cpu, at));
            snap.tlb_sent += now.tlb_sent - start.tlb_sent;
            snap.tlb_received += now.tlb_received - start.tlb_received;
            snap.irqs += now.irqs - start.irqs;
            snap.softirqs += now.softirqs - start.softirqs;
            snap.switches += now.switches - start.switches;
            snap.unseen_switches += now.unseen - start.unseen;
            let lost = [now.drop_lock, now.drop_nest, now.drop_task, now.drop_ring, now.lost_fault_end];
            drops.iter_mut().zip(lost).for_each(|(sum, n)| *sum += n);
        }
        if let Some(bss) = &self.skel.maps.bss_data {
            snap.idle = bss.idle_ns;
            snap.ticks = bss.leader_ticks;
            snap.runnable = bss.runnable_ns;
        }
        let names = [
            "lock waits (lock table full)",
            "lock waits (nested too deeply, or an end missed in an interrupt)",
            "threads (no memory for a record)",
            "stacks and samples (ring buffer full)",
            "fault ends (perf throttled)",
        ];
        snap.drops = names.into_iter().zip(drops).filter(|(_, n)| *n > 0).collect();
        snap
    }

    /// Sums the lock tables of all CPUs: kernel locks, user locks (futexes), stacks off CPU.
    pub fn locks(&self) -> Locks {
        let mut sums: HashMap<(u64, u64, u32, u32), (LockRow, u64)> = HashMap::new();
        for i in 0..self.locks.len() {
            if self.locks.first_word(i) == 0 {
                continue;
            }
            let s = self.locks.get(i);
            let (row, vote) = sums.entry((s.lock, s.stack, s.tgid, s.kind)).or_default();
            row.count += s.count;
            // Where only some waits were timed, they stand for all.
            row.spin += (s.spin as f64 * s.count as f64 / s.timed.max(1) as f64) as u64;
            row.block += s.block;
            row.max = row.max.max(s.max);
            row.wakes += s.wakes;
            row.futex = row.futex.max(s.futex);
            // The majority vote of each CPU is joined by weight.
            if row.holder == s.holder {
                *vote += s.vote;
            } else if *vote < s.vote {
                row.holder = s.holder;
                *vote = s.vote - *vote;
            } else {
                *vote -= s.vote;
            }
        }
        let mut locks = Locks::default();
        for ((lock, stack, tgid, kind), (mut row, _)) in sums {
            (row.lock, row.stack, row.tgid) = (lock, stack, tgid);
            if kind & raw::KIND_FUTEX != 0 {
                locks.user.push(row);
            } else if kind & raw::KIND_USER != 0 {
                row.flags = kind & 0xff;
                locks.traced.push(row);
            } else if kind & raw::KIND_SLEEP != 0 {
                row.lock = lock.saturating_sub(1);
                locks.sleeps.push(row);
            } else if kind & raw::KIND_OFF != 0 {
                row.flags = kind & 0xff;
                locks.off_cpu.push(row);
            } else {
                row.flags = kind;
                locks.kernel.push(row);
            }
        }
        locks
    }

    /// ns asleep by system call number, since attaching.
    pub fn sleep_calls(&self) -> Vec<(u32, u64)> {
        let map = &self.skel.maps.sleep_calls;
        (0..map.max_entries())
            .filter_map(|nr| {
                let rows = map.lookup_percpu(&nr.to_ne_bytes(), libbpf_rs::MapFlags::ANY).ok()??;
                let sum: u64 =
                    rows.iter().filter_map(|r| Some(u64::from_ne_bytes(r.get(..8)?.try_into().ok()?))).sum();
                (sum > 0).then_some((nr, sum))
            })
            .collect()
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
        Ok(bytes.chunks_exact(size_of::<ThreadOut>()).filter_map(raw::read).collect())
    }
}

impl ThreadOut {
    /// The thread's name.
    pub fn name(&self) -> String {
        raw::comm(&self.comm)
    }

    /// The process's name.
    pub fn process(&self) -> String {
        raw::comm(&self.group)
    }
}

/// The lock tables, summed over CPUs.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// Kernel locks.
    pub kernel: Vec<LockRow>,
    /// Futexes.
    pub user: Vec<LockRow>,
    /// User locks with static tracepoints; `flags` is the index into [`USER_LOCK`].
    pub traced: Vec<LockRow>,
    /// Time off CPU by stack; `flags` is the index into [`WAIT`].
    pub off_cpu: Vec<LockRow>,
    /// Sleeps with a timeout; `lock` is the number of the call, `spin` the time asked for, `block` the time
    /// slept, `wakes` the threads.
    pub sleeps: Vec<LockRow>,
}
