//! Time of the machine by tenant, and losses of tenants to each other.
//!
//! The BPF programs know tenants by numbers that are reused; here each has a number of its own while it is remembered,
//! and a name, which tables get once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ncpu_files::reader::process_text;
use ncpu_machine::tenant::{Known, Tenant};
use ncpu_schema::{
    CpuState, Grounds, IdleReason, Loss, Per, SampleClass, tenant_idle, tenant_losses, tenant_names,
    tenant_samples, tenant_time,
};
use ncpu_table::Table;

use crate::bpf_support::namespace::process_dir;
use crate::engine::{Coverage, KernelLock, Lost, NewTenant, OTHERS, Shares, Spent, ThreadOut, tenant};

/// Tenants of an interval; those with least time are one.
const MOST: usize = 256;
/// Losses of an interval.
const LOSSES: usize = 1024;
/// Names that are remembered: of that many groups, programs and users.
const REMEMBERED: usize = 8192;
/// First number in tables that is given away; below it are the fixed numbers of the BPF programs.
const FIRST: u64 = tenant::FIRST as u64;

/// Of a process in an interval: timer samples by state and class.
pub(super) type Sampled = HashMap<(u32, CpuState, SampleClass), u64>;

/// Input of the tables of an interval.
pub(super) struct Interval<'a> {
    pub t: f64,
    pub shares: Shares,
    /// Idle seconds by reason, of the whole machine.
    pub idle: [f64; IdleReason::ALL.len()],
    pub sampled: Sampled,
    pub lost: Vec<Lost>,
    pub spins: Vec<Spin>,
    pub coverage: Coverage,
    /// CPU-seconds that the hypervisor took.
    pub steal: f64,
    /// Name of a kernel lock or a device.
    pub lock: &'a mut dyn FnMut(Loss, u64) -> String,
}

/// Waits of a process for a spinlock.
pub(super) struct Spin {
    lock: u64,
    tgid: u32,
    ns: u64,
    count: u64,
}

/// `LCB_F_SPIN` and `LCB_F_MUTEX`.
const SPINS: u32 = 1;
const MUTEX: u32 = 32;

/// Those of spinlocks among waits for kernel locks, which do not say who holds them.
pub(super) fn spins(kernel: &[KernelLock]) -> Vec<Spin> {
    let exact = |row: &&KernelLock| row.stack.is_none() && row.flags & SPINS != 0 && row.flags & MUTEX == 0;
    let spin = |row: &KernelLock| Spin { lock: row.lock, tgid: row.tgid, ns: row.spin, count: row.count };
    kernel.iter().filter(exact).map(spin).collect()
}

/// Variables in which batch systems keep the name that a user gave a job: Slurm, PBS.
const JOB_NAMES: [&str; 2] = ["SLURM_JOB_NAME=", "PBS_JOBNAME="];
/// Bytes of such a name.
const NAME: usize = 255;

/// The name of the job that a process with this environment belongs to.
fn job_name(environment: &[u8]) -> Option<String> {
    let mut variables = environment.split(|byte| *byte == 0);
    let value =
        variables.find_map(|text| JOB_NAMES.iter().find_map(|name| text.strip_prefix(name.as_bytes())))?;
    let name: String = String::from_utf8_lossy(value).chars().take(NAME).collect();
    (!name.is_empty()).then_some(name)
}

/// Bytes that a fault brings, at least.
const PAGE: f64 = 4096.0;
/// Seconds in which half of the data that was written has gone to devices, or need not go any more.
const WRITTEN_BACK: f64 = 10.0;

/// A tenant as it is remembered.
struct Met {
    id: u64,
    tenant: Tenant,
}

/// The tenants of an observation.
pub(super) struct Tenants {
    known: Known,
    /// By number of the BPF programs.
    met: HashMap<u32, Met>,
    /// Numbers of groups, programs and users that were met before.
    before: HashMap<(String, String, u32), u64>,
    next: u64,
    /// Names of jobs, by number.
    jobs: HashMap<String, String>,
    /// Those of which the tables have the names.
    told: HashSet<u64>,
    /// Of the interval: numbers that threads have, their processes, seconds on run queues.
    living: BTreeSet<u32>,
    processes: HashMap<u32, u32>,
    queued: HashMap<u32, Stood>,
    /// Bytes of memory that threads took in the interval.
    taken: BTreeMap<u32, f64>,
    /// Bytes of files that threads wrote, of which the kernel gives devices some later.
    dirtied: BTreeMap<u32, f64>,
    /// End of the last interval, s.
    until: f64,
}

/// Seconds that threads stood on run queues.
#[derive(Clone, Debug, Default, PartialEq)]
struct Stood {
    all: f64,
    /// Threads that stood there.
    threads: u32,
    /// Seconds that threads waited for locks.
    locked: f64,
    /// Of those, the seconds of threads that stand there still, by CPU.
    still: HashMap<usize, f64>,
}

