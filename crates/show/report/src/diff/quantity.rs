//! The figures by which two recordings are compared: every figure of one recording, by name.

use std::collections::BTreeMap;

use ncpu_record::Recording;
use ncpu_table::{Table, Unit};

use crate::findings::Findings;
use crate::onion::{Layer, Onion};
use crate::tenants::{Naming, Tenancy};

/// The kind of figure that a quantity is. Quantities are ranked within their section, since seconds of a CPU,
/// seconds of a sleeping thread and bytes cannot be weighed against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// Causes, of all layers together.
    Causes,
    /// Layers of the onion.
    Layers,
    /// CPUs that tenants had, of a whole machine.
    Tenants,
    /// Spinning in kernel locks, by lock.
    LockSpin,
    /// Spinning in kernel locks, by lock and caller.
    LockCallers,
    /// System calls, by name.
    Calls,
    /// Functions of user code.
    Functions,
    /// Threads on CPU, by name.
    Threads,
    /// Time that tenants lost to others, by both and the cause.
    Losses,
    /// Threads blocked in kernel locks, by lock.
    LockBlock,
    /// Threads waiting for user locks, by lock.
    UserLocks,
    /// Lives of threads, by what they did.
    Lives,
    /// Threads asleep, by system call.
    Sleeps,
    /// Events of kernel and processor.
    Events,
    /// Memory.
    Memory,
}

impl Section {
    /// All, in the order of a report.
    pub const ALL: [Section; 15] = [
        Section::Causes,
        Section::Layers,
        Section::Tenants,
        Section::LockSpin,
        Section::LockCallers,
        Section::Calls,
        Section::Functions,
        Section::Threads,
        Section::Losses,
        Section::LockBlock,
        Section::UserLocks,
        Section::Lives,
        Section::Sleeps,
        Section::Events,
        Section::Memory,
    ];

    /// Its name in tables and headings.
    pub fn name(self) -> &'static str {
        match self {
            Section::Causes => "causes",
            Section::Layers => "layers",
            Section::Tenants => "tenants on CPU",
            Section::LockSpin => "kernel lock spin",
            Section::LockCallers => "kernel lock spin by caller",
            Section::Calls => "system calls",
            Section::Functions => "user functions",
            Section::Threads => "threads on CPU",
            Section::Losses => "lost to other tenants",
            Section::LockBlock => "blocked in kernel locks",
            Section::UserLocks => "waiting for user locks",
            Section::Lives => "threads' time",
            Section::Sleeps => "asleep in system calls",
            Section::Events => "events",
            Section::Memory => "memory",
        }
    }

    /// The unit of its figures: CPU-seconds of capacity, seconds of threads, events or bytes.
    pub fn unit(self) -> Unit {
        match self {
            Section::Causes
            | Section::Layers
            | Section::Tenants
            | Section::LockSpin
            | Section::LockCallers
            | Section::Calls
            | Section::Functions
            | Section::Threads => Unit::CpuSeconds,
            Section::Losses | Section::LockBlock | Section::UserLocks | Section::Lives | Section::Sleeps => {
                Unit::Seconds
            }
            Section::Events => Unit::Figure,
            Section::Memory => Unit::Bytes,
        }
    }

    /// Whether its figures grow with the work done, and so are divided by it.
    pub fn per_work(self) -> bool {
        self != Section::Memory
    }

    /// The table it comes from.
    pub fn table(self) -> &'static str {
        match self {
            Section::Causes | Section::Layers => "cpu_time",
            Section::Tenants => "tenant_time",
            Section::Losses => "tenant_losses",
            Section::LockSpin | Section::LockBlock => "locks",
            Section::LockCallers => "lock_callers",
            Section::Calls | Section::Functions => "samples",
            Section::Threads => "threads",
            Section::UserLocks => "user_locks",
            Section::Lives => "thread_time",
            Section::Sleeps => "sleeps",
            Section::Events => "events",
            Section::Memory => "memory_change",
        }
    }
}

/// A figure of one recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// In the section's unit.
    pub value: f64,
    /// Standard error of its sampling, in the same unit; 0 where it was counted.
    pub error: f64,
}

