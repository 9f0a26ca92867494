//! The program's processes and threads as /proc shows them: who they are, what CPU time they used and waited for, and
//! what they wait for now.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use ncpu_machine::process::{self, Fields, Stat};

use crate::program::processes::started_by;
use crate::program::{Counts, Ended};

/// CPU time of processes and of those they waited for, and what they met.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Accounts {
    /// Seconds of user time.
    pub user: f64,
    /// Seconds of system time.
    pub system: f64,
    /// Faults, switches and I/O.
    pub met: Counts,
}

impl Accounts {
    pub fn add(&mut self, other: &Accounts) {
        self.user += other.user;
        self.system += other.system;
        let (met, more) = (&mut self.met, other.met);
        met.minor_faults += more.minor_faults;
        met.major_faults += more.major_faults;
        met.voluntary += more.voluntary;
        met.involuntary += more.involuntary;
        met.read += more.read;
        met.written += more.written;
    }

    /// The growth since an earlier look; 0 where the value seems to have gone back.
    pub fn since(&self, before: &Accounts) -> Accounts {
        let (now, old) = (self.met, before.met);
        Accounts {
            user: (self.user - before.user).max(0.0),
            system: (self.system - before.system).max(0.0),
            met: Counts {
                minor_faults: now.minor_faults.saturating_sub(old.minor_faults),
                major_faults: now.major_faults.saturating_sub(old.major_faults),
                voluntary: now.voluntary.saturating_sub(old.voluntary),
                involuntary: now.involuntary.saturating_sub(old.involuntary),
                read: now.read.saturating_sub(old.read),
                written: now.written.saturating_sub(old.written),
            },
        }
    }
}

impl From<&Ended> for Accounts {
    fn from(ended: &Ended) -> Accounts {
        Accounts { user: ended.user, system: ended.system, met: ended.counts }
    }
}

/// The activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// On a CPU, or waiting for one.
    Runnable,
    /// Asleep in a futex.
    Futex,
    /// Blocked in the kernel by I/O.
    Io,
    /// Blocked in the kernel: a lock, or I/O that its function does not tell.
    Blocked,
    /// Asleep for anything else, or stopped.
    Asleep,
}

/// A thread, as it was at the last look.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Thread {
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Clock ticks since boot when it began: tells it from a later one with its number.
    pub start: u64,
    pub doing: Doing,
    /// ns on CPU.
    pub ran: u64,
    /// ns on run queues.
    pub waited: u64,
    /// ns of user time and of system time, as the kernel divides what it was on CPU by its ticks.
    pub divided: (u64, u64),
    pub minor_faults: u64,
    pub major_faults: u64,
    /// Context switches, voluntary and not; as they were at the last full look.
    pub switches: (u64, u64),
}

/// The processes of a program, and a look at each of their threads.
pub(super) struct Processes {
    proc: PathBuf,
    /// Every process belongs to it but this one.
    all: bool,
    /// Processes already reported, some of which may be gone.
    known: BTreeSet<u32>,
    /// Their names.
    pub names: HashMap<u32, String>,
    /// The threads that live, by number.
    pub threads: BTreeMap<u32, Thread>,
}

impl Processes {
    /// A process and all it started.
    pub fn of(root: &Path, pid: u32) -> Processes {
        let mut out = Processes {
            proc: root.join("proc"),
            all: false,
            known: BTreeSet::from([pid]),
            names: HashMap::new(),
            threads: BTreeMap::new(),
        };
        out.find();
        out
    }

    /// All processes but this one.
    pub fn all(root: &Path) -> Processes {
        let mut out = Processes {
            proc: root.join("proc"),
            all: true,
            known: BTreeSet::new(),
            names: HashMap::new(),
            threads: BTreeMap::new(),
        };
        out.find();
        out
    }

    /// Takes note of a process.
    pub fn met(&mut self, pid: u32) {
        if !self.all || pid != std::process::id() {
            self.known.insert(pid);
        }
    }

    /// Whether a process is one of the program's.
    pub fn has(&self, pid: u32) -> bool {
        if self.all { pid != std::process::id() } else { self.known.contains(&pid) }
    }

    /// Those that are known and may live.
    pub fn pids(&self) -> Vec<u32> {
        self.known.iter().copied().collect()
    }

    /// Looks for processes that those known have started (`CONFIG_PROC_CHILDREN`; all distributions have it).
    pub fn find(&mut self) {
        if self.all {
            let own = std::process::id();
            self.known
                .extend(process::pids(&self.proc).unwrap_or_default().into_iter().filter(|&pid| pid != own));
            return;
        }
        let mut left: Vec<u32> = self.pids();
        while let Some(pid) = left.pop() {
            for tid in process::threads(&self.proc.join(pid.to_string())) {
                let task = self.proc.join(format!("{pid}/task/{tid}"));
                for child in started_by(&task).unwrap_or_default() {
                    if self.known.insert(child) {
                        left.push(child);
                    }
                }
            }
        }
    }

