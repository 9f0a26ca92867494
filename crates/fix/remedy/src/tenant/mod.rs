//! Settings that protect a tenant from another, without a restart of either: weights, limits and bursts of control groups, CPUs,
//! interrupts.

mod interrupts;

use std::path::{Path, PathBuf};

use ncpu_machine::limits::Mounts;
use ncpu_machine::tenant::Tenant;
use ncpu_machine::{CpuSet, Topology};
use ncpu_schema::Loss;

use crate::confine;
use crate::setting::{Act, Setting};

/// A hierarchy of control groups that has weights and limits of CPU time.
struct Hierarchy {
    mount: PathBuf,
    unified: bool,
}

fn mounts(root: &Path) -> Mounts {
    Mounts::parse(&std::fs::read_to_string(root.join("proc/self/mounts")).unwrap_or_default())
}

/// The hierarchy that CPU time is divided in: that of version 1 where there is one.
fn hierarchy(root: &Path, mounts: &Mounts) -> Option<Hierarchy> {
    let (dir, unified) = match mounts.by_controller.get("cpu") {
        Some(dir) => (dir, false),
        None => (mounts.unified.as_ref()?, true),
    };
    Some(Hierarchy { mount: root.join(dir), unified })
}

impl Hierarchy {
    fn group(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }

    /// The file of a group's weight, and its value.
    fn weight(&self, path: &str) -> Option<(PathBuf, u64)> {
        let file = self.group(path).join(if self.unified { "cpu.weight" } else { "cpu.shares" });
        let value = number(&file)?;
        Some((file, value))
    }

    /// Least and most that a weight can be.
    fn weights(&self) -> (u64, u64) {
        if self.unified { (1, 10_000) } else { (2, 262_144) }
    }
}

fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Below the deepest group that holds both: the groups in which the first and the second lie. `None` where one holds the other, whose
/// weights say nothing of each other.
fn apart<'a>(one: &'a str, other: &'a str) -> Option<(&'a str, &'a str)> {
    let mut end = 0;
    let next = |path: &str, from: usize| path[from + 1..].find('/').map_or(path.len(), |at| from + 1 + at);
    loop {
        if one.len() <= end + 1 || other.len() <= end + 1 {
            return None;
        }
        let (to, of_other) = (next(one, end), next(other, end));
        if one[end..to] != other[end..of_other] {
            return Some((&one[..to], &other[..of_other]));
        }
        end = to;
    }
}

/// A tenant that loses, and because of whom and what.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The tenant.
    pub victim: &'a Tenant,
    /// The tenant that it loses time to, if there is one with a control group.
    pub culprit: Option<&'a Tenant>,
    /// The loss.
    pub cause: Loss,
    /// CPUs that the tenant would use if it lost nothing.
    pub demand: f64,
}

/// Settings that may give a tenant back what it loses.
pub fn settings(root: &Path, case: &Case<'_>) -> Vec<Setting> {
    let mounts = mounts(root);
    let Some(hierarchy) = hierarchy(root, &mounts) else { return Vec::new() };
    let mut out = Vec::new();
    let sides = case.culprit.and_then(|culprit| apart(&case.victim.cgroup, &culprit.cgroup));
    if case.cause == Loss::RunQueue
        && let Some((ours, theirs)) = sides
    {
        weights(&hierarchy, ours, theirs, &mut out);
    }
    if case.cause == Loss::Quota {
        quota(&hierarchy, &case.victim.cgroup, &mut out);
    }
    if !matches!(case.cause, Loss::RunQueue | Loss::Network | Loss::Interrupts) {
        return out;
    }
    let Some(home) = home(root, &mounts, case) else { return out };
    if let Some((_, theirs)) = sides {
        out.extend(apart_by_cpus(root, &mounts, theirs, &home.cpus));
    }
    if matches!(case.cause, Loss::Network | Loss::Interrupts) {
        let list = home.cpus.to_list();
        let packets = interrupts::packets(root, &home.cpus, &home.online);
        if !packets.is_empty() {
            let about = "other CPUs serve packets that were received";
            out.push(Setting::of_files(format!("packets off CPUs {list}"), about, packets));
        }
        let devices = interrupts::devices(root, &home.cpus, &home.online);
        if !devices.is_empty() {
            let name = format!("interrupts of {} devices off CPUs {list}", devices.len());
            out.push(Setting::of_files(name, "other CPUs serve devices", devices));
        }
    }
    out
}

/// The quota and the own weight of a control group, which help its threads.
pub(crate) fn of_group(root: &Path, path: &str) -> Vec<Setting> {
    let mut out = Vec::new();
    let Some(hierarchy) = hierarchy(root, &mounts(root)).filter(|_| !path.trim_matches('/').is_empty())
    else {
        return out;
    };
    quota(&hierarchy, path, &mut out);
    own_weight(&hierarchy, path, &mut out);
    out
}

