//! What-ifs: changes of a program or machine, as people write them.

use std::fmt;
use std::str::FromStr;

use ncpu_schema::SampleClass;

use crate::foretell;
use crate::hardware::{Hardware, Order};
use crate::model::{MOST_COPIES, MOST_HELPERS, MOST_LINES, MOST_THREADS, Memory, Model};
use crate::program::LockKind;

/// A change of a program or a machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Fix {
    /// `lock NAME …`
    Lock(String, LockFix),
    /// `line NAME …`
    Line(String, LineFix),
    /// `shootdowns per-package`: one interrupt for each package.
    ShootdownsPerPackage,
    /// `shootdowns batched K`: K times fewer.
    ShootdownsBatched(f64),
    /// `serial less K`
    SerialLess(f64),
    /// `work less K`
    WorkLess(f64),
    /// `sleep less K`
    SleepLess(f64),
    /// `polls batched K`: K units after each sleep or wait.
    PollsBatched(f64),
    /// `accept balanced`: each worker has the same share.
    AcceptBalanced,
    /// `populate K`: K threads share the work of page faults.
    Populate(u32),
    /// `huge-pages`
    HugePages,
    /// `memory local` and so on.
    Memory(Memory),
    /// `ticks off` and so on.
    Ticks(Ticks),
    /// `smt off`
    SmtOff,
    /// `place spread` and so on: the order in which CPUs are taken.
    Place(Order),
}

/// A change of a lock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LockFix {
    /// `removed`
    Removed,
    /// `split K`: K locks, one of which is taken at random.
    Split(u32),
    /// `shorter K`: held for a Kth of the time; the rest is done outside.
    Shorter(f64),
    /// A lock of another kind.
    Kind(LockKind),
}

/// A change of a line that all threads write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LineFix {
    /// `per-cpu`
    PerCpu,
    /// `bounded`: a counter with a limit, of which each CPU holds a reserve.
    Bounded,
    /// `split K`
    Split(u32),
}

/// Timer interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticks {
    /// None.
    Off,
    /// The first CPU has those of all.
    OnOne,
    /// Each CPU has its own.
    PerCpu,
}

/// A change that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a form of a fix.
    #[error("unknown --fix '{0}'; expected one of: {FORMS}")]
    Form(String),
    /// No such lock or line.
    #[error("--fix '{fix}': the model has no {what} `{name}`; it has {there}")]
    Name {
        /// The fix.
        fix: String,
        /// `lock` or `line`.
        what: &'static str,
        /// As given.
        name: String,
        /// Those of the model.
        there: String,
    },
    /// A number that makes no sense.
    #[error("--fix '{0}': {1}")]
    Number(String, String),
    /// It would change nothing; what the model or the machine lacks, and how to put it in.
    #[error("--fix '{0}': {1}")]
    Nothing(String, String),
    /// The changed model cannot be simulated.
    #[error("{0}")]
    Model(#[from] crate::model::Error),
}

/// The forms of a fix, for messages.
pub const FORMS: &str = "lock NAME removed, lock NAME split K, lock NAME ticket|qspin|tas|numa|mutex|rwsem|adaptive|block, \
     lock NAME shorter K, line NAME per-cpu|bounded, line NAME split K, shootdowns per-package, shootdowns batched K, serial less K, \
     work less K, sleep less K, polls batched K, accept balanced, populate K, huge-pages, memory local|interleaved|node0, \
     ticks off|on-one|per-cpu, smt off, place spread|pack|fill";

