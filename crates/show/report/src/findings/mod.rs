//! Causes of lost capacity, from all layers together.
//!
//! A layer of the onion is a mechanism; a cause lies scattered over several. Detectors, one file a kind, read the tables and
//! *claim* seconds: of sampled stacks, and of what a layer holds that no stack stands for. A [ledger] gives each second once,
//! to the most particular claim that asks for it, by the `rank` of its entry in the [rule book](crate::causes). What is left
//! stays in its layer.
//!
//! To add a kind: a file with `fn claims(&View) -> Vec<Claim>`, its line in `DETECTORS`, its evidence in
//! [`When`](crate::causes::When), and an entry with `title` and `sentence`, an example and a look-alike in `causes/*.toml`.

mod asleep;
mod begun;
mod calls;
mod checks;
mod claim;
mod connections;
mod dead_rows;
mod delayed_acks;
mod devices;
mod event_loops;
mod expired;
mod gain;
mod goroutines;
mod hashing;
mod hot;
mod index_walks;
mod inlined;
mod instructions;
mod kernel_locks;
mod late;
mod ledger;
mod libraries;
mod limits;
mod lock_functions;
mod loops;
mod makefiles;
mod map_copies;
mod memory;
mod memory_waits;
mod messages;
pub(crate) mod names;
mod numbers;
mod places;
mod pools;
mod queued_holders;
mod results;
mod retries;
mod runtime;
mod safepoints;
mod scans;
mod scripts;
mod serial;
mod shared_lines;
mod short_lived;
mod skewed;
mod slow_instructions;
mod small_tasks;
mod sorts;
mod spins;
mod sql;
mod system_calls;
mod table;
mod tasks_awaited;
mod teams;
#[cfg(test)]
mod tests;
mod text;
mod time_limits;
mod tracers;
mod type_walks;
mod uneven;
mod unoptimized;
mod uring;
mod user_locks;
mod view;
mod waiting;
mod walked_lists;
mod why;

use ncpu_record::Recording;
use ncpu_schema::{Error, Layer, chance};

use crate::causes::{self, Advice, Causes};
use crate::onion::Onion;
use crate::seconds::figure;
use crate::thread_time::ThreadTime;
use crate::wrap::middle;
pub use claim::Kind;
use claim::{Claim, Source};
use gain::Gains;
use ledger::{Given, Ledger};
pub use names::short;
pub use text::render;
pub(crate) use text::{gain, made_of, rest, sentence};
pub use user_locks::{NamedLock, named_locks};
use view::View;
pub use why::{cause as why_cause, layer as why_layer};

/// The detectors, in no order: the ledger serves claims by their entries' rank.
const DETECTORS: [fn(&View<'_>) -> Vec<Claim>; 41] = [
    tracers::claims,
    pools::claims,
    begun::claims,
    spins::claims,
    user_locks::claims,
    kernel_locks::claims,
    lock_functions::claims,
    shared_lines::claims,
    memory_waits::claims,
    slow_instructions::claims,
    serial::claims,
    uneven::claims,
    runtime::claims,
    calls::claims,
    checks::claims,
    expired::claims,
    uring::claims,
    teams::claims,
    memory::claims,
    limits::claims,
    waiting::claims,
    time_limits::claims,
    late::claims,
    unoptimized::claims,
    scans::claims,
    dead_rows::claims,
    event_loops::claims,
    goroutines::claims,
    sorts::claims,
    map_copies::claims,
    hashing::claims,
    type_walks::claims,
    sql::claims,
    small_tasks::claims,
    short_lived::claims,
    index_walks::claims,
    safepoints::claims,
    tasks_awaited::claims,
    queued_holders::claims,
    skewed::claims,
    walked_lists::claims,
];

/// Stacks that are kept of a cause.
const STACKS: usize = 8;

/// Causes that are listed at most.
const MOST: usize = 5;

/// The part of capacity below which a cause is not listed.
pub const LISTED: f64 = 0.02;

/// The part of capacity below which nothing is advised.
const ADVISED: f64 = 0.05;

/// Entries of lower rank hold for much of any code, those of the other rank and above are of one mechanism.
const GENERAL: u8 = 40;
const PARTICULAR: u8 = 50;

/// The rank of entries of locks.
const OF_LOCKS: u8 = 60;

/// The part of the longest wait above which the kind of a wait decides which is named, and not its length.
const BRIEFLY: f64 = 0.1;

/// The part of capacity that other programs have where a lock may cost time and no capacity; and the time that is waited for it
/// then, of that of the observation.
const BESIDE: f64 = 0.1;
const WAITED: f64 = 0.4;

/// The part of capacity that other programs have from which CPUs hardly idle for a lock; the part of threads' time on CPU and in the
/// lock that it is waited for then, and the part of the observation, from which it holds them up.
const CROWDED: f64 = 0.3;
const HELD_UP: f64 = 0.2;
const BRIEF: f64 = 0.1;

/// The same where the program itself keeps the CPUs busy: a thread may starve while all CPUs do useful work.
const WAITED_BUSY: f64 = 0.3;

/// A device holds a program up where its waits are this part of the time in which threads ran or stood for a CPU: a third of both
/// together.
const HELD: f64 = 0.5;

/// Seconds of a cause in one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The layer.
    pub layer: Layer,
    /// What they went to.
    pub what: &'static str,
    /// CPU-seconds.
    pub seconds: f64,
}

