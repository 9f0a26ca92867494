//! On machines of several NUMA nodes: where the program's memory lies while it runs.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use ncpu_table::Table;

use crate::numa::{Config, Numa, Scope};

/// The first look at a program comes this soon: most end before the second.
const FIRST: Duration = Duration::from_millis(100);
/// Looks take at most one part in this many of all CPUs' time …
const COST: u32 = 50;
/// … and of the time of the one CPU it is done on, while the program's mmap_lock is held.
const OWN_COST: u32 = 4;

/// Looks at the processes with most CPU time, now and then.
#[derive(Default)]
pub(super) struct Placement {
    numa: Option<Numa>,
    next: Option<Instant>,
    pause: Duration,
    /// Processes of the program since the last look, ended ones too.
    pids: HashSet<u32>,
}

impl Placement {
    /// Begins charging CPU time to nodes if there are several; also returns a note on missing parts.
    pub fn begin() -> (Placement, Option<String>) {
        let nodes = std::fs::read_to_string(Path::new("/sys/devices/system/node/has_memory"));
        let many = nodes.is_ok_and(|n| n.contains([',', '-']));
        if !many {
            return (Placement::default(), None);
        }
        let config = Config {
            most: Some(8),
            huge: false,
            probe: false,
            sample_above: 16 << 30,
            ..Config::of(Scope::Processes(Vec::new()))
        };
        match Numa::begin(config) {
            Ok(numa) => {
                let next = Some(Instant::now() + FIRST);
                let placement = Placement { numa: Some(numa), next, pause: FIRST, pids: HashSet::new() };
                (placement, None)
            }
            Err(e) => (Placement::default(), Some(format!("where memory lies is not known: {e}"))),
        }
    }

    /// Whether a look is due; sooner at first, later where looking takes long.
    pub fn due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| now >= next)
    }

    /// Whether there is anything to look at.
    pub fn on(&self) -> bool {
        self.numa.is_some()
    }

    /// Learns of a process of the program.
    pub fn met(&mut self, pid: u32) {
        if self.numa.is_some() {
            self.pids.insert(pid);
        }
    }

    /// Looks; `interval` is how often at most, once the beginning is over.
    pub fn look(&mut self, interval: Duration) -> Vec<Table> {
        let Some(numa) = &mut self.numa else { return Vec::new() };
        let began = Instant::now();
        // Living processes are registered again before the next look.
        let tables = numa.look_at(std::mem::take(&mut self.pids).into_iter().collect());
        let cpus = numa.topology().ncpu().max(1) as u32;
        self.pause = (self.pause * 2).min(interval).max(began.elapsed() * OWN_COST.max(COST / cpus));
        self.next = Some(Instant::now() + self.pause);
        tables
    }

    /// Notes on missing parts.
    pub fn notes(&self) -> &[String] {
        self.numa.as_ref().map_or(&[], |n| n.notes())
    }
}
