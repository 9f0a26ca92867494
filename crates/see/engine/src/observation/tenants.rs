//! Time of the machine by tenant.
//!
//! The BPF programs know tenants by numbers that are reused; here each has a number of its own while it is remembered,
//! and a name, which tables get once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ncpu_files::reader::process_text;
use ncpu_machine::tenant::{Known, Tenant};
use ncpu_schema::{
    CpuState, IdleReason, Loss, Per, SampleClass, tenant_idle, tenant_names, tenant_samples, tenant_time,
};
use ncpu_table::Table;

use super::losses::{self, Input, Limit, Spin, Stood, parts};
use crate::bpf_support::namespace::process_dir;
use crate::engine::{Coverage, Lost, NewTenant, Shares, Spent, ThreadOut, tenant};

/// Tenants of an interval; those with least time are one.
const MOST: usize = 4096;
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
    /// The limit of CPU time that holds threads of a group back: the level of the group that has it, and the CPUs that it allows.
    pub limit: &'a dyn Fn(&str) -> Option<Limit>,
    /// Name of a kernel lock or a device.
    pub lock: &'a mut dyn FnMut(Loss, u64) -> String,
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

/// Seconds in which half of the data that was written has gone to devices, or need not go any more.
const WRITTEN_BACK: f64 = 10.0;

/// Part of an interval for which others stood behind a tenant of which it is asked how its threads are scheduled.
const STOOD: f64 = 0.01;

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
    /// Processes of tenants behind which others stood on run queues in the last interval.
    pub stood_behind: Vec<u32>,
    /// End of the last interval, s.
    until: f64,
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
            stood_behind: Vec::new(),
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
        // A fault brings a page at least.
        let page = rustix::param::page_size() as f64;
        let taken = page * bytes(thread.minf, before.minf) + bytes(thread.read, before.read) + dirtied;
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
        let held = thread.held.saturating_sub(before.held) as f64 / 1e9;
        sum.held += held;
        sum.holds += u64::from(thread.holds.saturating_sub(before.holds));
        if let Some(cpu) = (thread.queue as usize).checked_sub(1) {
            *sum.still.entry(cpu).or_default() += (stood - held).max(0.0);
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
        let Interval { t, shares, idle, sampled, lost, spins, coverage, steal, limit, lock } = interval;
        let processes = std::mem::take(&mut self.processes);
        let queued = std::mem::take(&mut self.queued);
        let seconds = (t - self.until).max(0.0);
        let path = |number| self.met.get(&number).map_or("", |met| met.tenant.cgroup.as_str());
        let losses = losses::sum(&Input {
            id: &|number| self.id(number),
            inside: &|one, other, level| losses::share(path(one), path(other), level),
            limit: &|number| limit(path(number)).map(|(level, cpus)| (level, cpus.map(|n| n * seconds))),
            spun: &spun(&shares.spent, &sampled, &processes),
            shares: &shares,
            lost: &lost,
            spins: &spins,
            coverage,
            steal,
            processes: &processes,
            queued: &queued,
            taken: &self.taken,
            dirtied: &self.dirtied,
        });
        let ahead = losses::stood_behind(&losses, STOOD * seconds);
        let of_these = processes.iter().filter(|(_, number)| ahead.contains(&self.id(**number)));
        self.stood_behind = of_these.map(|(tgid, _)| *tgid).collect();
        self.taken.clear();
        let kept = 0.5f64.powf(seconds / WRITTEN_BACK);
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
        let losses = losses::table(t, losses, lock, &mut ids);
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
}

/// CPU-seconds that tenants spun for kernel locks outside of traced waits, by samples of their time.
fn spun(
    spent: &BTreeMap<u32, Spent>,
    sampled: &Sampled,
    processes: &HashMap<u32, u32>,
) -> BTreeMap<u32, f64> {
    let mut counts: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for ((tgid, at, class), n) in sampled {
        let Some(number) = processes.get(tgid).filter(|_| *at == CpuState::Program) else { continue };
        let (spins, all) = counts.entry(*number).or_default();
        *all += n;
        if *class == SampleClass::LockSpin {
            *spins += n;
        }
    }
    let seconds =
        |number| spent.get(&number).map_or(0.0, |one| one.at[CpuState::Program as usize] as f64 / 1e9);
    let of =
        |(number, (spins, all)): (u32, (u64, u64))| (number, seconds(number) * spins as f64 / all as f64);
    counts.into_iter().filter(|(_, (spins, _))| *spins > 0).map(of).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

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
