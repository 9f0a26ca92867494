//! What tenants lost to each other in an interval.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ncpu_schema::{CpuState, Grounds, Loss, tenant_losses};
use ncpu_table::Table;

use crate::engine::{Coverage, KernelLock, Lost, OTHERS, Shares, Spent, tenant};

/// Losses of an interval that have a row of their own.
const LOSSES: usize = 1024;

/// Waits of a process for a spinlock.
pub struct Spin {
    lock: u64,
    tgid: u32,
    ns: u64,
    count: u64,
}

/// `LCB_F_SPIN` and `LCB_F_MUTEX`.
const SPINS: u32 = 1;
const MUTEX: u32 = 32;

/// Those of spinlocks among waits for kernel locks, which do not say who holds them.
pub fn spins(kernel: &[KernelLock]) -> Vec<Spin> {
    let exact = |row: &&KernelLock| row.stack.is_none() && row.flags & SPINS != 0 && row.flags & MUTEX == 0;
    let spin = |row: &KernelLock| Spin { lock: row.lock, tgid: row.tgid, ns: row.spin, count: row.count };
    kernel.iter().filter(exact).map(spin).collect()
}

/// Seconds that threads stood on run queues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stood {
    pub all: f64,
    /// Threads that stood there.
    pub threads: u32,
    /// Seconds that threads waited for locks.
    pub locked: f64,
    /// Of `all`, the seconds of threads that stand there still and that no limit holds back, by CPU.
    pub still: HashMap<usize, f64>,
    /// Of all, the seconds for which the limit of its own group held threads back.
    pub held: f64,
    /// How often that has ended.
    pub holds: u64,
}

impl Stood {
    /// Seconds behind others, not held back by a limit.
    fn behind(&self) -> f64 {
        (self.all - self.held).max(0.0)
    }
}

/// Parts of `whole` in proportion to weights; empty without weights.
pub fn parts<K: Copy>(whole: f64, weights: &[(K, f64)]) -> Vec<(K, f64)> {
    let all: f64 = weights.iter().map(|(_, w)| w).sum();
    match all > 0.0 {
        true => weights.iter().map(|(k, w)| (*k, whole * w / all)).collect(),
        false => Vec::new(),
    }
}

/// A limit of CPU time: the level of the group that has it, and how much it allows, where that is known.
pub type Limit = (u64, Option<f64>);

/// Input of the losses of an interval. Tenants have the numbers of the BPF programs.
pub struct Input<'a> {
    /// The number that a tenant has in tables.
    pub id: &'a dyn Fn(u32) -> u64,
    /// Whether a tenant has a level of groups, and another lies in the same group of that level.
    pub inside: &'a dyn Fn(u32, u32, u64) -> bool,
    pub shares: &'a Shares,
    pub lost: &'a [Lost],
    pub spins: &'a [Spin],
    /// How much of the time contentions were counted in.
    pub coverage: Coverage,
    /// CPU-seconds that the hypervisor took.
    pub steal: f64,
    /// Tenants by process.
    pub processes: &'a HashMap<u32, u32>,
    pub queued: &'a HashMap<u32, Stood>,
    /// Bytes of memory that each took.
    pub taken: &'a BTreeMap<u32, f64>,
    /// Bytes of files that each wrote and that devices may not have yet.
    pub dirtied: &'a BTreeMap<u32, f64>,
    /// The limit of CPU time that holds a tenant back: the level of the group that has it, and the CPU-seconds that it allowed, where
    /// that is known.
    pub limit: &'a dyn Fn(u32) -> Option<Limit>,
    /// CPU-seconds that each spun for kernel locks of which no event tells.
    pub spun: &'a BTreeMap<u32, f64>,
}

/// A row of losses, by numbers of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    victim: u64,
    culprit: Option<u64>,
    cause: Loss,
    /// The kernel lock or the device.
    at: Option<u64>,
    grounds: Grounds,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Seconds of threads.
    threads: f64,
    /// Seconds of CPUs.
    cpus: f64,
    count: u64,
}

impl Sum {
    fn of_threads(threads: f64) -> Sum {
        Sum { threads, ..Sum::default() }
    }

    fn add(&mut self, other: Sum) {
        self.threads += other.threads;
        self.cpus += other.cpus;
        self.count += other.count;
    }
}

