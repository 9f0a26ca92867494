//! User code that does nothing but look whether it may go on: locks that spin, and loops around a word that another thread writes.

use std::collections::{BTreeMap, HashMap};

use ncpu_schema::{SampleClass, UserCause, user_causes, user_locks};

use super::claim::{Claim, Kind, Source};
use super::libraries::is_lock_function;
use super::names::short;
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The part of capacity from which something is claimed.
const LEAST: f64 = 0.01;

/// The part of an observation that a thread runs to be one of those that spin.
const WORKS: f64 = 0.05;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    // By process: samples of code that pauses in its loop, and of loops that only look at memory, with their part that spins.
    let mut of: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
    let busy = busy(view);
    for (at, sample) in view.samples.iter().enumerate() {
        let part = match sample.class {
            SampleClass::UserSpin | SampleClass::Spin => 1.0,
            SampleClass::WaitSpin if is_of_blas(&sample.user) => 1.0,
            SampleClass::User => {
                sample.user.first().and_then(|leaf| busy.get(&(sample.thread, leaf))).copied().unwrap_or(0.0)
            }
            _ => 0.0,
        };
        if part > 0.0 {
            of.entry(sample.process).or_default().push((at, sample.seconds * part));
        }
    }
    // Threads of a library that only wait for work spin in any program that has none for them.
    of.retain(|_, samples| samples.iter().any(|(at, _)| view.samples[*at].class != SampleClass::WaitSpin));
    of.retain(|_, samples| samples.iter().map(|(_, s)| s).sum::<f64>() >= LEAST * view.capacity());
    of.into_iter().map(|(process, samples)| claim(view, process, &samples)).collect()
}

/// Whether a function is of OpenBLAS's team of threads, on the stack of one of them or of the thread that calls it.
fn is_of_blas(user: &[&str]) -> bool {
    user.iter().any(|f| ["exec_blas", "exec_blas_async", "blas_thread_server"].contains(f))
}

/// By thread's name and function, the part of its samples that looked at memory until it changed.
fn busy<'a>(view: &View<'a>) -> HashMap<(&'a str, &'a str), f64> {
    let Ok(Some(t)) = user_causes::Reader::open(view.context.recording) else { return HashMap::new() };
    let mut sums: HashMap<(&str, &str), (f64, f64)> = HashMap::new();
    for row in t.rows() {
        let (Some(thread), Some(function), Some(n)) =
            (t.process.get(row), t.function.get(row), t.samples.get(row))
        else {
            continue;
        };
        let sum = sums.entry((thread, function)).or_default();
        sum.0 += if t.cause.get(row) == Some(UserCause::Busy) { n } else { 0.0 };
        sum.1 += n;
    }
    sums.into_iter()
        .filter(|(_, (busy, _))| *busy > 0.0)
        .map(|(key, (busy, all))| (key, busy / all))
        .collect()
}

fn claim(view: &View<'_>, process: &str, samples: &[(usize, f64)]) -> Claim {
    let (mut functions, mut places, mut in_locks) = (Most::default(), Most::default(), 0.0);
    let in_blas: f64 =
        samples.iter().filter(|(at, _)| is_of_blas(&view.samples[*at].user)).map(|(_, s)| s).sum();
    for &(at, seconds) in samples {
        let user = &view.samples[at].user;
        // Of a team's own threads it is not known who called.
        if user.contains(&"blas_thread_server") {
            continue;
        }
        let lock = user.first().is_some_and(|leaf| is_lock_function(leaf));
        in_locks += if lock { seconds } else { 0.0 };
        functions.add(&user.first().map_or_else(String::new, |leaf| short(leaf)), seconds);
        places.add(&Place::beyond(user, |frame| lock && is_lock_function(frame)).words(), seconds);
    }
    let all: f64 = samples.iter().map(|(_, s)| s).sum();
    let mut function = functions.top().map_or(String::new(), |(f, _)| f);
    let (words, place) = places.place(process);
    // Which function of the team waits depends on the operation.
    if in_blas > 0.5 * all {
        function = "exec_blas".to_string();
    }
    let when = if in_locks >= 0.5 * all { When::SpinLock } else { When::BusyWait };
    let mut claim = Claim::new(Kind::Lock, [when], format!("{function} {place}"))
        .with("process", process)
        .with("function", function)
        .with("place", place.clone())
        .with("threads", view.busy_threads(process, WORKS).to_string());
    claim.key = format!("spins {process} {place}");
    for &(at, seconds) in samples {
        claim.ask(Source::Sample(at), seconds, "spinning");
    }
    claim.line("spins in", words);
    if let Some(waited) = waited_for_blas(view, process).filter(|_| in_blas > 0.5 * all) {
        claim.line(
            "meanwhile",
            format!("threads waited {waited:.2} thread-s for OpenBLAS's lock: several call it at once"),
        );
    }
    claim
}

/// Thread-seconds in which threads of a process waited for their turn to use OpenBLAS's team.
fn waited_for_blas(view: &View<'_>, process: &str) -> Option<f64> {
    let t = user_locks::Reader::open(view.context.recording).ok()??;
    let of = t.rows().filter(|&row| {
        t.process.get(row) == Some(process)
            && t.lock.get(row).is_some_and(|lock| lock.contains("level3_lock"))
    });
    let waited: f64 = of.filter_map(|row| t.block.get(row)).sum();
    (waited >= WORKS * view.elapsed()).then_some(waited)
}
