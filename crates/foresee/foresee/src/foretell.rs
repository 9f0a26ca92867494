//! Points: a model on a machine, simulated.

use rayon::prelude::*;

use crate::hardware::{Hardware, Order};
use crate::model::{Error, LockPart, Model, Recorded};
use crate::program::{Handover, Owner};
use crate::sim::{OWNED_NS, Outcome, Random, Sim};

/// How a point is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// 95 % half-width of the throughput over the throughput.
    pub within: f64,
    /// Events at most.
    pub events: u64,
    /// Seed.
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { within: 0.02, events: 40_000_000, seed: 1 }
    }
}

/// A simulated point.
#[derive(Clone, Debug)]
pub struct Point {
    /// CPUs in use.
    pub cpus: usize,
    /// Workers.
    pub threads: u32,
    /// Units a second.
    pub throughput: f64,
    /// 90 % band: of the simulation, and of what is not known of the model.
    pub band: (f64, f64),
    /// The distribution of the throughput.
    pub chances: Option<Mixture>,
    /// Units a second of the simulated model itself, whose layers these are.
    pub simulated: f64,
    /// Everything counted.
    pub outcome: Outcome,
    /// Its locks: name, kind and owner.
    pub locks: Vec<(String, Handover, Owner)>,
    /// Cycles of a thread that make a unit.
    pub cycles: f64,
    /// The remaining throughput, as a share, if the locks that the recording could not show were one lock that all
    /// threads wait for.
    pub left: f64,
}

/// The number of workers of a model on `cpus` CPUs: the model's own, else one per CPU and at least as many as recorded.
/// Workers with unequal shares of the work count as fewer.
pub fn workers(model: &Model, cpus: usize) -> u32 {
    let count = |n: u32| ((f64::from(n) / model.uneven.max(1.0)).round() as u32).max(1);
    match (model.threads, &model.recorded) {
        (0, Some(r)) => r.threads.max(count(cpus as u32)),
        (0, None) => count(cpus as u32),
        // Those of a recording were counted so.
        (n, Some(_)) => n,
        (n, None) => count(n),
    }
}

/// The number of threads simulated for a program with `workers` workers: where the recorded workers handed work to one
/// another, only those that could work at the same time.
pub fn active(model: &Model, workers: u32) -> u32 {
    match &model.recorded {
        Some(r) if r.workers > r.threads => {
            let part = f64::from(r.threads) / f64::from(r.workers);
            (f64::from(workers) * part).round().max(1.0) as u32
        }
        _ => workers,
    }
}

/// The machine as the model's times take it. A core slows down as others of its package work; the times were taken with
/// those CPUs at work that the program could use.
fn as_timed(model: &Model, hardware: &Hardware) -> Hardware {
    let filled =
        model.recorded.as_ref().map_or(0.0, |r| f64::from(r.cpus) / f64::from(r.of.max(r.cpus).max(1)));
    let speed = hardware.speed / (1.0 - (1.0 - hardware.turbo) * filled);
    // Unknown figures are those of the recorded machine.
    let or_recorded = |own: f64, of: fn(&Recorded) -> f64| match &model.recorded {
        Some(recorded) if own <= 0.0 => of(recorded),
        _ => own,
    };
    let halt_ns = or_recorded(hardware.halt_ns, |r| r.halt_ns);
    let handover_ns = or_recorded(hardware.handover_ns, |r| r.handover_ns);
    Hardware { speed, halt_ns, handover_ns, ..hardware.clone() }
}

