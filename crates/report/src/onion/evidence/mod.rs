//! What a layer consists of: top locks, callers, calls, processes.

mod limits;
mod locks;
mod memory;
mod processor;
mod threads;

use ncpu_record::Recording;
use ncpu_table::{Select, SortKey, Table};

use super::{Layer, sum};
pub(super) use limits::{Throttled, limits_met, throttled};
pub(super) use locks::top_lock;
use locks::{kernel_locks, user_locks};
use memory::{memory_grown, pressure, reclaim};
use processor::{hardware, shootdowns};
pub(super) use threads::top_sleeper;
use threads::{busiest, sleepers, sleeping};

pub(super) struct Context<'a> {
    pub recording: &'a Recording,
    pub elapsed: f64,
    pub cpus: u64,
    pub capacity: f64,
}

impl Context<'_> {
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.recording.tables.get(name)
    }

    /// The rows of a table put together by `keys`, largest `by` first.
    pub fn ranked(&self, table: &str, keys: &[&str], by: &str) -> Option<Table> {
        let grouped = self.table(table)?.group_by(keys).ok()?;
        let sort = Some(SortKey { column: by.into(), ascending: false });
        Select { sort, ..Select::default() }.apply(grouped).ok()
    }

    /// Where the memory of the process lies that pays most for it, and the remedy.
    pub fn placed(&self) -> Option<(String, String)> {
        self.table("numa_processes")?;
        crate::numa::Numa::read(self.recording.tables.values()).worst()
    }
}

/// Which layer a sample's class belongs to.
fn layer_of(class: &str) -> Layer {
    match class {
        "user" => Layer::User,
        "user spin" => Layer::UserLock,
        "lock spin" => Layer::KernelSpin,
        "tlb" | "tlb wait" => Layer::Tlb,
        "zeroing" | "fault" => Layer::Faults,
        "switch" => Layer::Switches,
        "softirq" | "interrupt" => Layer::Interrupts,
        "syscall" | "exec" | "exit" => Layer::Calls,
        _ => Layer::OtherKernel,
    }
}

/// The program's samples outside traced lock waits, by layer.
pub(super) fn split(samples: Option<&Table>) -> Vec<(Layer, u64)> {
    let mut out: Vec<(Layer, u64)> = Vec::new();
    let Some(samples) = samples else { return out };
    for row in 0..samples.num_rows() {
        let (Some("target"), Some(class)) = (samples.text(row, "at"), samples.text(row, "class")) else {
            continue;
        };
        let n = samples.int(row, "samples").unwrap_or(0);
        let layer = layer_of(class);
        match out.iter_mut().find(|(l, _)| *l == layer) {
            Some((_, sum)) => *sum += n,
            None => out.push((layer, n)),
        }
    }
    out
}

/// `name 62 %, name 20 %` of samples that `keep` holds for, by what `name` makes of the row.
fn shares(
    context: &Context<'_>,
    keep: impl Fn(&str, &str) -> bool,
    column: &str,
    most: usize,
) -> Vec<(String, f64)> {
    let Some(samples) = context.table("samples") else { return Vec::new() };
    let mut sums: Vec<(String, u64)> = Vec::new();
    let mut total = 0;
    for row in 0..samples.num_rows() {
        let (Some(at), Some(class)) = (samples.text(row, "at"), samples.text(row, "class")) else { continue };
        if !keep(at, class) {
            continue;
        }
        let n = samples.int(row, "samples").unwrap_or(0);
        total += n;
        let name = match (column, class) {
            ("detail", "exec") => "execve",
            ("detail", "exit") => "exit",
            _ => samples.text(row, column).unwrap_or("?"),
        };
        match sums.iter_mut().find(|(k, _)| k == name) {
            Some((_, sum)) => *sum += n,
            None => sums.push((name.to_string(), n)),
        }
    }
    sums.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    sums.truncate(most);
    sums.into_iter().map(|(k, n)| (k, n as f64 / total.max(1) as f64)).collect()
}

fn listed(parts: &[(String, f64)]) -> String {
    parts.iter().map(|(name, p)| format!("{name} {:.0} %", p * 100.0)).collect::<Vec<_>>().join(", ")
}

/// A sentence of shares, unless there are none.
fn told(prefix: &str, parts: &[(String, f64)]) -> Vec<String> {
    if parts.is_empty() { Vec::new() } else { vec![format!("{prefix}{}", listed(parts))] }
}

fn counter(context: &Context<'_>, event: &str) -> f64 {
    let Some(t) = context.table("counters") else { return 0.0 };
    (0..t.num_rows())
        .filter(|&r| t.text(r, "event") == Some(event))
        .filter_map(|r| t.number(r, "count"))
        .sum()
}

/// The program's samples outside traced lock waits, of the classes kept.
fn program_samples(context: &Context<'_>, keep: impl Fn(&str) -> bool) -> u64 {
    let Some(t) = context.table("samples") else { return 0 };
    (0..t.num_rows())
        .filter(|&r| t.text(r, "at") == Some("target") && t.text(r, "class").is_some_and(&keep))
        .filter_map(|r| t.int(r, "samples"))
        .sum()
}

