//! Behind whom the program's threads stood on run queues, and why those went first: priorities, weights of control groups,
//! cpusets.

use std::path::Path;

use ncpu_machine::CpuSet;
use ncpu_machine::limits::throttle::Hierarchy;
use ncpu_schema::{CpuState, bound, queued};
use ncpu_table::Table;

use super::bounds::Names;
use super::throttle::chain;
use crate::bpf_support::namespace::{self, process_dir};
use crate::engine::{LockRow, OTHERS};

/// In an interval the causes of so many processes are looked for: those with most time.
const MOST: usize = 8;
/// Rows of an interval; those with least time are summed up.
const ROWS: usize = 256;
/// ns behind a process below which nobody asks why.
const LEAST: u64 = 1_000_000;

/// What right processes have to CPUs.
#[derive(Default)]
pub(super) struct Queued {
    /// `None` where there is no such controller.
    cpu: Option<Hierarchy>,
    cpuset: Option<Hierarchy>,
    /// What right the program had when it was seen last: it may have ended since.
    ours: Option<(Class, Option<String>)>,
    /// The CPUs of the process that is observed, when that began.
    first: Option<(u32, (String, String))>,
    /// What was told of the program's CPUs last, by process.
    told: Vec<(u32, String)>,
}

/// How a scheduler treats a process.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Class {
    nice: i64,
    /// Above 0 for real-time.
    priority: u64,
    policy: u64,
}

impl Class {
    /// Of `/proc/PID/stat`.
    fn parse(stat: &str) -> Option<Class> {
        // The name before may hold anything.
        let words: Vec<&str> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
        // Numbers of fields as in proc(5), of which the state is the third.
        let field = |n: usize| words.get(n - 3);
        Some(Class {
            nice: field(19)?.parse().ok()?,
            priority: field(40)?.parse().ok()?,
            policy: field(41)?.parse().ok()?,
        })
    }

    fn of(pid: u32) -> Option<Class> {
        Class::parse(&std::fs::read_to_string(process_dir(pid).join("stat")).ok()?)
    }

    fn real_time(self) -> Option<String> {
        match self.policy {
            1 => Some(format!("SCHED_FIFO of priority {}", self.priority)),
            2 => Some(format!("SCHED_RR of priority {}", self.priority)),
            6 => Some("SCHED_DEADLINE".into()),
            _ => None,
        }
    }
}

impl Queued {
    /// Begins with the process that is observed, where there is one.
    pub fn begin(program: Option<u32>) -> Queued {
        let find = |controller| Hierarchy::find(Path::new("/"), controller).unwrap_or_default();
        let mut out = Queued { cpu: find("cpu"), cpuset: find("cpuset"), ..Queued::default() };
        out.met(program);
        out.first = program.and_then(|pid| Some((pid, out.allowed(pid)?)));
        out
    }

    /// Looks at a process of the program.
    fn met(&mut self, program: Option<u32>) {
        if let Some(pid) = program
            && let Some(class) = Class::of(pid)
        {
            self.ours = Some((class, self.cpu.as_ref().and_then(|cpu| cpu.group_of(pid))));
        }
    }

    /// Table `queued` of an interval; `program` is a process of the program.
    pub fn table(&mut self, t: f64, mut new: Vec<LockRow>, program: Option<u32>, processes: &Names) -> Table {
        new.sort_unstable_by_key(|row| (std::cmp::Reverse(row.block), row.lock));
        self.met(program);
        let mut rest: Vec<LockRow> = Vec::new();
        for row in new.split_off(new.len().min(ROWS)) {
            match rest.iter_mut().find(|sum| sum.flags == row.flags) {
                Some(sum) => {
                    (sum.count, sum.block) = (sum.count + row.count, sum.block + row.block);
                    sum.max = sum.max.max(row.max);
                }
                None => rest.push(LockRow { lock: OTHERS, ..row }),
            }
        }
        new.extend(rest);
        let mut rows = queued::Rows::new();
        for (i, row) in new.iter().enumerate() {
            let at = CpuState::ALL.get(row.flags as usize).copied();
            let pid = (row.lock != OTHERS).then(|| (row.lock - 2) as u32);
            let name = pid.map(|pid| match processes.of(pid) {
                Some(name) => name.to_string(),
                None => named(pid).unwrap_or_else(|| "[gone]".into()),
            });
            let asked = i < MOST && row.block >= LEAST && at == Some(CpuState::Others);
            let why = pid.filter(|_| asked).and_then(|other| self.why(other));
            let (cause, remedy) = why.unzip();
            rows.push(queued::Row {
                time: Some(t),
                at,
                process: name.into(),
                pid: pid.map(u64::from),
                waits: Some(row.count),
                seconds: Some(row.block as f64 / 1e9),
                max: Some(row.max as f64 / 1e3),
                cause: cause.into(),
                remedy: remedy.into(),
            });
        }
        rows.finish()
    }

