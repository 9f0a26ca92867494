//! Limits of a machine's software and their use: limits of the kernel, of cgroups and of processes.
//!
//! This module only reads. `ncpu_report::limits` computes the needs of a machine of that size.

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

/// The size of a machine, which its limits should match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// CPUs that may ever come online; the kernel sizes its tables by them.
    pub cpus: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// NUMA nodes.
    pub nodes: u64,
    /// Bytes of a page.
    pub page: u64,
}

/// The subject of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Processes and threads.
    Tasks,
    /// Descriptors and the objects behind them.
    Files,
    /// Memory and mappings.
    Memory,
    /// Sockets and the network stack.
    Network,
    /// System V IPC, message queues, keys, terminals.
    Ipc,
    /// Hash tables sized at boot.
    Hashes,
    /// Settings of the kernel's build and boot.
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

/// The unit of a limit's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Objects: tasks, files, sockets, entries.
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

/// The processes that a limit binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All processes.
    Machine,
    /// Each process, represented by the one with the highest use; or only this one.
    Process {
        /// Its pid.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// Each user, represented by the one with the highest use.
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
        /// The index of the limit.
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
    /// Set by the kernel's build.
    Build(&'static str),
    /// The program's own `listen` call, below `net.core.somaxconn`.
    Listen,
    /// Cannot be set: hardware, or a consequence of other limits.
    Fixed,
}

/// A limit, its use and how it is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Its name: a sysctl, a cgroup's file, `RLIMIT_NOFILE`.
    pub limit: String,
    /// Its subject.
    pub area: Area,
    /// The processes that it binds.
    pub scope: Scope,
    /// Its unit.
    pub unit: Unit,
    /// The limit; `None` is unlimited.
    pub value: Option<u64>,
    /// Current use.
    pub used: Option<u64>,
    /// Highest use, if the kernel records it.
    pub peak: Option<u64>,
    /// How often the limit was reached, if the kernel counts that.
    pub hits: Option<u64>,
    /// The limit that would be enough for the load so far, if the kernel's counters show it.
    pub enough: Option<u64>,
    /// A note for the user.
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
    /// Its subject: `timer`, `RCU`, `scheduler`.
    pub about: &'static str,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// The source of the value.
    pub source: String,
}

/// Result of [`Limits::read`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// The machine.
    pub size: Size,
    /// Ticks per second (`CONFIG_HZ`), if known.
    pub hz: Option<u64>,
    /// The limits.
    pub readings: Vec<Reading>,
    /// Stalls for lack of CPU, memory and I/O.
    pub pressure: Vec<Pressure>,
    /// Timer, RCU and scheduler settings.
    pub settings: Vec<Setting>,
    /// Data that could not be read and the reasons, one per line.
    pub unread: Vec<String>,
}

impl Limits {
    /// Reads the machine whose `sys` and `proc` lie below `path` (`/` for the running one).
    ///
    /// # Errors
    /// As [`Topology::read`]. Other data that cannot be read are listed in [`Limits::unread`].
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

/// The results that this module's readers fill.
#[derive(Default)]
pub(crate) struct Found {
    readings: Vec<Reading>,
    pressure: Vec<Pressure>,
    settings: Vec<Setting>,
    unread: Vec<String>,
}

#[cfg(test)]
mod tests;