/// A loss as it is summed: who, to whom, by what, and at which lock.
type Key = (u64, Option<u64>, Loss, Option<u64>, Grounds);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    threads: f64,
    cpus: f64,
    count: u64,
}

/// Parts of `whole` in proportion to weights; empty without weights.
fn parts<K: Copy>(whole: f64, weights: &[(K, f64)]) -> Vec<(K, f64)> {
    let all: f64 = weights.iter().map(|(_, w)| w).sum();
    match all > 0.0 {
        true => weights.iter().map(|(k, w)| (*k, whole * w / all)).collect(),
        false => Vec::new(),
    }
}

impl Tenants {
    pub fn begin() -> Tenants {
        Tenants {
            known: Known::default(),
            met: HashMap::new(),
            before: HashMap::new(),
            next: FIRST,
            jobs: HashMap::new(),
            told: HashSet::new(),
            living: BTreeSet::new(),
            processes: HashMap::new(),
            queued: HashMap::new(),
            taken: BTreeMap::new(),
            dirtied: BTreeMap::new(),
            until: 0.0,
        }
    }

    /// A tenant of the BPF programs has a number from now on, which another may have had before.
    pub fn meet(&mut self, new: &NewTenant) {
        let key = (new.cgroup.clone(), new.program.clone(), new.uid);
        if self.before.len() >= REMEMBERED {
            self.before.clear();
        }
        let id = *self.before.entry(key).or_insert_with(|| {
            self.next += 1;
            self.next - 1
        });
        let mut tenant = Tenant::find(&new.cgroup, &new.program, new.uid, &mut self.known);
        if let Some(job) = &tenant.job {
            let known = self.jobs.get(job).cloned();
            tenant.job_name = known.or_else(|| {
                // The process may be gone; another of the job may say it.
                let environment = process_text(&process_dir(new.pid), new.pid, "environ").ok();
                let name = environment.and_then(|text| job_name(&text));
                if self.jobs.len() >= REMEMBERED {
                    self.jobs.clear();
                }
                if let Some(name) = &name {
                    self.jobs.insert(job.clone(), name.clone());
                }
                name
            });
        }
        self.met.insert(new.number, Met { id, tenant });
    }

    /// Counts a thread of the interval, which stood on run queues for `stood` seconds and waited for locks for `locked`.
    pub fn thread(&mut self, thread: &ThreadOut, before: &ThreadOut, stood: f64, locked: f64) {
        let bytes = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let dirtied = bytes(thread.dirtied, before.dirtied);
        let taken = PAGE * bytes(thread.minf, before.minf) + bytes(thread.read, before.read) + dirtied;
        if dirtied > 0.0 {
            *self.dirtied.entry(thread.tenant).or_default() += dirtied;
        }
        if taken > 0.0 {
            *self.taken.entry(thread.tenant).or_default() += taken;
        }
        self.living.insert(thread.tenant);
        self.processes.insert(thread.tgid, thread.tenant);
        let sum = self.queued.entry(thread.tenant).or_default();
        sum.all += stood;
        sum.locked += locked;
        sum.threads += u32::from(stood > 0.0);
        if let Some(cpu) = (thread.queue as usize).checked_sub(1) {
            *sum.still.entry(cpu).or_default() += stood;
        }
    }