/// The losses of an interval by victim, culprit and cause.
pub fn sum(input: &Input<'_>) -> BTreeMap<Key, Sum> {
    let packets = packets_of(&input.shares.spent);
    let mut losses = Losses {
        // Without senders of packets the network's softirqs are nobody's.
        of_network: if packets.is_empty() { 0.0 } else { network_part(input.lost, &input.shares.spent) },
        packets,
        queues: Scales::of_queues(input),
        locks: Scales::of_locks(input),
        holders: holders(input.lost),
        sums: BTreeMap::new(),
        by_cpu: BTreeMap::new(),
        network: HashMap::new(),
        calls: HashMap::new(),
        devices: BTreeMap::new(),
        input,
    };
    input.lost.iter().for_each(|row| losses.traced(row));
    losses.of_devices();
    losses.on_queues();
    losses.spins();
    losses.spun();
    losses.steal();
    losses.interrupted();
    losses.sums
}

/// By how much to multiply what was counted for a tenant, whose sum is known exactly: what was counted comes from samples, and waits
/// may have begun before the interval.
struct Scales {
    counted: HashMap<u32, f64>,
    exact: fn(&Stood) -> f64,
}

impl Scales {
    fn of_queues(input: &Input<'_>) -> Scales {
        let mut counted: HashMap<u32, f64> = HashMap::new();
        let on_queue = |row: &&Lost| [Lost::QUEUE, Lost::SOFTIRQ].contains(&row.cause);
        for row in input.lost.iter().filter(on_queue) {
            *counted.entry(row.victim).or_default() += row.threads as f64 / 1e9;
        }
        for (number, stood) in input.queued {
            *counted.entry(*number).or_default() += stood.still.values().sum::<f64>();
        }
        Scales { counted, exact: Stood::behind }
    }

    /// Contentions may be counted in short windows; threads' time in locks is exact.
    fn of_locks(input: &Input<'_>) -> Scales {
        let mut counted: HashMap<u32, f64> = HashMap::new();
        for row in input.lost.iter().filter(|row| row.cause == Lost::LOCK) {
            *counted.entry(row.victim).or_default() += input.coverage.of(row.threads) as f64 / 1e9;
        }
        Scales { counted, exact: |stood| stood.locked }
    }

    /// Seconds that were counted.
    fn counted(&self, number: u32) -> f64 {
        self.counted.get(&number).copied().unwrap_or(0.0)
    }

    fn of(&self, number: u32, queued: &HashMap<u32, Stood>) -> f64 {
        let (counted, exact) = (self.counted(number), queued.get(&number).map_or(0.0, self.exact));
        if counted > exact { exact / counted } else { 1.0 }
    }
}

/// The first `level` components of a path; `None` if it has fewer, or `level` is 0.
fn prefix(path: &str, level: u64) -> Option<&str> {
    let level = usize::try_from(level).ok().filter(|level| *level > 0)?;
    let mut ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    (path.starts_with('/') && path.len() > 1).then(|| ends.nth(level - 1)).flatten().map(|end| &path[..end])
}

/// Whether two groups lie in the same group of a level.
pub fn share(one: &str, other: &str, level: u64) -> bool {
    let above = prefix(one, level);
    above.is_some() && prefix(other, level) == above
}

/// The tenants that held each kernel lock while others waited for it, and for how long.
fn holders(lost: &[Lost]) -> HashMap<u64, Vec<(u32, f64)>> {
    let mut holders: HashMap<u64, Vec<(u32, f64)>> = HashMap::new();
    for row in lost.iter().filter(|row| row.cause == Lost::LOCK && row.lock != OTHERS) {
        if let Some(culprit) = row.culprit {
            holders.entry(row.lock).or_default().push((culprit, row.threads as f64));
        }
    }
    holders
}

/// The losses while they are summed.
struct Losses<'a> {
    input: &'a Input<'a>,
    queues: Scales,
    locks: Scales,
    holders: HashMap<u64, Vec<(u32, f64)>>,
    packets: Vec<(u32, f64)>,
    /// The part of the kernel's softirqs that are lost to the senders of packets.
    of_network: f64,
    sums: BTreeMap<Key, Sum>,
    /// Seconds and number of waits on the queue of a CPU of which it is not known behind whom.
    by_cpu: BTreeMap<(u32, usize), (f64, u64)>,
    /// CPU-seconds of softirqs of the network, and of calls of other CPUs, by whom they interrupted.
    network: HashMap<u32, f64>,
    calls: HashMap<u32, f64>,
    devices: BTreeMap<(u32, u64), Served>,
}

