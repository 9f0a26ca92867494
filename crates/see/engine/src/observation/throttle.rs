//! CPU time by control group, and whether the program's threads were held back by the CPU bandwidth of their cgroups.
//!
//! A throttled thread is runnable and its CPU idle, so it counts as waiting on a run queue; only the
//! cgroup's `cpu.stat` tells that no scheduler could have run it. Costs a read of /proc/PID/cgroup for
//! each new process and one of `cpu.stat` for each of their groups, an interval (with cgroup v1 one of `cpuacct.usage` too).

use std::collections::HashMap;
use std::path::Path;

use ncpu_machine::limits::throttle::{Bandwidth, Hierarchy};
use ncpu_schema::{cgroup_cpu, throttling};
use ncpu_table::Table;

use super::losses::Limit;
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

/// The last figures in a group's files.
#[derive(Clone, Copy, Default)]
struct Told {
    /// `None` of the root of version 2, which has no limit.
    bandwidth: Option<Bandwidth>,
    /// Microseconds of CPU time; `None` where they are not wanted or nobody counts.
    usage: Option<u64>,
}

/// The groups the program's processes are in, and those above them.
#[derive(Default)]
pub(crate) struct Throttle {
    /// `None` if the machine has no CPU controller.
    hierarchy: Option<Hierarchy>,
    /// The hierarchy whose files count CPU time. Only where the whole machine is observed: else a group's time is not the
    /// program's alone.
    accounts: Option<Hierarchy>,
    processes: Looks,
    groups: HashMap<String, Told>,
    /// Groups whose limits held threads back, in the last interval in which they did.
    held: HashMap<String, Held>,
}

/// Effect of the limit of a group in an interval.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// CPUs that it allows.
    allowed: Option<f64>,
    /// Seconds of run queues that it held back.
    seconds: f64,
}

/// The limit that held back threads of a group longest, of the group's own limit and those of groups above it: CPUs.
fn held_back_by(held: &HashMap<String, Held>, group: &str) -> Option<Limit> {
    let of = |group| held.get(group).map(|held| (group, held));
    let (group, held) =
        chain(group).filter_map(of).max_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds))?;
    Some((group.matches('/').count() as u64, held.allowed))
}

impl Throttle {
    /// The limit that holds a group's threads back: the level of the group that has it, and how many CPUs it allows.
    pub fn holds_back(&self, group: &str) -> Option<Limit> {
        held_back_by(&self.held, group)
    }

