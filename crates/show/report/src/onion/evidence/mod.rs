//! What a layer consists of: top locks, callers, calls, processes.

mod collectors;
mod interrupts;
mod limits;
mod locks;
mod memory;
mod path;
mod processor;
mod queues;
mod requests;
mod threads;

use ncpu_record::Recording;
use ncpu_schema::{
    Counter, CpuState, IdleReason, Layer, SampleClass, chance, cpu_time, events, idle_time, samples,
};
use ncpu_table::{Select, SortKey, Table};

use super::SMALL;
use collectors::collected;
pub(super) use collectors::collector_advice;
pub(super) use interrupts::remedy as interrupt_remedy;
pub(super) use limits::{Throttled, limits_met, memory_short, throttled};
use locks::{kernel_locks, unjudged_told, user_locks};
pub(super) use locks::{parked, top_advice, top_lock, unjudged};
use memory::{memory_grown, pressure, reclaim};
pub(super) use path::charged;
use path::waited_for;
use processor::{hardware, shootdowns};
use queues::behind;
use queues::bound;
pub(super) use queues::{bound_queues, way_past};
pub(super) use requests::deepest;
use requests::requests;
use threads::{busiest, sleepers, sleeping};
pub(super) use threads::{length, short_processes, threads_begin, top_sleeper};

pub(super) struct Context<'a> {
    pub recording: &'a Recording,
    pub samples: Option<samples::Reader<'a>>,
    pub elapsed: f64,
    pub cpus: u64,
    pub capacity: f64,
    /// CPU-seconds of the program outside of traced waits and interrupts, which samples divide.
    pub running: f64,
}

impl Context<'_> {
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.recording.tables.get(name)
    }

    /// The rows of a table put together by `keys`, largest `by` first.
    pub fn ranked(&self, table: &str, keys: &[&str], by: &str) -> Option<Table> {
        let grouped = self.table(table)?.group_by(keys).ok()?;
        let sort = Some(SortKey { column: by.into(), ascending: false, backwards: false });
        Select { sort, ..Select::default() }.apply(grouped).ok()
    }

    /// Where the memory of the process lies that pays most for it, and the remedy.
    pub fn placed(&self) -> Option<(String, String)> {
        self.table("numa_processes")?;
        crate::numa::Numa::read(self.recording.tables.values()).worst()
    }
}

/// What samples are told apart by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Class,
    Detail,
    Process,
}

/// Samples that `keep` holds for, by `by`, most first.
fn counts(context: &Context<'_>, keep: impl Fn(CpuState, SampleClass) -> bool, by: By) -> Vec<(String, u64)> {
    let Some(samples) = &context.samples else { return Vec::new() };
    let mut sums: Vec<(String, u64)> = Vec::new();
    for row in samples.rows() {
        let (Some(at), Some(class)) = (samples.at.get(row), samples.class.get(row)) else { continue };
        if !keep(at, class) {
            continue;
        }
        let n = samples.samples.get(row).unwrap_or(0);
        let name = match (by, class) {
            (By::Class, _) => class.name(),
            (By::Detail, SampleClass::Exec) => "execve",
            (By::Detail, SampleClass::Exit) => "exit",
            (By::Detail, _) => samples.detail.get(row).unwrap_or("?"),
            (By::Process, _) => samples.process.get(row).unwrap_or("?"),
        };
        match sums.iter_mut().find(|(k, _)| k == name) {
            Some((_, sum)) => *sum += n,
            None => sums.push((name.to_string(), n)),
        }
    }
    sums.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    sums
}

/// The largest shares, by `by`, of the samples that `keep` holds for.
fn shares(
    context: &Context<'_>,
    keep: impl Fn(CpuState, SampleClass) -> bool,
    by: By,
    most: usize,
) -> Vec<(String, f64)> {
    let sums = counts(context, keep, by);
    let total = sums.iter().map(|(_, n)| n).sum::<u64>().max(1);
    sums.into_iter().take(most).map(|(k, n)| (k, n as f64 / total as f64)).collect()
}

