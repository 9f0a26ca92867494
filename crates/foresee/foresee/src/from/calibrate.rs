//! Simulates the recorded machine and adjusts the model until it does there what was recorded.

use super::Error;
use super::locks::Seen;
use crate::first::{self, Hold, Waits};
use crate::foretell;
use crate::hardware::Order;
use crate::model::{FIRST_LINE, Model, Recorded};
use crate::program::LockKind;
use crate::recorded::recorded_machine;
use crate::sim::{Mode, Outcome, Sim};

/// Rounds; each comes nearer by half or more.
const ROUNDS: usize = 26;
/// After this many rounds, spinning that first waiters' waits do not reproduce is reproduced without them.
const DOUBT: usize = 9;
/// In the last of them locks stay as they are, so that work and waits settle.
const SETTLE: usize = 8;
/// The part of a missing time that is added in a round: work and waits make one another longer, by the switches
/// between them.
const DAMPED: f64 = 0.6;
/// Events of a round; the last few are longer.
const EVENTS: u64 = 200_000;
/// Events of the last rounds.
const LAST: u64 = 1_500_000;

/// CPU time of a unit that is the program's own, ns: waiting in kernel locks, interrupts and shootdowns left out, as in
/// the recording.
fn demand(out: &Outcome, cycles: f64) -> f64 {
    let own = out.mode(Mode::Work) + out.mode(Mode::UserSpin) + out.mode(Mode::Switch);
    own * 1e-3 * cycles / (out.done as f64).max(1.0)
}

fn held(model: &Model) -> f64 {
    model.lock.iter().map(|l| l.takes * l.hold_ns).sum()
}

/// Adjusts hold times and acquisitions until the number and the length of the waits for each lock are as recorded
/// (`seen`); the work of a unit until it takes `wanted` ns of CPU time, switching included; and waits until the
/// throughput is that of the recording. Writes of lines are adjusted until a unit waits for each line as long as
/// recorded (`lines`, ns), where that was seen.
pub(super) fn calibrate(
    model: &mut Model,
    (seen, lines): (&[Seen], &[Option<f64>]),
    slack: Slack,
    wanted: f64,
) -> Result<(), Error> {
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
            locks(model, &seen, &out, &recorded, out.throughput() / cycles);
            halt(model, &seen, &out);
        }
        if round + 3 < ROUNDS {
            written(model, lines, &out, cycles);
        }
        // Spinning is a layer: it settles together with the work.
        if round + SETTLE < ROUNDS || round + 3 < ROUNDS && seen.iter().any(|s| s.in_step) {
            hand_over(model, &seen, &out);
        }
        // Holding is a part of the same CPU time.
        if held(model) > 0.95 * wanted {
            let part = 0.95 * wanted / held(model);
            for (lock, seen) in model.lock.iter_mut().zip(&seen) {
                // A spinlock is taken no less often than it is waited for.
                let least = if lock.kind == LockKind::Qspin { seen.rate / recorded.throughput } else { 0.0 };
                let least = seen.takes.unwrap_or(least);
                let takes = (part * lock.takes).max(least.min(lock.takes));
                lock.hold_ns *= part * lock.takes / takes;
                lock.takes = takes;
            }
        }
        let work = model.work_ns + DAMPED * (wanted - demand(&out, cycles)) - (held(model) - before);
        model.work_ns = work.max(0.02 * wanted);
        let thread_ns = |x: f64| f64::from(recorded.threads) * 1e9 / x;
        // Positive where the simulation is too fast.
        let more = thread_ns(recorded.throughput) - thread_ns(out.throughput() / cycles);
        pause(model, DAMPED * more, recorded.threads);
        let in_step = seen.iter().any(|s| s.in_step) || lines.iter().any(Option::is_some);
        if round + SETTLE < ROUNDS || in_step {
            // Until locks are as they are to be, nobody sleeps more than was seen: what spins for a lock would sleep instead. Where
            // threads come to a spinlock in step, or wait for a line, that stays so, for a sleeper makes the others faster.
            let room = if in_step { 0.0 } else { ROOM };
            let awake = slack.active.min(f64::from(recorded.threads));
            let asleep = (1.0 + room) * f64::from(recorded.threads) - awake;
            model.wait_ns = model.wait_ns.min(asleep.max(0.0) * 1e9 / recorded.throughput);
        }
    }
    Ok(())
}

/// The power of what is missing by which writes change in a round: waiting for a line that is never free changes by more than they do.
const NEARER: f64 = 0.4;

/// Adjusts the writes of lines until a unit waits for them as long as recorded.
fn written(model: &mut Model, lines: &[Option<f64>], out: &Outcome, cycles: f64) {
    for (i, (line, wanted)) in model.line.iter_mut().zip(lines).enumerate() {
        let Some(wanted) = wanted else { continue };
        let time = out.activities.get(FIRST_LINE as usize + i).copied().unwrap_or(0);
        let got = time as f64 * 1e-3 * cycles / (out.done as f64).max(1.0);
        line.writes *= (wanted / got.max(0.01 * wanted)).clamp(0.3, 3.0).powf(NEARER);
    }
}