/// The neighbour's weight, a quarter and a sixteenth; the own weight times eight.
fn weights(hierarchy: &Hierarchy, ours: &str, theirs: &str, out: &mut Vec<Setting>) {
    let least = hierarchy.weights().0;
    if let Some((file, weight)) = hierarchy.weight(theirs) {
        let mut last = weight;
        for part in [4, 16] {
            let lower = (weight / part).max(least);
            if lower < last {
                let about = "less of the CPUs for the neighbour where both want them";
                out.push(weighted(theirs, file.clone(), weight, lower, about));
                last = lower;
            }
        }
    }
    own_weight(hierarchy, ours, out);
}

fn own_weight(hierarchy: &Hierarchy, group: &str, out: &mut Vec<Setting>) {
    if let Some((file, weight)) = hierarchy.weight(group) {
        let higher = weight.saturating_mul(8).min(hierarchy.weights().1);
        if higher > weight {
            out.push(weighted(group, file, weight, higher, "more of the CPUs where others want them"));
        }
    }
}

fn weighted(group: &str, file: PathBuf, old: u64, new: u64, about: &str) -> Setting {
    Setting::of_files(format!("weight of {group} {old} to {new}"), about, vec![(file, new.to_string())])
}

/// CPUs that are to be the tenant's alone.
struct Home {
    cpus: CpuSet,
    online: CpuSet,
}

/// As many CPUs as the tenant would use, whole cores where there are enough: those that its threads run on. `None` where it wants
/// all CPUs.
fn home(root: &Path, mounts: &Mounts, case: &Case<'_>) -> Option<Home> {
    let online = ncpu_machine::online_cpus(root).ok()?;
    let group = directory(root, mounts, &case.victim.cgroup)?;
    let places = confine::places(root, &group);
    let wanted = (case.demand.max(0.0).ceil() as usize).clamp(1, places.len().max(1));
    if wanted >= online.len() {
        return None;
    }
    let at = |cpu: u32| places.get(&cpu).copied().unwrap_or(0);
    // By core, so that the neighbour gets no strand of a core of the tenant's.
    let cores = Topology::read(root).map(|machine| machine.cores).unwrap_or_default();
    let mut groups: Vec<CpuSet> =
        cores.into_iter().map(|core| core.cpus.and(&online)).filter(|cpus| !cpus.is_empty()).collect();
    let largest = groups.iter().map(CpuSet::len).max().unwrap_or(0);
    if largest == 0 || wanted.div_ceil(largest) * largest >= online.len() {
        groups = online.iter().map(|cpu| std::iter::once(cpu).collect()).collect();
    }
    groups.sort_by_key(|cpus| std::cmp::Reverse(cpus.iter().map(at).sum::<usize>()));
    let mut cpus = CpuSet::new();
    for group in groups {
        if cpus.len() >= wanted {
            break;
        }
        cpus = cpus.or(&group);
    }
    (cpus.len() < online.len()).then_some(Home { cpus, online })
}

/// The directory of a group, in the first hierarchy in which threads are in it; never the root of one.
fn directory(root: &Path, mounts: &Mounts, path: &str) -> Option<PathBuf> {
    let path = path.trim_matches('/');
    if path.is_empty() {
        return None;
    }
    let all = mounts.by_controller.get("cpu").into_iter();
    let all = all.chain(&mounts.unified).chain(mounts.by_controller.values());
    all.map(|mount| root.join(mount).join(path)).find(|dir| !confine::threads(dir).is_empty())
}

/// The neighbour kept off the tenant's CPUs: by its cpuset if it has one and no thread has CPUs of its own choice, which the kernel
/// would forget before Linux 6.2; else by the affinity of its threads. A thread never gets a CPU that it might not use before.
fn apart_by_cpus(root: &Path, mounts: &Mounts, theirs: &str, home: &CpuSet) -> Option<Setting> {
    let group = directory(root, mounts, theirs)?;
    let from = confine::usual(&group)?;
    let to = from.minus(home);
    if to.is_empty() || to == from {
        return None;
    }
    let about = "the neighbour leaves CPUs to the tenant";
    let name = |by: &str| format!("{by} of {theirs} {} to {}", from.to_list(), to.to_list());
    let mount = mounts.by_controller.get("cpuset").or(mounts.unified.as_ref());
    let set = mount.map(|mount| root.join(mount).join(theirs.trim_start_matches('/')));
    if let Some(set) = set.filter(|set| set.join("cpuset.cpus").exists()) {
        let mut members = confine::threads(&set);
        let mut all = confine::threads(&group);
        members.sort_unstable();
        all.sort_unstable();
        if members == all && confine::with(&group, &from).len() == all.len() {
            let file = set.join("cpuset.cpus");
            return Some(Setting::of_files(name("cpuset"), about, vec![(file, to.to_list())]));
        }
    }
    let acts = vec![Act::Cpus { group, from: from.clone(), to: to.clone() }];
    Some(Setting { name: name("CPUs"), about: about.into(), acts })
}

