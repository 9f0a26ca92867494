//! Causes of the time in user code, and the data that it waited for.

use std::collections::BTreeMap;
use std::fmt;

use ncpu_schema::{CpuState, SampleClass, UserCause, chance, data, user_causes};

use super::kinds::{CausePart, MemoryWaits, Part, Share, SharedLine, UserCauses};
use super::{Context, Gathered, count};

/// Shared lines that are listed, and objects that memory was waited for.
const LISTED: usize = 3;
/// A cause below this part of user code is not named in text, nor data.
const LEAST: f64 = 0.005;
/// Samples that a shared line must have, for two threads that touch a word now and then share one, too.
const SAMPLES: f64 = 8.0;

/// A part of `all` samples with half the width of its 95 % interval.
fn part(samples: f64, all: u64) -> (Share, Share) {
    let whole = (samples.round().max(0.0) as u64).min(all);
    (Share(samples / all.max(1) as f64), Share(chance::half_width(whole, all)))
}

/// Adds what the tables say of user code; nothing where instructions were not decoded.
pub(super) fn add(out: &mut Gathered, context: &Context<'_>) {
    let all = count(context, CpuState::Program, |class| class == SampleClass::User);
    if all == 0 {
        return;
    }
    out.add(causes(context, all));
    out.add(shared_lines(context, all));
    out.add(memory_waits(context, all));
}

fn causes(context: &Context<'_>, all: u64) -> Option<UserCauses> {
    let t = user_causes::Reader::open(context.recording).ok()??;
    // By cause: samples, and those of each function.
    let mut sums: BTreeMap<&str, (f64, BTreeMap<&str, f64>)> = BTreeMap::new();
    for row in t.rows() {
        let (Some(cause), Some(samples)) = (t.cause.get(row), t.samples.get(row)) else { continue };
        if cause == UserCause::Unknown {
            continue;
        }
        let (sum, functions) = sums.entry(cause.name()).or_default();
        *sum += samples;
        *functions.entry(t.function.get(row).unwrap_or("?")).or_default() += samples;
    }
    // Samples that are not told yet are unknown, too.
    let known: f64 = sums.values().map(|(sum, _)| sum).sum();
    let mut causes: Vec<CausePart> = sums
        .into_iter()
        .map(|(name, (sum, functions))| {
            let (share, error) = part(sum, all);
            let most = functions.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
            CausePart {
                name: name.into(),
                share,
                error,
                function: most.map(|(function, _)| function.to_string()),
                function_share: most.map(|(_, samples)| part(samples, all).0),
            }
        })
        .collect();
    causes.sort_by(|a, b| b.share.0.total_cmp(&a.share.0));
    let (share, error) = part((all as f64 - known).max(0.0), all);
    let unknown = CausePart {
        name: UserCause::Unknown.name().into(),
        share,
        error,
        function: None,
        function_share: None,
    };
    causes.extend((unknown.share.0 > 1e-9).then_some(unknown));
    Some(UserCauses { causes })
}

/// Lines that threads share, those that are waited for most first.
pub(crate) fn shared_lines(context: &Context<'_>, all: u64) -> Vec<SharedLine> {
    let Ok(Some(t)) = data::Reader::open(context.recording) else { return Vec::new() };
    let mut lines: BTreeMap<(u64, &str), (f64, SharedLine)> = BTreeMap::new();
    for row in t.rows() {
        let (Some(UserCause::SharedLine), Some(line)) = (t.cause.get(row), t.line.get(row)) else { continue };
        let text = |cell: Option<&str>| cell.unwrap_or("").to_string();
        let known = lines.entry((t.pid.get(row).unwrap_or(0), line)).or_insert_with(|| {
            let shared = SharedLine {
                object: String::new(),
                line: line.to_string(),
                process: text(t.process.get(row)),
                sharing: String::new(),
                places: String::new(),
                writers: String::new(),
                threads: 0,
                share: Share(0.0),
                half_width: Share(0.0),
            };
            (0.0, shared)
        });
        known.0 += t.samples.get(row).unwrap_or(0.0);
        // A later row knows more.
        let shared = &mut known.1;
        shared.object = text(t.object.get(row));
        shared.sharing = text(t.sharing.get(row));
        shared.places = text(t.words.get(row));
        shared.writers = text(t.writers.get(row));
        shared.threads = t.threads.get(row).unwrap_or(0).max(shared.threads);
    }
    let mut lines: Vec<SharedLine> = lines
        .into_values()
        .filter(|(samples, _)| *samples >= SAMPLES && samples / all.max(1) as f64 >= 2.0 * LEAST)
        .map(|(samples, mut line)| {
            (line.share, line.half_width) = part(samples, all);
            line
        })
        .collect();
    lines.sort_by(|a, b| b.share.0.total_cmp(&a.share.0));
    lines.truncate(LISTED);
    lines
}

fn memory_waits(context: &Context<'_>, all: u64) -> Option<MemoryWaits> {
    let t = data::Reader::open(context.recording).ok()??;
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for row in t.rows() {
        if let (Some(UserCause::Memory), Some(samples)) = (t.cause.get(row), t.samples.get(row)) {
            *sums.entry(t.object.get(row).unwrap_or("unknown")).or_default() += samples;
        }
    }
    let mut objects: Vec<Part> = sums
        .into_iter()
        .map(|(name, samples)| Part { name: name.into(), share: part(samples, all).0 })
        .filter(|part| part.share.0 >= 2.0 * LEAST)
        .collect();
    objects.sort_by(|a, b| b.share.0.total_cmp(&a.share.0));
    objects.truncate(LISTED);
    (!objects.is_empty()).then_some(MemoryWaits { objects })
}

impl fmt::Display for UserCauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.causes.iter().filter(|cause| cause.share.0 >= LEAST);
        for (i, cause) in named.enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{} {:.0} ± {:.0} %", cause.name, cause.share.percent(), cause.error.percent())?;
            let computes = cause.name == UserCause::Computing.name();
            if let (Some(function), Some(share), false) = (&cause.function, cause.function_share, computes) {
                write!(f, " ({function} {:.0} %)", share.percent())?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for SharedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SharedLine { object, places, writers, threads, .. } = self;
        let (share, error) = (self.share.percent(), self.half_width.percent());
        let how = match self.sharing == "true" {
            true => "the same word",
            false => "words of their own",
        };
        write!(
            f,
            "shared line: {object} ({}): {share:.0} ± {error:.0} %; {threads} threads use {how} ({places})",
            self.line
        )?;
        if writers.is_empty() { Ok(()) } else { write!(f, ", written in {writers}") }
    }
}

impl fmt::Display for MemoryWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory waited for: {}", super::listed(&self.objects))
    }
}
