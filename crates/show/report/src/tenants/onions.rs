//! The machine's layers, divided among tenants.

use std::collections::BTreeMap;

use ncpu_schema::{
    CpuState, Division, Error, IdleReason, Layer, Tables, cpu_time, idle_time, layer_of, samples, summary,
    tenant_idle, tenant_samples, tenant_time,
};

use super::Part;
use ncpu_machine::tenant::KERNEL;

/// Whether a layer is what CPUs idled for. User locks and serial phases are partly spun for; they count as idle time here, which
/// most of them is.
pub(super) fn idles(layer: Layer) -> bool {
    matches!(
        layer,
        Layer::UserLock
            | Layer::KernelBlock
            | Layer::RunQueue
            | Layer::WakeUp
            | Layer::Io
            | Layer::Serial
            | Layer::LockOrSerial
            | Layer::KernelLockOrIo
            | Layer::Idle
            | Layer::Unseen
    )
}

/// The tenant that observes.
pub(super) const OWN: &str = "ncpu itself";

/// Weight of the machine's mean beside a tenant's own samples, where it has few or none.
const PRIOR: f64 = 0.01;
/// Rounds of fitting rows and columns; they converge long before.
const ROUNDS: usize = 500;

/// A matrix like `seed` with these sums of rows and columns, by fitting them in turn. All of `seed` is above 0 where
/// its row and its column are.
pub(super) fn fit(seed: &[Vec<f64>], rows: &[f64], columns: &[f64]) -> Vec<Vec<f64>> {
    let mut cells = seed.to_vec();
    for _ in 0..ROUNDS {
        for (row, want) in cells.iter_mut().zip(rows) {
            let sum: f64 = row.iter().sum();
            let scale = if sum > 0.0 { want / sum } else { 0.0 };
            row.iter_mut().for_each(|cell| *cell *= scale);
        }
        let mut worst: f64 = 0.0;
        for (i, want) in columns.iter().enumerate() {
            let sum: f64 = cells.iter().map(|row| row[i]).sum();
            let scale = if sum > 0.0 { want / sum } else { 0.0 };
            worst = worst.max((sum - want).abs());
            cells.iter_mut().for_each(|row| row[i] *= scale);
        }
        if worst < 1e-12 {
            break;
        }
    }
    cells
}

type Layers = BTreeMap<Layer, f64>;

