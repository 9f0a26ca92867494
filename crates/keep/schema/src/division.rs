//! The capacity of an observation, divided into layers.
//!
//! Exact times (from `sched_switch`, the lock and the interrupt tracepoints) are never estimated again. Timer samples
//! split the time of threads on CPU, which tracepoints do not see, and the leader's timer splits idle time by its reasons; each such figure carries its sampling error.

use crate::{
    Counter, CpuState, Error, IdleReason, Layer, Tables, chance, cpu_time, events, idle_time, samples,
    summary,
};

/// Ticks a second by which a kernel divides CPU time into user's and its own: the fewest that one is built with.
const TICKS: f64 = 100.0;

/// Time in words of a newer schema, which belongs to no layer known here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Strange {
    /// Timer samples of the program in unknown classes.
    pub samples: u64,
    /// Idle seconds for unknown reasons.
    pub idle: f64,
}

/// Every CPU-second of an observation in exactly one layer.
#[derive(Clone, Debug)]
pub struct Division {
    /// Seconds.
    pub elapsed: f64,
    /// CPUs seen.
    pub cpus: u64,
    /// CPU-seconds: CPUs × elapsed.
    pub capacity: f64,
    /// CPU-seconds of the program outside of traced waits and interrupts, which samples divide.
    pub running: f64,
    /// Timer samples that divide them.
    pub samples: u64,
    /// CPU-seconds by layer, and half the width of the 95 % interval, 0 where the figure is exact.
    pub layers: Vec<(Layer, f64, f64)>,
}

/// Counts of an observation, or of a part of it: the input of [`Counts::divide`].
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Seconds.
    pub elapsed: f64,
    /// CPUs seen.
    pub cpus: u64,
    /// CPU-seconds by state.
    pub at: [f64; CpuState::ALL.len()],
    /// CPU-seconds of the program in the kernel, where samples cannot say what it did there.
    pub kernel: Option<f64>,
    /// CPU-seconds that the hypervisor took.
    pub steal: f64,
    /// The program's samples outside traced lock waits, by layer.
    pub samples: Vec<(Layer, u64)>,
    /// Idle seconds by reason.
    pub idle: [f64; IdleReason::ALL.len()],
    /// Times that the reasons were looked at.
    pub looks: u64,
    /// Time that belongs to no layer known here.
    pub strange: Strange,
}

impl Counts {
    /// Counts samples of a layer.
    pub fn add_samples(&mut self, layer: Layer, n: u64) {
        match self.samples.iter_mut().find(|(l, _)| *l == layer) {
            // A forged recording may count more than there can be.
            Some((_, sum)) => *sum = sum.saturating_add(n),
            None => self.samples.push((layer, n)),
        }
    }

    /// Every CPU-second in exactly one layer.
    pub fn divide(self) -> Division {
        let Counts { elapsed, cpus, looks, .. } = self;
        let capacity = cpus as f64 * elapsed;
        let mut layers: Vec<(Layer, f64, f64)> = Vec::new();
        let mut add = |layer: Layer, s: f64, error: f64| match layers.iter_mut().find(|(l, ..)| *l == layer) {
            Some((_, sum, e)) => {
                *sum += s;
                *e = e.hypot(error);
            }
            None => layers.push((layer, s, error)),
        };

        // Stolen time hides in whatever ran.
        let at = |state: CpuState| self.at[state as usize];
        let on_cpu = at(CpuState::Program) + at(CpuState::Others);
        let steal = self.steal.min(on_cpu);
        let kept = if on_cpu > 0.0 { 1.0 - steal / on_cpu } else { 1.0 };
        add(Layer::Steal, steal, 0.0);
        let (mut running, mut idle) = (0.0, 0.0);
        for state in CpuState::ALL {
            match state {
                // Divided below: by samples, and by what CPUs idled for.
                CpuState::Program => running = at(state) * kept,
                CpuState::Idle => idle = at(state),
                CpuState::Others => add(Layer::Others, at(state) * kept, 0.0),
                CpuState::Ncpu => add(Layer::Ncpu, at(state), 0.0),
                CpuState::Spin => add(Layer::KernelSpin, at(state), 0.0),
                CpuState::Hardirq | CpuState::Softirq => add(Layer::Interrupts, at(state), 0.0),
                CpuState::Tlb => add(Layer::Tlb, at(state), 0.0),
            }
        }

        // Where samples see user code only, the kernel's own accounts say how much is left for them to divide.
        if let Some(kernel) = self.kernel {
            let whole = running;
            let kernel = (kernel * kept).min(whole).max(0.0);
            let [ticks, all] = [kernel, whole].map(|s| (s * TICKS).round() as u64);
            add(Layer::Kernel, kernel, whole * chance::half_width(ticks.min(all), all));
            running = whole - kernel;
        }

        let mut split = self.samples;
        if self.strange.samples > 0 {
            split.push((Layer::Unseen, self.strange.samples));
        }
        let total = split.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
        if total == 0 {
            // Without samples user and kernel are distinguished by the command's own accounting only.
            add(Layer::User, running, 0.0);
        }
        for (layer, n) in split {
            add(layer, running * n as f64 / total as f64, running * chance::half_width(n, total));
        }

        let reasons = IdleReason::ALL.into_iter().map(|r| (Layer::from(r), self.idle[r as usize]));
        let reasons: Vec<_> = reasons.chain([(Layer::Unseen, self.strange.idle)]).collect();
        let explained: f64 = reasons.iter().map(|(_, s)| s).sum();
        if explained > 0.0 {
            // The timer looked so often; CPUs that idle together are looked at together.
            for (layer, s) in reasons {
                let part = s / explained;
                let error = match looks > 0 && part > 0.0 {
                    true => chance::half_width((part * looks as f64).round() as u64, looks),
                    false => 0.0,
                };
                add(layer, idle * part, idle * error);
            }
        } else {
            add(Layer::Idle, idle, 0.0);
        }

        let accounted: f64 = layers.iter().map(|(_, s, _)| s).sum();
        if capacity > accounted {
            match layers.iter_mut().find(|(l, ..)| *l == Layer::Unseen) {
                Some((_, s, _)) => *s += capacity - accounted,
                None => layers.push((Layer::Unseen, capacity - accounted, 0.0)),
            }
        }
        layers.retain(|(_, s, _)| *s > 0.0);
        Division { elapsed, cpus, capacity, running, samples: total, layers }
    }
}

