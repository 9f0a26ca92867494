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
use ncpu_table::{Column, Kind, Table, Unit};

pub use text::render;
pub(crate) use text::wrap;
pub use within::within;

/// A layer of the onion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// On CPU or off, waiting for the program's own locks.
    UserLock,
    /// On CPU in the slow path of a kernel lock.
    KernelSpin,
    /// CPUs idle while threads were blocked in kernel locks.
    KernelBlock,
    /// Page faults, page zeroing included.
    Faults,
    /// TLB shootdowns, at sender and receiver.
    Tlb,
    /// System calls, exec and exit.
    Calls,
    /// Switching threads.
    Switches,
    /// Interrupts and softirqs.
    Interrupts,
    /// Taken by the hypervisor.
    Steal,
    /// CPUs idle while threads stood on other CPUs' run queues.
    RunQueue,
    /// CPUs idle while threads waited for I/O.
    Io,
    /// CPUs idle while the program was active with fewer threads than CPUs.
    Serial,
    /// The program's kernel time that fits nowhere else.
    OtherKernel,
    /// User code.
    User,
    /// Other programs.
    Others,
    /// `ncpu` itself.
    Own,
    /// CPUs idle while no thread of the program was active.
    Asleep,
    /// Capacity no CPU accounted for (hotplug, lost events).
    Unseen,
}

impl Layer {
    const ALL: [Layer; 18] = [
        Layer::UserLock,
        Layer::KernelSpin,
        Layer::KernelBlock,
        Layer::Faults,
        Layer::Tlb,
        Layer::Calls,
        Layer::Switches,
        Layer::Interrupts,
        Layer::Steal,
        Layer::RunQueue,
        Layer::Io,
        Layer::Serial,
        Layer::OtherKernel,
        Layer::User,
        Layer::Others,
        Layer::Own,
        Layer::Asleep,
        Layer::Unseen,
    ];

    /// The layer of a name in a table.
    pub fn of_name(name: &str) -> Option<Layer> {
        Layer::ALL.into_iter().find(|l| l.name() == name)
    }

    /// Its name in tables and reports.
    pub fn name(self) -> &'static str {
        match self {
            Layer::UserLock => "user lock waiting",
            Layer::KernelSpin => "kernel lock spin",
            Layer::KernelBlock => "kernel lock block",
            Layer::Faults => "page faults and zeroing",
            Layer::Tlb => "TLB shootdown",
            Layer::Calls => "system calls",
            Layer::Switches => "context switches",
            Layer::Interrupts => "interrupts and softirqs",
            Layer::Steal => "steal",
            Layer::RunQueue => "run-queue waiting",
            Layer::Io => "I/O wait",
            Layer::Serial => "serial phases",
            Layer::OtherKernel => "other kernel work",
            Layer::User => "user code",
            Layer::Others => "other programs",
            Layer::Own => "ncpu itself",
            Layer::Asleep => "idle",
            Layer::Unseen => "not accounted for",
        }
    }

    /// What the capacity in it went to, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Layer::UserLock => "idle or spinning for the program's own locks",
            Layer::KernelSpin => "on CPU, waiting for a kernel lock",
            Layer::KernelBlock => "idle, threads blocked in kernel locks",
            Layer::Faults => "giving pages to the program",
            Layer::Tlb => "making other CPUs drop translations",
            Layer::Calls => "work in system calls",
            Layer::Switches => "switching threads",
            Layer::Interrupts => "devices, timers, network",
            Layer::Steal => "taken by the hypervisor",
            Layer::RunQueue => "idle, threads queued on other CPUs",
            Layer::Io => "idle, threads waiting for I/O",
            Layer::Serial => "idle, fewer threads than CPUs",
            Layer::OtherKernel => "kernel work of the program",
            Layer::User => "the program's own work",
            Layer::Others => "not the observed program",
            Layer::Own => "the observer's cost",
            Layer::Asleep => "no thread of the program active",
            Layer::Unseen => "CPUs that came or went",
        }
    }

    /// Whether capacity in it could come back by a change of program, kernel or machine set-up.
    pub fn recoverable(self) -> bool {
        !matches!(self, Layer::User | Layer::Others | Layer::Own | Layer::Asleep | Layer::Unseen)
    }
}

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

