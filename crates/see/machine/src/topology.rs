//! The result of [`Topology::read`].

use std::collections::BTreeMap;

use crate::CpuSet;

/// A machine's CPUs, cores, packages, caches and NUMA nodes.
///
/// Objects are ordered by their lowest CPU, nodes by number. Sets contain online CPUs only, unless noted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// CPUs that can ever be brought up (`/sys/devices/system/cpu/possible`).
    pub possible: CpuSet,
    /// Existing CPUs, online or not (`/sys/devices/system/cpu/present`, otherwise the `cpuN` directories).
    pub present: CpuSet,
    /// CPUs the scheduler uses (`/sys/devices/system/cpu/online`, else each `cpuN/online`).
    pub online: CpuSet,
    /// Online CPUs this process may run on: `Cpus_allowed_list` of `/proc/self/status` on the
    /// running machine, the limits of the recorded process's cpuset in a gathered tree.
    pub allowed: CpuSet,
    /// Nodes this process may take memory from, found like [`Topology::allowed`].
    pub allowed_nodes: CpuSet,
    /// Online CPUs, ascending.
    pub cpus: Vec<Cpu>,
    /// Cores (`topology/core_cpus`, before Linux 5.3 `thread_siblings`).
    pub cores: Vec<Core>,
    /// Packages (`topology/package_cpus`, before Linux 5.3 `core_siblings`).
    pub packages: Vec<Package>,
    /// Dies (`topology/die_cpus`) if a package has several.
    pub dies: Vec<Group>,
    /// Clusters (`topology/cluster_cpus`) larger than a core and smaller than a die.
    pub clusters: Vec<Group>,
    /// s390 books (`topology/book_siblings`).
    pub books: Vec<Group>,
    /// s390 drawers (`topology/drawer_siblings`).
    pub drawers: Vec<Group>,
    /// Caches (`cpuN/cache/indexN`), each once.
    pub caches: Vec<Cache>,
    /// NUMA nodes; a kernel without NUMA is one node of the whole machine.
    pub nodes: Vec<Node>,
    /// Distance of each node to each, in the order of `nodes` (`node/nodeN/distance`); empty if the kernel
    /// reports none.
    pub distances: Vec<Vec<u32>>,
    /// Online nodes that are the memory of a device, reserved by its driver (of NVIDIA GPUs,
    /// `/proc/driver/nvidia/gpus/*/numa_status`). They are not in `nodes`, from which programs get memory.
    pub device_nodes: Vec<Node>,
    /// Distances from and to device nodes, by the numbers of both nodes.
    pub device_distances: BTreeMap<(u32, u32), u32>,
    /// Kinds of core on a hybrid machine, slowest first; empty if all are alike.
    pub kinds: Vec<Kind>,
    /// Warnings for the user: files that were malformed and left out.
    pub warnings: Vec<String>,
}

/// An online CPU: a hardware strand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// Index into [`Topology::cores`].
    pub core: Option<usize>,
    /// Index into [`Topology::packages`].
    pub package: Option<usize>,
    /// Index into [`Topology::nodes`].
    pub node: Option<usize>,
    /// Index into [`Topology::kinds`].
    pub kind: Option<usize>,
    /// The index of the strand in its core, from 0.
    pub thread: usize,
    /// Rated MHz: `cpufreq/base_frequency`, otherwise `cpufreq/cpuinfo_max_freq`, otherwise from
    /// `/proc/cpuinfo`.
    pub mhz: Option<f64>,
}

/// A core and its strands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Core {
    /// `topology/core_id`: unique within a package at best.
    pub id: Option<u32>,
    /// Its strands.
    pub cpus: CpuSet,
}

/// A package: the part in a socket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Package {
    /// `topology/physical_package_id`.
    pub id: Option<u32>,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Vendor (`/proc/cpuinfo`).
    pub vendor: Option<String>,
    /// Model (`/proc/cpuinfo`); with several kinds of core all models, as in `Cortex-A725 and Cortex-X925`.
    pub model: Option<String>,
    /// Rated MHz of its first CPU; see [`Cpu::mhz`].
    pub mhz: Option<f64>,
}

/// A die, cluster, book or drawer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The kernel's `*_id`.
    pub id: Option<u32>,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// The contents of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CacheType {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

impl CacheType {
    /// The kernel's word (`cache/indexN/type`).
    pub fn word(self) -> &'static str {
        match self {
            CacheType::Data => "Data",
            CacheType::Instruction => "Instruction",
            CacheType::Unified => "Unified",
        }
    }
}

