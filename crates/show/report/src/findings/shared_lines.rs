//! Cache lines that several threads use at once while one of them writes, so that they wait for each other's caches.

use std::collections::HashMap;

use ncpu_schema::{CpuState, SampleClass, UserCause};

use super::claim::{Claim, Kind, Source};
use super::libraries::{is_lock_function, is_read_lock};
use super::names::short;
use super::places::{Most, Place};
use super::user_locks::held;
use super::view::{Sampled, View};
use crate::causes::When;
use crate::onion::evidence::{self, SharedLine};

/// Whether a function is of a library: the line is written there for its caller.
fn is_library(frame: &str) -> bool {
    const BEGINNINGS: [&str; 13] = [
        "sync/atomic.",
        "internal/runtime/atomic.",
        "sync.(*",
        "internal/sync.",
        "std::sync::",
        "core::sync::",
        "std::__shared",
        "std::_Sp_counted",
        "std::shared_ptr",
        "std::__atomic",
        "__gthread",
        "__vfprintf_internal",
        "_IO_",
    ];
    is_lock_function(frame)
        || is_read_lock(frame)
        || BEGINNINGS.iter().any(|start| frame.trim_start_matches('<').starts_with(start))
}

/// A claim for each line, of the samples of functions that waited for shared lines.
pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let context = &view.context;
    let all = evidence::count(context, CpuState::Program, |class| class == SampleClass::User);
    // The word of a lock that threads wait for is a part of what that lock costs, and so is the data that they write with it.
    let locks = held(view);
    let waited = waited(view);
    let walks = view.walks();
    let lines: Vec<SharedLine> = evidence::shared_lines(context, all)
        .into_iter()
        .filter(|line| !in_turn(view, &line.process))
        .filter(|line| !holds(line, &locks.words) && !is_guarded(view, line, &locks.takers, &waited))
        // The word that a walk through interfaces writes is a part of what the walk costs.
        .filter(|line| walks.is_empty() || !line.writers.split(", ").all(|writer| walks.contains_key(writer)))
        .collect();
    let sum: f64 = lines.iter().map(|line| line.share.0).sum();
    lines.iter().map(|line| claim(view, line, line.share.0 / sum.max(f64::MIN_POSITIVE), &waited)).collect()
}

/// The part of an observation for which a process of Go is on CPU up to which its threads hardly run at once: goroutines move between
/// threads, and take their lines of cache with them.
const IN_TURN: f64 = 1.1;

/// Whether the threads of a process of Go run one after another.
fn in_turn(view: &View<'_>, process: &str) -> bool {
    let go = |s: &Sampled<'_>| s.process == process && s.user.iter().any(|f| f.starts_with("runtime.goexit"));
    view.on_cpu(process) <= IN_TURN * view.elapsed() && view.samples.iter().any(go)
}

/// By function, which part of its samples waited for shared lines.
fn waited<'a>(view: &View<'a>) -> HashMap<&'a str, f64> {
    view.samples_by_cause(|_, cause| cause == Some(UserCause::SharedLine))
        .into_iter()
        .filter(|(_, (shared, _))| *shared > 0.0)
        .map(|(f, (shared, all))| (f, shared / all))
        .collect()
}

/// Whether a line holds the word of one of these locks, by address or by symbol.
fn holds(line: &SharedLine, locks: &[(&str, &str)]) -> bool {
    let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let Some(start) = address(&line.line) else { return false };
    let of = locks.iter().filter(|(process, _)| *process == line.process);
    of.into_iter().any(|(_, lock)| match address(lock) {
        Some(word) => word.wrapping_sub(start) < 64,
        None => !lock.is_empty() && lock.split(['+', ' ']).next() == line.object.split(['+', ' ']).next(),
    })
}

