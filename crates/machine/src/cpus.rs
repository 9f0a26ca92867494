//! CPUs, cores, packages and caches from `/sys/devices/system/cpu`.
//!
//! An object exists where the lowest CPU of its own map names it, which is how hwloc sees it: a CPU
//! whose map contradicts its neighbours' adds nothing. A CPU that an accepted package or cache already
//! holds is not asked about it again, which is most of the files of a large machine.

use std::collections::HashMap;
use std::path::Path;

use crate::root::Dir;
use crate::{Cache, CacheType, Core, Cpu, CpuInfo, CpuSet, Error, Group, Package, Result, Topology};

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
            // Linux before 2.6.24 lists nothing; CPU 0 often has no `online` because it cannot go.
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

/// What is special about a processor.
#[derive(Default)]
pub(crate) struct Quirks {
    /// Knights Landing: an L3 of size 0 is not there, and MCDRAM may be one.
    pub knl: bool,
    /// AMD compute units: two cores share what the kernel calls a core's threads.
    pub compute_units: bool,
    /// s390 has books and drawers.
    pub s390: bool,
}

impl Quirks {
    pub fn of(arch: &str, first: Option<&CpuInfo>) -> Quirks {
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

/// Clocks and capacities, of the first CPU of each core.
#[derive(Default)]
pub(crate) struct Rates {
    pub mhz: HashMap<u32, f64>,
    pub base_mhz: HashMap<u32, u64>,
    pub capacity: HashMap<u32, u64>,
}

/// What [`find`] found.
pub(crate) struct Found {
    pub t: Topology,
    /// Online CPUs with a topology; all online ones where none has.
    pub known: CpuSet,
    pub rates: Rates,
    /// Objects' sizes and, by CPU, the objects that hold it: whether a new one nests.
    sizes: Vec<u32>,
    chains: Vec<Vec<u32>>,
}

impl Found {
    /// Whether every object found so far holds this set, lies in it, or is apart from it; and takes
    /// it into account from now on.
    fn nests(&mut self, set: &CpuSet) -> bool {
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
        // An object with the very same CPUs already stands for this one.
        if !shared.iter().any(|&(object, n)| n == size && n == self.sizes[object as usize]) {
            let object = self.sizes.len() as u32;
            self.sizes.push(size);
            set.iter().for_each(|cpu| self.chains[cpu as usize].push(object));
        }
        true
    }
}

struct Files {
    core: &'static str,
    package: &'static str,
}

const NEW: Files = Files { core: "core_cpus", package: "package_cpus" };
const OLD: Files = Files { core: "thread_siblings", package: "core_siblings" };

/// Finds everything below `/sys/devices/system/cpu`.
pub(crate) fn find(lists: &mut Lists, quirks: &Quirks) -> Result<Found> {
    let dir = &lists.dir;
    let mut known: CpuSet =
        lists.named.and(&lists.online).iter().filter(|c| dir.has(&format!("cpu{c}/topology"))).collect();
    let bare = known.is_empty();
    if bare {
        known = lists.online.clone();
    }
    let span = known.last().map_or(0, |c| c as usize + 1);
    let mut found = Found {
        t: Topology {
            cpus: known.iter().map(|id| Cpu { id, ..Cpu::default() }).collect(),
            ..Topology::default()
        },
        known: known.clone(),
        rates: Rates::default(),
        sizes: Vec::new(),
        chains: vec![Vec::new(); span],
    };
    let first = known.first().unwrap_or(0);
    let has = |file: &str| dir.has(&format!("cpu{first}/{file}"));
    let files = if has("topology/core_cpus") || has("topology/package_cpus") { NEW } else { OLD };
    let mut walk = Walk {
        dir,
        known: &known,
        quirks,
        files,
        clusters: has("topology/cluster_cpus"),
        dies: has("topology/die_cpus"),
        cpufreq: has("cpufreq"),
        capacity: has("cpu_capacity"),
        split_units: None,
        die_seen: CpuSet::new(),
        cluster_seen: CpuSet::new(),
        package_seen: CpuSet::new(),
        core: CpuSet::new(),
        settled: CpuSet::new(),
        empty_map: false,
        last: Vec::new(),
        shapes: HashMap::new(),
        buf: Vec::new(),
    };
    for cpu in known.iter() {
        if !bare {
            walk.topology(cpu, &mut found);
        }
        walk.caches(cpu, &mut found);
    }
    let t = &mut found.t;
    // A cluster that is a core or a die says nothing new; hwloc shows none either.
    let same = |g: &Group| {
        t.cores.iter().map(|c| &c.cpus).chain(t.dies.iter().map(|d| &d.cpus)).any(|s| *s == g.cpus)
            || t.packages.iter().any(|p| p.cpus == g.cpus)
    };
    let clusters: Vec<Group> = t.clusters.iter().filter(|g| !same(g)).cloned().collect();
    t.clusters = clusters;
    Ok(found)
}

struct Walk<'a> {
    dir: &'a Dir,
    known: &'a CpuSet,
    quirks: &'a Quirks,
    files: Files,
    /// Which files the first CPU has; a kernel has them for all CPUs or for none.
    clusters: bool,
    dies: bool,
    cpufreq: bool,
    capacity: bool,
    /// Whether siblings are cores of a compute unit; known once two are met.
    split_units: Option<bool>,
    /// CPUs held by accepted objects.
    cluster_seen: CpuSet,
    die_seen: CpuSet,
    package_seen: CpuSet,
    /// The core found last.
    core: CpuSet,
    /// CPUs whose caches are all known.
    settled: CpuSet,
    /// Whether the map read last named no CPU at all.
    empty_map: bool,
    /// The caches of the last CPU asked, by index.
    last: Vec<Cache>,
    /// Line and ways of a level, type and size.
    shapes: HashMap<(u32, CacheType, u64), (u32, u32)>,
    buf: Vec<u8>,
}

impl Walk<'_> {
    /// Reads a map of a CPU, cut to the CPUs that are there; a malformed one is warned of.
    fn map(&mut self, cpu: u32, file: &str, found: &mut Found) -> Option<CpuSet> {
        match self.dir.mask(&format!("cpu{cpu}/{file}"), &mut self.buf) {
            Ok(set) => {
                let set = set?;
                self.empty_map = set.is_empty();
                Some(set.and(self.known))
            }
            Err(error) => {
                found.t.warnings.push(format!("{}; left out", error.whole()));
                None
            }
        }
    }