/// Simulates a point. Its band is that of the simulation and of how far models go astray: [`points`] adds what is not
/// known of the model's inputs.
///
/// # Errors
/// The model has a lock of an unknown kind.
pub fn point(
    model: &Model,
    hardware: &Hardware,
    cpus: usize,
    order: Order,
    effort: &Effort,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Point, Error> {
    let hardware = &as_timed(model, hardware);
    let cpus = cpus.min(hardware.shape.cpus());
    let threads = workers(model, cpus);
    let (program, cycles) = model.program(threads, cpus as u32)?;
    let mut sim = Sim::new(&program, hardware, cpus, order, effort.seed);
    let mut outcome = sim.steady(effort.within, effort.events, stop);
    outcome.stand_still(stood_still(model, &outcome, cycles));
    let throughput = outcome.throughput() / cycles;
    let own = outcome.uncertainty().min(1.0);
    let beyond = beyond(model, cpus, threads);
    let mut point = Point {
        cpus,
        threads,
        throughput,
        band: (throughput, throughput),
        chances: None,
        simulated: throughput,
        locks: program.locks.iter().map(|l| (l.name.clone(), l.kind, l.owner)).collect(),
        outcome,
        cycles,
        left: model.recorded.as_ref().map_or(1.0, |r| {
            // One thread at a time does the work under unseen locks. This work takes up to half as long again, since
            // each hand-over moves its lines; all threads together do the rest.
            let times = (cpus as f64 / f64::from(r.cpus)).max(1.0);
            let dearer = 1.0 + 0.5 * times.log2().min(1.0);
            1.0 / (1.0 - r.unseen + r.unseen * times * dearer)
        }),
    };
    point.widen(own.hypot(ASTRAY * beyond));
    Ok(point)
}

/// Doublings from what was recorded to a point: of CPUs or of load, whichever is more, since both grow together in the published
/// curves. Load is the number of threads times how often each wants a unit while nothing makes it wait.
fn beyond(model: &Model, cpus: usize, threads: u32) -> f64 {
    let Some(recorded) = &model.recorded else { return (cpus as f64).log2().max(0.0) };
    // Forecasts for fewer CPUs are no more certain.
    let fewer = (f64::from(recorded.cpus) / cpus as f64).log2();
    let held: f64 = model.lock.iter().map(|l| l.takes * l.hold_ns).sum();
    let unit = |sleep_ns: f64| {
        model.work_ns + held + sleep_ns + model.wait_ns + model.io_ns + model.serial_ns + model.apart_ns
    };
    let more = match recorded.sleep_ns {
        Some(was) => unit(was) / unit(model.sleep_ns).max(f64::MIN_POSITIVE),
        None => 1.0,
    };
    let cpus = cpus as f64 / f64::from(recorded.cpus);
    let load = f64::from(threads) / f64::from(recorded.threads.max(1)) * more;
    cpus.max(load).log2().max(fewer).max(0.0)
}

/// The time, ps, in which no thread has anything to do, for the work done in `outcome`.
pub(crate) fn stood_still(model: &Model, outcome: &Outcome, cycles: f64) -> u64 {
    (model.apart_ns * 1e3 * outcome.done as f64 / cycles) as u64
}

impl Point {
    /// Makes the band wider by what has this standard deviation in ln X.
    fn widen(&mut self, spread: f64) {
        let x = self.throughput;
        let was = if self.band.1 > 0.0 && x > 0.0 { (self.band.1 / x).ln() } else { 0.0 };
        let half = was.hypot(1.645 * spread);
        self.band = (x * (-half.hypot(self.left.ln())).exp(), x * half.exp());
    }
}

/// Simulates points on all cores. A model that was recorded is simulated with inputs drawn again and again from what is not known of
/// them, each time on the recorded machine as well: a forecast is what was recorded times what the simulated throughput changes by, and
/// draws with which the recorded machine does something else weigh less. Points that were not done when told to stop are left out.
///
/// # Errors
/// As [`point`].
pub fn points(
    model: &Model,
    hardware: &Hardware,
    counts: &[usize],
    order: Order,
    effort: &Effort,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<Point>, Error> {
    let draws = draws(model, effort, stop)?;
    // Each point with its replicas, smallest first: a run that is stopped keeps the points done so far.
    let jobs: Vec<(usize, Option<usize>)> = counts
        .iter()
        .flat_map(|n| std::iter::once((*n, None)).chain((0..draws.len()).map(|k| (*n, Some(k)))))
        .collect();
    let simulate = |cpus: usize, replica: Option<usize>| -> Result<Done, Error> {
        let Some(k) = replica else {
            return Ok(Done::Point(Box::new(point(model, hardware, cpus, order, effort, stop)?)));
        };
        let draw = &draws[k];
        let rough = Effort { within: 0.05, events: effort.events / 10, seed: effort.seed + 1 + k as u64 };
        let at = point(&draw.model, hardware, cpus, order, &rough, stop)?;
        Ok(Done::Replica(draw.weight, (draw.scale * at.throughput).max(1e-300).ln()))
    };
    let done = jobs.par_iter().map(|&(cpus, replica)| {
        let result = if stop() { Ok(Done::Stopped) } else { simulate(cpus, replica) };
        if stop() { Ok(Done::Stopped) } else { result }
    });
    let mut done = done.collect::<Vec<_>>().into_iter();
    let mut out = Vec::new();
    for _ in counts {
        let all: Vec<Done> = done.by_ref().take(1 + draws.len()).collect::<Result<_, Error>>()?;
        if let Some(point) = with_band(model, all) {
            out.push(point);
        }
    }
    Ok(out)
}

/// A model with inputs drawn again.
struct Draw {
    model: Model,
    /// Recorded throughput over that of the simulated recorded machine.
    scale: f64,
    weight: f64,
}

/// How often the inputs are drawn again.
const REPLICAS: u64 = 16;
/// How far off the recorded throughput a draw may be, standard deviation of the logarithm: the simulation itself is not exact.
const OFF: f64 = 0.2;

/// The model, and models with inputs drawn again; none of a model that was not recorded.
fn draws(model: &Model, effort: &Effort, stop: &(dyn Fn() -> bool + Sync)) -> Result<Vec<Draw>, Error> {
    let Some(recorded) = &model.recorded else { return Ok(Vec::new()) };
    let machine = crate::recorded::recorded_machine(recorded).map_err(|e| Error::Value(e.to_string()))?;
    let inputs = inputs(model);
    let all = (0..=REPLICAS).into_par_iter().map(|k| {
        let mut drawn = model.clone();
        let mut random = Random::new(effort.seed ^ (0x5eed << 16) ^ k);
        for input in inputs.iter().filter(|_| k > 0) {
            input.change(&mut drawn, input.sd * random.normal());
        }
        let there = Model { threads: recorded.threads, ..drawn.clone() };
        let fine = Effort { within: 0.02, events: effort.events / 10, seed: effort.seed + k };
        let at = point(&there, &machine, recorded.cpus as usize, Order::Spread, &fine, stop)?.throughput;
        let off = (at.max(1e-300) / recorded.throughput).ln();
        let weight = (-0.5 * (off / OFF).powi(2)).exp().max(1e-6);
        Ok(Draw { model: drawn, scale: (-off).exp(), weight })
    });
    all.collect()
}

/// The result of a simulation.
enum Done {
    Point(Box<Point>),
    /// Weight and ln X of a draw.
    Replica(f64, f64),
    Stopped,
}

/// A point with what its replicas say; `None` where not all of them were done.
fn with_band(model: &Model, all: Vec<Done>) -> Option<Point> {
    let mut found = None;
    let mut logs = Vec::new();
    for done in all {
        match done {
            Done::Point(point) => found = Some(*point),
            Done::Replica(weight, log) => logs.push((log, weight)),
            Done::Stopped => return None,
        }
    }
    let mut point = found?;
    let recorded = !logs.is_empty();
    if !recorded {
        logs.push((point.throughput.max(1e-300).ln(), 1.0));
    }
    let own = point.outcome.uncertainty().min(1.0);
    let spread = own
        .hypot(ASTRAY * beyond(model, point.cpus, point.threads))
        .hypot(if beyond(model, point.cpus, point.threads) > 0.0 {
            CONTENDED * contended(model)
        } else {
            0.0
        })
        .max(LEAST_SPREAD);
    let mixture = Mixture::of(&logs, spread, point.left);
    if recorded {
        point.throughput = mixture.quantile(0.5);
        point.band = (mixture.quantile(0.05), mixture.quantile(0.95));
    }
    point.chances = Some(mixture);
    Some(point)
}

/// The cost of locks and lines on more CPUs, or the saving on fewer, does not follow well from their recorded cost:
/// standard deviation of ln X of a program that does nothing else.
const CONTENDED: f64 = 0.45;

/// The part of a unit's own time in which it has locks, or writes lines, that threads share.
fn contended(model: &Model) -> f64 {
    let lines: f64 = model.line.iter().map(|l| l.writes * OWNED_NS).sum();
    let held: f64 = model.lock.iter().map(|l| l.takes * (l.hold_ns + l.wake_ns)).sum();
    ((lines + held) / (lines + held + model.work_ns).max(f64::MIN_POSITIVE)).min(1.0)
}

/// Spread of identical runs of real programs, standard deviation of ln X.
const LEAST_SPREAD: f64 = 0.02;
/// How likely locks that a recording could not show are waited for.
const UNSEEN: f64 = 0.5;

/// The distribution of a throughput: normal distributions of ln X with weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixture {
    /// Means, and weights that sum to 1.
    parts: Vec<(f64, f64)>,
    spread: f64,
}

impl Mixture {
    /// Of weighted logarithms, each with this spread; should locks be waited for that were not seen, a share `left` of the throughput is
    /// left at worst.
    fn of(logs: &[(f64, f64)], spread: f64, left: f64) -> Mixture {
        let sum: f64 = logs.iter().map(|(_, w)| w).sum::<f64>().max(1e-300);
        let mut parts = Vec::new();
        for (log, weight) in logs {
            let weight = weight / sum;
            if left >= 1.0 {
                parts.push((*log, weight));
                continue;
            }
            parts.push((*log, (1.0 - UNSEEN) * weight));
            for part in [1.0, 2.0, 3.0] {
                parts.push((log + part / 3.0 * left.ln(), UNSEEN / 3.0 * weight));
            }
        }
        Mixture { parts, spread }
    }

    /// How likely it is that no more than `x` is done a second.
    pub fn at_most(&self, x: f64) -> f64 {
        let z = |mean: f64| (x.max(1e-300).ln() - mean) / self.spread;
        let sum: f64 = self.parts.iter().map(|(mean, weight)| weight * normal(z(*mean))).sum();
        sum.clamp(0.0, 1.0)
    }

    /// The throughput that is not reached with this probability.
    pub fn quantile(&self, q: f64) -> f64 {
        let ends = self
            .parts
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (mean, _)| (a.min(*mean), b.max(*mean)));
        let (mut low, mut high) = (ends.0 - 8.0 * self.spread, ends.1 + 8.0 * self.spread);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.at_most(middle.exp()) < q { low = middle } else { high = middle }
        }
        (0.5 * (low + high)).exp()
    }
}

