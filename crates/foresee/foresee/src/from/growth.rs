//! CPU time of a unit of work that grows with the CPUs and is not spent in locks, by `ncpu scale --peel`.

use std::collections::BTreeMap;

use ncpu_machine::CpuSet;
use ncpu_record::Recording;
use ncpu_schema::Layer;

use super::Error;
use crate::hardware::Order;
use crate::model::{LineModel, Model, Recorded};
use crate::recorded::recorded_machine;
use crate::sim::{Mode, Sim};

/// Layers in which the program runs its own code, or the kernel's for it, without waiting for anybody.
const CODE: [Layer; 5] = [Layer::Calls, Layer::Faults, Layer::OtherKernel, Layer::Kernel, Layer::User];

/// A layer that grows by less than this share of a unit's CPU time says nothing.
const LEAST: f64 = 0.02;

/// The number of lines in which words of the program's data that all its threads write are taken to lie. The kernel's
/// words are counts of references and the like, and are taken to lie in one.
const MANY: u32 = 64;

/// A layer's cost at a CPU count.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    cpus: f64,
    /// Percent of what a unit takes at the smallest count.
    percent: f64,
    /// Half-width of the 95 % interval of its growth.
    error: f64,
}

/// The costs of a unit's layers over CPU counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Growth {
    layers: BTreeMap<Layer, Vec<Cost>>,
}

/// A layer that grows.
struct Grown {
    layer: Layer,
    /// By what share of the unit's CPU time, were there very many CPUs.
    by: f64,
    /// By what share at the largest count.
    seen: f64,
}

impl Growth {
    /// The layers of a recording of `ncpu scale --peel`, at counts that the machine had CPUs for.
    pub(super) fn of(recording: &Recording) -> Option<Growth> {
        let table = recording.tables.get("layers")?;
        let points = recording.tables.get("scale")?;
        let had: Vec<f64> = (0..points.num_rows())
            .filter_map(|r| {
                let n = points.number(r, "N")?;
                // Not bound: on all CPUs.
                let list = points.text(r, "CPUs").filter(|l| !l.is_empty());
                let cpus = list.map_or(recording.manifest.cpus as f64, |l| {
                    CpuSet::parse_list(l).map_or(0.0, |set| set.len() as f64)
                });
                (n <= cpus).then_some(n)
            })
            .collect();
        let mut layers = BTreeMap::<Layer, Vec<Cost>>::new();
        for r in 0..table.num_rows() {
            let (Some(layer), Some(n)) =
                (table.text(r, "layer").and_then(|l| Layer::of_name(l).ok()), table.number(r, "N"))
            else {
                continue;
            };
            if !had.contains(&n) {
                continue;
            }
            let (percent, error) = (table.number(r, "cost")?, table.number(r, "error").unwrap_or(0.0));
            layers.entry(layer).or_default().push(Cost { cpus: n, percent, error });
        }
        for costs in layers.values_mut() {
            costs.sort_by(|a, b| a.cpus.total_cmp(&b.cpus));
        }
        let counts = layers.values().map(Vec::len).max().unwrap_or(0);
        (counts >= 2).then_some(Growth { layers })
    }