/// A line of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What the text is.
    pub label: &'static str,
    /// The text.
    pub text: String,
}

/// A cause that was found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The entry of the rule book.
    pub id: String,
    /// What it is.
    pub kind: Kind,
    /// What stays the same from run to run.
    pub key: String,
    /// A few words.
    pub title: String,
    /// What is wrong, to a reader who has not seen a report before.
    pub sentence: String,
    /// CPU-seconds in all layers together, and half-width of the 95 % interval.
    pub seconds: f64,
    /// Of it, the half-width of the 95 % interval.
    pub error: f64,
    /// Of capacity, 0–1.
    pub share: f64,
    /// By what they went to, most first.
    pub parts: Vec<Part>,
    /// Thread-seconds waited.
    pub waited: Option<f64>,
    /// Throughput without it over throughput with it, at least and at most.
    pub gain: (f64, f64),
    /// Whether its remedy is another way to do the same, which may spare any part of the program beside it.
    open: bool,
    /// Where it is, how often.
    pub lines: Vec<Line>,
    /// The remedy; `None` where it is too small for one.
    pub advice: Option<Advice>,
    /// CPU-seconds that it asked for, before others had theirs.
    pub asked: f64,
    /// Sampled stacks behind it, innermost function first, with CPU-seconds, most first.
    pub stacks: Vec<(String, f64)>,
}

impl Finding {
    /// The upper end of the gain, where it is known.
    pub fn gain_at_most(&self) -> Option<f64> {
        (!self.open).then_some(self.gain.1)
    }

    /// The gain in words.
    pub(crate) fn gain_words(&self) -> String {
        gain((self.gain.0, self.gain_at_most().unwrap_or(f64::INFINITY)))
    }
}

/// The causes of an observation, and what they leave.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Those that are listed, largest first.
    pub list: Vec<Finding>,
    /// What was claimed and is not listed: too small, or within its error.
    pub others: Vec<Finding>,
    /// Seconds of each layer that no listed cause has.
    pub left: Vec<(Layer, f64)>,
    /// The program that runs one thread at a time while CPUs idle, if most of the serial phases are its.
    pub alone: Option<String>,
    /// The chain of calls that most of the program's own work is in, and its part.
    pub hot: Option<(String, f64)>,
    /// The call and place that threads of a program that hardly runs wait in most, and its part of their waits.
    pub waits: Option<(String, f64)>,
    /// The system call and place that most of the time in system calls is in, and its part.
    pub called: Option<(String, f64)>,
    /// What threads did, on CPU or not.
    pub lives: ThreadTime,
    /// Other programs behind which its threads stood on run queues, with thread-seconds, most first.
    pub neighbours: Vec<(String, f64)>,
}

impl Findings {
    /// The causes that a recording shows.
    ///
    /// # Errors
    /// A table is not what the schema says.
    pub fn of(recording: &Recording) -> Result<Findings, Error> {
        Findings::with(recording, causes::current())
    }

    /// [`Findings::of`] by a rule book.
    ///
    /// # Errors
    /// As [`Findings::of`].
    pub fn with(recording: &Recording, book: &Causes) -> Result<Findings, Error> {
        let (context, layers) = Onion::context(recording, book)?;
        let short = context.is_short();
        let view = View::new(context, layers)?;
        if short {
            let left = view.layers.iter().map(|(layer, seconds, _)| (*layer, *seconds)).collect();
            return Ok(Findings { left, ..Findings::default() });
        }
        let mut claims: Vec<Claim> = DETECTORS.iter().flat_map(|claims| claims(&view)).collect();
        retries::join(&view, &mut claims);
        let lives = ThreadTime::of(recording)?;
        Ok(Findings { lives, ..Findings::serve(&view, claims, book) })
    }

