//! The events that a machine can count: those of `/sys/bus/event_source/devices`, the kernel's own names,
//! tracepoints; and `perf`'s syntax for naming them.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sources = ncpu_machine::events::Sources::read("/".as_ref())?;
//! let events = sources.parse("cycles,instructions:u,cpu/event=0x3c,cmask=1/,sched:sched_switch")?;
//! # Ok(()) }
//! ```

mod accesses;
mod format;
mod known;
mod list;
mod names;
mod parse;
pub mod sample;
pub mod stacks;
mod tracefs;
pub mod user_sample;

use std::collections::BTreeMap;
use std::path::Path;

pub use accesses::{AccessEvent, NoAccessEvent};
pub use format::{Config, Format, Term, Value, terms};
pub use known::{Model, Role, Width};
pub use list::Listed;
pub use names::{TYPE_CACHE, TYPE_HARDWARE, TYPE_SOFTWARE, TYPE_TRACEPOINT};
pub use parse::{EventError, Problem};
pub use tracefs::mount_tracefs;

use crate::root::Dir;
use crate::{CpuSet, Result};

/// All event sources of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources {
    /// Performance-monitoring units, by name.
    pub pmus: Vec<Pmu>,
    /// Tracepoints, by `subsystem:name`, with their id; `None` if tracefs was not or cannot be read.
    pub tracepoints: Option<BTreeMap<String, u64>>,
    /// Why tracefs could not be read.
    pub no_tracefs: Option<String>,
    /// The CPU's model.
    pub model: Model,
    /// Warnings for the user: files that were malformed and left out.
    pub warnings: Vec<String>,
}

/// A performance-monitoring unit: a directory of `/sys/bus/event_source/devices`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pmu {
    /// Its directory's name.
    pub name: String,
    /// Its number in `perf_event_attr.type`.
    pub kind: u32,
    /// Its CPUs, if it belongs to one of several kinds of core (`cpus`).
    pub cpus: Option<CpuSet>,
    /// The CPUs to count on, one for each unit counted, such as a package (`cpumask`).
    pub cpumask: Option<CpuSet>,
    /// Fields of its events (`format/`).
    pub formats: BTreeMap<String, Format>,
    /// Events with names (`events/`), in order.
    pub aliases: Vec<Alias>,
    /// Instructions it can issue per cycle (`caps/slots`, Arm).
    pub slots: Option<u32>,
}

/// A PMU's name for an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alias {
    /// The name.
    pub name: String,
    /// Its definition, as in `event=0x3c,umask=0x00`.
    pub terms: String,
    /// The unit of its scaled counts, as in `Joules`.
    pub unit: Option<String>,
    /// The factor that converts a count to that unit.
    pub scale: Option<f64>,
}

impl Pmu {
    /// Whether it counts the events of a core: `cpu` on most machines, one for each kind of core (with a file
    /// `cpus`) on others, `cpum_cf` on s390.
    pub fn is_core(&self) -> bool {
        self.name == "cpu" || self.name == "cpum_cf" || self.cpus.is_some()
    }
}

/// An event that can be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its name, as requested.
    pub name: String,
    /// The unit of its scaled counts; none for a bare number.
    pub unit: Option<String>,
    /// The factor that converts a count to that unit.
    pub scale: f64,
    /// The modes that are excluded.
    pub exclude: Exclude,
    /// The kind of counter.
    pub class: Class,
    /// Whether it happens only in the kernel, so that counting user mode alone counts nothing.
    pub only_in_kernel: bool,
    /// One, or one for each kind of core or each instance of a unit.
    pub encodings: Vec<Encoding>,
}

/// The kind of counter of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The kernel.
    Software,
    /// A tracepoint.
    Tracepoint,
    /// Hardware of each CPU.
    Core,
    /// Hardware that several CPUs share, or the kernel on behalf of a CPU and not of a thread.
    Shared,
}

impl Class {
    /// Its name in tables.
    pub fn word(self) -> &'static str {
        match self {
            Class::Software => "software",
            Class::Tracepoint => "tracepoint",
            Class::Core => "core",
            Class::Shared => "shared",
        }
    }
}

