//! Keeps running processes level: looks at their threads, plans, waits whether it stays so, moves.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ncpu_machine::process::{self, Fields, Stat};
use ncpu_machine::{CpuSet, Topology, Wanted};

use super::Done;
use super::follow::Follower;
use super::level::{self, Level, Move, Thread, Tree};
use super::loads::{Loads, tree};
use crate::journal::{Journal, Undo, start_of};
use crate::{Error, Result, sys};

/// A thread that wants this part of a CPU, running or waiting for one, counts as running.
const RUNNING: f64 = 0.2;
/// A thread that was moved stays for this time; each further move doubles it.
const REST: Duration = Duration::from_secs(1);

/// The threads to balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A process and all it started.
    Tree(u32),
    /// The processes of a control group: its directory.
    Cgroup(PathBuf),
}

/// How to balance.
#[derive(Clone, Debug)]
pub struct Options {
    /// Change nothing, only tell.
    pub dry_run: bool,
    /// Move memory too.
    pub memory: bool,
}

/// How level it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Threads that run.
    pub running: usize,
    /// Of them those that chose their own CPUs.
    pub own: usize,
    /// Largest difference of running threads between nodes, beyond what their CPUs deserve.
    pub nodes: f64,
    /// The same between caches.
    pub caches: f64,
    /// Share of memory that lies on the nodes of the threads that use it, 0–1; of what all share, no more on a node than
    /// its share.
    pub local: Option<f64>,
}

struct Known {
    pid: u32,
    /// Where it is not told how much it spent and where, files of /proc do.
    schedstat: Option<File>,
    stat: Option<File>,
    spent: u64,
    looked: Instant,
    load: f64,
    cpu: Option<u32>,
    own_mask: bool,
    refused: bool,
    ours: Option<CpuSet>,
    moved: Option<Instant>,
    moves: u32,
    /// It is kept on its node.
    held: bool,
}

struct Process {
    start: u64,
    name: String,
    /// The CPUs its threads may use without us.
    usual: CpuSet,
    journaled: bool,
}

/// Balances.
pub struct Balancer {
    tree: Tree,
    /// All CPUs that threads are spread over.
    all: CpuSet,
    whose: Whose,
    options: Options,
    journal: Journal,
    /// CPU demand of all threads, read in one go; `None`: it is read thread by thread from /proc.
    loads: Option<Loads>,
    begin: Instant,
    threads: HashMap<u32, Known>,
    processes: HashMap<u32, Process>,
    follower: Follower,
    pending: HashSet<(Level, String)>,
    masks: HashSet<String>,
    /// The moves made.
    pub done: Vec<Done>,
    /// How level it was at first, and is now.
    pub first: Option<State>,
    /// See `first`.
    pub last: State,
}

/// A process's number, a thread's, and what it has wanted of CPUs so far, where that was read.
type Member = (u32, u32, Option<Wanted>);

/// A small file that is read again and again.
fn again<'a>(file: &mut Option<File>, path: &str, buf: &'a mut [u8]) -> Option<&'a [u8]> {
    if file.is_none() {
        *file = File::open(path).ok();
    }
    let length = file.as_ref()?.read_at(buf, 0).ok()?;
    Some(&buf[..length])
}

impl Balancer {
    /// Begins; nothing is looked at yet.
    pub fn new(
        machine: &Topology,
        whose: Whose,
        options: Options,
        journal: Journal,
        loads: Option<Loads>,
    ) -> Balancer {
        let tree = Tree::of(machine);
        let caches = tree.caches.iter().flatten();
        let cores = tree.cores.iter().flatten().flatten();
        let groups = tree.nodes.iter().map(|(_, c)| c).chain(caches).chain(cores);
        let masks = groups.map(CpuSet::to_list).collect();
        let begin = Instant::now();
        let all = tree.nodes.iter().flat_map(|(_, cpus)| cpus.iter()).collect();
        Balancer {
            tree,
            all,
            whose,
            options,
            journal,
            loads,
            begin,
            threads: HashMap::new(),
            processes: HashMap::new(),
            follower: Follower::new(begin),
            pending: HashSet::new(),
            masks,
            done: Vec::new(),
            first: None,
            last: State::default(),
        }
    }

