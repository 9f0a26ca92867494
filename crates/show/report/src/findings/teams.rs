//! Teams of OpenMP: more threads than CPUs, loops whose iterations are handed out one by one, and regions that are too small.

use std::collections::BTreeMap;

use ncpu_schema::{Layer, Microstate, SampleClass};

use super::claim::{Claim, Kind, Source};
use super::places::{Most, Place, begins};
use super::pools::setting;
use super::view::View;
use crate::causes::When;

/// The part of the observation that a working thread is on CPU, at least.
const WORKS: f64 = 0.01;

/// The part of capacity that OpenMP's library takes where a team is crowded.
const CROWDED: f64 = 0.1;

/// The time on run queues, of that on CPU, from which threads wait for one another's CPUs.
const QUEUED: f64 = 0.5;

/// The part of capacity, and of the process's time on CPU, from which handing out iterations is claimed.
const HANDS_OUT: f64 = 0.05;
const OF_PROCESS: f64 = 0.2;

/// Samples of a process in OpenMP's library, and those of them that hand out iterations.
#[derive(Default)]
struct Team {
    library: Vec<usize>,
    schedule: Vec<usize>,
    on_cpu: f64,
    /// A function that the compiler made of a parallel region was met.
    region: bool,
}

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut of: BTreeMap<&str, Team> = BTreeMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        let team = of.entry(sample.process).or_default();
        team.on_cpu += sample.seconds;
        team.region |= sample.user.iter().any(|f| is_region(f));
        let Some(leaf) = sample.user.first().filter(|leaf| is_library(leaf)) else { continue };
        team.library.push(at);
        // Barriers spin or sleep; what a region asks for else is its next iterations, where it asks for nothing that has a name.
        let asks = sample.user.get(1).is_some_and(|caller| is_region(caller));
        let schedules = !OTHERS.iter().any(|name| leaf.starts_with(name));
        if sample.class == SampleClass::User && sample.kernel.is_empty() && asks && schedules {
            team.schedule.push(at);
        }
    }
    let mut claims = Vec::new();
    for (process, team) in of.iter().filter(|(_, team)| team.region) {
        claims.extend(schedule(view, process, team));
        let crowded = crowd(view, process, team);
        if crowded.is_none() {
            claims.extend(small_regions(view, process));
        }
        claims.extend(crowded);
    }
    claims
}

/// Functions of the library that a region calls, other than for a loop's next iterations.
const OTHERS: [&str; 12] = [
    "GOMP_barrier",
    "GOMP_critical",
    "GOMP_atomic",
    "GOMP_ordered",
    "GOMP_single",
    "GOMP_task",
    "GOMP_loop_end",
    "GOMP_sections_end",
    "omp_",
    "__kmpc_barrier",
    "__kmpc_critical",
    "__kmpc_reduce",
];

/// Whether a function is of the library: that of GCC, of LLVM or of Intel.
fn is_library(frame: &str) -> bool {
    const BEGINNINGS: [&str; 9] = [
        "[unknown libgomp",
        "[unknown libomp",
        "[unknown libiomp",
        "GOMP_",
        "gomp_",
        "omp_",
        "__kmp",
        "kmp_",
        "_INTERNAL_",
    ];
    BEGINNINGS.iter().any(|start| frame.starts_with(start))
}

/// Whether a compiler made a function of the body of a parallel region.
pub(super) fn is_region(frame: &str) -> bool {
    frame.contains("._omp_fn.") || frame.contains(".omp_outlined")
}

/// Iterations of a loop that are handed out in pieces that are too small.
fn schedule(view: &View<'_>, process: &str, team: &Team) -> Option<Claim> {
    let all = view.sample_seconds(&team.schedule);
    if all < HANDS_OUT * view.capacity() || all < OF_PROCESS * team.on_cpu {
        return None;
    }
    let mut places = Most::default();
    for &at in &team.schedule {
        let sample = &view.samples[at];
        let outside: Vec<&str> = sample.user.iter().copied().filter(|f| !is_library(f)).collect();
        places.add(&Place::of_frames(&outside, "").words(), sample.seconds);
    }
    let (words, place) = places.place(process);
    let mut claim = Claim::new(Kind::HandOff, [When::LoopSchedule], process)
        .with("process", process)
        // The region is named after its function.
        .with("place", place.split("._omp_fn.").next().unwrap_or(&place).to_string());
    claim.key = format!("loop schedule {process}");
    for &at in &team.schedule {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "handing out iterations");
    }
    claim.line("loop in", words);
    Some(claim)
}

