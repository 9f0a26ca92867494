//! The parts of a layer: top locks, callers, calls, processes.

pub(crate) mod collectors;
mod copies;
mod interrupts;
pub(crate) mod kinds;
mod limits;
mod locks;
mod memory;
mod path;
mod processor;
mod queues;
mod requests;
mod threads;
mod user_causes;
mod words;

use ncpu_record::Recording;
use ncpu_schema::{
    Counter, CpuState, IdleReason, Layer, SampleClass, chance, cpu_time, events, idle_time, samples,
};
use ncpu_table::{Select, SortKey, Table};

use super::SMALL;
use crate::causes::Causes;
use crate::numa::{Effect, Numa, Process};
use collectors::collected;
pub(super) use collectors::collector_case;
pub(super) use copies::copies_case;
pub(super) use interrupts::case as interrupt_case;
pub use kinds::Evidence;
pub(crate) use kinds::SharedLine;
use kinds::{
    Calls, CpuSeconds, Functions, KernelEntries, KernelFunctions, LockFunctions, LockSamples, Overhead,
    PerSecond, Placement, Probes, Processes, Rate, RunQueues, Seconds, Spinning, Switches, UnnamedCode,
    WakeUps, Zeroing,
};
use kinds::{Part, Share};
pub(super) use limits::limits_met;
pub(crate) use limits::{memory_short, throttled};
use locks::{kernel_locks, locks_of_programs, unknown_futexes};
pub(super) use locks::{parked, top_advice, top_lock, unjudged};
use memory::{memory_grown, pressure, reclaim};
use path::waited_for;
pub(crate) use path::{Charged, charged};
use processor::{hardware, shootdowns};
use queues::behind;
use queues::bound;
pub(super) use queues::way_past;
pub(crate) use queues::{bound_queues, confined};
pub(super) use requests::deepest;
use requests::requests;
pub(crate) use threads::length;
use threads::{busiest, sleepers, sleeping};
pub(super) use threads::{short_processes, threads_begin, top_sleeper};
pub(crate) use user_causes::shared_lines;

pub(crate) struct Context<'a> {
    pub recording: &'a Recording,
    /// The rule book.
    pub causes: &'a Causes,
    pub samples: Option<samples::Reader<'a>>,
    pub elapsed: f64,
    pub cpus: u64,
    pub capacity: f64,
    /// CPU-seconds of the program outside of traced waits and interrupts, which samples divide.
    pub running: f64,
    /// Timer samples that divide them.
    pub total: u64,
}

impl Context<'_> {
    /// Whether it was too short for shares and advice.
    pub fn is_short(&self) -> bool {
        self.elapsed < super::SHORT && !self.recording.manifest.simulated
    }

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
    pub fn placed(&self) -> Option<(Placement, String)> {
        self.table("numa_processes")?;
        let numa = Numa::read(self.recording).ok()?;
        let (process, remedy) = numa.worst()?;
        Some((placement(process)?, remedy))
    }
}

/// The placement of a process's memory, beside the nodes of its threads.
pub(crate) fn placement(process: &Process) -> Option<Placement> {
    let place = &process.placement;
    let eye = place.eye()?;
    let missed = process.requests.iter().find(|request| request.effect >= Effect::Partly);
    Some(Placement {
        process: process.name.clone(),
        pid: process.pid.into(),
        node: eye.into(),
        node_share: Share(place.memory_share(eye)),
        memory_nodes: place.memory.keys().filter(|&&node| place.memory_share(node) >= 0.01).count() as u64,
        cpu_nodes: place.ran_on().len() as u64,
        verdict: place.verdict.to_string(),
        remote: Share(place.remote),
        distance: place.distance,
        policy: missed.map(|request| request.asked.clone()),
        effect: missed.map(|request| request.effect.word().into()),
    })
}

/// The key by which samples are summed.
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
            Some((_, sum)) => *sum = sum.saturating_add(n),
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
) -> Vec<Part> {
    let sums = counts(context, keep, by);
    let total = total(sums.iter().map(|(_, n)| *n)).max(1);
    sums.into_iter()
        .take(most)
        .map(|(name, n)| Part { name, share: Share(n as f64 / total as f64) })
        .collect()
}

/// [`shares`] of the program's samples outside traced lock waits, of the classes of a layer.
fn of_layer(context: &Context<'_>, layer: Layer, by: By, most: usize) -> Vec<Part> {
    shares(context, |at, class| at == CpuState::Program && Layer::from(class) == layer, by, most)
}

