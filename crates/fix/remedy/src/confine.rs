//! CPUs of a control group's threads, set by affinity: what works without a cpuset controller.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ncpu_machine::CpuSet;
use ncpu_machine::process::Stat;

use crate::sys;

/// Groups below a group that are looked at, and threads.
const MOST_GROUPS: usize = 10_000;
const MOST_THREADS: usize = 100_000;

/// The threads of a control group and of the groups in it.
pub(crate) fn threads(group: &Path) -> Vec<u32> {
    let mut out = Vec::new();
    let mut groups = vec![group.to_path_buf()];
    let mut at = 0;
    while at < groups.len() && out.len() < MOST_THREADS {
        let dir = groups[at].clone();
        at += 1;
        let files = ["cgroup.threads", "tasks"];
        let text = files.iter().find_map(|file| std::fs::read_to_string(dir.join(file)).ok());
        out.extend(text.unwrap_or_default().lines().filter_map(|line| line.parse::<u32>().ok()));
        let below = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups.extend(below.map(|entry| entry.path()).take(MOST_GROUPS.saturating_sub(groups.len())));
    }
    out.truncate(MOST_THREADS);
    out
}

/// The CPUs that most of the threads of a group may use.
pub(crate) fn usual(group: &Path) -> Option<CpuSet> {
    let mut counts: BTreeMap<String, (usize, CpuSet)> = BTreeMap::new();
    for tid in threads(group) {
        if let Ok(cpus) = sys::affinity(tid) {
            counts.entry(cpus.to_list()).or_insert((0, cpus)).0 += 1;
        }
    }
    counts.into_values().max_by_key(|(count, _)| *count).map(|(_, cpus)| cpus)
}

/// Gives the threads that may use exactly `from` the CPUs `to`. Whether there were any.
pub(crate) fn change(group: &Path, from: &CpuSet, to: &CpuSet, except: &[u32]) -> bool {
    each_of(
        || threads(group),
        |tid| {
            let is_one = !except.contains(&tid) && sys::affinity(tid).is_ok_and(|now| now == *from);
            is_one && sys::set_affinity(tid, to).is_ok()
        },
    )
}

/// Changes threads, until a pass over all changes none: a thread that is born during a pass is as its creator was before. Whether there
/// were any.
pub(crate) fn each_of(threads: impl Fn() -> Vec<u32>, mut change: impl FnMut(u32) -> bool) -> bool {
    let mut any = false;
    for _ in 0..100 {
        let changed = threads().into_iter().filter(|tid| change(*tid)).count();
        any |= changed > 0;
        if changed == 0 {
            break;
        }
    }
    any
}

/// Threads of a group that may use exactly these CPUs.
pub(crate) fn with(group: &Path, cpus: &CpuSet) -> Vec<u32> {
    let has = |tid: &u32| sys::affinity(*tid).is_ok_and(|now| now == *cpus);
    threads(group).into_iter().filter(has).collect()
}

/// How many threads of a group last ran on each CPU: those that run or are runnable, or all if none is.
pub(crate) fn places(root: &Path, group: &Path) -> BTreeMap<u32, usize> {
    let (mut running, mut all) = (BTreeMap::new(), BTreeMap::new());
    for tid in threads(group) {
        let file: PathBuf = root.join(format!("proc/{tid}/stat"));
        let Ok(bytes) = std::fs::read(&file) else { continue };
        let Some(stat) = Stat::parse(&bytes) else { continue };
        let Some(cpu) = stat.cpu() else { continue };
        *all.entry(cpu).or_default() += 1;
        if stat.state() == b'R' {
            *running.entry(cpu).or_default() += 1;
        }
    }
    if running.is_empty() { all } else { running }
}
