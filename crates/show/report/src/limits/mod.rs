//! Limits against what the machine needs: which are too small, near or hit, and what to set.

mod command;
mod rules;
mod text;

use ncpu_machine::limits::{Area, Knob, Limits, Reading, Scope, Size, Unit};
use ncpu_table::{Column, Kind, Table, Unit as ColumnUnit};

pub use command::{Lift, boot_parameters, lifts, sysctl_file};
pub use text::{plan, render};

use rules::Machine;

/// From this share of a limit on its use is near it.
const NEAR: f64 = 0.8;
/// Limits that follow memory are computed from the kernel's MemTotal, which is less than the memory it saw
/// when it sized the limit: a limit within a quarter of the need is the kernel's own.
const TOLERANCE: f64 = 0.75;

/// How a limit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// The kernel's counters say that it was reached.
    Hit,
    /// 80 % of it is used, or was.
    Near,
    /// It does not fit the number of CPUs and the memory.
    Small,
    /// None of these.
    Ok,
}

impl Status {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Status::Hit => "hit",
            Status::Near => "near",
            Status::Small => "small",
            Status::Ok => "ok",
        }
    }
}

/// A limit that has been judged.
#[derive(Clone, Debug)]
pub struct Judged<'a> {
    /// The limit.
    pub reading: &'a Reading,
    /// How it stands.
    pub status: Status,
    /// Per cent used.
    pub percent: Option<f64>,
    /// A value that would fit; `None` where it is not known.
    pub fit: Option<u64>,
    /// Why: the formula and its source, or the use.
    pub why: String,
}

/// Judges every limit of a machine: worst first, then by area.
pub fn judge(limits: &Limits) -> Vec<Judged<'_>> {
    let machine = Machine { size: limits.size, hz: limits.hz };
    let mut out: Vec<Judged<'_>> = limits.readings.iter().map(|r| judged(r, machine)).collect();
    out.sort_by_key(|j| (j.status, j.reading.area));
    out
}

fn judged(r: &Reading, machine: Machine) -> Judged<'_> {
    let rule = rules::of(&r.limit);
    let need = rule.map(|rule| (rule.need)(machine)).filter(|&n| n > 0);
    let share = |n: Option<u64>| Some(n? as f64 / r.value.filter(|&v| v > 0)? as f64);
    let percent = share(r.used).map(|s| s * 100.0);
    let most = match r.area {
        // A group's highest memory counts file cache, which fills whatever it may.
        Area::Cgroups if r.unit == Unit::Bytes => share(r.used),
        _ => share(r.used.max(r.peak)),
    };
    // A pool of huge pages is there to be used up, and these are sizes, not limits on use.
    let fills = !matches!(r.area, Area::HugePages | Area::Hashes | Area::Kernel);
    let hit = r.hits.is_some_and(|n| n > 0);
    let near = fills && most.is_some_and(|s| s >= NEAR);
    let crowded = r.area == Area::Hashes && share(r.used).is_some_and(|s| s > 1.0);
    let small = r.value.zip(need).is_some_and(|(v, need)| {
        let tolerance = if rule.is_some_and(|r| r.boot.is_some()) { TOLERANCE } else { 1.0 };
        (v as f64) < need as f64 * tolerance
    });
    let status = match () {
        () if hit => Status::Hit,
        () if near => Status::Near,
        () if small => Status::Small,
        () => Status::Ok,
    };
    let used_up = || {
        let n = r.used.max(r.peak).unwrap_or(0).max(if hit { r.value.unwrap_or(0) } else { 0 });
        n.saturating_mul(2)
    };
    let most_ports = |n: u64| if r.limit == "net.ipv4.ip_local_port_range" { n.min(64_512) } else { n };
    let (fit, mut why) = match (status, r.enough) {
        (Status::Hit | Status::Near, Some(enough)) => {
            let why =
                "what ran and what was held back, by periods with something to run (cpu.stat)".to_string();
            (Some(enough.max(r.value.unwrap_or(0))), why)
        }
        (Status::Hit | Status::Near, None) => {
            let twice = most_ports(used_up());
            match need.filter(|&n| n >= twice) {
                Some(need) => (Some(need), rule.map_or(String::new(), |r| r.why.into())),
                None => {
                    (Some(twice), if hit { "twice as much" } else { "twice the most that was used" }.into())
                }
            }
        }
        _ => (need, rule.map_or(String::new(), |r| r.why.into())),
    };
    if hit && let Some(n) = r.hits {
        why = if n == 1 { format!("reached once; {why}") } else { format!("reached {n} times; {why}") };
    }
    if crowded && let (Some(used), Some(value)) = (r.used, r.value) {
        why = format!("{:.1} entries a bucket; {why}", used as f64 / value as f64);
    }
    Judged { reading: r, status, percent, fit, why }
}

