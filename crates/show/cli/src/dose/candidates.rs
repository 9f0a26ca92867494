//! Which places are worth a dose: those where a first look at the program finds one per cent of the CPUs or more.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ncpu_collectors::doses::{Function, Place, Survey};
use ncpu_collectors::lock_names::LockNamer;
use ncpu_dose::gain::shorter;
use ncpu_dose::place::Candidate;
use ncpu_files::reader::process_text;
use ncpu_machine::process;
use ncpu_observe_core::names::call_name;
use ncpu_record::Recording;
use ncpu_report::findings::Findings;
use ncpu_schema::{DosePlace, Layer, StackKind, stacks, user_locks};
use ncpu_table::safe;

use super::windows::{Spot, lock_name};

/// The part of the CPUs below which a place is not tried.
const LEAST: f64 = 0.01;

/// Places of each kind that are tried.
const EACH: usize = 4;

/// Functions that are looked at for how often they are called: those in which a thread stays, and those that are called too often
/// for a probe, are not tried.
const LOOKED_AT: usize = 3 * EACH;

/// The part of the program's speed that a probe in a function is to leave, in a single window.
const KEPT: f64 = 0.4;

/// Leaves of the functions that were found those that the program comes to, and not too often for a probe; at most [`EACH`]. And
/// the names of those that it comes to too often. `probed` returns how often a second that is, and the part of the program's speed
/// that is left with a probe there, or nothing where that is not known.
///
/// # Errors
/// Those of `probed`.
pub fn worth_a_probe(
    found: Vec<Found>,
    mut probed: impl FnMut(usize) -> anyhow::Result<Option<(f64, f64)>>,
) -> anyhow::Result<(Vec<Found>, Vec<String>)> {
    let (mut out, mut too_often, mut functions) = (Vec::new(), Vec::new(), 0);
    for (at, (mut candidate, spot)) in found.into_iter().enumerate() {
        if candidate.kind == DosePlace::Function {
            if functions == EACH {
                continue;
            }
            if let Some((rate, kept)) = probed(at)? {
                if kept < KEPT {
                    too_often.push(candidate.name);
                    continue;
                }
                if rate == 0.0 {
                    continue;
                }
                candidate.rate = rate;
            }
            functions += 1;
        }
        out.push((candidate, spot));
    }
    Ok((out, too_often))
}

/// The part of the program's CPU time below which a function is not tried: a probe in a function costs a microsecond or more a call.
const LEAST_FUNCTION: f64 = 0.10;

/// The part above which a function is the program: without it nothing would be left.
const MOST_FUNCTION: f64 = 0.9;

/// CPU-seconds that a fault and a wake-up take where no layer says more.
const FAULT: f64 = 0.5e-6;
const WAKE_UP: f64 = 2e-6;

/// Doses of a process.
const HITS_OF_A_PROCESS: f64 = 3.0;

/// The factor by which these may be wrong.
const GUESSED: f64 = 2.0;

/// Calls that wait: their time is not theirs.
const WAITING: [&str; 19] = [
    "futex",
    "nanosleep",
    "clock_nanosleep",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "sched_yield",
    "pause",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "wait4",
    "waitid",
    "restart_syscall",
    "futex_wait",
    "futex_waitv",
];

/// Calls of runtimes that stop their own threads, and of signal handlers: they come by the clock, and not with the work.
const SIGNALLING: [&str; 9] = [
    "kill",
    "tkill",
    "tgkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "pidfd_send_signal",
    "rt_sigreturn",
    "rt_sigprocmask",
    "sigaltstack",
];

/// Whether a system call sleeps for a device alone, and not for another thread, a client or the clock.
fn waits_for_a_device(call: &str) -> bool {
    const OF_FILES: [&str; 11] = [
        "fsync",
        "fdatasync",
        "sync",
        "syncfs",
        "sync_file_range",
        "msync",
        "pread64",
        "preadv",
        "preadv2",
        "pwrite64",
        "pwritev",
    ];
    OF_FILES.contains(&call)
}

