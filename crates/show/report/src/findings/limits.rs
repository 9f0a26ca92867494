//! Limits of CPU bandwidth, CPUs that threads may not use, and programs that go first.

use ncpu_schema::{CpuState, Layer, queued};

use super::claim::{Claim, Kind, Source};
use super::places::Most;
use super::view::View;
use crate::causes::When;
use crate::onion::evidence::{bound_queues, confined, throttled};

/// The part of capacity that is held back, or waited behind another program, from which it is a cause.
const LEAST: f64 = 0.02;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut claims: Vec<Claim> = quota(view).into_iter().collect();
    claims.extend(binding(view));
    claims.extend(neighbours(view));
    claims
}

/// CPUs that idle while threads wait.
fn idle(view: &View<'_>, claim: &mut Claim, most: f64, what: &'static str) {
    let mut rest = most;
    // Threads that a limit holds back are on run queues; where all are held back, no thread is active.
    for layer in [Layer::RunQueue, Layer::Serial, Layer::Idle] {
        let seconds = view.beside_stacks(layer).min(rest);
        claim.ask(Source::Layer(layer), seconds, what);
        rest -= seconds;
    }
}

fn quota(view: &View<'_>) -> Option<Claim> {
    let limit = throttled(&view.context).into_iter().next()?;
    if limit.held.0 < LEAST * view.capacity() {
        return None;
    }
    let cpus = limit.allowed_cpus.map_or(String::new(), |n| format!("{}", (n * 100.0).round() / 100.0));
    let mut claim = Claim::new(Kind::Limit, [When::Quota], limit.cgroup.clone())
        .with("cgroup", limit.cgroup.clone())
        .with("limit", limit.limit.clone())
        .with("lift", limit.lift.clone())
        .with("cpus", cpus);
    claim.key = format!("quota {}", limit.cgroup);
    // While it holds threads back, all CPUs that they could use idle.
    let part = limit.throttled as f64 / limit.periods.max(1) as f64;
    let idle_of = view.beside_stacks(Layer::RunQueue)
        + (view.beside_stacks(Layer::Idle) + view.beside_stacks(Layer::Serial)) * part;
    idle(view, &mut claim, idle_of, "CPUs idle while threads are held back");
    claim.line(
        "throttled",
        format!("{:.2} CPU-s held back, in {} of {} periods", limit.held.0, limit.throttled, limit.periods),
    );
    Some(claim)
}

fn binding(view: &View<'_>) -> Option<Claim> {
    let (bound, stood) = match bound_queues(&view.context) {
        Some(bound) => {
            let stood = bound.stood?.0;
            // Behind other programs threads would have stood as well.
            if stood < LEAST * view.capacity() || view.seconds(Layer::RunQueue) < LEAST * view.capacity() {
                return None;
            }
            (bound, stood)
        }
        // Other programs use the CPUs that these may not: threads that stand behind one another would have their part of them.
        None => {
            let bound = confined(&view.context)?;
            let stood = bound.stood?.0.min(behind_itself(view));
            if stood < view.elapsed() {
                return None;
            }
            (bound, stood)
        }
    };
    let own = bound.bound_by == "affinity";
    let which = if bound.cpus.contains([',', '-']) { "CPUs" } else { "CPU" };
    let threads = bound.bound_threads.map_or(bound.process.clone(), |n| match n {
        1 => format!("1 thread of {}", bound.process),
        n => format!("{n} threads of {}", bound.process),
    });
    let mut claim = Claim::new(
        Kind::Binding,
        [if own { When::Bound } else { When::BoundByGroup }],
        bound.process.clone(),
    )
    .with("threads", threads)
    .with("process", bound.process.clone())
    .with("cpus", format!("{which} {}", bound.cpus))
    .with("file", bound.bound_by.clone());
    claim.key = format!("bound {} {}", bound.process, bound.cpus);
    claim.waited = Some(stood);
    claim.ask(
        Source::Layer(Layer::RunQueue),
        view.beside_stacks(Layer::RunQueue).min(bound.idle.0),
        "CPUs idle that they may not use",
    );
    claim.line(
        "waited",
        format!("{stood:.1} s on run queues, while the other CPUs idled {:.1} s", bound.idle.0),
    );
    Some(claim)
}

/// Other programs that ran while threads of the program stood on run queues, with thread-seconds, most first.
pub(super) fn stood_behind(view: &View<'_>) -> Vec<(String, f64)> {
    let Ok(Some(t)) = queued::Reader::open(view.context.recording) else { return Vec::new() };
    let mut of = Most::default();
    for row in t.rows().filter(|&row| t.at.get(row) == Some(CpuState::Others)) {
        of.add(t.process.get(row).unwrap_or(""), t.seconds.get(row).unwrap_or(0.0));
    }
    let all = of.total();
    of.ranked()
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, part)| (name, part * all))
        .collect()
}

/// Thread-seconds that the program's threads stood on run queues while others of them ran there.
pub(super) fn behind_itself(view: &View<'_>) -> f64 {
    let Ok(Some(t)) = queued::Reader::open(view.context.recording) else { return 0.0 };
    t.rows()
        .filter(|&row| t.at.get(row) == Some(CpuState::Program))
        .filter_map(|row| t.seconds.get(row))
        .sum()
}

/// Programs that the scheduler prefers, behind which the program's threads stood.
fn neighbours(view: &View<'_>) -> Option<Claim> {
    let t = queued::Reader::open(view.context.recording).ok()??;
    let mut all: Vec<(String, String, String, f64)> = Vec::new();
    for row in t.rows().filter(|&row| t.at.get(row) == Some(CpuState::Others)) {
        let (Some(process), Some(cause), Some(seconds)) =
            (t.process.get(row), t.cause.get(row), t.seconds.get(row))
        else {
            continue;
        };
        let remedy = t.remedy.get(row).unwrap_or("");
        match all.iter_mut().find(|(known, ..)| known == process) {
            Some((_, _, _, sum)) => *sum += seconds,
            None => all.push((process.into(), cause.into(), remedy.into(), seconds)),
        }
    }
    let (process, cause, remedy, stood) = all.into_iter().max_by(|a, b| a.3.total_cmp(&b.3))?;
    let taken = view.seconds(Layer::Others).min(stood);
    if taken < 0.05 * view.capacity() {
        return None;
    }
    let mut claim = Claim::new(Kind::Neighbour, [When::Neighbour], process.clone())
        .with("process", process.clone())
        .with("why", cause.clone())
        .with("remedy", remedy);
    claim.key = format!("neighbour {process}");
    claim.waited = Some(stood);
    claim.ask(Source::Layer(Layer::Others), taken, "its time on CPUs that threads waited for");
    claim.line("first", format!("{process} has {cause}"));
    Some(claim)
}