    fn id(&mut self, cpu: u32, file: &str) -> Option<u32> {
        self.dir.number(&format!("cpu{cpu}/topology/{file}"), &mut self.buf)
    }

    fn topology(&mut self, cpu: u32, found: &mut Found) {
        let units = self.quirks.compute_units;
        let core_file = format!("topology/{}", self.files.core);
        let mut first_of_core = true;
        if let Some(mut cpus) = self.map(cpu, &core_file, found) {
            first_of_core = cpus.first() == Some(cpu);
            if units && self.split_units.is_none() && cpus.len() > 1 {
                let sibling = cpus.iter().find(|&c| c != cpu).unwrap_or(cpu);
                self.split_units = Some(self.id(cpu, "core_id") != self.id(sibling, "core_id"));
            }
            let split = units && self.split_units != Some(false);
            if first_of_core || split {
                if split {
                    cpus = CpuSet::from_iter([cpu]);
                }
                self.core = cpus.clone();
                let id = self.id(cpu, "core_id");
                if found.nests(&cpus) {
                    found.t.cores.push(Core { id, cpus });
                }
            }
        }
        if first_of_core {
            self.rates(cpu, found);
            self.packages(cpu, found);
        }
        if self.quirks.s390 {
            self.books(cpu, found);
        }
    }

    /// Clusters, dies and packages, each looked at only from the first CPU of the smaller one.
    fn packages(&mut self, cpu: u32, found: &mut Found) {
        let mut cluster = None;
        if self.clusters {
            if self.cluster_seen.contains(cpu) {
                return;
            }
            cluster = self.map(cpu, "topology/cluster_cpus", found).filter(|c| c.len() > 1);
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
            die = self.map(cpu, "topology/die_cpus", found).filter(|d| d.len() > 1);
            in_die = die.as_ref().is_some_and(|d| d.first() != Some(cpu));
            match &die {
                Some(set) if !in_die => self.die_seen = self.die_seen.or(set),
                _ => die = None,
            }
        }
        if !in_die && !self.package_seen.contains(cpu) {
            let file = format!("topology/{}", self.files.package);
            if let Some(cpus) = self.map(cpu, &file, found) {
                if cpus.first() == Some(cpu) {
                    self.package_seen = self.package_seen.or(&cpus);
                    let id = self.id(cpu, "physical_package_id");
                    if found.nests(&cpus) {
                        found.t.packages.push(Package { id, cpus: cpus.clone(), ..Package::default() });
                    }
                }
                die = die.filter(|d| *d != cpus);
            }
        }
        for (set, file, dies) in [(cluster, "cluster_id", false), (die, "die_id", true)] {
            let Some(cpus) = set else { continue };
            let id = self.id(cpu, file);
            if found.nests(&cpus) {
                let list = if dies { &mut found.t.dies } else { &mut found.t.clusters };
                list.push(Group { id, cpus });
            }
        }
    }

    fn books(&mut self, cpu: u32, found: &mut Found) {
        for (map, file, drawers) in
            [("topology/book_siblings", "book_id", false), ("topology/drawer_siblings", "drawer_id", true)]
        {
            // As hwloc has it, drawers are looked for only where there are books.
            let Some(cpus) = self.map(cpu, map, found) else { return };
            if cpus.first() != Some(cpu) {
                continue;
            }
            let Some(id) = self.id(cpu, file) else { continue };
            if found.nests(&cpus) {
                let list = if drawers { &mut found.t.drawers } else { &mut found.t.books };
                list.push(Group { id: Some(id), cpus });
            }
        }
    }

