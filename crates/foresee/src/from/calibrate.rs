//! Simulates the recorded machine and adjusts the model until it does there what was recorded.

use super::Error;
use super::locks::Seen;
use crate::first::{self, Waits};
use crate::foretell;
use crate::hardware::{Hardware, Order};
use crate::model::{Model, Recorded};
use crate::sim::{Mode, Outcome, Sim};

/// Rounds; each comes nearer by half or more.
const ROUNDS: usize = 26;
/// After so many, spinning that is not reproduced by what the waits of the first say is reproduced without them.
const DOUBT: usize = 9;
/// In the last of them locks stay as they are, so that work and waits settle.
const SETTLE: usize = 8;
/// Of what is missing so much is added a round: work and waits make one another longer, by the switches between them.
const DAMPED: f64 = 0.6;
/// Events of a round; the last few are longer.
const EVENTS: u64 = 200_000;
/// Events of the last rounds.
const LAST: u64 = 1_500_000;

/// The machine of a recording, as far as it is known: its CPUs as cores of one package, and latencies of its kin.
///
/// # Errors
/// It had no CPU, or more than are simulated.
pub fn recorded_machine(recorded: &Recorded) -> Result<Hardware, crate::hardware::ShapeError> {
    let shape = format!("1x{}x1", recorded.cpus).parse()?;
    let mut hardware = Hardware::of_shape(shape);
    hardware.turbo = 1.0;
    hardware.halt_ns = recorded.halt_ns;
    hardware.name = "the recorded machine".into();
    Ok(hardware)
}

/// CPU time of a unit that is the program's own, ns: waiting in kernel locks, interrupts and shootdowns left out, as in
/// the recording.
fn demand(out: &Outcome, cycles: f64) -> f64 {
    let own = out.mode(Mode::Work) + out.mode(Mode::UserSpin) + out.mode(Mode::Switch);
    own * 1e-3 * cycles / (out.done as f64).max(1.0)
}

fn held(model: &Model) -> f64 {
    model.lock.iter().map(|l| l.takes * l.hold_ns).sum()
}

/// Adjusts hold times and acquisitions until as many wait for each lock, and as long, as did (`seen`); the work of a unit
/// until it takes `wanted` ns of CPU time, switching included; and waits until its throughput is that of the recording.
pub(super) fn calibrate(model: &mut Model, seen: &[Seen], slack: Slack, wanted: f64) -> Result<(), Error> {
    let mut seen = seen.to_vec();
    for round in 0..ROUNDS {
        let Some(recorded) = model.recorded.clone() else { return Ok(()) };
        let hardware = recorded_machine(&recorded)?;
        let (program, cycles) = model.program(recorded.threads, recorded.cpus)?;
        let mut out = Sim::new(&program, &hardware, recorded.cpus as usize, Order::Spread, 11 + round as u64)
            .steady(0.005, if round + 3 < ROUNDS { EVENTS } else { LAST }, &|| false);
        if out.done == 0 {
            return Ok(());
        }
        out.stand_still(foretell::stood_still(model, &out, cycles));
        apart(model, slack, &recorded, out.active());
        if round == DOUBT {
            doubt(model, &mut seen, &out);
        }
        let before = held(model);
        if round + SETTLE < ROUNDS {
            locks(model, &seen, &out);
            halt(model, &seen, &out);
        }
        // Holding is a part of the same CPU time.
        if held(model) > 0.95 * wanted {
            let part = 0.95 * wanted / held(model);
            for lock in &mut model.lock {
                lock.takes *= part;
            }
        }
        let work = model.work_ns + DAMPED * (wanted - demand(&out, cycles)) - (held(model) - before);
        model.work_ns = work.max(0.02 * wanted);
        let thread_ns = |x: f64| f64::from(recorded.threads) * 1e9 / x;
        // Positive where the simulation is too fast.
        let more = thread_ns(recorded.throughput) - thread_ns(out.throughput() / cycles);
        pause(model, DAMPED * more, recorded.threads);
        if round + SETTLE < ROUNDS {
            // Until locks are as they are to be, nobody sleeps more than was seen: what spins for a lock would sleep instead.
            let awake = slack.active.min(f64::from(recorded.threads));
            let asleep = (1.0 + ROOM) * f64::from(recorded.threads) - awake;
            model.wait_ns = model.wait_ns.min(asleep.max(0.0) * 1e9 / recorded.throughput);
        }
    }
    Ok(())
}

