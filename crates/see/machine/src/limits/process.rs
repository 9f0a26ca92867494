//! Limits of running processes (`RLIMIT_*`) and their use, and resources of processes that count towards
//! other limits.

use std::collections::{BTreeMap, HashMap};

use ncpu_files::reader::{Source, Whose};
use rustix::io::Errno;

use super::files::{Files, first};
use super::{Area, Found, Knob, Reading, Scope, Unit};
use crate::process::Fields;

/// A limit of a process: soft and hard, `None` is unlimited.
pub type Rlimit = (Option<u64>, Option<u64>);

/// Sums over processes.
#[derive(Default)]
pub(super) struct Processes {
    /// Threads by user.
    pub threads: BTreeMap<u32, u64>,
    /// inotify instances and watches by user.
    pub inotify: BTreeMap<u32, (u64, u64)>,
    /// epoll's watched descriptors by user.
    pub epoll: BTreeMap<u32, u64>,
    /// The process with most open files, and their number.
    pub files: Option<(u32, String, u64)>,
    /// The process with most mappings, and their number.
    pub maps: Option<(u32, String, u64)>,
}

/// The number of largest processes whose mappings are counted. Reading a process's map costs about 0.3 µs per
/// line and holds its mmap_lock, and processes with most mappings have much memory or many threads.
const MAPPED: usize = 16;

/// The data of a process's status.
struct Process {
    pid: u32,
    comm: String,
    uid: u32,
    threads: u64,
    size: u64,
    limits: HashMap<&'static str, Rlimit>,
    used: HashMap<&'static str, u64>,
    peak: HashMap<&'static str, u64>,
}

/// Names in /proc/PID/limits, names of the limits, names of `prlimit`'s options, and units.
const RLIMITS: &[(&str, &str, &str, Unit)] = &[
    ("Max open files", "RLIMIT_NOFILE", "nofile", Unit::Count),
    ("Max processes", "RLIMIT_NPROC", "nproc", Unit::Count),
    ("Max locked memory", "RLIMIT_MEMLOCK", "memlock", Unit::Bytes),
    ("Max stack size", "RLIMIT_STACK", "stack", Unit::Bytes),
    ("Max address space", "RLIMIT_AS", "as", Unit::Bytes),
    ("Max data size", "RLIMIT_DATA", "data", Unit::Bytes),
    ("Max pending signals", "RLIMIT_SIGPENDING", "sigpending", Unit::Count),
];

/// Parses text like /proc/PID/limits: the kernel's name of each limit, soft and hard.
pub fn parse_rlimits(text: &str) -> Vec<(&str, Rlimit)> {
    text.lines().skip(1).filter_map(rlimit).collect()
}

/// `Max open files            1024                 524288               files     `
fn rlimit(line: &str) -> Option<(&str, Rlimit)> {
    // The columns are 26 wide; names contain single spaces only.
    let end = line.find("  ")?;
    let (name, rest) = line.split_at(end);
    let mut words = rest.split_ascii_whitespace();
    let mut value = || match words.next()? {
        "unlimited" => Some(None),
        n => n.parse().ok().map(Some),
    };
    let soft = value()?;
    Some((name, (soft, value()?)))
}

/// Reads every process once. A process that ends meanwhile is left out.
pub(super) fn scan(files: &Files<'_>, found: &mut Found) -> Processes {
    let mut totals = Processes::default();
    let mut all: Vec<Process> = Vec::new();
    let proc_dir = files.dir.dir("proc");
    let mut pids: Vec<u32> = proc_dir.iter().flat_map(|d| d.names()).filter_map(|n| n.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        all.extend(process(files, pid, &mut totals));
    }
    for process in &mut all {
        // RLIMIT_NPROC and RLIMIT_SIGPENDING bind a user's total, and root's processes are exempt
        // from the first.
        let of_user = totals.threads.get(&process.uid).copied().unwrap_or(0);
        if process.uid != 0 {
            process.used.insert("RLIMIT_NPROC", of_user);
        }
    }
    count_mappings(files, &all, &mut totals);
    rows(&all, found);
    totals
}