impl FromStr for Fix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Fix, Error> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let factor = |word: &str| match word.parse::<f64>() {
            Ok(k) if k > 1.0 && k <= 1e9 => Ok(k),
            _ => Err(Error::Number(text.into(), format!("`{word}`: give a number above 1"))),
        };
        let parts = |word: &str| match word.parse::<u32>() {
            Ok(k) if k > 1 => Ok(k),
            _ => Err(Error::Number(text.into(), format!("`{word}`: give a number of 2 or more"))),
        };
        let form = || Error::Form(text.into());
        Ok(match words.as_slice() {
            ["lock", name @ .., "split", k] if !name.is_empty() => {
                Fix::Lock(name.join(" "), LockFix::Split(parts(k)?))
            }
            ["lock", name @ .., "shorter", k] if !name.is_empty() => {
                Fix::Lock(name.join(" "), LockFix::Shorter(factor(k)?))
            }
            ["lock", name @ .., "removed"] if !name.is_empty() => Fix::Lock(name.join(" "), LockFix::Removed),
            ["lock", name @ .., kind] if !name.is_empty() => {
                let kind = LockKind::from_name(kind).ok_or_else(form)?;
                Fix::Lock(name.join(" "), LockFix::Kind(kind))
            }
            ["line", name @ .., "split", k] if !name.is_empty() => {
                Fix::Line(name.join(" "), LineFix::Split(parts(k)?))
            }
            ["line", name @ .., "per-cpu"] if !name.is_empty() => Fix::Line(name.join(" "), LineFix::PerCpu),
            ["line", name @ .., "bounded"] if !name.is_empty() => Fix::Line(name.join(" "), LineFix::Bounded),
            ["shootdowns", "per-package"] => Fix::ShootdownsPerPackage,
            ["shootdowns", "batched", k] => Fix::ShootdownsBatched(factor(k)?),
            ["serial", "less", k] => Fix::SerialLess(factor(k)?),
            ["work", "less", k] => Fix::WorkLess(factor(k)?),
            ["sleep", "less", k] => Fix::SleepLess(factor(k)?),
            ["polls", "batched", k] => Fix::PollsBatched(factor(k)?),
            ["accept", "balanced"] => Fix::AcceptBalanced,
            ["populate", k] => Fix::Populate(parts(k)?),
            ["huge-pages"] => Fix::HugePages,
            ["memory", place] => Fix::Memory(Memory::from_name(place).ok_or_else(form)?),
            ["ticks", "off"] => Fix::Ticks(Ticks::Off),
            ["ticks", "on-one"] => Fix::Ticks(Ticks::OnOne),
            ["ticks", "per-cpu"] => Fix::Ticks(Ticks::PerCpu),
            ["smt", "off"] => Fix::SmtOff,
            ["place", "spread"] => Fix::Place(Order::Spread),
            ["place", "pack"] => Fix::Place(Order::Pack),
            ["place", "fill"] => Fix::Place(Order::Fill),
            _ => return Err(form()),
        })
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fix::Lock(name, LockFix::Removed) => write!(f, "lock {name} removed"),
            Fix::Lock(name, LockFix::Split(k)) => write!(f, "lock {name} split {k}"),
            Fix::Lock(name, LockFix::Shorter(k)) => write!(f, "lock {name} shorter {k}"),
            Fix::Lock(name, LockFix::Kind(kind)) => write!(f, "lock {name} {}", kind.name()),
            Fix::Line(name, LineFix::PerCpu) => write!(f, "line {name} per-cpu"),
            Fix::Line(name, LineFix::Bounded) => write!(f, "line {name} bounded"),
            Fix::Line(name, LineFix::Split(k)) => write!(f, "line {name} split {k}"),
            Fix::ShootdownsPerPackage => f.write_str("shootdowns per-package"),
            Fix::ShootdownsBatched(k) => write!(f, "shootdowns batched {k}"),
            Fix::SerialLess(k) => write!(f, "serial less {k}"),
            Fix::WorkLess(k) => write!(f, "work less {k}"),
            Fix::SleepLess(k) => write!(f, "sleep less {k}"),
            Fix::PollsBatched(k) => write!(f, "polls batched {k}"),
            Fix::AcceptBalanced => f.write_str("accept balanced"),
            Fix::Populate(k) => write!(f, "populate {k}"),
            Fix::HugePages => f.write_str("huge-pages"),
            Fix::Memory(place) => write!(f, "memory {}", place.name()),
            Fix::Ticks(Ticks::Off) => f.write_str("ticks off"),
            Fix::Ticks(Ticks::OnOne) => f.write_str("ticks on-one"),
            Fix::Ticks(Ticks::PerCpu) => f.write_str("ticks per-cpu"),
            Fix::SmtOff => f.write_str("smt off"),
            Fix::Place(Order::Spread) => f.write_str("place spread"),
            Fix::Place(Order::Pack) => f.write_str("place pack"),
            Fix::Place(Order::Fill) => f.write_str("place fill"),
        }
    }
}