    /// Looks at every thread, at its switches only where `full`. Threads that
    /// have ended since the last look are handed back as they were then.
    pub fn look(&mut self, full: bool) -> Vec<(u32, Thread)> {
        let mut before = std::mem::take(&mut self.threads);
        for pid in self.pids() {
            let dir = self.proc.join(pid.to_string());
            let tids = process::threads(&dir);
            if tids.is_empty() {
                self.known.remove(&pid);
            }
            for tid in tids {
                let task = dir.join(format!("task/{tid}"));
                let Some(mut thread) = thread(&task, pid) else { continue };
                let same = before.remove(&tid).filter(|old| old.start == thread.start);
                match switches(&task).filter(|_| full) {
                    Some(switches) => thread.switches = switches,
                    None => thread.switches = same.map_or((0, 0), |old| old.switches),
                }
                if tid == pid && self.names.get(&pid) != Some(&thread.name) {
                    self.names.insert(pid, thread.name.clone());
                }
                self.threads.insert(tid, thread);
            }
        }
        before.into_iter().collect()
    }

    /// CPU time and faults of the processes that are there (zombies too) and of all they have waited for.
    pub fn accounts(&self) -> Accounts {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let mut sum = Accounts::default();
        for pid in &self.known {
            let dir = self.proc.join(pid.to_string());
            let Ok(stat) = process::read(&dir.join("stat")) else { continue };
            let Some(stat) = Stat::parse(&stat) else { continue };
            let [user, system, of_children, system_of_children] = stat.times().unwrap_or_default();
            let [minor, minor_of_children, major, major_of_children] = stat.faults().unwrap_or_default();
            sum.add(&Accounts {
                user: (user + of_children) as f64 / ticks,
                system: (system + system_of_children) as f64 / ticks,
                met: Counts {
                    minor_faults: minor + minor_of_children,
                    major_faults: major + major_of_children,
                    ..self.io(&dir)
                },
            });
        }
        sum
    }

    /// Bytes that a process and those it waited for moved to and from storage.
    fn io(&self, dir: &Path) -> Counts {
        let text = process::read(&dir.join("io")).unwrap_or_default();
        let of = |name: &str| Fields(&text).number(name).unwrap_or(0);
        Counts { read: of("read_bytes"), written: of("write_bytes"), ..Counts::default() }
    }

    /// How often the threads that live went to another CPU, where the kernel tells.
    pub fn migrations(&self) -> HashMap<u32, u64> {
        let of = |tid: &u32, t: &Thread| {
            let text = fs::read_to_string(self.proc.join(format!("{}/task/{tid}/sched", t.pid))).ok()?;
            let line = text.lines().find(|l| l.starts_with("se.nr_migrations"))?;
            Some((*tid, line.rsplit(':').next()?.trim().parse().ok()?))
        };
        self.threads.iter().filter_map(|(tid, t)| of(tid, t)).collect()
    }

    /// The processes that are there and no zombies, with their names.
    pub fn living(&self) -> Vec<(u32, String)> {
        let alive = |pid: &u32| {
            let stat = process::read(&self.proc.join(format!("{pid}/stat"))).ok()?;
            let stat = Stat::parse(&stat)?;
            (!stat.has_ended()).then(|| (*pid, stat.name()))
        };
        self.known.iter().filter_map(alive).collect()
    }
}

/// A small file as text.
fn text(file: PathBuf) -> Option<String> {
    Some(String::from_utf8_lossy(&process::read(&file).ok()?).into_owned())
}

fn thread(task: &Path, pid: u32) -> Option<Thread> {
    let stat = process::read(&task.join("stat")).ok()?;
    let stat = Stat::parse(&stat)?;
    if stat.has_ended() {
        return None;
    }
    let ([user, system, ..], [minor_faults, _, major_faults, _]) = (stat.times()?, stat.faults()?);
    // Time on CPU, time on run queues, times it was given a CPU.
    let sched = text(task.join("schedstat")).unwrap_or_default();
    let mut sched = sched.split_ascii_whitespace().map(|w| w.parse::<u64>().ok());
    let (ran, waited) = (sched.next().flatten(), sched.next().flatten());
    let ticks = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    Some(Thread {
        pid,
        name: stat.name(),
        start: stat.start()?,
        doing: doing(stat.state(), || text(task.join("wchan")).unwrap_or_default()),
        // Without schedstats to the tick.
        ran: ran.unwrap_or((user + system) * ticks),
        waited: waited.unwrap_or(0),
        divided: (user * ticks, system * ticks),
        minor_faults,
        major_faults,
        switches: (0, 0),
    })
}

/// Kernel functions in which threads sleep for I/O and nothing else, by the beginnings of their names.
const IO: [&str; 12] = [
    "folio_wait_bit",
    "wait_on_page_bit",
    "wait_on_buffer",
    "bit_wait_io",
    "blk_mq_get_tag",
    "submit_bio_wait",
    "blkdev_",
    "iomap_dio",
    "__iomap_dio",
    "jbd2_log_wait_commit",
    "rq_qos_wait",
    "nfs_",
];

