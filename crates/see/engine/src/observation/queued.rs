//! Behind whom the program's threads stood on run queues, and why those went first: priorities, weights of control groups,
//! cpusets.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::path::Path;

use ncpu_machine::CpuSet;
use ncpu_machine::limits::throttle::Hierarchy;
use ncpu_machine::process::{self, Fields, Stat};
use ncpu_schema::{CpuState, bound, queued};
use ncpu_table::Table;

use super::bounds::{self, Names};
use super::throttle::chain;
use crate::bpf_support::namespace::{self, process_dir};
use crate::engine::{self, ThreadOut};

/// Processes of an interval whose advantage is explained: those with most time.
const MOST: usize = 8;
/// Rows of an interval; those with least time are summed up.
const ROWS: usize = 256;
/// Rows of table `bound` in an interval, and of what is remembered.
const BOUND: usize = 8;
const TOLD: usize = 64;
/// ns behind a process below which nobody asks why, and on run queues below which threads are not told again.
const LEAST: u64 = 1_000_000;

/// The scheduling rights of the program and of the processes ahead of it.
#[derive(Default)]
pub(super) struct Queued {
    /// `None` without such a controller in the hierarchy.
    cpu: Option<Hierarchy>,
    cpuset: Option<Hierarchy>,
    /// The rights of the program when it was last seen: it may have ended since.
    ours: Option<(Class, Option<String>)>,
    /// CPUs online when the interval began.
    online: Vec<u32>,
    /// Threads of the interval that may not use all CPUs, by process and CPUs.
    bound: HashMap<(u32, Allowed), Bound>,
    /// Reported groups of such threads, the oldest first: their CPUs, and the file or mask that sets them.
    told: VecDeque<((u32, Allowed), (String, String))>,
}

/// How many CPUs a thread may use, and which of the first 64.
type Allowed = (u32, u64);

/// Threads that may use the same CPUs.
struct Bound {
    process: String,
    /// One of them, and whether it lives.
    tid: u32,
    threads: u64,
    queued: f64,
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
    fn parse(stat: &[u8]) -> Option<Class> {
        let stat = Stat::parse(stat)?;
        Some(Class { nice: stat.nice()?.into(), priority: stat.priority()?, policy: stat.policy()? })
    }

    fn of(pid: u32) -> Option<Class> {
        Class::parse(&process::read(&process_dir(pid).join("stat")).ok()?)
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
        out.online = online();
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
    pub fn table(
        &mut self,
        t: f64,
        mut new: Vec<engine::Queued>,
        program: Option<u32>,
        processes: &Names,
    ) -> Table {
        self.met(program);
        bounds::largest(&mut new, ROWS);
        new.sort_unstable_by_key(|row| (Reverse(row.time), row.behind));
        let mut rows = queued::Rows::new();
        for (i, row) in new.iter().enumerate() {
            let name = row.behind.map(|pid| match processes.of(pid) {
                Some(name) => name.to_string(),
                None => named(pid).unwrap_or_else(|| "[gone]".into()),
            });
            let asked = i < MOST && row.time >= LEAST && row.at == CpuState::Others;
            let why = row.behind.filter(|_| asked).and_then(|other| self.why(other));
            let (cause, remedy) = why.unzip();
            rows.push(queued::Row {
                time: Some(t),
                at: Some(row.at),
                process: name.into(),
                pid: row.behind.map(u64::from),
                waits: Some(row.count),
                seconds: Some(row.time as f64 / 1e9),
                max: Some(row.max as f64 / 1e3),
                cause: cause.into(),
                remedy: remedy.into(),
            });
        }
        rows.finish()
    }

    /// The reason why another process has more right to a CPU than the program, and the command that
    /// changes it.
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

    /// Counts a thread of the interval, which stood on run queues for `stood` seconds, where it may not use all CPUs.
    pub fn thread(&mut self, thread: &ThreadOut, stood: f64) {
        let allowed = thread.allowed;
        // CPUs that are not online may be allowed as well.
        let may = |cpu: &u32| *cpu >= 64 || thread.cpus >> cpu & 1 == 1;
        let all = allowed as usize >= self.online.len() && self.online.iter().all(may);
        if allowed == 0 || self.online.is_empty() || all {
            return;
        }
        let of = self.bound.entry((thread.tgid, (allowed, thread.cpus))).or_insert_with(|| Bound {
            process: thread.process(),
            tid: thread.tid,
            threads: 0,
            queued: 0.0,
        });
        of.threads += 1;
        of.queued += stood;
    }

    /// Table `bound` of the interval.
    pub fn bound(&mut self, t: f64) -> Table {
        let mut rows = bound::Rows::new();
        let mut all: Vec<((u32, Allowed), Bound)> = self.bound.drain().collect();
        all.sort_by(|a, b| b.1.queued.total_cmp(&a.1.queued).then(a.0.cmp(&b.0)));
        for (key, bound) in all {
            let known = self.told.iter().find(|(told, _)| *told == key).map(|(_, what)| what.clone());
            if rows.len() >= BOUND || (known.is_some() && bound.queued < LEAST as f64 / 1e9) {
                continue;
            }
            let Some((cpus, by)) = known.clone().or_else(|| self.allowed(key, bound.tid)) else { continue };
            if known.is_none() {
                if self.told.len() >= TOLD {
                    self.told.pop_front();
                }
                self.told.push_back((key, (cpus.clone(), by.clone())));
            }
            rows.push(bound::Row {
                time: Some(t),
                process: bound.process.into(),
                pid: Some(key.0.into()),
                cpus: cpus.into(),
                by: by.into(),
                threads: Some(bound.threads),
                queued: Some(bound.queued),
            });
        }
        self.online = online();
        rows.finish()
    }

    /// Tells all again from now on.
    pub fn turn(&mut self) {
        self.told.clear();
    }

    /// The CPUs that threads may use, one of which is `tid`, and what says so. `None` where it is not known any more.
    fn allowed(&self, (pid, (count, low)): (u32, Allowed), tid: u32) -> Option<(String, String)> {
        let set: CpuSet = match low.count_ones() == count {
            true => (0..64).filter(|cpu| low >> cpu & 1 == 1).collect(),
            false => {
                let status = process_dir(pid).join(format!("task/{tid}/status"));
                let status = process::read(&status).ok()?;
                CpuSet::parse_list(Fields(&status).get("Cpus_allowed_list")?).ok()?
            }
        };
        if self.online.iter().all(|cpu| set.contains(*cpu)) {
            return None;
        }
        let group = self.cpuset.as_ref().and_then(|all| all.cpus(&all.group_of(pid)?));
        let of_group = group.filter(|(cpus, _)| CpuSet::parse_list(cpus).is_ok_and(|cpus| cpus == set));
        Some((set.to_string(), of_group.map_or_else(|| "affinity".into(), |(_, file)| file)))
    }
}

/// The CPUs that are online; empty where that cannot be read, and then nothing is said of threads' CPUs.
fn online() -> Vec<u32> {
    ncpu_machine::online_cpus(Path::new("/")).map(|set| set.iter().collect()).unwrap_or_default()
}

pub(super) fn named(pid: u32) -> Option<String> {
    process::name(&process_dir(pid))
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
        let class = Class::parse(stat.as_bytes()).unwrap();
        assert_eq!(class, Class { nice: -5, priority: 50, policy: 1 });
        assert_eq!(class.real_time().as_deref(), Some("SCHED_FIFO of priority 50"));
        assert_eq!(Class::parse(b"7 (x"), None);
        assert_eq!(Class::of(std::process::id()).map(|c| c.real_time()), Some(None));
    }
}
