//! Hardware and software events counted by CPU, process or cgroup: what Solaris `cpustat` does.
//!
//! Every event is opened once for each CPU or thread and only read from then on. The events of a CPU are
//! opened in groups, which the kernel counts together or not at all, so that ratios within a group are of
//! the same time, and which one system call reads. Where there are more events than counters, the kernel
//! takes turns; counts are scaled by the time each did count, interval by interval.
//!
//! ```no_run
//! use ncpu_collectors::counters::{Collector, Counted, Options};
//!
//! let events = ncpu_machine::events::Sources::read("/".as_ref())?.parse("context-switches,page-faults")?;
//! let mut counters = Collector::begin(Options { target: Counted::Cpus, events, by_cpu: true })?;
//! std::thread::sleep(std::time::Duration::from_secs(1));
//! let table = counters.sample()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cgroup;
mod count;
mod groups;
mod kernel;
mod probe;
mod user_code;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ncpu_machine::events::{Class, Event};
use ncpu_table::Table;

use self::count::Count;
use self::groups::{Groups, Refusal};
use self::kernel::{Inherit, Kernel, Linux, Who};

pub use self::probe::countable;
pub use self::user_code::user_code;
use crate::program::processes;

/// Why nothing can be counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not allowed.
    #[error("counting {what} is not allowed here: {why}")]
    Denied {
        /// The events or the code that were to be counted.
        what: String,
        /// The reason, and the remedy.
        why: String,
    },
    /// Too many events for one process.
    #[error(
        "this takes {need} open files and the hard limit is {hard}: name fewer events with -e, run as root, or \
         raise the limit (`ulimit -Hn {need}` as root; LimitNOFILE={need} in a systemd unit)"
    )]
    Files {
        /// How many it takes.
        need: u64,
        /// How many there may be.
        hard: u64,
    },
    /// The process has ended.
    #[error("process {0} has ended")]
    Gone(u32),
    /// No event is left.
    #[error("nothing to count: {0}")]
    Nothing(String),
    /// The cgroup is not there.
    #[error("cgroup {path}")]
    Cgroup {
        /// As given.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The list of CPUs cannot be read.
    #[error(transparent)]
    Machine(#[from] ncpu_machine::Error),
    /// The kernel refused for a reason of its own.
    #[error("opening event {event}")]
    Open {
        /// Which.
        event: String,
        /// Why.
        source: std::io::Error,
    },
    /// An event cannot be read.
    #[error("reading event {event}")]
    Read {
        /// Which.
        event: String,
        /// Why.
        source: std::io::Error,
    },
}

/// A result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The threads whose events are counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Everybody's, on each CPU.
    Cpus,
    /// Those of a process, of those it has started, and of all they start, all as one.
    Tree(u32),
    /// Those of a program that waits for its `exec`, from then on, and of all it starts.
    Program(u32),
    /// Those of each process apart.
    Processes,
    /// A cgroup's: a path, absolute or below the mount.
    Cgroup(String),
}

/// The events and threads to count.
#[derive(Clone, Debug)]
pub struct Options {
    /// The threads to count.
    pub target: Counted,
    /// The events.
    pub events: Vec<Event>,
    /// Those of a process on each CPU apart; [`Counted::Cpus`] and [`Counted::Cgroup`] are so always.
    pub by_cpu: bool,
}

/// The CPU or process that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    cpu: Option<u32>,
    pid: Option<u32>,
}

/// A CPU or thread with its events.
struct Place<E> {
    key: Key,
    groups: Groups<E>,
}

/// Counts at intervals.
pub struct Collector<K: Kernel = Linux> {
    kernel: K,
    root: PathBuf,
    options: Options,
    /// The cgroup's directory, which is open while its events are.
    cgroup: Option<File>,
    places: Vec<Place<K::Event>>,
    /// Why an event is not counted.
    absent: Vec<Option<String>>,
    /// The kernel may not be counted.
    user_only: bool,
    /// Events already said to have had no counter.
    never_ran: BTreeSet<usize>,
    began: Instant,
    notes: Vec<String>,
}

impl Collector {
    /// Opens the events. A program that waits for its `exec` counts from there, everything else from now.
    ///
    /// # Errors
    /// None of the events can be counted, or it is not allowed; events that can be counted only in part are
    /// listed by [`notes`](Collector::notes).
    pub fn begin(options: Options) -> Result<Collector> {
        Collector::begin_with(Linux, Path::new("/"), options)
    }
}