/// The normal distribution function, to 1e-7 (Abramowitz and Stegun 26.2.17).
fn normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let tail = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt()
        * t
        * (0.319_381_530
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    if z < 0.0 { tail } else { 1.0 - tail }
}

/// Something of a model that a recording tells only roughly.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Standard deviation of its logarithm.
    pub sd: f64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Lock(usize),
    Lines(usize),
    Line(usize),
    Work,
    Serial,
    Wait,
}

impl Input {
    /// Changes it by a factor's logarithm; what the recording fixes together with it goes along.
    pub(crate) fn change(&self, model: &mut Model, by: f64) {
        let factor = by.exp();
        match self.what {
            Lock(at) => {
                let lock = &mut model.lock[at];
                let was = lock.takes * lock.hold_ns;
                lock.hold_ns *= factor;
                // As many waited: the rate goes with takes squared and the hold time.
                lock.takes /= factor.sqrt();
                let more = lock.takes * lock.hold_ns - was;
                model.work_ns = (model.work_ns - more).max(0.0);
            }
            Lines(at) => model.lock[at].lines = (model.lock[at].lines * factor).max(1.0),
            Line(at) => model.line[at].writes *= factor,
            Work => model.work_ns *= factor,
            Serial => {
                // The CPU time of both is known well.
                let more = model.serial_ns * (factor - 1.0);
                model.serial_ns += more;
                model.work_ns = (model.work_ns - more).max(0.0);
            }
            Wait => {
                model.wait_ns *= factor;
                model.io_ns *= factor;
            }
        }
    }
}