/// The machine's layers, and those of each tenant.
pub(super) fn of(
    recording: &impl Tables,
    named: &dyn Fn(u64) -> String,
) -> Result<(Division, Vec<Part>), Error> {
    let division = Division::of(recording)?;
    let mut parts: BTreeMap<Option<String>, Layers> = BTreeMap::new();
    // The kernel side's number of nobody.
    let name = |id: Option<u64>| id.filter(|id| *id != 0).map(named);
    let mut add = |name: &Option<String>, layer: Layer, seconds: f64| {
        *parts.entry(name.clone()).or_default().entry(layer).or_default() += seconds;
    };

    let all = cpu_time::Reader::need(recording)?;
    let on_cpu = all.spent.sum(CpuState::Program) + all.spent.sum(CpuState::Others);
    let stolen = summary::Reader::open(recording)?.and_then(|s| s.steal.get(0)).unwrap_or(0.0).min(on_cpu);
    let lost = if on_cpu > 0.0 { stolen / on_cpu } else { 0.0 };
    let mut running: BTreeMap<Option<String>, f64> = BTreeMap::new();
    if let Some(time) = tenant_time::Reader::open(recording)? {
        for row in time.rows() {
            let who = name(time.tenant.get(row));
            for state in CpuState::ALL {
                let seconds = time.spent.get(row, state).unwrap_or(0.0);
                match state {
                    CpuState::Program => {
                        *running.entry(who.clone()).or_default() += seconds * (1.0 - lost);
                        add(&who, Layer::Steal, seconds * lost);
                    }
                    CpuState::Others => {
                        add(&who, Layer::Others, seconds * (1.0 - lost));
                        add(&who, Layer::Steal, seconds * lost);
                    }
                    CpuState::Ncpu => add(&Some(OWN.into()), Layer::Ncpu, seconds),
                    CpuState::Spin => add(&who, Layer::KernelSpin, seconds),
                    // Served on whatever CPU they came to.
                    CpuState::Hardirq | CpuState::Softirq => {
                        add(&Some(KERNEL.into()), Layer::Interrupts, seconds);
                    }
                    CpuState::Tlb => add(&who, Layer::Tlb, seconds),
                    CpuState::Idle => {}
                }
            }
        }
    }
    divide_running(recording, &division, &running, &name, &mut add)?;
    divide_idle(recording, &all, &name, &mut add)?;
    let mut parts: Vec<Part> =
        parts.into_iter().map(|(name, layers)| Part { name, layers: ranked(layers) }).collect();
    // Time of CPUs that were offline. Looks at the CPUs one after another may see some microseconds more than there were.
    let sum: f64 = parts.iter().map(Part::seconds).sum();
    let machine: f64 = division.layers.iter().map(|(_, seconds, _)| seconds).sum();
    let missing = machine - sum;
    if missing.abs() > 1e-9 {
        match parts.iter_mut().find(|part| part.name.is_none()) {
            Some(nobody) => nobody.layers.push((Layer::Unseen, missing)),
            None => parts.push(Part { name: None, layers: vec![(Layer::Unseen, missing)] }),
        }
    }
    parts.retain(|part| !part.layers.is_empty());
    parts.sort_by(|a, b| {
        (a.name.is_none(), -a.busy())
            .partial_cmp(&(b.name.is_none(), -b.busy()))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok((division, parts))
}

fn ranked(layers: Layers) -> Vec<(Layer, f64)> {
    let mut layers: Vec<(Layer, f64)> = layers.into_iter().filter(|(_, s)| *s != 0.0).collect();
    layers.sort_by(|a, b| b.1.total_cmp(&a.1));
    layers
}

/// Divides the time on CPU: each tenant has its own, exact, and each layer what the machine's samples say; in between lies
/// what the tenant's samples say.
fn divide_running(
    recording: &impl Tables,
    division: &Division,
    running: &BTreeMap<Option<String>, f64>,
    name: &dyn Fn(Option<u64>) -> Option<String>,
    add: &mut dyn FnMut(&Option<String>, Layer, f64),
) -> Result<(), Error> {
    let mut machine: BTreeMap<Layer, f64> = BTreeMap::new();
    if let Some(samples) = samples::Reader::open(recording)? {
        for row in samples.rows() {
            if let Some(layer) = layer_of(&samples, row) {
                *machine.entry(layer).or_default() += samples.samples.get(row).unwrap_or(0) as f64;
            }
        }
    }
    machine.retain(|_, n| *n > 0.0);
    let total: f64 = machine.values().sum();
    if total == 0.0 {
        running.iter().for_each(|(who, seconds)| add(who, Layer::User, *seconds));
        return Ok(());
    }
    let mut own: BTreeMap<(Option<String>, Layer), f64> = BTreeMap::new();
    if let Some(samples) = tenant_samples::Reader::open(recording)? {
        for row in samples.rows() {
            if let (Some(CpuState::Program), Some(class)) = (samples.at.get(row), samples.class.get(row)) {
                let n = samples.samples.get(row).unwrap_or(0) as f64;
                *own.entry((name(samples.tenant.get(row)), class.into())).or_default() += n;
            }
        }
    }
    let all: f64 = running.values().sum();
    // Sums of rows and columns must agree to the last digit.
    let columns: Vec<f64> = machine.values().map(|n| all * n / total).collect();
    let rows: Vec<f64> = running.values().copied().collect();
    let seed: Vec<Vec<f64>> = running
        .keys()
        .map(|who| {
            let of = |layer: &Layer| own.get(&(who.clone(), *layer)).copied().unwrap_or(0.0);
            machine.iter().map(|(layer, n)| of(layer) + PRIOR * n / total).collect()
        })
        .collect();
    debug_assert!((all - division.running).abs() < 1e-3 * division.capacity + 1e-3);
    for (who, cells) in running.keys().zip(fit(&seed, &rows, &columns)) {
        machine.keys().zip(cells).for_each(|(layer, seconds)| add(who, *layer, seconds));
    }
    Ok(())
}

/// Divides the idle time of CPUs; the sum of each reason is the machine's.
fn divide_idle(
    recording: &impl Tables,
    all: &cpu_time::Reader<'_>,
    name: &dyn Fn(Option<u64>) -> Option<String>,
    add: &mut dyn FnMut(&Option<String>, Layer, f64),
) -> Result<(), Error> {
    let idle = all.spent.sum(CpuState::Idle);
    let reasons = idle_time::Reader::open(recording)?;
    let explained: f64 =
        reasons.as_ref().map_or(0.0, |why| IdleReason::ALL.into_iter().map(|r| why.spent.sum(r)).sum());
    let Some(whose) = tenant_idle::Reader::open(recording)?.filter(|_| explained > 0.0) else {
        add(&None, Layer::Idle, idle);
        return Ok(());
    };
    let mut given = [0.0; IdleReason::ALL.len()];
    for row in whose.rows() {
        let who = name(whose.tenant.get(row));
        for reason in IdleReason::ALL {
            let seconds = whose.spent.get(row, reason).unwrap_or(0.0);
            given[reason as usize] += seconds;
            add(&who, reason.into(), idle * seconds / explained);
        }
    }
    if let Some(why) = &reasons {
        for reason in IdleReason::ALL {
            let rest = why.spent.sum(reason) - given[reason as usize];
            add(&None, reason.into(), idle * rest / explained);
        }
    }
    Ok(())
}