/// [`shares`] of the program's samples outside traced lock waits, of the classes of a layer.
fn of_layer(context: &Context<'_>, layer: Layer, by: By, most: usize) -> Vec<(String, f64)> {
    shares(context, |at, class| at == CpuState::Program && Layer::from(class) == layer, by, most)
}

fn listed(parts: &[(String, f64)]) -> String {
    parts.iter().map(|(name, p)| format!("{name} {:.0} %", p * 100.0)).collect::<Vec<_>>().join(", ")
}

/// A sentence that lists shares; nothing where the list is empty.
fn told(prefix: &str, parts: &[(String, f64)]) -> Vec<String> {
    if parts.is_empty() { Vec::new() } else { vec![format!("{prefix}{}", listed(parts))] }
}

/// How often an event was counted.
fn counter(context: &Context<'_>, event: Counter) -> f64 {
    let Ok(Some(t)) = events::Reader::open(context.recording) else { return 0.0 };
    let of = t.rows().filter(|&r| t.event.get(r) == Some(event));
    of.filter_map(|r| t.count.get(r)).sum::<u64>() as f64
}

/// What took the program into the kernel, as far as it was counted.
fn entries(context: &Context<'_>) -> Vec<String> {
    let told: Vec<String> = [
        Counter::MinorFaults,
        Counter::MajorFaults,
        Counter::VoluntarySwitches,
        Counter::InvoluntarySwitches,
        Counter::Migrations,
    ]
    .into_iter()
    .filter_map(|event| {
        let n = counter(context, event);
        let rate = n / context.elapsed.max(f64::MIN_POSITIVE);
        (n > 0.0).then(|| format!("{rate:.0}/s {}", event.name()))
    })
    .collect();
    if told.is_empty() { told } else { vec![told.join(", ")] }
}

/// Samples of CPUs at `at`, of the classes kept.
fn count(context: &Context<'_>, at: CpuState, keep: impl Fn(SampleClass) -> bool) -> u64 {
    let Some(t) = &context.samples else { return 0 };
    t.rows()
        .filter(|&r| t.at.get(r) == Some(at) && t.class.get(r).is_some_and(&keep))
        .filter_map(|r| t.samples.get(r))
        .sum()
}

/// CPU-seconds that CPUs were in a state.
fn spent(context: &Context<'_>, state: CpuState) -> f64 {
    match cpu_time::Reader::open(context.recording) {
        Ok(Some(t)) => t.spent.sum(state),
        _ => 0.0,
    }
}

/// Whether the class is of user code that spins.
fn is_spin(class: SampleClass) -> bool {
    matches!(class, SampleClass::UserSpin | SampleClass::WaitSpin | SampleClass::Spin)
}

/// CPU-seconds of a layer that user code spun.
fn spun(context: &Context<'_>, layer: Layer) -> f64 {
    let all = count(context, CpuState::Program, |_| true).max(1);
    let spins = count(context, CpuState::Program, |class| is_spin(class) && Layer::from(class) == layer);
    context.running * spins as f64 / all as f64
}

/// Where user code spins, of what lies in a layer.
fn spinning(context: &Context<'_>, layer: Layer) -> Option<String> {
    let keep = |at, class| at == CpuState::Program && is_spin(class) && Layer::from(class) == layer;
    let seconds = spun(context, layer);
    (seconds > 0.0)
        .then(|| format!("{seconds:.2} CPU-s spinning in {}", listed(&shares(context, keep, By::Detail, 3))))
}

/// The place that user code of a layer spins in most, unless it could be chance that it is that one.
pub(super) fn top_spin(context: &Context<'_>, layer: Layer) -> Option<String> {
    let classes: Vec<_> =
        SampleClass::ALL.into_iter().filter(|&c| is_spin(c) && Layer::from(c) == layer).collect();
    top_detail(context, &classes)
}