impl Fix {
    /// Makes the change.
    ///
    /// # Errors
    /// The model or the machine has nothing that it could be made to, or it would change nothing.
    pub fn apply(&self, model: &mut Model, hardware: &mut Hardware, order: &mut Order) -> Result<(), Error> {
        match self {
            Fix::Lock(name, change) => self.lock(model, name, *change)?,
            Fix::Line(name, change) => self.line(model, name, *change)?,
            Fix::ShootdownsPerPackage => {
                self.changes(model.shootdowns > 0.0, NO_SHOOTDOWNS)?;
                self.changes(!model.shootdowns_per_package, ALREADY_SO)?;
                model.shootdowns_per_package = true;
            }
            Fix::ShootdownsBatched(k) => {
                self.changes(model.shootdowns > 0.0, NO_SHOOTDOWNS)?;
                model.shootdowns /= k;
            }
            Fix::SerialLess(k) => {
                let lacks = "the model has no serial part: put `serial_ns` into it (--to-model)";
                self.changes(model.serial_ns > 0.0, lacks)?;
                model.serial_ns /= k;
            }
            Fix::WorkLess(k) => {
                let lacks = "the model has no work outside of its locks: put `work_ns` into it (--to-model)";
                self.changes(model.work_ns > 0.0, lacks)?;
                model.work_ns /= k;
            }
            Fix::SleepLess(k) => {
                let lacks = "no thread of the model pauses: put `sleep_ns` into it (--to-model)";
                self.changes(model.sleep_ns > 0.0, lacks)?;
                model.sleep_ns /= k;
            }
            Fix::PollsBatched(k) => {
                let lacks = "a thread of the model neither pauses nor waits: put `sleep_ns`, `wait_ns` or `io_ns` into it (--to-model)";
                self.changes(model.sleep_ns + model.wait_ns + model.io_ns > 0.0, lacks)?;
                model.batch *= k;
            }
            Fix::AcceptBalanced => {
                let lacks = "the model's threads have equal shares: put `uneven` into it (--to-model)";
                self.changes(model.uneven > 1.0, lacks)?;
                if model.recorded.is_some() {
                    model.threads = (f64::from(model.threads) * model.uneven).round() as u32;
                }
                model.uneven = 1.0;
            }
            Fix::Populate(k) => {
                if *k > MOST_HELPERS {
                    return Err(Error::Number(self.to_string(), format!("at most {MOST_HELPERS} helpers")));
                }
                let lacks = "the model's `mix` has no class `fault`, and no call that makes pages (mmap, munmap, mlock, madvise): put \
                             one into it (--to-model)";
                self.changes(model.populating() > 0.0, lacks)?;
                model.populate = *k;
            }
            Fix::HugePages => {
                // One fault for 512 pages; zeroing them takes as long as it did.
                let gone = model.faults() * (1.0 - 1.0 / 512.0);
                let lacks = "the model's `mix` has no class `fault`: put one into it (--to-model)";
                self.changes(gone > 0.0, lacks)?;
                model.work_ns *= 1.0 - gone;
                for share in model.mix.iter_mut().filter(|s| s.class == SampleClass::Fault) {
                    share.weight /= 512.0;
                }
            }
            Fix::Memory(place) => {
                let lacks = "the model moves no memory, of which recordings do not tell: put `memory_bytes`, bytes a unit, into it \
                             (--to-model)";
                self.changes(model.memory_bytes > 0.0, lacks)?;
                let one = "the machine has one package, and all memory is its own";
                self.changes(hardware.shape.packages > 1, one)?;
                self.changes(model.memory != *place, "that is where it is already (`memory`)")?;
                model.memory = *place;
            }
            Fix::Ticks(how) => {
                let lacks = "the model has no interrupts: put `tick_ns` and `tick_hz` into it (--to-model)";
                self.changes(model.tick_ns > 0.0 && model.tick_hz > 0.0, lacks)?;
                if *how == Ticks::Off {
                    model.tick_hz = 0.0;
                } else {
                    let on_one = *how == Ticks::OnOne;
                    self.changes(model.ticks_on_one != on_one, ALREADY_SO)?;
                    model.ticks_on_one = on_one;
                }
            }
            Fix::SmtOff => {
                self.changes(hardware.shape.strands > 1, "the machine's cores have one strand each")?;
                hardware.shape.strands = 1;
            }
            Fix::Place(new) => {
                self.changes(order != new, "CPUs are taken in that order already (--place)")?;
                *order = *new;
            }
        }
        Ok(())
    }