/// Whether a system call is made to wait, and not to get work done.
pub fn is_waiting(call: &str) -> bool {
    WAITING.contains(&call)
}

/// Results of a first look.
pub struct Looked {
    pub survey: Survey,
    pub recording: Option<Recording>,
    pub cpus: f64,
    /// Threads that compute; 0 where that is not known, as where they come and go.
    pub threads: usize,
    /// Files with its code: see [`code_of`].
    pub files: Vec<PathBuf>,
}

/// A candidate with where it is.
pub type Found = (Candidate, Spot);

impl Looked {
    /// Whether the program starts processes, or threads, again and again.
    pub fn starts_processes(&self) -> bool {
        const STARTING: [&str; 4] = ["fork", "vfork", "clone", "clone3"];
        self.survey.calls.iter().any(|call| STARTING.contains(&&*call_name(call.number)))
    }

    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.survey.seconds.max(1e-3)
    }

    fn bound(&self, busy: f64) -> Option<f64> {
        Some(shorter(busy / self.cpus))
    }

    /// The places worth trying, by kind.
    pub fn candidates(&self, namer: &mut LockNamer) -> anyhow::Result<Vec<Found>> {
        let findings = self.recording.as_ref().map(Findings::of).transpose()?;
        let mut out = self.locks(namer, findings.as_ref());
        out.extend(self.mutexes()?);
        out.extend(self.calls());
        out.extend(self.processes(findings.as_ref())?);
        out.extend(self.faults()?);
        out.extend(self.wake_ups());
        out.extend(self.functions()?);
        Ok(out)
    }

    /// Kernel locks, those of one name together.
    fn locks(&self, namer: &mut LockNamer, findings: Option<&Findings>) -> Vec<Found> {
        let addresses: Vec<u64> = self.survey.locks.iter().map(|lock| lock.address).collect();
        namer.resolve(&addresses);
        let mut by_name: HashMap<String, (u64, f64)> = HashMap::new();
        for lock in &self.survey.locks {
            let sum = by_name.entry(lock_name(namer, lock.address)).or_default();
            sum.0 += lock.count;
            sum.1 += lock.waited;
        }
        let mut all: Vec<(String, (u64, f64))> = by_name.into_iter().collect();
        all.sort_by(|a, b| b.1.1.total_cmp(&a.1.1));
        let mut out = Vec::new();
        for (name, (count, waited)) in all.into_iter().take(EACH) {
            let busy = waited / self.survey.seconds.max(1e-3);
            if busy < LEAST * self.cpus {
                continue;
            }
            let named = |title: &str| title.contains(&name);
            let cause =
                findings.iter().flat_map(|f| f.list.iter().chain(&f.others)).find(|f| named(&f.title));
            let candidate = Candidate {
                busy: Some(busy),
                bound: cause.map(|f| f.gain.1).or_else(|| self.bound(busy)),
                ..Candidate::new(DosePlace::KernelLock, &name, self.rate(count))
            };
            out.push((candidate, Spot::Locks(name)));
        }
        out
    }

    /// pthread mutexes, all of the program together: their common function is where they are held.
    fn mutexes(&self) -> anyhow::Result<Option<Found>> {
        const FUNCTION: &str = "pthread_mutex_lock";
        let library = self.files.iter().find(|file| is_c_library(file));
        let (Some(recording), Some(library)) = (&self.recording, library) else { return Ok(None) };
        let Some(locks) = user_locks::Reader::open(recording)? else { return Ok(None) };
        let (mut waited, mut count, mut name) = (0.0, 0, (0.0, String::new()));
        for row in locks.rows() {
            if !locks.stack.get(row).is_some_and(|stack| stack.contains(FUNCTION)) {
                continue;
            }
            let seconds = locks.spin.get(row).unwrap_or(0.0) + locks.block.get(row).unwrap_or(0.0);
            waited += seconds;
            count += locks.count.get(row).unwrap_or(0);
            if seconds > name.0 {
                name = (seconds, locks.lock.get(row).unwrap_or_default().to_owned());
            }
        }
        let elapsed = ncpu_report::onion::Onion::peel(recording)?.elapsed.max(1e-3);
        if waited < LEAST * self.cpus * elapsed {
            return Ok(None);
        }
        let Ok(Some(function)) = Function::find(library, FUNCTION, true) else { return Ok(None) };
        let name = format!("{FUNCTION} ({})", name.1);
        let candidate = Candidate::new(DosePlace::UserLock, &name, count as f64 / elapsed);
        Ok(Some((candidate, Spot::Fixed(Place::Function(function)))))
    }

    fn calls(&self) -> Vec<Found> {
        let mut all: Vec<(f64, Found)> = Vec::new();
        for call in &self.survey.calls {
            let name = call_name(call.number);
            // Calls that slept or lost their CPU are left out of the time, save where sleep is what the call is for; those that were not
            // seen whole take as long as the others.
            let sleeps = waits_for_a_device(&name) && call.awake < call.whole / 2;
            let each = match sleeps {
                true => call.whole_seconds / call.whole.max(1) as f64,
                false => call.seconds / call.awake.max(1) as f64,
            };
            let busy = each * self.rate(if sleeps { call.count } else { call.awake });
            if busy < LEAST * self.cpus || is_waiting(&name) {
                continue;
            }
            let candidate = Candidate {
                busy: Some(busy),
                each: Some(busy / self.rate(call.count)),
                sleeps,
                bound: self.bound(busy).filter(|_| !sleeps),
                ..Candidate::new(DosePlace::Call, &name, self.rate(call.count))
            };
            all.push((busy, (candidate, Spot::Fixed(Place::Call(call.number)))));
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.truncate(EACH);
        all.into_iter().map(|(_, found)| found).collect()
    }

    /// Processes that are started, do little and end: what they cost is the CPU time of that cause in the report.
    fn processes(&self, findings: Option<&Findings>) -> anyhow::Result<Option<Found>> {
        const CAUSE: &str = "short-lives";
        const ON_CPU: [Layer; 8] = [
            Layer::User,
            Layer::Calls,
            Layer::Kernel,
            Layer::Faults,
            Layer::Tlb,
            Layer::KernelSpin,
            Layer::Switches,
            Layer::OtherKernel,
        ];
        let (Some(recording), Some(findings)) = (&self.recording, findings) else { return Ok(None) };
        let onion = ncpu_report::onion::Onion::peel(recording)?;
        let own: f64 = ON_CPU.iter().map(|layer| onion.seconds(*layer)).sum();
        let Some(cause) = findings.list.iter().find(|cause| cause.id == CAUSE && own > 0.0) else {
            return Ok(None);
        };
        let share = (cause.seconds / own).min(1.0);
        let busy = share * own / onion.elapsed.max(1e-3);
        let candidate = Candidate {
            busy: Some(busy),
            share: Some(share),
            bound: self.bound(busy),
            ..Candidate::new(DosePlace::Processes, "", HITS_OF_A_PROCESS * self.started()?)
        };
        Ok(Some((candidate, Spot::Fixed(Place::Processes))))
    }

    /// How often a second a program is started.
    fn started(&self) -> anyhow::Result<f64> {
        let number = call_number("execve")?;
        let call = self.survey.calls.iter().find(|call| call.number == number);
        Ok(call.map_or(0.0, |call| self.rate(call.count)).max(1.0))
    }

    /// CPU-seconds a second in a layer.
    fn layer(&self, layer: Layer) -> anyhow::Result<Option<f64>> {
        let Some(recording) = &self.recording else { return Ok(None) };
        let onion = ncpu_report::onion::Onion::peel(recording)?;
        Ok((onion.elapsed > 0.0).then(|| onion.seconds(layer) / onion.elapsed))
    }

    fn faults(&self) -> anyhow::Result<Option<Found>> {
        let Some(count) = self.survey.faults else { return Ok(None) };
        let rate = self.rate(count);
        let of_layer = self.layer(Layer::Faults)?;
        let busy = of_layer.unwrap_or(rate * FAULT);
        let candidate = Candidate {
            busy: Some(busy),
            each: (rate > 0.0).then(|| busy / rate),
            within: if of_layer.is_some() { 1.0 } else { GUESSED },
            bound: self.bound(busy),
            ..Candidate::new(DosePlace::Faults, "", rate)
        };
        Ok((busy >= LEAST * self.cpus && count > 0).then_some((candidate, Spot::Fixed(Place::Faults))))
    }

    fn wake_ups(&self) -> Option<Found> {
        let rate = self.rate(self.survey.wakeups);
        let busy = rate * WAKE_UP;
        let candidate = Candidate {
            busy: Some(busy),
            each: (rate > 0.0).then(|| busy / rate),
            within: GUESSED,
            bound: self.bound(busy),
            ..Candidate::new(DosePlace::WakeUps, "", rate)
        };
        (busy >= LEAST * self.cpus).then_some((candidate, Spot::Fixed(Place::WakeUps)))
    }

    /// Functions of the program and its libraries in which threads are on CPU, with what they call.
    fn functions(&self) -> anyhow::Result<Vec<Found>> {
        let Some(recording) = &self.recording else { return Ok(Vec::new()) };
        let Some(stacks) = stacks::Reader::open(recording)? else { return Ok(Vec::new()) };
        let samples: Vec<(Vec<&str>, f64)> = stacks
            .rows()
            .filter(|&row| stacks.kind.get(row) == Some(StackKind::OnCpu))
            .filter_map(|row| {
                // The first word is the thread.
                let frames = stacks.stack.get(row)?.split(';').skip(1).filter(|f| !f.ends_with("_[k]"));
                Some((frames.collect(), stacks.seconds.get(row).unwrap_or(0.0)))
            })
            .collect();
        let elapsed = ncpu_report::onion::Onion::peel(recording)?.elapsed.max(1e-3);
        let all: f64 = samples.iter().map(|sample| sample.1).sum();
        let mut out = Vec::new();
        for (name, seconds) in hot(&samples, LEAST_FUNCTION * all) {
            if seconds > MOST_FUNCTION * all {
                continue;
            }
            // One without a symbol, as an inlined one, has no entry.
            let Some(function) = found_in(&self.files, name, false) else { continue };
            let candidate = Candidate {
                busy: Some(seconds / elapsed),
                share: (all > 0.0).then(|| seconds / all),
                bound: self.bound(seconds / elapsed),
                // How often it is called is not known before a probe is there.
                ..Candidate::new(DosePlace::Function, name, 1e6)
            };
            out.push((candidate, Spot::Fixed(Place::Function(function))));
            if out.len() == LOOKED_AT {
                break;
            }
        }
        Ok(out)
    }
}