    /// Begins with the observed process, whose group is known before it runs.
    pub fn begin(target: &Target) -> Throttle {
        let find = |controller| Hierarchy::find(Path::new("/"), controller).unwrap_or_default();
        // Version 2 counts in each group, without a controller.
        let accounts = || find("cpuacct").or_else(|| find("cpu"));
        let accounts = matches!(target, Target::All).then(accounts).flatten();
        let mut out = Throttle { hierarchy: find("cpu"), accounts, ..Throttle::default() };
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
                // Counts of a group from before it was seen belong to other programs, or to an earlier
                // time.
                if self.groups.contains_key(group) {
                    continue;
                }
                let bandwidth = hierarchy.read(group).map(|(_, now)| now);
                let usage = self.accounts.as_ref().and_then(|accounts| accounts.usage(group));
                if bandwidth.is_some() || usage.is_some() {
                    self.groups.insert(group.into(), Told { bandwidth, usage });
                }
            }
        }
    }

    /// Tables `throttling` and `cgroup_cpu`: what the groups' limits did since the last ones, and their CPU time.
    pub fn tables(&mut self, t: f64) -> [Table; 2] {
        let mut out = throttling::Rows::new();
        let Some(hierarchy) = &self.hierarchy else {
            return [out.finish(), cgroup_cpu::Rows::new().finish()];
        };
        let mut names: Vec<String> = self.groups.keys().cloned().collect();
        names.sort_unstable();
        let mut used: HashMap<String, u64> = HashMap::new();
        for name in names {
            let read = hierarchy.read(&name);
            let usage = self.accounts.as_ref().and_then(|accounts| accounts.usage(&name));
            if read.is_none() && usage.is_none() {
                self.groups.remove(&name);
                self.held.remove(&name);
                continue;
            }
            let bandwidth = read.map(|(_, now)| now);
            let before = self.groups.insert(name.clone(), Told { bandwidth, usage }).unwrap_or_default();
            if let (Some(now), Some(before)) = (usage, before.usage) {
                used.insert(name.clone(), now.saturating_sub(before));
            }
            let Some((limit, now)) = read else { continue };
            let new = now.since(before.bandwidth.unwrap_or_default());
            if new.throttled > 0 || new.throttled_us > 0 {
                let allowed = limit.map(|milli| milli as f64 / 1000.0);
                self.held.insert(name.clone(), Held { allowed, seconds: new.throttled_us as f64 / 1e6 });
                out.push(throttling::Row {
                    time: Some(t),
                    cgroup: (&name).into(),
                    limit: hierarchy.limit().into(),
                    lift: hierarchy.remedy(&name).into(),
                    allowed,
                    periods: Some(new.periods),
                    throttled: Some(new.throttled),
                    held: Some(new.throttled_us as f64 / 1e6),
                });
            }
        }
        let mut times = cgroup_cpu::Rows::new();
        for (cgroup, us) in own(&used) {
            times.push(cgroup_cpu::Row { time: Some(t), cgroup: cgroup.into(), cpu: Some(us as f64 / 1e6) });
        }
        [out.finish(), times.finish()]
    }
}

/// CPU time of groups without the groups below them, from that of each with them. The largest comes first; groups without any
/// are left out.
fn own(used: &HashMap<String, u64>) -> Vec<(&str, u64)> {
    let mut below: HashMap<&str, u64> = HashMap::new();
    for (group, us) in used {
        if let Some(above) = chain(group).skip(1).find(|above| used.contains_key(*above)) {
            *below.entry(above).or_default() += us;
        }
    }
    let own = used.iter().map(|(group, us)| {
        (group.as_str(), us.saturating_sub(below.get(group.as_str()).copied().unwrap_or(0)))
    });
    let mut own: Vec<_> = own.filter(|(_, us)| *us > 0).collect();
    own.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    own
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
    fn a_group_has_what_those_below_it_have_not() {
        let used = [("/", 100), ("/a", 70), ("/a/b", 30), ("/a/b/c", 30), ("/d", 20), ("/gone/e", 5)];
        let used = used.map(|(group, us)| (group.to_owned(), us)).into_iter().collect();
        assert_eq!(own(&used), [("/a", 40), ("/a/b/c", 30), ("/d", 20), ("/", 5), ("/gone/e", 5)]);
    }

    #[test]
    fn the_limit_that_held_back_longest() {
        let held = |group: &str, allowed, seconds| (group.to_owned(), Held { allowed, seconds });
        let held = HashMap::from([
            held("/pod", Some(0.6), 0.5),
            held("/pod/web", Some(0.9), 0.1),
            held("/pod/mail", None, 2.0),
            held("/other", Some(0.1), 9.0),
        ]);
        assert_eq!(held_back_by(&held, "/pod/web"), Some((1, Some(0.6))));
        assert_eq!(held_back_by(&held, "/pod/mail/a"), Some((2, None)));
        assert_eq!(held_back_by(&held, "/pods"), None);
    }

    #[test]
    fn groups_above() {
        assert_eq!(chain("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", "/"]);
        assert_eq!(chain("/").collect::<Vec<_>>(), ["/"]);
        assert_eq!(chain("/../x").collect::<Vec<_>>(), ["/../x", "/..", "/"]);
        assert_eq!(chain("odd").collect::<Vec<_>>(), ["odd"]);
    }
}