/// A cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u32,
    /// Its contents.
    pub ty: CacheType,
    /// Size in bytes; 0 if the kernel does not know it.
    pub size: u64,
    /// Line size in bytes; 0 if the kernel does not know it.
    pub line: u32,
    /// Associativity, computed from size, line and sets; 0 if unknown (the kernel's own
    /// `ways_of_associativity` is 0 or -1 on some architectures).
    pub ways: u32,
    /// The CPUs that share it.
    pub cpus: CpuSet,
    /// Set for memory used as a cache in front of other memory (Knights Landing's MCDRAM).
    pub memory_side: bool,
}

impl Cache {
    /// Its short name: `L1d`, `L1i`, `L2`.
    pub fn name(&self) -> String {
        let letter = match self.ty {
            CacheType::Data => "d",
            CacheType::Instruction => "i",
            CacheType::Unified => "",
        };
        format!("L{}{letter}", self.level)
    }
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs (`nodeN/cpumap`); empty for memory only.
    pub cpus: CpuSet,
    /// The CPUs nearest to its memory: its own or, for a node without CPUs, those of HMAT
    /// (`nodeN/access1/initiators`) or of the distances; empty if these do not determine them.
    pub local_cpus: CpuSet,
    /// Bytes of memory (`nodeN/meminfo` MemTotal).
    pub total: Option<u64>,
    /// Bytes free (`nodeN/meminfo` MemFree).
    pub free: Option<u64>,
    /// Huge pages by size (`nodeN/hugepages`).
    pub hugepages: Vec<Hugepages>,
    /// Caches in front of its memory (`nodeN/memory_side_cache`).
    pub side_caches: Vec<SideCache>,
}

/// A pool of huge pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hugepages {
    /// Bytes of one page.
    pub size: u64,
    /// Pages in the pool (`nr_hugepages`).
    pub total: u64,
    /// Free pages (`free_hugepages`).
    pub free: Option<u64>,
}

/// A memory-side cache (`nodeN/memory_side_cache/indexN`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideCache {
    /// 1 is nearest to the memory.
    pub level: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes of a line.
    pub line: u32,
}

/// A kind of core on a hybrid machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kind {
    /// `cpu_core` and `cpu_atom` (`/sys/devices/cpu_core`), otherwise the distinguishing property: the model
    /// (`Cortex-X925`), `capacity 446`, `1900 MHz`.
    pub name: String,
    /// The CPUs of it.
    pub cpus: CpuSet,
}

impl Topology {
    /// The number of online CPUs.
    pub fn ncpu(&self) -> usize {
        self.cpus.len()
    }

    /// The record of an online CPU.
    pub fn cpu(&self, cpu: u32) -> Option<&Cpu> {
        self.cpus.binary_search_by_key(&cpu, |c| c.id).ok().map(|i| &self.cpus[i])
    }

    /// The core of a CPU.
    pub fn core_of(&self, cpu: u32) -> Option<&Core> {
        self.cores.get(self.cpu(cpu)?.core?)
    }

    /// The package of a CPU.
    pub fn package_of(&self, cpu: u32) -> Option<&Package> {
        self.packages.get(self.cpu(cpu)?.package?)
    }

    /// The NUMA node of a CPU.
    pub fn node_of(&self, cpu: u32) -> Option<&Node> {
        self.nodes.get(self.cpu(cpu)?.node?)
    }

    /// CPUs that are present but not online.
    pub fn offline(&self) -> CpuSet {
        self.present.minus(&self.online)
    }

    /// Bytes of memory in all nodes.
    pub fn memory(&self) -> u64 {
        self.nodes.iter().filter_map(|n| n.total).fold(0, u64::saturating_add)
    }

