//! What to observe.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Error, Result};

/// Whose threads count as the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every thread of the machine but `ncpu`'s own.
    All,
    /// A process, its threads and all it starts.
    Tree(u32),
    /// A cgroup (v2) and those below it.
    Cgroup {
        /// The cgroup directory's inode, which is the cgroup's id.
        id: u64,
        /// Its depth below the root of the hierarchy.
        level: u32,
    },
}

impl Target {
    /// The cgroup at `path`: absolute, or below the cgroup v2 mount.
    ///
    /// # Errors
    /// No cgroup v2 is mounted, or there is no such directory in it.
    pub fn cgroup(path: &str) -> Result<Target> {
        let mount = cgroup2_mount().ok_or_else(|| Error::Cgroup {
            path: path.into(),
            source: std::io::Error::other("no cgroup v2 hierarchy is mounted"),
        })?;
        let dir = if Path::new(path).starts_with(&mount) {
            PathBuf::from(path)
        } else {
            mount.join(path.trim_start_matches('/'))
        };
        let meta = std::fs::metadata(&dir)
            .map_err(|source| Error::Cgroup { path: dir.display().to_string(), source })?;
        let below = dir.strip_prefix(&mount).unwrap_or(&dir);
        Ok(Target::Cgroup { id: meta.ino(), level: below.components().count() as u32 })
    }

    /// The settings of `target.h`: all, the process, the cgroup and its level.
    pub(crate) fn settings(&self) -> (u32, u32, u64, u32) {
        match *self {
            Target::All => (1, 0, 0, 0),
            Target::Tree(pid) => (0, pid, 0, 0),
            Target::Cgroup { id, level } => (0, 0, id, level),
        }
    }
}

fn cgroup2_mount() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_, dir, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(dir))
    })
}

/// What the engine attaches.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whose threads count as the program.
    pub target: Target,
    /// Timer samples a second on every CPU; none without.
    pub sample_hz: Option<u32>,
    /// Explain idle CPUs by a timer on one CPU.
    pub leader: bool,
    /// Trace kernel lock contention.
    pub locks: bool,
    /// Locks of every thread, not only the program's.
    pub lock_all: bool,
    /// Trace user locks that have static tracepoints, libncpu's.
    pub user_locks: bool,
    /// Trace interrupts and softirqs.
    pub irqs: bool,
    /// Trace TLB shootdowns.
    pub tlb: bool,
    /// Exact microstates: trace system calls, faults and signals.
    pub micro: bool,
    /// Walk stacks of waits.
    pub stacks: bool,
}

impl Config {
    /// All CPUs together are sampled no more often than this a second: what the shares need, and a
    /// cost that does not grow with the machine.
    pub const MAX_SAMPLES: u32 = 20_000;

    /// Everything `ncpu run` needs.
    pub fn onion(target: Target, hz: u32) -> Config {
        Config {
            target,
            sample_hz: Some(hz),
            leader: true,
            locks: true,
            lock_all: false,
            user_locks: true,
            irqs: true,
            tlb: true,
            micro: false,
            stacks: true,
        }
    }

    /// The sampling rate for so many CPUs.
    pub fn rate_for(&self, cpus: usize, hz: u32) -> u32 {
        hz.min(Self::MAX_SAMPLES / cpus.max(1) as u32).max(1)
    }
}
