//! Whether the program's threads were held back by the CPU bandwidth of their cgroups.
//!
//! A throttled thread is runnable and its CPU idle, so it counts as waiting on a run queue; only the
//! cgroup's `cpu.stat` tells that no scheduler could have run it. Costs a read of /proc/PID/cgroup for
//! each new process and one of `cpu.stat` for each of their groups, an interval.

use std::collections::HashMap;
use std::path::Path;

use ncpu_machine::limits::throttle::{Bandwidth, Hierarchy};
use ncpu_schema::throttling;
use ncpu_table::Table;

use crate::bpf_support::namespace;
use crate::program::Target;

/// How often a process is looked at: it may be put into a group after it was started (`systemd-run
/// --scope`, a container), but hardly later.
const LOOKS: u8 = 4;

/// Which processes are to be looked at.
#[derive(Default)]
pub(super) struct Looks(HashMap<u32, u8>);

impl Looks {
    /// Of the processes that live now those that were not looked at often enough. Those that ended are
    /// forgotten: their numbers come again.
    pub fn due(&mut self, living: impl Iterator<Item = u32>) -> Vec<u32> {
        let seen = |pid: u32| (pid, self.0.get(&pid).map_or(1, |n| n.saturating_add(1)));
        self.0 = living.map(seen).collect();
        self.0.iter().filter(|(_, looks)| **looks <= LOOKS).map(|(pid, _)| *pid).collect()
    }
}

/// The groups the program's processes are in, and those above them.
#[derive(Default)]
pub(crate) struct Throttle {
    /// `None` where there is no CPU controller.
    hierarchy: Option<Hierarchy>,
    processes: Looks,
    groups: HashMap<String, Bandwidth>,
}

impl Throttle {
    /// Begins with the process that is observed, whose group is known before it runs.
    pub fn begin(target: &Target) -> Throttle {
        let hierarchy = Hierarchy::find(Path::new("/"), "cpu").unwrap_or_default();
        let mut out = Throttle { hierarchy, ..Throttle::default() };
        if let Target::Tree(pid) = target {
            out.met(std::iter::once(*pid));
        }
        out
    }

    /// Takes note of the groups of the processes that live now.
    pub fn met(&mut self, living: impl Iterator<Item = u32>) {
        let Some(hierarchy) = self.hierarchy.as_ref().filter(|_| !namespace::is_own()) else { return };
        for pid in self.processes.due(living) {
            let Some(group) = hierarchy.group_of(pid) else { continue };
            for group in chain(&group) {
                // What a group counted before it was seen was not of this program, or not of now.
                if !self.groups.contains_key(group)
                    && let Some((_, now)) = hierarchy.read(group)
                {
                    self.groups.insert(group.into(), now);
                }
            }
        }
    }

    /// What the groups' limits did since the last table.
    pub fn table(&mut self, t: f64) -> Table {
        let mut out = throttling::Rows::new();
        let Some(hierarchy) = &self.hierarchy else { return out.finish() };
        let mut names: Vec<String> = self.groups.keys().cloned().collect();
        names.sort_unstable();
        for name in names {
            let Some((limit, now)) = hierarchy.read(&name) else {
                self.groups.remove(&name);
                continue;
            };
            let before = self.groups.insert(name.clone(), now).unwrap_or_default();
            let new = now.since(before);
            if new.throttled > 0 || new.throttled_us > 0 {
                out.push(throttling::Row {
                    time: Some(t),
                    cgroup: (&name).into(),
                    limit: hierarchy.limit().into(),
                    lift: hierarchy.remedy(&name).into(),
                    allowed: limit.map(|milli| milli as f64 / 1000.0),
                    periods: Some(new.periods),
                    throttled: Some(new.throttled),
                    held: Some(new.throttled_us as f64 / 1e6),
                });
            }
        }
        out.finish()
    }
}

/// A group and those above it, the root last: `/a/b`, `/a`, `/`.
pub(super) fn chain(group: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(group), |g| {
        if *g == "/" || g.is_empty() {
            return None;
        }
        g.rsplit_once('/').map(|(above, _)| if above.is_empty() { "/" } else { above })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_above() {
        assert_eq!(chain("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(chain("/").collect::<Vec<_>>(), ["/"]);
        assert_eq!(chain("/../x").collect::<Vec<_>>(), ["/../x", "/..", "/"]);
        assert_eq!(chain("odd").collect::<Vec<_>>(), ["odd"]);
    }
}