/// The encoding of an event on one PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The PMU, for messages.
    pub pmu: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config` to `config3`.
    pub config: Config,
    /// The CPUs it is opened on; `None` is all CPUs.
    pub cpus: Option<CpuSet>,
}

/// Modes that are not counted: `:u` excludes kernel and hypervisor, `:k` user and hypervisor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exclude {
    /// User mode.
    pub user: bool,
    /// Kernel mode.
    pub kernel: bool,
    /// The hypervisor.
    pub hv: bool,
    /// When not running a guest (`:G`).
    pub host: bool,
    /// When running a guest (`:H`).
    pub guest: bool,
}

impl Sources {
    /// Reads the events of a machine below a root directory.
    ///
    /// # Errors
    /// The root cannot be opened. A machine without `/sys/bus/event_source` has no PMUs, which is not an
    /// error.
    pub fn read(root: &Path) -> Result<Sources> {
        Sources::read_some(root, |_, _| true)
    }

    /// Reads only the cores' PMUs: a large server has hundreds of other PMUs.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn read_cores(root: &Path) -> Result<Sources> {
        Sources::read_some(root, |name, dir| name == "cpu" || name == "cpum_cf" || dir.has("cpus"))
    }

    fn read_some(root: &Path, wanted: impl Fn(&str, &Dir) -> bool) -> Result<Sources> {
        let dir = Dir::root(root)?;
        let mut buf = Vec::new();
        let mut sources = Sources { model: model(&dir, &mut buf), ..Sources::default() };
        if let Some(devices) = dir.dir("sys/bus/event_source/devices") {
            let mut names = devices.names();
            names.retain(|n| !n.starts_with('.'));
            names.sort();
            for name in names {
                if let Some(pmu) = devices.dir(&name).filter(|dir| wanted(&name, dir)) {
                    sources.pmus.extend(read_pmu(name, &pmu, &mut buf, &mut sources.warnings));
                }
            }
        }
        Ok(sources)
    }

    /// Reads the tracepoints that a list of events names (`sched:sched_switch`, `sched:*`). `*:*` reads all
    /// of them, some thousand small files.
    pub fn read_tracepoints(&mut self, root: &Path, list: &str) {
        let Ok(dir) = Dir::root(root) else { return };
        let mut buf = Vec::new();
        let events = match tracefs::events(&dir, root) {
            Ok(events) => events,
            Err(why) => {
                self.no_tracefs = Some(why);
                return;
            }
        };
        let found = self.tracepoints.get_or_insert_default();
        // The names in a directory, or the only one that can match.
        let names = |dir: &Dir, pattern: &str| match pattern.contains(['*', '?', '[']) {
            true => dir.names().into_iter().filter(|n| !n.starts_with('.')).collect(),
            false => vec![pattern.to_string()],
        };
        for word in parse::split(list).into_iter().filter(|word| !word.contains(['/', ' '])) {
            let Some((subsystem, point)) = word.split_once(':') else { continue };
            let point = point.split(':').next().unwrap_or(point);
            if subsystem.is_empty() || point.is_empty() {
                continue;
            }
            for subsystem in names(&events, subsystem) {
                let Some(points) = events.dir(&subsystem) else { continue };
                for name in names(&points, point) {
                    if let Some(id) = points.number(&format!("{name}/id"), &mut buf) {
                        found.insert(format!("{subsystem}:{name}"), id);
                    }
                }
            }
        }
    }

    /// The PMUs of the cores; empty if the machine exposes none, as most virtual ones do.
    pub fn cores(&self) -> impl Iterator<Item = &Pmu> {
        self.pmus.iter().filter(|p| p.is_core())
    }

    /// The PMU with this name.
    pub fn pmu(&self, name: &str) -> Option<&Pmu> {
        self.pmus.iter().find(|p| p.name == name)
    }
}

fn read_pmu(name: String, dir: &Dir, buf: &mut Vec<u8>, warnings: &mut Vec<String>) -> Option<Pmu> {
    let kind = dir.number("type", buf)?;
    let mut pmu = Pmu { name, kind, ..Pmu::default() };
    for (file, set) in [("cpus", &mut pmu.cpus), ("cpumask", &mut pmu.cpumask)] {
        match dir.list(file, buf) {
            Ok(list) => *set = list,
            Err(e) => warnings.push(e.whole()),
        }
    }
    if let Some(formats) = dir.dir("format") {
        for field in formats.names().into_iter().filter(|n| !n.starts_with('.')) {
            match formats.read(&field, buf).map(Format::parse) {
                Some(Some(format)) => {
                    pmu.formats.insert(field, format);
                }
                Some(None) => warnings.push(format!("{} holds no format", formats.path(&field).display())),
                None => {}
            }
        }
    }
    if let Some(events) = dir.dir("events") {
        let mut names = events.names();
        names.sort();
        // `energy-pkg.scale` and similar files describe `energy-pkg`.
        for event in names.into_iter().filter(|n| !n.contains('.') || is_event(n)) {
            let Some(terms) = events.read(&event, buf).map(|t| t.trim().to_string()) else { continue };
            let word = |ending: &str, buf: &mut Vec<u8>| {
                let text = events.read(&format!("{event}.{ending}"), buf)?.trim();
                (!text.is_empty()).then(|| text.to_string())
            };
            let unit = word("unit", buf);
            let scale = word("scale", buf).and_then(|s| s.parse().ok()).filter(|s: &f64| s.is_finite());
            pmu.aliases.push(Alias { name: event, terms, unit, scale });
        }
    }
    // Written as 0x00000005; a PMU that does not know the number reports 0.
    let slots = dir
        .read("caps/slots", buf)
        .and_then(|t| u32::from_str_radix(t.trim().trim_start_matches("0x"), 16).ok());
    pmu.slots = slots.filter(|&n| n > 0);
    Some(pmu)
}

/// Whether a name with a dot is an event and not a description of another.
fn is_event(name: &str) -> bool {
    const ABOUT: [&str; 5] = ["unit", "scale", "per-pkg", "snapshot", "percore"];
    name.rsplit_once('.').is_some_and(|(event, ending)| !event.is_empty() && !ABOUT.contains(&ending))
}

/// Reads the first CPU only: the entries of all CPUs are megabytes.
fn model(dir: &Dir, buf: &mut Vec<u8>) -> Model {
    // The first page is enough.
    let _ = dir.head("proc/cpuinfo", buf);
    let text = String::from_utf8_lossy(buf);
    let (cpus, _) = crate::parse_cpuinfo(text.split("\n\n").next().unwrap_or(""));
    cpus.into_iter().next().map_or_else(Model::default, |(_, info)| Model {
        vendor: info.vendor.unwrap_or_default(),
        family: info.family.unwrap_or(0),
        model: info.model_number.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests;