/// The figures of one recording, by section and name.
#[derive(Clone, Debug, Default)]
pub struct Quantities {
    /// The figures.
    pub of: BTreeMap<(Section, String), Figure>,
    /// Sections with a table in the recording, though perhaps without a row.
    pub sections: Vec<Section>,
    /// Seconds observed.
    pub elapsed: f64,
    /// Whether a command ran to its end under observation.
    pub ran: bool,
    /// CPU-seconds of the capacity: the scale of what matters.
    pub capacity: f64,
}

/// Digits at the end of a thread's or worker's name tell it from its fellows and differ from run to run.
fn without_number(name: &str) -> String {
    let kept = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if kept.len() == name.len() || kept.is_empty() { name.to_string() } else { format!("{kept}#") }
}

impl Quantities {
    /// Reads them off a recording of `run` or `watch`.
    ///
    /// # Errors
    /// It holds no observation, or a table of it is not what the schema says.
    pub fn of(recording: &Recording) -> Result<Quantities, ncpu_schema::Error> {
        let onion = Onion::peel(recording)?;
        let findings = Findings::of(recording)?;
        let has = |s: &Section| recording.tables.contains_key(s.table());
        let mut out = Quantities {
            of: BTreeMap::new(),
            sections: Section::ALL.into_iter().filter(has).collect(),
            elapsed: onion.elapsed,
            ran: onion.status.is_some(),
            capacity: onion.capacity,
        };
        for row in &onion.rows {
            out.add(Section::Layers, row.layer.name().into(), row.seconds, row.error / 1.96);
        }
        // Those that are too small for the list too: on the other side they may be large.
        for found in findings.list.iter().chain(&findings.others).filter(|found| found.seconds > 0.0) {
            out.add(Section::Causes, found.title.clone(), found.seconds, found.error / 1.96);
        }
        if let Some(tenancy) = Tenancy::of(recording, &Naming::default())? {
            for part in &tenancy.parts {
                if let Some(name) = &part.name {
                    out.exact(Section::Tenants, name.clone(), Some(part.busy()));
                }
            }
            for lost in tenancy.losses.iter().filter(|lost| lost.to_another()) {
                let culprit = lost.culprit.as_deref().unwrap_or_default();
                let name = format!("{} to {culprit}, {}", lost.victim, lost.cause.name());
                out.exact(Section::Losses, name, Some(lost.threads));
            }
        }
        let table = |name: &str| recording.tables.get(name);
        if let Some(t) = table("locks") {
            for r in 0..t.num_rows() {
                let Some(name) = t.text(r, "lock") else { continue };
                out.exact(Section::LockSpin, name.into(), t.number(r, "spin"));
                out.exact(Section::LockBlock, name.into(), t.number(r, "block"));
            }
        }
        if let Some(t) = table("lock_callers") {
            out.callers(t);
        }
        if let Some(t) = table("samples") {
            let told = [Layer::User, Layer::Calls].map(|l| onion.seconds(l));
            out.samples(t, told);
        }
        if let Some(t) = table("threads") {
            for r in 0..t.num_rows() {
                let Some(name) = t.text(r, "thread") else { continue };
                out.exact(Section::Threads, without_number(name), Some(crate::threads::on_cpu(t, r)));
            }
        }
        if let Some(t) = table("user_locks") {
            for r in 0..t.num_rows() {
                let Some(name) = t.text(r, "lock") else { continue };
                // An address differs from run to run; the place that waits does not.
                let name = match t.text(r, "caller") {
                    Some(caller) if name.starts_with("0x") => format!("in {caller}"),
                    _ => name.to_string(),
                };
                let waited = [t.number(r, "spin"), t.number(r, "block")].into_iter().flatten().sum();
                out.exact(Section::UserLocks, name, Some(waited));
            }
        }
        for ((doing, what), part) in &findings.lives.parts {
            let name = match what {
                Some(what) => format!("{}: {what}", doing.name()),
                None => doing.name().into(),
            };
            out.exact(Section::Lives, name, Some(part.seconds));
        }
        for (section, name, key, value) in
            [(Section::Sleeps, "sleeps", "call", "seconds"), (Section::Events, "events", "event", "count")]
        {
            let Some(t) = table(name) else { continue };
            for r in 0..t.num_rows() {
                let Some(name) = t.text(r, key) else { continue };
                out.exact(section, name.into(), t.number(r, value));
            }
        }
        if let Some(t) = table("memory_change") {
            for r in 0..t.num_rows() {
                let (Some(name), Some(before), Some(most)) =
                    (t.text(r, "class"), t.number(r, "before"), t.number(r, "most"))
                else {
                    continue;
                };
                // Free memory is what the others leave.
                if !matches!(name, "MemFree" | "MemAvailable") {
                    out.exact(Section::Memory, format!("{name}, growth"), Some((most - before).max(0.0)));
                }
            }
            let largest = table("summary").and_then(|t| t.number(0, "max_rss"));
            out.exact(Section::Memory, "largest resident set of the command".into(), largest);
        }
        Ok(out)
    }

