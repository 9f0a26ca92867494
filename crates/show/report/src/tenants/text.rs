//! Tenants for the terminal: losses by victim and culprit, and the capacity of each.

use std::collections::BTreeMap;
use std::fmt::Write;

use ncpu_machine::tenant::KERNEL;
use ncpu_schema::{Grounds, Layer, Loss};
use ncpu_table::safe;

use super::onions::OWN;
use super::{Lost, Part, Tenancy, advice};
use crate::wrap::middle;
use crate::wrap::wrap;

/// The widest that it is.
const WIDEST: usize = 80;
/// Tenants that have lines of their own, and columns.
const ROWS: usize = 12;
const COLUMNS: usize = 4;
/// Shares of the capacity below which a loss is not spoken of, and a line left out.
const WORTH: f64 = 0.01;
const SHOWN: f64 = 0.001;
/// Width of a name, and of a figure.
const NAME: usize = 24;
const CELL: usize = 11;

/// Columns that are no tenant.
const ITSELF: &str = "itself";
const NOBODY: &str = "unknown";
const HYPERVISOR: &str = "hypervisor";

/// How a loss reads in a sentence: `2.4 s behind batch on run queues`.
fn phrase(lost: &Lost, culprit: &str) -> String {
    let seconds = lost.threads;
    match lost.cause {
        Loss::RunQueue => format!("{seconds:.1} s behind {culprit} on run queues"),
        Loss::WakeUp => format!("{seconds:.1} s until idle CPUs woke"),
        Loss::Quota if lost.to_another() => {
            format!("{seconds:.1} s held back by a CPU limit that {culprit} uses up")
        }
        Loss::Quota => format!("{seconds:.1} s held back by its own CPU limit"),
        Loss::KernelLock | Loss::Spin => {
            let lock = lost.lock.as_deref().unwrap_or("a kernel lock");
            format!("{seconds:.1} s for {lock}, held by {culprit}")
        }
        Loss::Interrupts if lost.to_another() && culprit != KERNEL => {
            format!("{seconds:.1} s to interrupts by which {culprit} called its CPUs")
        }
        Loss::Interrupts => format!("{seconds:.1} s to interrupts on its CPUs"),
        Loss::Network => format!("{seconds:.1} s to softirqs of the network for {culprit}"),
        Loss::Device => {
            let device = lost.lock.as_deref().unwrap_or("a device");
            format!("{seconds:.1} s for {device}, which served {culprit}")
        }
        Loss::Reclaim => format!("{seconds:.1} s freeing memory that {culprit} took"),
        Loss::MemoryLimit => format!("{seconds:.1} s freeing memory below a limit of its control group"),
        Loss::Shootdown => format!("{seconds:.1} s to its own TLB shootdowns"),
        Loss::Steal => format!("{seconds:.1} s to the hypervisor"),
    }
}

/// The column that a loss stands in.
pub(crate) fn column(lost: &Lost) -> &str {
    match (lost.cause, lost.culprit.as_deref()) {
        (Loss::Steal, _) => HYPERVISOR,
        (_, None) => NOBODY,
        (_, Some(culprit)) if culprit == lost.victim => ITSELF,
        (_, Some(culprit)) => culprit,
    }
}

/// The largest loss that a setting helps against, on whatever grounds: to another tenant, or by an own limit.
fn largest(tenancy: &Tenancy) -> Option<Lost> {
    let of = |lost: &&Lost| {
        (lost.to_another() && lost.cause != Loss::WakeUp)
            || [Loss::Quota, Loss::MemoryLimit].contains(&lost.cause)
    };
    let mut sums: Vec<Lost> = Vec::new();
    for lost in tenancy.losses.iter().filter(of).filter(|lost| lost.victim != KERNEL && lost.victim != OWN) {
        let same = |sum: &&mut Lost| {
            (&sum.victim, &sum.culprit, sum.cause, &sum.lock)
                == (&lost.victim, &lost.culprit, lost.cause, &lost.lock)
        };
        match sums.iter_mut().find(same) {
            Some(sum) => sum.threads += lost.threads,
            None => sums.push(lost.clone()),
        }
    }
    let most = sums.into_iter().max_by(|a, b| a.threads.total_cmp(&b.threads))?;
    (most.threads >= WORTH * tenancy.capacity).then_some(most)
}

/// The largest problem, or that there is none, in a sentence.
pub(crate) fn sentence(tenancy: &Tenancy) -> String {
    let Some(first) = largest(tenancy) else {
        return "No tenant lost more than 1 % of the capacity to another.".into();
    };
    let all: f64 = tenancy.losses.iter().filter(|lost| lost.victim == first.victim).map(|l| l.threads).sum();
    let culprit = first.culprit.as_deref().unwrap_or(NOBODY);
    format!("{} lost {all:.1} thread-seconds: {}.", first.victim, phrase(&first, culprit))
}

