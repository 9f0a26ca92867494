//! Tenants: an onion for each, and what they lose to each other.
//!
//! The onion of a tenant has the layers of the machine's: all tenants, the kernel's own work and what idled for nobody have
//! together the machine's capacity, and of each layer just what the machine has.

mod advice;
mod onions;
#[cfg(test)]
mod tests;
mod text;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use ncpu_machine::tenant::{By, KERNEL, OTHERS, Rules, Tenant};
use ncpu_record::tenants as recorded;
use ncpu_schema::{Error, Grounds, Layer, Loss, Tables, bandwidth, ledger, settings, tenant_losses, tenants};
use ncpu_table::Table;

pub use text::render;
pub(crate) use text::{column, sentence};

/// How tenants are put together, and how they are called.
#[derive(Clone, Debug, Default)]
pub struct Naming {
    /// The level.
    pub by: By,
    /// Names that the user gives.
    pub rules: Rules,
}

impl Naming {
    /// Put together at a level, by its word.
    ///
    /// # Errors
    /// Unknown level; the message lists the known ones.
    pub fn at(word: &str) -> Result<Naming, String> {
        Ok(Naming { by: word.parse()?, rules: Rules::default() })
    }

    fn name(&self, tenant: &Tenant) -> String {
        let rule = if self.by == By::Tenant { self.rules.name_of(tenant) } else { None };
        rule.unwrap_or_else(|| tenant.name(self.by))
    }
}

/// A tenant's part of the capacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Its name; `None`: nobody's.
    pub name: Option<String>,
    /// CPU-seconds by layer, most first.
    pub layers: Vec<(Layer, f64)>,
}

impl Part {
    /// CPU-seconds in all.
    pub fn seconds(&self) -> f64 {
        self.layers.iter().map(|(_, s)| s).sum()
    }

    /// CPU-seconds in a layer.
    pub fn of(&self, layer: Layer) -> f64 {
        self.layers.iter().filter(|(l, _)| *l == layer).map(|(_, s)| s).sum()
    }

    /// CPU-seconds for which CPUs ran something.
    pub fn busy(&self) -> f64 {
        self.layers.iter().filter(|(layer, _)| !onions::idles(*layer)).map(|(_, s)| s).sum()
    }
}

/// Time that a tenant lost to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// The tenant that lost it.
    pub victim: String,
    /// The other, where it is known.
    pub culprit: Option<String>,
    /// How.
    pub cause: Loss,
    /// The kernel lock.
    pub lock: Option<String>,
    /// Thread-seconds.
    pub threads: f64,
    /// CPU-seconds.
    pub cpus: f64,
    /// Times.
    pub count: u64,
    /// How the other is known.
    pub grounds: Grounds,
}

impl Lost {
    /// Whether it was lost to another tenant that is known.
    pub fn to_another(&self) -> bool {
        self.culprit.as_ref().is_some_and(|culprit| *culprit != self.victim)
    }
}

/// The tenants of an observation.
#[derive(Clone, Debug, Default)]
pub struct Tenancy {
    /// The level that they were put together at.
    pub by: By,
    /// Seconds.
    pub elapsed: f64,
    /// CPUs.
    pub cpus: u64,
    /// CPU-seconds.
    pub capacity: f64,
    /// Parts of the capacity, largest first; what is nobody's is last.
    pub parts: Vec<Part>,
    /// Losses, largest first.
    pub losses: Vec<Lost>,
    /// By name, what the groups, programs and users that it stands for have in common: no program where there are several, and
    /// the group above all.
    pub members: HashMap<String, Tenant>,
    /// Names of tenants with real-time threads behind which others stood on run queues, and the policy.
    pub real_time: HashMap<String, String>,
    /// Memory bandwidth of groups, largest first; empty where the machine does not count it.
    pub bandwidth: Vec<Moved>,
    /// Parts of names that were asked for. Tenants with such a name always have a line of their own.
    pub asked: Vec<String>,
}

