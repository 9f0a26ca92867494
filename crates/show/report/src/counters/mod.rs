//! Counters by CPU, core, package, node or process, with the figures computed of them: `cpustat`,
//! `corestat`, `trapstat -T`.

mod metric;
mod text;

use std::collections::BTreeSet;

use ncpu_machine::Topology;
use ncpu_machine::events::{Class, Event, Sources};
use ncpu_table::{Column, Kind, Table, Unit};

pub use metric::{Counts, Facts, Metric};
pub use text::totals_text;

/// The unit that a row is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A CPU.
    Cpu,
    /// A core.
    Core,
    /// A package.
    Package,
    /// A NUMA node.
    Node,
    /// A process.
    Process,
}

/// The view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A little of everything.
    Summary,
    /// The events asked for.
    Events,
    /// How well cores and their strands are used, as `corestat` does.
    Core,
    /// TLB misses and what they cost, as `trapstat -T` does.
    Tlb,
    /// The last-level cache, and memory near and far.
    Memory,
}

/// The names of columns too long for a row of many.
const SHORT: [(&str, &str); 14] = [
    ("context-switches", "csw"),
    ("cpu-migrations", "migr"),
    ("minor-faults", "minf"),
    ("major-faults", "mjf"),
    ("instructions", "instr"),
    ("LLC-load-misses", "llcmisses"),
    ("dTLB-load-misses", "dload"),
    ("dTLB-store-misses", "dstore"),
    ("iTLB-load-misses", "icode"),
    ("node-loads", "near"),
    ("node-load-misses", "far"),
    ("ls_any_fills_from_sys.mem_io_local", "near"),
    ("ls_any_fills_from_sys.mem_io_remote", "far"),
    ("LLC-loads", "llcloads"),
];

impl View {
    /// The names of the events it needs, in an order that puts into one group what is held against each
    /// other. Those of [`View::Events`] are the user's.
    pub fn events(self, sources: &Sources, facts: &Facts) -> Vec<&'static str> {
        let software = ["context-switches", "cpu-migrations", "minor-faults", "major-faults"];
        let clocks = sources.pmu("msr").is_some_and(|msr| msr.aliases.iter().any(|a| a.name == "mperf"));
        let walks = facts.walks();
        let mut names: Vec<&'static str> = Vec::new();
        match self {
            View::Events => {}
            View::Summary => {
                names.extend(software);
                if sources.cores().next().is_some() {
                    names.extend(["cycles", "instructions"]);
                    names.extend(walks);
                    names.push("LLC-load-misses");
                    names.extend(facts.memory());
                }
            }
            View::Core => names.extend(["cycles", "instructions"]),
            View::Tlb => {
                names.push("cycles");
                names.extend(walks);
                names.extend(["dTLB-load-misses", "dTLB-store-misses", "iTLB-load-misses"]);
            }
            View::Memory => {
                names.extend(["cycles", "instructions", "LLC-loads", "LLC-load-misses"]);
                names.extend(facts.memory());
            }
        }
        if clocks && matches!(self, View::Summary | View::Core) {
            names.extend(metric::CLOCKS);
        }
        names
    }

    /// Whether an event has a column of its own, or only goes into figures.
    fn shows(self, event: &str) -> bool {
        match self {
            View::Events => true,
            View::Summary => SHORT[..4].iter().any(|(name, _)| *name == event),
            View::Core => event == "instructions",
            View::Tlb => event.contains("TLB-"),
            View::Memory => {
                event.starts_with("LLC")
                    || SHORT.iter().any(|(n, s)| *n == event && matches!(*s, "near" | "far"))
            }
        }
    }

    fn metrics(self) -> &'static [Metric] {
        use Metric::*;
        match self {
            // Figures that the events chosen by the user do not give are left out.
            View::Events => &[Busy, Ipc, BranchMisses, LlcMisses, Remote, Walk],
            View::Summary => &[Busy, Ipc, Pipe, LlcPerKilo, Remote, Walk],
            View::Core => &[Busy, Ipc, Pipe],
            View::Tlb => &[WalkLoad, WalkStore, WalkCode, Walk],
            View::Memory => &[Ipc, LlcMisses, LlcPerKilo, Remote],
        }
    }
}

/// A column behind the key.
enum Cell {
    /// An event, by its place.
    Event(usize),
    /// A figure of the events with these modifiers (`:u`).
    Figure(Metric, String),
    /// How much of the time the event that had the least had a counter.
    Counted,
}

/// How a table of counters is laid out.
pub struct Layout {
    by: By,
    time: bool,
    facts: Facts,
    events: Vec<String>,
    cells: Vec<(Column, Cell)>,
}