/// Renders the ledger and the parts of the capacity, at most `width` columns wide.
pub fn render(tenancy: &Tenancy, width: usize) -> String {
    let width = width.clamp(60, WIDEST);
    let tenants = tenancy.parts.iter().filter(|part| part.name.is_some()).count();
    let what = match tenancy.by {
        ncpu_machine::tenant::By::Tenant => "tenants".into(),
        by => format!("rows by {by}"),
    };
    let head = format!(
        "{:.1} s · {} CPUs · {:.1} CPU-s of capacity · {tenants} {what}",
        tenancy.elapsed, tenancy.cpus, tenancy.capacity
    );
    let mut out = wrap(&head, width, "", "  ");
    out += &wrap(&safe::line(&sentence(tenancy)), width, "", "  ");
    ledger(&mut out, tenancy, width);
    capacity(&mut out, tenancy, width);
    bandwidth(&mut out, tenancy);
    if let Some(help) = largest(tenancy).and_then(|lost| advice::of(&lost, tenancy)) {
        out.push('\n');
        out += &wrap(&safe::line(&help), width, "do   ", "     ");
    }
    let more = "more: --by unit, pod, container, job, user, program; --table ledger, --table tenants";
    out += &wrap(more, width, "", "      ");
    out
}

/// Names of columns: the culprits of most, then the others in one.
fn columns(tenancy: &Tenancy) -> Vec<String> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for lost in &tenancy.losses {
        *sums.entry(column(lost)).or_default() += lost.threads;
    }
    let mut sums: Vec<(&str, f64)> =
        sums.into_iter().filter(|(_, s)| *s >= SHOWN * tenancy.capacity).collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums.into_iter().take(COLUMNS).map(|(name, _)| name.to_string()).collect()
}

fn ledger(out: &mut String, tenancy: &Tenancy, width: usize) {
    let columns = columns(tenancy);
    if columns.is_empty() {
        return;
    }
    let cells = (width - NAME) / CELL;
    let columns = &columns[..columns.len().min(cells.saturating_sub(2))];
    let mut lines: Vec<(&str, f64)> = Vec::new();
    for lost in &tenancy.losses {
        match lines.iter_mut().find(|(name, _)| *name == lost.victim) {
            Some((_, sum)) => *sum += lost.threads,
            None => lines.push((&lost.victim, lost.threads)),
        }
    }
    lines.sort_by(|a, b| b.1.total_cmp(&a.1));
    out.push('\n');
    let _ = write!(out, "{:<NAME$}", "loses \\ because of");
    let short = |name: &str| middle(&safe::line(name), CELL - 1);
    for name in columns {
        let _ = write!(out, "{:>CELL$}", short(name));
    }
    let _ = writeln!(out, "{:>CELL$}{:>CELL$}", "others", "thread-s");
    let figure = |seconds: f64| match seconds {
        s if s.abs() < 0.005 => String::new(),
        s => format!("{s:.2}"),
    };
    let mut row = |head: &str, of: &dyn Fn(&Lost) -> bool, note: &str| {
        let matching: Vec<&Lost> = tenancy.losses.iter().filter(|lost| of(lost)).collect();
        let sum: f64 = matching.iter().map(|lost| lost.threads).sum();
        let _ = write!(out, "{:<NAME$}", middle(&safe::line(head), NAME - 1));
        let mut rest = sum;
        for name in columns {
            let cell: f64 =
                matching.iter().filter(|lost| column(lost) == name).map(|lost| lost.threads).sum();
            rest -= cell;
            let _ = write!(out, "{:>CELL$}", figure(cell));
        }
        let _ = writeln!(out, "{:>CELL$}{:>CELL$}{note}", figure(rest), figure(sum));
    };
    for (victim, seconds) in lines.iter().take(ROWS).filter(|(_, s)| *s >= SHOWN * tenancy.capacity) {
        row(victim, &|lost| lost.victim == *victim, "");
        let mut causes: BTreeMap<(Loss, Option<&str>), f64> = BTreeMap::new();
        for lost in tenancy.losses.iter().filter(|lost| lost.victim == *victim) {
            *causes.entry((lost.cause, lost.lock.as_deref())).or_default() += lost.threads;
        }
        let mut causes: Vec<_> =
            causes.into_iter().filter(|(_, s)| *s >= 0.02 * seconds && *s >= 0.005).collect();
        causes.sort_by(|a, b| b.1.total_cmp(&a.1));
        for ((cause, lock), _) in causes.iter().take(4) {
            let head = match lock {
                Some(lock) => format!("    {lock}"),
                None => format!("    {}", cause.name()),
            };
            let of =
                |lost: &Lost| lost.victim == *victim && lost.cause == *cause && lost.lock.as_deref() == *lock;
            let guessed = tenancy.losses.iter().any(|lost| of(lost) && lost.grounds == Grounds::Shares);
            row(&head, &of, if guessed && *cause == Loss::Spin { " ~" } else { "" });
        }
    }
}

