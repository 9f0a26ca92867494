//! Cross-calls by sender, caller, process, system call, cause or CPU, with what they cost at both ends.

mod lines;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use ncpu_record::Recording;
use ncpu_table::{Column, Kind, Table, Unit};

pub use lines::{footer, lines};

/// The unit that a row of the table of cross-calls is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A cause, a process, its system call and the kernel function that asked.
    #[default]
    Sender,
    /// A cause, the kernel function that asked and the program's function that entered the kernel.
    Caller,
    /// A cause and a process.
    Process,
    /// A cause and a system call.
    Syscall,
    /// A cause and the function run.
    Cause,
    /// A CPU and a cause.
    Cpu,
}

/// Sums of one row.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    calls: f64,
    targets: f64,
    ipis: f64,
    packages: f64,
    /// Targets in a known package.
    placed: f64,
    waited: f64,
    wait: f64,
    max: f64,
    /// Microseconds.
    longest: f64,
    received: f64,
}

impl Sums {
    fn read(t: &Table, row: usize, calls: &str) -> Sums {
        let of = |c: &str| t.number(row, c).unwrap_or(0.0);
        Sums {
            calls: of(calls),
            targets: of("targets"),
            ipis: of("IPIs"),
            packages: of("packages"),
            placed: t.number(row, "packages").map_or(0.0, |_| of("targets")),
            waited: of("waited"),
            wait: of("wait"),
            max: of("max"),
            longest: of("longest"),
            received: 0.0,
        }
    }

    fn add(&mut self, other: &Sums) {
        self.calls += other.calls;
        self.targets += other.targets;
        self.ipis += other.ipis;
        self.packages += other.packages;
        self.placed += other.placed;
        self.waited += other.waited;
        self.wait += other.wait;
        self.max = self.max.max(other.max);
        self.longest = self.longest.max(other.longest);
        self.received += other.received;
    }

    /// This row's exact totals, of which `part` of the walked calls `all` came from one caller.
    fn divided(&self, part: &Sums, all: &Sums) -> Sums {
        let calls = part.calls / all.calls.max(1.0);
        // Where the walked calls spent no time, their counts decide.
        let share = |exact: f64, part: f64, all: f64| exact * if all > 0.0 { part / all } else { calls };
        let targets = share(self.targets, part.targets, all.targets);
        Sums {
            calls: self.calls * calls,
            targets,
            ipis: share(self.ipis, part.ipis, all.ipis),
            packages: share(self.packages, part.packages, all.packages),
            placed: share(self.placed, part.placed, all.placed),
            waited: share(self.waited, part.waited, all.waited),
            wait: share(self.wait, part.wait, all.wait),
            max: part.max,
            longest: part.longest,
            received: share(self.received, part.targets, all.targets),
        }
    }
}

/// A sender: cause, function, process, pid, system call.
type Key = [String; 5];
const KEYS: [&str; 5] = ["cause", "function", "process", "pid", "call"];

/// Rows of a table by sender.
fn by_sender(t: &Table, calls: &str) -> Vec<(Key, usize, Sums)> {
    (0..t.num_rows())
        .map(|r| {
            let text = |c: &str| match c {
                "pid" => t.int(r, c).map_or_else(String::new, |p| p.to_string()),
                _ => t.text(r, c).unwrap_or("").to_string(),
            };
            (KEYS.map(text), r, Sums::read(t, r, calls))
        })
        .collect()
}

/// Exact totals by sender, with the part of the receivers' time that is theirs: a target costs what the
/// mean target of its cause and function does (a call, where targets are not told).
fn exact(recording: &Recording) -> Vec<(Key, Sums)> {
    let mut sums: Vec<(Key, Sums)> = Vec::new();
    let mut at: HashMap<Key, usize> = HashMap::new();
    if let Some(t) = recording.tables.get("crosscalls") {
        for (key, _, s) in by_sender(t, "calls") {
            let i = *at.entry(key.clone()).or_insert_with(|| {
                sums.push((key, Sums::default()));
                sums.len() - 1
            });
            sums[i].1.add(&s);
        }
    }
    let grouped =
        recording.tables.get("crosscalls_received").and_then(|t| t.group_by(&["cause", "function"]).ok());
    let Some(received) = grouped else { return sums };
    for r in 0..received.num_rows() {
        let of = |c: &str| received.number(r, c).unwrap_or(0.0);
        let (cause, function) = (received.text(r, "cause"), received.text(r, "function").unwrap_or(""));
        let (asked, sent, seconds) = (of("asked"), of("sent"), of("seconds"));
        // Some kernels do not report the function at the receiver; then time is by cause.
        let same = |k: &Key| Some(k[0].as_str()) == cause && (k[1] == function || function.is_empty());
        for (_, s) in sums.iter_mut().filter(|(k, _)| same(k)) {
            s.received += match (asked > 0.0, sent > 0.0) {
                (true, _) => seconds * s.targets / asked,
                (false, true) => seconds * s.calls / sent,
                (false, false) => 0.0,
            };
        }
    }
    sums
}