    /// Only the parts that this process may use. An object that loses its last CPU is removed, unless usable
    /// memory is local to it: a package whose CPUs are all disallowed stays for its node.
    #[must_use]
    pub fn allowed_only(&self) -> Topology {
        let nodes: Vec<usize> =
            (0..self.nodes.len()).filter(|&n| self.allowed_nodes.contains(self.nodes[n].id)).collect();
        let homes: Vec<(&CpuSet, u32)> = nodes
            .iter()
            .map(|&n| (&self.nodes[n].local_cpus, self.home_rank(&self.nodes[n].local_cpus)))
            .collect();
        let keep = |cpus: &CpuSet, rank: u32| {
            let left = cpus.and(&self.allowed);
            let memory = || {
                homes.iter().any(|&(home, at)| {
                    !home.is_empty() && home.is_subset(cpus) && (home != cpus || rank <= at)
                })
            };
            (!left.is_empty() || memory()).then_some(left)
        };
        let groups = |all: &[Group], rank: u32| -> Vec<Group> {
            all.iter().filter_map(|g| Some(Group { id: g.id, cpus: keep(&g.cpus, rank)? })).collect()
        };
        let mut t = Topology {
            // Disallowed CPUs are left out, but they are not offline either.
            present: self.present.minus(&self.online.minus(&self.allowed)),
            online: self.online.and(&self.allowed),
            cores: self
                .cores
                .iter()
                .filter_map(|c| Some(Core { cpus: keep(&c.cpus, RANK_CORE)?, ..c.clone() }))
                .collect(),
            packages: self
                .packages
                .iter()
                .filter_map(|p| Some(Package { cpus: keep(&p.cpus, RANK_PACKAGE)?, ..p.clone() }))
                .collect(),
            dies: groups(&self.dies, RANK_DIE),
            clusters: groups(&self.clusters, RANK_GROUP),
            books: groups(&self.books, RANK_GROUP),
            drawers: groups(&self.drawers, RANK_GROUP),
            caches: self
                .caches
                .iter()
                .filter_map(|c| Some(Cache { cpus: keep(&c.cpus, cache_rank(c))?, ..c.clone() }))
                .collect(),
            nodes: nodes
                .iter()
                .map(|&n| {
                    let node = &self.nodes[n];
                    Node {
                        cpus: node.cpus.and(&self.allowed),
                        local_cpus: node.local_cpus.and(&self.allowed),
                        ..node.clone()
                    }
                })
                .collect(),
            distances: nodes
                .iter()
                .filter_map(|&a| {
                    self.distances
                        .get(a)
                        .map(|row| nodes.iter().filter_map(|&b| row.get(b).copied()).collect())
                })
                .collect(),
            kinds: self.kinds.clone(),
            cpus: self.cpus.iter().filter(|c| self.allowed.contains(c.id)).cloned().collect(),
            ..self.clone()
        };
        t.link();
        t
    }

    /// Of the objects that have exactly these CPUs, the rank of the outermost, to which a node's memory is
    /// attached.
    fn home_rank(&self, cpus: &CpuSet) -> u32 {
        let mut rank = u32::MAX;
        let mut see = |set: &CpuSet, r: u32| {
            if set == cpus {
                rank = rank.min(r);
            }
        };
        self.packages.iter().for_each(|p| see(&p.cpus, RANK_PACKAGE));
        self.dies.iter().for_each(|g| see(&g.cpus, RANK_DIE));
        for g in self.clusters.iter().chain(&self.books).chain(&self.drawers) {
            see(&g.cpus, RANK_GROUP);
        }
        self.caches.iter().for_each(|c| see(&c.cpus, cache_rank(c)));
        self.cores.iter().for_each(|c| see(&c.cpus, RANK_CORE));
        rank
    }

    /// Sets each CPU's core, package, node, kind and strand from the sets.
    pub(crate) fn link(&mut self) {
        let last = self.cpus.last().map_or(0, |c| c.id as usize + 1);
        let mut at = vec![usize::MAX; last];
        for (i, cpu) in self.cpus.iter_mut().enumerate() {
            at[cpu.id as usize] = i;
            (cpu.core, cpu.package, cpu.node, cpu.kind, cpu.thread) = (None, None, None, None, 0);
        }
        let cpus = &mut self.cpus;
        let mut each = |set: &CpuSet, f: &mut dyn FnMut(&mut Cpu, usize)| {
            for (n, id) in set.iter().enumerate() {
                if let Some(&i) = at.get(id as usize).filter(|&&i| i != usize::MAX) {
                    f(&mut cpus[i], n);
                }
            }
        };
        for (i, core) in self.cores.iter().enumerate() {
            each(&core.cpus, &mut |c, n| (c.core, c.thread) = (Some(i), n));
        }
        for (i, package) in self.packages.iter().enumerate() {
            each(&package.cpus, &mut |c, _| c.package = Some(i));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            each(&node.cpus, &mut |c, _| c.node = Some(i));
        }
        for (i, kind) in self.kinds.iter().enumerate() {
            each(&kind.cpus, &mut |c, _| c.kind = Some(i));
        }
    }
}

/// Of two objects with the same CPUs, the one with the lower rank contains the other.
const RANK_GROUP: u32 = 0;
const RANK_PACKAGE: u32 = 1;
const RANK_DIE: u32 = 2;
const RANK_CORE: u32 = 100;

fn cache_rank(cache: &Cache) -> u32 {
    3 + 2 * (20 - cache.level.min(20)) + u32::from(cache.ty == CacheType::Instruction)
}