    /// The processes, and their threads with what each has wanted so far; not that where it is yet to be read.
    fn members(&mut self) -> (Vec<u32>, Vec<Member>) {
        // If the read fails once, it is not tried again.
        let all = self.loads.as_mut().and_then(|read| read().ok());
        if all.is_none() {
            self.loads = None;
        }
        let pids = match (&self.whose, &all) {
            (Whose::Tree(root), Some(all)) => tree(*root, all),
            (Whose::Tree(root), None) => sys::tree_of(*root),
            (Whose::Cgroup(dir), _) => {
                let text = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
                text.lines().filter_map(|l| l.parse().ok()).collect()
            }
        };
        let threads = match all {
            Some(all) => {
                let ours: HashSet<u32> = pids.iter().copied().collect();
                all.iter().filter(|w| ours.contains(&w.pid)).map(|w| (w.pid, w.tid, Some(*w))).collect()
            }
            None => {
                pids.iter().flat_map(|&p| sys::threads(p).into_iter().map(move |t| (p, t, None))).collect()
            }
        };
        (pids, threads)
    }

    /// Looks, and moves what the look before had already wanted to move. Whether any process is left.
    ///
    /// # Errors
    /// The journal cannot be written; nothing was changed that is not in it.
    pub fn look(&mut self) -> Result<bool> {
        let mut alive = HashSet::new();
        let (pids, threads) = self.members();
        for (pid, tid, wanted) in threads {
            if self.look_at(pid, tid, wanted)? {
                alive.insert(tid);
            }
        }
        self.threads.retain(|tid, _| alive.contains(tid));
        self.processes.retain(|pid, _| pids.contains(pid));
        if alive.is_empty() {
            return Ok(false);
        }
        let running = self.running();
        self.note_state(&running);
        let moves = level::plan(&self.tree, &running);
        let key = |m: &Move| (m.level, m.from.to_list());
        let ripe: Vec<Move> = moves.iter().filter(|m| self.pending.contains(&key(m))).cloned().collect();
        self.pending = moves.iter().map(key).collect();
        // The threads moved now settle first.
        for each in ripe {
            self.pending.remove(&key(&each));
            self.carry_out(&each)?;
        }
        if self.options.memory && self.tree.nodes.len() > 1 {
            self.follow(&running)?;
        }
        Ok(true)
    }

    /// Notes what a thread wants. Whether it is still there.
    fn look_at(&mut self, pid: u32, tid: u32, wanted: Option<Wanted>) -> Result<bool> {
        let mut buf = [0u8; 1024];
        let dir = format!("/proc/{pid}/task/{tid}");
        if !self.threads.contains_key(&tid) {
            let Ok(mask) = sys::affinity(tid) else { return Ok(false) };
            let free = self.all.is_subset(&mask);
            let ours = self.masks.contains(&mask.to_list());
            let Some(process) = self.process(pid, &mask)? else { return Ok(false) };
            // A thread begins with its creator's mask, which may be one that we have set.
            let inherited = process.journaled && ours && !free;
            let known = Known {
                pid,
                schedstat: None,
                stat: None,
                spent: 0,
                looked: Instant::now(),
                load: 0.0,
                cpu: None,
                // A thread that was bound to some of the CPUs is left there.
                own_mask: !free && !inherited,
                refused: false,
                ours: inherited.then_some(mask),
                moved: None,
                moves: 0,
                held: false,
            };
            self.threads.insert(tid, known);
        }
        let Some(known) = self.threads.get_mut(&tid) else { return Ok(false) };
        let spent = wanted.map(|w| w.spent).or_else(|| {
            let text = again(&mut known.schedstat, &format!("{dir}/schedstat"), &mut buf)?;
            // `on CPU` and `waiting for one`, nanoseconds.
            let words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
            let mut words = words.map_while(|w| w.parse::<u64>().ok());
            Some(words.next()? + words.next()?)
        });
        let Some(spent) = spent else { return Ok(false) };
        let elapsed = known.looked.elapsed().as_nanos() as f64;
        if known.spent > 0 && elapsed > 1e6 {
            known.load = spent.saturating_sub(known.spent) as f64 / elapsed;
        }
        (known.spent, known.looked) = (spent, Instant::now());
        known.cpu = None;
        if known.load < RUNNING {
            return Ok(true);
        }
        known.cpu = wanted.map(|w| w.cpu).or_else(|| {
            let text = again(&mut known.stat, &format!("{dir}/stat"), &mut buf)?;
            Stat::parse(text)?.cpu()
        });
        // The program may have chosen CPUs meanwhile, which are its own then, or let go of those it chose.
        if let Ok(now) = sys::affinity(tid) {
            match &known.ours {
                Some(ours) => known.own_mask |= now != *ours,
                None => known.own_mask = known.refused || !self.all.is_subset(&now),
            }
            // The CPUs that its threads get back at the end.
            if let Some(process) = self.processes.get_mut(&pid).filter(|p| !p.journaled)
                && self.all.is_subset(&now)
            {
                process.usual = now;
            }
        }
        Ok(true)
    }

