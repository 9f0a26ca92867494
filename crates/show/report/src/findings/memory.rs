//! Pages: huge ones zeroed for little, copies after fork, maps that come and go, memory that is short.

use std::collections::{HashMap, HashSet};

use ncpu_schema::{Layer, SampleClass};

use super::calls::short_processes;
use super::claim::{Claim, Kind, Source};
use super::places::{Most, Place, is_library};
use super::runtime::{copies_page, writes_to_shared};
use super::system_calls::{MAPPING, call_in, call_of};
use super::view::{Sampled, View};
use crate::causes::When;
use crate::onion::evidence::memory_short;

/// How much longer zeroing takes than all of the program's own code where most of a huge page is not used: who writes
/// it all takes as long as the kernel.
const UNUSED: f64 = 3.0;

/// Samples in calls that map from which there are many calls.
const CALLED: u64 = 4;

/// The part of capacity from which something is claimed.
const LEAST: f64 = 0.01;

/// The part of capacity from which new memory is a cause of its own.
const NEW: f64 = 0.15;

/// The time in which pages are cleared, of that of the other faults of writes to shared pages, from which these had no copy to make.
const CLEARS: f64 = 0.25;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut claims = huge(view);
    claims.extend(copies(view));
    let short_lived: HashSet<String> = short_processes(view).into_iter().map(|s| s.name).collect();
    claims.extend(maps(view, &short_lived));
    claims.extend(first_touches(view, &short_lived));
    claims.extend(short(view));
    claims
}

fn in_any(sample: &Sampled<'_>, functions: &[&str]) -> bool {
    functions.iter().any(|f| sample.in_kernel(f))
}

/// Samples by process that something holds for, of at least [`LEAST`].
fn by_process<'a>(view: &View<'a>, keep: impl Fn(&Sampled<'a>) -> bool) -> Vec<(&'a str, Vec<usize>, f64)> {
    let mut of: HashMap<&str, (Vec<usize>, f64)> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| keep(s)) {
        let (samples, seconds) = of.entry(sample.process).or_default();
        samples.push(at);
        *seconds += sample.seconds;
    }
    let least = LEAST * view.capacity();
    of.into_iter().filter(|(_, (_, s))| *s >= least).map(|(p, (at, s))| (p, at, s)).collect()
}

/// Names of the process and of the place where most of the samples are.
fn named(view: &View<'_>, kind: When, key: &str, process: &str, samples: &[usize]) -> Claim {
    let place = |sample: &Sampled<'_>| Place::of(sample, call_in(&sample.kernel).unwrap_or(""));
    named_at(view, kind, key, process, samples, place)
}