impl<K: Kernel> Collector<K> {
    fn begin_with(kernel: K, root: &Path, options: Options) -> Result<Collector<K>> {
        let cgroup = match &options.target {
            Counted::Cgroup(path) => Some(cgroup::open(root, path)?),
            _ => None,
        };
        let mut collector = Collector {
            kernel,
            root: root.into(),
            absent: vec![None; options.events.len()],
            options,
            cgroup,
            places: Vec::new(),
            user_only: false,
            never_ran: BTreeSet::new(),
            began: Instant::now(),
            notes: Vec::new(),
        };
        let wanted = collector.wanted()?;
        match collector.open_all(&wanted) {
            // A thread's user mode may be counted where the kernel may not.
            Err(Error::Denied { .. })
                if !matches!(collector.options.target, Counted::Cpus | Counted::Cgroup(_)) =>
            {
                collector.user_only();
                collector.open_all(&wanted)?;
            }
            result => result?,
        }
        collector.say_absent();
        if collector.absent.iter().all(Option::is_some) {
            return Err(Error::Nothing(collector.notes().join("; ")));
        }
        if collector.places.is_empty() {
            return Err(match collector.options.target {
                Counted::Tree(pid) | Counted::Program(pid) => Error::Gone(pid),
                _ => Error::Nothing("no CPU or process is left".into()),
            });
        }
        if !matches!(collector.options.target, Counted::Program(_)) {
            // Counts are of what comes from now on.
            collector.read(|_, _, _| ())?;
        }
        collector.began = Instant::now();
        Ok(collector)
    }

