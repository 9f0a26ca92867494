//! A model of a program: what a unit of its work takes, as people write it and as a recording tells it.

use std::path::Path;

use ncpu_schema::SampleClass;
use serde::{Deserialize, Serialize};

use crate::hardware::{MOST_CPUS, Shape};
use crate::place::Key;
use crate::program::{Handover, LockKind};

/// A program, in the units of its file: nanoseconds of CPU time for each unit of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The command or what it is.
    pub name: String,
    /// The unit of work.
    #[serde(default = "unit")]
    pub unit: String,
    /// Worker threads; 0 is one for each CPU.
    #[serde(default)]
    pub threads: u32,
    /// Program's own CPU time for each unit outside of locks, ns.
    pub work_ns: f64,
    /// Coefficient of variation of that time.
    #[serde(default = "one")]
    pub cv: f64,
    /// The CPU time by class, detail and weight; all of it user code where empty.
    #[serde(default)]
    pub mix: Vec<Share>,
    /// Sleep for each unit, ns: a client's think time, a timer.
    #[serde(default)]
    pub sleep_ns: f64,
    /// Sleep beyond what was asked for, and waits for other threads, for each unit, ns: no client shortens them.
    #[serde(default)]
    pub wait_ns: f64,
    /// Wait for devices for each unit, ns.
    #[serde(default)]
    pub io_ns: f64,
    /// Times for each unit that a thread wakes another and waits for it: a client and its server, both ends of a pipe.
    #[serde(default)]
    pub handovers: f64,
    /// The work of the busiest thread divided by the mean of all, 1 or more: connections were accepted unevenly. The
    /// others wait for it, so the number of threads that count is divided by this.
    #[serde(default = "one")]
    pub uneven: f64,
    /// How many units are served after one sleep or wait, 1 or more.
    #[serde(default = "one")]
    pub batch: f64,
    /// Threads that share the work of class `fault` of `mix`; 0 and 1: no helpers.
    #[serde(default)]
    pub populate: u32,
    /// CPU time for each unit that only one thread at a time can spend while the others have nothing to do, ns.
    #[serde(default)]
    pub serial_ns: f64,
    /// Time for each unit in which no thread has anything to do, ns: a program's beginning and end, pauses that all of it
    /// makes. More CPUs or threads do not shorten it.
    #[serde(default)]
    pub apart_ns: f64,
    /// TLB shootdowns for each unit.
    #[serde(default)]
    pub shootdowns: f64,
    /// One interrupt a package instead of one a CPU.
    #[serde(default)]
    pub shootdowns_per_package: bool,
    /// Share of the CPUs that run the program which a shootdown does not interrupt, 0 to 1.
    #[serde(default)]
    pub shootdown_misses: f64,
    /// How long a CPU that is interrupted by one is at it, ns; 0 is what the machine says.
    #[serde(default)]
    pub shootdown_handle_ns: f64,
    /// Memory moved for each unit, bytes, and where it lies.
    #[serde(default)]
    pub memory_bytes: f64,
    /// Where that memory lies.
    #[serde(default)]
    pub memory: Memory,
    /// Timer interrupts: ns each and how many a second on each CPU.
    #[serde(default)]
    pub tick_ns: f64,
    /// Ticks a second.
    #[serde(default)]
    pub tick_hz: f64,
    /// The ticks of all CPUs are handled by the first.
    #[serde(default)]
    pub ticks_on_one: bool,
    /// Writes for each unit to lines that all threads write.
    #[serde(default)]
    pub line: Vec<LineModel>,
    /// Locks.
    #[serde(default)]
    pub lock: Vec<LockPart>,
    /// The machine it was recorded on, where it was.
    #[serde(default)]
    pub recorded: Option<Recorded>,
}

/// Where a program's memory lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Spread evenly over all packages.
    #[default]
    Interleaved,
    /// In the package of the CPU that uses it.
    Local,
    /// All in the first package.
    Node0,
}

impl Memory {
    /// All of them.
    pub const ALL: [Memory; 3] = [Memory::Local, Memory::Interleaved, Memory::Node0];

    /// The name in models and fixes.
    pub const fn name(self) -> &'static str {
        match self {
            Memory::Interleaved => "interleaved",
            Memory::Local => "local",
            Memory::Node0 => "node0",
        }
    }

    /// The place of this name.
    pub fn from_name(name: &str) -> Option<Memory> {
        Memory::ALL.into_iter().find(|memory| memory.name() == name)
    }
}