/// The name of a scope.
pub(crate) fn scope(scope: &Scope) -> String {
    match scope {
        Scope::Machine => "machine".into(),
        Scope::Process { pid, comm } => format!("{comm}/{pid}"),
        Scope::User(uid) => format!("user {uid}"),
        Scope::Cgroup(path) => path.clone(),
        Scope::Node(node) => format!("node {node}"),
        Scope::Listener(place) => place.clone(),
    }
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "",
        Unit::Bytes => "B",
        Unit::KiB => "KiB",
        Unit::Pages => "pages",
        Unit::MilliCpus => "mCPU",
        Unit::Jiffies => "jiffies",
    }
}

/// Every limit as a table, worst first.
pub fn table(limits: &Limits) -> Table {
    let int = |name: &str, meaning: &str| Column::int(name, ColumnUnit::None, Kind::Gauge, meaning);
    let mut out = Table::builder(
        "limits",
        &[
            Column::text("status", "hit: reached; near: 80 % used; small: does not fit the machine; ok"),
            Column::text("limit", "sysctl, cgroup file, RLIMIT or table"),
            Column::text("area", "what it is about"),
            Column::text("scope", "machine, or the cgroup, process, user, node or listener it binds"),
            int("value", "the limit; null is unlimited or not known"),
            int("used", "used now"),
            int("peak", "the most that was used, where the kernel keeps that"),
            int("hits", "how often it was reached, where the kernel counts that"),
            Column::float("used_pct", ColumnUnit::Percent, Kind::Share, "used, per cent of the limit"),
            int("fit", "what would fit the CPUs, the memory and the use"),
            Column::text("unit", "unit of value, used, peak and fit"),
            Column::text("set", "the command that sets it"),
            Column::text("why", "the formula of fit and its source"),
            Column::text("note", "what else to know"),
        ],
    );
    for j in judge(limits) {
        let r = j.reading;
        let set = j.fit.filter(|_| j.status != Status::Ok).and_then(|fit| command::command(r, fit));
        out.row()
            .text(j.status.word())
            .text(&r.limit)
            .text(r.area.name())
            .text(scope(&r.scope))
            .int_opt(r.value)
            .int_opt(r.used)
            .int_opt(r.peak)
            .int_opt(r.hits)
            .float_opt(j.percent)
            .int_opt(j.fit)
            .text(unit(r.unit))
            .text_opt(set)
            .text(&j.why)
            .text_opt(r.note.as_deref());
    }
    out.finish()
}

/// Stalls for want of CPU, memory and I/O as a table.
pub fn pressure(limits: &Limits) -> Table {
    let share = |name: &str, meaning: &str| Column::float(name, ColumnUnit::Percent, Kind::Share, meaning);
    let mut out = Table::builder(
        "pressure",
        &[
            Column::text("scope", "machine or cgroup"),
            Column::text("resource", "cpu, memory, io, irq"),
            Column::text("kind", "some: a task stood still; full: all did"),
            share("avg10", "of the last 10 seconds"),
            share("avg60", "of the last 60 seconds"),
            share("avg300", "of the last 300 seconds"),
            Column::float(
                "total",
                ColumnUnit::Seconds,
                Kind::Time,
                "since boot or since the cgroup was made",
            ),
        ],
    );
    for p in &limits.pressure {
        out.row()
            .text(p.cgroup.as_deref().unwrap_or("machine"))
            .text(p.resource)
            .text(p.kind)
            .float(p.avg[0])
            .float(p.avg[1])
            .float(p.avg[2])
            .float(p.total_us as f64 / 1e6);
    }
    out.finish()
}