/// The same of the places that `place` gives.
fn named_at(
    view: &View<'_>,
    kind: When,
    key: &str,
    process: &str,
    samples: &[usize],
    place: impl Fn(&Sampled<'_>) -> Place,
) -> Claim {
    let mut places = Most::default();
    for &at in samples {
        let sample = &view.samples[at];
        places.add(&place(sample).words(), sample.seconds);
    }
    let (place, function) = places.place(process);
    let mut claim =
        Claim::new(Kind::Memory, [kind], process).with("process", process).with("place", function);
    claim.key = format!("{key} {process}");
    if !place.is_empty() {
        claim.line("in", place);
    }
    claim
}

/// Huge pages that are zeroed and hardly used.
fn huge(view: &View<'_>) -> Vec<Claim> {
    const HUGE: [&str; 5] = [
        "do_huge_pmd_anonymous_page",
        "clear_huge_page",
        "folio_zero_user",
        "clear_subpage",
        "__do_huge_pmd_anonymous_page",
    ];
    let zeroes =
        |s: &Sampled<'_>| matches!(s.class, SampleClass::Zeroing | SampleClass::Fault) && in_any(s, &HUGE);
    let mut claims = Vec::new();
    for (process, samples, seconds) in by_process(view, zeroes) {
        let user: f64 = view
            .samples
            .iter()
            .filter(|s| s.process == process && s.class == SampleClass::User)
            .map(|s| s.seconds)
            .sum();
        if seconds < UNUSED * user {
            continue;
        }
        let mut claim = named(view, When::SparseHugePages, "huge pages", process, &samples);
        for &at in &samples {
            claim.ask(Source::Sample(at), view.samples[at].seconds, "zeroing huge pages");
        }
        let times = seconds / user.max(1e-3);
        claim
            .line("used", format!("zeroing takes {times:.0} times as long as all of the program's own code"));
        claims.push(claim);
    }
    claims
}

/// Pages copied since processes share them after fork.
fn copies(view: &View<'_>) -> Vec<Claim> {
    let copied = |s: &Sampled<'_>| s.layer() == Layer::Faults && copies_page(s);
    // Such a fault clears a page where the page of zeros stood, and copies one where processes share it.
    let clears = |process: &str| -> f64 {
        let of = view.samples.iter().filter(|s| s.process == process && s.class == SampleClass::Zeroing);
        of.filter(|s| writes_to_shared(s)).map(|s| s.seconds).sum()
    };
    let claims = by_process(view, copied).into_iter();
    let claims = claims.filter(|(process, _, seconds)| clears(process) < CLEARS * seconds);
    let claims = claims.map(|(process, samples, _)| {
        let mut claim = named(view, When::CopiedPages, "copies", process, &samples);
        for &at in &samples {
            claim.ask(Source::Sample(at), view.samples[at].seconds, "copying pages");
        }
        claim
    });
    claims.collect()
}

/// Memory that is mapped, touched and given back again and again.
fn maps(view: &View<'_>, short_lived: &HashSet<String>) -> Vec<Claim> {
    // Shootdowns of translations happen within the call.
    fn mapping<'a>(s: &Sampled<'a>) -> Option<&'a str> {
        call_in(&s.kernel).filter(|call| MAPPING.contains(call))
    }
    // A fault flushes the translation of a page that it replaces: nothing is given back.
    let flushes = |s: &Sampled<'_>| s.layer() == Layer::Tlb && !s.in_kernel("handle_mm_fault");
    let maps = |s: &Sampled<'_>| call_of(s).is_some() && mapping(s).is_some() || flushes(s);
    let mut claims = Vec::new();
    for (process, calls, of_calls) in by_process(view, maps) {
        if short_lived.contains(process) {
            continue;
        }
        let mut claim = named(view, When::MapChurn, "maps", process, &calls);
        let mut faults = 0.0;
        for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.process == process) {
            if sample.layer() == Layer::Faults && !copies_page(sample) {
                faults += sample.seconds;
                claim.ask(Source::Sample(at), sample.seconds, "faults and zeroing of fresh pages");
            }
        }
        // Few calls may be for large pieces, once in each process.
        let called = calls.iter().map(|&at| &view.samples[at]).filter(|s| call_of(s).is_some());
        if called.map(|s| s.samples).sum::<u64>() < CALLED * view.processes(process).max(1) as u64 {
            continue;
        }
        // Who maps once and uses the memory has faults alone.
        if of_calls < 0.05 * (faults + of_calls) {
            continue;
        }
        let mut kinds = Most::default();
        for &at in &calls {
            let sample = &view.samples[at];
            let call = call_of(sample).filter(|call| MAPPING.contains(call));
            kinds.add(mapping(sample).unwrap_or(""), sample.seconds);
            claim.ask(
                Source::Sample(at),
                sample.seconds,
                if call.is_some() { "mapping and unmapping" } else { "TLB shootdowns" },
            );
        }
        // What V8 maps for its heap no setting of malloc changes.
        let of_v8 = |at: &&usize| view.samples[**at].user.iter().any(|frame| frame.starts_with("v8::"));
        let v8: Vec<usize> = calls.iter().filter(of_v8).copied().collect();
        claim.subject = match view.sample_seconds(&v8) > 0.5 * view.sample_seconds(&calls) {
            true => "V8".to_string(),
            false => kinds.largest().map_or(String::new(), |(call, _)| call.to_string()),
        };
        claim.line("calls", kinds.words(3));
        claims.push(claim);
    }
    claims
}

