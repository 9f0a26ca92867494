//! CPUs, cores, packages and caches from `/sys/devices/system/cpu`.
//!
//! An object exists if the lowest CPU of its own map names it, as in hwloc: a CPU whose map contradicts its
//! neighbours' adds no object. A CPU that an accepted package or cache already holds is not examined for
//! another one. That saves most files of a large machine.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::caches;
use crate::finds::{Finds, Object};
use crate::root::Dir;
use crate::{Core, Cpu, CpuInfo, CpuSet, Error, Group, Package, Result, Topology};

const CPU_DIR: &str = "sys/devices/system/cpu";

/// The CPU lists.
pub(crate) struct Lists {
    pub dir: Dir,
    pub possible: CpuSet,
    pub present: CpuSet,
    pub online: CpuSet,
    /// The `cpuN` directories.
    pub named: CpuSet,
}

impl Lists {
    pub fn read(path: &Path, root: &Dir) -> Result<Lists> {
        let missing = || Error::NoMachine { root: path.into(), missing: CPU_DIR };
        let dir = root.dir(CPU_DIR).ok_or_else(missing)?;
        let mut buf = Vec::new();
        let named = dir.numbered("cpu");
        let online = match dir.list("online", &mut buf)? {
            Some(online) => online,
            // Linux before 2.6.24 has no lists; CPU 0 often has no `online` file because it cannot be taken
            // offline.
            None => named
                .iter()
                .filter(|cpu| dir.number::<i32>(&format!("cpu{cpu}/online"), &mut buf) != Some(0))
                .collect(),
        };
        if online.is_empty() {
            return Err(missing());
        }
        let present = dir.list("present", &mut buf)?.unwrap_or_else(|| named.clone());
        let possible = dir.list("possible", &mut buf)?.unwrap_or_else(|| present.clone());
        Ok(Lists { dir, possible, present, online, named })
    }
}

/// Special properties of a processor.
#[derive(Default)]
pub(crate) struct Quirks {
    /// Knights Landing: an L3 of size 0 does not exist, and MCDRAM may be an L3.
    pub knl: bool,
    /// AMD compute units: two cores share the kernel's core, as its threads.
    pub compute_units: bool,
    /// s390 has books and drawers.
    pub s390: bool,
}

impl Quirks {
    pub fn detect(arch: &str, first: Option<&CpuInfo>) -> Quirks {
        let x86 = arch == "x86_64" || (arch.len() == 4 && arch.starts_with('i') && arch.ends_with("86"));
        let is = |vendor: &str, families: &[u32]| {
            x86 && first.is_some_and(|i| {
                i.vendor.as_deref() == Some(vendor) && i.family.is_some_and(|f| families.contains(&f))
            })
        };
        let model = first.and_then(|i| i.model_number);
        Quirks {
            knl: is("GenuineIntel", &[6]) && matches!(model, Some(87 | 133)),
            compute_units: is("AuthenticAMD", &[21, 22]),
            s390: arch.starts_with("s390"),
        }
    }
}

/// Clocks and capacities of the first CPU of each core.
#[derive(Default)]
pub(crate) struct Rates {
    pub mhz: HashMap<u32, f64>,
    pub base_mhz: HashMap<u32, u64>,
    pub capacity: HashMap<u32, u64>,
}

/// Result of [`find`].
pub(crate) struct Found {
    pub t: Topology,
    /// Online CPUs with a topology; all online ones if none has.
    pub known: CpuSet,
    pub rates: Rates,
}

/// Accepts objects that nest in one another.
#[derive(Default)]
struct Nest {
    /// The objects' sizes and, by CPU, the objects that hold it.
    sizes: Vec<u32>,
    chains: Vec<Vec<u32>>,
}

impl Nest {
    /// Whether every object so far holds this set, lies in it, or is disjoint from it. If so, the set is
    /// added.
    fn takes(&mut self, set: &CpuSet) -> bool {
        let mut shared: Vec<(u32, u32)> = Vec::new();
        for cpu in set.iter() {
            for &object in &self.chains[cpu as usize] {
                match shared.iter_mut().find(|s| s.0 == object) {
                    Some(s) => s.1 += 1,
                    None => shared.push((object, 1)),
                }
            }
        }
        let size = set.len() as u32;
        if !shared.iter().all(|&(object, n)| n == size || n == self.sizes[object as usize]) {
            return false;
        }
        // An object with exactly the same CPUs already represents this one.
        if !shared.iter().any(|&(object, n)| n == size && n == self.sizes[object as usize]) {
            let object = self.sizes.len() as u32;
            self.sizes.push(size);
            set.iter().for_each(|cpu| self.chains[cpu as usize].push(object));
        }
        true
    }