/// Layers that have a column of their own, each with its heading: parts of a tenant's time.
const SHARES: [(&str, &[Layer]); 4] = [
    ("user", &[Layer::User]),
    (
        "kernel",
        &[
            Layer::Calls,
            Layer::Faults,
            Layer::Tlb,
            Layer::Switches,
            Layer::OtherKernel,
            Layer::Kernel,
            Layer::Interrupts,
        ],
    ),
    (
        "locks",
        &[Layer::KernelSpin, Layer::UserLock, Layer::KernelBlock, Layer::LockOrSerial, Layer::KernelLockOrIo],
    ),
    ("idle", &[Layer::Serial, Layer::RunQueue, Layer::WakeUp, Layer::Io, Layer::Idle]),
];

/// Memory traffic of groups.
fn bandwidth(out: &mut String, tenancy: &Tenancy) {
    if tenancy.bandwidth.is_empty() {
        return;
    }
    let [rate, local, cache] = ["GB/s", "own node", "cache MiB"];
    let head = format!("{:<NAME$}{rate:>CELL$}{local:>CELL$}{cache:>CELL$}  control group", "memory traffic");
    let _ = writeln!(out, "\n{head}");
    for one in tenancy.bandwidth.iter().take(ROWS) {
        let rate = one.bytes as f64 / 1e9 / tenancy.elapsed.max(f64::MIN_POSITIVE);
        let local = one.local.map(|n| format!("{:.0} %", 100.0 * n as f64 / one.bytes as f64));
        let cache = one.cache.map(|n| format!("{:.1}", n as f64 / f64::from(1 << 20)));
        let _ = writeln!(
            out,
            "{:<NAME$}{rate:>CELL$.2}{:>CELL$}{:>CELL$}  {}",
            middle(&safe::line(&one.group), NAME - 1),
            local.unwrap_or_default(),
            cache.unwrap_or_default(),
            middle(&safe::line(one.cgroup.as_deref().unwrap_or_default()), NAME - 1),
        );
    }
}

fn capacity(out: &mut String, tenancy: &Tenancy, width: usize) {
    let cell = 9;
    out.push('\n');
    let _ = write!(out, "{:<NAME$}{:>cell$}{:>8}", "capacity", "CPU-s", "share");
    for (name, _) in SHARES {
        let _ = write!(out, "{name:>cell$}");
    }
    out.push('\n');
    let mut line = |name: &str, parts: &[&Part]| {
        let sum: f64 = parts.iter().map(|part| part.seconds()).sum();
        let share = 100.0 * sum / tenancy.capacity.max(f64::MIN_POSITIVE);
        let _ = write!(out, "{:<NAME$}{sum:>cell$.2}{:>6.1} %", middle(&safe::line(name), NAME - 1), share);
        for (_, layers) in SHARES {
            let of: f64 = parts.iter().map(|p| layers.iter().map(|l| p.of(*l)).sum::<f64>()).sum();
            let text = if of.abs() < 0.005 { String::new() } else { format!("{of:.2}") };
            let _ = write!(out, "{text:>cell$}");
        }
        out.push('\n');
    };
    let named: Vec<&Part> = tenancy.parts.iter().filter(|part| part.name.is_some()).collect();
    let asked = |part: &Part| {
        let name = part.name.as_deref().unwrap_or_default();
        tenancy.asked.iter().any(|word| name.contains(word.as_str()))
    };
    let (shown, rest): (Vec<_>, Vec<_>) = named
        .iter()
        .enumerate()
        .partition(|(i, part)| asked(part) || *i < ROWS && part.seconds() >= SHOWN * tenancy.capacity);
    for (_, part) in shown {
        line(part.name.as_deref().unwrap_or_default(), &[part]);
    }
    if !rest.is_empty() {
        let parts: Vec<&Part> = rest.iter().map(|(_, part)| **part).collect();
        line(&format!("{} others", parts.len()), &parts);
    }
    for part in tenancy.parts.iter().filter(|part| part.name.is_none()) {
        line("nobody", &[part]);
    }
    let _ = width;
}