/// Kernel functions in which a parent waits, as if blocked, until its child is another program: vfork(2).
const VFORK: [&str; 4] = ["kernel_clone", "wait_for_vfork", "do_fork", "_do_fork"];

/// The activity of a thread, by its state and the kernel function that it sleeps in.
fn doing(state: u8, wchan: impl FnOnce() -> String) -> Doing {
    match state {
        b'R' => Doing::Runnable,
        b'S' | b'D' | b'I' => {
            let function = wchan();
            if IO.iter().any(|f| function.starts_with(f)) {
                Doing::Io
            } else if VFORK.iter().any(|f| function.starts_with(f)) {
                Doing::Asleep
            } else if state == b'D' {
                Doing::Blocked
            } else if function.starts_with("futex_") || function.starts_with("__futex") {
                Doing::Futex
            } else {
                Doing::Asleep
            }
        }
        _ => Doing::Asleep,
    }
}

fn switches(task: &Path) -> Option<(u64, u64)> {
    let status = process::read(&task.join("status")).ok()?;
    let status = Fields(&status);
    Some((status.number("voluntary_ctxt_switches")?, status.number("nonvoluntary_ctxt_switches")?))
}

#[cfg(test)]
mod tests {
    use ncpu_machine_trees::put;

    use super::*;

    fn stat(pid: u32, name: &str, state: char, times: [u64; 4]) -> String {
        let [u, s, cu, cs] = times;
        format!("{pid} ({name}) {state} 1 1 1 0 -1 0 11 12 1 2 {u} {s} {cu} {cs} 20 0 1 0 77 1 1")
    }

    #[test]
    fn a_tree_is_found_and_added_up_whatever_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let one = |pid: u32, name: &str, state, times, children: &str| {
            let task = format!("proc/{pid}/task/{pid}");
            put(dir.path(), format!("{task}/children"), children);
            put(dir.path(), format!("{task}/stat"), &stat(pid, name, state, times));
            put(dir.path(), format!("proc/{pid}/stat"), &stat(pid, name, state, times));
            put(dir.path(), format!("{task}/schedstat"), "5000000 7000000 3\n");
            put(
                dir.path(),
                format!("{task}/status"),
                "voluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t2\n",
            );
        };
        one(7, "make", 'S', [100, 50, 300, 50], "8 9 ");
        one(8, "a) R (b\n", 'R', [20, 10, 0, 0], "");
        one(9, "gone", 'Z', [1, 1, 0, 0], "");
        put(dir.path(), "proc/7/task/7/wchan", "futex_wait_queue");
        put(dir.path(), "proc/7/io", "rchar: 9\nread_bytes: 4096\nwrite_bytes: 512\n");
        let mut processes = Processes::of(dir.path(), 7);
        assert_eq!(processes.pids(), [7, 8, 9]);
        assert!(processes.look(true).is_empty());
        let thread = &processes.threads[&8];
        assert_eq!((&*thread.name, thread.doing, thread.start), ("a) R (b\n", Doing::Runnable, 77));
        assert_eq!((thread.ran, thread.waited, thread.switches), (5_000_000, 7_000_000, (4, 2)));
        assert_eq!(processes.threads[&7].doing, Doing::Futex);
        assert!(!processes.threads.contains_key(&9), "a zombie does nothing");
        let sum = processes.accounts();
        assert_eq!((sum.user, sum.system), (4.21, 1.11), "the zombie's time counts until it is waited for");
        assert_eq!((sum.met.minor_faults, sum.met.major_faults), (69, 9));
        assert_eq!((sum.met.read, sum.met.written), (4096, 512));
        assert_eq!(processes.living(), [(7, "make".into()), (8, "a) R (b\n".into())]);
        fs::remove_dir_all(dir.path().join("proc/8")).unwrap();
        let gone = processes.look(false);
        assert_eq!(gone.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), [8]);
        assert_eq!(processes.threads[&7].switches, (4, 2), "kept where they are not read");
        assert_eq!(processes.pids(), [7, 9]);
    }

    #[test]
    fn what_threads_wait_for_is_told_where_its_function_does() {
        let told = |state, wchan: &str| doing(state, || wchan.to_string());
        assert_eq!(told(b'D', "folio_wait_bit_common"), Doing::Io);
        assert_eq!(told(b'D', "do_vmi_munmap"), Doing::Blocked);
        assert_eq!(told(b'D', "0"), Doing::Blocked);
        assert_eq!(told(b'D', "kernel_clone"), Doing::Asleep);
        assert_eq!(told(b'S', "futex_do_wait"), Doing::Futex);
        assert_eq!(told(b'S', "do_poll"), Doing::Asleep);
        assert_eq!(told(b'T', ""), Doing::Asleep);
        assert_eq!(told(b'R', "0"), Doing::Runnable);
    }

    #[test]
    fn accounts_do_not_go_back() {
        let now = Accounts { user: 1.0, system: 2.0, ..Accounts::default() };
        assert_eq!(Accounts::default().since(&now), Accounts::default());
        assert_eq!(now.since(&Accounts { user: 0.5, ..Accounts::default() }).user, 0.5);
    }
}