pub(super) fn of(layer: Layer, context: &Context<'_>) -> Vec<String> {
    let per_second = |n: f64| format!("{:.0}/s", n / context.elapsed.max(f64::MIN_POSITIVE));
    match layer {
        Layer::KernelSpin => {
            let mut out = kernel_locks(context, "spin");
            let untraced = split(context.table("samples"))
                .iter()
                .find(|(l, _)| *l == Layer::KernelSpin)
                .map_or(0, |l| l.1);
            let traced = samples_at(context, "spin");
            if traced + untraced > 0 {
                let from = shares(context, |at, c| at == "target" && c == "lock spin", "detail", 2);
                let from = if from.is_empty() { String::new() } else { format!(", from {}", listed(&from)) };
                out.push(format!(
                    "second estimate: {traced} samples inside traced waits, {untraced} in slow paths the tracepoints do not cover{from}"
                ));
            }
            out
        }
        Layer::KernelBlock => kernel_locks(context, "block"),
        Layer::UserLock => user_locks(context),
        Layer::Faults => {
            let mut out = told(
                "",
                &shares(context, |at, c| at == "target" && matches!(c, "fault" | "zeroing"), "process", 3),
            );
            let zero =
                shares(context, |at, c| at == "target" && matches!(c, "fault" | "zeroing"), "class", 2);
            out.extend(
                zero.iter()
                    .find(|(c, _)| c == "zeroing")
                    .map(|(_, p)| format!("{:.0} % of it zeroing pages", p * 100.0)),
            );
            out.extend(memory_grown(context));
            out.extend(reclaim(context));
            out.extend(pressure(context, "memory"));
            out
        }
        Layer::Tlb => shootdowns(context),
        Layer::Calls => told(
            "",
            &shares(context, |at, c| at == "target" && matches!(c, "syscall" | "exec" | "exit"), "detail", 4),
        ),
        Layer::Switches => {
            let mut out = vec![per_second(counter(context, "context switches"))];
            out.extend(sleepers(context));
            out
        }
        Layer::Interrupts => vec![format!(
            "{} interrupts, {} softirqs",
            per_second(counter(context, "interrupts")),
            per_second(counter(context, "softirqs"))
        )],
        Layer::RunQueue => {
            let waiting = counter(context, "run-queue waiting, us") / 1e6;
            let mut out: Vec<String> = throttled(context).iter().take(2).map(Throttled::told).collect();
            out.push(format!(
                "{:.2} threads queued on average",
                waiting / context.elapsed.max(f64::MIN_POSITIVE)
            ));
            out.extend(pressure(context, "cpu"));
            out
        }
        Layer::Serial => {
            let mut out: Vec<String> = busiest(context).into_iter().collect();
            out.extend(sleeping(context));
            out.extend(sleepers(context));
            out
        }
        Layer::Asleep => {
            let mut out = sleeping(context);
            out.extend(sleepers(context));
            out
        }
        Layer::Io => {
            let mut out = sleeping(context);
            out.extend(pressure(context, "io"));
            out.extend(reclaim(context));
            out
        }
        Layer::User => {
            let mut out = told("", &shares(context, |at, c| at == "target" && c == "user", "process", 3));
            let functions: Vec<_> = shares(context, |at, c| at == "target" && c == "user", "detail", 4)
                .into_iter()
                .filter(|(f, _)| !f.starts_with('['))
                .take(3)
                .collect();
            out.extend(told("in ", &functions));
            out.extend(context.placed().map(|p| p.0));
            out.extend(hardware(context));
            out
        }
        Layer::OtherKernel => told(
            "",
            &shares(context, |at, c| at == "target" && layer_of(c) == Layer::OtherKernel, "detail", 3),
        ),
        Layer::Others => told("", &shares(context, |at, _| at == "other", "process", 3)),
        Layer::Own => vec![format!(
            "{:.2} % of capacity",
            100.0 * own(context) / context.capacity.max(f64::MIN_POSITIVE)
        )],
        Layer::Steal | Layer::Unseen => Vec::new(),
    }
}

fn own(context: &Context<'_>) -> f64 {
    context.table("cpu_time").map_or(0.0, |t| sum(t, "ncpu"))
}

fn samples_at(context: &Context<'_>, place: &str) -> u64 {
    let Some(t) = context.table("samples") else { return 0 };
    (0..t.num_rows()).filter(|&r| t.text(r, "at") == Some(place)).filter_map(|r| t.int(r, "samples")).sum()
}

/// The largest detail of the program's samples of a class.
pub(super) fn top_detail(context: &Context<'_>, classes: &[&str]) -> Option<String> {
    shares(context, |at, c| at == "target" && classes.contains(&c), "detail", 1).pop().map(|(name, _)| name)
}