/// Timer, RCU, scheduler and memory settings as a table.
pub fn settings(limits: &Limits) -> Table {
    let mut out = Table::builder(
        "settings",
        &[
            Column::text("about", "what it is about"),
            Column::text("setting", "its name"),
            Column::text("value", "what it is set to"),
            Column::text("source", "where that was read"),
        ],
    );
    for s in &limits.settings {
        out.row().text(s.about).text(&s.name).text(&s.value).text(&s.source);
    }
    out.finish()
}

/// The origin of a limit's value on another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The kernel, when it boots.
    Boot,
    /// Nobody: it is the same number on every machine.
    Fixed,
    /// An administrator's setting of this machine (a file of /etc/sysctl.d, the command line), if it is
    /// copied.
    Set,
}

impl By {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            By::Boot => "boot",
            By::Fixed => "fixed",
            By::Set => "set here",
        }
    }
}

/// A limit on a planned machine.
#[derive(Clone, Debug)]
pub struct Planned<'a> {
    /// The limit as it is here.
    pub reading: &'a Reading,
    /// Its value there if nothing is changed: the kernel's at boot, or today's.
    pub there: u64,
    /// The origin of that value.
    pub by: By,
    /// The value that the planned machine needs.
    pub fit: u64,
    /// Whether it would be too small.
    pub small: bool,
    /// Why.
    pub why: &'static str,
}

/// The values that the limits of this machine would have on another: those with a rule, too small ones
/// first.
pub fn planned(limits: &Limits, planned: Size) -> Vec<Planned<'_>> {
    let here = Machine { size: limits.size, hz: limits.hz };
    let planned = Machine { size: planned, hz: limits.hz };
    let mut out: Vec<Planned<'_>> = limits
        .readings
        .iter()
        .filter_map(|r| {
            let (rule, value) = (rules::of(&r.limit)?, r.value?);
            // A value that is not the kernel's for this machine was set by an administrator, and is copied.
            let own = rule.boot.filter(|boot| {
                let ratio = value as f64 / (boot(here) as f64).max(1.0);
                (TOLERANCE..=1.0 / TOLERANCE).contains(&ratio)
            });
            let there = own.map_or(value, |boot| boot(planned));
            let by = match (own, rule.boot) {
                (Some(_), _) => By::Boot,
                (None, Some(_)) => By::Set,
                (None, None) => By::Fixed,
            };
            let fit = (rule.need)(planned);
            Some(Planned { reading: r, there, by, fit, small: there < fit, why: rule.why })
        })
        .collect();
    out.sort_by_key(|p| !p.small);
    out
}

/// The limits of a planned machine as a table.
pub fn plan_table(limits: &Limits, size: Size) -> Table {
    let int = |name: &str, meaning: &str| Column::int(name, ColumnUnit::None, Kind::Gauge, meaning);
    let mut out = Table::builder(
        "plan",
        &[
            Column::text("status", "small: would not fit the planned machine"),
            Column::text("limit", "its name"),
            int("here", "today's value"),
            int("there", "what it would be there if nothing is changed"),
            int("fit", "what the planned machine needs"),
            Column::text("unit", "unit of here, there and fit"),
            Column::text(
                "by",
                "who decides it there: boot (the kernel), fixed (one number), set here (a sysctl file)",
            ),
            Column::text("set", "the command that sets it"),
            Column::text("why", "the formula of fit and its source"),
        ],
    );
    for p in planned(limits, size) {
        out.row()
            .text(if p.small { "small" } else { "ok" })
            .text(&p.reading.limit)
            .int_opt(p.reading.value)
            .int(p.there)
            .int(p.fit)
            .text(unit(p.reading.unit))
            .text(p.by.word())
            .text_opt(command::command(p.reading, p.fit).filter(|_| p.small))
            .text(p.why);
    }
    out.finish()
}

/// Whether a knob can be turned on the running machine by a line of a sysctl file.
fn is_sysctl(knob: &Knob) -> bool {
    matches!(knob, Knob::Sysctl(_) | Knob::Field { .. })
}

#[cfg(test)]
mod tests;