    /// Gives claims their seconds.
    fn serve(view: &View<'_>, claims: Vec<Claim>, book: &Causes) -> Findings {
        let whole: Vec<(Layer, f64)> = view.layers.iter().map(|(layer, s, _)| (*layer, *s)).collect();
        let stacks: Vec<_> = view.samples.iter().map(|s| (s.layer(), s.seconds, s.samples)).collect();
        let mut ledger = Ledger::new(&whole, &stacks);
        let mut ranked: Vec<(u8, Claim)> = claims
            .into_iter()
            .filter_map(|claim| Some((book.finding(&claim.when, &claim.subject)?.rank, claim)))
            .collect();
        ranked.sort_by(|a, b| {
            (b.0, b.1.asked()).partial_cmp(&(a.0, a.1.asked())).unwrap_or(std::cmp::Ordering::Equal)
        });
        let gains = Gains::new(view);
        let mut all: Vec<Finding> = Vec::new();
        for (_, claim) in ranked {
            let given = ledger.give(&claim);
            all.extend(finding(&gains, claim, given, book));
        }
        let weights = Weights::new(view);
        all.sort_by(|a, b| weights.of(b).total_cmp(&weights.of(a)));
        // That a program runs one thread at a time says less than what that thread does.
        let more = |f: &Finding| {
            f.id != "serial-thread"
                && (f.share >= 2.0 * ADVISED || f.share >= ADVISED && book.rank(&f.id) >= PARTICULAR)
        };
        if all.first().is_some_and(|first| first.id == "serial-thread")
            && let Some(at) = all.iter().position(more)
        {
            all[..=at].rotate_right(1);
        }
        // A general cause, such as a function of a library, says less than a particular one with at least half its seconds.
        if let Some(first) = all.first().filter(|first| book.rank(&first.id) < GENERAL) {
            let particular = |f: &Finding| {
                f.kind != Kind::Neighbour
                    && book.rank(&f.id) >= PARTICULAR
                    && (f.share >= ADVISED || weights.holds_up(f))
                    && 2.0 * weights.of(f) >= first.seconds
            };
            if let Some(at) = all.iter().position(particular) {
                all[..=at].rotate_right(1);
            }
        }
        // A compiler's work ends by itself: a cause that stays goes first.
        if all.first().is_some_and(|first| ["java-compiles", "v8-compiles"].contains(&&*first.id))
            && all.get(1).is_some_and(|f| f.share >= ADVISED)
        {
            all.swap(0, 1);
        }
        let (mut list, mut others): (Vec<Finding>, Vec<Finding>) =
            all.into_iter().partition(|f| f.share >= LISTED && f.seconds > f.error || weights.holds_up(f));
        let is_large = |f: &Finding| f.share >= ADVISED && f.seconds > f.error || weights.holds_up(f);
        list.iter_mut().filter(|f| !is_large(f)).for_each(|f| f.advice = None);
        for found in list.iter_mut().filter(|f| f.share < ADVISED && weights.holds_up(f)) {
            found.sentence = of_wait(found, book, view.elapsed(), "Other programs use the CPUs");
        }
        // Where other programs use the CPUs that it leaves, or other threads of its own, a wait costs no capacity, and time
        // all the same.
        let beside = view.seconds(Layer::Others) >= BESIDE * view.capacity();
        let busy = view.idle() < BESIDE * view.capacity();
        let least = if beside { WAITED } else { WAITED_BUSY };
        let waited = |found: &Finding| found.waited.unwrap_or(0.0);
        // A program whose threads mostly ran, or stood for a CPU, had other work meanwhile.
        let held =
            |found: &Finding| asleep::active(view).is_some_and(|active| waited(found) >= HELD * active);
        // Where the program itself keeps them busy, what else is waited for may be its own doing.
        let counts = |found: &Finding| match found.kind {
            Kind::Lock | Kind::KernelLock => beside || busy,
            Kind::Device => beside && held(found),
            Kind::Pool | Kind::Polling | Kind::Peer | Kind::Binding | Kind::Limit | Kind::SerialCode => {
                beside
            }
            _ => false,
        };
        let large = |found: &Finding| counts(found) && waited(found) >= least * view.elapsed();
        let longest = others.iter().filter(|found| large(found)).map(waited).fold(0.0, f64::max);
        let is_brief = |found: &Finding| waited(found) < BRIEFLY * longest;
        // A wait of a moment does not hide one that lasts.
        if list.iter().all(|found| found.advice.is_none() || found.share < ADVISED && is_brief(found)) {
            let meanwhile =
                if beside { "Other programs use the CPUs" } else { "Other threads keep the CPUs busy" };
            // A lock says more than that threads wait, and a pool more than what its threads wait for; an entry that is more particular
            // than those of locks says why they wait.
            let rank = |found: &Finding| {
                let why = book.rank(&found.id) > OF_LOCKS;
                (why, found.kind == Kind::Lock, found.kind == Kind::Pool, waited(found))
            };
            let most = others.iter().enumerate().filter(|(_, found)| large(found) && !is_brief(found));
            let most =
                most.max_by(|a, b| rank(a.1).partial_cmp(&rank(b.1)).unwrap_or(std::cmp::Ordering::Equal));
            if let Some(at) = most.map(|(at, _)| at) {
                // It has its remedy, for the time that is waited.
                let mut found = others.remove(at);
                found.sentence = of_wait(&found, book, view.elapsed(), meanwhile);
                list.insert(0, found);
            }
        }
        others.iter_mut().for_each(|f| f.advice = None);
        others.splice(0..0, list.split_off(MOST.min(list.len())));
        // What is not listed stays in its layer.
        let small =
            |layer: Layer| others.iter().flat_map(|f| &f.parts).filter(move |part| part.layer == layer);
        let left = |layer: Layer| ledger.left(layer) + small(layer).map(|part| part.seconds).sum::<f64>();
        let left = whole.into_iter().map(|(layer, _)| (layer, left(layer))).collect();
        let (alone, neighbours) = (serial::alone(view), limits::stood_behind(view));
        let (hot, waits, called) = (hot::hot(view), hot::waits(view), hot::called(view));
        Findings { list, others, left, alone, neighbours, hot, waits, called, ..Findings::default() }
    }

