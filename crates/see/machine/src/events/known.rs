//! Properties of a CPU that follow from its model and are missing in sysfs: events of page walks and remote
//! memory, and the number of instructions it can issue per cycle.
//!
//! The events are those of Intel's and AMD's public event files (from which `perf` is built), under the names
//! in these files; the widths are from the vendors' optimisation guides.

use super::Sources;

/// A CPU's vendor, family and model, as /proc/cpuinfo has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// `vendor_id`.
    pub vendor: String,
    /// `cpu family`.
    pub family: u32,
    /// `model`.
    pub model: u32,
}

/// Generations whose events have the same codes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    SandyBridge,
    IvyBridge,
    Haswell,
    Skylake,
    IceLake,
    GoldenCove,
    Zen,
    Zen3,
    Zen5,
}

impl Model {
    fn line(&self) -> Option<Line> {
        use Line::*;
        Some(match (self.vendor.as_str(), self.family, self.model) {
            ("GenuineIntel", 6, 0x2a | 0x2d) => SandyBridge,
            ("GenuineIntel", 6, 0x3a | 0x3e) => IvyBridge,
            ("GenuineIntel", 6, 0x3c | 0x3d | 0x3f | 0x45 | 0x46 | 0x47 | 0x4f | 0x56) => Haswell,
            ("GenuineIntel", 6, 0x4e | 0x55 | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6) => Skylake,
            ("GenuineIntel", 6, 0x6a | 0x6c | 0x7d | 0x7e | 0x8c | 0x8d | 0xa7) => IceLake,
            ("GenuineIntel", 6, 0x8f | 0x97 | 0x9a | 0xad | 0xae | 0xb7 | 0xba | 0xbf | 0xcf) => GoldenCove,
            ("AuthenticAMD", 0x17, _) => Zen,
            ("AuthenticAMD", 0x19, _) => Zen3,
            ("AuthenticAMD", 0x1a, _) => Zen5,
            _ => return None,
        })
    }

    /// The fields of an event that the vendor names and sysfs lacks.
    pub(super) fn event(&self, name: &str) -> Option<&'static str> {
        self.events().into_iter().find(|(known, _)| *known == name).map(|(_, terms)| terms)
    }

    /// Every event known for this model.
    pub(super) fn events(&self) -> Vec<(&'static str, &'static str)> {
        use Line::*;
        match self.line() {
            Some(line @ (SandyBridge | IvyBridge)) => vec![
                (
                    "dtlb_load_misses.walk_duration",
                    if line == IvyBridge { "event=0x08,umask=0x84" } else { "event=0x08,umask=0x04" },
                ),
                ("dtlb_store_misses.walk_duration", "event=0x49,umask=0x04"),
                ("itlb_misses.walk_duration", "event=0x85,umask=0x04"),
            ],
            Some(Haswell) => vec![
                ("dtlb_load_misses.walk_duration", "event=0x08,umask=0x10"),
                ("dtlb_store_misses.walk_duration", "event=0x49,umask=0x10"),
                ("itlb_misses.walk_duration", "event=0x85,umask=0x10"),
            ],
            Some(Skylake | IceLake) => vec![
                ("dtlb_load_misses.walk_active", "event=0x08,umask=0x10,cmask=1"),
                ("dtlb_store_misses.walk_active", "event=0x49,umask=0x10,cmask=1"),
                ("itlb_misses.walk_active", "event=0x85,umask=0x10,cmask=1"),
            ],
            Some(GoldenCove) => vec![
                ("dtlb_load_misses.walk_active", "event=0x12,umask=0x10,cmask=1"),
                ("dtlb_store_misses.walk_active", "event=0x13,umask=0x10,cmask=1"),
                ("itlb_misses.walk_active", "event=0x11,umask=0x10,cmask=1"),
            ],
            // Zen 4 calls them dram_io_near and dram_io_far; the codes are the same.
            Some(Zen3 | Zen5) => vec![
                ("ls_any_fills_from_sys.mem_io_local", "event=0x44,umask=0x08"),
                ("ls_any_fills_from_sys.mem_io_remote", "event=0x44,umask=0x40"),
                ("ls_any_fills_from_sys.dram_io_near", "event=0x44,umask=0x08"),
                ("ls_any_fills_from_sys.dram_io_far", "event=0x44,umask=0x40"),
            ],
            Some(Zen) | None => Vec::new(),
        }
    }

    fn width(&self) -> Option<u32> {
        use Line::*;
        self.line().map(|line| match line {
            SandyBridge | IvyBridge | Haswell | Skylake => 4,
            IceLake => 5,
            GoldenCove | Zen | Zen3 => 6,
            Zen5 => 8,
        })
    }
}

/// The number of instructions that a core can issue per cycle, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Width {
    /// Instructions (on x86 micro-operations) per cycle.
    pub slots: u32,
    /// The source of the number, in words.
    pub from: String,
}

/// The role of a counter, independent of its name on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Cycles in page walks for loads.
    WalkLoad,
    /// Cycles in page walks for stores.
    WalkStore,
    /// Cycles in page walks for instructions.
    WalkCode,
    /// Reads of memory of the CPU's own node, or of any node ([`Sources::local_is_all`]).
    MemoryLocal,
    /// Reads of another node's memory.
    MemoryRemote,
}

impl Role {
    /// The names of its events, in order of preference.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Role::WalkLoad => &["dtlb_load_misses.walk_active", "dtlb_load_misses.walk_duration"],
            Role::WalkStore => &["dtlb_store_misses.walk_active", "dtlb_store_misses.walk_duration"],
            Role::WalkCode => &["itlb_misses.walk_active", "itlb_misses.walk_duration"],
            Role::MemoryLocal => &["ls_any_fills_from_sys.mem_io_local", "node-loads"],
            Role::MemoryRemote => &["ls_any_fills_from_sys.mem_io_remote", "node-load-misses"],
        }
    }
}

impl Sources {
    /// The number of instructions that a core can issue per cycle: from an Arm PMU (`caps/slots`), otherwise
    /// from the known model, otherwise 4.
    pub fn width(&self) -> Width {
        if let Some((pmu, slots)) = self.cores().find_map(|p| Some((&p.name, p.slots?))) {
            return Width { slots, from: format!("{pmu}/caps/slots") };
        }
        match self.model.width() {
            Some(slots) => Width {
                slots,
                from: format!(
                    "known for {} family {} model {:#x}",
                    self.model.vendor, self.model.family, self.model.model
                ),
            },
            None => Width { slots: 4, from: "assumed: this CPU model is not known".into() },
        }
    }

    /// The name of a role's event on this machine, if it has one.
    pub fn role(&self, role: Role) -> Option<&'static str> {
        let generic = |name: &str| name.starts_with("node-") && self.has_node_events();
        let has_event = |name: &str| {
            generic(name)
                || self.model.event(name).is_some()
                || self.cores().any(|p| p.aliases.iter().any(|a| a.name == name))
        };
        role.names().iter().copied().find(|name| has_event(name))
    }

    /// The generic node events mean memory on Intel only: Zen has none, and Arm's count bus accesses.
    fn has_node_events(&self) -> bool {
        self.cores().next().is_some() && self.model.vendor == "GenuineIntel"
    }

    /// Whether [`Role::MemoryLocal`] includes remote reads. It does on Sandy and Ivy Bridge
    /// (arch/x86/events/intel/core.c: `SNB_DRAM_ANY`); later models count local reads there.
    pub fn local_is_all(&self) -> bool {
        matches!(self.model.line(), Some(Line::SandyBridge | Line::IvyBridge))
    }
}
