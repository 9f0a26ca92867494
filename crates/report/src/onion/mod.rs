//! The onion: every CPU-second of an observation in exactly one layer, ranked by what could come
//! back.
//!
//! Exact times (from `sched_switch`, the lock and the interrupt tracepoints) are never estimated
//! again. What tracepoints cannot tell — what a thread on CPU was executing — is split by timer
//! samples, and what idle CPUs were idle for by the leader's timer; each such figure carries its
//! sampling error.

mod advice;
mod evidence;
#[cfg(test)]
mod tests;
mod text;
mod within;

use ncpu_record::Recording;
use ncpu_schema::{
    Counter, CpuState, Error, IdleReason, cpu_time, drops, events, idle_time, samples, summary,
};
use ncpu_table::{Column, Kind, Table, Unit};

use crate::chance;

pub use ncpu_schema::Layer;
pub use text::render;
pub use within::within;

/// Layers below this share of capacity are printed together in one line. No advice is given for what chance could explain.
const SMALL: f64 = 0.005;

/// Ticks a second by which a kernel divides CPU time into user's and its own: the fewest that one is built with.
const TICKS: f64 = 100.0;

/// One row of the onion.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which layer.
    pub layer: Layer,
    /// CPU-seconds.
    pub seconds: f64,
    /// Share of capacity, 0–1.
    pub share: f64,
    /// Half-width of the 95 % interval in CPU-seconds; 0 where the figure is exact.
    pub error: f64,
    /// What it consists of, most first.
    pub evidence: Vec<String>,
    /// The remedy, in a line.
    pub advice: String,
}

impl Row {
    /// How many times as much the program could do in the same time if this layer were gone and its
    /// capacity did what the rest of the capacity does: 1 / (1 − share). What Amdahl would say, so
    /// an upper bound: removing one layer often uncovers the next.
    pub fn gain(&self) -> f64 {
        1.0 / (1.0 - self.share).max(1e-3)
    }
}

/// The whole onion.
#[derive(Clone, Debug)]
pub struct Onion {
    /// The command, as the user wrote it.
    pub command: String,
    /// Seconds.
    pub elapsed: f64,
    /// User and system seconds of the command, as `time` tells them; `None` when watching.
    pub used: Option<(f64, f64)>,
    /// Exit status of the command.
    pub status: Option<u64>,
    /// CPUs.
    pub cpus: u64,
    /// CPU-seconds: CPUs × elapsed.
    pub capacity: f64,
    /// The layers: recoverable ones first, each part largest first; layers of nothing left out.
    pub rows: Vec<Row>,
    /// What a reader must know: what was missing, dropped, or sampled.
    pub notes: Vec<String>,
}

