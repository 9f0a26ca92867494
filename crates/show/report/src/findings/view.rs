//! What detectors see of a recording.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};

use ncpu_schema::{
    Counter, CpuState, Error, InterruptKind, Layer, Microstate, Runnable, SampleClass, StackKind, UserCause,
    interrupts, runnable, stacks, threads, user_causes, user_locks,
};

use super::instructions::{self, Instruction};
use crate::causes::When;
use crate::onion::evidence::collectors::is_java_machines;
use crate::onion::evidence::{Context, counter};

/// States of a thread asleep.
const SLEEPS: [Microstate; 3] = [Microstate::Slp, Microstate::Lck, Microstate::Dfl];

/// The part of an observation for which a process lives that is one of a program's workers.
const LASTING: f64 = 0.5;

/// A sampled stack of the program on CPU, outside of traced waits for kernel locks.
#[derive(Clone, Debug)]
pub struct Sampled<'a> {
    /// What it was doing.
    pub class: SampleClass,
    /// Name of the process.
    pub process: &'a str,
    /// Name of the thread.
    pub thread: &'a str,
    /// The program's functions, innermost first.
    pub user: Vec<&'a str>,
    /// The kernel's functions, innermost first.
    pub kernel: Vec<&'a str>,
    /// Timer samples.
    pub samples: u64,
    /// CPU-seconds that they stand for.
    pub seconds: f64,
    /// In a futex call: the lock that it is for, as table `user_locks` names it.
    pub lock: Option<&'a str>,
}

impl Sampled<'_> {
    /// The layer that it lies in.
    pub fn layer(&self) -> Layer {
        self.class.into()
    }

    /// Whether a kernel function of this name is on the stack.
    pub fn in_kernel(&self, name: &str) -> bool {
        self.kernel.contains(&name)
    }
}

/// Switches of a process's threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Switched {
    /// To wait.
    pub voluntary: f64,
    /// For another thread.
    pub involuntary: f64,
}

/// Threads that became runnable for one reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct Woken {
    /// How often.
    pub count: f64,
    /// Seconds that they stood on run queues.
    pub queued: f64,
    /// Seconds until idle CPUs had woken for them.
    pub waking: f64,
    /// CPU-seconds that CPUs idled beside those queues.
    pub idle: f64,
}

