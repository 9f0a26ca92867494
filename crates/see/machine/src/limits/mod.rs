//! What a machine's software may use at most, against what it uses: limits of the kernel, of
//! cgroups and of processes.
//!
//! This only reads. `ncpu_report::limits` says what a machine of that size needs.

use std::path::Path;

use crate::root::Dir;
use crate::{Result, Topology};

mod boot;
mod cgroup;
mod files;
mod mounts;
mod pools;
mod pressure;
mod process;
pub mod room;
mod sockets;
mod sysctl;
pub mod throttle;

pub use boot::parse_boot_log;
pub use mounts::Mounts;
pub use pressure::{Pressure, parse as parse_pressure};
pub use process::parse_rlimits;

use files::Files;

/// How large a machine is: what its limits should follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// CPUs that may ever come online; what the kernel sizes its tables by.
    pub cpus: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// NUMA nodes.
    pub nodes: u64,
    /// Bytes of a page.
    pub page: u64,
}

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Processes and threads.
    Tasks,
    /// Descriptors and what they stand for.
    Files,
    /// Memory and mappings.
    Memory,
    /// Sockets and the network stack.
    Network,
    /// System V IPC, message queues, keys, terminals.
    Ipc,
    /// Hash tables sized at boot.
    Hashes,
    /// What the kernel was built or booted for.
    Kernel,
    /// Pools of huge pages.
    HugePages,
    /// Control groups.
    Cgroups,
    /// Limits of a process (`RLIMIT_*`).
    Processes,
}

impl Area {
    /// Every area, in the order of the report.
    pub const ALL: [Area; 10] = [
        Area::Tasks,
        Area::Files,
        Area::Memory,
        Area::Network,
        Area::Ipc,
        Area::Hashes,
        Area::Kernel,
        Area::HugePages,
        Area::Cgroups,
        Area::Processes,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Area::Tasks => "tasks",
            Area::Files => "files",
            Area::Memory => "memory",
            Area::Network => "network",
            Area::Ipc => "ipc",
            Area::Hashes => "hash tables",
            Area::Kernel => "kernel",
            Area::HugePages => "huge pages",
            Area::Cgroups => "cgroups",
            Area::Processes => "processes",
        }
    }
}

/// What the numbers of a limit count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things: tasks, files, sockets, entries.
    Count,
    /// Bytes.
    Bytes,
    /// KiB.
    KiB,
    /// Pages of [`Size::page`] bytes.
    Pages,
    /// Thousandths of a CPU.
    MilliCpus,
    /// Jiffies.
    Jiffies,
}

/// Whom a limit binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everybody.
    Machine,
    /// Each process, represented by the one that uses most; or only this one.
    Process {
        /// Its pid.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// Each user, represented by the one that uses most.
    User(u32),
    /// A control group, by its path below the mount.
    Cgroup(String),
    /// Memory of a NUMA node.
    Node(u32),
    /// A listening socket: address and port.
    Listener(String),
}

