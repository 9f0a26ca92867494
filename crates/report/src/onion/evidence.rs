//! What a layer consists of: top locks, callers, calls, processes.

use ncpu_record::Recording;
use ncpu_table::{Select, SortKey, Table};

use super::Layer;
use crate::locks::is_user_lock;

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
}

impl Context<'_> {
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

/// The callers of a lock from walked contentions, `spin` or `block` deciding.
fn callers(context: &Context<'_>, lock: &str, by: &str) -> String {
    let Some(ranked) = context.ranked("lock_callers", &["lock", "caller"], by) else { return String::new() };
    let of: Vec<(String, f64)> = (0..ranked.num_rows())
        .filter(|&r| ranked.text(r, "lock") == Some(lock))
        .filter_map(|r| Some((ranked.text(r, "caller")?.to_string(), ranked.number(r, by)?)))
        .collect();
    let total: f64 = of.iter().map(|(_, s)| s).sum();
    if total <= 0.0 {
        return String::new();
    }
    let top: Vec<_> = of.into_iter().take(2).map(|(c, s)| (c, s / total)).collect();
    format!(" from {}", listed(&top))
}

fn kernel_locks(context: &Context<'_>, by: &str) -> Vec<String> {
    let Some(ranked) = context.ranked("locks", &["lock", "type"], by) else { return Vec::new() };
    let total: f64 = (0..ranked.num_rows()).filter_map(|r| ranked.number(r, by)).sum();
    (0..ranked.num_rows().min(3))
        .filter_map(|r| {
            let (lock, s) = (ranked.text(r, "lock")?, ranked.number(r, by)?);
            if s <= 0.01 * total {
                return None;
            }
            let n = ranked.int(r, "count")?.max(1);
            Some(format!(
                "{lock} ({}) {:.0} %: {n} waits, {:.1} us {by} each{}",
                ranked.text(r, "type")?,
                100.0 * s / total,
                s * 1e6 / n as f64,
                callers(context, lock, by)
            ))
        })
        .collect()
}

/// The locks waited for, by where they are waited for: a server's locks may be thousands of words.
fn user_locks(context: &Context<'_>) -> Vec<String> {
    let mut out = Vec::new();
    let places = context.ranked("user_locks", &["type", "process", "caller"], "block");
    let single = context.ranked("user_locks", &["lock", "type", "process", "caller", "holder"], "block");
    if let (Some(places), Some(single)) = (places, single) {
        // Those that tell of it have spun as well.
        let spin = |r: usize| places.number(r, "spin").unwrap_or(0.0);
        let wait = |r: usize| places.number(r, "block").unwrap_or(0.0) + spin(r);
        let mut rows: Vec<usize> = (0..places.num_rows()).collect();
        rows.sort_by(|&a, &b| wait(b).total_cmp(&wait(a)));
        for r in rows {
            let text = |c: &str| places.text(r, c);
            let Some(kind) = text("type").filter(|k| is_user_lock(k)) else { continue };
            let (n, s) = (places.int(r, "count").unwrap_or(0), places.number(r, "block").unwrap_or(0.0));
            let spun = match spin(r) {
                spin if spin > 0.0 => format!(" asleep, {spin:.3} spinning"),
                _ => String::new(),
            };
            let of: Vec<usize> = (0..single.num_rows())
                .filter(|&q| ["type", "process", "caller"].iter().all(|c| single.text(q, c) == text(c)))
                .collect();
            let top = of.first().filter(|&&q| single.number(q, "block").unwrap_or(0.0) > 0.5 * s);
            let which = match top {
                Some(&q) => format!("{kind} {}", single.text(q, "lock").unwrap_or("?")),
                None => format!("{} {kind}s", of.len()),
            };
            let holder =
                top.and_then(|&q| single.text(q, "holder")).map(|h| format!(", woken mostly by {h}"));
            let caller = text("caller").filter(|c| !c.starts_with('[')).map(|c| format!(" in {c}"));
            out.push(format!(
                "{which} of {}{}: {n} waits, {s:.3} thread-s{spun}{}",
                text("process").unwrap_or("?"),
                caller.unwrap_or_default(),
                holder.unwrap_or_default()
            ));
            if out.len() == 2 {
                break;
            }
        }
    }
    out.extend(told(
        "spinning in ",
        &shares(context, |at, c| at == "target" && c == "user spin", "detail", 2),
    ));
    out
}

/// A limit on CPU bandwidth that held the program's threads back.
pub(super) struct Throttled {
    pub cgroup: String,
    pub limit: String,
    pub lift: String,
    /// CPUs it allows.
    pub allowed: Option<f64>,
    periods: u64,
    throttled: u64,
    /// CPU-seconds.
    pub held: f64,
}