    /// Seconds of a layer that no listed cause has.
    pub fn left(&self, layer: Layer) -> f64 {
        self.left.iter().filter(|(of, _)| *of == layer).map(|(_, s)| s).sum()
    }

    /// The numbers of the causes that a layer's seconds went to, from 1, with those seconds, most first.
    pub fn of_layer(&self, layer: Layer) -> Vec<(usize, f64)> {
        let seconds = |f: &Finding| -> f64 {
            f.parts.iter().filter(|part| part.layer == layer).map(|part| part.seconds).sum()
        };
        let mut all: Vec<(usize, f64)> = self
            .list
            .iter()
            .enumerate()
            .map(|(i, f)| (i + 1, seconds(f)))
            .filter(|(_, s)| *s > 0.0)
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all
    }
}

/// The weights by which causes are sorted.
struct Weights {
    /// CPU-seconds of the program, where other programs have much of the capacity.
    ran: Option<f64>,
    elapsed: f64,
}

impl Weights {
    fn new(view: &View<'_>) -> Weights {
        let crowded =
            view.seconds(Layer::Others) >= CROWDED * view.capacity() && !queued_holders::are_queued(view);
        Weights { ran: crowded.then_some(view.context.running), elapsed: view.elapsed() }
    }

    /// CPU-seconds; where other programs have much of the capacity, of what holds threads up these and what they wait: no CPU idles for it
    /// then.
    fn of(&self, found: &Finding) -> f64 {
        found.seconds + if self.holds_up(found) { found.waited.unwrap_or(0.0) } else { 0.0 }
    }

    /// Whether threads wait for a lock, or for another thread, for a part of their lives that matters, while other programs use the CPUs.
    /// Their time on run queues is not counted, and holders of locks may not have stood there for most of the wait.
    fn holds_up(&self, found: &Finding) -> bool {
        let (Some(ran), Some(waited)) = (self.ran, found.waited) else { return false };
        matches!(found.kind, Kind::Lock | Kind::KernelLock | Kind::SerialCode)
            && waited >= HELD_UP * (ran + waited)
            && waited >= BRIEF * self.elapsed
    }
}

/// The sentence of a cause that costs time and no capacity.
fn of_wait(found: &Finding, book: &Causes, elapsed: f64, meanwhile: &str) -> String {
    let bare = found.title.strip_prefix("lock ").filter(|rest| !rest.starts_with("of "));
    let name = bare.unwrap_or(&found.title);
    let what = if found.kind == Kind::Lock { "one lock: " } else { "" };
    let time = figure(found.waited.unwrap_or(0.0));
    // A sentence without the machine's share holds for time as well.
    let of_time = |entry: &&causes::Cause| {
        entry.id == found.id && entry.sentence.as_ref().is_some_and(|s| !s.contains("{share}"))
    };
    match found.kind {
        _ if book.list().iter().any(|entry| of_time(&entry)) => {
            format!("{} {meanwhile} meanwhile.", found.sentence)
        }
        Kind::Binding => format!(
            "{name} wait {time} thread-seconds in {elapsed:.1} s behind one another. {meanwhile} meanwhile."
        ),
        _ => format!(
            "Threads wait {time} thread-seconds in {elapsed:.1} s for {what}{name}. {meanwhile} meanwhile."
        ),
    }
}