/// The program's own function that asked for what a library or runtime touches. The runtime of Java stands inside of Java's library.
fn who_asked(sample: &Sampled<'_>) -> Place {
    let frames = &sample.user;
    let java = |frame: &&str| frame.starts_with("java.") || frame.starts_with("jdk.");
    let inside = frames.iter().position(java).unwrap_or(0);
    Place::outside(&frames[inside..], is_library)
}

/// Memory that is touched for the first time, in a program that does little else.
fn first_touches(view: &View<'_>, short_lived: &HashSet<String>) -> Vec<Claim> {
    let touches = |s: &Sampled<'_>| s.layer() == Layer::Faults && !copies_page(s);
    let mut claims = Vec::new();
    for (process, samples, seconds) in by_process(view, touches) {
        if short_lived.contains(process)
            || seconds < NEW * view.capacity()
            || seconds < view.on_cpu(process) / 2.0
        {
            continue;
        }
        let mut claim = named_at(view, When::FirstTouch, "new memory", process, &samples, who_asked);
        for &at in &samples {
            claim.ask(Source::Sample(at), view.samples[at].seconds, "faults and zeroing of new pages");
        }
        claims.push(claim);
    }
    claims
}

/// Memory that is short: in a control group, or in the machine.
fn short(view: &View<'_>) -> Vec<Claim> {
    const RECLAIM: [&str; 8] = [
        "try_to_free_mem_cgroup_pages",
        "try_to_free_pages",
        "do_try_to_free_pages",
        "shrink_node",
        "shrink_lruvec",
        "reclaim_high",
        "try_charge_memcg",
        "workingset_refault",
    ];
    const READ_AGAIN: [&str; 6] = [
        "page_cache_ra_unbounded",
        "page_cache_ra_order",
        "page_cache_sync_ra",
        "page_cache_async_ra",
        "filemap_fault",
        "read_pages",
    ];
    const COMPACT: [&str; 3] = ["compact_zone", "try_to_compact_pages", "compact_zone_order"];
    let mut claims = Vec::new();
    if let Some(group) = memory_short(&view.context) {
        let mut claim = Claim::new(Kind::Limit, [When::CgroupShort], group.cgroup.clone())
            .with("cgroup", group.cgroup.clone())
            .with("limit", group.limit.clone())
            .with("lift", group.lift.clone())
            .with("rate", super::numbers::rate_words(group.refaults.0));
        claim.key = format!("memory of {}", group.cgroup);
        for (at, sample) in view.samples.iter().enumerate() {
            if in_any(sample, &RECLAIM) {
                claim.ask(Source::Sample(at), sample.seconds, "making room");
            } else if in_any(sample, &READ_AGAIN) {
                claim.ask(Source::Sample(at), sample.seconds, "reading again");
            }
        }
        claim.ask(
            Source::Layer(Layer::Io),
            view.beside_stacks(Layer::Io),
            "CPUs idle while pages are read again",
        );
        claim.ask(
            Source::Layer(Layer::KernelLockOrIo),
            view.beside_stacks(Layer::KernelLockOrIo),
            "CPUs idle while pages are read again",
        );
        claim.line("evidence", group.to_string());
        claims.push(claim);
    }
    for (what, when, key, functions) in [
        ("making room", When::Reclaim, "reclaim", &RECLAIM[..]),
        ("compacting", When::Compaction, "compaction", &COMPACT[..]),
    ] {
        for (process, samples, _) in by_process(view, |s| in_any(s, functions)) {
            let mut claim = named(view, when, key, process, &samples);
            for &at in &samples {
                claim.ask(Source::Sample(at), view.samples[at].seconds, what);
            }
            claims.push(claim);
        }
    }
    claims
}