    /// What gives another process more right to a CPU than the program has, and what changes that.
    fn why(&self, other: u32) -> Option<(String, String)> {
        let ((ours, group), theirs) = (self.ours.as_ref()?, Class::of(other)?);
        if let Some(class) = theirs.real_time()
            && ours.real_time().is_none()
        {
            return Some((class, format!("chrt -o -p 0 {other}")));
        }
        if let Some((cpu, group)) = self.cpu.as_ref().zip(group.as_ref())
            && let Some(told) = weights(cpu, group, other)
        {
            return told;
        }
        let said = format!("nice {}, and the program's is {}", theirs.nice, ours.nice);
        (theirs.nice < ours.nice).then(|| (said, format!("renice -n {} -p {other}", ours.nice)))
    }

    /// Table `bound`, of what is new of a process.
    pub fn bound(&mut self, t: f64, program: Option<u32>, processes: &Names) -> Table {
        let mut rows = bound::Rows::new();
        // One that has ended meanwhile is known from the beginning.
        let now = program.and_then(|pid| Some((pid, self.allowed(pid)?)));
        let first = self.first.take();
        if let Some((pid, (cpus, by))) = now.or(first)
            && !self.told.iter().any(|(p, told)| *p == pid && *told == cpus)
        {
            rows.push(bound::Row {
                time: Some(t),
                process: processes.of(pid).unwrap_or("[gone]").into(),
                pid: Some(pid.into()),
                cpus: cpus.as_str().into(),
                by: by.into(),
            });
            self.told.retain(|(p, _)| *p != pid);
            self.told.push((pid, cpus));
            // Of those that went nobody will ask.
            if self.told.len() > MOST {
                self.told.remove(0);
            }
        }
        rows.finish()
    }

    /// Tells all again from now on.
    pub fn turn(&mut self) {
        self.told.clear();
    }

    /// The CPUs that a process may use, where that is not all, and what says so.
    fn allowed(&self, pid: u32) -> Option<(String, String)> {
        let status = std::fs::read_to_string(process_dir(pid).join("status")).ok()?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
        let online = ncpu_machine::online_cpus(Path::new("/")).ok()?;
        let allowed = CpuSet::parse_list(list).ok()?;
        if online.iter().all(|cpu| allowed.contains(cpu)) {
            return None;
        }
        let group = self.cpuset.as_ref().and_then(|set| set.cpus(&set.group_of(pid)?));
        let of_group = group.filter(|(cpus, _)| CpuSet::parse_list(cpus).is_ok_and(|cpus| cpus == allowed));
        Some((list.to_string(), of_group.map_or_else(|| "affinity".into(), |(_, file)| file)))
    }
}

fn named(pid: u32) -> Option<String> {
    Some(std::fs::read_to_string(process_dir(pid).join("comm")).ok()?.trim_end().to_string())
}

/// Where the control groups of both part, what their weights say; `None` where they are in one group.
#[allow(clippy::option_option)]
fn weights(cpu: &Hierarchy, ours: &str, other: u32) -> Option<Option<(String, String)>> {
    let theirs = cpu.group_of(other).filter(|_| !namespace::is_own())?;
    let (ours, theirs) = parting(ours, &theirs)?;
    let weight = |group: Option<&str>| match group {
        None => Some((None, cpu.thread_weight())),
        Some(group) => cpu.weight(group).map(|(file, weight)| (Some(file), weight)),
    };
    let ((our_file, our_weight), (their_file, their_weight)) = (weight(ours)?, weight(theirs)?);
    if their_weight <= our_weight {
        return Some(None);
    }
    let name = |file: &Option<String>, weight: u64| match file {
        Some(file) => format!("{file} is {weight}"),
        None => format!("a thread beside it counts {weight}"),
    };
    let said = format!("{}, and {}", name(&their_file, their_weight), name(&our_file, our_weight));
    let remedy = match (&our_file, &their_file) {
        (Some(file), _) => format!("echo {their_weight} > {file}"),
        (None, Some(file)) => format!("echo {our_weight} > {file}"),
        (None, None) => return Some(None),
    };
    Some(Some((said, remedy)))
}

/// The first groups of two paths that differ; `None` of one that ends before, and altogether where both are the same.
fn parting<'a>(a: &'a str, b: &'a str) -> Option<(Option<&'a str>, Option<&'a str>)> {
    let down = |group: &'a str| {
        let mut all: Vec<&str> = chain(group).collect();
        all.reverse();
        all
    };
    let (a, b) = (down(a), down(b));
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    (same < a.len().max(b.len())).then(|| (a.get(same).copied(), b.get(same).copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_part_where_they_differ_first() {
        assert_eq!(parting("/a/b", "/a/b"), None);
        assert_eq!(parting("/a/b/x", "/a/c"), Some((Some("/a/b"), Some("/a/c"))));
        assert_eq!(parting("/", "/job/1"), Some((None, Some("/job"))));
        assert_eq!(parting("/a", "/a/b/c"), Some((None, Some("/a/b"))));
    }

    #[test]
    fn a_name_is_no_field() {
        let mut fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        fields[16] = "-5".into();
        fields[37] = "50".into();
        fields[38] = "1".into();
        let stat = format!("7 (a) b (c) {}", fields.join(" "));
        let class = Class::parse(&stat).unwrap();
        assert_eq!(class, Class { nice: -5, priority: 50, policy: 1 });
        assert_eq!(class.real_time().as_deref(), Some("SCHED_FIFO of priority 50"));
        assert_eq!(Class::parse("7 (x"), None);
        assert_eq!(Class::of(std::process::id()).map(|c| c.real_time()), Some(None));
    }
}