    /// Numbers that threads had since the last call.
    pub fn take_living(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.living)
    }

    /// Repeats the names in the tables that follow.
    pub fn turn(&mut self) {
        self.told.clear();
    }

    /// The number in tables of one of the BPF programs.
    fn id(&self, number: u32) -> u64 {
        match number {
            n if n < tenant::FIRST => n.into(),
            n => self.met.get(&n).map_or(tenant::OTHERS.into(), |met| met.id),
        }
    }

    /// The tables of the interval.
    pub fn tables(&mut self, interval: Interval<'_>) -> Vec<Table> {
        let Interval { t, shares, idle, sampled, lost, spins, coverage, steal, lock } = interval;
        let processes = std::mem::take(&mut self.processes);
        let queued = std::mem::take(&mut self.queued);
        let losses = self.losses(&shares, &lost, &spins, coverage, steal, &processes, &queued);
        self.taken.clear();
        let kept = 0.5f64.powf((t - self.until).max(0.0) / WRITTEN_BACK);
        self.until = t;
        self.dirtied.values_mut().for_each(|bytes| *bytes *= kept);
        self.dirtied.retain(|_, bytes| *bytes >= 1.0);
        let spent = shares.spent;
        // The largest have rows of their own.
        let mut sizes: Vec<(i64, u32)> = spent
            .iter()
            .map(|(number, one)| {
                let idle: u64 = one.idle.iter().sum();
                (-(one.at.iter().sum::<i64>() + idle as i64), *number)
            })
            .collect();
        sizes.sort_unstable();
        let kept: HashSet<u32> = sizes.iter().take(MOST).map(|(_, number)| *number).collect();
        let name = |number: u32| if kept.contains(&number) { self.id(number) } else { tenant::OTHERS.into() };

        let mut time: BTreeMap<u64, [f64; CpuState::ALL.len()]> = BTreeMap::new();
        for (number, one) in &spent {
            let row = time.entry(name(*number)).or_default();
            row.iter_mut().zip(one.at).for_each(|(sum, ns)| *sum += ns as f64 / 1e9);
        }
        let mut times = tenant_time::Rows::new();
        for (id, at) in &time {
            times.push(tenant_time::Row {
                time: Some(t),
                tenant: Some(*id),
                spent: Per::new(|state| Some(at[state as usize])),
            });
        }
        let idles = idle_table(t, &idle, &spent, &lost, &name);
        let mut counts: BTreeMap<(u64, CpuState, SampleClass), u64> = BTreeMap::new();
        for ((tgid, at, class), n) in sampled {
            let number = processes.get(&tgid).copied().unwrap_or(tenant::OTHERS);
            *counts.entry((name(number), at, class)).or_default() += n;
        }
        let mut samples = tenant_samples::Rows::new();
        for ((id, at, class), n) in &counts {
            samples.push(tenant_samples::Row {
                time: Some(t),
                tenant: Some(*id),
                at: Some(*at),
                class: Some(*class),
                samples: Some(*n),
            });
        }
        let mut ids: BTreeSet<u64> = time.keys().chain(counts.keys().map(|(id, ..)| id)).copied().collect();
        let losses = loss_table(t, losses, lock, &mut ids);
        let mut names = tenant_names::Rows::new();
        for id in ids {
            self.name(id, &mut names);
        }
        vec![names.finish(), times.finish(), idles, samples.finish(), losses]
    }

    /// Adds the names of a tenant where the tables do not have them.
    fn name(&mut self, id: u64, names: &mut tenant_names::Rows) {
        if id >= FIRST && self.told.len() >= REMEMBERED {
            self.told.clear();
        }
        if !self.told.insert(id) {
            return;
        }
        let own = match id as u32 {
            tenant::KERNEL => Some(Tenant::kernel()),
            tenant::NCPU => {
                Some(Tenant { program: "ncpu itself".into(), cgroup: "/".into(), ..Tenant::default() })
            }
            tenant::OTHERS => {
                Some(Tenant { program: ncpu_machine::tenant::OTHERS.into(), ..Tenant::default() })
            }
            tenant::IDLE => Some(Tenant { program: "idle".into(), ..Tenant::default() }),
            _ => None,
        };
        let known = self.met.values().find(|met| met.id == id).map(|met| &met.tenant);
        let Some(tenant) = own.as_ref().filter(|_| id < FIRST).or(known) else { return };
        names.push(tenant_names::Row {
            tenant: Some(id),
            cgroup: tenant.cgroup.as_str().into(),
            program: tenant.program.as_str().into(),
            unit: tenant.unit.as_deref().into(),
            pod: tenant.pod.as_deref().into(),
            container: tenant.container.as_deref().into(),
            job: tenant.job.as_deref().into(),
            job_name: tenant.job_name.as_deref().into(),
            step: tenant.step.as_deref().into(),
            user: tenant.user.as_deref().into(),
            session: tenant.session.as_deref().into(),
        });
    }

    /// Losses by victim, culprit and cause.
    #[allow(clippy::too_many_arguments)]
    fn losses(
        &self,
        shares: &Shares,
        lost: &[Lost],
        spins: &[Spin],
        coverage: Coverage,
        steal: f64,
        processes: &HashMap<u32, u32>,
        queued: &HashMap<u32, Stood>,
    ) -> BTreeMap<Key, Sum> {
        let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
        let mut add = |key: Key, threads: f64, cpus: f64, count: u64| {
            let sum = sums.entry(key).or_default();
            sum.threads += threads;
            sum.cpus += cpus;
            sum.count += count;
        };
        let (kernel, spent) = (u64::from(tenant::KERNEL), &shares.spent);
        // `divided` comes from samples of the time that threads stood, whose sum is known exactly; and waits may have
        // begun before the interval.
        let mut divided: HashMap<u32, f64> = HashMap::new();
        let of_queues = |row: &&Lost| [Lost::QUEUE, Lost::QUOTA, Lost::SOFTIRQ].contains(&row.cause);
        for row in lost.iter().filter(of_queues) {
            *divided.entry(row.victim).or_default() += row.threads as f64 / 1e9;
        }
        for (number, stood) in queued {
            *divided.entry(*number).or_default() += stood.still.values().sum::<f64>();
        }
        let held_to = |number: u32| {
            let stood = queued.get(&number).map_or(0.0, |stood| stood.all);
            divided.get(&number).map_or(1.0, |parts| if *parts > stood { stood / parts } else { 1.0 })
        };
        // Contentions may be counted in short windows and scaled; threads' time in locks is exact.
        let scaled = |ns: u64| coverage.of(ns) as f64 / 1e9;
        let mut at_locks: HashMap<u32, f64> = HashMap::new();
        let mut holders: HashMap<u64, Vec<(u32, f64)>> = HashMap::new();
        for row in lost.iter().filter(|row| row.cause == Lost::LOCK) {
            *at_locks.entry(row.victim).or_default() += scaled(row.threads);
            if let Some(culprit) = row.culprit.filter(|_| row.lock != OTHERS) {
                holders.entry(row.lock).or_default().push((culprit, row.threads as f64));
            }
        }
        let held_to_locks = |number: u32| {
            let locked = queued.get(&number).map_or(0.0, |stood| stood.locked);
            at_locks.get(&number).map_or(1.0, |parts| if *parts > locked { locked / parts } else { 1.0 })
        };
        // Of waits by CPU of which the CPU does not know any more what it ran, or not yet: it ran for its tenants.
        let mut by_cpu: BTreeMap<(u32, usize), (f64, u64)> = BTreeMap::new();
        let mut network: HashMap<u32, f64> = HashMap::new();
        let packets = packets_of(spent);
        let of_softirqs = network_part(lost, spent);
        let mut devices: BTreeMap<(u32, u64), Served> = BTreeMap::new();
        for row in lost {
            let victim = self.id(row.victim);
            let scale = match row.cause {
                Lost::NETWORK | Lost::DEVICE | Lost::RECLAIM | Lost::LIMIT => 1.0,
                Lost::LOCK => held_to_locks(row.victim) * coverage.of(1_000_000) as f64 / 1e6,
                _ => held_to(row.victim),
            };
            let (threads, cpus) = (scale * row.threads as f64 / 1e9, scale * row.cpus as f64 / 1e9);
            let key = match (row.cause, row.culprit) {
                // Without a row of its own: it is in the accounts of the threads that stood there, as time of which no more is known.
                (Lost::QUEUE | Lost::SOFTIRQ | Lost::QUOTA, _) if row.unplaced => continue,
                (Lost::QUOTA, _) => (victim, Some(victim), Loss::Quota, None, Grounds::Traced),
                // Nobody held it at that moment, or a thread that has gone: those that others waited for.
                (Lost::LOCK, None) => {
                    let known = parts(threads, holders.get(&row.lock).map_or(&[], Vec::as_slice));
                    if known.is_empty() {
                        let key = (victim, None, Loss::KernelLock, Some(row.lock), Grounds::Unknown);
                        add(key, threads, cpus, row.count);
                    }
                    for (culprit, threads) in known {
                        let key = (
                            victim,
                            Some(self.id(culprit)),
                            Loss::KernelLock,
                            Some(row.lock),
                            Grounds::Shares,
                        );
                        add(key, threads, 0.0, 0);
                    }
                    continue;
                }
                (Lost::LOCK, Some(culprit)) => {
                    (victim, Some(self.id(culprit)), Loss::KernelLock, Some(row.lock), Grounds::Traced)
                }
                (Lost::SOFTIRQ, _) => {
                    let for_network = if packets.is_empty() { 0.0 } else { of_softirqs };
                    for (sender, part) in parts(for_network, &packets) {
                        let key = (victim, Some(self.id(sender)), Loss::Network, None, Grounds::Shares);
                        add(key, threads * part, cpus * part, 0);
                    }
                    let rest = 1.0 - for_network;
                    if rest > 0.0 {
                        let key = (victim, Some(kernel), Loss::RunQueue, None, Grounds::Traced);
                        add(key, threads * rest, cpus * rest, row.count);
                    }
                    continue;
                }
                (Lost::DEVICE, culprit) => {
                    devices.entry((row.victim, row.lock)).or_default().add(row, culprit);
                    continue;
                }
                (Lost::RECLAIM, _) => {
                    let takers: Vec<(u32, f64)> = self.taken.iter().map(|(n, bytes)| (*n, *bytes)).collect();
                    let known = parts(threads, &takers);
                    if known.is_empty() {
                        add((victim, None, Loss::Reclaim, None, Grounds::Unknown), threads, cpus, row.count);
                    }
                    for (taker, part) in known {
                        let key = (victim, Some(self.id(taker)), Loss::Reclaim, None, Grounds::Shares);
                        add(key, part, 0.0, if taker == row.victim { row.count } else { 0 });
                    }
                    continue;
                }
                (Lost::LIMIT, culprit) => {
                    let grounds = if culprit.is_some() { Grounds::Traced } else { Grounds::Unknown };
                    (victim, culprit.map(|_| victim), Loss::MemoryLimit, None, grounds)
                }
                (Lost::NETWORK, _) => {
                    *network.entry(row.victim).or_default() += cpus;
                    continue;
                }
                (_, None) => {
                    let cpu = (row.lock as usize).saturating_sub(1);
                    let sum = by_cpu.entry((row.victim, cpu)).or_default();
                    sum.0 += threads;
                    sum.1 += row.count;
                    continue;
                }
                (_, Some(tenant::IDLE)) => (victim, Some(kernel), Loss::WakeUp, None, Grounds::Traced),
                (_, Some(culprit)) => (victim, Some(self.id(culprit)), Loss::RunQueue, None, Grounds::Traced),
            };
            add(key, threads, cpus, row.count);
        }
        let dirtied: Vec<(u32, f64)> = self.dirtied.iter().map(|(n, bytes)| (*n, *bytes)).collect();
        for ((number, device), served) in devices {
            let victim = self.id(number);
            for (who, seconds) in served.losses(number, &dirtied) {
                let grounds = if who.is_some() { Grounds::Shares } else { Grounds::Unknown };
                let key = (victim, who.map(|who| self.id(who)), Loss::Device, Some(device), grounds);
                add(key, seconds, 0.0, if who == Some(number) { served.count } else { 0 });
            }
        }
        for (number, stood) in queued {
            for (cpu, seconds) in &stood.still {
                by_cpu.entry((*number, *cpu)).or_default().0 += seconds * held_to(*number);
            }
            // Waits that were too short to ask behind whom.
            let short = stood.all - divided.get(number).copied().unwrap_or(0.0);
            if short > 0.0 {
                add((self.id(*number), None, Loss::RunQueue, None, Grounds::Unknown), short, 0.0, 0);
            }
        }
        for ((number, cpu), (seconds, count)) in by_cpu {
            let victim = self.id(number);
            // A thread does not stand behind itself.
            let threads = f64::from(queued.get(&number).map_or(1, |stood| stood.threads.max(1)));
            let others = |(who, ns): &(u32, f64)| match *who == number {
                true => (*who, ns * (threads - 1.0) / threads),
                false => (*who, *ns),
            };
            let ran: Vec<_> = shares.ran.get(&cpu).into_iter().flatten().map(others).collect();
            let ran = parts(seconds, &ran);
            if ran.is_empty() {
                add((victim, None, Loss::RunQueue, None, Grounds::Unknown), seconds, 0.0, count);
            }
            for (culprit, seconds) in ran.into_iter().filter(|(_, seconds)| *seconds > 0.0) {
                let key = (victim, Some(self.id(culprit)), Loss::RunQueue, None, Grounds::Shares);
                add(key, seconds, 0.0, 0);
            }
        }
        self.spin_losses(spins, coverage, processes, &mut add);
        let ran: Vec<(u32, f64)> = spent
            .iter()
            .filter(|(number, _)| **number != tenant::IDLE)
            .map(|(number, one)| (*number, one.at[CpuState::Program as usize] as f64))
            .collect();
        for (number, seconds) in parts(steal, &ran) {
            if seconds > 0.0 {
                add((self.id(number), None, Loss::Steal, None, Grounds::Shares), seconds, seconds, 0);
            }
        }
        for (number, one) in spent {
            if *number == tenant::IDLE {
                continue;
            }
            let at = |state: CpuState| one.at[state as usize] as f64 / 1e9;
            let served = at(CpuState::Hardirq) + at(CpuState::Softirq);
            // Both clocks of an interval end at slightly different moments.
            let of_network = network.get(number).copied().unwrap_or(0.0).min(served);
            for (sender, seconds) in parts(of_network, &packets) {
                let key = (self.id(*number), Some(self.id(sender)), Loss::Network, None, Grounds::Shares);
                add(key, seconds, seconds, 0);
            }
            let interrupted = if packets.is_empty() { served } else { served - of_network };
            if interrupted > 0.0 {
                let key = (self.id(*number), Some(kernel), Loss::Interrupts, None, Grounds::Traced);
                add(key, interrupted, interrupted, 0);
            }
            // Only CPUs that run threads of that memory are asked to drop translations of it.
            let flushes = at(CpuState::Tlb);
            if flushes > 0.0 {
                let id = self.id(*number);
                add((id, Some(id), Loss::Shootdown, None, Grounds::Shares), flushes, flushes, 0);
            }
        }
        sums
    }

    /// A spinlock has no owner word: waits for it are divided among the tenants that take it, by their contended acquisitions.
    fn spin_losses(
        &self,
        spins: &[Spin],
        coverage: Coverage,
        processes: &HashMap<u32, u32>,
        add: &mut dyn FnMut(Key, f64, f64, u64),
    ) {
        let mut locks: BTreeMap<u64, BTreeMap<u32, (u64, u64)>> = BTreeMap::new();
        for spin in spins {
            let number = processes.get(&spin.tgid).copied().unwrap_or(tenant::OTHERS);
            let sum = locks.entry(spin.lock).or_default().entry(number).or_default();
            sum.0 += spin.ns;
            sum.1 += spin.count;
        }
        for (lock, tenants) in locks {
            let takers: Vec<(u32, f64)> =
                tenants.iter().map(|(number, (_, n))| (*number, *n as f64)).collect();
            for (victim, (ns, count)) in &tenants {
                let (seconds, victim) = (coverage.of(*ns) as f64 / 1e9, self.id(*victim));
                if lock == OTHERS {
                    add((victim, None, Loss::Spin, Some(lock), Grounds::Unknown), seconds, seconds, *count);
                    continue;
                }
                for (taker, part) in parts(seconds, &takers) {
                    let key = (victim, Some(self.id(taker)), Loss::Spin, Some(lock), Grounds::Shares);
                    add(key, part, part, if self.id(taker) == victim { *count } else { 0 });
                }
            }
        }
    }
}