/// Those limits, the one that held back most first. Groups above one another may both be held back,
/// so their times must not be added.
pub(super) fn throttled(context: &Context<'_>) -> Vec<Throttled> {
    let Some(t) = context.ranked("throttling", &["cgroup", "limit", "lift"], "held") else {
        return Vec::new();
    };
    (0..t.num_rows())
        .filter_map(|r| {
            Some(Throttled {
                cgroup: t.text(r, "cgroup")?.into(),
                limit: t.text(r, "limit")?.into(),
                lift: t.text(r, "lift")?.into(),
                allowed: t.number(r, "allowed"),
                periods: t.int(r, "periods")?,
                throttled: t.int(r, "throttled")?,
                held: t.number(r, "held")?,
            })
        })
        .collect()
}

impl Throttled {
    /// The limit and what it did, as a part of a sentence.
    pub fn told(&self) -> String {
        let allowed = self.allowed.map_or(String::new(), |n| {
            format!(" ({} CPU{})", (n * 100.0).round() / 100.0, if n == 1.0 { "" } else { "s" })
        });
        format!(
            "throttled by {} of {}{allowed}: {:.3} CPU-s held back, in {} of {} periods",
            self.limit, self.cgroup, self.held, self.throttled, self.periods
        )
    }
}

fn counter(context: &Context<'_>, event: &str) -> f64 {
    let Some(t) = context.table("counters") else { return 0.0 };
    (0..t.num_rows())
        .filter(|&r| t.text(r, "event") == Some(event))
        .filter_map(|r| t.number(r, "count"))
        .sum()
}

/// Where the program's threads slept, by system call.
fn sleeping(context: &Context<'_>) -> Vec<String> {
    let Some(ranked) = context.ranked("sleeps", &["call"], "seconds") else { return Vec::new() };
    let total: f64 = (0..ranked.num_rows()).filter_map(|r| ranked.number(r, "seconds")).sum();
    let top: Vec<_> = (0..ranked.num_rows().min(3))
        .filter_map(|r| Some((ranked.text(r, "call")?.to_string(), ranked.number(r, "seconds")? / total)))
        .collect();
    told("threads asleep in ", &top)
}

/// Who sleeps by which call, how often and for how long, if that is often: each sleep is two switches and an
/// interrupt.
fn sleepers(context: &Context<'_>) -> Vec<String> {
    let Some(ranked) = context.ranked("sleepers", &["call", "process"], "count") else { return Vec::new() };
    let per_second = |n: f64| n / context.elapsed.max(f64::MIN_POSITIVE);
    (0..ranked.num_rows())
        .filter_map(|r| {
            let (call, process) = (ranked.text(r, "call")?, ranked.text(r, "process")?);
            let (count, asked) = (ranked.number(r, "count")?, ranked.number(r, "asked")?);
            let (slept, threads) = (ranked.number(r, "slept")?, ranked.int(r, "threads")?.max(1));
            // Less than one a second is no one's trouble.
            (per_second(count) >= 1.0).then(|| {
                format!(
                    "{threads} thread{} of {process} asleep in {call}: {:.0} sleeps/s, {} asked for, {} slept on average",
                    if threads == 1 { "" } else { "s" },
                    per_second(count),
                    length(asked / count),
                    length(slept / count)
                )
            })
        })
        .take(2)
        .collect()
}