/// How a limit is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Knob {
    /// A sysctl of one number, by its name.
    Sysctl(&'static str),
    /// One of several numbers of a sysctl.
    Field {
        /// The sysctl.
        name: &'static str,
        /// All of its numbers.
        all: Vec<u64>,
        /// Which is the limit.
        at: usize,
    },
    /// A file to write a number to.
    File(String),
    /// A cgroup's CPU bandwidth in cgroup v2: the file and its period in µs.
    CpuMax(String, u64),
    /// The same in cgroup v1 (`cpu.cfs_quota_us`).
    CpuQuota(String, u64),
    /// A limit of a process.
    Prlimit {
        /// The process.
        pid: u32,
        /// `prlimit`'s word for the limit.
        option: &'static str,
        /// The hard limit, above which only root may set it; `None` is unlimited.
        hard: Option<u64>,
    },
    /// A parameter on the kernel's command line.
    Boot(&'static str),
    /// The kernel must be built otherwise.
    Build(&'static str),
    /// The program's own `listen` call, below `net.core.somaxconn`.
    Listen,
    /// Nothing sets it: hardware, or what follows from other limits.
    Fixed,
}

/// A limit, what is used of it and how it is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Its name: a sysctl, a cgroup's file, `RLIMIT_NOFILE`.
    pub limit: String,
    /// What it is about.
    pub area: Area,
    /// Whom it binds.
    pub scope: Scope,
    /// What its numbers count.
    pub unit: Unit,
    /// The limit; `None` is none.
    pub value: Option<u64>,
    /// How much of it is used now.
    pub used: Option<u64>,
    /// The most that was used, where the kernel keeps that.
    pub peak: Option<u64>,
    /// How often the limit was reached, where the kernel counts that.
    pub hits: Option<u64>,
    /// What would be enough for what ran so far, where the kernel's counters tell that.
    pub enough: Option<u64>,
    /// What else a reader should know.
    pub note: Option<String>,
    /// How it is set.
    pub knob: Knob,
}

impl Reading {
    /// A limit of the machine of which only the value is known.
    pub(crate) fn new(
        limit: impl Into<String>,
        area: Area,
        unit: Unit,
        value: Option<u64>,
        knob: Knob,
    ) -> Reading {
        Reading {
            limit: limit.into(),
            area,
            scope: Scope::Machine,
            unit,
            value,
            used: None,
            peak: None,
            hits: None,
            enough: None,
            note: None,
            knob,
        }
    }

    pub(crate) fn scope(mut self, scope: Scope) -> Reading {
        self.scope = scope;
        self
    }

    pub(crate) fn used(mut self, used: Option<u64>) -> Reading {
        self.used = used;
        self
    }

    pub(crate) fn peak(mut self, peak: Option<u64>) -> Reading {
        self.peak = peak;
        self
    }

    pub(crate) fn hits(mut self, hits: Option<u64>) -> Reading {
        self.hits = hits;
        self
    }

    pub(crate) fn note(mut self, note: Option<String>) -> Reading {
        self.note = note;
        self
    }
}

/// A setting that is not a limit, but matters on a large machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What it is about: `timer`, `RCU`, `scheduler`.
    pub about: &'static str,
    /// Its name.
    pub name: String,
    /// What it is set to.
    pub value: String,
    /// Where that was read.
    pub source: String,
}

/// Everything [`Limits::read`] found.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The machine.
    pub size: Size,
    /// Ticks a second (`CONFIG_HZ`), where that can be known.
    pub hz: Option<u64>,
    /// The limits.
    pub readings: Vec<Reading>,
    /// Stalls for want of CPU, memory and I/O.
    pub pressure: Vec<Pressure>,
    /// Timer, RCU and scheduler settings.
    pub settings: Vec<Setting>,
    /// What could not be read and why, a line each.
    pub unread: Vec<String>,
}

impl Limits {
    /// Reads the machine whose `sys` and `proc` lie below `path` (`/` for the running one).
    ///
    /// # Errors
    /// As [`Topology::read`]. What else cannot be read becomes [`Limits::unread`].
    pub fn read(path: &Path) -> Result<Limits> {
        let live = path.canonicalize().is_ok_and(|p| p == Path::new("/"));
        let topology = Topology::read(path)?;
        let dir = Dir::root(path)?;
        let files = Files::new(&dir, live);
        let meminfo = files.text("proc/meminfo").unwrap_or_default();
        let memory =
            files::field(&meminfo, "MemTotal:").map_or(topology.memory(), |kib| kib.saturating_mul(1024));
        let size = Size {
            cpus: topology.possible.len().max(topology.ncpu()).max(1) as u64,
            memory,
            nodes: topology.nodes.len().max(1) as u64,
            page: if live { rustix::param::page_size() as u64 } else { 4096 },
        };
        let mut found = Found::default();
        let processes = process::scan(&files, &mut found);
        sysctl::read(&files, &meminfo, &processes, size, &mut found);
        sockets::read(&files, &mut found);
        pools::read(&files, size, &mut found);
        cgroup::read(&files, size, &mut found);
        let hz = boot::read(&files, size, &mut found);
        pressure::read(&files, &mut found);
        found.unread.extend(files.denied());
        Ok(Limits {
            size,
            hz,
            readings: found.readings,
            pressure: found.pressure,
            settings: found.settings,
            unread: found.unread,
        })
    }
}

/// What the readers of this module fill.
#[derive(Default)]
pub(crate) struct Found {
    readings: Vec<Reading>,
    pressure: Vec<Pressure>,
    settings: Vec<Setting>,
    unread: Vec<String>,
}

#[cfg(test)]
mod tests;