/// Names and percents, in a sentence.
fn listed(parts: &[Part]) -> String {
    let words = |part: &Part| format!("{} {:.0} %", part.name, part.share.percent());
    parts.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// A number as a rate.
fn per_second(context: &Context<'_>, n: f64) -> PerSecond {
    PerSecond(n / context.elapsed.max(f64::MIN_POSITIVE))
}

/// The sum of counts, which a forged recording may make larger than any number.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// How often an event was counted.
pub(crate) fn counter(context: &Context<'_>, event: Counter) -> f64 {
    let Ok(Some(t)) = events::Reader::open(context.recording) else { return 0.0 };
    let of = t.rows().filter(|&r| t.event.get(r) == Some(event));
    total(of.filter_map(|r| t.count.get(r))) as f64
}

/// The program's entries into the kernel by reason, as far as they were counted.
fn entries(context: &Context<'_>) -> Option<KernelEntries> {
    let rates: Vec<Rate> = [
        Counter::MinorFaults,
        Counter::MajorFaults,
        Counter::VoluntarySwitches,
        Counter::InvoluntarySwitches,
        Counter::Migrations,
    ]
    .into_iter()
    .filter_map(|event| {
        let n = counter(context, event);
        (n > 0.0).then(|| Rate { name: event.name().into(), per_second: per_second(context, n) })
    })
    .collect();
    (!rates.is_empty()).then_some(KernelEntries { rates })
}

/// Samples of CPUs at `at`, of the classes kept.
pub(crate) fn count(context: &Context<'_>, at: CpuState, keep: impl Fn(SampleClass) -> bool) -> u64 {
    let Some(t) = &context.samples else { return 0 };
    let kept = t.rows().filter(|&r| t.at.get(r) == Some(at) && t.class.get(r).is_some_and(&keep));
    total(kept.filter_map(|r| t.samples.get(r)))
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
fn spinning(context: &Context<'_>, layer: Layer) -> Option<Spinning> {
    let keep = |at, class| at == CpuState::Program && is_spin(class) && Layer::from(class) == layer;
    let seconds = spun(context, layer);
    (seconds > 0.0)
        .then(|| Spinning { seconds: CpuSeconds(seconds), functions: shares(context, keep, By::Detail, 3) })
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

/// The evidence of a layer, as it is gathered.
struct Gathered(Vec<Evidence>);

impl Gathered {
    fn add<E: Into<Evidence>>(&mut self, evidence: impl IntoIterator<Item = E>) {
        self.0.extend(evidence.into_iter().map(Into::into));
    }

    /// Adds the parts of the layer as one kind of evidence, if it has any.
    fn parts<E: Into<Evidence>>(&mut self, parts: Vec<Part>, kind: impl Fn(Vec<Part>) -> E) {
        self.add((!parts.is_empty()).then(|| kind(parts)));
    }
}

/// The evidence of a layer, largest first.
pub(super) fn of(layer: Layer, context: &Context<'_>) -> Vec<Evidence> {
    let mut out = Gathered(Vec::new());
    match layer {
        Layer::KernelSpin => {
            out.add(kernel_locks(context, "spin"));
            kernel_spin(&mut out, context);
        }
        Layer::KernelBlock => {
            out.add(kernel_locks(context, "block"));
            out.add(waited_for(context, IdleReason::KernelLock));
        }
        Layer::UserLock => {
            out.add(locks_of_programs(context));
            out.add(waited_for(context, IdleReason::UserLock));
        }
        Layer::Faults => faults(&mut out, context),
        Layer::Tlb => out.add(shootdowns(context)),
        Layer::Calls => out.parts(of_layer(context, layer, By::Detail, 4), |calls| Calls { calls }),
        Layer::Switches => {
            let per_second = per_second(context, counter(context, Counter::Switches));
            out.add([Switches { per_second }]);
            out.add(sleepers(context));
        }
        Layer::Interrupts => out.add([interrupts::by_kind(context)]),
        Layer::RunQueue => run_queues(&mut out, context),
        Layer::WakeUp => {
            let (latency, wakings) =
                (counter(context, Counter::WakeUpMicroseconds) / 1e6, counter(context, Counter::IdleWakeUps));
            let each = Seconds(latency / wakings.max(1.0));
            out.add([WakeUps { per_second: per_second(context, wakings), each }]);
        }
        Layer::Serial => {
            out.add(waited_for(context, IdleReason::Serial));
            out.add(spinning(context, layer));
            out.add(unknown_futexes(context));
            out.add(busiest(context));
            out.add(sleeping(context));
            out.add(sleepers(context));
        }
        Layer::Idle => {
            out.add(waited_for(context, IdleReason::Asleep));
            out.add(unknown_futexes(context));
            out.add(sleeping(context));
            out.add(sleepers(context));
        }
        Layer::Kernel => out.add(entries(context)),
        Layer::LockOrSerial => {
            out.add(waited_for(context, IdleReason::LockOrSerial));
            out.add(spinning(context, layer));
            out.add(busiest(context));
            out.add(sleeping(context));
        }
        Layer::Io | Layer::KernelLockOrIo => {
            out.add(waited_for(context, IdleReason::Io));
            out.add(requests(context));
            out.add(sleeping(context));
            out.add(pressure(context, "io"));
            out.add(reclaim(context));
        }
        Layer::User => user_code(&mut out, context),
        Layer::OtherKernel => {
            out.parts(of_layer(context, layer, By::Detail, 3), |functions| KernelFunctions { functions });
        }
        Layer::Others => {
            let others = shares(context, |at, _| at == CpuState::Others, By::Process, 3);
            out.parts(others, |processes| Processes { processes });
            let behind = behind(context);
            if !behind.is_empty() {
                out.add(behind);
                out.add(throttled(context).into_iter().take(1));
                out.add(bound(context));
            }
        }
        Layer::Ncpu => own_time(&mut out, context),
        Layer::Steal | Layer::Unseen => {}
    }
    out.0
}

fn kernel_spin(out: &mut Gathered, context: &Context<'_>) {
    let untraced = count(context, CpuState::Program, |c| Layer::from(c) == Layer::KernelSpin);
    let traced = count(context, CpuState::Spin, |_| true);
    let functions = of_layer(context, Layer::KernelSpin, By::Detail, 2);
    if context.recording.manifest.simulated {
        // Its samples are those of the recording that it was made from.
        out.parts(functions, |functions| LockFunctions { functions });
    } else if traced + untraced > 0 {
        out.add([LockSamples { traced, untraced, functions }]);
    }
}

fn faults(out: &mut Gathered, context: &Context<'_>) {
    out.parts(of_layer(context, Layer::Faults, By::Process, 3), |processes| Processes { processes });
    let classes = of_layer(context, Layer::Faults, By::Class, 2);
    let zeroing = classes.iter().find(|part| part.name == SampleClass::Zeroing.name());
    out.add(zeroing.map(|part| Zeroing { share: part.share }));
    out.add(copies::copying(context));
    out.add(memory_grown(context));
    out.add(reclaim(context));
    out.add(pressure(context, "memory"));
}

fn run_queues(out: &mut Gathered, context: &Context<'_>) {
    let of = |event| counter(context, event) / 1e6;
    let waiting = of(Counter::RunQueueMicroseconds) - of(Counter::WakeUpMicroseconds);
    out.add(throttled(context).into_iter().take(2));
    out.add([RunQueues { queued_threads: waiting.max(0.0) / context.elapsed.max(f64::MIN_POSITIVE) }]);
    out.add(bound(context));
    out.add(pressure(context, "cpu"));
}

fn user_code(out: &mut Gathered, context: &Context<'_>) {
    out.parts(of_layer(context, Layer::User, By::Process, 3), |processes| Processes { processes });
    let details = of_layer(context, Layer::User, By::Detail, 4);
    // Code without a name is named by its file.
    let functions: Vec<_> = details.iter().filter(|f| f.name != "[anon]").take(3).cloned().collect();
    out.parts(functions, |functions| Functions { functions });
    let generated = details.iter().find(|f| f.name == "[anon]" && f.share.0 >= 0.1);
    out.add(generated.map(|f| UnnamedCode { share: f.share }));
    user_causes::add(out, context);
    out.add(collected(context));
    out.add(context.placed().map(|p| p.0));
    out.add(hardware(context));
}

fn own_time(out: &mut Gathered, context: &Context<'_>) {
    let of_capacity = |seconds: f64| Share(seconds / context.capacity.max(f64::MIN_POSITIVE));
    out.add([Overhead { share: of_capacity(spent(context, CpuState::Ncpu)) }]);
    out.add(interrupts::own(context));
    let sampled = |of: fn(SampleClass) -> bool| -> u64 {
        let of = |at, class| at == CpuState::Program && of(class);
        total(counts(context, of, By::Process).into_iter().map(|(_, n)| n))
    };
    let (probes, all) = (sampled(|class| class == SampleClass::Probe), sampled(|_| true));
    if probes > 0 {
        let seconds = spent(context, CpuState::Program) * probes as f64 / all as f64;
        out.add([Probes { share: of_capacity(seconds) }]);
    }
}

/// The kind that most of the program's samples of some classes have, by `kind` of their details, and its largest
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