/// The part of a function's time below which one that it calls is not all that it does.
const ALL: f64 = 0.95;

/// Functions, in samples of stacks with outer ones first, that have at least `least` seconds with those that they call, most
/// first. One that does no more than call another is left out: threads run in it from the beginning to the end.
fn hot<'a>(samples: &[(Vec<&'a str>, f64)], least: f64) -> Vec<(&'a str, f64)> {
    let mut by_name: HashMap<&str, f64> = HashMap::new();
    let mut pairs: HashMap<(&str, &str), f64> = HashMap::new();
    for (frames, seconds) in samples {
        // A function that calls itself counts once.
        let mut seen: Vec<&str> = frames.clone();
        seen.sort_unstable();
        seen.dedup();
        for frame in seen {
            *by_name.entry(frame).or_default() += seconds;
        }
        let mut calls: Vec<(&str, &str)> = frames
            .windows(2)
            .map(|pair| (pair[0], pair[1]))
            .filter(|(outer, inner)| outer != inner)
            .collect();
        calls.sort_unstable();
        calls.dedup();
        for pair in calls {
            *pairs.entry(pair).or_default() += seconds;
        }
    }
    for ((outer, _), seconds) in pairs {
        if by_name.get(outer).is_some_and(|all| seconds >= ALL * all) {
            by_name.remove(outer);
        }
    }
    let mut all: Vec<(&str, f64)> = by_name.into_iter().filter(|(_, seconds)| *seconds >= least).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    all
}

