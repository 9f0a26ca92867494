//! Threads: names, time on CPU and off.

use std::collections::HashMap;
use std::sync::Arc;

use crate::file::Origin;

/// Threads that are kept; the time of those met later is kept without their names.
const MAX_THREADS: usize = 1 << 20;
/// Bytes of a name: the kernel's have 15.
const LONGEST: usize = 64;

/// A thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub pid: u32,
    pub tid: u32,
    pub process: Arc<str>,
    pub name: Arc<str>,
    /// Nanoseconds on CPU, asleep, and runnable without a CPU, by switches.
    pub ran: u64,
    pub slept: u64,
    pub waited: u64,
    /// Time that its samples stand for.
    pub sampled: f64,
    /// Switches: to wait, and since another took the CPU.
    pub voluntary: u64,
    pub involuntary: u64,
    state: On,
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum On {
    /// No switch of it was met.
    Unknown(u64),
    /// Since when, and on which CPU.
    Cpu(u64, Option<u32>),
    /// Since when, and whether another thread took the CPU.
    Off(u64, bool),
    Ended,
}

/// All threads.
pub(crate) struct Threads {
    living: HashMap<u32, Thread>,
    pub done: Vec<Thread>,
    processes: HashMap<u32, Arc<str>>,
    begin: u64,
    /// Switches were met.
    pub switches: bool,
    /// Nanoseconds on CPU by CPU, of switches.
    pub ran: HashMap<Option<u32>, u64>,
    /// Threads for which there was no room.
    pub unnamed: u64,
    unknown: Arc<str>,
}

fn short(name: &str) -> Arc<str> {
    let end = (0..=LONGEST.min(name.len())).rev().find(|&end| name.is_char_boundary(end));
    // A stack is a line of words with `;` between them.
    name[..end.unwrap_or(0)].replace(';', ",").into()
}

impl Threads {
    pub fn new(begin: u64) -> Threads {
        Threads {
            living: HashMap::new(),
            done: Vec::new(),
            processes: HashMap::new(),
            begin,
            switches: false,
            ran: HashMap::new(),
            unnamed: 0,
            unknown: "[unknown]".into(),
        }
    }

    fn thread(&mut self, pid: u32, tid: u32, since: u64) -> Option<&mut Thread> {
        if !self.living.contains_key(&tid) && self.living.len() + self.done.len() >= MAX_THREADS {
            self.unnamed += 1;
            return None;
        }
        let process = self.processes.get(&pid).unwrap_or(&self.unknown);
        let new = || Thread {
            pid,
            tid,
            process: process.clone(),
            name: process.clone(),
            ran: 0,
            slept: 0,
            waited: 0,
            sampled: 0.0,
            voluntary: 0,
            involuntary: 0,
            state: On::Unknown(since),
        };
        Some(self.living.entry(tid).or_insert_with(new))
    }

    /// A thread has a name. That of the first of its process is the process's.
    pub fn named(&mut self, pid: u32, tid: u32, name: &str) {
        let name = short(name);
        if pid == tid && (self.processes.contains_key(&pid) || self.processes.len() < MAX_THREADS) {
            self.processes.insert(pid, name.clone());
        }
        let begin = self.begin;
        if let Some(thread) = self.thread(pid, tid, begin) {
            if pid == tid {
                thread.process = name.clone();
            }
            thread.name = name;
        }
    }

    /// A thread began.
    pub fn began(&mut self, pid: u32, parent: u32, tid: u32, time: u64) {
        if let Some(before) = self.living.remove(&tid).filter(|thread| thread.state != On::Ended) {
            self.put_away(before, time);
        }
        if pid != parent
            && let Some(name) = self.processes.get(&parent).cloned()
            && self.processes.len() < MAX_THREADS
        {
            self.processes.insert(pid, name);
        }
        // perf reports threads that lived before with the time 0.
        self.thread(pid, tid, time.max(self.begin));
    }

    /// A thread ended.
    pub fn ended(&mut self, tid: u32, time: u64) {
        let Some(thread) = self.living.get(&tid).filter(|thread| thread.state != On::Ended) else { return };
        // It leaves the CPU behind this, and is not to be taken for a new one then.
        let left = Thread {
            state: On::Ended,
            ran: 0,
            slept: 0,
            waited: 0,
            sampled: 0.0,
            voluntary: 0,
            involuntary: 0,
            ..thread.clone()
        };
        if let Some(thread) = self.living.insert(tid, left) {
            self.put_away(thread, time);
        }
    }

    fn put_away(&mut self, mut thread: Thread, time: u64) {
        self.close(&mut thread, time);
        match self.done.len() < MAX_THREADS {
            true => self.done.push(thread),
            false => self.unnamed += 1,
        }
    }

    fn close(&mut self, thread: &mut Thread, time: u64) {
        match thread.state {
            On::Cpu(since, cpu) => {
                let ran = time.saturating_sub(since);
                thread.ran = thread.ran.saturating_add(ran);
                let sum = self.ran.entry(cpu).or_default();
                *sum = sum.saturating_add(ran);
            }
            On::Off(since, true) => {
                thread.waited = thread.waited.saturating_add(time.saturating_sub(since));
            }
            On::Off(since, false) => {
                thread.slept = thread.slept.saturating_add(time.saturating_sub(since));
            }
            On::Unknown(_) | On::Ended => {}
        }
    }

    /// A thread came on CPU, or left it.
    pub fn switched(&mut self, origin: &Origin, out: bool, preempted: bool) {
        self.switches = true;
        if origin.pid == 0 {
            return;
        }
        let begin = self.begin;
        self.thread(origin.pid, origin.tid, begin);
        let Some(mut thread) = self.living.remove(&origin.tid) else { return };
        // A thread had the CPU from its beginning if its first switch takes it off the CPU.
        if let (On::Unknown(since), true) = (thread.state, out) {
            thread.state = On::Cpu(since, origin.cpu);
        }
        if thread.state != On::Ended {
            self.close(&mut thread, origin.time);
            thread.state = match out {
                true => On::Off(origin.time, preempted),
                false => On::Cpu(origin.time, origin.cpu),
            };
            thread.voluntary += u64::from(out && !preempted);
            thread.involuntary += u64::from(out && preempted);
        }
        self.living.insert(origin.tid, thread);
    }

    /// Adds a sample; the names of process and thread.
    pub fn sampled(&mut self, origin: &Origin, seconds: f64) -> (Arc<str>, Arc<str>) {
        let begin = self.begin;
        match self.thread(origin.pid, origin.tid, begin) {
            Some(thread) => {
                thread.sampled += seconds;
                (thread.process.clone(), thread.name.clone())
            }
            None => (self.unknown.clone(), self.unknown.clone()),
        }
    }

    /// The file ends.
    pub fn finish(&mut self, end: u64) {
        for (_, mut thread) in std::mem::take(&mut self.living) {
            self.close(&mut thread, end);
            self.done.push(thread);
        }
        self.done.retain(|t| t.ran > 0 || t.slept > 0 || t.waited > 0 || t.sampled > 0.0 || t.voluntary > 0);
        self.done.sort_by_key(|thread| (thread.pid, thread.tid));
    }
}