/// A class of samples as its word.
mod class {
    use ncpu_schema::SampleClass;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(class: &SampleClass, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(class.name())
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<SampleClass, D::Error> {
        let word = String::deserialize(from)?;
        SampleClass::of_name(&word).map_err(|_| {
            let all: Vec<&str> = SampleClass::ALL.iter().map(|class| class.name()).collect();
            serde::de::Error::custom(format!("unknown class `{word}`; expected one of {}", all.join(", ")))
        })
    }
}

/// A part of the program's CPU time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Class of the table `samples`.
    #[serde(with = "class")]
    pub class: SampleClass,
    /// Which call or function.
    #[serde(default)]
    pub detail: String,
    /// Weight.
    pub weight: f64,
}

/// A line that all threads write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineModel {
    /// Its name.
    pub name: String,
    /// Writes for each unit.
    pub writes: f64,
    /// Copies: 1 is shared by all; 0 is one for each CPU.
    #[serde(default = "one_copy")]
    pub copies: u32,
    /// How many lines the writes go to, each to any of them: data that all threads share.
    #[serde(default = "one_copy")]
    pub among: u32,
    /// A counter with a limit whose CPUs hold a reserve: one write in 64 goes to a shared line.
    #[serde(default)]
    pub bounded: bool,
}

/// A lock of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockPart {
    /// Its name.
    pub name: String,
    /// How it works.
    pub kind: LockKind,
    /// One of the kernel's.
    #[serde(default)]
    pub kernel: bool,
    /// Acquisitions for each unit.
    pub takes: f64,
    /// How long it is held, ns.
    pub hold_ns: f64,
    /// Coefficient of variation of that time.
    #[serde(default = "half")]
    pub cv: f64,
    /// Share of the acquisitions that only read, 0 to 1.
    #[serde(default)]
    pub reads: f64,
    /// How many locks there are of it, one of which is taken at random.
    #[serde(default = "one_copy")]
    pub copies: u32,
    /// Lines that move with it from one CPU to another: its word, the queue's, what it guards.
    #[serde(default = "one")]
    pub lines: f64,
    /// Nanoseconds a hand-over takes longer for each waiter (ticket, tas); without it, as the machine's caches do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiter_ns: Option<f64>,
    /// CPU time that a waiter's sleep takes, ns: to fall asleep, and to be woken (block, mutex).
    #[serde(default)]
    pub wake_ns: f64,
}

/// The recording, to be reproduced first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// CPUs that the program could use.
    pub cpus: u32,
    /// CPUs of the machine, where they were more.
    #[serde(default)]
    pub of: u32,
    /// Model of the CPU.
    #[serde(default)]
    pub cpu_model: String,
    /// Worker threads, as they are simulated: those that could be at work at the same time.
    pub threads: u32,
    /// How those CPUs lie: packages x cores x strands, as in `1x4x2`. Without it each was a core of one package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Sleep for each unit when recorded, ns: a model that sleeps less has more load than was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_ns: Option<f64>,
    /// How long an idle CPU took until it ran what another had woken, ns, where CPUs idled enough to tell.
    #[serde(default)]
    pub halt_ns: f64,
    /// How much longer than a line's transfer handing a spinlock to another CPU took there, ns.
    #[serde(default)]
    pub handover_ns: f64,
    /// The time of a line's transfer between two of its CPUs, ns, if it was measured; 0: as in the catalogue.
    #[serde(default)]
    pub transfer_ns: f64,
    /// Worker threads that there were, where they were more: threads that wait for one another.
    #[serde(default)]
    pub workers: u32,
    /// Share of the CPU time in calls and faults that take locks which the threads of a process share, 0 to 1, where it was
    /// recorded on one CPU, on which nobody waits for them.
    #[serde(default)]
    pub unseen: f64,
    /// Memory of its processes at most, bytes, where that is known.
    #[serde(default)]
    pub resident_bytes: u64,
    /// The command, where it is to be printed as a shell takes it.
    #[serde(default)]
    pub command: Vec<String>,
    /// Units a second.
    pub throughput: f64,
    /// Layers: name and share of what the program could have had, 0 to 1.
    #[serde(default)]
    pub layers: Vec<(String, f64)>,
}

fn unit() -> String {
    "units".into()
}
fn one() -> f64 {
    1.0
}
fn half() -> f64 {
    0.5
}
fn one_copy() -> u32 {
    1
}