impl Division {
    /// Divides an observation, whose words must all be known.
    ///
    /// # Errors
    /// There is no table `cpu_time`, or a table that is needed here is not what the schema says.
    pub fn of(tables: &impl Tables) -> Result<Division, Error> {
        Division::beside(tables, Strange::default())
    }

    /// [`Division::of`] where a part of samples and idle time was taken out of the tables because no layer is known
    /// for it. That part is not spread over the others but lies in [`Layer::Unseen`].
    ///
    /// # Errors
    /// As [`Division::of`].
    pub fn beside(tables: &impl Tables, strange: Strange) -> Result<Division, Error> {
        let cpu_time = cpu_time::Reader::need(tables)?;
        let summary = summary::Reader::open(tables)?;
        let summed = |of: fn(&summary::Reader<'_>) -> Option<f64>| summary.as_ref().and_then(of);
        let mut seen: Vec<_> = cpu_time.rows().filter_map(|r| cpu_time.cpu.get(r)).collect();
        seen.sort_unstable();
        seen.dedup();
        let length = summed(|s| s.elapsed.get(0));
        let elapsed = length.or(cpu_time.time.max()).unwrap_or(0.0);
        if !elapsed.is_finite() || elapsed < 0.0 {
            let (table, column) = if length.is_some() { ("summary", "elapsed") } else { ("cpu_time", "t") };
            return Err(Error::Type {
                recording: tables.name().into(),
                table: table.into(),
                column: column.into(),
                found: "negative or not finite",
                wanted: "a time in seconds",
            });
        }
        let mut counts = Counts {
            elapsed,
            cpus: seen.len().max(1) as u64,
            at: CpuState::ALL.map(|state| cpu_time.spent.sum(state)),
            kernel: cpu_time.rows().any(|r| cpu_time.kernel.get(r).is_some()).then(|| cpu_time.kernel.sum()),
            steal: summed(|s| s.steal.get(0)).unwrap_or(0.0),
            strange,
            ..Counts::default()
        };
        if let Some(samples) = samples::Reader::open(tables)? {
            for row in samples.rows() {
                if let Some(layer) = layer_of(&samples, row) {
                    counts.add_samples(layer, samples.samples.get(row).unwrap_or(0));
                }
            }
        }
        if let Some(why) = idle_time::Reader::open(tables)? {
            counts.idle = IdleReason::ALL.map(|reason| why.spent.sum(reason));
        }
        if let Some(t) = events::Reader::open(tables)? {
            let ticks = t.rows().filter(|&r| t.event.get(r) == Some(Counter::IdleTicks));
            counts.looks = ticks.filter_map(|r| t.count.get(r)).fold(0, u64::saturating_add);
        }
        Ok(counts.divide())
    }
}

/// The layer of a row of samples: of the program's outside of traced lock waits.
pub fn layer_of(samples: &samples::Reader<'_>, row: usize) -> Option<Layer> {
    let (Some(CpuState::Program), Some(class)) = (samples.at.get(row), samples.class.get(row)) else {
        return None;
    };
    Some(class.into())
}