    /// The smallest CPU count and the largest.
    fn span(&self) -> (f64, f64) {
        let all = || self.layers.values().flatten().map(|c| c.cpus);
        (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max))
    }

    /// The share of the program's own code at the smallest count, percent.
    fn own(&self) -> f64 {
        let first = self.span().0;
        let of = |layer: &Layer| self.layers.get(layer).and_then(|c| c.iter().find(|c| c.cpus == first));
        CODE.iter().filter_map(of).map(|c| c.percent).sum()
    }

    /// Layers of code that grow by more than their samples' error.
    fn grown(&self) -> Vec<Grown> {
        let ((first, last), own) = (self.span(), self.own());
        if own <= 0.0 {
            return Vec::new();
        }
        let grown = |layer: &Layer| {
            let costs = self.layers.get(layer)?;
            let at = |n: f64| costs.iter().find(|c| c.cpus == n);
            let before = at(first).map_or(0.0, |c| c.percent);
            let (mut above, mut below) = (0.0, 0.0);
            for c in costs {
                let b = elsewhere(c.cpus) - elsewhere(first);
                above += b * (c.percent - before);
                below += b * b;
            }
            let most = at(last)?;
            let seen = (most.percent - before) / own;
            let by = if below > 0.0 { above / below / own } else { 0.0 };
            let sure = seen > LEAST && seen > most.error / own && by > 0.0;
            sure.then_some(Grown { layer: *layer, by, seen })
        };
        CODE.iter().filter_map(grown).collect()
    }

    /// Puts lines into the model that all threads write, often enough that moving them takes as much CPU time as the
    /// layers grow by; and, if it was recorded on one CPU, a serial part. `per_unit` is a unit's CPU time when
    /// recorded, ns.
    ///
    /// # Errors
    /// The model cannot be simulated.
    pub(super) fn put(&self, model: &mut Model, per_unit: f64, notes: &mut Vec<String>) -> Result<(), Error> {
        let Some(recorded) = model.recorded.clone() else { return Ok(()) };
        let ((first, last), grown) = (self.span(), self.grown());
        let all: f64 = grown.iter().map(|g| g.by).sum();
        let cpus = f64::from(recorded.cpus);
        // The CPU time of a unit at the smallest count.
        let own = per_unit / (1.0 + all * (elsewhere(cpus) - elsewhere(first))).max(0.2);
        self.serial(model, own, cpus, notes);
        if recorded.cpus == 1 {
            self.spins(notes);
        }
        if grown.is_empty() {
            notes.push(format!(
                "ncpu scale --peel: no layer of the program's code grows from {first} to {last} CPUs by more than {:.0} % of a unit and \
                 the error of its samples: no lines are in the model",
                100.0 * LEAST
            ));
            return Ok(());
        }
        let hop = recorded_machine(&recorded)?.transfer.cluster;
        for g in &grown {
            model.line.push(LineModel {
                name: g.layer.name().into(),
                writes: g.by * own / hop,
                copies: 1,
                among: if g.layer == Layer::User { MANY } else { 1 },
                bounded: false,
            });
        }
        let seen: f64 = grown.iter().map(|g| g.seen).sum();
        for _ in 0..ROUNDS {
            let got = simulated(model, &recorded, first, last)? / own;
            if got <= 0.0 {
                break;
            }
            model.line.iter_mut().for_each(|l| l.writes *= (seen / got).clamp(0.5, 2.0));
        }
        for (line, g) in model.line.iter().zip(&grown) {
            let where_ = match line.among {
                1 => "one line",
                _ => "many lines",
            };
            notes.push(format!(
                "ncpu scale --peel: {} of a unit take {:.0} % of its CPU time more on {last} CPUs than on {first}, in no lock: taken for \
                 {:.2} writes to {where_} that all CPUs share (`line {0} ...` of --fix)",
                g.layer.name(),
                100.0 * g.seen,
                line.writes
            ));
        }
        Ok(())
    }

    /// While one CPU works on what only one can do, the others idle.
    fn serial(&self, model: &mut Model, own: f64, cpus: f64, notes: &mut Vec<String>) {
        let Some(costs) = self.layers.get(&Layer::Serial) else { return };
        if cpus > 1.0 || model.serial_ns > 0.0 || model.handovers > 0.0 {
            return;
        }
        let (mut above, mut below) = (0.0, 0.0);
        for c in costs {
            above += (c.cpus - 1.0) * c.percent;
            below += (c.cpus - 1.0).powi(2);
        }
        let share = if below > 0.0 { above / below / self.own() } else { 0.0 };
        if share > LEAST {
            let serial = share.min(0.98) * own;
            model.serial_ns = serial;
            model.work_ns = (model.work_ns - serial).max(0.02 * own);
            notes.push(format!(
                "ncpu scale --peel: by what CPUs idled in serial phases, {:.1} % of the work is such that only one thread can do it",
                100.0 * share
            ));
        }
    }

    /// Locks that were waited for on more CPUs than the recording has.
    fn spins(&self, notes: &mut Vec<String>) {
        for layer in [Layer::KernelSpin, Layer::KernelBlock, Layer::UserLock] {
            let most = self.layers.get(&layer).and_then(|c| c.last());
            if let Some(c) = most.filter(|c| c.percent > 100.0 * LEAST) {
                notes.push(format!(
                    "ncpu scale --peel: {} takes {:.0} % of a unit on {} CPUs, and a recording on one CPU shows no lock: record the \
                     program there",
                    layer.name(),
                    c.percent,
                    c.cpus
                ));
            }
        }
    }
}

/// Rounds in which writes are adjusted until the simulated growth is that which was seen: CPUs wait for one another's
/// transfers, too.
const ROUNDS: usize = 5;

/// The chance that another of `cpus` CPUs wrote a line last.
fn elsewhere(cpus: f64) -> f64 {
    (cpus - 1.0) / cpus
}

/// The growth of a unit's simulated CPU time between `from` and `to` CPUs, with a thread on each, ns.
fn simulated(model: &Model, recorded: &Recorded, from: f64, to: f64) -> Result<f64, Error> {
    // Locks and pauses have layers of their own.
    let alone =
        Model { sleep_ns: 0.0, wait_ns: 0.0, io_ns: 0.0, serial_ns: 0.0, lock: Vec::new(), ..model.clone() };
    let demand = |cpus: f64| -> Result<f64, Error> {
        let n = cpus as u32;
        let hardware = recorded_machine(&Recorded { cpus: n, ..recorded.clone() })?;
        let (program, cycles) = alone.program(n, n)?;
        let out =
            Sim::new(&program, &hardware, n as usize, Order::Spread, 5).steady(0.005, EVENTS, &|| false);
        Ok(out.mode(Mode::Work) * 1e-3 * cycles / (out.done as f64).max(1.0))
    };
    Ok(demand(to)? - demand(from)?)
}

/// Events of such a simulation.
const EVENTS: u64 = 400_000;
