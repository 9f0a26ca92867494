//! Configuration of the engine.

use std::time::Duration;

use ncpu_symbols::Patterns;

use super::budget::Probes;
use super::functions::CalledFunction;
use crate::program::Target;

/// Which probes the engine attaches.
#[derive(Clone, Debug)]
pub struct Config {
    /// The threads that count as the program.
    pub target: Target,
    /// Timer samples a second on every CPU; none without.
    pub sample_hz: Option<u32>,
    /// Gather what explains the onion: reasons of idle CPUs (by a timer on one CPU), sleeps with a timeout, limits that
    /// bind, memory and pressure, placement on nodes, hardware counters of user code.
    pub explain: bool,
    /// Registers of user code with each timer sample, by which its time is divided by cause.
    pub registers: bool,
    /// Trace kernel lock contention.
    pub locks: bool,
    /// Locks of every thread, not only the program's.
    pub lock_all: bool,
    /// Trace user locks that have static tracepoints, which are libncpu's: those of the program where one is
    /// observed. This puts breakpoints into the files that have such locks, for all processes that run these
    /// files.
    pub user_locks: bool,
    /// And of all programs where the whole machine is: their debuggers may stumble over breakpoints that are not
    /// theirs.
    pub user_locks_of_all: bool,
    /// Trace interrupts and softirqs.
    pub irqs: bool,
    /// Trace TLB shootdowns.
    pub tlb: bool,
    /// Exact microstates: trace system calls, faults and signals.
    pub micro: bool,
    /// Walk stacks of waits.
    pub stacks: bool,
    /// Patterns of stacks by which the reason of a wait is found.
    pub patterns: Patterns,
    /// Look at idle CPUs as on a machine of this many CPUs: less often, and from one CPU after another. For tests; 0:
    /// the CPUs of this machine.
    pub as_on: usize,
    /// Timer samples a second, on the whole machine, that take a look at all CPUs.
    pub looks: u32,
    /// Numbers of the system calls that are timed, each from entry to return.
    pub latency_of: Vec<u32>,
    /// Follow requests of clients from their arrival to the answer.
    pub requests: bool,
    /// Functions of the program: each call of one is a request. Not with `requests`.
    pub functions: Vec<CalledFunction>,
    /// Read debug information for the source lines of instructions, which may take seconds when the observation ends.
    pub source_lines: bool,
    /// How much the program may be slowed by probes that run at each event.
    pub probes: Probes,
    /// Length of windows in which contentions are counted, and the mean time between their beginnings. For tests [default: by
    /// the budget].
    pub lock_windows: Option<[Duration; 2]>,
    /// Length of windows in which wake-ups are traced, and the mean time between their beginnings. For tests [default: by the
    /// budget].
    pub switch_windows: Option<[Duration; 2]>,
}

impl Config {
    /// All CPUs together are sampled no more often than this a second: what the shares need, and a
    /// cost that does not grow with the machine.
    pub const MAX_SAMPLES: u32 = 20_000;

    /// See [`Config::looks`].
    pub const LOOKS: u32 = 1500;

    /// Everything `ncpu run` needs.
    pub fn onion(target: Target, hz: u32) -> Config {
        Config {
            target,
            sample_hz: Some(hz),
            explain: true,
            registers: true,
            locks: true,
            lock_all: false,
            user_locks: true,
            user_locks_of_all: false,
            irqs: true,
            tlb: true,
            micro: false,
            stacks: true,
            patterns: Patterns::default(),
            as_on: 0,
            looks: Config::LOOKS,
            latency_of: Vec::new(),
            requests: false,
            functions: Vec::new(),
            source_lines: false,
            probes: Probes::default(),
            lock_windows: None,
            switch_windows: None,
        }
    }

    /// Whether static tracepoints of user locks are looked for.
    pub(crate) fn traces_user_locks(&self) -> bool {
        self.probes != Probes::Off
            && self.user_locks
            && (self.target != Target::All || self.user_locks_of_all)
    }

    /// Whether calls of functions of the program are followed.
    pub(crate) fn traces_functions(&self) -> bool {
        self.probes != Probes::Off && !self.functions.is_empty()
    }

    /// Whether there are probes in programs.
    pub(crate) fn traces_programs(&self) -> bool {
        self.traces_user_locks() || self.traces_functions()
    }

    /// Whether calls, faults and signals are traced.
    pub(crate) fn counts_signals(&self) -> bool {
        self.probes != Probes::Off && self.explain
    }

    pub(crate) fn traces_calls(&self) -> bool {
        self.probes != Probes::Off && self.micro
    }

    /// Whether contentions of kernel locks are traced.
    pub(crate) fn traces_kernel_locks(&self) -> bool {
        self.probes != Probes::Off && self.locks
    }

    /// Whether to account by tenant: where the whole machine is observed and its onion is wanted.
    pub(crate) fn tells_tenants(&self) -> bool {
        self.explain && self.target == Target::All
    }

    /// Whether requests to block devices are traced.
    pub(crate) fn traces_requests(&self) -> bool {
        self.probes != Probes::Off && self.explain
    }

    /// The sampling rate for a machine of this many CPUs.
    pub fn rate_for(&self, cpus: usize, hz: u32) -> u32 {
        hz.min(Self::MAX_SAMPLES / cpus.max(1) as u32).max(1)
    }
}