/// Share of the threads' time that they may sleep beyond what was seen.
const ROOM: f64 = 0.01;

/// How the threads of a recording waited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slack {
    /// Threads that had work, on average.
    pub(super) active: f64,
    /// Share of the time in which no thread had work, 0 to 1, at most.
    pub(super) asleep: f64,
}

/// Threads that wait independently seldom stand behind one another; threads that all have work at some times, and none
/// at others, do. Waits move from the first kind to the second until the mean number of threads with work is as
/// recorded.
fn apart(model: &mut Model, slack: Slack, recorded: &Recorded, active: f64) {
    let unit = 1e9 / recorded.throughput;
    let step = 0.5 * (slack.active - active) / f64::from(recorded.threads.max(1));
    model.apart_ns = (model.apart_ns + step * unit).min(slack.asleep * unit).max(0.0);
}

/// The least and the largest spread of the times a lock is held.
const SPREAD: (f64, f64) = (0.05, 2.0);
/// No lock is held for less, ns.
const LEAST_HELD: f64 = 1.0;

/// The spread of hold times with which the ratio of first waiters' waits to the hold time is as recorded.
fn spread(cv: f64, want: &Hold, got: &Hold) -> f64 {
    let spread = cv.powi(2) + want.wait / want.ns - got.wait / got.ns;
    spread.max(0.0).sqrt().clamp(SPREAD.0, SPREAD.1)
}

/// Waits of the first end when they are woken, and all waits once they run: what lies between is how long a CPU takes until
/// it runs whom another one woke. That of the lock that most sleep for tells it.
fn halt(model: &mut Model, seen: &[Seen], out: &Outcome) {
    let mut at = 0;
    let mut most: Option<(f64, f64)> = None;
    for (lock, seen) in model.lock.iter().zip(seen) {
        let stats = &out.locks[at];
        at += lock.copies as usize;
        let told = lock.kind == LockKind::Block
            && lock.copies == 1
            && (seen.first.is_some() || seen.held.is_some())
            && stats.contended >= 20;
        if told && most.is_none_or(|(rate, _)| rate < seen.rate) {
            let waited = (stats.spin + stats.block) as f64 / stats.contended as f64 * 1e-3;
            most = Some((seen.rate, seen.wait - waited));
        }
    }
    if let (Some((_, missing)), Some(recorded)) = (most, &mut model.recorded) {
        recorded.halt_ns = (recorded.halt_ns + 0.5 * missing).clamp(0.0, MOST_HALT);
    }
}

/// A thread that spins for a lock gets it no sooner than the hand-over takes, however short the residual hold time is: the
/// shortest of first waiters' waits last for that. Where threads come to the lock in step, no wait is short, and the mean must do.
fn hand_over(model: &mut Model, seen: &[Seen], out: &Outcome) {
    let Some(i) = told_by(model, seen) else { return };
    let (count, mean, first) = &waited(model, out)[i];
    let missing = match (seen[i].least, first::hold(&first.bins())) {
        _ if *count == 0 => 0.0,
        // A thread that comes during the hand-over to another waits for two hand-overs.
        _ if seen[i].in_step => 0.5 * (seen[i].wait - mean),
        (Some(want), Some(got)) => want - got.least,
        _ => 0.0,
    };
    if let Some(recorded) = &mut model.recorded {
        let handed = recorded.handover_ns + 0.7 * missing;
        recorded.handover_ns = handed.clamp(0.0, MOST_HALT);
        // Fewer lines move with it than was assumed: two CPUs do not show that, for nobody waits behind the one that is next.
        if recorded.cpus > 2 {
            let lock = &mut model.lock[i];
            lock.lines = (lock.lines + handed.min(0.0) / super::TRANSFER_NS).max(1.0);
        }
    }
}

/// A CPU does not take longer than that, ns.
const MOST_HALT: f64 = 100_000.0;

/// How far off the mean of a spinlock's waits may be where the waits of the first are believed.
const BELIEVED: f64 = 0.1;
/// The same for the lock that determines the hand-over time: most spinning is for this lock.
const BELIEVED_OF_HAND_OVERS: f64 = 0.02;

/// The spread of a lock's hold time of which nothing is known.
const USUAL: f64 = 0.5;

/// The lock whose waits determine the hand-over time of spinlocks: the kernel's lock with most waits.
fn told_by(model: &Model, seen: &[Seen]) -> Option<usize> {
    let spins = |i: &usize| {
        let lock = &model.lock[*i];
        lock.kernel && lock.kind == LockKind::Qspin && lock.copies == 1 && seen[*i].rate > 0.0
    };
    (0..model.lock.len().min(seen.len())).filter(spins).max_by(|a, b| seen[*a].rate.total_cmp(&seen[*b].rate))
}