    /// Notes that the user has not seen yet: events that are not counted and why, CPUs that came or went.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The events that are counted.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        let absent = self.absent.iter();
        self.options.events.iter().zip(absent).filter(|(_, absent)| absent.is_none()).map(|(e, _)| e)
    }

    /// Counts since the last sample: table `counters`, a row for each event of each CPU or process.
    ///
    /// # Errors
    /// An event cannot be read, or those of a new CPU cannot be opened.
    pub fn sample(&mut self) -> Result<Table> {
        // New CPUs and processes count from here on.
        self.follow()?;
        let events = self.options.events.len();
        let mut keys: Vec<Key> = Vec::new();
        let mut counts: Vec<Option<Count>> = Vec::new();
        self.read(|key, event, count| {
            // The threads of a process follow each other.
            if keys.last() != Some(&key) {
                keys.push(key);
                counts.resize(keys.len() * events, None);
            }
            match &mut counts[(keys.len() - 1) * events + event] {
                Some(sum) => sum.add(count),
                none => *none = Some(count),
            }
        })?;
        self.say_never_ran(&counts);
        let t = self.began.elapsed().as_secs_f64();
        let mut table = ncpu_schema::counters::TABLE.builder();
        for (key, counts) in keys.iter().zip(counts.chunks_exact(events.max(1))) {
            let name = key.pid.map(|pid| processes::name(&self.root, pid));
            for (event, count) in self.options.events.iter().zip(counts) {
                let Some(count) = count else { continue };
                table
                    .row()
                    .float(t)
                    .int_opt(key.cpu.map(u64::from))
                    .int_opt(key.pid.map(u64::from))
                    .text_opt(name.as_deref())
                    .text(&event.name)
                    .float_opt(count.count.map(|c| c * event.scale))
                    .text_opt(event.unit.as_deref())
                    .float(count.enabled)
                    .float(count.running);
            }
        }
        Ok(table.finish())
    }

    /// Reads every event and gives each CPU's or thread's counts since the reading before.
    fn read(&mut self, mut take: impl FnMut(Key, usize, Count)) -> Result<()> {
        let whole = matches!(self.options.target, Counted::Cpus | Counted::Cgroup(_));
        for place in &mut self.places {
            let read = place.groups.read(&self.kernel, |event, deltas| {
                // A CPU is of one kind, and each instance of a shared unit counts its own.
                let count = if whole || self.options.events[event].class != Class::Core {
                    let mut counts = deltas.iter().map(|d| Count::of(*d));
                    let mut sum = counts.next().unwrap_or_default();
                    counts.for_each(|c| sum.add(c));
                    sum
                } else {
                    Count::of_kinds(deltas)
                };
                take(place.key, event, count);
            });
            read.map_err(|(event, source)| Error::Read {
                event: self.options.events[event].name.clone(),
                source,
            })?;
        }
        Ok(())
    }

    /// Where events are to be open now.
    fn wanted(&self) -> Result<Vec<(Key, Who)>> {
        let cpus = || -> Result<Vec<Option<u32>>> {
            Ok(ncpu_machine::online_cpus(&self.root)?.iter().map(Some).collect())
        };
        let of_process = |pid: u32, key: Option<u32>, cpus: &[Option<u32>]| {
            let mut places = Vec::new();
            for cpu in cpus {
                for tid in processes::threads(&self.root, pid) {
                    places.push((Key { cpu: *cpu, pid: key }, Who::Thread(tid as i32)));
                }
            }
            places
        };
        let apart = if self.options.by_cpu { cpus()? } else { vec![None] };
        Ok(match &self.options.target {
            Counted::Cpus => cpus()?.into_iter().map(|cpu| (Key { cpu, pid: None }, Who::All)).collect(),
            Counted::Cgroup(_) => {
                let fd = self.cgroup.as_ref().map_or(-1, AsRawFd::as_raw_fd);
                cpus()?.into_iter().map(|cpu| (Key { cpu, pid: None }, Who::Cgroup(fd))).collect()
            }
            Counted::Tree(top) => {
                let mut places: Vec<_> = processes::tree(&self.root, *top)
                    .into_iter()
                    .flat_map(|pid| of_process(pid, Some(pid).filter(|_| !self.options.by_cpu), &apart))
                    .collect();
                places.sort_by_key(|(key, _)| (key.cpu, key.pid));
                places
            }
            Counted::Program(pid) => of_process(*pid, Some(*pid).filter(|_| !self.options.by_cpu), &apart),
            Counted::Processes => processes::all(&self.root)
                .into_iter()
                .flat_map(|pid| of_process(pid, Some(pid), &[None]))
                .collect(),
        })
    }

    fn open_all(&mut self, wanted: &[(Key, Who)]) -> Result<()> {
        self.places.clear();
        let each: usize = self.options.events.iter().map(|e| e.encodings.len()).sum();
        crate::bpf_support::perf_event::allow_files(wanted.len() * each)
            .map_err(|(hard, need)| Error::Files { need, hard })?;
        for &(key, who) in wanted {
            self.open(key, who)?;
        }
        Ok(())
    }

    /// Opens the events of one CPU or thread; one that has gone is left out.
    fn open(&mut self, key: Key, who: Who) -> Result<()> {
        let inherit = match (&self.options.target, who) {
            (_, Who::All | Who::Cgroup(_)) => Inherit::None,
            (Counted::Processes, _) => Inherit::Threads,
            _ => Inherit::All,
        };
        let from_exec = matches!(self.options.target, Counted::Program(_));
        let how = groups::How { who, cpu: key.cpu, inherit, from_exec, user_only: self.user_only };
        match Groups::open(&self.kernel, how, &self.options.events, &mut self.absent) {
            Ok(groups) if groups.is_empty() => Ok(()),
            Ok(groups) => {
                self.places.push(Place { key, groups });
                Ok(())
            }
            Err((_, Refusal::Gone)) => Ok(()),
            Err((event, refusal)) => Err(self.refused(event, who, refusal)),
        }
    }

    fn refused(&self, event: usize, who: Who, refusal: Refusal) -> Error {
        let name = self.options.events[event].name.clone();
        match refusal {
            Refusal::Denied => self.denied(name, who),
            Refusal::Gone => Error::Nothing(name),
            Refusal::Other(source) => Error::Open { event: name, source },
        }
    }

    fn denied(&self, event: String, who: Who) -> Error {
        let path = "proc/sys/kernel/perf_event_paranoid";
        let paranoid = std::fs::read_to_string(self.root.join(path)).unwrap_or_default();
        let paranoid = paranoid.trim();
        let (what, level) = match who {
            Who::Thread(tid) => (format!("{event} of thread {tid}"), 2),
            _ => (format!("{event} on whole CPUs"), 0),
        };
        let why = match paranoid.parse::<i32>() {
            Ok(now) if now <= level => "it is another user's; run as root (CAP_PERFMON)".into(),
            _ => format!(
                "kernel.perf_event_paranoid is {paranoid}; run as root (CAP_PERFMON) or \
                 `sysctl kernel.perf_event_paranoid={level}`"
            ),
        };
        Error::Denied { what, why }
    }

    /// From here on the kernel is not counted, and what happens only there not at all.
    fn user_only(&mut self) {
        self.user_only = true;
        for (event, absent) in self.options.events.iter().zip(&mut self.absent) {
            if event.only_in_kernel || event.exclude.user {
                *absent =
                    Some("happens in the kernel, which without root (CAP_PERFMON) is not counted".into());
            }
        }
        self.notes.push(
            "user mode only: the kernel is not counted without root (CAP_PERFMON) or kernel.perf_event_paranoid 1"
                .into(),
        );
    }

    /// One line for each reason.
    fn say_absent(&mut self) {
        let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
        for (event, why) in self.options.events.iter().zip(&self.absent) {
            let Some(why) = why else { continue };
            match said.iter_mut().find(|(w, _)| w == why) {
                Some((_, names)) => names.push(&event.name),
                None => said.push((why, vec![&event.name])),
            }
        }
        let lines: Vec<String> =
            said.into_iter().map(|(why, names)| format!("{}: {why}", names.join(", "))).collect();
        self.notes.extend(lines);
    }

    fn say_never_ran(&mut self, counts: &[Option<Count>]) {
        let events = self.options.events.len();
        let unlucky = |event: usize| {
            let mut of = counts.iter().skip(event).step_by(events).flatten();
            let known = of.clone().any(|c| c.count.is_some());
            !known && of.any(|c| c.count.is_none())
        };
        let new: Vec<usize> = (0..events).filter(|e| !self.never_ran.contains(e) && unlucky(*e)).collect();
        if !new.is_empty() {
            let names: Vec<_> = new.iter().map(|&e| self.options.events[e].name.as_str()).collect();
            self.notes.push(format!(
                "{}: no counter was free; name fewer events, or free the one that the NMI watchdog holds \
                 (`sysctl kernel.nmi_watchdog=0`)",
                names.join(", ")
            ));
            self.never_ran.extend(new);
        }
    }

    /// Opens events for new threads and CPUs, forgets those that are gone, and notes which CPUs came or
    /// went.
    fn follow(&mut self) -> Result<()> {
        match self.options.target {
            Counted::Cpus | Counted::Cgroup(_) => {}
            Counted::Processes => return self.follow_processes(),
            Counted::Tree(_) | Counted::Program(_) => return Ok(()),
        }
        let wanted = self.wanted()?;
        let now: BTreeSet<u32> = wanted.iter().filter_map(|(key, _)| key.cpu).collect();
        let had: BTreeSet<u32> = self.places.iter().filter_map(|place| place.key.cpu).collect();
        let set = |cpus: BTreeSet<u32>| cpus.into_iter().collect::<ncpu_machine::CpuSet>().to_list();
        let (gone, new) = (&had - &now, &now - &had);
        if !gone.is_empty() {
            self.places.retain(|place| place.key.cpu.is_some_and(|cpu| !gone.contains(&cpu)));
            self.notes.push(format!("CPU {} went offline", set(gone)));
        }
        let came: Vec<_> =
            wanted.into_iter().filter(|(key, _)| key.cpu.is_some_and(|cpu| new.contains(&cpu))).collect();
        // A CPU without any of the events is expected.
        let before = self.places.len();
        self.add(&came)?;
        if self.places.len() > before {
            let cpus = self.places[before..].iter().filter_map(|p| p.key.cpu).collect();
            self.places.sort_by_key(|place| place.key.cpu);
            self.notes.push(format!("CPU {} came online", set(cpus)));
        }
        Ok(())
    }

    fn follow_processes(&mut self) -> Result<()> {
        let now: BTreeSet<u32> = processes::all(&self.root).into_iter().collect();
        let had: BTreeSet<u32> = self.places.iter().filter_map(|p| p.key.pid).collect();
        self.places.retain(|p| p.key.pid.is_some_and(|pid| now.contains(&pid)));
        let new = &now - &had;
        let came: Vec<_> = new
            .into_iter()
            .flat_map(|pid| {
                let key = Key { cpu: None, pid: Some(pid) };
                processes::threads(&self.root, pid).into_iter().map(move |tid| (key, Who::Thread(tid as i32)))
            })
            .collect();
        self.add(&came)?;
        self.places.sort_by_key(|place| place.key.pid);
        Ok(())
    }

    /// Opens more; what they counted until now is not of this interval.
    fn add(&mut self, places: &[(Key, Who)]) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let each: usize = self.options.events.iter().map(|e| e.encodings.len()).sum();
        crate::bpf_support::perf_event::allow_files((self.places.len() + places.len()) * each)
            .map_err(|(hard, need)| Error::Files { need, hard })?;
        places.iter().try_for_each(|&(key, who)| self.open(key, who))
    }
}

#[cfg(test)]
mod tests;