use What::{Line, Lines, Lock, Serial, Wait, Work};

/// Inputs of a model that a recording gives only roughly; none for a model that was written by hand.
pub fn inputs(model: &Model) -> Vec<Input> {
    if model.recorded.is_none() {
        return Vec::new();
    }
    let input = |name: &str, sd, what| Input { name: name.into(), sd, what };
    // Hold times from counts and mean waits are off by half to twice, and those of locks that are slept for by more, since waits for
    // them include the way to sleep and back; work is sampled well.
    let held = |lock: &LockPart| if lock.kernel { 0.4 } else { 0.7 };
    let mut out = vec![input("work", 0.02, Work)];
    out.extend(
        (0..)
            .zip(&model.lock)
            .map(|(i, l)| input(&format!("how long lock {} is held", l.name), held(l), Lock(i))),
    );
    let queued = (0..).zip(&model.lock).filter(|(_, l)| l.lines > 1.0);
    out.extend(
        queued.map(|(i, l)| {
            input(&format!("what handing lock {} over takes in a queue", l.name), 0.4, Lines(i))
        }),
    );
    out.extend(
        (0..)
            .zip(&model.line)
            .map(|(i, l)| input(&format!("how often line {} is written", l.name), 0.4, Line(i))),
    );
    if model.serial_ns > 0.0 {
        out.push(input("the serial part", 0.4, Serial));
    }
    if model.wait_ns + model.io_ns > 0.0 {
        out.push(input("waits for devices and other threads", 0.1, Wait));
    }
    out
}

