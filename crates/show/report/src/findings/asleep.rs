//! Stacks of threads that sleep: for a time, for a runtime's own purposes, in one place; and how long threads do not.

use std::collections::HashMap;

use ncpu_schema::{Layer, Microstate, threads};

use super::claim::{Claim, Source};
use super::libraries::{self, is_java_sleep};
use super::places::Place;
use super::view::{Slept, View, on_cpu};

/// CPUs that idle while nothing of the program is active, or little.
pub(super) fn idle(view: &View<'_>, claim: &mut Claim, part: f64, what: &'static str) {
    for layer in [Layer::Idle, Layer::Serial] {
        claim.ask(Source::Layer(layer), view.beside_stacks(layer) * part.min(1.0), what);
    }
}

/// Waits of a process in one place.
pub(super) struct Waits<'s, 'a> {
    pub first: &'s Slept<'a>,
    pub seconds: f64,
    pub count: f64,
}

impl Waits<'_, '_> {
    pub fn each(&self) -> f64 {
        self.seconds / self.count.max(1.0)
    }
}

/// Where a thread waits in a call: of one that sleeps in Java, what calls for it.
pub(super) fn place(s: &Slept<'_>, call: &str) -> Place {
    match s.user.iter().any(|frame| is_java_sleep(frame)) {
        true => Place::beyond(&s.user, is_java_sleep),
        false => Place::of_frames(&s.user, call),
    }
}

/// Waits by process and place: one place has several stacks where runtimes call by several ways.
pub(super) fn by_place<'s, 'a>(
    slept: &'s [Slept<'a>],
    call: &str,
    keep: impl Fn(&&'s Slept<'a>) -> bool,
) -> Vec<Waits<'s, 'a>> {
    let mut of: HashMap<(&str, String), Waits<'s, 'a>> = HashMap::new();
    for s in slept.iter().filter(keep) {
        let waits = of.entry((s.process, place(s, call).words())).or_insert(Waits {
            first: s,
            seconds: 0.0,
            count: 0.0,
        });
        waits.first = if s.seconds > waits.first.seconds { s } else { waits.first };
        waits.seconds += s.seconds;
        waits.count += s.count;
    }
    let mut all: Vec<_> = of.into_iter().collect();
    all.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds).then_with(|| a.0.cmp(&b.0)));
    all.into_iter().map(|(_, waits)| waits).collect()
}

/// Whether a thread sleeps for a time.
pub(super) fn sleeps(s: &Slept<'_>) -> bool {
    ["do_nanosleep", "hrtimer_nanosleep"].iter().any(|f| s.in_kernel(f))
        || s.user.iter().take(6).any(|f| is_java_sleep(f))
}

/// Whether a wait is a runtime's own: of its watcher, or of a thread that it has no work for.
pub(super) fn keeps_house(s: &Slept<'_>) -> bool {
    s.user.iter().any(|f| libraries::keeps_house(f))
}

/// Whether a stack names any function.
pub(super) fn is_named(s: &Slept<'_>) -> bool {
    s.user.iter().any(|f| !f.starts_with('['))
}

/// How long the program's threads were on CPU, or would have been; `None` where the recording does not say.
pub(super) fn active(view: &View<'_>) -> Option<f64> {
    let t = threads::Reader::open(view.context.recording).ok()??;
    let mut sum = None;
    for row in t.rows() {
        if let Some(on) = on_cpu(&t, row) {
            *sum.get_or_insert(0.0) += on + t.micro.get(row, Microstate::Lat).unwrap_or(0.0);
        }
    }
    sum
}