    fn rates(&mut self, cpu: u32, found: &mut Found) {
        let rates = &mut found.rates;
        let mut khz = |file: &str| {
            let khz = self.dir.number::<u32>(&format!("cpu{cpu}/cpufreq/{file}"), &mut self.buf)?;
            (khz > 0).then_some(u64::from(khz / 1000))
        };
        if self.cpufreq {
            // intel_pstate alone has the base; a maximum differs between like cores by their luck
            // in the lottery, so only the base tells kinds of core apart.
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

    fn caches(&mut self, cpu: u32, found: &mut Found) {
        if self.settled.contains(cpu) {
            return;
        }
        let before = std::mem::take(&mut self.last);
        let (mut alike, mut gap) = (true, false);
        let mut mates: Option<CpuSet> = None;
        for index in 0..10 {
            // The outermost cache of the CPU before, when it is accepted and names this CPU and all
            // within was alike, is this CPU's too.
            if alike && index > 0 && index + 1 == before.len() {
                let outer = &before[index];
                if outer.level > 1
                    && outer.cpus.contains(cpu)
                    && found.t.caches.iter().rev().any(|c| c == outer)
                    && !self.dir.has(&format!("cpu{cpu}/cache/index{}", index + 1))
                {
                    mates = mates.map(|m| m.and(&outer.cpus));
                    self.last.push(outer.clone());
                    break;
                }
            }
            let Some(mut cpus) = self.map(cpu, &format!("cache/index{index}/shared_cpu_map"), found) else {
                if index == 0 && !self.dir.has(&format!("cpu{cpu}/cache")) {
                    break;
                }
                continue;
            };
            if self.empty_map {
                // Old ia64 kernels leave the map of a core's own caches empty.
                let file = format!("topology/{}", self.files.core);
                cpus = self.map(cpu, &file, found).unwrap_or_default();
            }
            mates = Some(mates.map_or_else(|| cpus.clone(), |m| m.and(&cpus)));
            gap |= self.last.len() != index;
            let Some(cache) = self.cache(cpu, index, cpus, before.get(index).filter(|_| alike && !gap))
            else {
                continue;
            };
            alike &= before
                .get(index)
                .is_some_and(|b| (b.level, b.ty, b.size) == (cache.level, cache.ty, cache.size));
            self.last.push(cache.clone());
            if cache.cpus.first() != Some(cpu) || (self.quirks.knl && cache.level == 3 && cache.size == 0) {
                continue;
            }
            let twice = found
                .t
                .caches
                .iter()
                .rev()
                .take(10)
                .any(|c| (c.level, c.ty) == (cache.level, cache.ty) && c.cpus == cache.cpus);
            if !twice && found.nests(&cache.cpus) {
                found.t.caches.push(cache);
            }
        }
        if gap {
            self.last.clear();
        }
        // A strand that all its core-mate's caches name has no cache of its own.
        if let Some(mates) = mates.filter(|_| self.core.contains(cpu)) {
            self.settled = self.settled.or(&mates.and(&self.core));
        }
    }

    /// Reads a cache; level and type are taken from the CPU before where its cache of this index has
    /// the same size and all before were alike.
    fn cache(&mut self, cpu: u32, index: usize, cpus: CpuSet, before: Option<&Cache>) -> Option<Cache> {
        let base = format!("cpu{cpu}/cache/index{index}");
        let mut get = |file: &str| self.dir.number::<u32>(&format!("{base}/{file}"), &mut self.buf);
        let size = u64::from(get("size").unwrap_or(0)) << 10;
        let (level, ty) = match before.filter(|b| b.size == size) {
            Some(b) => (b.level, b.ty),
            None => {
                let level = get("level")?;
                let ty = match self.dir.read(&format!("{base}/type"), &mut self.buf).unwrap_or_default() {
                    t if t.starts_with("Data") => CacheType::Data,
                    t if t.starts_with("Instruction") => CacheType::Instruction,
                    _ => CacheType::Unified,
                };
                (level, ty)
            }
        };
        if level == 0 || level > 5 || (level > 3 && ty == CacheType::Instruction) {
            return None;
        }
        let (line, ways) = match self.shapes.get(&(level, ty, size)) {
            Some(&shape) => shape,
            None => {
                let mut get = |file: &str| self.dir.number::<u32>(&format!("{base}/{file}"), &mut self.buf);
                let line = get("coherency_line_size").unwrap_or(0);
                let sets = get("number_of_sets").unwrap_or(0);
                let partition = get("physical_line_partition").unwrap_or(1);
                let across = u64::from(line) * u64::from(partition) * u64::from(sets);
                // A single set is how some kernels say "not known".
                let ways = if across == 0 || sets == 1 { 0 } else { size / across };
                let shape = (line, u32::try_from(ways).unwrap_or(0));
                self.shapes.insert((level, ty, size), shape);
                shape
            }
        };
        Some(Cache { level, ty, size, line, ways, cpus, memory_side: false })
    }
}
