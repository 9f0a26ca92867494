//! Settings for a process that runs, without a restart: its CPUs, how it is scheduled, its control group, the machine.

use std::collections::BTreeMap;
use std::path::Path;

use ncpu_machine::limits::throttle::Hierarchy;
use ncpu_machine::{CpuSet, Topology};

use crate::fix::{Allowed, system};
use crate::schedule::{Class, Schedule, usual_slice};
use crate::setting::{Act, Setting};
use crate::{Result, sys, tenant};

/// Nodes of a machine that are tried one by one.
const MOST_NODES: usize = 8;

/// The value that most have.
fn usual<T: Ord>(all: impl Iterator<Item = T>) -> Option<T> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    for value in all {
        *counts.entry(value).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

/// Settings that can be tried on a process and on those it has forked; of the machine only where they are allowed.
///
/// # Errors
/// The machine cannot be read.
pub fn settings(root: &Path, pid: u32, machine: &Topology, allowed: Allowed) -> Result<Vec<Setting>> {
    let mut out = cpus(pid, machine);
    out.extend(schedules(pid, allowed));
    out.extend(group(root, pid));
    if allowed.system {
        for remedy in system(root)? {
            // A limit of our own group says nothing of the process's.
            if remedy.settings.iter().all(|(path, _)| !path.starts_with(root.join("sys/fs/cgroup"))) {
                out.push(Setting::of_files(remedy.name, &remedy.about, remedy.settings));
            }
        }
        let grouping = root.join("proc/sys/kernel/sched_autogroup_enabled");
        if std::fs::read_to_string(&grouping).is_ok_and(|text| text.trim() == "1") {
            let about = "sessions of terminals have no share of the CPUs each";
            out.push(Setting::of_files("autogroup off".into(), about, vec![(grouping, "0".into())]));
        }
    }
    Ok(out)
}

/// All CPUs, where most threads have fewer; one node or cache, where the machine has several.
fn cpus(pid: u32, machine: &Topology) -> Vec<Setting> {
    let now =
        sys::threads_of_tree(pid).into_iter().filter_map(|tid| Some(sys::affinity(tid).ok()?.to_list()));
    let Some(from) = usual(now).and_then(|list| CpuSet::parse_list(&list).ok()) else { return Vec::new() };
    let mut out: Vec<Setting> = Vec::new();
    let mut add = |to: CpuSet, name: String, about: &str| {
        let is_new = !to.is_empty() && to != from && out.iter().all(|one| one.name != name);
        if is_new {
            let acts = vec![Act::ProcessCpus { pid, from: from.clone(), to }];
            out.push(Setting { name, about: about.into(), acts });
        }
    };
    if !machine.online.is_subset(&from) {
        let list = machine.online.to_list();
        add(machine.online.clone(), format!("CPUs {} to {list}", from.to_list()), "all CPUs of the machine");
    }
    let nodes: Vec<CpuSet> = machine.nodes.iter().map(|node| node.cpus.and(&from)).collect();
    let nodes: Vec<CpuSet> = nodes.into_iter().filter(|cpus| !cpus.is_empty()).collect();
    if nodes.len() > 1 {
        for cpus in nodes.into_iter().take(MOST_NODES) {
            let name = format!("CPUs {} to {}", from.to_list(), cpus.to_list());
            add(cpus, name, "one NUMA node: caches and memory nearer");
        }
    }
    out
}

/// Another class, slice or niceness for the threads that are scheduled as most are.
fn schedules(pid: u32, allowed: Allowed) -> Vec<Setting> {
    let all = sys::threads_of_tree(pid).into_iter().filter_map(|tid| Schedule::read(tid).ok().flatten());
    // Real-time threads were made so on purpose.
    let Some(from) = usual(all).filter(|most| most.is_fair()) else { return Vec::new() };
    let nice = from.nice();
    let mut wanted = vec![("batch", Schedule::of(Class::Batch, nice), "SCHED_BATCH: wakes preempt it less")];
    // Before Linux 6.12 a slice has no effect.
    if usual_slice() > 0 {
        wanted.push((
            "slice of 100 ms",
            Schedule::of(Class::Slice(100_000_000), nice),
            "its lock holders are preempted seldom",
        ));
        wanted.push((
            "slice of 0.5 ms",
            Schedule::of(Class::Slice(500_000), nice),
            "it waits less for a CPU",
        ));
    }
    if nice > -5 && rustix::process::geteuid().is_root() {
        wanted.push(("niceness -5", from.at(-5), "more of the CPUs where others want them, who get less"));
    }
    if allowed.realtime && rustix::process::geteuid().is_root() {
        wanted.push((
            "fifo",
            Schedule::of(Class::Fifo(1), 0),
            "SCHED_FIFO: nothing but the kernel preempts it",
        ));
    }
    wanted.retain(|(_, to, _)| *to != from);
    let setting = |(name, to, about): (&str, Schedule, &str)| Setting {
        name: name.into(),
        about: about.into(),
        acts: vec![Act::Schedule { pid, from, to }],
    };
    wanted.into_iter().map(setting).collect()
}

/// The quota and the weight of the process's control group.
fn group(root: &Path, pid: u32) -> Vec<Setting> {
    let hierarchy = Hierarchy::find(root, "cpu").ok().flatten();
    let path = hierarchy.and_then(|hierarchy| hierarchy.group_of(pid));
    path.map_or_else(Vec::new, |path| tenant::of_group(root, &path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::put;

    #[test]
    fn what_most_have() {
        assert_eq!(usual([3, 1, 3].into_iter()), Some(3));
        assert_eq!(usual(std::iter::empty::<u32>()), None);
    }

    #[test]
    fn a_group_s_quota_and_weight_are_settings() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        // One is a link to the other.
        for mounts in ["proc/mounts", "proc/self/mounts"] {
            put(root, mounts, "c /cg cgroup2 rw 0 0\n");
        }
        put(root, "proc/7/cgroup", "0::/web\n");
        put(root, "cg/cgroup.controllers", "cpu memory\n");
        put(root, "cg/web/cpu.max", "50000 100000\n");
        put(root, "cg/web/cpu.max.burst", "0\n");
        put(root, "cg/web/cpu.weight", "100\n");
        let names: Vec<String> = group(root, 7).into_iter().map(|setting| setting.name).collect();
        assert_eq!(
            names,
            ["burst of /web to 50000 us", "limit of /web 50000 to 100000 us", "weight of /web 100 to 800"]
        );
        put(root, "proc/7/cgroup", "0::/\n");
        assert!(group(root, 7).is_empty());
    }

    /// A process that ends with the test.
    struct Ended(std::process::Child);

    impl Drop for Ended {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The orphans of a process get their scheduling back, too.
    #[test]
    fn orphans_born_during_a_trial_are_put_back() {
        let mut shell = std::process::Command::new("setsid");
        shell.args(["sh", "-c", "while read line; do (sleep 600 & echo $!); done"]);
        let (from, to) = (std::process::Stdio::piped, std::process::Stdio::piped);
        let mut child =
            Ended(shell.stdin(from()).stdout(to()).stderr(std::process::Stdio::null()).spawn().unwrap());
        let (mut orders, mut answers) =
            (child.0.stdin.take().unwrap(), std::io::BufReader::new(child.0.stdout.take().unwrap()));
        let mut orphan = || {
            use std::io::{BufRead, Write};

            let mut pid = String::new();
            orders.write_all(b"\n").unwrap();
            answers.read_line(&mut pid).unwrap();
            let pid: u32 = pid.trim().parse().unwrap();
            while sys::tree_of(child.0.id()).contains(&pid) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            pid
        };
        let before = orphan();
        let (from, to) = (Schedule::read(before).unwrap().unwrap(), Schedule::of(Class::Batch, 0));
        // It was so before the trial, and stays.
        to.set(before).unwrap();
        let act = Act::Schedule { pid: child.0.id(), from, to };
        let setting = Setting { name: "batch".into(), about: String::new(), acts: vec![act] };
        let state = tempfile::tempdir().unwrap();
        let mut journal = crate::journal::Journal::begin(state.path(), &[]).unwrap();
        let mut set = Vec::new();
        setting.set(&mut journal, &mut set).unwrap();
        let during = orphan();
        assert_eq!(Schedule::read(during).unwrap(), Some(to));
        crate::setting::restore(&mut journal, &mut set).unwrap();
        let after = [before, during].map(|pid| Schedule::read(pid).unwrap());
        for pid in [before, during] {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        assert_eq!(after, [Some(to), Some(from)]);
        journal.finish();
    }

    /// Threads of a process get all CPUs and their own back, also those born meanwhile.
    #[test]
    fn a_process_gets_its_cpus_back() {
        let online = ncpu_machine::online_cpus(Path::new("/")).unwrap();
        let Some(first) = online.iter().next().filter(|_| online.len() > 1) else {
            return eprintln!("skipped: one CPU");
        };
        let one: CpuSet = [first].into_iter().collect();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "while :; do sleep 0.01; done"]).stdout(std::process::Stdio::null());
        let mut child = Ended(shell.stderr(std::process::Stdio::null()).spawn().unwrap());
        let pid = child.0.id();
        sys::set_affinity(pid, &one).unwrap();
        // What it had started before has all CPUs.
        let confined = |tid: u32| sys::affinity(tid).is_ok_and(|now| now == one);
        while !sys::threads_of_tree(pid).into_iter().all(confined) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let machine = Topology { online: online.clone(), ..Topology::default() };
        let found = cpus(pid, &machine);
        assert_eq!(found.len(), 1, "{found:?}");
        let state = tempfile::tempdir().unwrap();
        let mut journal = crate::journal::Journal::begin(state.path(), &[]).unwrap();
        let mut set = Vec::new();
        found[0].set(&mut journal, &mut set).unwrap();
        assert_eq!(sys::affinity(pid).unwrap(), online);
        crate::setting::restore(&mut journal, &mut set).unwrap();
        assert_eq!(sys::affinity(pid).unwrap(), one);
        // Another class, and back.
        for setting in schedules(pid, Allowed { system: false, realtime: true }) {
            let before = Schedule::read(pid).unwrap();
            setting.set(&mut journal, &mut set).unwrap();
            assert_ne!(Schedule::read(pid).unwrap(), before, "{setting:?}");
            crate::setting::restore(&mut journal, &mut set).unwrap();
            assert_eq!(Schedule::read(pid).unwrap(), before, "{setting:?}");
        }
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        assert!(found[0].set(&mut journal, &mut set).is_err());
        journal.finish();
    }
}