/// The inputs that the answer at a point depends on most: each input, and the ratio of the throughput with this
/// input 1.5 times as large to the predicted one, largest difference first.
///
/// # Errors
/// As [`point`].
pub fn hangs_on(
    model: &Model,
    hardware: &Hardware,
    at: &Point,
    order: Order,
    effort: &Effort,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<(String, f64)>, Error> {
    let rough = Effort { within: 0.05, events: effort.events / 10, seed: effort.seed };
    let inputs = inputs(model);
    let all = inputs.par_iter().map(|input| {
        let mut changed = model.clone();
        input.change(&mut changed, 1.5f64.ln());
        let point = point(&changed, hardware, at.cpus, order, &rough, stop)?;
        Ok((input.name.clone(), point.throughput / at.simulated))
    });
    let mut all = all.collect::<Result<Vec<_>, Error>>()?;
    all.sort_by(|a, b| b.1.ln().abs().total_cmp(&a.1.ln().abs()));
    Ok(if stop() { Vec::new() } else { all })
}

/// By how much models of this kind go astray for each doubling beyond what was recorded, the standard deviation of ln X: the
/// spread that the published curves show (`foresee-check curves`).
pub const ASTRAY: f64 = 0.17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_is_what_it_is_made_of() {
        let one = Mixture::of(&[(2.0, 1.0)], 0.1, 1.0);
        assert!((one.quantile(0.5).ln() - 2.0).abs() < 1e-6);
        assert!((one.quantile(0.95).ln() - 2.1645).abs() < 1e-3, "{}", one.quantile(0.95).ln());
        assert!((one.at_most(2f64.exp()) - 0.5).abs() < 1e-6);
        // One draw in four is far below: so is a quarter of what may be.
        let two = Mixture::of(&[(0.0, 1.0), (2.0, 3.0)], 0.05, 1.0);
        assert!((two.at_most(1f64.exp()) - 0.25).abs() < 1e-6);
        // Locks that a recording could not show take a share at worst.
        let unseen = Mixture::of(&[(0.0, 1.0)], 0.02, 0.25);
        assert!(unseen.quantile(0.05) < 0.3 && unseen.quantile(0.95) > 0.98, "{unseen:?}");
        let above = unseen.at_most(0.9);
        assert!((above - UNSEEN).abs() < 0.01, "{above}");
    }
}