    fn process(&mut self, pid: u32, mask: &CpuSet) -> Result<Option<&mut Process>> {
        if !self.processes.contains_key(&pid) {
            let Some(start) = start_of(pid) else { return Ok(None) };
            let name = process::name(format!("/proc/{pid}").as_ref()).unwrap_or_default();
            // A child of a process we placed began with that one's mask.
            let narrow = !self.all.is_subset(mask) && self.masks.contains(&mask.to_list());
            let parent = self.processes.values().find(|p| p.journaled && narrow).map(|p| p.usual.clone());
            let inherited = parent.is_some();
            let process = Process {
                start,
                name: name.trim().chars().filter(|c| !c.is_control()).collect(),
                journaled: false,
                usual: parent.unwrap_or_else(|| mask.clone()),
            };
            self.processes.insert(pid, process);
            if inherited {
                self.write_down(pid)?;
            }
        }
        Ok(self.processes.get_mut(&pid))
    }

    /// Notes the CPUs of a process's threads in the journal, before the first of them is given others.
    fn write_down(&mut self, pid: u32) -> Result<()> {
        let Some(process) = self.processes.get_mut(&pid).filter(|p| !p.journaled) else { return Ok(()) };
        let except = self.threads.iter().filter(|(_, k)| k.pid == pid && k.own_mask);
        let except = except.map(|(tid, _)| *tid).collect();
        self.journal.will(Undo::Affinity {
            pid,
            start: process.start,
            cpus: process.usual.to_list(),
            ours: self.masks.iter().cloned().collect(),
            except,
        })?;
        process.journaled = true;
        Ok(())
    }

    fn running(&self) -> Vec<Thread> {
        let resting = |k: &Known| {
            let rest = REST * (1 << k.moves.saturating_sub(1).min(5));
            k.moved.is_some_and(|at| at.elapsed() < rest)
        };
        let one = |(&tid, k): (&u32, &Known)| {
            let memory = self.follower.shares(k.pid, &self.tree);
            Some(Thread { tid, pid: k.pid, cpu: k.cpu?, fixed: k.own_mask || resting(k), memory })
        };
        let mut out: Vec<Thread> = self.threads.iter().filter_map(one).collect();
        // The same threads give the same plan.
        out.sort_by_key(|t| t.tid);
        out
    }

    fn note_state(&mut self, running: &[Thread]) {
        let cpus: Vec<u32> = running.iter().map(|t| t.cpu).collect();
        let nodes: Vec<CpuSet> = self.tree.nodes.iter().map(|(_, c)| c.clone()).collect();
        let caches: Vec<CpuSet> = self.tree.caches.iter().flatten().cloned().collect();
        let own = running.iter().filter(|t| self.threads.get(&t.tid).is_some_and(|k| k.own_mask)).count();
        self.last = State {
            running: running.len(),
            own,
            nodes: level::imbalance(&nodes, &cpus),
            caches: level::imbalance(&caches, &cpus),
            local: self.last.local,
        };
        if !running.is_empty() {
            self.first.get_or_insert(self.last);
        }
    }

    fn carry_out(&mut self, each: &Move) -> Result<()> {
        let Some(process) = self.processes.get(&each.pid) else { return Ok(()) };
        let known = self.threads.get(&each.tid);
        // A core is only a nudge: the kernel may choose again after that, in the mask there was.
        let before = known.and_then(|k| k.ours.clone()).unwrap_or_else(|| process.usual.clone());
        let nudge = each.level == Level::Core;
        let mask = if nudge { each.to.and(&before) } else { each.to.clone() };
        let reason = format!("{} threads run there and {} here", each.counts.0, each.counts.1);
        self.change((each.tid, each.pid), each.level, &each.from, &mask, nudge.then_some(&before), reason)?;
        if let Some(known) = self.threads.get_mut(&each.tid) {
            known.moved = Some(Instant::now());
            // In a dry run each move is reported once.
            known.moves = if self.options.dry_run { 6 } else { known.moves + 1 };
        }
        Ok(())
    }