impl Layout {
    /// The layout of these events, with the figures they suffice for. With `time` the first column says
    /// when, for formats that keep many reports.
    pub fn new(view: View, by: By, time: bool, events: &[&Event], facts: Facts) -> Layout {
        let names: Vec<String> = events.iter().map(|e| e.name.clone()).collect();
        let mut cells = Vec::new();
        for (at, event) in events.iter().enumerate().filter(|(_, e)| view.shows(&e.name)) {
            cells.push((event_column(event, view), Cell::Event(at)));
        }
        let suffixes: BTreeSet<&str> = events.iter().map(|e| suffix(e)).collect();
        for metric in Metric::ALL.into_iter().filter(|m| view.metrics().contains(m)) {
            let Some(needs) = metric.needs(&facts) else { continue };
            // The slots of the elapsed time are those of whole CPUs.
            if metric == Metric::Pipe && by == By::Process {
                continue;
            }
            for suffix in &suffixes {
                if needs.iter().all(|name| names.contains(&format!("{name}{suffix}"))) {
                    let (name, percent, meaning) = metric.describe();
                    let unit = if percent { Unit::Percent } else { Unit::None };
                    let column = Column::float(&format!("{name}{suffix}"), unit, Kind::Share, meaning);
                    cells.push((column, Cell::Figure(metric, suffix.to_string())));
                }
            }
        }
        if events.iter().any(|e| matches!(e.class, Class::Core | Class::Shared)) {
            let meaning = "time the event that had the least had a counter; counts are scaled to all of it";
            cells.push((Column::float("counted", Unit::Percent, Kind::Share, meaning), Cell::Counted));
        }
        Layout { by, time, facts, events: names, cells }
    }

    /// One report: `raw` is table `counters` of an interval, `when` seconds since 1970.
    pub fn table(&self, raw: &Table, topology: &Topology, when: f64) -> Table {
        let mut columns = Vec::new();
        if self.time {
            let meaning = "end of the interval, seconds since 1970";
            columns.push(Column::float("time", Unit::Seconds, Kind::Gauge, meaning));
        }
        columns.push(match self.by {
            By::Cpu => Column::id("CPU", "CPU number"),
            By::Core => Column::id("core", "lowest CPU of the core"),
            By::Package => Column::id("package", "package number"),
            By::Node => Column::id("node", "NUMA node"),
            By::Process => Column::id("PID", "process"),
        });
        columns.extend(self.cells.iter().map(|(column, _)| column.clone()));
        match self.by {
            By::Core | By::Package | By::Node => columns.push(Column::text("CPUs", "the CPUs put together")),
            By::Process => columns.push(Column::text("process", "name of the process")),
            By::Cpu => {}
        }
        let mut out = Table::builder("counters", &columns);
        for sum in self.sums(raw, topology) {
            let mut row = out.row();
            if self.time {
                row = row.float(when);
            }
            row = row.int_opt(sum.key);
            for (column, cell) in &self.cells {
                let value = match cell {
                    Cell::Event(at) => sum.events[*at].count,
                    Cell::Figure(metric, suffix) => {
                        metric.value(&Chosen { layout: self, sum: &sum, suffix, topology }, &self.facts)
                    }
                    Cell::Counted => counted(&sum.events),
                };
                row = match (column.ty, value) {
                    (ncpu_table::Type::Int, Some(n)) => row.int(n.round() as u64),
                    (_, value) => row.float_opt(value),
                };
            }
            match self.by {
                By::Core | By::Package | By::Node => {
                    row.text(sum.cpus.iter().copied().collect::<ncpu_machine::CpuSet>().to_list());
                }
                By::Process => {
                    row.text_opt(sum.name.as_deref());
                }
                By::Cpu => {}
            }
        }
        out.finish()
    }

    /// The rows of each key put together, in order of the key.
    fn sums(&self, raw: &Table, topology: &Topology) -> Vec<Sum> {
        let mut sums: std::collections::BTreeMap<(bool, Option<u64>), Sum> =
            std::collections::BTreeMap::new();
        for r in 0..raw.num_rows() {
            let cpu = raw.int(r, "CPU").map(|cpu| cpu as u32);
            let key = match self.by {
                By::Process => raw.int(r, "pid"),
                _ => cpu.and_then(|cpu| place(topology, self.by, cpu)),
            };
            let Some(at) = raw.text(r, "event").and_then(|e| self.events.iter().position(|n| n == e)) else {
                continue;
            };
            let sum = sums.entry((key.is_none(), key)).or_insert_with(|| Sum::new(key, self.events.len()));
            sum.events[at].add(raw, r);
            sum.cpus.extend(cpu);
            if sum.name.is_none() {
                sum.name = raw.text(r, "process").map(String::from);
            }
        }
        sums.into_values().collect()
    }
}