fn process(files: &Files<'_>, pid: u32, totals: &mut Processes) -> Option<Process> {
    let status = files.fetch(&format!("proc/{pid}/status")).ok()?;
    let status = Fields(status.as_bytes());
    let comm = status.get("Name").unwrap_or("").to_string();
    let uid = status.number("Uid")?;
    let threads = status.number("Threads").unwrap_or(1);
    *totals.threads.entry(uid).or_default() += threads;
    let limits = files.fetch(&format!("proc/{pid}/limits")).ok()?;
    let limits: HashMap<_, _> = parse_rlimits(&limits)
        .into_iter()
        .filter_map(|(name, limit)| RLIMITS.iter().find(|r| r.0 == name).map(|r| (r.1, limit)))
        .collect();
    let mut used = HashMap::new();
    let mut peak = HashMap::new();
    let put = |map: &mut HashMap<_, _>, name: &'static str, n: Option<u64>| {
        n.map(|n| map.insert(name, n));
    };
    // A kernel thread has no memory and no files.
    let size = status.bytes("VmSize");
    if size.is_some() {
        put(&mut used, "RLIMIT_MEMLOCK", status.bytes("VmLck"));
        put(&mut used, "RLIMIT_STACK", status.bytes("VmStk"));
        put(&mut used, "RLIMIT_DATA", status.bytes("VmData"));
        put(&mut used, "RLIMIT_AS", size);
        put(&mut peak, "RLIMIT_AS", status.bytes("VmPeak"));
        let queued = status.get("SigQ").and_then(|queued| queued.split('/').next()?.parse().ok());
        put(&mut used, "RLIMIT_SIGPENDING", queued);
        match open_files(files, pid, uid, totals) {
            Ok(n) => {
                used.insert("RLIMIT_NOFILE", n);
                if totals.files.as_ref().is_none_or(|(.., most)| n > *most) {
                    totals.files = Some((pid, comm.clone(), n));
                }
            }
            Err(Errno::ACCESS | Errno::PERM) => files.refuse_process(),
            Err(_) => {}
        }
    }
    Some(Process { pid, comm, uid, threads, size: size.unwrap_or(0), limits, used, peak })
}

