//! Programs that a tracer stops: strace, a debugger.

use super::asleep::idle;
use super::claim::{Claim, Kind, Source};
use super::numbers::{grouped, rate_words};
use super::places::{Most, Place};
use super::view::{Sampled, View};
use super::waiting::wakes;
use crate::causes::When;
use crate::onion::evidence::length;

/// Stops a second from which a program is slow by them.
const OFTEN: f64 = 200.0;

/// Where a traced thread stops, or asks whether it must.
const STOPS: [&str; 6] = [
    "ptrace_stop",
    "ptrace_notify",
    "ptrace_do_notify",
    "ptrace_signal",
    "syscall_trace_enter",
    "syscall_exit_work",
];

/// Functions in which a tracer looks at a thread, or lets it go on.
const TRACES: [&str; 4] = ["__x64_sys_ptrace", "__arm64_sys_ptrace", "ptrace_request", "arch_ptrace"];

fn is_in(sample: &Sampled<'_>, functions: &[&str]) -> bool {
    functions.iter().any(|f| sample.in_kernel(f))
}

/// Stops of the process that is stopped longest.
pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let stops = || view.slept.iter().filter(|s| s.in_kernel("ptrace_stop"));
    let mut processes = Most::default();
    stops().for_each(|s| processes.add(s.process, s.seconds));
    let Some((process, _)) = processes.top() else { return Vec::new() };
    let stops = || stops().filter(|s| s.process == process);
    let count: f64 = stops().map(|s| s.count).sum();
    let seconds: f64 = stops().map(|s| s.seconds).sum();
    if count < OFTEN * view.elapsed() {
        return Vec::new();
    }
    let mut places = Most::default();
    stops().for_each(|s| places.add(&Place::of_frames(&s.user, "").words(), s.seconds));
    let (place, function) = places.place(&process);
    let mut tracers = Most::default();
    let traces = |s: &&Sampled<'_>| is_in(s, &TRACES) && s.process != process;
    view.samples.iter().filter(traces).for_each(|s| tracers.add(s.process, s.seconds));
    let tracer = tracers.top().map(|(name, _)| name);
    let by = tracer.clone().unwrap_or_else(|| "a tracer".into());
    let mut claim = Claim::new(Kind::Peer, [When::Traced], process.clone())
        .with("process", process.clone())
        .with("tracer", by)
        .with("place", function)
        .with("rate", rate_words(count / view.elapsed()))
        .with("each", length(seconds / count));
    claim.key = format!("traced {process}");
    claim.waited = Some(seconds);
    for (at, sample) in view.samples.iter().enumerate() {
        let what = match sample.process {
            own if own == process && is_in(sample, &STOPS) => "stops",
            own if Some(own) == tracer.as_deref() => "the tracer",
            _ => continue,
        };
        claim.ask(Source::Sample(at), sample.seconds, what);
    }
    // A stop wakes the tracer, and the tracer the program.
    let part = (2.0 * count / view.switches().max(1.0)).min(1.0);
    wakes(view, &mut claim, part, "wake-ups");
    idle(view, &mut claim, seconds / view.elapsed(), "CPUs idle for it");
    if !place.is_empty() {
        claim.line("stops in", place);
    }
    claim.line("stops", format!("{} of {} each", grouped(count), length(seconds / count)));
    vec![claim]
}