/// Memory traffic of a group of processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// Path below /sys/fs/resctrl.
    pub group: String,
    /// Its control group, where it has one.
    pub cgroup: Option<String>,
    /// Bytes.
    pub bytes: u64,
    /// Of those, from and to memory of the CPU's own node; `None` where the machine does not tell.
    pub local: Option<u64>,
    /// Bytes of the last level of cache, in the last interval.
    pub cache: Option<u64>,
}

/// The groups that moved anything.
fn moved(recording: &impl Tables) -> Result<Vec<Moved>, Error> {
    let Some(table) = bandwidth::Reader::open(recording)? else { return Ok(Vec::new()) };
    let mut all: BTreeMap<String, Moved> = BTreeMap::new();
    for row in table.rows() {
        let group = table.group.get(row).unwrap_or_default();
        let one =
            all.entry(group.into()).or_insert_with(|| Moved { group: group.into(), ..Moved::default() });
        one.bytes = one.bytes.saturating_add(table.bytes.get(row).unwrap_or(0));
        if let Some(local) = table.local.get(row) {
            one.local = Some(one.local.unwrap_or(0).saturating_add(local));
        }
        one.cache = table.cache.get(row);
        one.cgroup = table.cgroup.get(row).map(String::from);
    }
    let mut all: Vec<Moved> = all.into_values().filter(|one| one.bytes > 0).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    Ok(all)
}

/// Policies of real-time threads, by program.
fn policies(recording: &impl Tables) -> Result<HashMap<String, String>, Error> {
    let Some(table) = settings::Reader::open(recording)? else { return Ok(HashMap::new()) };
    let policy = |row| table.name.get(row).filter(|name| name.starts_with("SCHED_"));
    let of = |row| Some((table.process.get(row)?.to_string(), policy(row)?.to_string()));
    Ok(table.rows().filter_map(of).collect())
}

/// Leaves in `one` what is true of `another`, too.
fn keep_common(one: &mut Tenant, another: &Tenant) {
    if one.program != another.program {
        one.program.clear();
    }
    for (of_one, of_another) in [
        (&mut one.pod, &another.pod),
        (&mut one.container, &another.container),
        (&mut one.job, &another.job),
        (&mut one.unit, &another.unit),
    ] {
        if of_one != of_another {
            *of_one = None;
        }
    }
    let same = one.cgroup.split('/').zip(another.cgroup.split('/')).take_while(|(a, b)| a == b);
    let common = same.map(|(part, _)| part).collect::<Vec<_>>().join("/");
    one.cgroup = if common.is_empty() { "/".into() } else { common };
}

/// Error for an observation of a process or a command.
const NOT_SEEN: &str =
    "no tenants in this observation: only those of a whole machine have them (ncpu watch -a, serve, top)";