/// Share of the threads' time that they may sleep beyond what was seen.
const ROOM: f64 = 0.01;

/// What a recording says of how its threads waited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slack {
    /// Threads that had work, on average.
    pub(super) active: f64,
    /// Share of the time in which none of them had any, 0 to 1, at most.
    pub(super) asleep: f64,
}

/// Threads that each wait at times of their own seldom stand behind one another; those of which none has work at times, and
/// all at others, do. Waits go from the first to the second until as many threads have work on average as had.
fn apart(model: &mut Model, slack: Slack, recorded: &Recorded, active: f64) {
    let unit = 1e9 / recorded.throughput;
    let step = 0.5 * (slack.active - active) / f64::from(recorded.threads.max(1));
    model.apart_ns = (model.apart_ns + step * unit).clamp(0.0, slack.asleep * unit);
}

/// The least and the largest spread of the times a lock is held.
const SPREAD: (f64, f64) = (0.05, 2.0);

/// Waits of the first end when they are woken, and all waits once they run: what lies between is how long a CPU takes until
/// it runs whom another one woke. That of the lock that most sleep for tells it.
fn halt(model: &mut Model, seen: &[Seen], out: &Outcome) {
    let mut at = 0;
    let mut most: Option<(f64, f64)> = None;
    for (lock, seen) in model.lock.iter().zip(seen) {
        let stats = &out.locks[at];
        at += lock.copies as usize;
        let told = lock.kind == "block" && lock.copies == 1 && seen.first.is_some() && stats.contended >= 20;
        if told && most.is_none_or(|(rate, _)| rate < seen.rate) {
            let waited = (stats.spin + stats.block) as f64 / stats.contended as f64 * 1e-3;
            most = Some((seen.rate, seen.wait - waited));
        }
    }
    if let (Some((_, missing)), Some(recorded)) = (most, &mut model.recorded) {
        recorded.halt_ns = (recorded.halt_ns + 0.5 * missing).clamp(0.0, MOST_HALT);
    }
}

/// A CPU does not take longer than that, ns.
const MOST_HALT: f64 = 100_000.0;

/// How far off the mean of a spinlock's waits may be where the waits of the first are believed.
const BELIEVED: f64 = 0.1;

/// The spread of a lock's hold time of which nothing is known.
const USUAL: f64 = 0.5;

/// A spinlock is handed over in no time in the waits of the first that come near zero, and takes its time where it bounces
/// between CPUs. Where mean waits are not reproduced by them, these alone must do: what spins is a layer.
fn doubt(model: &mut Model, seen: &mut [Seen], out: &Outcome) {
    let mut at = 0;
    for (lock, seen) in model.lock.iter_mut().zip(seen) {
        let stats = &out.locks[at..at + lock.copies as usize];
        at += lock.copies as usize;
        let count: u64 = stats.iter().map(|s| s.contended).sum();
        let waited: u64 = stats.iter().map(|s| s.spin + s.block).sum();
        let mean = waited as f64 / count.max(1) as f64 * 1e-3;
        let told = seen.first.is_some() || seen.behind.is_some();
        if told && lock.kind == "qspin" && count > 0 && (mean / seen.wait).ln().abs() > BELIEVED {
            (seen.first, seen.behind) = (None, None);
            (lock.cv, lock.hold_ns) = (USUAL, seen.wait);
        }
    }
}