    fn lock(&self, model: &mut Model, name: &str, change: LockFix) -> Result<(), Error> {
        let found = model.lock.iter().position(|l| l.name == name);
        let at = found.ok_or_else(|| self.missing("lock", name, model.lock.iter().map(|l| &*l.name)))?;
        let lock = &mut model.lock[at];
        match change {
            LockFix::Removed => {
                // Its work is still done, by all at once.
                model.work_ns += lock.takes * lock.hold_ns;
                model.lock.remove(at);
            }
            LockFix::Split(k) => {
                let copies = u64::from(lock.copies) * u64::from(k);
                if copies > u64::from(MOST_COPIES) {
                    return Err(Error::Number(self.to_string(), format!("at most {MOST_COPIES} ways")));
                }
                lock.copies = copies as u32;
            }
            LockFix::Shorter(k) => {
                model.work_ns += lock.takes * lock.hold_ns * (1.0 - 1.0 / k);
                lock.hold_ns /= k;
            }
            LockFix::Kind(kind) => {
                self.changes(lock.kind != kind, ALREADY_IS)?;
                lock.kind = kind;
            }
        }
        Ok(())
    }

    fn line(&self, model: &mut Model, name: &str, change: LineFix) -> Result<(), Error> {
        let found = model.line.iter().position(|l| l.name == name);
        let at = found.ok_or_else(|| self.missing("line", name, model.line.iter().map(|l| &*l.name)))?;
        let line = &mut model.line[at];
        let own = "each CPU has its own already";
        match change {
            LineFix::PerCpu => {
                self.changes(line.copies != 0 || line.bounded, own)?;
                (line.copies, line.bounded) = (0, false);
            }
            LineFix::Bounded => {
                self.changes(!line.bounded, ALREADY_IS)?;
                line.bounded = true;
            }
            LineFix::Split(k) => {
                self.changes(line.copies != 0 && !line.bounded, own)?;
                let copies = u64::from(line.copies) * u64::from(k);
                if copies > u64::from(MOST_LINES) {
                    return Err(Error::Number(self.to_string(), format!("at most {MOST_LINES} lines")));
                }
                line.copies = copies as u32;
            }
        }
        Ok(())
    }

    /// A fix that changes nothing is an error: its answer would look as if the fix gave nothing.
    fn changes(&self, it_does: bool, why_not: &str) -> Result<(), Error> {
        if it_does { Ok(()) } else { Err(Error::Nothing(self.to_string(), why_not.into())) }
    }

    fn missing<'a>(&self, what: &'static str, name: &str, all: impl Iterator<Item = &'a str>) -> Error {
        let there: Vec<&str> = all.collect();
        Error::Name {
            fix: self.to_string(),
            what,
            name: name.into(),
            there: if there.is_empty() { "none".into() } else { there.join(", ") },
        }
    }
}

const NO_SHOOTDOWNS: &str = "the model has no TLB shootdowns: give a recording of `ncpu crosscalls` beside the program's, or put `shootdowns` \
                             into it (--to-model)";
const ALREADY_SO: &str = "that is how they are already";
const ALREADY_IS: &str = "that is what it is already";