impl Recorded {
    fn check(&self) -> Result<(), (Key, String)> {
        let wrong = |name, is: String, give: &str| {
            let key = Key { table: Some(("recorded", None)), name };
            Err((key, format!("recorded: {name} = {is}: give {give}")))
        };
        if !(1..=MOST_CPUS).contains(&u64::from(self.cpus)) {
            return wrong("cpus", self.cpus.to_string(), &format!("a number of 1 to {MOST_CPUS}"));
        }
        if !(1..=MOST_THREADS).contains(&self.threads) {
            return wrong("threads", self.threads.to_string(), &format!("a number of 1 to {MOST_THREADS}"));
        }
        if !(self.throughput > 0.0 && self.throughput.is_finite()) {
            return wrong("throughput", self.throughput.to_string(), "units a second, above 0");
        }
        if let Some(shape) = &self.shape {
            let cpus = shape.parse::<Shape>().map(|s| s.cpus());
            if !cpus.is_ok_and(|n| n >= self.cpus as usize) {
                return wrong(
                    "shape",
                    format!("\"{shape}\""),
                    "PACKAGESxCORESxSTRANDS of the recorded CPUs, as in 1x4x2",
                );
            }
        }
        for (name, x) in [
            ("sleep_ns", self.sleep_ns.unwrap_or(0.0)),
            ("halt_ns", self.halt_ns),
            ("handover_ns", self.handover_ns),
            ("transfer_ns", self.transfer_ns),
        ] {
            if !not_negative(x) {
                return wrong(name, x.to_string(), "a number of 0 or more");
            }
        }
        if !(0.0..=1.0).contains(&self.unseen) {
            return wrong("unseen", self.unseen.to_string(), "a share of 0 to 1");
        }
        Ok(())
    }
}

fn not_negative(x: f64) -> bool {
    x >= 0.0 && x.is_finite()
}

/// Errors in a model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is not a model; the reason has line and column.
    #[error("{path}: {why}")]
    Wrong {
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// A value makes no sense.
    #[error("{0}")]
    Value(String),
}

/// Activities of a model's program: its work, its serial part, and then waiting for each of its lines.
pub const FIRST_LINE: u16 = 2;
/// The most entries of lines that a model has.
const MOST_ENTRIES: usize = 1024;

/// The most lines that one entry of a model has.
pub const MOST_LINES: u32 = 65_536;
/// The most locks that one entry of a model stands for.
pub const MOST_COPIES: u32 = 65_536;
/// The most locks of a model.
const MOST_LOCKS: u64 = 1 << 20;
/// The most threads that are simulated.
pub const MOST_THREADS: u32 = 1 << 20;
/// The most helpers that populate memory.
pub const MOST_HELPERS: u32 = 1024;

impl LockPart {
    /// How it hands itself on.
    pub(crate) fn handover(&self) -> Handover {
        match self.kind {
            LockKind::Ticket => Handover::Ticket { waiter_ns: self.waiter_ns },
            LockKind::Tas => Handover::TestAndSet { waiter_ns: self.waiter_ns },
            LockKind::Qspin => Handover::Queue,
            LockKind::Numa => Handover::Numa { passes: 64 },
            LockKind::Mutex => Handover::Mutex { spin_ns: 20_000.0 },
            LockKind::Rwsem => Handover::Rwsem { spin_ns: 20_000.0 },
            LockKind::Adaptive => Handover::Adaptive,
            LockKind::Block => Handover::Block,
        }
    }
}

impl Model {
    /// Reads a model.
    ///
    /// # Errors
    /// It cannot be read, is not TOML or not a model (the message has line and column), or a value makes no
    /// sense.
    pub fn read(path: &Path) -> Result<Model, Error> {
        let told = path.display().to_string();
        let text = ncpu_files::text(path).map_err(|source| Error::Io { path: told.clone(), source })?;
        let model: Model = toml::from_str(&text)
            .map_err(|e| Error::Wrong { path: told.clone(), why: crate::place::wrong(&text, &e) })?;
        match model.check() {
            Ok(()) => Ok(model),
            Err((key, why)) => {
                Err(Error::Wrong { path: told, why: crate::place::wrong_value(&text, key, &why) })
            }
        }
    }

    /// The model as a file.
    pub fn to_toml(&self) -> String {
        // A model holds only what TOML can.
        toml::to_string(self).unwrap_or_default()
    }