/// A burst up to the whole quota, and twice the limit, for the innermost group that has a limit.
fn quota(hierarchy: &Hierarchy, path: &str, out: &mut Vec<Setting>) {
    let mut add = |name: String, about: &str, file: PathBuf, value: String| {
        out.push(Setting::of_files(name, about, vec![(file, value)]));
    };
    let group = hierarchy.group(path);
    for dir in group.ancestors().take_while(|dir| dir.starts_with(&hierarchy.mount)) {
        let name = Path::new("/").join(dir.strip_prefix(&hierarchy.mount).unwrap_or(dir));
        let name = name.display();
        let (limit, burst) = match hierarchy.unified {
            true => ("cpu.max", "cpu.max.burst"),
            false => ("cpu.cfs_quota_us", "cpu.cfs_burst_us"),
        };
        let text = std::fs::read_to_string(dir.join(limit)).unwrap_or_default();
        let mut words = text.split_ascii_whitespace();
        let Some(quota) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
        let rest = words.next().map(|period| format!(" {period}")).unwrap_or_default();
        let why = "what is left of one period may be used in the next";
        if number(&dir.join(burst)).is_some_and(|saved| saved < quota) {
            add(format!("burst of {name} to {quota} us"), why, dir.join(burst), quota.to_string());
        }
        let more = quota.saturating_mul(2);
        let why = "twice the CPU time";
        add(format!("limit of {name} {quota} to {more} us"), why, dir.join(limit), format!("{more}{rest}"));
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::put;

    fn tenant(cgroup: &str) -> Tenant {
        Tenant { cgroup: cgroup.into(), ..Tenant::default() }
    }

    fn named(root: &Path, victim: &str, culprit: Option<&str>, cause: Loss) -> Vec<(String, String)> {
        let (victim, culprit) = (tenant(victim), culprit.map(tenant));
        let case = Case { victim: &victim, culprit: culprit.as_ref(), cause, demand: 1.0 };
        let setting = |setting: Setting| match &setting.acts[0] {
            Act::File(file, value) => {
                (setting.name, format!("{}={value}", file.strip_prefix(root).unwrap().display()))
            }
            Act::Cpus { to, .. } => (setting.name, to.to_list()),
            Act::ProcessCpus { .. } | Act::Schedule { .. } => panic!("{}: of a process", setting.name),
        };
        settings(root, &case).into_iter().map(setting).collect()
    }

    #[test]
    fn weights_are_of_the_groups_below_what_both_share() {
        assert_eq!(apart("/a.slice/x", "/a.slice/y/z"), Some(("/a.slice/x", "/a.slice/y")));
        assert_eq!(apart("/a/x", "/b"), Some(("/a", "/b")));
        assert_eq!(apart("/a", "/ab"), Some(("/a", "/ab")));
        for (one, other) in
            [("/a", "/a/x"), ("/a/x", "/a"), ("/", "/a"), ("/a", "/a"), ("/", "/"), ("", "/a")]
        {
            assert_eq!(apart(one, other), None, "{one} {other}");
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert!(named(root, "/a/x", Some("/b"), Loss::RunQueue).is_empty());
        put(root, "proc/self/mounts", "c /cg cgroup2 rw 0 0\n");
        put(root, "cg/a/cpu.weight", "100\n");
        put(root, "cg/b/cpu.weight", "3\n");
        let expected = [
            ("weight of /b 3 to 1", "cg/b/cpu.weight=1"),
            ("weight of /a 100 to 800", "cg/a/cpu.weight=800"),
        ];
        let found = named(root, "/a/x", Some("/b"), Loss::RunQueue);
        assert_eq!(found[0], (expected[0].0.into(), expected[0].1.into()));
        assert_eq!(found.last().unwrap(), &(expected[1].0.to_string(), expected[1].1.to_string()));
        assert!(named(root, "/a/x", Some("/"), Loss::RunQueue).is_empty());
        assert!(named(root, "/a/x", Some("/b"), Loss::Network).is_empty());
        // Version 1 goes first, for it is what divides CPUs.
        put(root, "proc/self/mounts", "c /cg cgroup2 rw 0 0\nc /v1 cgroup rw,cpu,cpuacct 0 0\n");
        put(root, "v1/b/cpu.shares", "1024\n");
        assert_eq!(named(root, "/a/x", Some("/b"), Loss::RunQueue)[0].1, "v1/b/cpu.shares=256");
    }

    #[test]
    fn a_limit_is_that_of_the_innermost_group_that_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, "proc/self/mounts", "c /cg cgroup2 rw 0 0\n");
        put(root, "cg/a/b/cpu.max", "max 100000\n");
        put(root, "cg/a/cpu.max", "50000 100000\n");
        put(root, "cg/a/cpu.max.burst", "0\n");
        let found = named(root, "/a/b", None, Loss::Quota);
        let expected = [
            ("burst of /a to 50000 us", "cg/a/cpu.max.burst=50000"),
            ("limit of /a 50000 to 100000 us", "cg/a/cpu.max=100000 100000"),
        ];
        assert_eq!(found, expected.map(|(name, setting)| (name.to_string(), setting.to_string())));
    }
}