/// Every applicable fix for a model on a number of CPUs of a machine: those that the model or the machine has something
/// for. Less work and shorter pauses are another program and another load.
pub fn all(model: &Model, hardware: &Hardware, order: Order, cpus: usize) -> Vec<Fix> {
    let mut out = Vec::new();
    for lock in &model.lock {
        let mut add = |change| out.push(Fix::Lock(lock.name.clone(), change));
        add(LockFix::Removed);
        if lock.copies <= MOST_COPIES / 64 {
            add(LockFix::Split(64));
        }
        add(LockFix::Shorter(2.0));
        LockKind::ALL.into_iter().filter(|k| *k != lock.kind).map(LockFix::Kind).for_each(add);
    }
    for line in model.line.iter().filter(|l| l.copies > 0 || l.bounded) {
        let mut add = |change| out.push(Fix::Line(line.name.clone(), change));
        add(LineFix::PerCpu);
        if line.bounded {
            continue;
        }
        add(LineFix::Bounded);
        if line.copies <= MOST_LINES / 64 {
            add(LineFix::Split(64));
        }
    }
    if model.shootdowns > 0.0 {
        if !model.shootdowns_per_package {
            out.push(Fix::ShootdownsPerPackage);
        }
        out.push(Fix::ShootdownsBatched(16.0));
    }
    if model.serial_ns > 0.0 {
        out.push(Fix::SerialLess(2.0));
    }
    if model.faults() > 0.0 {
        out.push(Fix::HugePages);
    }
    let workers = foretell::workers(model, cpus);
    if model.populating() > 0.0 && model.populate < 2 && u64::from(workers) * 16 <= u64::from(MOST_THREADS) {
        out.push(Fix::Populate(16));
    }
    if model.memory_bytes > 0.0 && hardware.shape.packages > 1 {
        out.extend(Memory::ALL.into_iter().filter(|m| *m != model.memory).map(Fix::Memory));
    }
    if model.tick_ns > 0.0 && model.tick_hz > 0.0 {
        out.push(Fix::Ticks(Ticks::Off));
        out.push(Fix::Ticks(if model.ticks_on_one { Ticks::PerCpu } else { Ticks::OnOne }));
    }
    if model.sleep_ns + model.wait_ns + model.io_ns > 0.0 {
        out.push(Fix::PollsBatched(16.0));
    }
    if model.uneven > 1.0 {
        out.push(Fix::AcceptBalanced);
    }
    if hardware.shape.strands > 1 {
        out.push(Fix::SmtOff);
    }
    for other in [Order::Spread, Order::Pack, Order::Fill] {
        if other != order && !hardware.same_places(cpus.min(workers as usize), order, other) {
            out.push(Fix::Place(other));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every form that messages list, with a name and a number put in.
    fn forms() -> Vec<String> {
        let filled = FORMS.split(", ").flat_map(|form| {
            let (start, last) = form.rsplit_once(' ').unwrap_or(("", form));
            last.split('|').map(move |word| format!("{start} {word}").trim().to_string()).collect::<Vec<_>>()
        });
        filled.map(|f| f.replace("NAME", "a b").replace('K', "3")).collect()
    }

    #[test]
    fn every_form_that_messages_list_is_read_and_written_the_same() {
        for form in forms() {
            let fix: Fix = form.parse().unwrap_or_else(|e| panic!("{form}: {e}"));
            assert_eq!(fix.to_string(), form);
        }
        for kind in LockKind::ALL {
            assert!(forms().contains(&format!("lock a b {}", kind.name())), "{kind:?} is not listed");
        }
    }

    #[test]
    fn a_name_may_hold_the_words_of_fixes() {
        let fix: Fix = "lock split split 4".parse().unwrap();
        assert_eq!(fix, Fix::Lock("split".into(), LockFix::Split(4)));
        for wrong in
            ["lock removed", "lock l", "lock l split", "line l split", "shootdowns", "memory far", ""]
        {
            assert!(matches!(wrong.parse::<Fix>(), Err(Error::Form(_))), "{wrong}");
        }
        for wrong in ["lock l split 1", "lock l split 2.5", "lock l shorter 1", "work less nan", "populate 0"]
        {
            assert!(matches!(wrong.parse::<Fix>(), Err(Error::Number(..))), "{wrong}");
        }
    }
}