/// A recording that holds no observation.
#[derive(Debug, thiserror::Error)]
#[error(
    "the recording has no table `{0}`: it is of another command than run or watch, or was cut off in its first interval"
)]
pub struct Missing(pub &'static str);

/// Sums a column.
fn sum(table: &Table, column: &str) -> f64 {
    (0..table.num_rows()).filter_map(|r| table.number(r, column)).sum()
}

impl Onion {
    /// Peels a recording (or a live run gathered in memory).
    ///
    /// # Errors
    /// [`Missing`]: there is no table `cpu_time`.
    pub fn peel(recording: &Recording) -> Result<Onion, Missing> {
        let table = |name: &str| recording.tables.get(name);
        let cpu_time = table("cpu_time").ok_or(Missing("cpu_time"))?;
        let at = |column: &str| sum(cpu_time, column);
        let summary = table("summary");
        let told = |column: &str| summary.and_then(|s| s.number(0, column));
        let last = (0..cpu_time.num_rows()).filter_map(|r| cpu_time.number(r, "t")).fold(0.0, f64::max);
        let elapsed = told("elapsed").unwrap_or(last);
        let seen = cpu_time.group_by(&["CPU"]).map_or(0, |t| t.num_rows()) as u64;
        let cpus = seen.max(1);
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
        let (target, others) = (at("target"), at("other"));
        let running = target + others;
        let steal = told("steal").unwrap_or(0.0).min(running);
        let kept = if running > 0.0 { 1.0 - steal / running } else { 1.0 };
        let target = target * kept;
        add(Layer::Steal, steal, 0.0);
        add(Layer::Others, others * kept, 0.0);
        add(Layer::Own, at("ncpu"), 0.0);
        add(Layer::KernelSpin, at("spin"), 0.0);
        add(Layer::Interrupts, at("hardirq") + at("softirq"), 0.0);
        add(Layer::Tlb, at("tlb"), 0.0);

        let split = evidence::split(table("samples"));
        let total: u64 = split.iter().map(|(_, n)| n).sum();
        if total == 0 {
            // Without samples user and kernel are told apart by the command's own accounting only.
            add(Layer::User, target, 0.0);
        }
        for (layer, n) in split {
            let p = n as f64 / total as f64;
            add(layer, target * p, 1.96 * target * (p * (1.0 - p) / total as f64).sqrt());
        }

        let idle = at("idle");
        let why = table("idle_time");
        let parts = [
            ("runq", Layer::RunQueue),
            ("klock", Layer::KernelBlock),
            ("ulock", Layer::UserLock),
            ("io", Layer::Io),
            ("serial", Layer::Serial),
            ("asleep", Layer::Asleep),
        ];
        let explained: f64 = why.map_or(0.0, |t| parts.iter().map(|(c, _)| sum(t, c)).sum());
        if explained > 0.0 {
            for (column, layer) in parts {
                add(layer, idle * why.map_or(0.0, |t| sum(t, column)) / explained, 0.0);
            }
        } else {
            add(Layer::Asleep, idle, 0.0);
        }

        let accounted: f64 = seconds.iter().map(|(_, s, _)| s).sum();
        if capacity > accounted {
            seconds.push((Layer::Unseen, capacity - accounted, 0.0));
        }

        let context = evidence::Context { recording, elapsed, cpus, capacity };
        let mut rows: Vec<Row> = seconds
            .into_iter()
            .filter(|(_, s, _)| *s > 0.0)
            .map(|(layer, s, error)| Row {
                layer,
                seconds: s,
                share: s / capacity.max(f64::MIN_POSITIVE),
                error,
                evidence: evidence::of(layer, &context),
                advice: advice::of(layer, &context),
            })
            .collect();
        rows.sort_by(|a, b| {
            (b.layer.recoverable(), b.seconds)
                .partial_cmp(&(a.layer.recoverable(), a.seconds))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let mut notes = notes(recording, total);
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
            used: told("user").zip(told("system")),
            status: summary.and_then(|s| s.int(0, "status")),
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

fn notes(recording: &Recording, samples: u64) -> Vec<String> {
    let mut notes = recording.manifest.notes.clone();
    notes.extend(recording.notes.iter().cloned());
    if let Some(drops) = recording.tables.get("drops") {
        for row in 0..drops.num_rows() {
            if let (Some(what), Some(n)) = (drops.text(row, "what"), drops.int(row, "count")) {
                notes.push(format!("dropped: {n} {what}; figures that rest on them are too low"));
            }
        }
    }
    if (1..300).contains(&samples) {
        notes
            .push(format!("only {samples} samples: run longer, or sample faster with -F, for a finer split"));
    }
    notes
}