/// The most files whose code is looked through for functions.
const FILES: usize = 64;

/// Files with code that a process has mapped, its program's first, as they are seen from here: a command's process has ended when
/// the next run is measured, and its paths in `/proc` with it.
pub fn code_of(pid: u32) -> Vec<PathBuf> {
    let dir = Path::new("/proc").join(pid.to_string());
    let Ok(text) = process_text(&dir, pid, "maps") else { return Vec::new() };
    let program = std::fs::read_link(dir.join("exe")).ok();
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    for mapping in process::mappings(&text) {
        let path = mapping.path();
        let Ok(below) = path.strip_prefix("/") else { continue };
        if !mapping.execute || mapping.is_deleted() || !seen.insert((mapping.device, mapping.inode)) {
            continue;
        }
        let is_same = std::fs::metadata(path).is_ok_and(|found| {
            (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev())) == mapping.device
                && found.ino() == mapping.inode
        });
        let at = if program.as_deref() == Some(path) { 0 } else { files.len() };
        files.insert(at, if is_same { path.to_owned() } else { dir.join("root").join(below) });
        if files.len() == FILES {
            break;
        }
    }
    files
}

fn is_c_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("libc.so") || name.starts_with("libc-2") || name.starts_with("ld-musl")
}

/// A place that the user names.
///
/// # Errors
/// There is no such kind, call, or function.
pub fn named(text: &str, files: &[PathBuf], survey: &Survey) -> anyhow::Result<Found> {
    let (kind, name) = text.split_once(':').unwrap_or((text, ""));
    let number =
        || name.parse::<u32>().with_context(|| format!("--place {}: not a number", safe::cut(text, 100)));
    let rate = |count: u64| count as f64 / survey.seconds.max(1e-3);
    let found = |kind, name: &str, rate, spot| (Candidate::new(kind, name, rate), spot);
    Ok(match kind {
        "lock" if !name.is_empty() => found(DosePlace::KernelLock, name, 1e6, Spot::Locks(name.to_owned())),
        "call" => {
            let number = call_number(name)?;
            let seen = survey.calls.iter().find(|call| call.number == number);
            let (mut candidate, spot) = found(
                DosePlace::Call,
                name,
                seen.map_or(1e3, |call| rate(call.count)),
                Spot::Fixed(Place::Call(number)),
            );
            candidate.each = seen.map(|call| call.seconds / call.awake.max(1) as f64);
            (candidate, spot)
        }
        "processes" => found(DosePlace::Processes, "", 1e3, Spot::Fixed(Place::Processes)),
        "faults" => found(
            DosePlace::Faults,
            "",
            rate(survey.faults.unwrap_or(1000)).max(1.0),
            Spot::Fixed(Place::Faults),
        ),
        "wake-ups" => {
            found(DosePlace::WakeUps, "", rate(survey.wakeups).max(1.0), Spot::Fixed(Place::WakeUps))
        }
        "function" | "user-lock" => {
            let at_return = kind == "user-lock";
            let function = function(name, files, at_return)?;
            let kind = if at_return { DosePlace::UserLock } else { DosePlace::Function };
            let short = name.rsplit(':').next().unwrap_or(name);
            found(kind, short, 1e6, Spot::Fixed(Place::Function(function)))
        }
        "softirq" => found(DosePlace::Softirq, name, 1e3, Spot::Fixed(Place::Softirq(number()?))),
        "interrupt" => found(DosePlace::Interrupt, name, 1e3, Spot::Fixed(Place::Interrupt(number()?))),
        _ => usage!(
            "--place {}: unknown place; expected one of lock:NAME, call:NAME, faults, wake-ups, processes, \
             function:[FILE:]NAME, user-lock:[FILE:]NAME, softirq:NUMBER, interrupt:NUMBER",
            safe::cut(text, 100)
        ),
    })
}