fn locks(model: &mut Model, seen: &[Seen], out: &Outcome) {
    let seconds = out.elapsed as f64 * 1e-12;
    let mut at = 0;
    for (lock, seen) in model.lock.iter_mut().zip(seen) {
        let stats = &out.locks[at..at + lock.copies as usize];
        let mut first = Waits::default();
        out.first[at..at + lock.copies as usize].iter().for_each(|w| first.merge(w));
        at += lock.copies as usize;
        let count: u64 = stats.iter().map(|s| s.contended).sum();
        let waited: u64 = stats.iter().map(|s| s.spin + s.block).sum();
        if count == 0 || seconds <= 0.0 {
            lock.takes *= 2.0;
            continue;
        }
        let got_rate = count as f64 / seconds;
        let got_wait = waited as f64 / count as f64 * 1e-3;
        let step = |want: f64, got: f64, power: f64| (want / got).clamp(0.2, 5.0).powf(power);
        match (seen.first, first::hold(&first.bins())) {
            // The simulated waits are looked at in the same way, so that what that is off by cancels out.
            (Some(want), Some(got)) => {
                lock.hold_ns *= step(want.ns, got.ns, 0.7);
                let spread = lock.cv.powi(2) + want.wait / want.ns - got.wait / got.ns;
                lock.cv = spread.max(0.0).sqrt().clamp(SPREAD.0, SPREAD.1);
            }
            _ if seen.behind.is_some() => {}
            _ => lock.hold_ns *= step(seen.wait, got_wait, 0.7),
        }
        // The rate goes with takes squared.
        lock.takes *= step(seen.rate, got_rate, 0.5);
    }
}

/// Makes a unit last so much longer, ns; shorter where that is negative. What was inferred with least certainty gives
/// way first.
fn pause(model: &mut Model, mut more: f64, threads: u32) {
    // A serial part of which the whole program has one holds all threads up.
    let serial = f64::from(threads.max(1));
    if more >= 0.0 {
        match model.serial_ns > 0.0 {
            true => model.serial_ns += 0.7 * more / serial,
            false => model.wait_ns += more,
        }
        return;
    }
    for (part, weight) in [
        (&mut model.wait_ns, 1.0),
        (&mut model.serial_ns, serial),
        (&mut model.io_ns, 1.0),
        (&mut model.sleep_ns, 1.0),
    ] {
        let less = (-more / weight).min(*part);
        *part -= less;
        more += less * weight;
        if more >= 0.0 {
            return;
        }
    }
}

/// How the simulated machine of the recording compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproduced {
    /// Simulated throughput over the recorded one, less 1.
    pub off: f64,
    /// The layer whose share is off most: its name, the recorded share and the simulated one.
    pub layer: Option<(String, f64, f64)>,
}

impl Reproduced {
    /// Whether throughput is within 3 % and layers within 2 points.
    pub fn good(&self) -> bool {
        self.off.abs() <= 0.03 && self.layer.as_ref().is_none_or(|(_, was, is)| (was - is).abs() <= 0.02)
    }
}

/// Layers of a simulated point, by the names that [`Recorded::layers`] has.
pub(super) fn layer(out: &Outcome, name: &str) -> f64 {
    let of: &[Mode] = match name {
        "work" => &[Mode::Work, Mode::UserSpin, Mode::Switch],
        "kernel lock spin" => &[Mode::Spin],
        "TLB shootdown" => &[Mode::Tlb],
        "interrupts" => &[Mode::Interrupt],
        _ => &[Mode::Idle],
    };
    let capacity = out.cpus.len() as f64 * out.elapsed as f64;
    of.iter().map(|m| out.mode(*m)).sum::<f64>() / capacity.max(1.0)
}

/// Simulates the machine of the recording; `None` where the model has none.
///
/// # Errors
/// As [`foretell::point`].
pub fn reproduce(
    model: &Model,
    effort: &foretell::Effort,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Reproduced>, Error> {
    let Some(recorded) = &model.recorded else { return Ok(None) };
    let hardware = recorded_machine(recorded)?;
    let same = Model { threads: recorded.threads, ..model.clone() };
    // Its own noise is to be far below the 3 % that are judged.
    let fine = foretell::Effort { within: 0.005, ..*effort };
    let point = foretell::point(&same, &hardware, recorded.cpus as usize, Order::Spread, &fine, stop)?;
    let layers = recorded.layers.iter().map(|(name, was)| (name.clone(), *was, layer(&point.outcome, name)));
    Ok(Some(Reproduced {
        off: point.throughput / recorded.throughput - 1.0,
        layer: layers.max_by(|a, b| (a.1 - a.2).abs().total_cmp(&(b.1 - b.2).abs())),
    }))
}