/// A recording, as detectors see it.
pub struct View<'a> {
    /// Its tables, the rule book, and the program's size.
    pub(crate) context: Context<'a>,
    /// The layers: CPU-seconds and half-width of the 95 % interval.
    pub layers: Vec<(Layer, f64, f64)>,
    /// Stacks on CPU. A recording of an older version has none that say what the CPU was doing.
    pub samples: Vec<Sampled<'a>>,
    /// Stacks off CPU.
    pub slept: Vec<Slept<'a>>,
    /// Switches by process.
    pub switched: HashMap<String, Switched>,
    /// CPU-seconds in interrupts by kind, without ncpu's own.
    pub interrupts: Vec<(InterruptKind, f64)>,
    /// Time on run queues by reason; empty where that was not measured.
    pub runnable: HashMap<Runnable, Woken>,
    /// CPU-seconds of [`View::samples`] by layer.
    sampled: [f64; Layer::ALL.len()],
    /// Entries that were asked for, by evidence and subject: thousands of stacks have the same functions.
    entries: RefCell<HashMap<When, HashMap<String, Option<&'a str>>>>,
    /// Read when first asked for: few programs have a detector's functions.
    instructions: OnceCell<Vec<Instruction<'a>>>,
    walks: OnceCell<HashMap<&'a str, f64>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(context: Context<'a>, layers: Vec<(Layer, f64, f64)>) -> Result<View<'a>, Error> {
        let samples = sampled(&context)?;
        let mut asleep: HashMap<&str, f64> = HashMap::new();
        let mut switched: HashMap<String, Switched> = HashMap::new();
        if let Some(t) = threads::Reader::open(context.recording)? {
            for row in t.rows() {
                let sum = switched.entry(t.process.get(row).unwrap_or("").to_string()).or_default();
                sum.voluntary += t.vcx.get(row).unwrap_or(0) as f64;
                sum.involuntary += t.icx.get(row).unwrap_or(0) as f64;
                let slept = SLEEPS.iter().filter_map(|&m| t.micro.get(row, m)).sum::<f64>();
                *asleep.entry(t.process.get(row).unwrap_or("")).or_default() += slept;
            }
        }
        let slept = slept(&context, &asleep)?;
        let mut interrupts: Vec<(InterruptKind, f64)> = Vec::new();
        if let Some(t) = interrupts::Reader::open(context.recording)? {
            for row in t.rows() {
                let (Some(kind), Some(seconds)) = (t.kind.get(row), t.seconds.get(row)) else { continue };
                match interrupts.iter_mut().find(|(of, _)| *of == kind) {
                    Some((_, sum)) => *sum += seconds,
                    None => interrupts.push((kind, seconds)),
                }
            }
        }
        let mut runnable: HashMap<Runnable, Woken> = HashMap::new();
        if let Some(t) = runnable::Reader::open(context.recording)? {
            for row in t.rows() {
                let Some(reason) = t.reason.get(row) else { continue };
                let sum = runnable.entry(reason).or_default();
                sum.count += t.count.get(row).unwrap_or(0) as f64;
                sum.queued += t.queued.get(row).unwrap_or(0.0);
                sum.waking += t.waking.get(row).unwrap_or(0.0);
                sum.idle += t.idle.get(row).unwrap_or(0.0);
            }
        }
        let mut sampled = [0.0; Layer::ALL.len()];
        for sample in &samples {
            sampled[sample.layer() as usize] += sample.seconds;
        }
        Ok(View {
            context,
            layers,
            samples,
            slept,
            switched,
            interrupts,
            runnable,
            sampled,
            entries: RefCell::default(),
            instructions: OnceCell::new(),
            walks: OnceCell::new(),
        })
    }

    /// Table `instructions`; empty where the recording has no such table.
    pub(super) fn instructions(&self) -> &[Instruction<'a>] {
        self.instructions.get_or_init(|| instructions::read(self.context.recording))
    }

    /// By function, the part of its samples in tests of types that walk through interfaces.
    pub(super) fn walks(&self) -> &HashMap<&'a str, f64> {
        self.walks.get_or_init(|| {
            let shared = || self.samples_by_cause(|_, cause| cause == Some(UserCause::SharedLine));
            instructions::walks(self.instructions(), shared)
        })
    }

    /// The entry of the rule book for a cause with this evidence and subject.
    pub fn entry(&self, when: When, subject: &str) -> Option<&'a str> {
        let mut entries = self.entries.borrow_mut();
        let known = entries.entry(when).or_default();
        if let Some(entry) = known.get(subject) {
            return *entry;
        }
        let entry = self.context.causes.finding(&[when], subject).map(|entry| &*entry.id);
        known.insert(subject.to_string(), entry);
        entry
    }

    /// CPU-seconds of samples.
    pub fn sample_seconds(&self, samples: &[usize]) -> f64 {
        samples.iter().map(|&at| self.samples[at].seconds).sum()
    }

    /// By function, its samples whose instruction and cause fit, and all of its samples.
    pub fn samples_by_cause(
        &self,
        fits: impl Fn(Option<&str>, Option<UserCause>) -> bool,
    ) -> HashMap<&'a str, (f64, f64)> {
        let mut sums: HashMap<&str, (f64, f64)> = HashMap::new();
        let Ok(Some(t)) = user_causes::Reader::open(self.context.recording) else { return sums };
        for row in t.rows() {
            let (Some(function), Some(samples)) = (t.function.get(row), t.samples.get(row)) else { continue };
            let (of_cause, all) = sums.entry(function).or_default();
            *of_cause += if fits(t.instruction.get(row), t.cause.get(row)) { samples } else { 0.0 };
            *all += samples;
        }
        sums
    }

    /// Switches of all the program's threads.
    pub fn switches(&self) -> f64 {
        self.switched.values().map(|s| s.voluntary + s.involuntary).sum()
    }

    /// Interrupts of the CPUs' own timers.
    pub fn timer_interrupts(&self) -> f64 {
        let Ok(Some(t)) = interrupts::Reader::open(self.context.recording) else { return 0.0 };
        let of = t.rows().filter(|&row| t.kind.get(row) == Some(InterruptKind::Timer));
        of.filter_map(|row| t.count.get(row)).sum::<u64>() as f64
    }

    /// Processes of a name that were seen.
    pub fn processes(&self, name: &str) -> usize {
        let Ok(Some(t)) = threads::Reader::open(self.context.recording) else { return 0 };
        let of = t.rows().filter(|&row| t.process.get(row) == Some(name));
        of.filter_map(|row| t.pid.get(row)).collect::<HashSet<_>>().len()
    }

    /// CPU-seconds of the samples of a process.
    pub fn on_cpu(&self, process: &str) -> f64 {
        self.samples.iter().filter(|s| s.process == process).map(|s| s.seconds).sum()
    }

    /// How often an event was counted.
    pub fn counted(&self, event: Counter) -> f64 {
        counter(&self.context, event)
    }

    /// CPU-seconds of a layer.
    pub fn seconds(&self, layer: Layer) -> f64 {
        self.layers.iter().filter(|(of, ..)| *of == layer).map(|(_, seconds, _)| seconds).sum()
    }

    /// CPU-seconds of a layer that no stack stands for.
    pub fn beside_stacks(&self, layer: Layer) -> f64 {
        (self.seconds(layer) - self.sampled[layer as usize]).max(0.0)
    }

    /// Threads of a process that were seen.
    pub fn threads(&self, process: &str) -> usize {
        let Ok(Some(t)) = threads::Reader::open(self.context.recording) else { return 0 };
        let of = t.rows().filter(|&row| t.process.get(row) == Some(process));
        of.filter_map(|row| t.tid.get(row)).collect::<HashSet<_>>().len()
    }

    /// CPU-seconds that CPUs idled, for whatever reason.
    pub fn idle(&self) -> f64 {
        const LAYERS: [Layer; 9] = [
            Layer::UserLock,
            Layer::LockOrSerial,
            Layer::KernelBlock,
            Layer::KernelLockOrIo,
            Layer::RunQueue,
            Layer::WakeUp,
            Layer::Io,
            Layer::Serial,
            Layer::Idle,
        ];
        LAYERS.iter().map(|&layer| self.beside_stacks(layer)).sum()
    }

    /// Capacity, CPU-seconds.
    pub fn capacity(&self) -> f64 {
        self.context.capacity
    }

    /// Length of the observation, seconds.
    pub fn elapsed(&self) -> f64 {
        self.context.elapsed
    }

    /// CPU-seconds in interrupts of a kind.
    pub fn in_interrupts(&self, kind: InterruptKind) -> f64 {
        self.interrupts.iter().filter(|(of, _)| *of == kind).map(|(_, seconds)| seconds).sum()
    }

    /// Threads of some processes that have at least this part of their switches to wait.
    pub fn switching(&self, processes: &[&str], part: f64) -> usize {
        let Ok(Some(t)) = threads::Reader::open(self.context.recording) else { return 0 };
        let mut of: HashMap<u64, u64> = HashMap::new();
        for row in t.rows().filter(|&row| t.process.get(row).is_some_and(|name| processes.contains(&name))) {
            *of.entry(t.tid.get(row).unwrap_or(0)).or_default() += t.vcx.get(row).unwrap_or(0);
        }
        let all: u64 = of.values().sum();
        of.into_values().filter(|&n| n > 0 && n as f64 >= part * all as f64).count()
    }

    /// Threads of a process that were on CPU for at least this part of the observation.
    pub fn busy_threads(&self, process: &str, least: f64) -> usize {
        let busy = self.by_thread(process, |t, row| on_cpu(t, row).unwrap_or(0.0));
        busy.values().filter(|&&seconds| seconds >= least * self.elapsed()).count()
    }

    /// The same without the threads of a runtime that compile and collect: what the program does is not divided among them. Processes
    /// of a name that run one after the other are not workers of one program: those count that live for half of the observation, and
    /// one that is the only one of its name.
    pub fn busy_workers(&self, process: &str, least: f64) -> usize {
        let Ok(Some(t)) = threads::Reader::open(self.context.recording) else { return 0 };
        // By thread: its process, for how long it ran, and for how long it is known to have lived.
        let mut of: HashMap<u64, (u64, f64, f64)> = HashMap::new();
        for row in t.rows().filter(|&row| t.process.get(row) == Some(process)) {
            let ran = on_cpu(&t, row).unwrap_or(0.0);
            let asleep: f64 = SLEEPS.iter().filter_map(|&state| t.micro.get(row, state)).sum();
            let queued = t.micro.get(row, Microstate::Lat).unwrap_or(0.0);
            let thread = of.entry(t.tid.get(row).unwrap_or(0)).or_default();
            thread.0 = t.pid.get(row).unwrap_or(0);
            thread.1 += if is_java_machines(t.thread.get(row).unwrap_or("")) { 0.0 } else { ran };
            thread.2 += ran + asleep + queued + t.off.get(row).unwrap_or(0.0);
        }
        let mut processes: HashMap<u64, (usize, f64)> = HashMap::new();
        for (pid, ran, lived) in of.into_values() {
            let (workers, longest) = processes.entry(pid).or_default();
            *workers += usize::from(ran > 0.0 && ran >= least * self.elapsed());
            *longest = longest.max(lived);
        }
        let lasting = processes.values().filter(|(_, lived)| *lived >= LASTING * self.elapsed());
        let workers = lasting.map(|(workers, _)| workers).sum();
        // A program that began late.
        let alone = || processes.values().next().map_or(0, |(workers, _)| *workers);
        if workers == 0 && processes.len() == 1 { alone() } else { workers }
    }

    /// The part of the observation for which the busiest thread of a process was on CPU, or stood on a run queue to be.
    pub fn busiest_thread(&self, process: &str) -> f64 {
        let busy = self.by_thread(process, |t, row| {
            on_cpu(t, row).unwrap_or(0.0) + t.micro.get(row, Microstate::Lat).unwrap_or(0.0)
        });
        busy.into_values().fold(0.0, f64::max) / self.elapsed().max(f64::MIN_POSITIVE)
    }

    /// Seconds that threads of a name were on CPU or stood on a run queue.
    pub fn busy(&self, process: &str, thread: &str) -> f64 {
        let busy = self.by_thread(process, |t, row| match t.thread.get(row) == Some(thread) {
            true => on_cpu(t, row).unwrap_or(0.0) + t.micro.get(row, Microstate::Lat).unwrap_or(0.0),
            false => 0.0,
        });
        busy.into_values().sum()
    }

    /// Threads that wait for a lock by these rows of table `user_locks`, each process's at several places in turn; 0 where they were not
    /// counted.
    pub fn waiters(&self, rows: &[usize]) -> f64 {
        let Ok(Some(t)) = user_locks::Reader::open(self.context.recording) else { return 0.0 };
        let mut most: HashMap<u64, u64> = HashMap::new();
        for &row in rows {
            let known = most.entry(t.pid.get(row).unwrap_or(0)).or_default();
            *known = (*known).max(t.threads.get(row).unwrap_or(0));
        }
        most.values().sum::<u64>() as f64
    }

    /// Whether a thread of a process is on CPU, or stands on a run queue to be, for half of the observation or more, and falls asleep at
    /// most `sleeps` times a second; the process's other threads may fall asleep often.
    pub fn has_tireless_thread(&self, process: &str, sleeps: f64) -> bool {
        let busy = self.by_thread(process, |t, row| {
            on_cpu(t, row).unwrap_or(0.0) + t.micro.get(row, Microstate::Lat).unwrap_or(0.0)
        });
        let slept = self.by_thread(process, |t, row| t.vcx.get(row).unwrap_or(0) as f64);
        busy.iter().any(|(tid, seconds)| {
            let slept = slept.get(tid).copied().unwrap_or(0.0);
            *seconds >= 0.5 * self.elapsed() && slept <= sleeps * self.elapsed()
        })
    }

    /// Thread-seconds of a process in a microstate.
    pub fn in_state(&self, process: &str, state: Microstate) -> f64 {
        self.by_thread(process, |t, row| t.micro.get(row, state).unwrap_or(0.0)).into_values().sum()
    }

    /// Seconds that threads of a process stood on run queues, without those of some names.
    pub fn queued_outside(&self, process: &str, named: impl Fn(&str) -> bool) -> f64 {
        let queued = self.by_thread(process, |t, row| match named(t.thread.get(row).unwrap_or("")) {
            true => 0.0,
            false => t.micro.get(row, Microstate::Lat).unwrap_or(0.0),
        });
        queued.into_values().sum()
    }

    /// Seconds that each thread of a process was on CPU.
    pub fn cpu_by_thread(&self, process: &str) -> Vec<f64> {
        self.by_thread(process, |t, row| on_cpu(t, row).unwrap_or(0.0)).into_values().collect()
    }

    /// Sums over the rows of each thread of a process, by its number.
    fn by_thread(
        &self,
        process: &str,
        seconds: impl Fn(&threads::Reader<'a>, usize) -> f64,
    ) -> HashMap<u64, f64> {
        let mut sums = HashMap::new();
        let Ok(Some(t)) = threads::Reader::open(self.context.recording) else { return sums };
        for row in t.rows().filter(|&row| t.process.get(row) == Some(process)) {
            *sums.entry(t.tid.get(row).unwrap_or(0)).or_default() += seconds(&t, row);
        }
        sums
    }
}