/// Requests that a device served while threads of a tenant waited for it.
#[derive(Clone, Debug, Default)]
struct Served {
    /// Seconds of the waits, and seconds that the same requests take when the device has nothing else to do.
    waited: f64,
    alone: f64,
    count: u64,
    /// Seconds by whose requests were served.
    by: BTreeMap<u32, f64>,
}

impl Served {
    fn add(&mut self, row: &Lost, culprit: Option<u32>) {
        let seconds = row.threads as f64 / 1e9;
        match culprit {
            Some(culprit) => *self.by.entry(culprit).or_default() += seconds,
            None => {
                self.waited += seconds;
                self.alone += row.cpus as f64 / 1e9;
                self.count += row.count;
            }
        }
    }

    /// Seconds lost to each. The kernel asks for those that have written: `dirtied`.
    fn losses(&self, victim: u32, dirtied: &[(u32, f64)]) -> Vec<(Option<u32>, f64)> {
        let mut by: BTreeMap<Option<u32>, f64> = BTreeMap::new();
        for (&number, &seconds) in &self.by {
            let asked = if number == tenant::KERNEL { parts(seconds, dirtied) } else { Vec::new() };
            if asked.is_empty() {
                let known = Some(number).filter(|number| *number != tenant::KERNEL);
                *by.entry(known).or_default() += seconds;
            }
            for (number, seconds) in asked {
                *by.entry(Some(number)).or_default() += seconds;
            }
        }
        // Its own requests take the time that they take.
        if let Some(own) = by.get_mut(&Some(victim)) {
            *own = (*own - self.alone).max(0.0);
        }
        let weights: Vec<(Option<u32>, f64)> = by.into_iter().collect();
        let mut lost = parts((self.waited - self.alone).max(0.0), &weights);
        lost.retain(|(_, seconds)| *seconds > 0.0);
        lost
    }
}

