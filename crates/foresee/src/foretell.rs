//! Points: a model on a machine, simulated, and handed on as the tables of an observation.

use ncpu_record::{Manifest, Recording};
use ncpu_schema::{Purpose, first_waits};
use ncpu_table::{Column, Kind, Table, Type, Unit};

use crate::hardware::{Hardware, Order};
use crate::model::{Error, Model};
use crate::parallel;
use crate::sim::{MICRO, Mode, Outcome, REASONS, Random, Sim};

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
    /// Names of its locks, and whether each is the kernel's, the program's or none.
    pub locks: Vec<(String, String, crate::program::Owner)>,
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
        locks: program
            .locks
            .iter()
            .map(|l| (l.name.clone(), format!("{:?}", l.kind).to_lowercase(), l.owner))
            .collect(),
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
    let mut done = parallel::each(&jobs, |&(cpus, replica)| {
        let result = if stop() { Ok(Done::Stopped) } else { simulate(cpus, replica) };
        if stop() { Ok(Done::Stopped) } else { result }
    })
    .into_iter();
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
    let mut all = parallel::each(&inputs(model), |input| {
        let mut changed = model.clone();
        input.change(&mut changed, 1.5f64.ln());
        let point = point(&changed, hardware, at.cpus, order, &rough, stop)?;
        Ok((input.name.clone(), point.throughput / at.throughput))
    })
    .into_iter()
    .collect::<Result<Vec<_>, Error>>()?;
    all.sort_by(|a, b| b.1.ln().abs().total_cmp(&a.1.ln().abs()));
    Ok(if stop() { Vec::new() } else { all })
}

/// By how much models of this kind go astray for each doubling beyond what was recorded, the standard deviation of ln X: the
/// spread that the published curves show (`ncpu foresee --check`).
pub const ASTRAY: f64 = 0.17;

/// The same rows in the columns that an observation has; what a simulation does not know is null.
fn conform(table: &Table) -> Table {
    let Some(definition) = ncpu_schema::definition(table.name()) else { return table.clone() };
    let columns = definition.builder().finish().columns().to_vec();
    let mut out = definition.builder();
    for r in 0..table.num_rows() {
        let mut row = out.row();
        for c in &columns {
            row = match c.ty {
                Type::Text => row.text_opt(table.text(r, &c.name)),
                Type::Int => row.int_opt(table.int(r, &c.name)),
                Type::Float => row.float_opt(table.number(r, &c.name)),
            };
        }
    }
    out.finish()
}

const PS: f64 = 1e-12;

/// The point as a recording, with the tables of an observation.
pub fn recording(model: &Model, hardware: &Hardware, point: &Point, notes: Vec<String>) -> Recording {
    let mut manifest = Manifest::new(Purpose::Foresee, point.cpus as u64, vec![model.name.clone()], 0.0);
    manifest.simulated = true;
    manifest.complete = true;
    manifest.host = String::new();
    manifest.kernel = String::new();
    manifest.cpu_model = match hardware.name == hardware.shape.to_string() {
        true => format!("simulated {}", hardware.shape),
        false => format!("simulated {}: {}", hardware.name, hardware.shape),
    };
    manifest.notes = notes;
    let tables = [
        cpu_time(point),
        idle_time(point),
        samples(model, point),
        locks(model, point, true),
        locks(model, point, false),
        first_waits(point),
        threads(model, point),
        events(point),
        summary(point),
    ];
    Recording {
        manifest,
        name: "this simulation".into(),
        tables: tables.iter().map(|t| (t.name().to_string(), conform(t))).collect(),
        recovered: Vec::new(),
        notes: Vec::new(),
        selection: None,
    }
}

fn seconds(point: &Point) -> f64 {
    point.outcome.elapsed as f64 * PS
}

fn cpu_seconds(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::CpuSeconds, Kind::Time, meaning)
}

fn time(name: &str, meaning: &str) -> Column {
    Column::float(name, Unit::Seconds, Kind::Time, meaning)
}

fn at() -> Column {
    Column::float("t", Unit::Seconds, Kind::Key, "end of the interval, since the observation began")
}

fn cpu_time(point: &Point) -> Table {
    let mut columns = vec![at(), Column::id("CPU", "CPU number")];
    for (name, meaning) in [
        ("idle", "no thread to run"),
        ("target", "threads of the program"),
        ("other", "other programs"),
        ("ncpu", "ncpu itself"),
        ("spin", "the program on CPU in a kernel lock's slow path"),
        ("hardirq", "interrupt handlers"),
        ("softirq", "softirq handlers"),
        ("tlb", "answering TLB shootdowns"),
    ] {
        columns.push(cpu_seconds(name, meaning));
    }
    let mut out = Table::builder("cpu_time", &columns);
    for (cpu, used) in (0u64..).zip(&point.outcome.cpus) {
        let of = |mode: Mode| used[mode as usize] as f64 * PS;
        out.row()
            .float(seconds(point))
            .int(cpu)
            .float(of(Mode::Idle))
            .float(of(Mode::Work) + of(Mode::UserSpin) + of(Mode::Switch))
            .float(0.0)
            .float(0.0)
            .float(of(Mode::Spin))
            .float(of(Mode::Interrupt))
            .float(0.0)
            .float(of(Mode::Tlb));
    }
    out.finish()
}

fn idle_time(point: &Point) -> Table {
    let mut columns = vec![at()];
    columns.extend(REASONS.iter().map(|name| cpu_seconds(name, "what idle CPUs were idle for")));
    let mut out = Table::builder("idle_time", &columns);
    let row = out.row().float(seconds(point));
    point.outcome.idle.iter().fold(row, |row, x| row.float(x * PS));
    out.finish()
}