/// Seconds that a row's thread was on CPU: their sum may be known where user code, calls and faults were not measured each.
pub(super) fn on_cpu(t: &threads::Reader<'_>, row: usize) -> Option<f64> {
    let apart: Vec<f64> = Microstate::ON_CPU.iter().filter_map(|&m| t.micro.get(row, m)).collect();
    t.cpu.get(row).or_else(|| (!apart.is_empty()).then(|| apart.iter().sum()))
}

/// Functions of a folded stack, innermost first: the program's, and the kernel's without their mark. The first `labels` parts
/// are no functions.
pub(super) fn functions(stack: &str, labels: usize) -> (Vec<&str>, Vec<&str>) {
    const MARK: &str = "_[k]";
    let frames: Vec<&str> = stack.split(';').skip(labels).collect();
    let (kernel, user): (Vec<&str>, Vec<&str>) = frames.into_iter().rev().partition(|f| f.ends_with(MARK));
    (user, kernel.into_iter().map(|f| f.trim_end_matches(MARK)).collect())
}

/// A stack in which threads were off CPU.
pub struct Slept<'a> {
    pub process: &'a str,
    pub thread: &'a str,
    /// Innermost first.
    pub user: Vec<&'a str>,
    pub kernel: Vec<&'a str>,
    pub wait: &'a str,
    pub seconds: f64,
    pub count: f64,
}