impl Losses<'_> {
    fn add(
        &mut self,
        victim: u32,
        culprit: Option<u32>,
        cause: Loss,
        at: Option<u64>,
        grounds: Grounds,
        sum: Sum,
    ) {
        let id = self.input.id;
        let key = Key { victim: id(victim), culprit: culprit.map(id), cause, at, grounds };
        self.sums.entry(key).or_default().add(sum);
    }

    /// Adds a row of the BPF programs, or keeps it for the steps that follow.
    fn traced(&mut self, row: &Lost) {
        let (victim, queued) = (row.victim, self.input.queued);
        let scale = match row.cause {
            Lost::NETWORK | Lost::CALL | Lost::DEVICE | Lost::RECLAIM | Lost::LIMIT => 1.0,
            Lost::LOCK => self.locks.of(victim, queued) * self.input.coverage.of(1_000_000) as f64 / 1e6,
            _ => self.queues.of(victim, queued),
        };
        let sum = Sum {
            threads: scale * row.threads as f64 / 1e9,
            cpus: scale * row.cpus as f64 / 1e9,
            count: row.count,
        };
        match (row.cause, row.culprit) {
            // Without a row of its own: it is in the accounts of the threads that stood there, as time of which no more is known.
            (Lost::QUEUE | Lost::SOFTIRQ, _) if row.unplaced => {}
            (Lost::LOCK, culprit) => self.at_lock(victim, culprit, row.lock, sum),
            (Lost::SOFTIRQ, _) => self.behind_softirqs(victim, sum),
            (Lost::DEVICE, culprit) => {
                self.devices.entry((victim, row.lock)).or_default().add(row, culprit);
            }
            (Lost::RECLAIM, _) => self.reclaim(victim, Loss::Reclaim, |_| true, sum),
            (Lost::LIMIT, Some(_)) => {
                self.add(victim, Some(victim), Loss::MemoryLimit, None, Grounds::Traced, sum);
            }
            // Of a group above its own: what took memory there has used it up.
            (Lost::LIMIT, None) => {
                let inside = self.input.inside;
                self.reclaim(victim, Loss::MemoryLimit, |taker| inside(victim, taker, row.lock), sum);
            }
            (Lost::NETWORK, _) => *self.network.entry(victim).or_default() += sum.cpus,
            (Lost::CALL, _) => *self.calls.entry(victim).or_default() += sum.cpus,
            // The CPU does not know any more what it ran, or not yet.
            (_, None) => {
                let cpu = (row.lock as usize).saturating_sub(1);
                let stood = self.by_cpu.entry((victim, cpu)).or_default();
                stood.0 += sum.threads;
                stood.1 += sum.count;
            }
            (_, Some(tenant::IDLE)) => {
                self.add(victim, Some(tenant::KERNEL), Loss::WakeUp, None, Grounds::Traced, sum);
            }
            (_, culprit) => self.add(victim, culprit, Loss::RunQueue, None, Grounds::Traced, sum),
        }
    }

    /// A wait for a kernel lock. Where nobody held it at that moment, or a thread that has gone, it is lost to the tenants
    /// that others waited for.
    fn at_lock(&mut self, victim: u32, culprit: Option<u32>, lock: u64, sum: Sum) {
        let at = Some(lock);
        if culprit.is_some() {
            return self.add(victim, culprit, Loss::KernelLock, at, Grounds::Traced, sum);
        }
        let known = parts(sum.threads, self.holders.get(&lock).map_or(&[], Vec::as_slice));
        if known.is_empty() {
            self.add(victim, None, Loss::KernelLock, at, Grounds::Unknown, sum);
        }
        for (culprit, threads) in known {
            let sum = Sum::of_threads(threads);
            self.add(victim, Some(culprit), Loss::KernelLock, at, Grounds::Shares, sum);
        }
    }

    /// A wait behind a thread of the kernel that served softirqs.
    fn behind_softirqs(&mut self, victim: u32, sum: Sum) {
        for (sender, part) in parts(self.of_network, &self.packets) {
            let sum = Sum { threads: sum.threads * part, cpus: sum.cpus * part, count: 0 };
            self.add(victim, Some(sender), Loss::Network, None, Grounds::Shares, sum);
        }
        let rest = 1.0 - self.of_network;
        if rest > 0.0 {
            let sum = Sum { threads: sum.threads * rest, cpus: sum.cpus * rest, count: sum.count };
            self.add(victim, Some(tenant::KERNEL), Loss::RunQueue, None, Grounds::Traced, sum);
        }
    }

    /// Freeing memory: lost to the tenants that took memory and that `counts` accepts.
    fn reclaim(&mut self, victim: u32, cause: Loss, counts: impl Fn(u32) -> bool, sum: Sum) {
        let takers = self.input.taken.iter().filter(|(taker, _)| counts(**taker));
        let takers: Vec<(u32, f64)> = takers.map(|(taker, bytes)| (*taker, *bytes)).collect();
        let known = parts(sum.threads, &takers);
        if known.is_empty() {
            self.add(victim, None, cause, None, Grounds::Unknown, sum);
        }
        for (taker, threads) in known {
            let count = if taker == victim { sum.count } else { 0 };
            let sum = Sum { threads, cpus: 0.0, count };
            self.add(victim, Some(taker), cause, None, Grounds::Shares, sum);
        }
    }

    fn of_devices(&mut self) {
        // Threads of the kernel write files for those who wrote to loop devices and the like.
        let of_programs = |(number, _): &(&u32, &f64)| **number != tenant::KERNEL;
        let dirtied: Vec<(u32, f64)> =
            self.input.dirtied.iter().filter(of_programs).map(|(n, bytes)| (*n, *bytes)).collect();
        for ((victim, device), served) in std::mem::take(&mut self.devices) {
            for (culprit, threads) in served.losses(victim, &dirtied) {
                let grounds = if culprit.is_some() { Grounds::Shares } else { Grounds::Unknown };
                let count = if culprit == Some(victim) { served.count } else { 0 };
                let sum = Sum { threads, cpus: 0.0, count };
                self.add(victim, culprit, Loss::Device, Some(device), grounds, sum);
            }
        }
    }

    /// Time for which a limit of CPU time held threads back. What a tenant would lose if it had the limit to itself is its own loss, the
    /// rest is lost to the others below the same limit, by their time on CPU.
    fn at_limit(&mut self, victim: u32, held: f64, count: u64) {
        let Input { limit, inside, shares, .. } = *self.input;
        let ran = |one: &Spent| one.at[CpuState::Program as usize].max(0) as f64 / 1e9;
        let own = shares.spent.get(&victim).map_or(0.0, ran);
        let limit = limit(victim);
        let beside = |(number, one): (&u32, &Spent)| {
            let (level, _) = limit?;
            (*number != victim && inside(victim, *number, level)).then(|| (*number, ran(one)))
        };
        let others: Vec<(u32, f64)> = shares.spent.iter().filter_map(beside).collect();
        let theirs: f64 = others.iter().map(|(_, seconds)| seconds).sum();
        let alone = match limit.and_then(|(_, allowed)| allowed) {
            _ if theirs <= 0.0 => held,
            Some(allowed) => (own + held - allowed).clamp(0.0, held),
            None => held * own / (own + theirs),
        };
        // The others are known by what they used.
        let grounds = if theirs > 0.0 { Grounds::Shares } else { Grounds::Traced };
        let sum = Sum { threads: alone, cpus: 0.0, count };
        self.add(victim, Some(victim), Loss::Quota, None, grounds, sum);
        for (other, threads) in parts(held - alone, &others).into_iter().filter(|(_, part)| *part > 0.0) {
            self.add(victim, Some(other), Loss::Quota, None, grounds, Sum::of_threads(threads));
        }
    }

    /// Time spun for locks that sleep, which readers and writers begin without an event: divided as what the same tenant lost to
    /// kernel locks of which there were events.
    fn spun(&mut self) {
        let Input { id, spun, coverage, .. } = *self.input;
        // Outside of the windows in which contentions are counted, samples are of these as well.
        let uncounted = 1.0 - 1e6 / coverage.of(1_000_000).max(1_000_000) as f64;
        for (&victim, &seconds) in spun {
            let known: Vec<(_, Sum)> = self
                .sums
                .iter()
                .filter(|(key, _)| {
                    key.victim == id(victim) && [Loss::KernelLock, Loss::Spin].contains(&key.cause)
                })
                .map(|(key, sum)| ((key.culprit, key.cause, key.at), *sum))
                .collect();
            let told: f64 = known.iter().map(|(_, sum)| sum.cpus).sum();
            let seconds = seconds - uncounted * told;
            if seconds <= 0.0 {
                continue;
            }
            let known: Vec<_> = known.into_iter().map(|(key, sum)| (key, sum.threads)).collect();
            let mut divided = parts(seconds, &known);
            if divided.is_empty() {
                divided.push(((None, Loss::KernelLock, None), seconds));
            }
            for ((culprit, cause, at), part) in divided.into_iter().filter(|(_, part)| *part > 0.0) {
                let grounds = if culprit.is_some() { Grounds::Shares } else { Grounds::Unknown };
                let key = Key { victim: id(victim), culprit, cause, at, grounds };
                self.sums.entry(key).or_default().add(Sum { threads: part, cpus: part, count: 0 });
            }
        }
    }

    /// Waits on run queues of which it was not traced behind whom: the CPU ran for its tenants.
    fn on_queues(&mut self) {
        let queued = self.input.queued;
        for (&number, stood) in queued {
            let scale = self.queues.of(number, queued);
            if stood.held > 0.0 {
                self.at_limit(number, stood.held, stood.holds);
            }
            for (cpu, seconds) in &stood.still {
                self.by_cpu.entry((number, *cpu)).or_default().0 += seconds * scale;
            }
            // Waits that were too short to ask behind whom.
            let short = stood.behind() - self.queues.counted(number);
            if short > 0.0 {
                self.add(number, None, Loss::RunQueue, None, Grounds::Unknown, Sum::of_threads(short));
            }
        }
        for ((victim, cpu), (seconds, count)) in std::mem::take(&mut self.by_cpu) {
            let ran = self.input.shares.ran.get(&cpu).map_or(&[][..], Vec::as_slice);
            let ran = parts(seconds, &self.but_itself(victim, ran));
            if ran.is_empty() {
                let sum = Sum { threads: seconds, cpus: 0.0, count };
                self.add(victim, None, Loss::RunQueue, None, Grounds::Unknown, sum);
            }
            for (culprit, seconds) in ran.into_iter().filter(|(_, seconds)| *seconds > 0.0) {
                let sum = Sum::of_threads(seconds);
                self.add(victim, Some(culprit), Loss::RunQueue, None, Grounds::Shares, sum);
            }
        }
    }

    /// The weights of tenants by which a loss is divided. No thread loses time to itself: a tenant's own weight is that of its other threads.
    fn but_itself(&self, victim: u32, weights: &[(u32, f64)]) -> Vec<(u32, f64)> {
        let threads = f64::from(self.input.queued.get(&victim).map_or(1, |stood| stood.threads.max(1)));
        let others = weights.iter().map(|&(who, weight)| match who == victim {
            true => (who, weight * (threads - 1.0) / threads),
            false => (who, weight),
        });
        others.filter(|(_, weight)| *weight > 0.0).collect()
    }

    /// A spinlock has no owner word: waits for it are divided among the tenants that take it, by their contended acquisitions. A thread
    /// does not wait for itself.
    fn spins(&mut self) {
        let Input { id, spins, coverage, processes, .. } = *self.input;
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
            for (&victim, &(ns, count)) in &tenants {
                let seconds = coverage.of(ns) as f64 / 1e9;
                if lock == OTHERS {
                    let sum = Sum { threads: seconds, cpus: seconds, count };
                    self.add(victim, None, Loss::Spin, Some(lock), Grounds::Unknown, sum);
                    continue;
                }
                let others = self.but_itself(victim, &takers);
                if others.is_empty() {
                    let sum = Sum { threads: seconds, cpus: seconds, count };
                    self.add(victim, None, Loss::Spin, Some(lock), Grounds::Unknown, sum);
                }
                for (taker, part) in parts(seconds, &others) {
                    let count = if id(taker) == id(victim) { count } else { 0 };
                    let sum = Sum { threads: part, cpus: part, count };
                    self.add(victim, Some(taker), Loss::Spin, Some(lock), Grounds::Shares, sum);
                }
            }
        }
    }

    /// Time that the hypervisor took, from those that ran.
    fn steal(&mut self) {
        let ran: Vec<(u32, f64)> = self
            .input
            .shares
            .spent
            .iter()
            .filter(|(number, _)| **number != tenant::IDLE)
            .map(|(number, one)| (*number, one.at[CpuState::Program as usize] as f64))
            .collect();
        for (victim, seconds) in parts(self.input.steal, &ran) {
            if seconds > 0.0 {
                let sum = Sum { threads: seconds, cpus: seconds, count: 0 };
                self.add(victim, None, Loss::Steal, None, Grounds::Shares, sum);
            }
        }
    }

    /// Interrupts, softirqs and TLB shootdowns that came while a tenant ran.
    fn interrupted(&mut self) {
        let packets = self.packets.clone();
        let callers: Vec<(u32, f64)> =
            self.input.shares.spent.iter().map(|(n, one)| (*n, one.called as f64)).collect();
        for (&victim, one) in &self.input.shares.spent {
            if victim == tenant::IDLE {
                continue;
            }
            let at = |state: CpuState| one.at[state as usize] as f64 / 1e9;
            let of_cpus = |seconds| Sum { threads: seconds, cpus: seconds, count: 0 };
            let served = at(CpuState::Hardirq) + at(CpuState::Softirq);
            // Both clocks of an interval end at slightly different moments.
            let of_network = self.network.get(&victim).copied().unwrap_or(0.0).min(served);
            for (sender, seconds) in parts(of_network, &packets) {
                self.add(victim, Some(sender), Loss::Network, None, Grounds::Shares, of_cpus(seconds));
            }
            let rest = if packets.is_empty() { served } else { served - of_network };
            let of_calls = self.calls.get(&victim).copied().unwrap_or(0.0).min(rest);
            let mut divided = 0.0;
            for (caller, seconds) in parts(of_calls, &self.but_itself(victim, &callers)) {
                self.add(victim, Some(caller), Loss::Interrupts, None, Grounds::Shares, of_cpus(seconds));
                divided += seconds;
            }
            let rest = rest - divided;
            if rest > 0.0 {
                let sum = of_cpus(rest);
                self.add(victim, Some(tenant::KERNEL), Loss::Interrupts, None, Grounds::Traced, sum);
            }
            // Only CPUs that run threads of that memory are asked to drop translations of it.
            let flushes = at(CpuState::Tlb);
            if flushes > 0.0 {
                let sum = of_cpus(flushes);
                self.add(victim, Some(victim), Loss::Shootdown, None, Grounds::Shares, sum);
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

/// Tenants, by numbers of tables, behind which others stood on run queues for at least `least` seconds.
pub fn stood_behind(losses: &BTreeMap<Key, Sum>, least: f64) -> BTreeSet<u64> {
    let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
    for (key, sum) in losses.iter().filter(|(key, _)| key.cause == Loss::RunQueue) {
        if let Some(culprit) = key.culprit.filter(|culprit| *culprit != key.victim) {
            *sums.entry(culprit).or_default() += sum.threads;
        }
    }
    sums.into_iter().filter(|(_, seconds)| *seconds >= least).map(|(culprit, _)| culprit).collect()
}

/// Table `tenant_losses`. The smallest rows of a cause are put together.
pub fn table(
    t: f64,
    losses: BTreeMap<Key, Sum>,
    lock: &mut dyn FnMut(Loss, u64) -> String,
    ids: &mut BTreeSet<u64>,
) -> Table {
    let mut sorted: Vec<(Key, Sum)> = losses.into_iter().collect();
    sorted.sort_by(|a, b| (b.1.threads + b.1.cpus).total_cmp(&(a.1.threads + a.1.cpus)).then(a.0.cmp(&b.0)));
    let mut rest: BTreeMap<Key, Sum> = BTreeMap::new();
    for (key, sum) in sorted.split_off(sorted.len().min(LOSSES)) {
        let some = |id: u64| id.min(u64::from(tenant::OTHERS));
        let key = Key { victim: some(key.victim), culprit: key.culprit.map(some), at: None, ..key };
        rest.entry(key).or_default().add(sum);
    }
    let mut rows = tenant_losses::Rows::new();
    for (key, sum) in sorted.into_iter().chain(rest) {
        ids.insert(key.victim);
        ids.extend(key.culprit);
        rows.push(tenant_losses::Row {
            time: Some(t),
            victim: Some(key.victim),
            culprit: key.culprit,
            cause: Some(key.cause),
            lock: key.at.filter(|at| *at > OTHERS).map(|at| lock(key.cause, at)).into(),
            threads: Some(sum.threads),
            cpus: Some(sum.cpus),
            count: Some(sum.count),
            grounds: Some(key.grounds),
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

    #[test]
    fn the_first_components_of_a_path() {
        for (level, expected) in [(0, None), (1, Some("/a")), (2, Some("/a/bc")), (3, None), (u64::MAX, None)]
        {
            assert_eq!(prefix("/a/bc", level), expected, "{level}");
        }
        assert_eq!((prefix("", 1), prefix("a", 1)), (None, None));
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

    /// The losses of tenants of which two lie in the same group.
    fn losses(
        spent: BTreeMap<u32, Spent>,
        lost: &[Lost],
        queued: &HashMap<u32, Stood>,
        taken: &BTreeMap<u32, f64>,
    ) -> BTreeMap<Key, Sum> {
        let groups = |number| match number {
            VICTIM => "/p/shop/web",
            OTHER => "/p/shop/batch",
            _ => "/p/shopping",
        };
        sum(&Input {
            id: &|number| number.into(),
            inside: &|one, other, level| share(groups(one), groups(other), level),
            shares: &Shares { spent, ran: BTreeMap::new() },
            lost,
            spins: &[],
            coverage: Coverage::ALL,
            steal: 0.0,
            processes: &HashMap::new(),
            queued,
            taken,
            dirtied: &BTreeMap::new(),
            limit: &|_| None,
            spun: &BTreeMap::new(),
        })
    }

    /// A part of the input of an interval; the rest is empty.
    #[derive(Default)]
    struct Given {
        lost: Vec<Lost>,
        spins: Vec<Spin>,
        spun: BTreeMap<u32, f64>,
        dirtied: BTreeMap<u32, f64>,
        /// Seconds for which the victim was held back, and the limit that did it, which is above both tenants at level 1.
        held: f64,
        limit: Option<Limit>,
        /// Milliseconds on CPU.
        ran: Vec<(u32, i64)>,
    }

    /// The victim's losses.
    fn told(given: &Given) -> Vec<(u32, Option<u32>, Loss, i64)> {
        let spent = |&(number, ms): &(u32, i64)| {
            let mut one = Spent::default();
            one.at[CpuState::Program as usize] = ms * 1_000_000;
            (number, one)
        };
        let stood = Stood { all: given.held, held: given.held, locked: 9.0, threads: 1, ..Stood::default() };
        let both = [VICTIM, OTHER];
        let losses = sum(&Input {
            id: &|number| number.into(),
            inside: &|one, other, level| level == 1 && both.contains(&one) && both.contains(&other),
            shares: &Shares { spent: given.ran.iter().map(spent).collect(), ran: BTreeMap::new() },
            lost: &given.lost,
            spins: &given.spins,
            coverage: Coverage::ALL,
            steal: 0.0,
            processes: &HashMap::from([(100, VICTIM), (200, OTHER)]),
            queued: &HashMap::from([(VICTIM, stood)]),
            taken: &BTreeMap::new(),
            dirtied: &given.dirtied,
            limit: &|_| given.limit,
            spun: &given.spun,
        });
        rows(&losses, of_victim)
    }

    /// Victim, culprit, cause and ms of the threads.
    fn rows(losses: &BTreeMap<Key, Sum>, keep: impl Fn(&Key) -> bool) -> Vec<(u32, Option<u32>, Loss, i64)> {
        losses
            .iter()
            .filter(|(key, _)| keep(key))
            .map(|(key, sum)| {
                let culprit = key.culprit.map(|number| number as u32);
                (key.victim as u32, culprit, key.cause, (sum.threads * 1e3).round() as i64)
            })
            .collect()
    }

    fn of_victim(key: &Key) -> bool {
        key.victim == u64::from(VICTIM)
    }

    /// Time behind a thread of the kernel that serves softirqs is lost to those whose packets they were, as far as they were the network's.
    #[test]
    fn softirqs_are_lost_to_the_senders_of_packets() {
        let mut softirqs = Spent::default();
        softirqs.at[CpuState::Softirq as usize] = 400_000_000;
        let flood = Spent { sent: 1000, ..Spent::default() };
        let spent = BTreeMap::from([(tenant::KERNEL, softirqs), (OTHER, flood)]);
        let mut of_kernel = row(Lost::NETWORK, None, 300, 300);
        of_kernel.victim = tenant::KERNEL;
        let unplaced = Lost { victim: tenant::OTHERS, unplaced: true, ..row(Lost::QUEUE, None, 999, 0) };
        let lost = [of_kernel, row(Lost::SOFTIRQ, Some(tenant::KERNEL), 200, 200), unplaced];
        let queued = HashMap::from([(VICTIM, Stood { all: 0.25, threads: 1, ..Stood::default() })]);
        let told = rows(&losses(spent, &lost, &queued, &BTreeMap::new()), of_victim);
        let expected = [
            // Too short to ask behind whom.
            (VICTIM, None, Loss::RunQueue, 50),
            (VICTIM, Some(tenant::KERNEL), Loss::RunQueue, 50),
            (VICTIM, Some(OTHER), Loss::Network, 150),
        ];
        assert_eq!(told, expected);
    }

    /// Of the time on run queues the limit has what it held back, and what was counted behind others is held to the rest.
    #[test]
    fn a_limit_has_its_time_and_others_the_rest() {
        let told = |lost: &[Lost], all, held| {
            let stood = Stood { all, held, holds: 1, threads: 1, ..Stood::default() };
            rows(
                &losses(BTreeMap::new(), lost, &HashMap::from([(VICTIM, stood)]), &BTreeMap::new()),
                of_victim,
            )
        };
        let behind = [row(Lost::QUEUE, Some(OTHER), 50, 1)];
        let limit = |ms| (VICTIM, Some(VICTIM), Loss::Quota, ms);
        let queue = |whom, ms| (VICTIM, whom, Loss::RunQueue, ms);
        assert_eq!(told(&[], 0.02, 0.02), [limit(20)]);
        assert_eq!(told(&behind, 0.1, 0.06), [limit(60), queue(Some(OTHER), 40)]);
        assert_eq!(told(&behind, 0.1, 0.03), [queue(None, 20), limit(30), queue(Some(OTHER), 50)]);
    }

    /// A limit of a group above is lost to those who used it up, but for what the victim would lose with the limit to itself.
    #[test]
    fn a_limit_of_a_group_above_is_lost_to_those_who_used_it_up() {
        let quota = |culprit: u32, ms| (VICTIM, Some(culprit), Loss::Quota, ms);
        let told = |held, limit| {
            let ran = vec![(VICTIM, 120), (OTHER, 480), (7, 5000)];
            told(&Given { held, limit, ran, ..Given::default() })
        };
        // Alone it would want 630 ms of 600.
        assert_eq!(told(0.51, Some((1, Some(0.6)))), [quota(VICTIM, 30), quota(OTHER, 480)]);
        assert_eq!(told(0.4, Some((1, Some(0.6)))), [quota(VICTIM, 0), quota(OTHER, 400)]);
        // How much it allows is not known: by time on CPU.
        assert_eq!(told(0.5, Some((1, None))), [quota(VICTIM, 100), quota(OTHER, 400)]);
        // Nobody else is below that limit, or the limit is not known.
        assert_eq!(told(0.5, Some((2, Some(0.6)))), [quota(VICTIM, 500)]);
        assert_eq!(told(0.5, None), [quota(VICTIM, 500)]);
    }

    /// A thread does not spin for a lock that it holds itself.
    #[test]
    fn a_lone_thread_spins_for_others() {
        let spin = |tgid, ms: u64, count| Spin { lock: 9, tgid, ns: ms * 1_000_000, count };
        let told = |spins| told(&Given { spins, ..Given::default() });
        let both = vec![spin(100, 700, 92), spin(200, 10, 8)];
        assert_eq!(told(both), [(VICTIM, Some(OTHER), Loss::Spin, 700)]);
        assert_eq!(told(vec![spin(100, 700, 92)]), [(VICTIM, None, Loss::Spin, 700)]);
    }

    /// Spins of which no event tells are lost as the waits for kernel locks that were traced.
    #[test]
    fn spins_without_events_are_lost_to_the_holders_of_the_locks() {
        let told = |lost| told(&Given { lost, spun: BTreeMap::from([(VICTIM, 0.3)]), ..Given::default() });
        assert_eq!(told(vec![]), [(VICTIM, None, Loss::KernelLock, 300)]);
        let known = told(vec![row(Lost::LOCK, Some(OTHER), 100, 0)]);
        assert!(
            known.iter().all(|(_, culprit, cause, _)| (*culprit, *cause) == (Some(OTHER), Loss::KernelLock)),
            "{known:?}"
        );
        assert_eq!(known.iter().map(|(.., ms)| ms).max(), Some(&300));
    }

    /// Calls of other CPUs are lost to the tenants that asked for them, other interrupts to the kernel.
    #[test]
    fn calls_are_lost_to_those_who_asked() {
        let spent = |hardirq, called| {
            let mut one = Spent { called, ..Spent::default() };
            one.at[CpuState::Hardirq as usize] = hardirq;
            one
        };
        let spent = BTreeMap::from([
            (VICTIM, spent(500_000_000, 1000)),
            (OTHER, spent(0, 3000)),
            (7, spent(0, 1000)),
        ]);
        let lost = [row(Lost::CALL, None, 400, 400)];
        let told = rows(&losses(spent, &lost, &HashMap::new(), &BTreeMap::new()), of_victim);
        let by = |culprit: u32, ms| (VICTIM, Some(culprit), Loss::Interrupts, ms);
        assert_eq!(told, [by(tenant::KERNEL, 100), by(OTHER, 300), by(7, 100)]);
    }

    /// A thread of the kernel writes to the file behind a loop device for programs that wrote to the device.
    #[test]
    fn the_kernels_own_writes_are_for_those_who_write() {
        let dirtied = BTreeMap::from([(tenant::KERNEL, 4e6), (OTHER, 3e6), (VICTIM, 1e6)]);
        let lost = [row(Lost::DEVICE, None, 100, 0), row(Lost::DEVICE, Some(tenant::KERNEL), 100, 0)];
        assert_eq!(
            told(&Given { lost: lost.into(), dirtied, ..Given::default() }),
            [(VICTIM, Some(VICTIM), Loss::Device, 25), (VICTIM, Some(OTHER), Loss::Device, 75)]
        );
    }

    /// A limit of a group above is used up by tenants that take memory in that group, and by no others.
    #[test]
    fn a_limit_of_a_group_above_is_lost_to_those_who_take_memory_there() {
        let level = |victim, lock| Lost { victim, lock, ..row(Lost::LIMIT, None, 100, 0) };
        let lost = [level(VICTIM, 2), level(OTHER, 0), row(Lost::LIMIT, Some(VICTIM), 30, 0)];
        let taken = BTreeMap::from([(VICTIM, 1e6), (OTHER, 3e6), (7, 9e9)]);
        let losses = losses(BTreeMap::new(), &lost, &HashMap::new(), &taken);
        let expected = [
            (VICTIM, Some(VICTIM), Loss::MemoryLimit, 30),
            (VICTIM, Some(VICTIM), Loss::MemoryLimit, 25),
            (VICTIM, Some(OTHER), Loss::MemoryLimit, 75),
            // The group is not known.
            (OTHER, None, Loss::MemoryLimit, 100),
        ];
        assert_eq!(rows(&losses, |key| key.cause == Loss::MemoryLimit), expected);
    }
}
