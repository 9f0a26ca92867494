//! A model from a recording.

use std::collections::{BTreeMap, BTreeSet};

use ncpu_machine::CpuSet;
use ncpu_record::Recording;
use ncpu_schema::SampleClass;
use ncpu_table::Table;

use crate::hardware::{Hardware, Shape};
use crate::model::{Memory, Model, Recorded, Share};
use crate::program::LockKind;
use threads::Workers;

mod beside;
mod calibrate;
mod growth;
mod lines;
mod locks;
mod sharpen;
mod taken;
#[cfg(test)]
mod tests;
mod threads;
mod words;

pub use beside::{Beside, Calls, Transfers};
pub use calibrate::{Reproduced, reproduce};
pub use growth::Growth;
pub use locks::NamedLock;
pub use sharpen::sharpen;
pub use taken::Counted;
pub use words::Words;

/// Why a recording gives no model.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is of another command, or was cut off before its first interval.
    #[error(
        "the recording has no table `{0}`: record with `ncpu run --record`, or was it cut off in its first interval?"
    )]
    Missing(&'static str),
    /// The program did nothing.
    #[error("the recorded program used no CPU time: there is nothing to predict from")]
    Nothing,
    /// The shape of the recorded machine is not valid.
    #[error("{0}")]
    Shape(#[from] crate::hardware::ShapeError),
    /// A model that cannot be simulated.
    #[error("{0}")]
    Model(#[from] crate::model::Error),
}

/// A model and what is to be known of it.
#[derive(Clone, Debug)]
pub struct Learnt {
    /// The model.
    pub model: Model,
    /// Assumptions, and parts that could not be determined.
    pub notes: Vec<String>,
}

fn sum(table: &Table, column: &str) -> f64 {
    (0..table.num_rows()).filter_map(|r| table.number(r, column)).sum()
}

/// Sleeps shorter than this on average are waits for another thread of the program that hands work over; phases in which
/// only one thread has work last longer.
const HANDED_OVER: f64 = 1e-3;

/// A program that is bound has no larger share of its CPU time elsewhere: before it is bound, and in processes that do no work.
const ELSEWHERE: f64 = 0.05;

/// Seconds of the CPUs that the program could use, by the columns of `cpu_time`.
struct Used {
    cpus: u32,
    /// Which ones.
    numbers: Vec<u64>,
    all: u32,
    elapsed: f64,
    target: f64,
    spin: f64,
    tlb: f64,
    interrupts: f64,
    idle: f64,
    /// Other programs, `ncpu` and the hypervisor.
    others: f64,
}

impl Used {
    fn of(recording: &Recording, bound: Option<u32>) -> Result<Used, Error> {
        let table = recording.tables.get("cpu_time").ok_or(Error::Missing("cpu_time"))?;
        let told = |c: &str| recording.tables.get("summary").and_then(|s| s.number(0, c));
        let last = (0..table.num_rows()).filter_map(|r| table.number(r, "t")).fold(0.0, f64::max);
        let elapsed = told("elapsed").unwrap_or(last);
        let mut busy = BTreeMap::<u64, f64>::new();
        for r in 0..table.num_rows() {
            let own = table.number(r, "target").unwrap_or(0.0) + table.number(r, "spin").unwrap_or(0.0);
            *busy.entry(table.int(r, "CPU").unwrap_or(0)).or_default() += own;
        }
        let all = busy.len().max(1) as u32;
        let mut order: Vec<(u64, f64)> = busy.into_iter().collect();
        // Bound to some: those that the recording names, or those that it was on most.
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        if let Some(set) = threads::confined(recording, elapsed).filter(|_| bound.is_none()) {
            let inside = |cpu: u64| u32::try_from(cpu).is_ok_and(|cpu| set.contains(cpu));
            let spent: f64 = order.iter().map(|(_, own)| own).sum();
            let elsewhere: f64 = order.iter().filter(|(cpu, _)| !inside(*cpu)).map(|(_, own)| own).sum();
            // Other threads of theirs may run anywhere.
            if elsewhere < ELSEWHERE * spent {
                order.retain(|(cpu, _)| inside(*cpu));
            }
        }
        let here = order.len() as u32;
        if here == 0 {
            return Err(Error::Nothing);
        }
        let cpus = bound.map_or(here, |n| n.clamp(1, here));
        order.truncate(cpus as usize);
        let mine = |r: usize| order.iter().any(|(cpu, _)| Some(*cpu) == table.int(r, "CPU"));
        let of = |column: &str| -> f64 {
            (0..table.num_rows()).filter(|&r| mine(r)).filter_map(|r| table.number(r, column)).sum()
        };
        let steal = told("steal").unwrap_or(0.0) * f64::from(cpus) / f64::from(all);
        let (target, spin) = (of("target"), of("spin"));
        // Where waits for kernel locks came too often to be traced, samples show them in the program's time.
        let spun = target * lines::sampled(recording, SampleClass::LockSpin);
        let used = Used {
            cpus,
            numbers: order.iter().map(|(cpu, _)| *cpu).collect(),
            all,
            elapsed,
            target: target - spun,
            spin: spin + spun,
            tlb: of("tlb"),
            interrupts: of("hardirq") + of("softirq"),
            idle: of("idle"),
            others: of("other") + of("ncpu") + steal,
        };
        if used.target <= 0.0 || elapsed <= 0.0 { Err(Error::Nothing) } else { Ok(used) }
    }

    fn capacity(&self) -> f64 {
        f64::from(self.cpus) * self.elapsed
    }

    /// Packages x cores x strands of these CPUs alone, from the shape of their machine.
    fn shape(&self, machine: &ncpu_record::Shape) -> Option<String> {
        let mut places = BTreeMap::<u64, (usize, usize)>::new();
        for (package, strands) in machine.cpus.iter().enumerate() {
            for list in strands {
                let cpus = CpuSet::parse_list(list).ok()?;
                places.extend(cpus.iter().enumerate().map(|(core, cpu)| (u64::from(cpu), (package, core))));
            }
        }
        let alone = machine.cpus.is_empty() && machine.packages == 1 && machine.strands == 1;
        let place = |cpu: &u64| if alone { Some((0, *cpu as usize)) } else { places.get(cpu).copied() };
        let mut cores = BTreeMap::<(usize, usize), u32>::new();
        for cpu in &self.numbers {
            *cores.entry(place(cpu)?).or_default() += 1;
        }
        let strands = cores.values().copied().max()?;
        let packages: BTreeSet<usize> = cores.keys().map(|(package, _)| *package).collect();
        // Packages with different numbers of cores are taken for one: which CPUs share a core matters more.
        let packages = if cores.len().is_multiple_of(packages.len()) { packages.len() } else { 1 };
        let of_one = (cores.len() / packages) as u32;
        Some(Shape { packages: packages as u32, clusters: 1, cores: of_one, strands }.to_string())
    }

    /// When the program had a CPU, with what interrupted it.
    fn busy(&self) -> f64 {
        self.target + self.spin + self.tlb + self.interrupts
    }

    /// The length of the run with the CPUs to itself. CPU time that others took while the program left CPUs idle did
    /// not delay it.
    fn own(&self) -> f64 {
        let missed = self.busy() / (self.busy() + self.idle).max(1e-9);
        self.elapsed * (1.0 - missed * self.others / self.capacity()).max(0.05)
    }

    /// The layers to be reproduced, as shares of what the program could have had.
    fn layers(&self) -> Vec<(String, f64)> {
        let capacity = self.own() * f64::from(self.cpus);
        [
            ("work", self.target),
            ("kernel lock spin", self.spin),
            ("TLB shootdown", self.tlb),
            ("interrupts", self.interrupts),
            ("idle", (capacity - self.busy()).max(0.0)),
        ]
        .into_iter()
        .map(|(name, s)| (name.to_string(), s / capacity))
        .collect()
    }
}

/// Hand-overs of spinlocks that take this much longer than a transfer, ns, get a note.
const DEAR: f64 = 50.0;

/// A line's transfer between cores, ns, where nothing better is known: where adjusting begins.
const TRANSFER_NS: f64 = 50.0;

/// Interrupts that the model has a second on each CPU; all of them take what those recorded took.
const INTERRUPTS_HZ: f64 = 1000.0;

/// [`recording_beside`] with nothing beside it.
///
/// # Errors
/// As there.
pub fn recording(
    recording: &Recording,
    throughput: Option<f64>,
    bound: Option<u32>,
) -> Result<Learnt, Error> {
    recording_beside(recording, throughput, bound, &Beside::default())
}

/// Reads a model out of a recording; `throughput` is the units of work a second, if the recording does not have them,
/// `bound` the number of CPUs that the program was bound to, if not all, and `beside` the results of other commands for
/// it and its machine.
///
/// # Errors
/// The recording is not an observation of a program, or the program did nothing.
pub fn recording_beside(
    recording: &Recording,
    throughput: Option<f64>,
    bound: Option<u32>,
    beside: &Beside,
) -> Result<Learnt, Error> {
    let used = Used::of(recording, bound)?;
    let own = used.own();
    let mut notes = Vec::new();
    beware(recording, &used, &mut notes);
    let (workers, others) = threads::workers(recording, used.elapsed).unwrap_or_else(|| {
        notes.push("the recording has no table `threads`: one worker a CPU is assumed".into());
        (Workers { threads: used.cpus, cpu: used.target, ..Workers::default() }, 0.0)
    });
    let running = (workers.cpu / own).clamp(1.0, f64::from(used.cpus));
    let throughput = throughput.or(recording.manifest.throughput.as_ref().map(|t| t.per_second));
    // Without a figure a unit is a microsecond of the program's CPU time here.
    let units = throughput.map_or(used.target * 1e6, |x| x * used.elapsed);
    if throughput.is_none() {
        notes.push(
            "no throughput is known (`ncpu run --metric`, or --throughput here): a unit of work is what took a microsecond of the program's CPU time when \
             recorded; ratios mean what they say"
                .into(),
        );
    }
    let mut model = Model {
        name: recording.manifest.command.join(" "),
        unit: if throughput.is_some() { "units".into() } else { "CPU microseconds".into() },
        cv: 1.0,
        batch: 1.0,
        uneven: 1.0,
        memory: Memory::Interleaved,
        mix: mix(recording),
        ..Model::default()
    };
    let names = locks::Names::of(recording, beside.locks.as_deref());
    let about = locks::About {
        elapsed: own,
        running,
        units,
        threads: workers.threads.min(used.cpus),
        spin: used.spin,
        cpus: used.cpus,
        preempted: workers.preempted,
        slept: workers.switches,
    };
    model.lock = locks::locks(recording, &names, &about, &mut notes);
    let held: f64 = model.lock.iter().map(|l| l.takes * l.hold_ns).sum();
    let per_unit = used.target / units * 1e9;
    model.work_ns = (per_unit - held).max(0.05 * per_unit);
    let threads = waiting(&mut model, recording, &used, &workers, others, units, &mut notes);
    if let Some(calls) = &beside.calls {
        calls.put(&mut model, (units / used.elapsed, throughput.is_some()), running, &mut notes);
    } else if used.tlb > 0.001 * used.target {
        let events = recording.tables.get("events");
        let sent: f64 = events.map_or(0.0, |t| {
            (0..t.num_rows())
                .filter(|&r| t.text(r, "event").is_some_and(|e| e.starts_with("TLB shootdowns sent")))
                .filter_map(|r| t.number(r, "count"))
                .sum()
        });
        let targets = (running - 1.0).max(0.2);
        model.shootdowns = sent / targets / units;
        notes.push(
            "shootdowns are those of the whole machine; each is taken to reach all CPUs that run the program"
                .into(),
        );
    }
    model.tick_hz = INTERRUPTS_HZ;
    model.tick_ns = 1e9 / INTERRUPTS_HZ * used.interrupts / used.busy();
    model.recorded = Some(Recorded {
        cpus: used.cpus,
        of: used.all,
        cpu_model: recording.manifest.cpu_model.clone(),
        shape: recording.manifest.shape.as_ref().and_then(|s| used.shape(s)),
        sleep_ns: None,
        threads,
        halt_ns: halt(&used, &workers),
        handover_ns: 0.0,
        transfer_ns: beside.transfer.as_ref().and_then(|t| t.same_package).unwrap_or(0.0),
        workers: workers.threads,
        unseen: unseen(recording, &model, &used, &workers, &mut notes),
        resident_bytes: recording.tables.get("summary").and_then(|t| t.int(0, "max_rss")).unwrap_or(0),
        command: recording.manifest.command.clone(),
        throughput: units / own,
        layers: used.layers(),
    });
    if let Some(growth) = &beside.growth {
        growth.put(&mut model, per_unit, &mut notes)?;
    }
    if let Some(words) = &beside.words {
        words.put(&mut model, &mut notes);
    }
    let lines = lines::put(&mut model, recording, per_unit, used.cpus, &mut notes);
    let seen = locks::seen(recording, &names, &model.lock, &about);
    for (lock, seen) in model.lock.iter_mut().zip(&seen) {
        lock.hold_ns = seen.first.map(|f| f.ns).or(seen.behind).unwrap_or(lock.hold_ns);
        if let Some((held, each)) = seen.held {
            (lock.takes, lock.hold_ns) = (held / each, each);
        }
        lock.lines = if lock.kind == LockKind::Qspin { locks::LINES } else { locks::LINES_ASLEEP };
    }
    let slack = slack(recording, &used, &workers, threads);
    calibrate::calibrate(&mut model, (&seen, &lines), slack, per_unit)?;
    let counts = (beside.counted.as_ref(), &beside.takes[..]);
    taken::put(&mut model, (&seen, &lines), counts, (slack, per_unit), throughput.is_some(), &mut notes)?;
    let sleep_ns = model.sleep_ns;
    let modelled = match used.cpus {
        1 => 0.0,
        _ => model.recorded.as_ref().map_or(0.0, |r| r.unseen - without_modelled(&model, r.unseen)),
    };
    if let Some(recorded) = &mut model.recorded {
        recorded.sleep_ns = Some(sleep_ns);
        recorded.unseen -= modelled;
    }
    if let Some(handed) = model.recorded.as_ref().map(|r| r.handover_ns).filter(|ns| *ns > DEAR) {
        notes.push(format!(
            "handing a spinlock to another CPU took {handed:.0} ns more than a line's transfer on the recorded machine, as it does on \
             virtual CPUs and under tracing; the predicted machine has what its own file says (`handover`), or the same"
        ));
    }
    Ok(Learnt { model, notes })
}

/// Calls that take a lock of the process: of its memory, and of its table of files.
const LOCKING: [&str; 20] = [
    "mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "mlock", "mlock2", "munlock", "open", "openat",
    "openat2", "close", "dup", "dup2", "dup3", "fcntl", "pipe2", "socket", "accept4",
];
/// A smaller share of the time gets no note.
const TOLD: f64 = 0.05;

/// Waits of a smaller share of the CPU time do not show. A lock that is busy for a share s of the time makes two threads wait for about
/// s squared of it.
const SHOWN: f64 = 0.01;

/// How likely another CPU runs the program while one does: a lock that is never wanted by two at once has no waits. One CPU alone shows
/// none.
fn overlap(used: &Used) -> f64 {
    match used.cpus {
        0 | 1 => 0.0,
        _ => ((used.target + used.spin) / used.capacity().max(f64::MIN_POSITIVE)).min(1.0),
    }
}

/// The part of a share of the time in locks that may have no waits in the recording.
fn hidden(share: f64, overlap: f64) -> f64 {
    (1.0 - overlap) * share + overlap * share.min(SHOWN.sqrt())
}

/// Share of the CPU time in calls and faults that take locks which threads share, as far as the recording would not have shown that they
/// wait for one another.
fn unseen(
    recording: &Recording,
    model: &Model,
    used: &Used,
    workers: &Workers,
    notes: &mut Vec<String>,
) -> f64 {
    if workers.threads < 2 {
        return 0.0;
    }
    let overlap = overlap(used);
    let hidden = |share: f64| hidden(share, overlap);
    let atomics = hidden(lines::unseen_atomics(recording));
    if atomics >= TOLD {
        notes.push(format!(
            "{:.1} % of its CPU time is in atomic operations, and {} does not show which memory threads share: the band reaches down to \
             where all of them are on one line",
            10.0 * atomics,
            seldom(used.cpus)
        ));
    }
    // Processes share neither memory nor files.
    if workers.threads as usize <= workers.pids.len() {
        return atomics;
    }
    let all: f64 = model.mix.iter().map(|s| s.weight).sum();
    let locks = |s: &&Share| {
        s.class == SampleClass::Fault
            || s.class == SampleClass::Syscall && LOCKING.contains(&s.detail.as_str())
    };
    let unread = hidden(lines::unread(recording));
    if unread >= TOLD {
        notes.push(format!(
            "{:.0} % of its CPU time is in user code that ncpu could not read, so whether its threads write the same memory is not known, and {} \
             does not show it: the band reaches down to where all of that is done one at a time; record for longer, or where ncpu gets CPU \
             time of its own",
            100.0 * unread,
            seldom(used.cpus)
        ));
    }
    let user = 1.0 - (1.0 - atomics) * (1.0 - unread);
    let share = hidden(model.mix.iter().filter(locks).map(|s| s.weight).sum::<f64>() / all.max(1.0));
    if share < TOLD {
        return user;
    }
    let name =
        |s: &Share| if s.class == SampleClass::Fault { "page faults".to_string() } else { s.detail.clone() };
    let mut most: Vec<String> = model.mix.iter().filter(locks).map(name).collect();
    most.dedup();
    most.truncate(3);
    notes.push(format!(
        "{:.0} % of its CPU time is in calls and faults that take locks of the process ({}), which its threads share, and {} does not show \
         whether they wait for one another: the band reaches down to where all of that is done one at a time",
        100.0 * share,
        most.join(", "),
        seldom(used.cpus)
    ));
    1.0 - (1.0 - share) * (1.0 - user)
}

/// Why waits would not show.
fn seldom(cpus: u32) -> &'static str {
    match cpus {
        0 | 1 => "one CPU",
        _ => "a recording in which so few of them ran at the same time",
    }
}

/// Without the part of a unit in which the model has it hold locks of the kernel, or write lines.
fn without_modelled(model: &Model, unseen: f64) -> f64 {
    let kernel = model.lock.iter().filter(|l| l.kernel);
    let held: f64 = kernel.map(|l| l.takes * l.hold_ns).sum();
    let lines: f64 = model.line.iter().map(|l| l.writes * crate::sim::OWNED_NS).sum();
    (unseen - (held + lines) / (held + lines + model.work_ns).max(f64::MIN_POSITIVE)).max(0.0)
}

/// A smaller part of a thread is that of one that has just been woken.
const PART: f64 = 0.2;

/// How the simulated threads waited, as far as known.
fn slack(recording: &Recording, used: &Used, workers: &Workers, threads: u32) -> calibrate::Slack {
    // Threads that hand work over are simulated as fewer: how they stood behind one another is not known then.
    if threads < workers.threads {
        return calibrate::Slack::default();
    }
    // Idle CPUs are charged to this while nobody has work: all of them are.
    let asleep = recording.tables.get("idle_time").map_or(0.0, |t| sum(t, "asleep"));
    let asleep = asleep / f64::from(used.all) / used.elapsed;
    calibrate::Slack { active: workers.active(used.elapsed), asleep: asleep.min(0.95) }
}

/// How long an idle CPU took until it ran what another woke, ns. Only where CPUs idle most of the time do threads that are
/// ready wait for that and not for a CPU.
fn halt(used: &Used, workers: &Workers) -> f64 {
    if used.cpus < 2 || used.idle < 0.5 * used.capacity() || workers.switches < 100.0 {
        return 0.0;
    }
    // The wake-up time of a simulated CPU once it runs again.
    let wake = Hardware::of_shape(Shape { packages: 1, clusters: 1, cores: 1, strands: 1 }).wake_ns;
    (workers.latency / workers.switches * 1e9 - wake).max(0.0)
}

/// Notes the information that the recording lacks.
fn beware(recording: &Recording, used: &Used, notes: &mut Vec<String>) {
    if recording.manifest.view.is_some() {
        let locks = match recording.tables.contains_key("user_locks") {
            true => "the kernel's locks are not known, and the model lacks them",
            false => {
                "the program's locks are not known, and the model has none (`ncpu run --preload locks` records those of \
                 pthreads)"
            }
        };
        notes.push(format!(
            "recorded without root: {locks}; time in calls and faults is work like any other, and waiting for locks or work \
             that could not be told apart is taken for work that only one thread can do; record it as root for more"
        ));
    } else if !recording.tables.contains_key("locks") {
        notes.push("the recording has no table `locks`: the model lacks the kernel's locks".into());
    }
    if used.cpus < used.all {
        notes.push(format!(
            "the program could use {} of the machine's {} CPUs: its recording is that of a machine of {0}",
            used.cpus, used.all
        ));
    }
    if used.cpus == 1 {
        notes.push(
            "recorded on one CPU, where nobody waits for a lock whose holder runs: the model has those whose holders lost the CPU \
             meanwhile, and none of the kernel's spinlocks; a second recording on two CPUs tells of them"
                .into(),
        );
    }
    let share = used.others / used.capacity();
    if share > 0.05 {
        notes.push(format!(
            "other programs, ncpu and the hypervisor took {:.0} % of the recorded capacity; the program is taken to have \
             had the rest to itself, which is coarse: record where it is quiet",
            100.0 * share
        ));
    }
}

/// Puts into the model what its threads wait for when not for locks; how many of them could work at the same time.
fn waiting(
    model: &mut Model,
    recording: &Recording,
    used: &Used,
    workers: &Workers,
    others: f64,
    units: f64,
    notes: &mut Vec<String>,
) -> u32 {
    let capacity = used.capacity();
    let (asked, late, pauses) = threads::pauses(recording, workers, others, used.elapsed);
    model.sleep_ns = asked / units * 1e9;
    model.wait_ns = late / units * 1e9;
    if let Some(uneven) = threads::uneven(recording, workers, used.elapsed) {
        let threads = ((f64::from(workers.threads) / uneven).round() as u32).max(1);
        model.uneven = uneven;
        notes.push(format!(
            "the busiest of {} workers has {uneven:.1} times as much to do as they have on average, and hardly ever nothing: connections were \
             accepted unevenly, and as much is done as by {threads} (`accept balanced` of --fix)",
            workers.threads
        ));
        return threads;
    }
    let rest =
        (workers.sleep - asked - late).min(f64::from(workers.threads) * used.elapsed - workers.cpu).max(0.0);
    if rest < 0.02 * f64::from(workers.threads) * used.elapsed {
        return workers.threads;
    }
    // Without root nobody can tell waiting for work from waiting for a lock.
    let idle = |c: &str| recording.tables.get("idle_time").map_or(0.0, |t| sum(t, c));
    let serial_idle = idle("serial") + idle("ulock or serial");
    let io = idle("io") + idle("klock or io");
    let all = io + serial_idle + idle("asleep");
    let io_share = if all > 0.0 { io / all } else { 0.0 };
    // A CPU that never idles: every waiting thread waits for another one. Where some threads pause for a time, the
    // rest wait for these.
    let full = used.cpus == 1 && used.idle < 0.05 * capacity;
    let paused = asked + late > 0.05 * workers.sleep;
    let handed = io_share < 0.5 && workers.each_sleep() < HANDED_OVER;
    if workers.threads > 1 && (full || paused || handed) {
        let pausing = (asked + late) / used.elapsed;
        let active = workers.active(used.elapsed) + pausing;
        // Where work is handed over, a thread that was woken and the one that woke it are one for a while: on several CPUs those that have
        // one count, and a part of a thread is one that waits for the rest of the time.
        let whole = match handed {
            _ if used.cpus == 1 => (workers.side_by_side(used.elapsed) + pausing).round(),
            true => (workers.running(used.elapsed, 1.0 - used.others / capacity) + pausing - PART).ceil(),
            false => active.round(),
        };
        let threads = (whole.max(1.0) as u32).min(workers.threads);
        if threads < workers.threads {
            notes.push(format!(
                "{} threads of which {active:.1} at a time had work: they hand it to one another, and are simulated as {threads}",
                workers.threads
            ));
            // A pause is not a hand-over.
            model.handovers = (workers.switches - pauses).max(0.0) / units;
            return threads;
        }
    }
    if used.cpus > 1 && used.cpus == used.all && serial_idle > 0.02 * capacity && workers.threads > 1 {
        // One of c CPUs works, the others idle.
        let serial = (serial_idle / f64::from(used.cpus - 1)).min(used.target);
        model.serial_ns = serial / units * 1e9;
        model.work_ns = (model.work_ns - model.serial_ns).max(0.02 * used.target / units * 1e9);
        notes.push(format!(
            "{:.1} % of the capacity idled while fewer threads ran than there were CPUs: taken as {:.1} % of the work that only one \
             thread can do; a program that lacks threads for another reason is foretold too low",
            100.0 * serial_idle / capacity,
            100.0 * serial / used.target
        ));
        return workers.threads;
    }
    model.io_ns = rest * io_share / units * 1e9;
    model.wait_ns += rest * (1.0 - io_share) / units * 1e9;
    workers.threads
}

/// The program's CPU time by class, from its samples.
fn mix(recording: &Recording) -> Vec<Share> {
    let Some(samples) = recording.tables.get("samples") else { return Vec::new() };
    let mut shares = BTreeMap::<(SampleClass, String), f64>::new();
    for row in 0..samples.num_rows() {
        let class = samples.text(row, "class").and_then(|class| SampleClass::of_name(class).ok());
        let (Some("target"), Some(class)) = (samples.text(row, "at"), class) else { continue };
        // The cost of observing is not part of the program, and spinning belongs to its locks.
        if matches!(class, SampleClass::Probe | SampleClass::LockSpin) {
            continue;
        }
        let detail = samples.text(row, "detail").unwrap_or_default();
        *shares.entry((class, detail.into())).or_default() += samples.number(row, "samples").unwrap_or(0.0);
    }
    let mut all: Vec<Share> =
        shares.into_iter().map(|((class, detail), weight)| Share { class, detail, weight }).collect();
    all.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    all.truncate(24);
    all
}