impl Tenancy {
    /// Reads an observation; `None` if it has no accounts by tenant.
    ///
    /// # Errors
    /// A table is not what the schema says.
    pub fn of(recording: &impl Tables, naming: &Naming) -> Result<Option<Tenancy>, Error> {
        let Some(met) = recorded::read(recording)? else { return Ok(None) };
        let mut names: HashMap<u64, String> = HashMap::new();
        let mut members: HashMap<String, Tenant> = HashMap::new();
        let policies = policies(recording)?;
        let mut real_time = HashMap::new();
        for (id, tenant) in met {
            let name = if id < recorded::FIRST { tenant.program.clone() } else { naming.name(&tenant) };
            if let Some(policy) = policies.get(&tenant.program) {
                real_time.insert(name.clone(), policy.clone());
            }
            match members.entry(name.clone()) {
                Entry::Vacant(vacant) => {
                    vacant.insert(tenant);
                }
                Entry::Occupied(mut known) => keep_common(known.get_mut(), &tenant),
            }
            names.insert(id, name);
        }
        let named = |id: u64| names.get(&id).cloned().unwrap_or_else(|| OTHERS.into());
        let (division, parts) = onions::of(recording, &named)?;
        // Victim, culprit, cause, lock and grounds.
        type Of = (String, Option<String>, Loss, Option<String>, Grounds);
        let mut sums: BTreeMap<Of, (f64, f64, u64)> = BTreeMap::new();
        if let Some(lost) = tenant_losses::Reader::open(recording)? {
            for row in lost.rows() {
                let (Some(victim), Some(cause)) = (lost.victim.get(row), lost.cause.get(row)) else {
                    continue;
                };
                let grounds = lost.grounds.get(row).unwrap_or(Grounds::Unknown);
                let lock = lost.lock.get(row).map(String::from);
                let key = (named(victim), lost.culprit.get(row).map(named), cause, lock, grounds);
                let sum = sums.entry(key).or_default();
                sum.0 += lost.threads.get(row).unwrap_or(0.0);
                sum.1 += lost.cpus.get(row).unwrap_or(0.0);
                sum.2 = sum.2.saturating_add(lost.count.get(row).unwrap_or(0));
            }
        }
        let mut losses: Vec<Lost> = sums
            .into_iter()
            .map(|((victim, culprit, cause, lock, grounds), (threads, cpus, count))| Lost {
                victim,
                culprit,
                cause,
                lock,
                threads,
                cpus,
                count,
                grounds,
            })
            .collect();
        losses.sort_by(|a, b| b.threads.total_cmp(&a.threads));
        let (elapsed, cpus, capacity) = (division.elapsed, division.cpus, division.capacity);
        Ok(Some(Tenancy {
            by: naming.by,
            elapsed,
            cpus,
            capacity,
            parts,
            losses,
            members,
            real_time,
            bandwidth: moved(recording)?,
            asked: Vec::new(),
        }))
    }

    /// [`Tenancy::of`] of an observation that must have tenants.
    ///
    /// # Errors
    /// A table is not what the schema says, or the observation has no accounts by tenant.
    pub fn need(recording: &impl Tables, naming: &Naming) -> Result<Tenancy, String> {
        Tenancy::of(recording, naming).map_err(|e| e.to_string())?.ok_or_else(|| NOT_SEEN.into())
    }

    /// Losses of tenants whose names hold `victim`, to those whose names hold `culprit`.
    pub fn only(mut self, victim: Option<&str>, culprit: Option<&str>) -> Tenancy {
        let holds = |name: &str, part: Option<&str>| part.is_none_or(|part| name.contains(part));
        self.losses.retain(|lost| {
            holds(&lost.victim, victim)
                && culprit.is_none_or(|part| lost.culprit.as_deref().is_some_and(|name| name.contains(part)))
        });
        self.asked = [victim, culprit].into_iter().flatten().map(String::from).collect();
        self
    }

    /// Thread-seconds that each tenant lost to others that are known, most first; the kernel's own threads are left out.
    pub fn victims(&self) -> Vec<(&str, f64)> {
        let mut sums: Vec<(&str, f64)> = Vec::new();
        for lost in self.losses.iter().filter(|lost| lost.to_another() && lost.victim != KERNEL) {
            match sums.iter_mut().find(|(name, _)| *name == lost.victim) {
                Some((_, sum)) => *sum += lost.threads,
                None => sums.push((&lost.victim, lost.threads)),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        sums
    }

    /// Table `tenants`.
    pub fn table(&self) -> Table {
        let mut rows = tenants::Rows::new();
        for part in &self.parts {
            for (layer, seconds) in &part.layers {
                rows.push(tenants::Row {
                    tenant: part.name.as_deref().into(),
                    layer: Some(*layer),
                    share: Some(100.0 * seconds / self.capacity.max(f64::MIN_POSITIVE)),
                    seconds: Some(*seconds),
                });
            }
        }
        rows.finish()
    }

    /// Table `ledger`.
    pub fn ledger(&self) -> Table {
        let mut rows = ledger::Rows::new();
        for lost in &self.losses {
            rows.push(ledger::Row {
                victim: lost.victim.as_str().into(),
                culprit: lost.culprit.as_deref().into(),
                cause: Some(lost.cause),
                lock: lost.lock.as_deref().into(),
                threads: Some(lost.threads),
                cpus: Some(lost.cpus),
                count: Some(lost.count),
                grounds: Some(lost.grounds),
            });
        }
        rows.finish()
    }
}
