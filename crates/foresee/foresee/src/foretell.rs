//! Points: a model on a machine, simulated.

use rayon::prelude::*;

use crate::hardware::{Hardware, Order};
use crate::model::{Error, Model};
use crate::program::{Handover, Owner};
use crate::sim::{Outcome, Random, Sim};

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
    /// Everything counted.
    pub outcome: Outcome,
    /// Its locks: name, kind and owner.
    pub locks: Vec<(String, Handover, Owner)>,
    /// Cycles of a thread that make a unit.
    pub cycles: f64,
    /// What is left of the throughput, as a share, should locks that the recording could not show be one that all wait for.
    pub left: f64,
}

/// How many workers a model has on so many CPUs: as it says, else one a CPU, and no fewer than were recorded. Of those that
/// have unequal shares of the work as many as count.
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

/// How many threads are simulated for a program with so many workers: where those recorded handed work to one another,
/// as many as could work at the same time.
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
    Hardware { speed, ..hardware.clone() }
}

/// Simulates a point. Its band is that of the simulation and of how far models go astray: [`points`] adds what is not
/// known of the model's inputs.
///
/// # Errors
/// The model has a lock of a kind that there is not.
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
        locks: program.locks.iter().map(|l| (l.name.clone(), l.kind, l.owner)).collect(),
        outcome,
        cycles,
        left: model.recorded.as_ref().map_or(1.0, |r| {
            // One at a time does what is under them, and all together do the rest.
            let times = (cpus as f64 / f64::from(r.cpus)).max(1.0);
            1.0 / (1.0 + r.unseen * (times - 1.0))
        }),
    };
    point.widen(own.hypot(ASTRAY * beyond));
    Ok(point)
}

/// Doublings from what was recorded to a point: of CPUs or of load, whichever is more, since both grow together in the published
/// curves. Load is the number of threads times how often each wants a unit while nothing makes it wait.
fn beyond(model: &Model, cpus: usize, threads: u32) -> f64 {
    let Some(recorded) = &model.recorded else { return (cpus as f64).log2().max(0.0) };
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
    cpus.max(load).log2().max(0.0)
}

/// For how long, ps, nobody has anything to do while so much is done.
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

/// Simulates points on all cores, each with inputs drawn again for its band. Those that were not done when told to stop
/// are left out.
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
    let inputs = inputs(model);
    let again = if inputs.is_empty() { 0 } else { REPLICAS };
    // Each point with its replicas, smallest first: whoever is stopped has those that were done.
    let jobs: Vec<(usize, u64)> = counts.iter().flat_map(|n| (0..=again).map(|k| (*n, k))).collect();
    let rough = Effort { within: 0.05, events: effort.events / 10, seed: effort.seed };
    let simulate = |cpus: usize, replica: u64| -> Result<Done, Error> {
        if replica == 0 {
            return Ok(Done::Point(Box::new(point(model, hardware, cpus, order, effort, stop)?)));
        }
        let mut drawn = model.clone();
        let mut random = Random::new(effort.seed ^ (0x5eed << 16) ^ replica);
        for input in &inputs {
            input.change(&mut drawn, input.sd * random.normal());
        }
        let seeded = Effort { seed: rough.seed + replica, ..rough };
        Ok(Done::Replica(point(&drawn, hardware, cpus, order, &seeded, stop)?.throughput))
    };
    let done = jobs.par_iter().map(|&(cpus, replica)| {
        let result = if stop() { Ok(Done::Stopped) } else { simulate(cpus, replica) };
        if stop() { Ok(Done::Stopped) } else { result }
    });
    let mut done = done.collect::<Vec<_>>().into_iter();
    let mut out = Vec::new();
    for _ in counts {
        let all: Vec<Done> = done.by_ref().take(1 + again as usize).collect::<Result<_, Error>>()?;
        if let Some(point) = with_band(all) {
            out.push(point);
        }
    }
    Ok(out)
}

/// What became of a simulation.
enum Done {
    Point(Box<Point>),
    Replica(f64),
    Stopped,
}

/// A point whose band holds what its replicas did; `None` where not all of them were done.
fn with_band(all: Vec<Done>) -> Option<Point> {
    let mut found = None;
    let mut logs = Vec::new();
    for done in all {
        match done {
            Done::Point(point) => found = Some(*point),
            Done::Replica(x) => logs.push(x.max(1e-300).ln()),
            Done::Stopped => return None,
        }
    }
    let n = logs.len() as f64;
    let mut point = found?;
    if n > 1.0 {
        let mean = logs.iter().sum::<f64>() / n;
        let var = logs.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        point.widen(var.sqrt());
    }
    Some(point)
}

/// How often the inputs are drawn again.
const REPLICAS: u64 = 8;

/// Something of a model that a recording tells only roughly.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// What it is.
    pub name: String,
    /// Standard deviation of its logarithm.
    pub sd: f64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Lock(usize),
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

use What::{Line, Lock, Serial, Wait, Work};

/// What of a model that was learnt from a recording is known only roughly; nothing of one that was written by hand.
pub fn inputs(model: &Model) -> Vec<Input> {
    if model.recorded.is_none() {
        return Vec::new();
    }
    let input = |name: &str, sd, what| Input { name: name.into(), sd, what };
    // Hold times from counts and mean waits are off by half to twice; work is sampled well.
    let mut out = vec![input("work", 0.02, Work)];
    out.extend(
        (0..)
            .zip(&model.lock)
            .map(|(i, l)| input(&format!("how long lock {} is held", l.name), 0.4, Lock(i))),
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

/// What the answer at a point hangs on most: each input, and the throughput over that foretold were it 1.5 times as
/// large, those that make the most of a difference first.
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
        Ok((input.name.clone(), point.throughput / at.throughput))
    });
    let mut all = all.collect::<Result<Vec<_>, Error>>()?;
    all.sort_by(|a, b| b.1.ln().abs().total_cmp(&a.1.ln().abs()));
    Ok(if stop() { Vec::new() } else { all })
}

/// By how much models of this kind go astray for each doubling beyond what was recorded, the standard deviation of ln X: the
/// spread that the published curves show (`foresee-check curves`).
pub const ASTRAY: f64 = 0.17;
