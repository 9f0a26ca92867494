//! Doses: a place of a program made slower by a known, small amount, and what the program gets done meanwhile.
//!
//! A place is a kernel lock while it is held, a system call, page faults, wake-ups, processes, a function, a softirq or a device's
//! interrupt. The dose is a spin in the kernel, of at most [`MOST`] a hit. It is given in windows only: each has an end that
//! the kernel's programs know, so a window ends by itself where `ncpu` is stopped, and all programs leave the kernel
//! with the process that loaded them.

mod layout;
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, unused)]
mod skel;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, ProgramMut, UprobeOpts};
use ncpu_files::reader::Source;
use ncpu_instructions::{Machine, entry, may_have_a_probe};
use ncpu_symbols::{Segments, functions_for_debuggers, named_symbols};

use crate::bpf_support::{Error, Mapped, Result, load, monotonic_ns};
use crate::program::Target;
use layout::{CALLS, CHOSEN_LOCKS, CallRow, LOCKS_A_CPU, LockRow, Slot};
use skel::{DosesSkel, DosesSkelBuilder};

/// The longest dose.
pub const MOST: Duration = Duration::from_micros(100);

/// A CPU spins for at most half of each such time.
const GUARDED: Duration = Duration::from_millis(100);

/// Bytes of code that hold a landing pad and an instruction.
const INSTRUCTIONS: usize = 24;

/// Where a dose is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Contended kernel locks at these addresses, once they are held.
    Locks(Vec<u64>),
    /// A system call, at its exit.
    Call(u32),
    /// Page faults of user code.
    Faults,
    /// Wake-ups of the program's threads, by the thread that wakes.
    WakeUps,
    /// A function of a file.
    Function(Function),
    /// The end of a softirq.
    Softirq(u32),
    /// The end of a device's interrupt.
    Interrupt(u32),
    /// Processes: three times each, as it first returns from the kernel, as a program starts in it, and at its end.
    Processes,
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The file.
    pub file: PathBuf,
    /// Where the function begins in it.
    pub offset: u64,
    /// At its return, as of functions that take a lock.
    pub at_return: bool,
}

impl Function {
    /// The function of this name, as its symbol or its source has it, in an ELF file; `None` where it has none, or several.
    ///
    /// # Errors
    /// The file cannot be read, or a probe there would have another instruction executed than the function's first.
    pub fn find(file: &Path, name: &str, at_return: bool) -> std::io::Result<Option<Function>> {
        let source = Source::open(file)?;
        // The kernel reads the instruction, and nothing ends its wait for a file system that does not answer.
        if source.may_not_answer(&process_of(file)) {
            let what =
                "no probe can be put there: its file system is another process or machine, or a user's own";
            return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, what));
        }
        let named = |dynamic| named_symbols(&source, dynamic, &[name])[0];
        let of_source = || {
            let mut found = functions_for_debuggers(&source, file, name).into_iter().filter(|f| !f.cold);
            found.next().filter(|_| found.next().is_none()).map(|f| (f.address, f.size))
        };
        let address = named(false).or_else(|| named(true)).or_else(of_source).map(|(address, _)| address);
        let Some(segments) = Segments::read(&source) else { return Ok(None) };
        let Some(begin) = address.and_then(|address| segments.offset(address)) else { return Ok(None) };
        let mut code = vec![0; INSTRUCTIONS];
        let read = source.read_at(&mut code, begin)?;
        code.truncate(read);
        // Code of 32 bits has the same prefixes.
        let machine = Machine::of_elf(segments.machine()).or(Machine::OWN);
        let offset = begin + machine.map_or(0, |machine| u64::from(entry(machine, &code)));
        if !machine.is_some_and(|machine| may_have_a_probe(machine, &code[(offset - begin) as usize..])) {
            let what = format!(
                "no probe can be put at {name}: the kernel would execute another instruction than its first"
            );
            return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, what));
        }
        Ok(Some(Function { file: file.to_owned(), offset, at_return }))
    }
}

/// The directory in `/proc` of the process by which a path leads; else our own.
fn process_of(file: &Path) -> PathBuf {
    let mut parts = file.components();
    let first = parts.by_ref().take(3).collect::<PathBuf>();
    let of_process =
        first.strip_prefix("/proc").is_ok_and(|pid| pid.to_string_lossy().parse::<u32>().is_ok());
    if of_process { first } else { "/proc/self".into() }
}

impl Place {
    /// `enum place` and the number beside it.
    fn code(&self) -> (u32, u32) {
        match *self {
            Place::Locks(_) => (1, 0),
            Place::Call(nr) => (2, nr),
            Place::Faults => (3, 0),
            Place::WakeUps => (4, 0),
            Place::Function(_) => (5, 0),
            Place::Softirq(nr) => (6, nr),
            Place::Interrupt(nr) => (7, nr),
            Place::Processes => (8, 0),
        }
    }
}