/// Samples as a timer would have taken them: as many as make a share exact to 0.001 %.
fn samples(model: &Model, point: &Point) -> Table {
    const SAMPLES: f64 = 1e5;
    let mut out = Table::builder(
        "samples",
        &[
            Column::text("at", "where the CPU was, as the columns of cpu_time"),
            Column::text("class", "what it was doing there, from its stack"),
            Column::text("detail", "which system call, or which function"),
            Column::text("process", "name of the thread"),
            Column::count("samples", "timer samples"),
        ],
    );
    let o = &point.outcome;
    let total = o.mode(Mode::Work) + o.mode(Mode::UserSpin) + o.mode(Mode::Switch);
    let mut put = |class: &str, detail: &str, x: f64| {
        let n = (SAMPLES * x / total.max(1.0)).round() as u64;
        if n > 0 {
            out.row().text("target").text(class).text(detail).text(&model.name).int(n);
        }
    };
    let work: f64 = o.activities.iter().map(|x| *x as f64).sum();
    let weights: f64 = model.mix.iter().map(|s| s.weight).sum();
    if weights > 0.0 {
        for share in &model.mix {
            put(&share.class, &share.detail, work * share.weight / weights);
        }
    } else {
        put("user", "", work);
    }
    put("user spin", "", o.mode(Mode::UserSpin));
    put("switch", "", o.mode(Mode::Switch));
    out.finish()
}

fn locks(model: &Model, point: &Point, kernel: bool) -> Table {
    use crate::program::Owner;
    let mut columns = vec![
        Column::text("lock", "name of the lock"),
        Column::text("type", "spinlock, mutex, rwsem …"),
        Column::text("process", "name of the waiting process"),
    ];
    if !kernel {
        columns.push(Column::id("pid", "the waiting process"));
        columns.push(Column::text("caller", "where it waits, where that can be told"));
        columns.push(Column::text("holder", "the thread that most of the wait is blamed on"));
        columns.push(Column::text("stack", "a waiter's, innermost first"));
    }
    columns.push(Column::count("count", "contended acquisitions"));
    if !kernel {
        columns.push(Column::count("wakes", "waits ended by a waker"));
    }
    columns.push(time("spin", "time waiting on CPU"));
    columns.push(time("block", "time waiting off CPU"));
    columns.push(Column::float("max", Unit::Microseconds, Kind::Peak, "longest wait"));
    let mut out = Table::builder(if kernel { "locks" } else { "user_locks" }, &columns);
    let wanted = if kernel { Owner::Kernel } else { Owner::User };
    for ((name, kind, owner), stats) in point.locks.iter().zip(&point.outcome.locks) {
        if *owner != wanted || stats.contended == 0 {
            continue;
        }
        let kind = kind.split([' ', '{']).next().unwrap_or_default();
        let mut row = out.row().text(name).text(kind).text(&model.name);
        if !kernel {
            row = row.int(1).null().null().null();
        }
        row = row.int(stats.contended);
        if !kernel {
            row = row.int(stats.contended);
        }
        row.float(stats.spin as f64 * PS).float(stats.block as f64 * PS).float(stats.longest as f64 * 1e-6);
    }
    out.finish()
}

fn first_waits(point: &Point) -> Table {
    use crate::program::Owner;
    let mut out = first_waits::Rows::new();
    for ((name, kind, owner), waits) in point.locks.iter().zip(&point.outcome.first) {
        if *owner == Owner::Serial {
            continue;
        }
        for bin in waits.bins() {
            out.push(first_waits::Row {
                lock: name.into(),
                ty: kind.split([' ', '{']).next().unwrap_or_default().into(),
                pid: (*owner == Owner::User).then_some(1),
                ahead: Some(0),
                from: Some(bin.from * 1e-3),
                to: Some(bin.to * 1e-3),
                count: Some(bin.count as u64),
                time: Some(seconds(point)),
            });
        }
    }
    out.finish()
}

fn threads(model: &Model, point: &Point) -> Table {
    let mut columns = vec![
        at(),
        Column::id("pid", "process"),
        Column::id("tid", "thread"),
        Column::text("process", "name of the process"),
        Column::text("thread", "name of the thread"),
    ];
    columns.extend(MICRO.iter().map(|name| time(name, "time in this microstate")));
    columns.push(Column::count("VCX", "voluntary context switches"));
    columns.push(Column::count("ICX", "involuntary context switches"));
    let mut out = Table::builder("threads", &columns);
    for (tid, (_, micro, voluntary, involuntary)) in (1u64..).zip(&point.outcome.threads) {
        let row = out.row().float(seconds(point)).int(1).int(tid).text(&model.name).text(&model.name);
        micro.iter().fold(row, |row, x| row.float(*x as f64 * PS)).int(*voluntary).int(*involuntary);
    }
    out.finish()
}

fn events(point: &Point) -> Table {
    let mut out = Table::builder(
        "events",
        &[at(), Column::text("event", "what was counted"), Column::count("count", "how often")],
    );
    let o = &point.outcome;
    for (event, n) in [
        ("context switches", o.switches.0 + o.switches.1),
        ("TLB shootdowns sent", o.shootdowns),
        ("TLB shootdowns received", o.interrupts),
    ] {
        out.row().float(seconds(point)).text(event).int(n);
    }
    out.finish()
}

fn summary(point: &Point) -> Table {
    let mut out = Table::builder(
        "summary",
        &[
            time("elapsed", "length of the observation"),
            Column::int("cpus", Unit::None, Kind::Gauge, "CPUs observed"),
            cpu_seconds("steal", "time the hypervisor gave to others"),
            Column::float("throughput", Unit::Figure, Kind::Gauge, "units of work a second"),
        ],
    );
    out.row().float(seconds(point)).int(point.cpus as u64).float(0.0).float(point.throughput);
    out.finish()
}