/// More threads than CPUs, which wait at barriers for those that are not running.
fn crowd(view: &View<'_>, process: &str, team: &Team) -> Option<Claim> {
    let cpus = view.context.cpus;
    let threads = view.busy_threads(process, WORKS);
    let queued = view.in_state(process, Microstate::Lat);
    let waits = view.sample_seconds(&team.library);
    if threads as u64 <= cpus || queued < QUEUED * team.on_cpu || waits < CROWDED * view.capacity() {
        return None;
    }
    let name = "OMP_NUM_THREADS";
    let set = setting(view, process, name).map_or_else(String::new, |value| format!(" ({name}={value})"));
    let mut claim = Claim::new(Kind::Threads, [When::CrowdedTeam], process)
        .with("process", process)
        .with("threads", threads.to_string())
        .with("cpus", cpus.to_string())
        .with("setting", set);
    claim.key = format!("crowded team {process}");
    for &at in &team.library {
        claim.ask(Source::Sample(at), view.samples[at].seconds, "spinning and waiting at barriers");
    }
    let of_process = view.switched.get(process).map_or(0.0, |s| s.voluntary + s.involuntary);
    let part = (of_process / view.switches().max(1.0)).min(1.0);
    for layer in [Layer::RunQueue, Layer::WakeUp, Layer::Switches] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * part, "switches and wake-ups");
    }
    claim.line("queued", format!("{queued:.2} thread-s for a CPU, {:.2} CPU-s on one", team.on_cpu));
    Some(claim)
}

/// The activity of a thread of a team.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// The work of a region.
    Region,
    /// Beginning a region, ending it, or waiting in between.
    Library,
    /// Code between regions.
    Serial,
}

/// The mean wait of threads of a team, in seconds, up to which their regions are short.
const SHORT: f64 = 0.001;

/// The part of capacity that beginning and ending regions takes from which it is claimed.
const OVERHEAD: f64 = 0.05;

/// Samples of a process: each with whether its thread is the one that begins regions, and what it does.
struct Work<'v, 'a> {
    view: &'v View<'a>,
    samples: Vec<(usize, bool, Does)>,
}

impl<'v, 'a> Work<'v, 'a> {
    fn of(view: &'v View<'a>, process: &str) -> Work<'v, 'a> {
        let mut samples = Vec::new();
        for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.process == process) {
            let region = sample.user.iter().rposition(|f| is_region(f));
            let outside = &sample.user[region.map_or(0, |at| at + 1)..];
            let begins_regions = outside.iter().any(|f| !is_library(f) && !begins(f));
            let does = match (region, outside.iter().any(|f| is_library(f))) {
                (Some(_), _) => Does::Region,
                (None, true) => Does::Library,
                (None, false) => Does::Serial,
            };
            samples.push((at, begins_regions, does));
        }
        Work { view, samples }
    }

    /// CPU-seconds of the thread that begins regions, or of the others.
    fn seconds(&self, begins: bool, does: Does) -> f64 {
        let of = self.samples.iter().filter(|(_, b, d)| *b == begins && *d == does);
        of.map(|(at, ..)| self.view.samples[*at].seconds).sum()
    }
}

/// Whether the thread that begins regions is in the library for longer than in code of its own between them.
pub(super) fn is_mostly_in_library(view: &View<'_>, process: &str) -> bool {
    let work = Work::of(view, process);
    work.seconds(true, Does::Library) > work.seconds(true, Does::Serial)
        && work.samples.iter().any(|(.., does)| *does == Does::Region)
}

/// Regions that take longer to begin and end than to do: the thread that begins them is in the library for longer than in regions,
/// though the others' work and their waits for a CPU hardly keep it.
fn small_regions(view: &View<'_>, process: &str) -> Option<Claim> {
    let workers = view.busy_threads(process, WORKS).checked_sub(1).filter(|&workers| workers > 0)? as f64;
    let work = Work::of(view, process);
    let (own, others) = (work.seconds(true, Does::Region), work.seconds(false, Does::Region) / workers);
    let (serial, library) = (work.seconds(true, Does::Serial), work.seconds(true, Does::Library));
    let overhead = library - (others - own).max(0.0) - view.in_state(process, Microstate::Lat);
    let (mut slept, mut times) = (0.0, 0.0);
    for s in view.slept.iter().filter(|s| s.process == process && s.wait != "run queue") {
        if s.user.iter().any(|f| is_library(f)) {
            slept += s.seconds;
            times += s.count;
        }
    }
    let long = slept > overhead && slept > SHORT * times;
    if overhead < own.max(others) || overhead < OVERHEAD * view.capacity() || long {
        return None;
    }
    let mut places = Most::default();
    let mut claim = Claim::new(Kind::HandOff, [When::SmallRegions], process);
    for &(at, begins_regions, _) in work.samples.iter().filter(|(.., does)| *does == Does::Library) {
        let sample = &view.samples[at];
        if begins_regions {
            places.add(&Place::beyond(&sample.user, is_library).words(), sample.seconds);
            claim.ask(Source::Sample(at), sample.seconds, "beginning and ending regions");
        } else {
            // The others wait for serial code as well.
            let part = library / (library + serial);
            claim.ask(Source::Sample(at), sample.seconds * part, "waiting for the next region");
        }
    }
    let (words, place) = places.place(process);
    let mut claim = claim.with("process", process).with("place", place);
    claim.key = format!("small regions {process}");
    claim.line("regions of", words);
    claim.line(
        "one thread",
        format!("{own:.2} CPU-s in regions, {library:.2} CPU-s beginning and ending them, {serial:.2} CPU-s between"),
    );
    Some(claim)
}