    fn put(&mut self, t: &mut Topology, object: Object) {
        match object {
            Object::Core(o) if self.takes(&o.cpus) => t.cores.push(o),
            Object::Package(o) if self.takes(&o.cpus) => t.packages.push(o),
            Object::Die(o) if self.takes(&o.cpus) => t.dies.push(o),
            Object::Cluster(o) if self.takes(&o.cpus) => t.clusters.push(o),
            Object::Book(o) if self.takes(&o.cpus) => t.books.push(o),
            Object::Drawer(o) if self.takes(&o.cpus) => t.drawers.push(o),
            Object::Cache(o) if self.takes(&o.cpus) => t.caches.push(o),
            _ => {}
        }
    }
}

/// Names of the maps, which changed in Linux 5.3.
struct Files {
    core: &'static str,
    package: &'static str,
}

const NEW: Files = Files { core: "topology/core_cpus", package: "topology/package_cpus" };
const OLD: Files = Files { core: "topology/thread_siblings", package: "topology/core_siblings" };

/// Finds everything below `/sys/devices/system/cpu`.
pub(crate) fn find(lists: &Lists, quirks: &Quirks) -> Found {
    let dir = &lists.dir;
    let mut known: CpuSet =
        lists.named.and(&lists.online).iter().filter(|c| dir.has(&format!("cpu{c}/topology"))).collect();
    let bare = known.is_empty();
    if bare {
        known = lists.online.clone();
    }
    let first = known.first().unwrap_or(0);
    let has = |file: &str| dir.has(&format!("cpu{first}/{file}"));
    let mut walk = Walk {
        dir,
        known: &known,
        quirks,
        files: if has(NEW.core) || has(NEW.package) { NEW } else { OLD },
        clusters: has("topology/cluster_cpus"),
        dies: has("topology/die_cpus"),
        cpufreq: has("cpufreq"),
        capacity: has("cpu_capacity"),
        split_units: None,
        die_seen: CpuSet::new(),
        cluster_seen: CpuSet::new(),
        package_seen: CpuSet::new(),
        finds: Finds::default(),
        rates: Rates::default(),
        buf: Vec::new(),
    };
    // The caches are half the files. A second thread reads them, and receives each CPU's core.
    let caches = std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (known, knl) = (&known, quirks.knl);
        let caches = scope.spawn(move || caches::find(dir, known, knl, receiver));
        for cpu in known.iter() {
            let core = if bare { CpuSet::new() } else { walk.topology(cpu) };
            // The receiver listens to the end; if it panicked, the join reports it.
            let _ = sender.send((cpu, core));
        }
        drop(sender);
        caches.join().unwrap_or_default()
    });

    let mut t = Topology {
        cpus: known.iter().map(|id| Cpu { id, ..Cpu::default() }).collect(),
        warnings: [walk.finds.warnings, caches.warnings].concat(),
        ..Topology::default()
    };
    let mut objects = walk.finds.objects;
    objects.extend(caches.objects);
    // Stable: a CPU's other objects stay before its caches.
    objects.sort_by_key(|o| o.0);
    let span = known.last().map_or(0, |c| c as usize + 1);
    let mut nest = Nest { sizes: Vec::new(), chains: vec![Vec::new(); span] };
    objects.into_iter().for_each(|(_, object)| nest.put(&mut t, object));

    // A cluster that equals a core, die or package adds no information; hwloc does not show it either.
    let cores = t.cores.iter().map(|c| &c.cpus);
    let said: HashSet<&CpuSet> =
        cores.chain(t.dies.iter().map(|d| &d.cpus)).chain(t.packages.iter().map(|p| &p.cpus)).collect();
    t.clusters.retain(|g| !said.contains(&g.cpus));
    Found { t, known: known.clone(), rates: walk.rates }
}

struct Walk<'a> {
    dir: &'a Dir,
    known: &'a CpuSet,
    quirks: &'a Quirks,
    files: Files,
    /// The files of the first CPU; a kernel has them for all CPUs or for none.
    clusters: bool,
    dies: bool,
    cpufreq: bool,
    capacity: bool,
    /// Whether siblings are cores of a compute unit; known after two were seen.
    split_units: Option<bool>,
    /// CPUs of accepted objects.
    cluster_seen: CpuSet,
    die_seen: CpuSet,
    package_seen: CpuSet,
    finds: Finds,
    rates: Rates,
    buf: Vec<u8>,
}