/// The part of the softirqs in the kernel's own threads that are the network's.
fn network_part(lost: &[Lost], spent: &BTreeMap<u32, Spent>) -> f64 {
    let network: u64 = lost
        .iter()
        .filter(|row| row.cause == Lost::NETWORK && row.victim == tenant::KERNEL)
        .map(|row| row.cpus)
        .sum();
    let all = spent.get(&tenant::KERNEL).map_or(0, |one| one.at[CpuState::Softirq as usize]);
    if all > 0 { (network as f64 / all as f64).min(1.0) } else { 0.0 }
}

/// Packets that the network's softirqs served, by tenant: packets sent to this machine's own sockets are the sender's,
/// packets from outside the reader's.
fn packets_of(spent: &BTreeMap<u32, Spent>) -> Vec<(u32, f64)> {
    let sum = |of: fn(&Spent) -> u64| spent.values().map(of).sum::<u64>() as f64;
    let (sent, received) = (sum(|one| one.sent), sum(|one| one.received));
    let outside = (received - sent).max(0.0) / received.max(1.0);
    let of = |(number, one): (&u32, &Spent)| (*number, one.sent as f64 + outside * one.received as f64);
    spent.iter().map(of).filter(|(_, packets)| *packets > 0.0).collect()
}

/// Table `tenant_idle`: idle time by the tenant that waited and by reason; the row without a tenant is idle time that
/// belongs to no tenant. The sums are those of table `idle_time`.
fn idle_table(
    t: f64,
    idle: &[f64; IdleReason::ALL.len()],
    spent: &BTreeMap<u32, Spent>,
    lost: &[Lost],
    name: &dyn Fn(u32) -> u64,
) -> Table {
    let mut shares: BTreeMap<Option<u64>, [f64; IdleReason::ALL.len()]> = BTreeMap::new();
    for reason in IdleReason::ALL {
        let whole = idle[reason as usize];
        let weights: Vec<(u32, f64)> = match reason {
            IdleReason::Asleep => Vec::new(),
            // Threads that stood behind an idle CPU.
            IdleReason::WakeUp => lost
                .iter()
                .filter(|row| row.cause == Lost::QUEUE && row.culprit == Some(tenant::IDLE))
                .map(|row| (row.victim, row.threads as f64))
                .collect(),
            reason => spent
                .iter()
                .filter_map(|(number, one)| Some((*number, *one.idle.get(reason as usize)? as f64)))
                .collect(),
        };
        let mut rest = whole;
        for (number, seconds) in parts(whole, &weights) {
            shares.entry(Some(name(number))).or_default()[reason as usize] += seconds;
            rest -= seconds;
        }
        if rest != 0.0 {
            shares.entry(None).or_default()[reason as usize] += rest;
        }
    }
    let mut rows = tenant_idle::Rows::new();
    for (tenant, idle) in shares.into_iter().filter(|(_, idle)| idle.iter().any(|s| *s != 0.0)) {
        let spent = Per::new(|reason: IdleReason| Some(idle[reason as usize]));
        rows.push(tenant_idle::Row { time: Some(t), tenant, spent });
    }
    rows.finish()
}