/// Counts since the programs were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// ns of CLOCK_MONOTONIC at which they were read.
    pub at: u64,
    /// Events of the places that were chosen.
    pub hits: u64,
    /// Of those, the ones that were made slower.
    pub doses: u64,
    /// ns spun for them.
    pub spun: u64,
    /// Doses left out because their CPU had spun for half of the time.
    pub refused: u64,
}

/// A system call in a survey.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallSeen {
    /// Its number.
    pub number: u32,
    /// Calls that ended.
    pub count: u64,
    /// Calls in which the thread kept its CPU.
    pub awake: u64,
    /// Seconds those took.
    pub seconds: f64,
    /// Calls that were seen from their beginning to their end, those that slept too.
    pub whole: u64,
    /// Seconds those took.
    pub whole_seconds: f64,
}

/// A kernel lock in a survey.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LockSeen {
    /// Its address.
    pub address: u64,
    /// Contended acquisitions.
    pub count: u64,
    /// Seconds waited, all threads together.
    pub waited: f64,
}

/// The places that a program comes to, with how often.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Its length.
    pub seconds: f64,
    /// System calls, most frequent first.
    pub calls: Vec<CallSeen>,
    /// Kernel locks that threads waited for, longest waits first.
    pub locks: Vec<LockSeen>,
    /// Page faults; `None` where the kernel does not report them.
    pub faults: Option<u64>,
    /// Wake-ups.
    pub wakeups: u64,
}

/// Programs that give doses; gone when dropped.
pub struct Doses {
    skel: Box<DosesSkel<'static>>,
    slots: Mapped<Slot>,
    calls: Mapped<CallRow>,
    locks: Mapped<LockRow>,
    /// Counts system calls, while this is set.
    counting: Option<Link>,
    /// Counts calls of a function, likewise.
    progress: Option<Link>,
    held: Vec<Link>,
    /// Probes in functions are in this process alone.
    only: Option<u32>,
    chosen: Vec<u64>,
    notes: Vec<String>,
    faults: bool,
}

impl Doses {
    /// Loads the programs; none is attached yet.
    ///
    /// # Errors
    /// No privileges, no BTF, or a kernel before 5.17.
    pub fn load(target: &Target) -> Result<Doses> {
        let bpf = |doing| move |source| Error::Bpf { doing, source };
        let io = |source| Error::Io { doing: "mapping the tables", source };
        libbpf_rs::set_print(None);
        let types = load::Types::read()?;
        let mut open = types
            .open(DosesSkelBuilder::default(), load::storage())
            .map_err(bpf("opening the BPF object"))?;
        let cpus = load::cpu_parts()?;
        if let Some(ro) = &mut open.maps.rodata_data {
            ro.cfg_self = std::process::id();
            ro.cfg_readers = ncpu_files::reader::starter().unwrap_or(0);
            (ro.cfg_all, ro.cfg_tgid, ro.cfg_cgroup, ro.cfg_cgroup_level) = target.settings()?;
            ro.cfg_window = GUARDED.as_nanos() as u64;
            ro.cfg_most_spun = GUARDED.as_nanos() as u64 / 2;
        }
        let sized = bpf("sizing the tables");
        open.maps.slots.set_max_entries(cpus as u32).map_err(&sized)?;
        open.maps.calls.set_max_entries((cpus * CALLS) as u32).map_err(&sized)?;
        open.maps.locks.set_max_entries((cpus * LOCKS_A_CPU) as u32).map_err(&sized)?;
        let mut notes = Vec::new();
        let mut has = |names: &[&str], missing: &str| {
            let lacks = names.iter().find(|name| !types.has(name));
            notes.extend(lacks.map(|name| format!("{missing}: the kernel has no tracepoint {name}")));
            lacks.is_none()
        };
        let p = &mut open.progs;
        let locks = has(&["contention_begin", "contention_end"], "no doses for kernel locks");
        p.on_contention.set_autoload(locks);
        p.on_contention_end.set_autoload(locks);
        let faults = has(&["page_fault_user"], "no doses for page faults");
        p.on_fault.set_autoload(faults);
        p.on_waking.set_autoload(has(&["sched_waking"], "no doses for wake-ups"));
        p.on_softirq_end.set_autoload(has(&["softirq_exit"], "no doses for softirqs"));
        p.on_irq_end.set_autoload(has(&["irq_handler_exit"], "no doses for interrupts"));
        let skel = open.load().map_err(load::refused)?;
        Ok(Doses {
            slots: Mapped::new(&skel.maps.slots, cpus).map_err(io)?,
            calls: Mapped::new(&skel.maps.calls, cpus * CALLS).map_err(io)?,
            locks: Mapped::to_clear(&skel.maps.locks, cpus * LOCKS_A_CPU).map_err(io)?,
            skel: Box::new(skel),
            counting: None,
            progress: None,
            held: Vec::new(),
            only: None,
            chosen: Vec::new(),
            notes,
            faults,
        })
    }