impl Walk<'_> {
    fn map(&mut self, cpu: u32, file: &str) -> Option<CpuSet> {
        let set = self.finds.map(self.dir, cpu, file, &mut self.buf)?;
        Some(set.and(self.known))
    }

    fn id(&mut self, cpu: u32, file: &str) -> Option<u32> {
        self.dir.number(&format!("cpu{cpu}/topology/{file}"), &mut self.buf)
    }

    /// Reads `cpuN/topology`; returns the CPU's core.
    fn topology(&mut self, cpu: u32) -> CpuSet {
        let units = self.quirks.compute_units;
        let mut first_of_core = true;
        let mut core = CpuSet::new();
        if let Some(mut cpus) = self.map(cpu, self.files.core) {
            first_of_core = cpus.first() == Some(cpu);
            if units && self.split_units.is_none() && cpus.len() > 1 {
                let sibling = cpus.iter().find(|&c| c != cpu).unwrap_or(cpu);
                self.split_units = Some(self.id(cpu, "core_id") != self.id(sibling, "core_id"));
            }
            let split = units && self.split_units != Some(false);
            if split {
                cpus = CpuSet::from_iter([cpu]);
            }
            core.clone_from(&cpus);
            if first_of_core || split {
                let id = self.id(cpu, "core_id");
                self.finds.objects.push((cpu, Object::Core(Core { id, cpus })));
            }
        }
        if first_of_core {
            self.rates(cpu);
            self.packages(cpu);
        }
        if self.quirks.s390 {
            self.books(cpu);
        }
        core
    }

    /// Clusters, dies and packages, each examined only at the first CPU of the next smaller object.
    fn packages(&mut self, cpu: u32) {
        let mut cluster = None;
        if self.clusters {
            if self.cluster_seen.contains(cpu) {
                return;
            }
            cluster = self.map(cpu, "topology/cluster_cpus").filter(|c| c.len() > 1);
            if let Some(set) = &cluster {
                if set.first() != Some(cpu) {
                    return;
                }
                self.cluster_seen = self.cluster_seen.or(set);
            }
        }
        let mut die = None;
        let mut in_die = self.die_seen.contains(cpu);
        if self.dies && !in_die {
            die = self.map(cpu, "topology/die_cpus").filter(|d| d.len() > 1);
            in_die = die.as_ref().is_some_and(|d| d.first() != Some(cpu));
            match &die {
                Some(set) if !in_die => self.die_seen = self.die_seen.or(set),
                _ => die = None,
            }
        }
        if !in_die
            && !self.package_seen.contains(cpu)
            && let Some(cpus) = self.map(cpu, self.files.package)
        {
            if cpus.first() == Some(cpu) {
                self.package_seen = self.package_seen.or(&cpus);
                let id = self.id(cpu, "physical_package_id");
                let package = Package { id, cpus: cpus.clone(), ..Package::default() };
                self.finds.objects.push((cpu, Object::Package(package)));
            }
            die = die.filter(|d| *d != cpus);
        }
        if let Some(cpus) = cluster {
            let id = self.id(cpu, "cluster_id");
            self.finds.objects.push((cpu, Object::Cluster(Group { id, cpus })));
        }
        if let Some(cpus) = die {
            let id = self.id(cpu, "die_id");
            self.finds.objects.push((cpu, Object::Die(Group { id, cpus })));
        }
    }

    fn books(&mut self, cpu: u32) {
        for (map, file, drawers) in
            [("topology/book_siblings", "book_id", false), ("topology/drawer_siblings", "drawer_id", true)]
        {
            // As in hwloc, drawers are looked for only if there are books.
            let Some(cpus) = self.map(cpu, map) else { return };
            if cpus.first() != Some(cpu) {
                continue;
            }
            let Some(id) = self.id(cpu, file) else { continue };
            let group = Group { id: Some(id), cpus };
            let object = if drawers { Object::Drawer(group) } else { Object::Book(group) };
            self.finds.objects.push((cpu, object));
        }
    }

    fn rates(&mut self, cpu: u32) {
        let rates = &mut self.rates;
        let mut khz = |file: &str| {
            let khz = self.dir.number::<u32>(&format!("cpu{cpu}/cpufreq/{file}"), &mut self.buf)?;
            (khz > 0).then_some(u64::from(khz / 1000))
        };
        if self.cpufreq {
            // Only intel_pstate has the base frequency. A maximum differs between cores of one kind by
            // manufacturing variation, so only the base distinguishes kinds of core.
            if let Some(mhz) = khz("base_frequency") {
                rates.base_mhz.insert(cpu, mhz);
                rates.mhz.insert(cpu, mhz as f64);
            } else if let Some(mhz) = khz("cpuinfo_max_freq") {
                rates.mhz.insert(cpu, mhz as f64);
            }
        }
        if self.capacity
            && let Some(capacity) = self.dir.number::<u32>(&format!("cpu{cpu}/cpu_capacity"), &mut self.buf)
        {
            rates.capacity.insert(cpu, u64::from(capacity));
        }
    }
}
