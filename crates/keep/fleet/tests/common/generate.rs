//! A generated fleet for tests and benchmarks: real recordings varied by known factors, with planted changes
//! that must be found.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow, ensure};
use fastrand::Rng;
use ncpu_record::{FileEntry, Manifest, Recording};
use ncpu_schema::{
    CpuState, Grounds, IdleReason, Loss, Per, Vocabulary, cpu_time, events, idle_time, locks, samples,
    summary, tenant_losses, tenant_names,
};
use ncpu_table::{ParquetWriter, Table};
use sha2::{Digest, Sha256};

/// Kernels of the fleet.
pub const KERNELS: [&str; 3] = ["6.1.0-28-amd64", "6.12.6-amd64", "6.18.2-amd64"];
/// Processors of the fleet.
pub const MODELS: [&str; 2] = ["AMD EPYC 9654 96-Core Processor", "Intel(R) Xeon(R) Platinum 8480+"];
/// Types of machines.
pub const TYPES: [&str; 3] = ["web", "batch", "db"];
/// The type on which [`LOCK`] spins more in the second half of the time, by [`GROWTH`] of capacity.
pub const REGRESSED: &str = "db";
/// That lock.
pub const LOCK: &str = "planted_struct.table_lock";
/// The growth, as a share of capacity.
pub const GROWTH: f64 = 0.03;
/// The outliers: the first by interrupts, the second by a lock of its own.
pub const OUTLIERS: [usize; 2] = [17, 42];
/// The excess of the first.
pub const INTERRUPTS: f64 = 0.08;
/// The lock of the second, and its share.
pub const STRANGE: (&str, f64) = ("planted_driver.io_lock", 0.05);

/// The tenant that loses [`SUFFERS`] of the capacity to the other on each machine that has both: those of
/// type `db`.
pub const UNLUCKY: (&str, &str) = ("postgresql.service", "backup.service");
/// The amount of the loss.
pub const SUFFERS: f64 = 0.06;

/// The plan of a fleet.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Real recordings that are varied.
    pub seeds: Vec<PathBuf>,
    /// Machines.
    pub machines: usize,
    /// Recordings of each.
    pub each: usize,
    /// When the first begins, seconds since 1970.
    pub begin: f64,
    /// Seconds between recordings of a machine.
    pub step: f64,
    /// Whether changes are planted, and one recording is damaged.
    pub planted: bool,
    /// The seed of random numbers: the same number makes the same fleet.
    pub seed: u64,
}

/// A seed's tables, combined.
struct Seed {
    manifest: Manifest,
    /// Seconds, averaged over CPUs.
    elapsed: f64,
    spent: Vec<f64>,
    idle: Vec<f64>,
    samples: Vec<(CpuState, ncpu_schema::SampleClass, String, String, u64)>,
    locks: Vec<(String, String, String, u64, f64, f64, f64)>,
    user_locks: Option<Table>,
    events: Vec<(ncpu_schema::Counter, u64)>,
    hz: Option<u64>,
}

impl Plan {
    /// The host name of a machine.
    pub fn host(machine: usize) -> String {
        format!("m{machine:04}")
    }

    /// The start of the second half, seconds since 1970.
    pub fn half(&self) -> f64 {
        self.begin + self.step * (self.each / 2) as f64
    }

    /// Which recording is damaged.
    pub fn damaged(&self) -> (usize, usize) {
        (self.machines / 2, self.each / 3)
    }

    /// Labels by host, in the form for `add --labels`.
    pub fn labels(&self) -> String {
        (0..self.machines).fold("host,type\n".to_string(), |mut text, m| {
            let _ = writeln!(text, "{},{}", Plan::host(m), TYPES[m % TYPES.len()]);
            text
        })
    }