    /// Places that cannot be given a dose on this kernel, one line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Counts system calls from now on, or not: that costs each call some 100 ns.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn count_calls(&mut self, wanted: bool) -> Result<()> {
        self.counting = match wanted {
            true if self.counting.is_none() => Some(attached(&self.skel.progs.on_call_end)?),
            true => self.counting.take(),
            false => None,
        };
        Ok(())
    }

    /// Later probes in functions are put into this process alone, and not into all that have the file: each hit of those takes microseconds
    /// of programs that nobody asked about.
    pub fn only(&mut self, pid: Option<u32>) {
        self.only = pid;
    }

    /// Counts calls of a function from now on, or of none.
    ///
    /// # Errors
    /// The kernel cannot put a probe there.
    pub fn count_function(&mut self, function: Option<&Function>) -> Result<()> {
        self.progress = None;
        let attached = |f| attached_to(&self.skel.progs.on_progress, f, self.only);
        self.progress = function.map(attached).transpose()?;
        Ok(())
    }

    /// How often the function that is counted was called.
    pub fn progress(&self) -> u64 {
        self.sums().progress
    }

    /// Which places the program comes to while `wait` waits.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn survey<T>(&mut self, wait: impl FnOnce() -> T) -> Result<(Survey, T)> {
        self.detach();
        for row in 0..self.locks.len() {
            if self.locks.first_word(row) != 0 {
                self.locks.clear(row);
            }
        }
        let counted = self.counting.is_some();
        self.count_calls(true)?;
        let mut links = Vec::new();
        let p = &self.skel.progs;
        for program in [&p.on_call, &p.on_contention, &p.on_contention_end, &p.on_fault, &p.on_waking] {
            if program.autoload() {
                links.push(attached(program)?);
            }
        }
        self.set_surveying(1);
        let (before, calls, began) = (self.sums(), self.call_rows(), monotonic_ns());
        let answer = wait();
        let (after, ended) = (self.sums(), monotonic_ns());
        self.set_surveying(0);
        let calls_after = self.call_rows();
        drop(links);
        self.count_calls(counted)?;
        let mut seen: Vec<CallSeen> = (0..CALLS)
            .filter(|&nr| calls_after[nr].count > calls[nr].count)
            .map(|nr| CallSeen {
                number: nr as u32,
                count: calls_after[nr].count - calls[nr].count,
                awake: calls_after[nr].awake - calls[nr].awake,
                seconds: (calls_after[nr].ns - calls[nr].ns) as f64 / 1e9,
                whole: calls_after[nr].whole - calls[nr].whole,
                whole_seconds: (calls_after[nr].whole_ns - calls[nr].whole_ns) as f64 / 1e9,
            })
            .collect();
        seen.sort_by_key(|call| std::cmp::Reverse(call.count));
        let mut locks: HashMap<u64, LockSeen> = HashMap::new();
        for row in (0..self.locks.len()).filter(|&row| self.locks.first_word(row) != 0) {
            let row = self.locks.get(row);
            let sum = locks.entry(row.lock).or_insert(LockSeen { address: row.lock, count: 0, waited: 0.0 });
            sum.count += row.count;
            sum.waited += row.wait as f64 / 1e9;
        }
        let mut locks: Vec<LockSeen> = locks.into_values().collect();
        locks.sort_by(|a, b| b.waited.total_cmp(&a.waited).then(b.count.cmp(&a.count)));
        let survey = Survey {
            seconds: (ended - began) as f64 / 1e9,
            calls: seen,
            locks,
            faults: self.faults.then(|| after.faults - before.faults),
            wakeups: after.wakeups - before.wakeups,
        };
        Ok((survey, answer))
    }

    /// Chooses the place that later doses are for, in place of the one before.
    ///
    /// # Errors
    /// The kernel cannot give doses there, or there are too many locks.
    pub fn attach(&mut self, place: &Place) -> Result<()> {
        self.detach();
        if let Place::Locks(addresses) = place {
            self.choose(addresses)?;
        }
        let p = &self.skel.progs;
        let program = match place {
            Place::Locks(_) => Some((&p.on_contention_end, "contention_end")),
            // Counting has it attached already.
            Place::Call(_) | Place::Processes if self.counting.is_some() => None,
            Place::Call(_) | Place::Processes => Some((&p.on_call_end, "sys_exit")),
            Place::Faults => Some((&p.on_fault, "page_fault_user")),
            Place::WakeUps => Some((&p.on_waking, "sched_waking")),
            Place::Softirq(_) => Some((&p.on_softirq_end, "softirq_exit")),
            Place::Interrupt(_) => Some((&p.on_irq_end, "irq_handler_exit")),
            Place::Function(function) => {
                let program = if function.at_return { &p.on_function_end } else { &p.on_function };
                self.held.push(attached_to(program, function, self.only)?);
                None
            }
        };
        if let Some((program, name)) = program {
            if !program.autoload() {
                return Err(Error::NoTracepoint(name));
            }
            self.held.push(attached(program)?);
        }
        if *place == Place::Processes {
            self.held.push(attached(&p.on_process_end)?);
        }
        let (code, number) = place.code();
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.dose_number = number;
            bss.dose_place = code;
        }
        Ok(())
    }

    /// Replaces the locks that doses are for, as when a program has begun anew.
    fn choose(&mut self, addresses: &[u64]) -> Result<()> {
        let map = &self.skel.maps.chosen_locks;
        let doing = "choosing locks";
        for old in self.chosen.drain(..) {
            map.delete(&old.to_ne_bytes()).map_err(|source| Error::Bpf { doing, source })?;
        }
        for &address in addresses.iter().take(CHOSEN_LOCKS) {
            map.update(&address.to_ne_bytes(), &1u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(|source| Error::Bpf { doing, source })?;
            self.chosen.push(address);
        }
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.dose_lock = if let [one] = self.chosen[..] { one } else { 0 };
        }
        Ok(())
    }

    /// Ends doses; the program runs as it would without.
    pub fn detach(&mut self) {
        self.disarm();
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.dose_place = 0;
        }
        self.held.clear();
    }

    /// Gives each hit this dose, for this long; of 0, hits are only counted. At most [`MOST`] is given.
    pub fn arm(&mut self, dose: Duration, length: Duration) {
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.dose_until = monotonic_ns() + length.as_nanos() as u64;
            bss.dose_ns = dose.min(MOST).as_nanos() as u32;
        }
    }

    /// Gives no dose from now on.
    pub fn disarm(&mut self) {
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.dose_ns = 0;
            bss.dose_until = 0;
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        let sums = self.sums();
        Counts {
            at: monotonic_ns(),
            hits: sums.hits,
            doses: sums.doses,
            spun: sums.spun,
            refused: sums.refused,
        }
    }

    /// How often a system call has ended so far, where calls are counted.
    pub fn calls(&self, number: u32) -> u64 {
        let number = number as usize;
        let cpus = self.calls.len() / CALLS;
        (0..cpus).filter(|_| number < CALLS).map(|cpu| self.calls.get(cpu * CALLS + number).count).sum()
    }

    /// How often each system call has ended so far, by number, where calls are counted.
    pub fn all_calls(&self) -> Vec<u64> {
        self.call_rows().into_iter().map(|row| row.count).collect()
    }

    fn set_surveying(&mut self, surveying: u32) {
        if let Some(bss) = &mut self.skel.maps.bss_data {
            bss.surveying = surveying;
        }
    }

    fn sums(&self) -> Slot {
        let mut sum = Slot::default();
        for cpu in 0..self.slots.len() {
            let slot = self.slots.get(cpu);
            sum.hits += slot.hits;
            sum.doses += slot.doses;
            sum.spun += slot.spun;
            sum.refused += slot.refused;
            sum.faults += slot.faults;
            sum.wakeups += slot.wakeups;
            sum.progress += slot.progress;
        }
        sum
    }

    fn call_rows(&self) -> Vec<CallRow> {
        let mut rows = vec![CallRow::default(); CALLS];
        for at in 0..self.calls.len() {
            if self.calls.first_word(at) != 0 {
                let (row, sum) = (self.calls.get(at), &mut rows[at % CALLS]);
                sum.count += row.count;
                sum.awake += row.awake;
                sum.ns += row.ns;
                sum.whole += row.whole;
                sum.whole_ns += row.whole_ns;
            }
        }
        rows
    }
}

fn attached(program: &ProgramMut<'_>) -> Result<Link> {
    program.attach().map_err(|source| Error::Bpf { doing: "attaching to the kernel's tracepoints", source })
}

/// In all processes that have the function, or in one of them.
fn attached_to(program: &ProgramMut<'_>, function: &Function, only: Option<u32>) -> Result<Link> {
    let opts = UprobeOpts { retprobe: function.at_return, ..UprobeOpts::default() };
    program
        .attach_uprobe_with_opts(
            only.map_or(-1, |pid| pid as i32),
            &function.file,
            function.offset as usize,
            opts,
        )
        .map_err(|source| Error::Bpf { doing: "attaching to a function", source })
}