    /// Keeps a thread on its node, to which its memory is moving: with fewer running threads than nodes the kernel may
    /// move a thread to an idle node, and memory would run after it for ever.
    fn hold(&mut self, thread: &Thread) -> Result<()> {
        let Some(node) = self.tree.node_of(thread.cpu) else { return Ok(()) };
        let Some(process) = self.processes.get(&thread.pid) else { return Ok(()) };
        let Some(known) = self.threads.get_mut(&thread.tid) else { return Ok(()) };
        if known.held || known.own_mask || known.ours.is_some() {
            return Ok(());
        }
        known.held = true;
        let (from, mask) = (process.usual.clone(), self.tree.nodes[node].1.clone());
        let reason = "stays with its memory, which is moved here".into();
        self.change((thread.tid, thread.pid), Level::Node, &from, &mask, None, reason)
    }

    /// Gives a thread CPUs, for a nudge at once back those of `back`, and reports it; in a dry run it only reports.
    fn change(
        &mut self,
        (tid, pid): (u32, u32),
        level: Level,
        from: &CpuSet,
        mask: &CpuSet,
        back: Option<&CpuSet>,
        reason: String,
    ) -> Result<()> {
        let mut done = Done {
            at: self.begin.elapsed().as_secs_f64(),
            pid,
            tid: Some(tid),
            name: self.processes.get(&pid).map_or(String::new(), |p| p.name.clone()),
            what: level.word(),
            from: from.to_list(),
            to: mask.to_list(),
            bytes: None,
            reason,
            done: "no".into(),
        };
        if !self.options.dry_run {
            self.write_down(pid)?;
            let mut result = sys::set_affinity(tid, mask);
            if let (Some(back), true) = (back, result.is_ok()) {
                result = sys::set_affinity(tid, back);
            }
            done.done = result.as_ref().map_or_else(ToString::to_string, |()| "yes".into());
            if let Some(known) = self.threads.get_mut(&tid) {
                if result.is_ok() && back.is_none() {
                    known.ours = Some(mask.clone());
                }
                // A thread that refuses is not asked again.
                known.refused |= result.is_err();
                known.own_mask |= known.refused;
            }
        }
        self.done.push(done);
        Ok(())
    }

    /// Moves memory after the threads, a step for each process at a look.
    fn follow(&mut self, running: &[Thread]) -> Result<()> {
        let processes = &self.processes;
        let names = |pid| processes.get(&pid).map_or(String::new(), |p| p.name.clone());
        let (done, local) = self.follower.look(&self.tree, running, &names, self.options.dry_run);
        // Little memory has arrived by now.
        let arrived: HashSet<u32> = done.iter().map(|d| d.pid).collect();
        self.done.extend(done);
        if local.is_some() {
            self.last.local = local;
            if let Some(first) = &mut self.first {
                first.local = first.local.or(local);
            }
        }
        let moving: Vec<&Thread> =
            running.iter().filter(|t| arrived.contains(&t.pid) || self.follower.moves(t.pid)).collect();
        moving.into_iter().try_for_each(|t| self.hold(t))
    }

    /// Gives threads their CPUs back. Memory stays where it is.
    pub fn finish(self) -> (Vec<Done>, crate::journal::Replayed) {
        let done = self.done;
        (done, self.journal.finish())
    }
}

/// Whether there is such a process that can be placed.
///
/// # Errors
/// It is gone, a zombie or a thread of the kernel.
pub fn check(pid: u32) -> Result<()> {
    let status = process::read(format!("/proc/{pid}/status").as_ref())
        .map_err(|_| Error::Refused(format!("there is no process {pid}; `ps -e` lists those there are")))?;
    let status = Fields(&status);
    if status.get("State").is_some_and(|s| s.starts_with('Z')) {
        return Err(Error::Refused(format!(
            "process {pid} has ended: its parent has yet to take note (zombie)"
        )));
    }
    if status.get("VmSize").is_none() {
        return Err(Error::Refused(format!(
            "process {pid} is a thread of the kernel, which has no memory of its own"
        )));
    }
    Ok(())
}