/// Whether a line is written by threads that take a lock there, and wait for the lock longer than for the line.
fn is_guarded(
    view: &View<'_>,
    line: &SharedLine,
    takers: &HashMap<(&str, &str), f64>,
    waited: &HashMap<&str, f64>,
) -> bool {
    let (mut guarded, mut all, mut longest): (f64, f64, f64) = (0.0, 0.0, 0.0);
    for sample in view.samples.iter().filter(|s| s.class == SampleClass::User && s.process == line.process) {
        let Some(leaf) = sample.user.first().filter(|leaf| line.writers.split(", ").any(|w| w == **leaf))
        else {
            continue;
        };
        let seconds = sample.seconds * waited.get(leaf).copied().unwrap_or(0.0);
        let of = sample.user.iter().filter_map(|f| takers.get(&(sample.process, *f)));
        let lock = of.copied().fold(0.0, f64::max);
        (all, longest) = (all + seconds, longest.max(lock));
        guarded += if lock > 0.0 { seconds } else { 0.0 };
    }
    guarded > 0.5 * all && longest > all
}

/// Whether code that Java's compilers made writes a line; the virtual machine's own functions are of C++.
fn by_java(view: &View<'_>, line: &SharedLine) -> bool {
    let in_thread =
        |s: &Sampled<'_>| s.process == line.process && s.user.iter().any(|f| f.starts_with("JavaThread::"));
    !line.writers.contains("::") && view.samples.iter().any(in_thread)
}

fn claim(view: &View<'_>, line: &SharedLine, part: f64, waited: &HashMap<&str, f64>) -> Claim {
    let mut places = Most::default();
    let (mut by_readers, mut all) = (0.0, 0.0);
    let reads = |s: &Sampled<'_>| s.user.iter().take(4).any(|f| is_read_lock(f));
    let writes = |frame: &str| line.writers.split(", ").any(|writer| writer == frame);
    for sample in view.samples.iter().filter(|s| s.class == SampleClass::User) {
        if !sample.user.first().is_some_and(|leaf| writes(leaf)) {
            continue;
        }
        by_readers += if reads(sample) { sample.seconds } else { 0.0 };
        all += sample.seconds;
        places.add(&Place::outside(&sample.user, is_library).words(), sample.seconds);
    }
    // Where the reader's fast path is inlined, its slow path stands beside it.
    let slow = view.samples.iter().filter(|s| reads(s) && s.user.iter().any(|frame| writes(frame)));
    let beside: f64 = slow.map(|s| s.seconds).sum();
    let readers = line.writers.split(", ").any(is_read_lock) || by_readers > 0.5 * all || beside > 0.01 * all;
    let known = !line.object.is_empty() && line.object != "unknown";
    let when = match line.sharing == "true" {
        true if readers => When::SharedByReaders,
        true if (!known || line.object == "heap") && by_java(view, line) => When::SharedInJava,
        true => When::SharedWord,
        false => When::FalseSharing,
    };
    let writers = line.writers.split(", ").map(short).collect::<Vec<_>>().join(", ");
    let (words, place) = places.place(&writers);
    let mut claim = Claim::new(Kind::SharedLine, [when], format!("{} {}", line.writers, line.object))
        .with(
            "line",
            match (known, when) {
                (true, _) => line.object.clone(),
                (false, When::FalseSharing) => format!("data of {place}"),
                (false, _) => format!("of {place}"),
            },
        )
        .with("place", place)
        .with("words", line.places.clone())
        .with("writers", writers.clone())
        .with("threads", line.threads.to_string())
        .with("sharing", line.sharing.clone());
    // Addresses of heaps are others in each run.
    claim.key = format!("shared line {} {}", line.object, line.writers);
    for (at, sample) in view.samples.iter().enumerate() {
        let of = sample.user.first().and_then(|function| waited.get(function));
        if let (SampleClass::User, Some(share)) = (sample.class, of) {
            claim.ask(Source::Sample(at), sample.seconds * share * part, "waiting for the line");
        }
    }
    claim.line("written in", if words.is_empty() { writers } else { words });
    claim.line("line", format!("{} ({}), words {}", line.object, line.line, line.places));
    claim.line("used by", format!("{} threads of {}", line.threads, line.process));
    claim
}