/// What a claim is with what it was given.
fn finding(gains: &Gains<'_, '_>, claim: Claim, given: Vec<Given>, book: &Causes) -> Option<Finding> {
    let view = gains.view();
    let entry = book.finding(&claim.when, &claim.subject)?;
    // The sum of nothing is a negative zero.
    let seconds: f64 = given.iter().map(|part| part.seconds).sum::<f64>() + 0.0;
    let capacity = view.capacity().max(f64::MIN_POSITIVE);
    let share = seconds / capacity;
    let error = error(view, &claim, &given);
    let (asked, stacks) = (claim.asked(), stacks(view, &claim));
    let mut fields: Vec<(&str, String)> = claim.fields.clone();
    fields.push(("share", format!("{:.0} %", 100.0 * share)));
    fields.push(("seconds", figure(seconds)));
    fields.push(("waited", figure(claim.waited.unwrap_or(0.0))));
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, &**value)).collect();
    let (low, high) = gains.of(&claim, seconds, error);
    // A collector's work is all that it takes. How many more threads of a pool could work is not seen where these mostly wait.
    let open =
        claim.kind == Kind::Runtime && !claim.key.starts_with("collector ") || claim.kind == Kind::Pool;
    let moved = entry.moves.then(|| gains.of_moved()).flatten();
    let (open, gain) = match moved {
        Some(moved) => (false, moved),
        // Of the whole time, what is spared at least.
        None => (open, (1.0 / (1.0 - entry.spares * (1.0 - 1.0 / low.max(1.0))), high)),
    };
    Some(Finding {
        open,
        id: entry.id.clone(),
        kind: claim.kind,
        key: claim.key,
        title: entry.words(entry.title.as_deref().unwrap_or(&entry.id), &fields),
        sentence: entry.words(entry.sentence.as_deref().unwrap_or("{share} of the capacity"), &fields),
        seconds,
        error,
        share,
        parts: given
            .into_iter()
            .map(|given| Part { layer: given.layer, what: given.what, seconds: given.seconds })
            .collect(),
        waited: claim.waited,
        gain,
        lines: claim.lines.into_iter().map(|(label, text)| Line { label, text }).collect(),
        advice: Some(entry.advice(&fields)),
        asked,
        stacks,
    })
}

/// The sampled stacks that a claim asks for most of.
fn stacks(view: &View<'_>, claim: &Claim) -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> = Vec::new();
    for ask in &claim.asks {
        let Source::Sample(at) = ask.from else { continue };
        let sample = &view.samples[at];
        let kernel = sample.kernel.iter().map(|f| format!("{f} [kernel]"));
        let frames: Vec<String> = kernel.chain(sample.user.iter().map(|f| short(f))).collect();
        let stack = frames.join(" ← ");
        match all.iter_mut().find(|(known, _)| *known == stack) {
            Some((_, sum)) => *sum += ask.seconds,
            None => all.push((stack, ask.seconds)),
        }
    }
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(STACKS);
    all
}

/// The half-width of the 95 % interval of what was given: of the samples behind it, of the layers' idle time, which is sampled
/// too, and of what was estimated.
fn error(view: &View<'_>, claim: &Claim, given: &[Given]) -> f64 {
    let samples: f64 = given.iter().map(|part| part.samples).sum();
    let total: u64 = view.samples.iter().map(|s| s.samples).sum();
    let of_samples =
        view.context.running * chance::half_width(samples.round() as u64, total.max(samples.round() as u64));
    let beside = given.iter().filter(|part| part.samples == 0.0);
    let of_layers = beside.clone().map(|part| {
        let known = view.layers.iter().find(|(layer, ..)| *layer == part.layer);
        known.map_or(0.0, |(_, seconds, error)| error * part.seconds / seconds.max(f64::MIN_POSITIVE))
    });
    let of_layers = of_layers.fold(0.0, f64::hypot);
    let estimated: f64 = beside.map(|part| part.seconds).sum::<f64>() * claim.doubt;
    [if total > 0 { of_samples } else { 0.0 }, of_layers, estimated].into_iter().fold(0.0, f64::hypot)
}