    /// Checks the values; the error has the key of the invalid value, and the reason.
    fn check(&self) -> Result<(), (Key, String)> {
        let numbers = [
            ("work_ns", self.work_ns),
            ("cv", self.cv),
            ("sleep_ns", self.sleep_ns),
            ("wait_ns", self.wait_ns),
            ("io_ns", self.io_ns),
            ("handovers", self.handovers),
            ("serial_ns", self.serial_ns),
            ("apart_ns", self.apart_ns),
            ("shootdowns", self.shootdowns),
            ("shootdown_handle_ns", self.shootdown_handle_ns),
            ("memory_bytes", self.memory_bytes),
            ("tick_ns", self.tick_ns),
            ("tick_hz", self.tick_hz),
        ];
        let top = |name, why: String| Err((Key::top(name), why));
        for (name, x) in numbers {
            if !not_negative(x) {
                return top(name, format!("{name} = {x}: give a number of 0 or more"));
            }
        }
        for (name, x) in [("batch", self.batch), ("uneven", self.uneven)] {
            if !(x >= 1.0 && x.is_finite()) {
                return top(name, format!("{name} = {x}: give a number of 1 or more"));
            }
        }
        if !(0.0..=1.0).contains(&self.shootdown_misses) {
            let why = format!("shootdown_misses = {}: give a share of 0 to 1", self.shootdown_misses);
            return top("shootdown_misses", why);
        }
        if self.threads > MOST_THREADS {
            return top("threads", format!("threads = {}: at most {MOST_THREADS}", self.threads));
        }
        if self.populate > MOST_HELPERS {
            return top("populate", format!("populate = {}: at most {MOST_HELPERS} helpers", self.populate));
        }
        if let Some(i) = self.mix.iter().position(|s| !not_negative(s.weight)) {
            let key = Key { table: Some(("mix", Some(i))), name: "weight" };
            return Err((key, format!("weight = {}: give a number of 0 or more", self.mix[i].weight)));
        }
        self.check_locks()?;
        if self.line.len() > MOST_ENTRIES {
            return top("line", format!("{} entries of lines: at most {MOST_ENTRIES}", self.line.len()));
        }
        for (i, line) in self.line.iter().enumerate() {
            let wrong = |name, is: String, give: &str| {
                let key = Key { table: Some(("line", Some(i))), name };
                Err((key, format!("line `{}`: {name} = {is}: give {give}", line.name)))
            };
            if !not_negative(line.writes) {
                return wrong("writes", line.writes.to_string(), "a number of 0 or more");
            }
            if !(1..=MOST_LINES).contains(&line.among) {
                return wrong("among", line.among.to_string(), &format!("a number of 1 to {MOST_LINES}"));
            }
            if line.copies > MOST_LINES {
                return wrong("copies", line.copies.to_string(), &format!("at most {MOST_LINES}"));
            }
        }
        if let Some(recorded) = &self.recorded {
            recorded.check()?;
        }
        let held: f64 = self.lock.iter().map(|l| l.takes * l.hold_ns).sum();
        if self.work_ns + held + self.sleep_ns + self.wait_ns + self.io_ns + self.serial_ns <= 0.0 {
            return top("work_ns", "a unit of work takes no time: give work_ns".into());
        }
        Ok(())
    }

    fn check_locks(&self) -> Result<(), (Key, String)> {
        let mut all = 0;
        for (i, lock) in self.lock.iter().enumerate() {
            let key = |name| Key { table: Some(("lock", Some(i))), name };
            for (name, x) in [
                ("takes", lock.takes),
                ("hold_ns", lock.hold_ns),
                ("cv", lock.cv),
                ("lines", lock.lines),
                ("waiter_ns", lock.waiter_ns.unwrap_or(0.0)),
                ("wake_ns", lock.wake_ns),
            ] {
                if !not_negative(x) {
                    let why = format!("lock `{}`: {name} = {x}: give a number of 0 or more", lock.name);
                    return Err((key(name), why));
                }
            }
            if !(0.0..=1.0).contains(&lock.reads) {
                let why = format!("lock `{}`: reads = {}: give a share of 0 to 1", lock.name, lock.reads);
                return Err((key("reads"), why));
            }
            if !(1..=MOST_COPIES).contains(&lock.copies) {
                let why = format!(
                    "lock `{}`: copies = {}: give a number of 1 to {MOST_COPIES}",
                    lock.name, lock.copies
                );
                return Err((key("copies"), why));
            }
            all += u64::from(lock.copies);
            if all > MOST_LOCKS {
                let why =
                    format!("lock `{}`: with its copies there are more than {MOST_LOCKS} locks", lock.name);
                return Err((key("copies"), why));
            }
        }
        Ok(())
    }

    /// Share of the work that makes and frees pages, 0 to 1: faults, and calls that do it for many pages at once.
    pub fn populating(&self) -> f64 {
        let all: f64 = self.mix.iter().map(|s| s.weight).sum();
        let pages = |s: &&Share| {
            let called = ["mmap", "munmap", "mlock", "mlock2", "madvise"];
            s.class == SampleClass::Fault
                || s.class == SampleClass::Syscall && called.contains(&s.detail.as_str())
        };
        let these: f64 = self.mix.iter().filter(pages).map(|s| s.weight).sum();
        if all > 0.0 { these / all } else { 0.0 }
    }

    /// Share of the work that is page faults, 0 to 1.
    pub fn faults(&self) -> f64 {
        let all: f64 = self.mix.iter().map(|s| s.weight).sum();
        let faults: f64 = self.mix.iter().filter(|s| s.class == SampleClass::Fault).map(|s| s.weight).sum();
        if all > 0.0 { faults / all } else { 0.0 }
    }
}