    /// Puts layers together that a recording without root does not tell apart.
    pub fn merge(&mut self) {
        let layers: Vec<_> =
            self.of.keys().filter(|(section, _)| *section == Section::Layers).cloned().collect();
        for key in layers {
            let merged = Layer::of_name(&key.1).ok().and_then(Layer::merged);
            if let Some((into, figure)) = merged.zip(self.of.get(&key).copied()) {
                self.of.remove(&key);
                self.add(Section::Layers, into.name().into(), figure.value, figure.error);
            }
        }
    }

    fn add(&mut self, section: Section, name: String, value: f64, error: f64) {
        let figure = self.of.entry((section, name)).or_default();
        figure.value += value;
        figure.error = figure.error.hypot(error);
    }

    fn exact(&mut self, section: Section, name: String, value: Option<f64>) {
        if let Some(value) = value.filter(|v| v.is_finite() && *v >= 0.0) {
            self.add(section, name, value, 0.0);
        }
    }

    /// Only some contentions had their stack walked: their shares are applied to what the lock's table says.
    fn callers(&mut self, t: &Table) {
        let mut by: BTreeMap<(String, String), (f64, f64)> = BTreeMap::new();
        let mut whole: BTreeMap<String, f64> = BTreeMap::new();
        for r in 0..t.num_rows() {
            let (Some(lock), Some(caller)) = (t.text(r, "lock"), t.text(r, "caller")) else { continue };
            let spin = t.number(r, "spin").unwrap_or(0.0);
            let at = by.entry((lock.into(), caller.into())).or_default();
            at.0 += spin;
            at.1 += t.number(r, "walked").unwrap_or(0.0);
            *whole.entry(lock.into()).or_default() += spin;
        }
        for ((lock, caller), (spin, walked)) in by {
            let total = self.of.get(&(Section::LockSpin, lock.clone())).map_or(0.0, |f| f.value);
            let whole = whole.get(&lock).copied().unwrap_or(0.0);
            if whole <= 0.0 || walked <= 0.0 {
                continue;
            }
            let value = total * spin / whole;
            // Waits are roughly exponential: the mean of n of them is off by one part in the root of n.
            self.add(Section::LockCallers, format!("{lock} from {caller}"), value, value / walked.sqrt());
        }
    }

    /// Samples by function and by system call; `told` is what the onion gives user code and system calls.
    fn samples(&mut self, t: &Table, told: [f64; 2]) {
        let mut by: [BTreeMap<String, f64>; 2] = Default::default();
        for r in 0..t.num_rows() {
            let (Some("target"), Some(class), Some(n)) =
                (t.text(r, "at"), t.text(r, "class"), t.number(r, "samples"))
            else {
                continue;
            };
            let (which, name) = match class {
                "user" => (0, t.text(r, "detail").unwrap_or("?")),
                "syscall" => (1, t.text(r, "detail").unwrap_or("?")),
                "exec" => (1, "execve"),
                "exit" => (1, "exit"),
                _ => continue,
            };
            *by[which].entry(name.to_string()).or_default() += n;
        }
        for ((names, section), told) in by.into_iter().zip([Section::Functions, Section::Calls]).zip(told) {
            let all: f64 = names.values().sum();
            for (name, n) in names {
                let p = n / all.max(1.0);
                self.add(
                    section,
                    name,
                    told * p,
                    told * (p * (1.0 - p) / all.max(1.0)).sqrt().max(told / all.max(1.0)),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::without_number;

    #[test]
    fn workers_are_alike() {
        assert_eq!(without_number("worker-12"), "worker-#");
        assert_eq!(without_number("kworker/u4:2"), "kworker/u4:#");
        assert_eq!(without_number("java"), "java");
        assert_eq!(without_number("42"), "42", "a name of digits alone stays");
    }
}