impl Onion {
    /// Peels a recording (or a live run gathered in memory).
    ///
    /// # Errors
    /// There is no table `cpu_time`, or a table is not what the schema says: a column is missing or has another
    /// type, or a state, class or reason is unknown.
    pub fn peel(recording: &Recording) -> Result<Onion, Error> {
        let cpu_time = cpu_time::Reader::need(recording)?;
        ncpu_schema::check(recording)?;
        let summary = summary::Reader::open(recording)?;
        let summed = |of: fn(&summary::Reader<'_>) -> Option<f64>| summary.as_ref().and_then(of);
        let elapsed = summed(|s| s.elapsed.get(0)).or(cpu_time.time.max()).unwrap_or(0.0);
        let mut seen: Vec<_> = cpu_time.rows().filter_map(|r| cpu_time.cpu.get(r)).collect();
        seen.sort_unstable();
        seen.dedup();
        let cpus = seen.len().max(1) as u64;
        let capacity = cpus as f64 * elapsed;

        let mut seconds: Vec<(Layer, f64, f64)> = Vec::new();
        let mut add = |layer: Layer, s: f64, error: f64| match seconds.iter_mut().find(|(l, ..)| *l == layer)
        {
            Some((_, sum, e)) => {
                *sum += s;
                *e = e.hypot(error);
            }
            None => seconds.push((layer, s, error)),
        };

        // Stolen time hides in whatever ran.
        let at = |state| cpu_time.spent.sum(state);
        let running = at(CpuState::Program) + at(CpuState::Others);
        let steal = summed(|s| s.steal.get(0)).unwrap_or(0.0).min(running);
        let kept = if running > 0.0 { 1.0 - steal / running } else { 1.0 };
        add(Layer::Steal, steal, 0.0);
        let (mut target, mut idle) = (0.0, 0.0);
        for state in CpuState::ALL {
            match state {
                // Divided below: by samples, and by what CPUs idled for.
                CpuState::Program => target = at(state) * kept,
                CpuState::Idle => idle = at(state),
                CpuState::Others => add(Layer::Others, at(state) * kept, 0.0),
                CpuState::Ncpu => add(Layer::Ncpu, at(state), 0.0),
                CpuState::Spin => add(Layer::KernelSpin, at(state), 0.0),
                CpuState::Hardirq | CpuState::Softirq => add(Layer::Interrupts, at(state), 0.0),
                CpuState::Tlb => add(Layer::Tlb, at(state), 0.0),
            }
        }

        // Where samples see user code only, the kernel's own accounts say how much is left for them to divide.
        if cpu_time.rows().any(|r| cpu_time.kernel.get(r).is_some()) {
            let whole = target;
            let kernel = (cpu_time.kernel.sum() * kept).clamp(0.0, whole);
            let [ticks, all] = [kernel, whole].map(|s| (s * TICKS).round() as u64);
            add(Layer::Kernel, kernel, whole * chance::half_width(ticks.min(all), all));
            target = whole - kernel;
        }

        let samples = samples::Reader::open(recording)?;
        let split = evidence::split(samples.as_ref());
        let total: u64 = split.iter().map(|(_, n)| n).sum();
        if total == 0 {
            // Without samples, only the command's own accounting separates user from kernel time.
            add(Layer::User, target, 0.0);
        }
        for (layer, n) in split {
            add(layer, target * n as f64 / total as f64, target * chance::half_width(n, total));
        }

        let why = idle_time::Reader::open(recording)?;
        let reason = |r: IdleReason| why.as_ref().map_or(0.0, |t| t.spent.sum(r));
        let explained: f64 = IdleReason::ALL.into_iter().map(reason).sum();
        if explained > 0.0 {
            // The timer looked so often; CPUs that idle together are looked at together.
            let looks = match events::Reader::open(recording)? {
                Some(t) => {
                    let ticks = t.rows().filter(|&r| t.event.get(r) == Some(Counter::IdleTicks));
                    ticks.filter_map(|r| t.count.get(r)).sum::<u64>()
                }
                None => 0,
            };
            for r in IdleReason::ALL {
                let part = reason(r) / explained;
                let error = match looks > 0 && part > 0.0 {
                    true => chance::half_width((part * looks as f64).round() as u64, looks),
                    false => 0.0,
                };
                add(r.into(), idle * part, idle * error);
            }
        } else {
            add(Layer::Idle, idle, 0.0);
        }

        let accounted: f64 = seconds.iter().map(|(_, s, _)| s).sum();
        if capacity > accounted {
            seconds.push((Layer::Unseen, capacity - accounted, 0.0));
        }

        let context = evidence::Context { recording, samples, elapsed, cpus, capacity, running: target };
        let mut rows: Vec<Row> = seconds
            .into_iter()
            .filter(|(_, s, _)| *s > 0.0)
            .map(|(layer, s, error)| Row {
                layer,
                seconds: s,
                share: s / capacity.max(f64::MIN_POSITIVE),
                error,
                evidence: evidence::of(layer, &context),
                advice: match s - error >= SMALL * capacity {
                    true => advice::of(layer, &context),
                    false => String::new(),
                },
            })
            .collect();
        rows.sort_by(|a, b| {
            (b.layer.recoverable(), b.seconds)
                .partial_cmp(&(a.layer.recoverable(), a.seconds))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let mut notes = notes(recording, total)?;
        // Where other programs took the CPUs, nothing was idle and there is no layer to tell it.
        if !rows.iter().any(|r| r.layer == Layer::RunQueue && r.share >= 0.01) {
            let held = |t: &&evidence::Throttled| t.held > 0.05 * elapsed;
            notes.extend(evidence::throttled(&context).iter().filter(held).map(|t| {
                format!("the program was {}, for which no CPU stood idle; lift it: {}", t.told(), t.lift)
            }));
        }
        notes.extend(evidence::limits_met(&context));
        Ok(Onion {
            command: recording.manifest.command.join(" "),
            elapsed,
            used: summed(|s| s.user.get(0)).zip(summed(|s| s.system.get(0))),
            status: summary.as_ref().and_then(|s| s.status.get(0)),
            cpus,
            capacity,
            rows,
            notes,
        })
    }

    /// The layers as a table.
    pub fn table(&self) -> Table {
        let mut out = Table::builder(
            "layers",
            &[
                Column::text("layer", "where capacity went"),
                Column::float("share", Unit::Percent, Kind::Share, "share of capacity"),
                Column::float("seconds", Unit::CpuSeconds, Kind::Time, "CPU-seconds"),
                Column::float(
                    "error",
                    Unit::CpuSeconds,
                    Kind::Gauge,
                    "half-width of the 95 % interval; 0 is exact",
                ),
                Column::text("recoverable", "whether it could come back"),
                Column::float(
                    "gain",
                    Unit::None,
                    Kind::Gauge,
                    "throughput without it over throughput with it, at most",
                ),
                Column::text("evidence", "what it consists of"),
                Column::text("advice", "the remedy"),
            ],
        );
        for row in &self.rows {
            out.row()
                .text(row.layer.name())
                .float(row.share * 100.0)
                .float(row.seconds)
                .float(row.error)
                .text(if row.layer.recoverable() { "yes" } else { "no" })
                .float_opt(row.layer.recoverable().then(|| row.gain()))
                .text(row.evidence.join("; "))
                .text(&row.advice);
        }
        out.finish()
    }

    /// CPU-seconds in a layer.
    pub fn seconds(&self, layer: Layer) -> f64 {
        self.rows.iter().find(|r| r.layer == layer).map_or(0.0, |r| r.seconds)
    }
}

fn notes(recording: &Recording, samples: u64) -> Result<Vec<String>, Error> {
    let mut notes: Vec<String> = crate::incomplete::words(recording).into_iter().collect();
    notes.extend(recording.manifest.notes.iter().cloned());
    notes.extend(recording.notes.iter().cloned());
    if let Some(drops) = drops::Reader::open(recording)? {
        for row in drops.rows() {
            if let (Some(what), Some(n)) = (drops.what.get(row), drops.count.get(row)) {
                notes.push(format!("dropped: {n} {what}; figures that rest on them are too low"));
            }
        }
    }
    if (1..300).contains(&samples) {
        notes
            .push(format!("only {samples} samples: run longer, or sample faster with -F, for a finer split"));
    }
    Ok(notes)
}