/// A time with the unit that suits it.
fn length(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

fn event(context: &Context<'_>, name: &str) -> u64 {
    let Some(t) = context.table("memory_events") else { return 0 };
    (0..t.num_rows()).filter(|&r| t.text(r, "event") == Some(name)).filter_map(|r| t.int(r, "count")).sum()
}

/// Bytes with the unit that suits them.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// What the machine's memory grew by at most, where it is enough to tell of.
fn memory_grown(context: &Context<'_>) -> Option<String> {
    const WORTH: u64 = 64 << 20;
    let t = context.table("memory_change")?;
    let grown = |class: &str| {
        let row = (0..t.num_rows()).find(|&r| t.text(r, "class") == Some(class))?;
        Some(t.int(row, "most")?.saturating_sub(t.int(row, "before")?))
    };
    let mut parts: Vec<(u64, &str)> = [
        ("AnonPages", "anonymous memory"),
        ("Shmem", "shared memory"),
        ("Cached", "page cache"),
        ("Slab", "slab"),
        ("PageTables", "page tables"),
    ]
    .into_iter()
    .filter_map(|(class, name)| Some((grown(class)?, name)))
    .filter(|(n, _)| *n >= WORTH)
    .collect();
    parts.sort_unstable_by(|a, b| b.cmp(a));
    let told: Vec<String> = parts.iter().take(3).map(|(n, name)| format!("{name} {}", size(*n))).collect();
    let huge = match event(context, "thp_fault_alloc") {
        0 => String::new(),
        n => format!("; {n} huge pages given out"),
    };
    (!told.is_empty()).then(|| format!("the machine's memory grew by up to: {}{huge}", told.join(", ")))
}

/// That memory was short, and what the kernel did for it, if that was often.
fn reclaim(context: &Context<'_>) -> Option<String> {
    const PER_SECOND: f64 = 3.0;
    let parts = [
        ("allocstall", "allocations had to free memory first"),
        ("compact_stall", "allocations had to move pages first"),
        ("pswpout", "pages were swapped out"),
        ("pswpin", "pages were swapped in"),
        ("workingset_refault", "pages were read again soon after they were dropped"),
    ];
    let told: Vec<String> = parts
        .iter()
        .map(|(name, words)| (event(context, name), words))
        .filter(|(n, _)| *n as f64 >= PER_SECOND * context.elapsed)
        .map(|(n, words)| format!("{n} {words}"))
        .collect();
    (!told.is_empty()).then(|| format!("the machine's memory was short: {}", told.join(", ")))
}

/// For how long tasks of the machine stood still for want of a resource, if that is worth telling.
fn pressure(context: &Context<'_>, resource: &str) -> Option<String> {
    let t = context.table("pressure")?;
    let share = |kind: &str| {
        let row = (0..t.num_rows())
            .find(|&r| t.text(r, "resource") == Some(resource) && t.text(r, "kind") == Some(kind))?;
        Some(100.0 * t.number(row, "seconds")? / context.elapsed.max(f64::MIN_POSITIVE))
    };
    let some = share("some").filter(|s| *s >= 1.0)?;
    let full = share("full").filter(|s| *s >= 1.0).map_or(String::new(), |s| format!(", all in {s:.0} %"));
    let name = if resource == "io" { "I/O" } else { resource };
    Some(format!("pressure: some task stood still for {name} in {some:.0} % of the time{full}"))
}

/// The limits that the program reached or nearly did, each as a line.
pub(super) fn limits_met(context: &Context<'_>) -> Vec<String> {
    let Some(t) = context.table("limits_met") else { return Vec::new() };
    let line = |r: usize| {
        let (limit, of) = (t.text(r, "limit")?, t.text(r, "of")?);
        let (refused, killed) = (t.int(r, "refused")?, t.int(r, "killed")?);
        let memory = limit.starts_with("memory.");
        let amount = |n: u64| if memory { size(n) } else { n.to_string() };
        let used = amount(t.int(r, "used")?);
        let of_allowed = match t.int(r, "allowed") {
            Some(allowed) => format!("{used} of {} used", amount(allowed)),
            None => format!("{used} used"),
        };
        let mut did = match (refused, limit) {
            (0, _) => String::new(),
            (n, "pids.max") => format!(", {n} forks refused"),
            (n, _) => format!(", reached {n} times"),
        };
        if killed > 0 {
            did += &format!(", {killed} processes killed");
        }
        let met = if refused + killed > 0 { "reached" } else { "nearly reached" };
        Some(format!("limit {met}: {limit} of {of}: {of_allowed}{did}; lift it: {}", t.text(r, "lift")?))
    };
    (0..t.num_rows()).filter_map(line).collect()
}

/// The call that most sleeps with a timeout are in, with the process and its part of all switches.
pub(super) fn top_sleeper(context: &Context<'_>) -> Option<(String, String, f64)> {
    let ranked = context.ranked("sleepers", &["call", "process"], "count")?;
    let switches = counter(context, "context switches");
    if ranked.num_rows() == 0 || switches <= 0.0 {
        return None;
    }
    // A sleep is a switch away and one back.
    let share = 2.0 * ranked.number(0, "count")? / switches;
    Some((ranked.text(0, "call")?.into(), ranked.text(0, "process")?.into(), share))
}

/// The thread that was on CPU longest.
fn busiest(context: &Context<'_>) -> Option<String> {
    let grouped = context.table("threads")?.group_by(&["tid", "process", "thread"]).ok()?;
    let busy = |t: &Table, r: usize| ["USR", "SYS", "TRP"].iter().filter_map(|c| t.number(r, c)).sum::<f64>();
    let top = (0..grouped.num_rows()).max_by(|&a, &b| busy(&grouped, a).total_cmp(&busy(&grouped, b)))?;
    let share = busy(&grouped, top) / context.elapsed.max(f64::MIN_POSITIVE);
    let name = grouped.text(top, "thread")?.to_string();
    let tid = grouped.int(top, "tid")?;
    Some(format!("busiest thread {name}/{tid}, on CPU {:.0} % of the time", share * 100.0))
}

/// How many shootdowns, their cost at both ends, and who sends them for what.
fn shootdowns(context: &Context<'_>) -> Vec<String> {
    let per_second = |n: f64| format!("{:.0}/s", n / context.elapsed.max(f64::MIN_POSITIVE));
    let (sent, received) =
        (counter(context, "TLB shootdowns sent"), counter(context, "TLB shootdowns received"));
    let mut out = vec![format!(
        "{} sent, {} received: {:.1} CPUs answered each on average",
        per_second(sent),
        per_second(received),
        received / sent.max(1.0)
    )];
    let at = |column: &str| context.table("cpu_time").map_or(0.0, |t| super::sum(t, column));
    let all = program_samples(context, |_| true);
    let seconds = |n: u64| at("target") * n as f64 / all.max(1) as f64;
    let waiting = program_samples(context, |c| c == "tlb wait");
    let flushing = program_samples(context, |c| c == "tlb");
    out.push(format!(
        "senders sending and waiting {:.3} CPU-s, the rest of their flushes {:.3} (both sampled); receivers answering {:.3}",
        seconds(waiting),
        seconds(flushing),
        at("tlb")
    ));
    let sends = |at: &str, c: &str| at == "target" && matches!(c, "tlb" | "tlb wait");
    let who = shares(context, sends, "process", 3);
    let what = shares(context, sends, "detail", 3);
    if !who.is_empty() {
        out.push(format!("sent by {}; for {}", listed(&who), listed(&what)));
    }
    out
}

/// The program's samples outside traced lock waits, of the classes kept.
fn program_samples(context: &Context<'_>, keep: impl Fn(&str) -> bool) -> u64 {
    let Some(t) = context.table("samples") else { return 0 };
    (0..t.num_rows())
        .filter(|&r| t.text(r, "at") == Some("target") && t.text(r, "class").is_some_and(&keep))
        .filter_map(|r| t.int(r, "samples"))
        .sum()
}

/// From so many misses in 1000 instructions on it is worth asking whose lines they are.
const LINES_MOVE: f64 = 2.0;

/// What user code does with the cycles it gets, where the machine has counters for that.
fn hardware(context: &Context<'_>) -> Option<String> {
    let t = context.table("hardware")?;
    let sum = |wanted: &dyn Fn(&str) -> bool| {
        let mut rows = (0..t.num_rows()).filter(|&r| t.text(r, "event").is_some_and(wanted)).peekable();
        rows.peek()?;
        // What was not counted everywhere is not known.
        rows.map(|r| t.number(r, "count")).sum::<Option<f64>>()
    };
    let cycles = sum(&|e| e == "cycles:u").filter(|n| *n > 0.0)?;
    let instructions = sum(&|e| e == "instructions:u").filter(|n| *n > 0.0)?;
    let mut said = format!("user code of all programs: {:.2} instructions a cycle", instructions / cycles);
    if let Some(misses) = sum(&|e| e == "LLC-load-misses:u") {
        let rate = 1000.0 * misses / instructions;
        said += &format!(", {rate:.2} cache misses to memory in 1000 of them");
        if rate >= LINES_MOVE {
            said += " (`ncpu lines -- CMD` samples which lines move between CPUs)";
        }
    }
    if let Some(walks) = sum(&|e| e.contains("_misses.walk_")) {
        said += &format!(", {:.1} % of cycles in page walks", 100.0 * walks / cycles);
    }
    Some(said)
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
    context.table("cpu_time").map_or(0.0, |t| super::sum(t, "ncpu"))
}

fn samples_at(context: &Context<'_>, place: &str) -> u64 {
    let Some(t) = context.table("samples") else { return 0 };
    (0..t.num_rows()).filter(|&r| t.text(r, "at") == Some(place)).filter_map(|r| t.int(r, "samples")).sum()
}

/// The kernel lock that costs most by `spin` or `block`.
pub(super) fn top_lock(context: &Context<'_>, by: &str) -> Option<String> {
    let ranked = context.ranked("locks", &["lock"], by)?;
    (ranked.num_rows() > 0).then(|| ranked.text(0, "lock").map(str::to_string)).flatten()
}

/// The largest detail of the program's samples of a class.
pub(super) fn top_detail(context: &Context<'_>, classes: &[&str]) -> Option<String> {
    shares(context, |at, c| at == "target" && classes.contains(&c), "detail", 1).pop().map(|(name, _)| name)
}