/// Whether spinning is most of a layer.
pub(super) fn mostly_spinning(context: &Context<'_>, layer: Layer) -> bool {
    let idle: f64 = match idle_time::Reader::open(context.recording) {
        Ok(Some(t)) => {
            let of = |keep: &dyn Fn(IdleReason) -> bool| -> f64 {
                IdleReason::ALL.into_iter().filter(|&r| keep(r)).map(|r| t.spent.sum(r)).sum()
            };
            let all = of(&|_| true).max(f64::MIN_POSITIVE);
            spent(context, CpuState::Idle) * of(&|r| Layer::from(r) == layer) / all
        }
        _ => 0.0,
    };
    top_spin(context, layer).is_some() && spun(context, layer) > idle
}

pub(super) fn of(layer: Layer, context: &Context<'_>) -> Vec<String> {
    let per_second = |n: f64| format!("{:.0}/s", n / context.elapsed.max(f64::MIN_POSITIVE));
    match layer {
        Layer::KernelSpin => {
            let mut out = kernel_locks(context, "spin");
            let untraced = count(context, CpuState::Program, |c| Layer::from(c) == Layer::KernelSpin);
            let traced = count(context, CpuState::Spin, |_| true);
            let from = of_layer(context, Layer::KernelSpin, By::Detail, 2);
            if context.recording.manifest.simulated {
                // Its samples are those of the recording that it was made from.
                if !from.is_empty() {
                    out.push(format!("waited for in {}", listed(&from)));
                }
            } else if traced + untraced > 0 {
                let from = if from.is_empty() { String::new() } else { format!(", from {}", listed(&from)) };
                out.push(format!(
                    "second estimate: {traced} samples inside traced waits, {untraced} in slow paths the tracepoints do not cover{from}"
                ));
            }
            out
        }
        Layer::KernelBlock => {
            let mut out = kernel_locks(context, "block");
            out.extend(waited_for(context, IdleReason::KernelLock));
            out
        }
        Layer::UserLock => {
            let mut out = user_locks(context);
            out.extend(waited_for(context, IdleReason::UserLock));
            out
        }
        Layer::Faults => {
            let mut out = told("", &of_layer(context, layer, By::Process, 3));
            let zero = of_layer(context, layer, By::Class, 2);
            out.extend(
                zero.iter()
                    .find(|(c, _)| c == SampleClass::Zeroing.name())
                    .map(|(_, p)| format!("{:.0} % of it zeroing pages", p * 100.0)),
            );
            out.extend(memory_grown(context));
            out.extend(reclaim(context));
            out.extend(pressure(context, "memory"));
            out
        }
        Layer::Tlb => shootdowns(context),
        Layer::Calls => told("", &of_layer(context, layer, By::Detail, 4)),
        Layer::Switches => {
            let mut out = vec![per_second(counter(context, Counter::Switches))];
            out.extend(sleepers(context));
            out
        }
        Layer::Interrupts => interrupts::by_kind(context),
        Layer::RunQueue => {
            let of = |event| counter(context, event) / 1e6;
            let waiting = of(Counter::RunQueueMicroseconds) - of(Counter::WakeUpMicroseconds);
            let mut out: Vec<String> = throttled(context).iter().take(2).map(Throttled::told).collect();
            out.push(format!(
                "{:.2} threads queued behind others on average",
                waiting.max(0.0) / context.elapsed.max(f64::MIN_POSITIVE)
            ));
            out.extend(bound(context).map(|b| b.told()));
            out.extend(pressure(context, "cpu"));
            out
        }
        Layer::WakeUp => {
            let (latency, wakings) =
                (counter(context, Counter::WakeUpMicroseconds) / 1e6, counter(context, Counter::IdleWakeUps));
            vec![format!(
                "idle CPUs woke {} for threads of the program, {} each",
                per_second(wakings),
                length(latency / wakings.max(1.0))
            )]
        }
        Layer::Serial => {
            let mut out = waited_for(context, IdleReason::Serial);
            out.extend(spinning(context, layer));
            out.extend(unjudged_told(context));
            out.extend(busiest(context));
            out.extend(sleeping(context));
            out.extend(sleepers(context));
            out
        }
        Layer::Idle => {
            let mut out = waited_for(context, IdleReason::Asleep);
            out.extend(unjudged_told(context));
            out.extend(sleeping(context));
            out.extend(sleepers(context));
            out
        }
        Layer::Kernel => entries(context),
        Layer::LockOrSerial => {
            let mut out = waited_for(context, IdleReason::LockOrSerial);
            out.extend(spinning(context, layer));
            out.extend(busiest(context));
            out.extend(sleeping(context));
            out
        }
        Layer::Io | Layer::KernelLockOrIo => {
            let mut out = waited_for(context, IdleReason::Io);
            out.extend(requests(context));
            out.extend(sleeping(context));
            out.extend(pressure(context, "io"));
            out.extend(reclaim(context));
            out
        }
        Layer::User => {
            let mut out = told("", &of_layer(context, layer, By::Process, 3));
            let details = of_layer(context, layer, By::Detail, 4);
            // Code without a name is named by its file.
            let functions: Vec<_> = details.iter().filter(|(f, _)| f != "[anon]").take(3).cloned().collect();
            out.extend(told("in ", &functions));
            let generated = details.iter().find(|(f, share)| f == "[anon]" && *share >= 0.1);
            out.extend(generated.map(|(_, share)| {
                format!(
                    "{:.0} % in generated code without names: `node --perf-basic-prof` and its like write them to /tmp/perf-PID.map",
                    100.0 * share
                )
            }));
            out.extend(collected(context));
            out.extend(context.placed().map(|p| p.0));
            out.extend(hardware(context));
            out
        }
        Layer::OtherKernel => told("", &of_layer(context, layer, By::Detail, 3)),
        Layer::Others => {
            let mut out = told("", &shares(context, |at, _| at == CpuState::Others, By::Process, 3));
            let behind = behind(context);
            if !behind.is_empty() {
                out.extend(behind);
                out.extend(throttled(context).iter().take(1).map(Throttled::told));
                out.extend(bound(context).map(|b| b.told()));
            }
            out
        }
        Layer::Ncpu => {
            let of_capacity = |seconds: f64| 100.0 * seconds / context.capacity.max(f64::MIN_POSITIVE);
            let mut out = vec![format!("{:.2} % of capacity", of_capacity(spent(context, CpuState::Ncpu)))];
            out.extend(interrupts::own(context));
            let sampled = |of: fn(SampleClass) -> bool| -> u64 {
                let of = |at, class| at == CpuState::Program && of(class);
                counts(context, of, By::Process).iter().map(|(_, n)| n).sum()
            };
            let (probes, all) = (sampled(|class| class == SampleClass::Probe), sampled(|_| true));
            if probes > 0 {
                let seconds = spent(context, CpuState::Program) * probes as f64 / all as f64;
                out.push(format!("{:.1} % in probes on the program's locks", of_capacity(seconds)));
            }
            out
        }
        Layer::Steal | Layer::Unseen => Vec::new(),
    }
}