/// A sender's totals divided among its callers as the walked stacks tell; with caller, user and stack.
fn divided(recording: &Recording, depth: usize) -> Vec<(Key, [String; 3], Sums)> {
    type Callers = Vec<([String; 3], Sums)>;
    let mut walked: HashMap<Key, Callers> = HashMap::new();
    if let Some(t) = recording.tables.get("crosscall_callers") {
        for (key, r, s) in by_sender(t, "walked") {
            let text = |c: &str| t.text(r, c).unwrap_or("").to_string();
            let stack: Vec<String> = text("stack").split(';').take(depth).map(str::to_string).collect();
            let place = [text("caller"), text("user"), stack.join(";")];
            let callers = walked.entry(key).or_default();
            match callers.iter_mut().find(|(p, _)| *p == place) {
                Some((_, have)) => have.add(&s),
                None => callers.push((place, s)),
            }
        }
    }
    let mut out = Vec::new();
    for (key, total) in exact(recording) {
        let Some(callers) = walked.remove(&key) else {
            out.push((key, ["[not walked]".into(), String::new(), String::new()], total));
            continue;
        };
        let mut all = Sums::default();
        callers.iter().for_each(|(_, s)| all.add(s));
        out.extend(callers.into_iter().map(|(place, s)| (key.clone(), place, total.divided(&s, &all))));
    }
    out
}

fn names(by: By) -> &'static [(&'static str, &'static str)] {
    const CAUSE: (&str, &str) = ("cause", "TLB shootdown, reschedule, function call or irq work");
    const FUNCTION: (&str, &str) = ("function", "what the targets run, for calls and irq work");
    const PROCESS: (&str, &str) = ("process", "the sender");
    const CALL: (&str, &str) = ("call", "the system call the sender was in, or what else it was at");
    const CALLER: (&str, &str) = ("caller", "the kernel function that asked for it");
    const USER: (&str, &str) = ("user", "the program's function that entered the kernel");
    match by {
        By::Sender => &[CAUSE, FUNCTION, PROCESS, CALL, CALLER],
        By::Caller => &[CAUSE, CALLER, USER],
        By::Process => &[CAUSE, PROCESS],
        By::Syscall => &[CAUSE, CALL],
        By::Cause => &[CAUSE, FUNCTION],
        By::Cpu => &[CAUSE],
    }
}

fn number(recording: &Recording, column: &str) -> f64 {
    recording.tables.get("crosscall_summary").and_then(|s| s.number(0, column)).unwrap_or(0.0)
}

/// Whether senders were observed, and not only what CPUs received.
pub fn senders_known(recording: &Recording) -> bool {
    let summary = recording.tables.get("crosscall_summary");
    summary.is_none_or(|s| s.num_rows() == 0 || s.number(0, "hz").is_some())
}

/// CPUs × elapsed, CPU-seconds.
pub fn capacity(recording: &Recording) -> f64 {
    (number(recording, "elapsed") * number(recording, "cpus")).max(f64::MIN_POSITIVE)
}

/// Factor by which there are more messages than with one a package; `None` where nothing was sent.
pub fn saved(targets: f64, packages: f64) -> Option<f64> {
    (targets > 0.0 && packages > 0.0).then(|| targets / packages)
}