/// The function of this name in the first file that has it.
fn found_in(files: &[PathBuf], name: &str, at_return: bool) -> Option<Function> {
    files.iter().find_map(|file| Function::find(file, name, at_return).ok().flatten())
}

/// A function, `[FILE:]NAME`, of the first of the program's files that has it without one.
///
/// # Errors
/// No file has such a symbol, or it cannot be read or have a probe.
pub fn function(text: &str, files: &[PathBuf], at_return: bool) -> anyhow::Result<Function> {
    let (files, name) = match text.split_once(':').filter(|(path, _)| path.contains('/')) {
        Some((path, name)) => (vec![PathBuf::from(path)], name),
        None => (files.to_vec(), text),
    };
    let first = files.first().context("which file has the function? give FILE:NAME")?;
    for file in &files {
        let found = Function::find(file, name, at_return).with_context(|| file.display().to_string())?;
        if let Some(function) = found {
            return Ok(function);
        }
    }
    anyhow::bail!("{} has no symbol `{}`, or several", first.display(), safe::cut(name, 100))
}

/// The number of a system call.
///
/// # Errors
/// There is no call of this name.
pub fn call_number(name: &str) -> anyhow::Result<u32> {
    (0..512)
        .find(|&nr| call_name(nr) == name)
        .with_context(|| format!("unknown system call `{}`", safe::cut(name, 100)))
}

