//! Cache lines that several threads use at once while one of them writes, so that they wait for each other's caches.

use std::collections::HashMap;

use ncpu_schema::{CpuState, SampleClass, UserCause, user_causes};

use super::claim::{Claim, Kind, Source};
use super::names::short;
use super::view::View;
use crate::causes::When;
use crate::onion::evidence::{self, SharedLine};

/// Functions by which readers of a lock write its line.
const READERS: [&str; 4] = ["rwlock_rdlock", "rwlock_tryrdlock", "rwlock_unlock", "shared_mutex"];

/// A claim for each line, of the samples of functions that waited for shared lines.
pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let context = &view.context;
    let all = evidence::count(context, CpuState::Program, |class| class == SampleClass::User);
    let lines = evidence::shared_lines(context, all);
    let waited = waited(view);
    let sum: f64 = lines.iter().map(|line| line.share.0).sum();
    lines.iter().map(|line| claim(view, line, line.share.0 / sum.max(f64::MIN_POSITIVE), &waited)).collect()
}

/// By function, which part of its samples waited for shared lines.
fn waited<'a>(view: &'a View<'_>) -> HashMap<&'a str, f64> {
    let Ok(Some(t)) = user_causes::Reader::open(view.context.recording) else { return HashMap::new() };
    let mut sums: HashMap<&str, (f64, f64)> = HashMap::new();
    for row in t.rows() {
        let (Some(function), Some(samples)) = (t.function.get(row), t.samples.get(row)) else { continue };
        let (shared, all) = sums.entry(function).or_default();
        *all += samples;
        if t.cause.get(row) == Some(UserCause::SharedLine) {
            *shared += samples;
        }
    }
    sums.into_iter()
        .filter(|(_, (shared, _))| *shared > 0.0)
        .map(|(f, (shared, all))| (f, shared / all))
        .collect()
}

fn claim(view: &View<'_>, line: &SharedLine, part: f64, waited: &HashMap<&str, f64>) -> Claim {
    let readers = READERS.iter().any(|name| line.writers.contains(name));
    let when = match line.sharing == "true" {
        true if readers => When::SharedByReaders,
        true => When::SharedWord,
        false => When::FalseSharing,
    };
    let writers = line.writers.split(", ").map(short).collect::<Vec<_>>().join(", ");
    let mut claim = Claim::new(Kind::SharedLine, [when], format!("{} {}", line.writers, line.object))
        .with("line", line.object.clone())
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
    claim.line("written in", writers);
    claim.line("line", format!("{} ({}), words {}", line.object, line.line, line.places));
    claim.line("used by", format!("{} threads of {}", line.threads, line.process));
    claim
}