/// The number of the core, package or node of a CPU.
fn place(topology: &Topology, by: By, cpu: u32) -> Option<u64> {
    match by {
        By::Cpu | By::Process => Some(cpu.into()),
        By::Core => topology.core_of(cpu)?.cpus.iter().next().map(u64::from),
        By::Package => {
            let place = topology.cpu(cpu)?.package?;
            Some(topology.packages[place].id.map_or(place as u64, u64::from))
        }
        By::Node => topology.node_of(cpu).map(|n| n.id.into()),
    }
}

/// An event's counts put together.
#[derive(Clone, Debug, Default)]
struct EventSum {
    /// `None` until there is one, and where a part is not known.
    count: Option<f64>,
    unknown: bool,
    enabled: f64,
    running: f64,
}

impl EventSum {
    fn add(&mut self, raw: &Table, r: usize) {
        match raw.number(r, "count") {
            Some(n) if !self.unknown => self.count = Some(self.count.unwrap_or(0.0) + n),
            Some(_) => {}
            None => (self.unknown, self.count) = (true, None),
        }
        self.enabled += raw.number(r, "enabled").unwrap_or(0.0);
        self.running += raw.number(r, "running").unwrap_or(0.0);
    }

    /// Per cent of the time it had a counter; `None` where it was not to count.
    fn counted(&self) -> Option<f64> {
        (self.enabled > 0.0).then(|| self.running / self.enabled * 100.0)
    }
}

fn counted(events: &[EventSum]) -> Option<f64> {
    events.iter().filter_map(EventSum::counted).min_by(f64::total_cmp)
}

struct Sum {
    key: Option<u64>,
    name: Option<String>,
    cpus: BTreeSet<u32>,
    events: Vec<EventSum>,
}

impl Sum {
    fn new(key: Option<u64>, events: usize) -> Sum {
        Sum { key, name: None, cpus: BTreeSet::new(), events: vec![EventSum::default(); events] }
    }
}

/// A sum's events of the same modifiers.
struct Chosen<'a> {
    layout: &'a Layout,
    sum: &'a Sum,
    suffix: &'a str,
    topology: &'a Topology,
}

impl Counts for Chosen<'_> {
    fn count(&self, event: &str) -> Option<f64> {
        let with = |n: &String| n.strip_suffix(self.suffix) == Some(event);
        self.sum.events[self.layout.events.iter().position(with)?].count
    }

    fn cpu_seconds(&self) -> Option<f64> {
        let with = |n: &String| n.strip_suffix(self.suffix) == Some("instructions");
        Some(self.sum.events[self.layout.events.iter().position(with)?].enabled)
    }

    fn cores_a_strand(&self) -> Option<f64> {
        let cores: BTreeSet<_> = self.sum.cpus.iter().map(|&c| place(self.topology, By::Core, c)).collect();
        match self.layout.by {
            // One strand alone may use all slots of its core.
            By::Cpu => Some(1.0),
            By::Process => None,
            _ => (!self.sum.cpus.is_empty()).then(|| cores.len() as f64 / self.sum.cpus.len() as f64),
        }
    }
}

fn event_column(event: &Event, view: View) -> Column {
    let short = SHORT.iter().find(|(name, _)| view != View::Events && *name == event.name);
    let name = short.map_or(event.name.as_str(), |(_, short)| short);
    let meaning = event.name.as_str();
    match event.unit.as_deref() {
        None if event.scale == 1.0 => Column::count(name, meaning),
        Some("ms") => Column::float(name, Unit::Milliseconds, Kind::Count, meaning),
        unit => {
            let meaning = format!("{meaning}, {}", unit.unwrap_or("scaled"));
            Column::float(name, Unit::None, Kind::Count, &meaning)
        }
    }
}

/// The modifiers of a name, with the colon; empty for a tracepoint's.
fn suffix(event: &Event) -> &str {
    match event.class {
        Class::Tracepoint => "",
        _ => event.name.rfind(':').map_or("", |at| &event.name[at..]),
    }
}

/// Counts of everything put together, a row an event: table `totals`.
pub fn totals(raw: &Table) -> ncpu_table::Result<Table> {
    let sums = text::Totals::of(raw);
    let mut out = Table::builder(
        "totals",
        &[
            Column::text("event", "what was counted"),
            Column::float("count", Unit::None, Kind::Count, "how often, scaled to the whole time"),
            Column::text("unit", "what the count is of; a bare number where there is none"),
            Column::float("enabled", Unit::CpuSeconds, Kind::Time, "time it was to count"),
            Column::float("counted", Unit::Percent, Kind::Share, "time it had a counter"),
        ],
    );
    for (name, unit, sum) in &sums.events {
        out.row()
            .text(name)
            .float_opt(sum.count)
            .text_opt(unit.as_deref())
            .float(sum.enabled)
            .float_opt(sum.counted());
    }
    Ok(out.finish())
}

#[cfg(test)]
mod tests;