impl Slept<'_> {
    /// Seconds of a wait.
    pub fn each(&self) -> f64 {
        self.seconds / self.count.max(1.0)
    }

    /// Whether a kernel function is on the stack.
    pub fn in_kernel(&self, name: &str) -> bool {
        self.kernel.contains(&name)
    }

    /// Whether it waits for descriptors, by select, poll or epoll.
    pub fn awaits_descriptors(&self) -> bool {
        ["do_select", "do_sys_poll", "do_epoll_wait"].iter().any(|function| self.in_kernel(function))
    }
}

/// Stacks in which threads were off CPU, each once for a process. `asleep` has the seconds that its threads slept by their clocks: stacks
/// are walked before a thread leaves its CPU, which lengthens very short sleeps, so the stacks of a process are held to these.
fn slept<'a>(context: &Context<'a>, asleep: &HashMap<&str, f64>) -> Result<Vec<Slept<'a>>, Error> {
    let Some(t) = stacks::Reader::open(context.recording)? else { return Ok(Vec::new()) };
    let mut at: HashMap<(&str, &str), usize> = HashMap::new();
    let mut all: Vec<Slept<'a>> = Vec::new();
    for row in t.rows().filter(|&row| t.kind.get(row) == Some(StackKind::OffCpu)) {
        let (Some(stack), Some(wait), Some(seconds)) =
            (t.stack.get(row), t.wait.get(row), t.seconds.get(row))
        else {
            continue;
        };
        // Recordings of older versions have the samples alone.
        let count = t.waits.get(row).or_else(|| t.samples.get(row)).unwrap_or(0) as f64;
        let process = t.process.get(row).unwrap_or("");
        if let Some(&known) = at.get(&(stack, process)) {
            all[known].seconds += seconds;
            all[known].count += count;
            continue;
        }
        at.insert((stack, process), all.len());
        // The reason and the thread come first.
        let (user, kernel) = functions(stack, 2);
        let thread = t.thread.get(row).unwrap_or("");
        all.push(Slept { process, thread, user, kernel, wait, seconds, count });
    }
    let sleeps = |s: &Slept<'_>| s.wait != "run queue";
    let mut sums: HashMap<&str, f64> = HashMap::new();
    all.iter().filter(|s| sleeps(s)).for_each(|s| *sums.entry(s.process).or_default() += s.seconds);
    for s in all.iter_mut().filter(|s| sleeps(s)) {
        let (exact, sum) = (asleep.get(s.process).copied().unwrap_or(0.0), sums[s.process]);
        if exact > 0.0 && exact < sum {
            s.seconds *= exact / sum;
        }
    }
    Ok(all)
}