    /// Writes the recordings to `DIR/HOST/NUMBER.ncpu`.
    ///
    /// # Errors
    /// A seed cannot be read, or a file not be written.
    pub fn write(&self, dir: &Path, threads: usize) -> Result<()> {
        let seeds = self.seeds.iter().map(|path| Seed::read(path)).collect::<Result<Vec<_>>>()?;
        ensure!(!seeds.is_empty(), "no seed recording given");
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            loop {
                let machine = next.fetch_add(1, Ordering::Relaxed);
                if machine >= self.machines {
                    return Ok(());
                }
                self.machine(&dir.join(Plan::host(machine)), machine, &seeds)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|w| {
                w.join().unwrap_or_else(|_| Err(anyhow!("a thread of the generator panicked")))
            })
        })
    }

    fn machine(&self, dir: &Path, machine: usize, seeds: &[Seed]) -> Result<()> {
        fs::create_dir_all(dir)?;
        let mut rng = Rng::with_seed(self.seed ^ (machine as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Machines differ, and each from hour to hour.
        let own = spread(&mut rng, 0.10);
        for number in 0..self.each {
            let path = dir.join(format!("{number:05}.ncpu"));
            fs::create_dir_all(&path)?;
            let seed = &seeds[machine % TYPES.len() % seeds.len()];
            // Spread over the hour.
            let at = self.begin + self.step * number as f64 + (machine % 600) as f64;
            let (manifest, tables) = self.recording(seed, machine, at, own, &mut rng)?;
            let mut manifest = manifest;
            for table in tables {
                let mut bytes = Vec::new();
                let write = |bytes: &mut Vec<u8>| -> ncpu_table::Result<()> {
                    let mut writer = ParquetWriter::new(bytes, &table)?;
                    writer.write(&table)?;
                    writer.close().map(drop)
                };
                write(&mut bytes)?;
                let name = format!("{}.parquet", table.name());
                let sha256 = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
                let entry = FileEntry { rows: table.num_rows() as u64, bytes: bytes.len() as u64, sha256 };
                if self.planted && (machine, number) == self.damaged() && table.name() == "locks" {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                }
                let file = path.join(&name);
                fs::write(&file, bytes)?;
                manifest.files.insert(name, entry);
            }
            let text = serde_json::to_vec_pretty(&manifest)?;
            let file = path.join("manifest.json");
            fs::write(&file, text)?;
        }
        Ok(())
    }

    /// One recording: the seed's seconds moved between states by known factors, so that they still sum to its
    /// capacity.
    fn recording(
        &self,
        seed: &Seed,
        machine: usize,
        at: f64,
        own: f64,
        rng: &mut Rng,
    ) -> Result<(Manifest, Vec<Table>)> {
        let cpus = [2, 4][machine / 18 % 2];
        let kernel = machine / 3 % KERNELS.len();
        let mut manifest = seed.manifest.clone();
        manifest.host = Plan::host(machine);
        manifest.machine = Some(
            Sha256::digest(manifest.host.as_bytes()).iter().take(16).map(|b| format!("{b:02x}")).collect(),
        );
        manifest.kernel = KERNELS[kernel].into();
        manifest.cpu_model = MODELS[machine / 9 % 2].into();
        manifest.cpus = cpus;
        manifest.created_unix = at;
        manifest.files.clear();

        let capacity = seed.elapsed * cpus as f64;
        let total: f64 = seed.spent.iter().sum();
        let mut spent: Vec<f64> = seed.spent.iter().map(|s| s / total).collect();
        // The load varies, and its costs vary with it.
        let work = (own * spread(rng, 0.15)).min(2.0);
        let state = |s: CpuState| s.index();
        let factor = work * [1.0, 1.1, 1.25][kernel];
        let mut locks: Vec<_> = seed.locks.clone();
        let scale = cpus as f64 / seed.spent_cpus();
        for lock in &mut locks {
            lock.3 = (lock.3 as f64 * factor * scale).round() as u64;
            lock.4 *= factor * scale;
            lock.5 *= factor * scale;
        }
        let mut plant = |lock: &str, share: f64| {
            let us = share * capacity;
            locks.push((lock.into(), "spinlock".into(), "planted".into(), (us * 1e5) as u64, us, 0.0, 900.0));
        };
        let mut grow =
            [(CpuState::Spin, spent[state(CpuState::Spin)] * (factor - 1.0)), (CpuState::Softirq, 0.0)];
        if self.planted {
            let after = at >= self.half();
            let base = 0.004 * spread(rng, 0.2);
            let share =
                base + if after && TYPES[machine % 3] == REGRESSED { GROWTH * spread(rng, 0.1) } else { 0.0 };
            plant(LOCK, share);
            grow[0].1 += share;
            if machine == OUTLIERS[0] {
                grow[1].1 += INTERRUPTS * spread(rng, 0.1);
            }
            if machine == OUTLIERS[1] {
                let share = STRANGE.1 * spread(rng, 0.1);
                plant(STRANGE.0, share);
                grow[0].1 += share;
            }
        }
        let busy = spent[state(CpuState::Program)] * (work - 1.0);
        // A growing state takes from idle and from the program; a shrinking one gives to idle.
        let [idle, program] = [CpuState::Idle, CpuState::Program].map(state);
        for (to, by) in grow.into_iter().map(|(s, by)| (state(s), by)).chain([(program, busy)]) {
            let from_idle = by.min(spent[idle] * 0.9);
            let from_program = if to == program { 0.0 } else { (by - from_idle).min(spent[program] * 0.9) };
            spent[to] += from_idle + from_program;
            spent[idle] -= from_idle;
            spent[program] -= from_program;
        }

        let mut rows = cpu_time::Rows::new();
        for cpu in 0..cpus {
            let of = |s: CpuState| Some(spent[s.index()] * seed.elapsed);
            rows.push(cpu_time::Row {
                time: Some(seed.elapsed),
                cpu: Some(cpu),
                spent: Per::new(of),
                kernel: None,
            });
        }
        let mut tables = vec![rows.finish()];
        let explained: f64 = seed.idle.iter().sum();
        let mut rows = idle_time::Rows::new();
        let idle_seconds = spent[idle] * capacity;
        let reason =
            |r: IdleReason| Some(seed.idle[r.index()] / explained.max(f64::MIN_POSITIVE) * idle_seconds);
        rows.push(idle_time::Row { time: Some(seed.elapsed), spent: Per::new(reason) });
        tables.push(rows.finish());
        let mut rows = samples::Rows::new();
        for (at, class, detail, process, n) in &seed.samples {
            let n = (*n as f64 * work * scale * spread(rng, 0.1)).round() as u64;
            rows.push(samples::Row {
                at: Some(*at),
                class: Some(*class),
                detail: detail.into(),
                process: process.into(),
                samples: Some(n),
                time: None,
            });
        }
        tables.push(rows.finish());
        let mut rows = locks::Rows::new();
        for (lock, ty, process, count, spin, block, max) in &locks {
            rows.push(locks::Row {
                lock: lock.into(),
                ty: ty.into(),
                process: process.into(),
                count: Some(*count),
                spin: Some(*spin),
                block: Some(*block),
                max: Some(*max),
                counted: Some(*count),
                error: Some(0.0),
                time: None,
            });
        }
        tables.push(rows.finish());
        tables.extend(seed.user_locks.clone());
        if self.planted {
            // A separate random sequence, so that the rest is unchanged.
            tables.extend(tenants(
                TYPES[machine % 3],
                capacity,
                &mut Rng::with_seed(at.to_bits() ^ machine as u64),
            ));
        }
        let mut rows = events::Rows::new();
        for (event, n) in &seed.events {
            let n = (*n as f64 * work * scale).round() as u64;
            rows.push(events::Row { time: Some(seed.elapsed), event: Some(*event), count: Some(n) });
        }
        tables.push(rows.finish());
        let mut rows = summary::Rows::new();
        rows.push(summary::Row {
            elapsed: Some(seed.elapsed),
            cpus: Some(cpus),
            steal: Some(0.0),
            hz: seed.hz,
            ..summary::Row::default()
        });
        tables.push(rows.finish());
        Ok((manifest, tables))
    }
}

/// The tenants of a machine, and their losses: on machines of one type the same tenant always suffers from
/// the same other.
fn tenants(ty: &str, capacity: f64, rng: &mut Rng) -> [Table; 2] {
    let (victim, culprit) = UNLUCKY;
    let mut names = tenant_names::Rows::new();
    for (id, unit) in [(4, victim), (5, culprit), (6, "nginx.service")] {
        names.push(tenant_names::Row { tenant: Some(id), unit: unit.into(), ..tenant_names::Row::default() });
    }
    let mut losses = tenant_losses::Rows::new();
    let mut lose = |victim: u64, culprit: Option<u64>, share: f64| {
        let seconds = share * capacity * spread(rng, 0.1);
        losses.push(tenant_losses::Row {
            time: Some(1.0),
            victim: Some(victim),
            culprit,
            cause: Some(Loss::RunQueue),
            threads: Some(seconds),
            cpus: Some(seconds),
            count: Some(1),
            grounds: Some(if culprit.is_some() { Grounds::Traced } else { Grounds::Unknown }),
            ..tenant_losses::Row::default()
        });
    };
    lose(4, Some(6), 0.01);
    lose(6, Some(4), 0.01);
    lose(4, None, 0.002);
    lose(4, Some(4), 0.2);
    if ty == REGRESSED {
        lose(4, Some(5), SUFFERS);
    }
    [names.finish(), losses.finish()]
}

impl Seed {
    fn read(path: &Path) -> Result<Seed> {
        let recording = Recording::open(path)?;
        let time = cpu_time::Reader::need(&recording)?;
        let told = summary::Reader::open(&recording)?;
        let elapsed = told.as_ref().and_then(|s| s.elapsed.get(0)).or(time.time.max()).unwrap_or(1.0);
        let idle = idle_time::Reader::open(&recording)?;
        let sampled = samples::Reader::open(&recording)?;
        let mut rows = Vec::new();
        for r in sampled.iter().flat_map(|t| t.rows().map(move |r| (t, r))) {
            let (t, r) = r;
            if let (Some(at), Some(class)) = (t.at.get(r), t.class.get(r)) {
                let text = |cell: Option<&str>| cell.unwrap_or("").to_string();
                rows.push((
                    at,
                    class,
                    text(t.detail.get(r)),
                    text(t.process.get(r)),
                    t.samples.get(r).unwrap_or(0),
                ));
            }
        }
        let waited = locks::Reader::open(&recording)?;
        let mut lock_rows = Vec::new();
        for (t, r) in waited.iter().flat_map(|t| t.rows().map(move |r| (t, r))) {
            let text = |cell: Option<&str>| cell.unwrap_or("").to_string();
            lock_rows.push((
                text(t.lock.get(r)),
                text(t.ty.get(r)),
                text(t.process.get(r)),
                t.count.get(r).unwrap_or(0),
                t.spin.get(r).unwrap_or(0.0),
                t.block.get(r).unwrap_or(0.0),
                t.max.get(r).unwrap_or(0.0),
            ));
        }
        let counted = events::Reader::open(&recording)?;
        let mut sums: Vec<(ncpu_schema::Counter, u64)> = Vec::new();
        for (t, r) in counted.iter().flat_map(|t| t.rows().map(move |r| (t, r))) {
            if let (Some(event), Some(n)) = (t.event.get(r), t.count.get(r)) {
                match sums.iter_mut().find(|(e, _)| *e == event) {
                    Some((_, sum)) => *sum += n,
                    None => sums.push((event, n)),
                }
            }
        }
        Ok(Seed {
            elapsed,
            spent: CpuState::ALL.iter().map(|s| time.spent.sum(*s)).collect(),
            idle: IdleReason::ALL.iter().map(|r| idle.as_ref().map_or(0.0, |t| t.spent.sum(*r))).collect(),
            samples: rows,
            locks: lock_rows,
            user_locks: recording.tables.get("user_locks").cloned(),
            events: sums,
            hz: told.as_ref().and_then(|s| s.hz.get(0)),
            manifest: recording.manifest.clone(),
        })
    }

    /// The number of CPUs of its seconds.
    fn spent_cpus(&self) -> f64 {
        (self.spent.iter().sum::<f64>() / self.elapsed).max(1e-9)
    }
}

/// A factor around 1, its logarithm normal with this deviation.
fn spread(rng: &mut Rng, deviation: f64) -> f64 {
    // Box and Muller's transform.
    let (u, v) = (1.0 - rng.f64(), rng.f64());
    let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
    (deviation * normal).exp()
}