/// The most regular of the calls that get work done: the one whose number in equal times varies least; among nearly
/// equally regular calls, the most frequent. `None` where none is frequent.
pub fn regular(bins: &[Vec<u64>], seconds: f64) -> Option<(u32, f64)> {
    const FREQUENT: f64 = 100.0;
    let calls = bins.first()?.len();
    let mut all: Vec<(f64, f64, u32)> = Vec::new();
    let counts_work = |nr: &usize| {
        let name = call_name(*nr as u32);
        !is_waiting(&name) && !SIGNALLING.contains(&name.as_str())
    };
    for nr in (0..calls).filter(counts_work) {
        let counts: Vec<f64> = bins.iter().map(|bin| bin[nr] as f64).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        if mean / seconds < FREQUENT {
            continue;
        }
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / counts.len() as f64;
        // Counts vary by their root where they are independent: that is not irregular.
        let spread = (variance - mean).max(0.0).sqrt() / mean;
        all.push((spread, mean / seconds, nr as u32));
    }
    let least = all.iter().map(|call| call.0).fold(f64::INFINITY, f64::min);
    let near = all.into_iter().filter(|call| call.0 <= 1.3 * least + 0.01);
    near.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(_, rate, nr)| (nr, rate))
}

/// Time of a bin in which calls are counted to find the most regular one.
pub const BIN: Duration = Duration::from_millis(25);

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(of: impl Fn(usize) -> Vec<(&'static str, u64)>) -> Vec<Vec<u64>> {
        (0..20)
            .map(|bin| {
                let mut counts = vec![0; 512];
                for (name, count) in of(bin) {
                    counts[call_number(name).unwrap() as usize] = count;
                }
                counts
            })
            .collect()
    }

    #[test]
    fn the_most_regular_call_counts_the_work() {
        // futex follows contention, mmap comes in bursts; of the regular two the frequent one is taken.
        let seen = bins(|bin| {
            let burst = if bin % 5 == 0 { 900 } else { 0 };
            vec![("futex", 9000), ("mmap", burst), ("close", 1000), ("dup2", 1001)]
        });
        let (call, rate) = regular(&seen, 0.025).unwrap();
        assert_eq!(call_name(call), "dup2");
        assert!((rate - 40_040.0).abs() < 1.0);
        assert_eq!(regular(&bins(|_| vec![("futex", 9000), ("read", 1)]), 0.025), None);
        assert_eq!(regular(&[], 0.025), None);
        // Go's runtime stops its threads by signals, a hundred times a second whatever they do.
        let signals = |_| vec![("tgkill", 9), ("rt_sigreturn", 9), ("futex", 400)];
        assert_eq!(regular(&bins(signals), 0.025), None);
    }

    #[test]
    fn functions_that_are_never_entered_or_too_often_are_left_out() {
        let found = |kind, name: &str| {
            let candidate = Candidate { busy: Some(1.0), ..Candidate::new(kind, name, 1e6) };
            (candidate, Spot::Fixed(Place::Faults))
        };
        let mut all = vec![found(DosePlace::Call, "read")];
        all.extend(
            ["loop", "tiny", "parse", "lost", "a", "b", "c"].map(|name| found(DosePlace::Function, name)),
        );
        let told = [None, Some((0.0, 1.0)), Some((2e5, 0.1)), Some((1e3, 0.98)), None];
        let (left, too_often) =
            worth_a_probe(all, |at| Ok(told.get(at).copied().unwrap_or(Some((1e3, 1.0))))).unwrap();
        let names: Vec<&str> = left.iter().map(|f| &*f.0.name).collect();
        assert_eq!(names, ["read", "parse", "lost", "a", "b"]);
        assert_eq!((left[1].0.rate, left[2].0.rate), (1e3, 1e6));
        assert_eq!(too_often, ["tiny"]);
    }

    #[test]
    fn a_function_that_does_no_more_than_call_another_is_left_out() {
        let samples: Vec<(Vec<&str>, f64)> = [
            ("main;thread;work;parse", 3.0),
            ("main;thread;work;parse;parse;copy", 1.0),
            ("main;thread;work;write_all", 4.0),
            ("main;thread;work", 0.1),
            ("main;stop", 0.2),
        ]
        .map(|(stack, seconds)| (stack.split(';').collect(), seconds))
        .into();
        // `main` and `thread` do nothing of their own; `parse` counts once where it calls itself.
        let found: Vec<(&str, f64)> = hot(&samples, 0.5);
        let of = |name: &str| found.iter().find(|f| f.0 == name).map(|f| f.1);
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(found[0].0, "work");
        assert!(
            (of("work").unwrap() - 8.1).abs() < 1e-9 && of("parse") == Some(4.0) && of("copy") == Some(1.0)
        );
    }

    #[test]
    fn a_process_s_code_is_found_where_it_will_stay() {
        let files = code_of(std::process::id());
        assert_eq!(files[0], std::env::current_exe().unwrap());
        assert!(files.iter().all(|file| !file.starts_with("/proc")), "{files:?}");
        assert!(files.iter().any(|file| is_c_library(file)), "{files:?}");
        let found = function("getenv", &files, false).unwrap();
        assert!(is_c_library(&found.file), "{found:?}");
    }

    #[test]
    fn places_by_name() {
        let survey = Survey { seconds: 1.0, ..Survey::default() };
        let spot = |text: &str| named(text, &[], &survey).map(|(_, spot)| spot);
        assert_eq!(spot("call:read").unwrap(), Spot::Fixed(Place::Call(call_number("read").unwrap())));
        assert_eq!(spot("lock:inode.i_rwsem").unwrap(), Spot::Locks("inode.i_rwsem".into()));
        assert_eq!(spot("interrupt:24").unwrap(), Spot::Fixed(Place::Interrupt(24)));
        for wrong in
            ["", "lock", "lock:", "call:no_such", "softirq:x", "function:f", "function:/no/such:f", "disk"]
        {
            assert!(spot(wrong).is_err(), "{wrong}");
        }
        let own = std::env::current_exe().unwrap();
        // By the name that its source has.
        let found =
            function("ncpu::dose::candidates::is_waiting", std::slice::from_ref(&own), false).unwrap();
        assert_eq!(found.file, own);
        let text = format!("function:{}:main", own.display());
        assert!(
            matches!(spot(&text).unwrap(), Spot::Fixed(Place::Function(f)) if f.file == own && f.offset > 0)
        );
    }
}