/// Counts a process's descriptors, and what its inotify and epoll descriptors watch.
fn open_files(files: &Files<'_>, pid: u32, uid: u32, totals: &mut Processes) -> Result<u64, Errno> {
    let dir = files.dir.open_dir(&format!("proc/{pid}/fd"))?;
    let mut n = 0;
    for fd in dir.names().iter().filter(|n| n.as_bytes().first().is_some_and(u8::is_ascii_digit)) {
        n += 1;
        // A descriptor closed meanwhile still counts as open.
        let Ok(target) = dir.link(fd) else { continue };
        let kind = match target.as_str() {
            "anon_inode:inotify" | "inotify" => "inotify ",
            "anon_inode:[eventpoll]" => "tfd:",
            _ => continue,
        };
        let info = files.fetch(&format!("proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
        let watched = info.lines().filter(|l| l.starts_with(kind)).count() as u64;
        if kind == "tfd:" {
            *totals.epoll.entry(uid).or_default() += watched;
        } else {
            let user = totals.inotify.entry(uid).or_default();
            user.0 += 1;
            user.1 += watched;
        }
    }
    Ok(n)
}

/// Counts the mappings of the processes that are likely to have most.
fn count_mappings(files: &Files<'_>, all: &[Process], totals: &mut Processes) {
    let mut largest: Vec<&Process> = all.iter().filter(|p| p.size > 0).collect();
    largest.sort_by_key(|p| std::cmp::Reverse(p.size));
    let mut busiest: Vec<&Process> = largest.clone();
    busiest.sort_by_key(|p| std::cmp::Reverse(p.threads));
    let mut chosen: Vec<&Process> =
        largest.into_iter().take(MAPPED).chain(busiest.into_iter().take(MAPPED)).collect();
    chosen.sort_by_key(|p| p.pid);
    chosen.dedup_by_key(|p| p.pid);
    for process in chosen {
        let Ok(n) = lines(files, process) else { continue };
        if totals.maps.as_ref().is_none_or(|(.., most)| n > *most) {
            totals.maps = Some((process.pid, process.comm.clone(), n));
        }
    }
}

/// The number of mappings of a process; their text is not kept in memory. By the reader: another user may have the kernel wait for the
/// lock of the mappings.
fn lines(files: &Files<'_>, process: &Process) -> std::io::Result<u64> {
    let directory = format!("proc/{}", process.pid);
    let whose = Whose::process(&files.dir.path(&directory), process.pid);
    let maps = Source::opened(files.dir.open(&format!("{directory}/maps"))?, whose)?;
    let (mut buf, mut n, mut at) = ([0; 32 << 10], 0, 0);
    loop {
        match maps.read_at(&mut buf, at)? {
            0 => return Ok(n),
            len => {
                n += buf[..len].iter().filter(|&&b| b == b'\n').count() as u64;
                at += len as u64;
            }
        }
    }
}

/// Use of a limit, from 0 to 1 and beyond.
fn fullness(process: &Process, name: &str) -> f64 {
    let (Some(Some(soft)), Some(&used)) = (process.limits.get(name).map(|l| l.0), process.used.get(name))
    else {
        return 0.0;
    };
    let most = process.peak.get(name).map_or(used, |p| used.max(*p));
    most as f64 / (soft as f64).max(1.0)
}

/// A row for each limit and value of it, with the process nearest to it; and a row for each process that has
/// used 80 %.
fn rows(all: &[Process], found: &mut Found) {
    for &(_, name, option, unit) in RLIMITS {
        // soft limit -> number of processes, the fullest one
        let mut groups: BTreeMap<u64, (u64, &Process)> = BTreeMap::new();
        let mut add = |process: &Process, note: Option<String>| {
            let Some(&(Some(soft), hard)) = process.limits.get(name) else { return };
            let knob = Knob::Prlimit { pid: process.pid, option, hard };
            let hard = hard.map_or("hard limit unlimited".into(), |h| format!("hard limit {h}"));
            let comm = process.comm.clone();
            found.readings.push(
                Reading::new(name, Area::Processes, unit, Some(soft), knob)
                    .scope(Scope::Process { pid: process.pid, comm })
                    .used(process.used.get(name).copied())
                    .peak(process.peak.get(name).copied())
                    .note(Some(note.map_or(hard.clone(), |n| format!("{n}; {hard}")))),
            );
        };
        for process in all {
            let Some(&(Some(soft), _)) = process.limits.get(name) else { continue };
            if !process.used.contains_key(name) {
                continue;
            }
            let full = fullness(process, name);
            if full >= 0.8 {
                add(process, None);
                continue;
            }
            let group = groups.entry(soft).or_insert((0, process));
            group.0 += 1;
            if full > fullness(group.1, name) {
                group.1 = process;
            }
        }
        for (n, process) in groups.into_values() {
            add(process, (n > 1).then(|| format!("the fullest of {n} processes with this limit")));
        }
    }
}

/// Open files and mappings of the process with most, for the limits that bind any process.
pub(super) fn fullest(of: &Option<(u32, String, u64)>) -> (Option<u64>, Option<Scope>) {
    match of {
        Some((pid, comm, n)) => (Some(*n), Some(Scope::Process { pid: *pid, comm: comm.clone() })),
        None => (None, None),
    }
}

/// The user with most of something.
pub(super) fn most(of: impl Iterator<Item = (u32, u64)>) -> Option<(u32, u64)> {
    of.max_by_key(|(_, n)| *n)
}

/// Numbers of `/proc/key-users`: user, keys of its quota used and allowed, bytes used and allowed.
pub(super) fn key_users(text: &str) -> Vec<(u32, [u64; 4])> {
    text.lines()
        .filter_map(|line| {
            let (uid, rest) = line.split_once(':')?;
            let mut words = rest.split_ascii_whitespace().skip(2);
            let mut pair = || {
                let (used, max) = words.next()?.split_once('/')?;
                Some((used.parse().ok()?, max.parse().ok()?))
            };
            let (keys, bytes): ((u64, u64), (u64, u64)) = (pair()?, pair()?);
            Some((first(uid)?, [keys.0, keys.1, bytes.0, bytes.1]))
        })
        .collect()
}