/// Waits for the copies of each lock: how many, how long on average, ns, and those of the first.
fn waited(model: &Model, out: &Outcome) -> Vec<(u64, f64, Waits)> {
    let mut at = 0;
    let of = |copies: u32| {
        let mine = at..at + copies as usize;
        at = mine.end;
        let stats = &out.locks[mine.clone()];
        let count: u64 = stats.iter().map(|s| s.contended).sum();
        let waited: u64 = stats.iter().map(|s| s.spin + s.block).sum();
        let mut first = Waits::default();
        out.first[mine].iter().for_each(|w| first.merge(w));
        (count, waited as f64 / count.max(1) as f64 * 1e-3, first)
    };
    model.lock.iter().map(|l| l.copies).map(of).collect()
}

/// Spinning is a layer, so the mean waits of spinlocks must be reproduced. Where first waiters' waits do not reproduce
/// them, because threads come to the lock in step, missing time is added to the hand-over; too long waits with a
/// hand-over of 0 shorten the hold time. Spinlocks other than the one that determines hand-overs are adjusted by their
/// hold times.
fn doubt(model: &mut Model, seen: &mut [Seen], out: &Outcome) {
    let teller = told_by(model, seen);
    let waits = waited(model, out);
    for (i, (lock, seen)) in model.lock.iter_mut().zip(seen).enumerate() {
        let (count, mean, _) = waits[i];
        let off = (mean / seen.wait).ln().abs();
        if lock.kind != LockKind::Qspin || count == 0 {
            continue;
        }
        if Some(i) == teller {
            seen.in_step = off > BELIEVED_OF_HAND_OVERS;
        } else if off > BELIEVED && seen.takes.is_none() && (seen.first.is_some() || seen.behind.is_some()) {
            (seen.first, seen.behind) = (None, None);
            (lock.cv, lock.hold_ns) = (USUAL, seen.wait);
        }
    }
}

fn locks(model: &mut Model, seen: &[Seen], out: &Outcome, recorded: &Recorded, throughput: f64) {
    let seconds = out.elapsed as f64 * 1e-12;
    let (handed, faster) = (recorded.handover_ns, recorded.throughput / throughput);
    let waits = waited(model, out);
    for ((lock, seen), (count, got_wait, first)) in model.lock.iter_mut().zip(seen).zip(waits) {
        if count == 0 || seconds <= 0.0 {
            match seen.takes {
                _ if seen.held.is_some() => {}
                Some(_) => lock.hold_ns *= 2.0,
                None => lock.takes *= 2.0,
            }
            continue;
        }
        let got_rate = count as f64 / seconds;
        let step = |want: f64, got: f64, power: f64| (want / got).clamp(0.2, 5.0).powf(power);
        if seen.held.is_some() {
            // How often it is waited for, the time that sleeping takes decides: how often it is taken shows where many wait.
            continue;
        }
        match (seen.first, first::hold(&first.bins())) {
            // The rate of waits determines the hold time, if the acquisitions are known and nothing better is.
            (first, got) if seen.takes.is_some() && (seen.in_step || first.is_none() || got.is_none()) => {
                lock.hold_ns = (lock.hold_ns * step(seen.rate, got_rate * faster, 0.7)).max(LEAST_HELD);
            }
            // Hand-overs take what is missing; of too much there is nothing left to be taken off them.
            _ if seen.in_step => {
                if handed <= 0.0 && got_wait > seen.wait {
                    lock.hold_ns *= step(seen.wait, got_wait, 0.7);
                }
            }
            // The simulated waits are looked at in the same way, so that what that is off by cancels out. Not where bins are
            // coarser than what is looked for, which is so where handing over takes longer than holding.
            (Some(want), Some(got)) => {
                if want.least > want.ns {
                    lock.hold_ns = want.ns;
                } else {
                    lock.hold_ns *= step(want.ns, got.ns, 0.7);
                }
                lock.cv = spread(lock.cv, &want, &got);
            }
            _ if seen.behind.is_some() => {}
            _ => lock.hold_ns *= step(seen.wait, got_wait, 0.7),
        }
        if seen.takes.is_some() {
            continue;
        }
        // For a spinlock that is always held, the rate gives the hold time of an acquisition, and the waits of a unit
        // of work give the number of acquisitions.
        let got_rate = if lock.kind == LockKind::Qspin { got_rate * faster } else { got_rate };
        // The rate goes with takes squared.
        lock.takes *= step(seen.rate, got_rate, 0.5);
    }
}

/// Makes a unit last `more` ns longer, or shorter if that is negative. The least certain parts of the model change
/// first.
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
    /// The layer with the largest error: its name, the recorded share and the simulated one.
    pub layer: Option<(String, f64, f64)>,
}

impl Reproduced {
    /// Whether throughput is within 5 %, and layers within 5 points.
    pub fn good(&self) -> bool {
        self.astray() <= 1.0
    }

    /// How far off it is, 1 at most where it is good.
    pub(super) fn astray(&self) -> f64 {
        let layer = self.layer.as_ref().map_or(0.0, |(_, was, is)| (was - is).abs());
        (self.off.abs() / 0.05).max(layer / 0.05)
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