/// The cross-calls of a recording, those that cost most capacity first.
///
/// Exact: calls, targets, IPIs, packages and the wait, by process and system call. Callers are those of the
/// calls whose stack was walked, and each sender's totals are divided among them in that proportion. The
/// receivers' time is exact by cause and function, and divided among senders by the targets they asked.
///
/// `depth` > 0 adds a column `stack` with this number of frames, innermost first, `;` between them.
pub fn table(recording: &Recording, by: By, depth: usize) -> Table {
    if by == By::Cpu {
        return by_cpu(recording);
    }
    let mut columns: Vec<Column> = names(by).iter().map(|(n, m)| Column::text(n, m)).collect();
    if by == By::Process {
        columns.push(Column::id("pid", "its process ID"));
    }
    let stacks = depth > 0 && matches!(by, By::Sender | By::Caller);
    columns.extend([
        Column::float(
            "CPU-util",
            Unit::Share,
            Kind::Share,
            "share of capacity at both ends: waiting and answering",
        ),
        Column::count("calls", "calls sent"),
        Column::count("IPIs", "interrupts sent; none to a CPU that polls or has one pending"),
        Column::float("fan-out", Unit::None, Kind::Mean, "targets of a call, mean"),
        Column::int("max", Unit::None, Kind::Peak, "most targets of a call"),
        Column::float("saved", Unit::None, Kind::Mean, "times fewer messages with one a package"),
        Column::float("wait", Unit::CpuSeconds, Kind::Time, "senders' time waiting for their targets"),
        Column::float("wait_us", Unit::Microseconds, Kind::Mean, "mean of it, of a call that is waited for"),
        Column::float("longest", Unit::Microseconds, Kind::Peak, "longest wait, of those timed"),
        Column::float("answer", Unit::CpuSeconds, Kind::Time, "receivers' time"),
    ]);
    if stacks {
        columns.push(Column::text("stack", "frames, innermost first, the kernel's marked _[k]"));
    }
    let rows: Vec<(Vec<String>, String, Sums)> = match by {
        By::Sender | By::Caller => divided(recording, if stacks { depth } else { 0 })
            .into_iter()
            .map(|([cause, function, process, _, call], [caller, user, stack], s)| {
                let key = if by == By::Sender {
                    vec![cause, function, process, call, caller]
                } else {
                    vec![cause, caller, user]
                };
                (key, stack, s)
            })
            .collect(),
        _ => exact(recording)
            .into_iter()
            .map(|([cause, function, process, pid, call], s)| {
                let key = match by {
                    By::Process => vec![cause, process, pid],
                    By::Syscall => vec![cause, call],
                    _ => vec![cause, function],
                };
                (key, String::new(), s)
            })
            .collect(),
    };
    let mut sums: Vec<(Vec<String>, String, Sums)> = Vec::new();
    let mut at: HashMap<(Vec<String>, String), usize> = HashMap::new();
    for (key, stack, s) in rows {
        let i = *at.entry((key.clone(), stack.clone())).or_insert_with(|| {
            sums.push((key, stack, Sums::default()));
            sums.len() - 1
        });
        sums[i].2.add(&s);
    }
    let cost = |s: &Sums| s.wait + s.received;
    sums.sort_by(|a, b| {
        cost(&b.2).total_cmp(&cost(&a.2)).then(b.2.calls.total_cmp(&a.2.calls)).then(a.0.cmp(&b.0))
    });

    let targets_told = number(recording, "targets_told") > 0.0;
    let capacity = capacity(recording);
    let mut out = Table::builder("crosscalls", &columns);
    for (key, stack, s) in sums {
        let mut row = out.row();
        for (i, part) in key.iter().enumerate() {
            row = match (by, i) {
                (By::Process, 2) => row.int_opt(part.parse().ok()),
                _ => row.text_opt((!part.is_empty()).then_some(part)),
            };
        }
        let told = targets_told.then_some(());
        row = row
            .float(cost(&s) / capacity)
            .int(s.calls.round() as u64)
            .int_opt(told.map(|()| s.ipis.round() as u64))
            .float_opt(told.map(|()| s.targets / s.calls.max(1.0)))
            .int_opt(told.map(|()| s.max as u64))
            .float_opt(saved(s.placed, s.packages))
            .float_opt((s.waited > 0.0).then_some(s.wait))
            .float_opt((s.waited >= 1.0).then(|| s.wait * 1e6 / s.waited))
            .float_opt((s.longest > 0.0).then_some(s.longest))
            .float(s.received);
        if stacks {
            row.text(stack);
        }
    }
    out.finish()
}

fn by_cpu(recording: &Recording) -> Table {
    let mut out = Table::builder(
        "crosscalls",
        &[
            Column::id("CPU", "the CPU"),
            Column::text("cause", "TLB shootdown, reschedule, function call or irq work"),
            Column::count("calls", "calls the program sent from it"),
            Column::count("IPIs", "interrupts sent for those"),
            Column::float("fan-out", Unit::None, Kind::Mean, "targets of a call, mean"),
            Column::float("wait", Unit::CpuSeconds, Kind::Time, "time waited for the targets"),
            Column::count("answered", "calls it answered, of any sender"),
            Column::float("answer", Unit::CpuSeconds, Kind::Time, "time it spent on that"),
            Column::float("answer_us", Unit::Microseconds, Kind::Mean, "mean of it"),
        ],
    );
    let grouped = recording.tables.get("crosscall_cpus").and_then(|t| t.group_by(&["CPU", "cause"]).ok());
    let Some(t) = grouped else { return out.finish() };
    let mut rows: Vec<usize> = (0..t.num_rows()).collect();
    rows.sort_by_key(|&r| (t.int(r, "CPU"), t.text(r, "cause").map(str::to_string)));
    for r in rows {
        let of = |c: &str| t.number(r, c);
        let calls = of("calls").unwrap_or(0.0);
        let answered = of("received").unwrap_or(0.0);
        let counted = senders_known(recording);
        out.row()
            .int_opt(t.int(r, "CPU"))
            .text_opt(t.text(r, "cause"))
            .int_opt(counted.then_some(calls as u64))
            .int_opt(t.int(r, "IPIs").filter(|_| counted))
            .float_opt(of("targets").filter(|_| calls > 0.0).map(|n| n / calls))
            .float_opt(of("wait").filter(|_| counted))
            .int(answered as u64)
            .float_opt(of("seconds").filter(|_| counted))
            .float_opt((answered > 0.0 && counted).then(|| of("seconds").unwrap_or(0.0) * 1e6 / answered));
    }
    out.finish()
}
