//! Requests of io_uring that threads of the kernel work off although they hardly wait, so that each is handed over and awaited, and
//! threads of the kernel that look for requests in vain.

use std::collections::HashMap;

use ncpu_schema::Layer;

use super::claim::{Claim, Kind, Source};
use super::limits::behind_itself;
use super::numbers::rate_words;
use super::places::{Most, Place};
use super::view::View;
use crate::causes::When;

/// The part of capacity that the hand-over takes from which it is claimed.
const LEAST: f64 = 0.05;

/// Requests a second from which they are many.
const OFTEN: f64 = 1000.0;

/// The part of the observation for which a worker may wait within a request: one that waits for a device is there for that.
const WAITS: f64 = 0.2;

/// Functions of the kernel: its worker, the worker's part that handles a request, and those that hand one over.
const WORKER: &str = "io_wq_worker";
const HANDLES: &str = "io_worker_handle_work";
const HANDS: [&str; 3] = ["io_wq_enqueue", "io_queue_iowq", "io_acct_activate_free_worker"];

/// The function in which a program waits for answers.
const AWAITS: &str = "io_cqring_wait";

#[derive(Default)]
struct Handed {
    samples: Vec<(usize, &'static str)>,
    seconds: f64,
    woken: f64,
    within: f64,
    awaited: f64,
    places: Most,
}

/// Functions of the kernel: the thread that looks for requests, and its part that submits those found.
const POLLS: &str = "io_sq_thread";
const SUBMITS: &str = "io_submit_sqes";

/// The part of such a thread's time that is looking in vain from which that is what it does.
const IN_VAIN: f64 = 0.5;

/// The time for which threads of the process stand on run queues behind one another, of that of looking in vain, from which CPUs are
/// short. A thread that looks on a CPU that would idle takes nothing from the program: one thread that read by such a ring on two CPUs
/// stood for a quarter of it, and was a seventh slower than without.
const SHORT: f64 = 0.5;

pub(super) fn claims(view: &View<'_>) -> Vec<Claim> {
    let mut claims = handed_over(view);
    claims.extend(polling(view));
    claims
}

/// Threads of the kernel that poll for requests while the program's own wait for a CPU.
fn polling(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<&str, (Vec<usize>, f64)> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate().filter(|(_, s)| s.in_kernel(POLLS)) {
        let (samples, submitting) = of.entry(sample.process).or_default();
        match sample.in_kernel(SUBMITS) {
            true => *submitting += sample.seconds,
            false => samples.push(at),
        }
    }
    let mut claims = Vec::new();
    for (process, (samples, submitting)) in of {
        let looking = view.sample_seconds(&samples);
        let queued = view.queued_outside(process, is_polling_thread).min(behind_itself(view));
        if looking < LEAST * view.capacity()
            || looking < IN_VAIN * (looking + submitting)
            || queued < SHORT * looking
        {
            continue;
        }
        let mut claim = Claim::new(Kind::Polling, [When::UringPolls], process).with("process", process);
        claim.key = format!("polling of io_uring {process}");
        for at in samples {
            claim.ask(Source::Sample(at), view.samples[at].seconds, "looking for requests");
        }
        claim.line(
            "in vain",
            format!("{:.0} % of these threads' time", 100.0 * looking / (looking + submitting)),
        );
        claim.line("meanwhile", format!("threads of {process} wait {queued:.2} thread-s for a CPU"));
        claims.push(claim);
    }
    claims
}

/// Whether a thread is the kernel's that polls for requests, by its name.
fn is_polling_thread(thread: &str) -> bool {
    thread.starts_with("iou-sqp-")
}

/// Requests that the kernel's workers work off although they hardly wait.
fn handed_over(view: &View<'_>) -> Vec<Claim> {
    let mut of: HashMap<&str, Handed> = HashMap::new();
    for (at, sample) in view.samples.iter().enumerate() {
        let hands = HANDS.iter().any(|f| sample.in_kernel(f));
        let what = if hands {
            "handing over"
        } else if sample.in_kernel(WORKER) {
            "the kernel's workers"
        } else if sample.in_kernel(AWAITS) {
            "waiting for answers"
        } else {
            continue;
        };
        let handed = of.entry(sample.process).or_default();
        handed.samples.push((at, what));
        handed.seconds += sample.seconds;
        if hands {
            handed.places.add(&Place::of(sample, "io_uring_enter").words(), sample.seconds);
        }
    }
    for s in &view.slept {
        let Some(handed) = of.get_mut(s.process) else { continue };
        if s.in_kernel(HANDLES) {
            handed.within += s.seconds;
        } else if s.in_kernel(WORKER) {
            handed.woken += s.count;
        } else if s.in_kernel(AWAITS) {
            handed.awaited += s.seconds;
        }
    }
    of.retain(|_, handed| {
        !handed.places.is_empty()
            && handed.seconds >= LEAST * view.capacity()
            && handed.woken >= OFTEN * view.elapsed()
            && handed.within <= WAITS * view.elapsed()
    });
    of.into_iter().map(|(process, handed)| claim(view, process, handed)).collect()
}

fn claim(view: &View<'_>, process: &str, handed: Handed) -> Claim {
    let (words, place) = handed.places.place(process);
    let mut claim = Claim::new(Kind::HandOff, [When::UringWorkers], process)
        .with("process", process)
        .with("place", place)
        .with("rate", rate_words(handed.woken / view.elapsed()));
    claim.key = format!("workers of io_uring {process}");
    for (at, what) in handed.samples {
        claim.ask(Source::Sample(at), view.samples[at].seconds, what);
    }
    // While the program awaits an answer, and while a worker awaits a request, a CPU has nothing to do.
    let part = (handed.awaited / view.elapsed()).min(1.0);
    claim.ask(Source::Layer(Layer::Serial), view.beside_stacks(Layer::Serial) * part, "CPUs idle meanwhile");
    claim.line("called in", words);
    claim
}