/// Table `tenant_losses`. The smallest rows of a cause are put together.
fn loss_table(
    t: f64,
    losses: BTreeMap<Key, Sum>,
    lock: &mut dyn FnMut(Loss, u64) -> String,
    ids: &mut BTreeSet<u64>,
) -> Table {
    let mut sorted: Vec<(Key, Sum)> = losses.into_iter().collect();
    sorted.sort_by(|a, b| (b.1.threads + b.1.cpus).total_cmp(&(a.1.threads + a.1.cpus)).then(a.0.cmp(&b.0)));
    let mut rest: BTreeMap<Key, Sum> = BTreeMap::new();
    for ((victim, culprit, cause, _, grounds), sum) in sorted.split_off(sorted.len().min(LOSSES)) {
        let others = u64::from(tenant::OTHERS);
        let (victim, culprit) = (victim.min(others), culprit.map(|culprit| culprit.min(others)));
        let of = rest.entry((victim, culprit, cause, None, grounds)).or_default();
        of.threads += sum.threads;
        of.cpus += sum.cpus;
        of.count += sum.count;
    }
    let mut rows = tenant_losses::Rows::new();
    for ((victim, culprit, cause, address, grounds), sum) in sorted.into_iter().chain(rest) {
        ids.insert(victim);
        ids.extend(culprit);
        rows.push(tenant_losses::Row {
            time: Some(t),
            victim: Some(victim),
            culprit,
            cause: Some(cause),
            lock: address.filter(|address| *address > OTHERS).map(|address| lock(cause, address)).into(),
            threads: Some(sum.threads),
            cpus: Some(sum.cpus),
            count: Some(sum.count),
            grounds: Some(grounds),
        });
    }
    rows.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VICTIM: u32 = 4;
    const OTHER: u32 = 5;

    fn row(cause: u32, culprit: Option<u32>, ms: u64, alone: u64) -> Lost {
        let (threads, cpus) = (ms * 1_000_000, alone * 1_000_000);
        Lost { victim: VICTIM, culprit, cause, lock: 9, count: 1, threads, cpus, unplaced: false }
    }

    fn served(rows: &[(Option<u32>, u64, u64)]) -> Served {
        let mut served = Served::default();
        for (culprit, ms, alone) in rows {
            served.add(&row(Lost::DEVICE, *culprit, *ms, *alone), *culprit);
        }
        served
    }

    fn ms(losses: Vec<(Option<u32>, f64)>) -> Vec<(Option<u32>, i64)> {
        losses.into_iter().map(|(who, seconds)| (who, (seconds * 1e3).round() as i64)).collect()
    }

    /// A wait is lost to the tenants whose requests the device served first; the victim's own request is no loss.
    #[test]
    fn a_wait_is_lost_to_whose_requests_were_served() {
        // 100 ms, of which the last 10 are the victim's own.
        let behind = served(&[(None, 100, 10), (Some(OTHER), 90, 0), (Some(VICTIM), 10, 0)]);
        assert_eq!(ms(behind.losses(VICTIM, &[])), [(Some(OTHER), 90)]);
        // Behind its own requests.
        let own = served(&[(None, 100, 10), (Some(VICTIM), 100, 0)]);
        assert_eq!(ms(own.losses(VICTIM, &[])), [(Some(VICTIM), 90)]);
        // A device that serves many at once: the wait takes no longer than alone.
        let beside = served(&[(None, 10, 10), (Some(OTHER), 9, 0), (Some(VICTIM), 1, 0)]);
        assert_eq!(ms(beside.losses(VICTIM, &[])), []);
        // The kernel writes what tenants have written; where nobody has, it is not known for whom.
        let written = served(&[(None, 100, 0), (Some(tenant::KERNEL), 100, 0)]);
        assert_eq!(
            ms(written.losses(VICTIM, &[(OTHER, 3e6), (VICTIM, 1e6)])),
            [(Some(VICTIM), 25), (Some(OTHER), 75)]
        );
        assert_eq!(ms(written.losses(VICTIM, &[])), [(None, 100)]);
    }

    proptest! {
        #[test]
        fn losses_to_a_device_are_what_was_waited_but_for_what_it_takes_alone(
            parts in prop::collection::vec((1u32..8, 1u64..1000), 1..9), waited in 0u64..9000, alone in 0u64..9000,
        ) {
            let mut rows: Vec<_> = parts.iter().map(|(who, ms)| (Some(*who), *ms, 0)).collect();
            rows.push((None, waited, alone));
            let losses = served(&rows).losses(VICTIM, &[(OTHER, 1.0)]);
            let sum: f64 = losses.iter().map(|(_, seconds)| seconds).sum();
            let most = waited.saturating_sub(alone) as f64 / 1e3;
            // All of it, or nothing where its own requests were all that was served, and took no longer than they do.
            prop_assert!((sum - most).abs() < 1e-9 || losses.is_empty(), "{} of {}", sum, most);
            prop_assert!(losses.iter().all(|(_, seconds)| *seconds > 0.0));
        }
    }

    /// Time behind a thread of the kernel that serves softirqs is lost to those whose packets they were, as far as they were the network's.
    #[test]
    fn softirqs_are_lost_to_the_senders_of_packets() {
        let mut tenants = Tenants::begin();
        for (number, name) in [(VICTIM, "victim"), (OTHER, "flood")] {
            let (cgroup, program) = (format!("/{name}"), name.to_string());
            tenants.meet(&NewTenant { number, cgroup, program, uid: 0, pid: 0 });
        }
        let mut softirqs = Spent::default();
        softirqs.at[CpuState::Softirq as usize] = 400_000_000;
        let flood = Spent { sent: 1000, ..Spent::default() };
        let spent = BTreeMap::from([(tenant::KERNEL, softirqs), (OTHER, flood)]);
        let mut of_kernel = row(Lost::NETWORK, None, 300, 300);
        of_kernel.victim = tenant::KERNEL;
        let unplaced = Lost { victim: tenant::OTHERS, unplaced: true, ..row(Lost::QUEUE, None, 999, 0) };
        let lost = [of_kernel, row(Lost::SOFTIRQ, Some(tenant::KERNEL), 200, 200), unplaced];
        let queued = HashMap::from([(VICTIM, Stood { all: 0.25, threads: 1, ..Stood::default() })]);
        let shares = Shares { spent, ran: BTreeMap::new() };
        let losses = tenants.losses(&shares, &lost, &[], Coverage::ALL, 0.0, &HashMap::new(), &queued);
        let victim = tenants.id(VICTIM);
        let of_victim: Vec<_> = losses
            .iter()
            .filter(|((who, ..), _)| *who == victim)
            .map(|((_, culprit, cause, ..), sum)| (*culprit, *cause, (sum.threads * 1e3).round() as i64))
            .collect();
        let (flood, kernel) = (tenants.id(OTHER), u64::from(tenant::KERNEL));
        let expected = [
            // Too short to ask behind whom.
            (None, Loss::RunQueue, 50),
            (Some(kernel), Loss::RunQueue, 50),
            (Some(flood), Loss::Network, 150),
        ];
        assert_eq!(of_victim, expected);
    }

    #[test]
    fn the_name_of_a_job_is_in_its_environment() {
        assert_eq!(job_name(b"A=b\0SLURM_JOB_NAME=night batch\0C=d"), Some("night batch".into()));
        assert_eq!(job_name(b"PBS_JOBNAME=x"), Some("x".into()));
        assert_eq!(job_name(b"SLURM_JOB_NAMES=x\0SLURM_JOB_NAME="), None);
        assert_eq!(
            job_name(&[b"SLURM_JOB_NAME=".as_slice(), &[b'x'; 10_000]].concat()).map(|name| name.len()),
            Some(NAME)
        );
    }
}