/// The stacks on CPU, with the seconds that samples stand for.
fn sampled<'a>(context: &Context<'a>) -> Result<Vec<Sampled<'a>>, Error> {
    let Some(t) = stacks::Reader::open(context.recording)? else { return Ok(Vec::new()) };
    let total: u64 = context.samples.as_ref().map_or(0, |samples| {
        let of = samples.rows().filter(|&row| samples.at.get(row) == Some(CpuState::Program));
        of.filter_map(|row| samples.samples.get(row)).sum()
    });
    let each = context.running / total.max(1) as f64;
    let mut at: HashMap<(&str, SampleClass, &str, Option<&str>), usize> = HashMap::new();
    let mut all: Vec<Sampled<'a>> = Vec::new();
    for row in t.rows() {
        let (Some(CpuState::Program), Some(class)) = (t.at.get(row), t.class.get(row)) else { continue };
        if t.kind.get(row) == Some(StackKind::OffCpu) {
            continue;
        }
        let (Some(stack), Some(n)) = (t.stack.get(row), t.samples.get(row)) else { continue };
        let process = t.process.get(row).unwrap_or("");
        let lock = t.lock.get(row);
        if let Some(&known) = at.get(&(stack, class, process, lock)) {
            all[known].samples += n;
            all[known].seconds += each * n as f64;
            continue;
        }
        at.insert((stack, class, process, lock), all.len());
        let thread = stack.split(';').next().unwrap_or("");
        let (user, kernel) = functions(stack, 1);
        let seconds = each * n as f64;
        all.push(Sampled { class, process, thread, user, kernel, samples: n, seconds, lock });
    }
    Ok(all)
}