/// What most of the program's samples of some classes are: the kind that `kind` puts details into, and its largest
/// detail. `None` where that could be chance: another kind may be as frequent, or the kind too small to matter.
pub(super) fn top_kind(
    context: &Context<'_>,
    classes: &[SampleClass],
    kind: impl Fn(&str) -> String,
) -> Option<(String, String)> {
    let mut kinds: Vec<(String, u64, String)> = Vec::new();
    let of = |at, class| at == CpuState::Program && classes.contains(&class);
    for (detail, n) in counts(context, of, By::Detail) {
        let name = kind(&detail);
        match kinds.iter_mut().find(|(k, ..)| *k == name) {
            Some((_, sum, _)) => *sum += n,
            None => kinds.push((name, n, detail)),
        }
    }
    kinds.sort_by_key(|(_, n, _)| std::cmp::Reverse(*n));
    let (name, n, detail) = kinds.first()?.clone();
    let next = kinds.get(1).map_or(0, |k| k.1);
    let least = chance::share(n, count(context, CpuState::Program, |_| true)).0 * context.running;
    (chance::exceeds(n, next) && least >= SMALL * context.capacity).then_some((name, detail))
}

/// The detail that most of the program's samples of these classes have, unless that could be chance.
pub(super) fn top_detail(context: &Context<'_>, classes: &[SampleClass]) -> Option<String> {
    top_kind(context, classes, str::to_string).map(|(_, detail)| detail)
}
