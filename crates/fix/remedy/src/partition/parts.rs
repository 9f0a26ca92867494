//! The CPUs and memory nodes of each instance.

use ncpu_machine::{CpuSet, Topology};

/// The unit that is never divided between instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A NUMA node.
    Node,
    /// The CPUs that share a last-level cache.
    Cache,
    /// Each instance gets this many cores; no instance uses the rest.
    Cores(u32),
}

impl std::str::FromStr for By {
    type Err = String;
    fn from_str(text: &str) -> Result<By, String> {
        match text.split_once('=') {
            None if text == "node" => Ok(By::Node),
            None if text == "cache" => Ok(By::Cache),
            Some(("cores", n)) => match n.parse() {
                Ok(n) if n > 0 => Ok(By::Cores(n)),
                _ => Err(format!("cores={n}: give 1 or more")),
            },
            _ => Err(format!("{text}: give node, cache or cores=K")),
        }
    }
}

impl std::fmt::Display for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            By::Node => f.write_str("node"),
            By::Cache => f.write_str("cache"),
            By::Cores(n) => write!(f, "cores={n}"),
        }
    }
}

/// An instance's part of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its memory nodes.
    pub nodes: CpuSet,
}

/// A machine that cannot be divided so.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// More instances than there are of what is not divided.
    #[error("{wanted} instances, but {there} {what} for us to use ({cpus}); {instead}")]
    TooFew {
        /// How many are wanted.
        wanted: usize,
        /// Number of units.
        there: usize,
        /// Of what.
        what: String,
        /// The CPUs that may be used.
        cpus: String,
        /// Alternatives.
        instead: String,
    },
}

/// The CPUs of each node, cache or core among those we may use, near ones next to each other.
fn groups(machine: &Topology, usable: &CpuSet, level: usize) -> Vec<CpuSet> {
    let node = |cpu: u32| machine.node_of(cpu).map_or(0, |n| n.id);
    let package = |cpu: u32| machine.package_of(cpu).and_then(|p| p.cpus.first()).unwrap_or(0);
    let core = |cpu: u32| machine.core_of(cpu).and_then(|c| c.cpus.first()).unwrap_or(cpu);
    let last = last_level(machine);
    let cache = |cpu: u32| {
        let found = last.iter().find(|set| set.contains(cpu));
        found.and_then(CpuSet::first).unwrap_or_else(|| package(cpu))
    };
    let mut cpus: Vec<u32> = usable.iter().collect();
    let key = |cpu: u32| [package(cpu), node(cpu), cache(cpu), core(cpu), cpu];
    cpus.sort_by_key(|&cpu| key(cpu));
    let mut out: Vec<(Vec<u32>, CpuSet)> = Vec::new();
    for cpu in cpus {
        let key = key(cpu)[..=level].to_vec();
        match out.last_mut() {
            Some((last, set)) if *last == key => set.insert(cpu),
            _ => out.push((key, [cpu].into_iter().collect())),
        }
    }
    out.into_iter().map(|(_, set)| set).collect()
}

/// The CPUs of each last-level cache.
pub fn last_level(machine: &Topology) -> Vec<CpuSet> {
    let own = machine.caches.iter().filter(|c| !c.memory_side);
    let level = own.clone().map(|c| c.level).max().unwrap_or(0);
    own.filter(|c| c.level == level).map(|c| c.cpus.clone()).collect()
}

const NODE: usize = 1;
const CACHE: usize = 2;
const CORE: usize = 3;
const CPU: usize = 4;

/// Divides the CPUs we may use among `n` instances: at the borders of nodes where there are enough of them, else of
/// caches, of cores, of CPUs.
///
/// # Errors
/// There are not enough of what is not to be divided.
pub fn divide(machine: &Topology, n: usize, by: Option<By>) -> Result<Vec<Part>, Error> {
    let usable = machine.online.and(&machine.allowed);
    let too_few = |there: usize, what: String, instead: &str| Error::TooFew {
        wanted: n,
        there,
        what,
        cpus: usable.to_list(),
        instead: instead.into(),
    };
    let sets = match by {
        Some(By::Cores(k)) => {
            let cores = groups(machine, &usable, CORE);
            let k = k as usize;
            if cores.len() < n * k {
                return Err(too_few(cores.len() / k, format!("times {k} cores"), "give fewer"));
            }
            cores.chunks(k).take(n).map(join).collect()
        }
        Some(by) => {
            let (level, what, instead) = match by {
                By::Node => (NODE, "NUMA nodes", "--by cache or cores=K divides nodes"),
                _ => (CACHE, "last-level caches", "--by cores=K divides caches"),
            };
            let units = groups(machine, &usable, level);
            if units.len() < n {
                return Err(too_few(units.len(), what.into(), instead));
            }
            cut(&units, n)
        }
        None => {
            let levels = [NODE, CACHE, CORE, CPU];
            // A border between nodes is of use only where it makes even parts.
            let even = |units: &Vec<CpuSet>| {
                units.len() >= n && (units.len().is_multiple_of(n) || units.len() >= 4 * n)
            };
            let all: Vec<Vec<CpuSet>> = levels.iter().map(|&l| groups(machine, &usable, l)).collect();
            let fits = all.iter().find(|u| even(u)).or_else(|| all.iter().rfind(|u| u.len() >= n));
            cut(
                fits.ok_or_else(|| too_few(usable.len(), "CPUs".into(), "give fewer instances, or --share"))?,
                n,
            )
        }
    };
    Ok(sets.into_iter().map(|cpus| Part { nodes: nodes_of(machine, &cpus), cpus }).collect())
}

/// Divides as [`divide`] does, but lets several instances share a CPU where there are more of them than CPUs.
///
/// # Errors
/// No CPU may be used.
pub fn share(machine: &Topology, n: usize) -> Result<Vec<Part>, Error> {
    let cpus = machine.online.and(&machine.allowed).len();
    let single = divide(machine, n.min(cpus), None)?;
    Ok((0..n).map(|i| single[i * single.len() / n].clone()).collect())
}

fn join<'a>(sets: impl IntoIterator<Item = &'a CpuSet>) -> CpuSet {
    sets.into_iter().fold(CpuSet::new(), |all, set| all.or(set))
}

/// Cuts a row of units into `n` pieces that differ by one unit at most.
fn cut(units: &[CpuSet], n: usize) -> Vec<CpuSet> {
    (0..n).map(|i| join(&units[i * units.len() / n..(i + 1) * units.len() / n])).collect()
}

/// The memory nodes of CPUs; the nearest with memory where their own have none.
pub fn nodes_of(machine: &Topology, cpus: &CpuSet) -> CpuSet {
    let has = |at: usize| {
        let node = &machine.nodes[at];
        node.total.unwrap_or(0) > 0
            && (machine.allowed_nodes.is_empty() || machine.allowed_nodes.contains(node.id))
    };
    let mut out = CpuSet::new();
    for (at, node) in machine.nodes.iter().enumerate().filter(|(_, n)| n.cpus.intersects(cpus)) {
        if has(at) {
            out.insert(node.id);
            continue;
        }
        let distance = |to: usize| machine.distances.get(at).and_then(|row| row.get(to)).copied();
        let near = (0..machine.nodes.len()).filter(|&to| has(to)).min_by_key(|&to| distance(to));
        if let Some(to) = near {
            out.insert(machine.nodes[to].id);
        }
    }
    if out.is_empty() { machine.allowed_nodes.clone() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::generate::{Shape, write};

    fn machine(nodes: u32, cores: u32, threads: u32) -> Topology {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes, cores, threads }).unwrap();
        Topology::read(dir.path()).unwrap()
    }

    fn lists(machine: &Topology, n: usize, by: Option<By>) -> Vec<String> {
        let parts = divide(machine, n, by).unwrap();
        parts.iter().map(|p| format!("{} on {}", p.cpus.to_list(), p.nodes.to_list())).collect()
    }

    #[test]
    fn nodes_first_then_caches_and_cores() {
        // 4 nodes of 2 cores of 2 strands: CPUs c and c + 8 are core c.
        let m = machine(4, 2, 2);
        let by_node = ["0-1,8-9 on 0", "2-3,10-11 on 1", "4-5,12-13 on 2", "6-7,14-15 on 3"];
        assert_eq!(lists(&m, 4, None), by_node);
        assert_eq!(lists(&m, 2, Some(By::Node)), ["0-3,8-11 on 0-1", "4-7,12-15 on 2-3"]);
        assert_eq!(lists(&m, 8, None)[..2], ["0,8 on 0", "1,9 on 0"]);
        assert_eq!(lists(&m, 16, None)[..2], ["0 on 0", "8 on 0"]);
        assert_eq!(lists(&m, 3, Some(By::Cores(2)))[2], "4-5,12-13 on 2");
        // Three of four nodes would leave one with twice the CPUs.
        let three: Vec<usize> = divide(&m, 3, None).unwrap().iter().map(|p| p.cpus.len()).collect();
        assert_eq!(three, [5, 5, 6]);
    }

    #[test]
    fn every_cpu_is_in_one_part() {
        let m = machine(8, 4, 2);
        for n in 1..=64 {
            let parts = divide(&m, n, None).unwrap();
            let all = join(parts.iter().map(|p| &p.cpus));
            assert_eq!(all.len(), 64, "{n}");
            assert_eq!(parts.iter().map(|p| p.cpus.len()).sum::<usize>(), 64, "{n}");
            assert!(parts.iter().all(|p| !p.nodes.is_empty()), "{n}");
        }
    }

    #[test]
    fn too_many_instances_are_told() {
        let m = machine(2, 2, 1);
        let told = |n, by| divide(&m, n, by).unwrap_err().to_string();
        assert_eq!(
            told(5, None),
            "5 instances, but 4 CPUs for us to use (0-3); give fewer instances, or --share"
        );
        assert!(told(3, Some(By::Node)).contains("but 2 NUMA nodes"), "{}", told(3, Some(By::Node)));
        assert!(told(2, Some(By::Cores(3))).contains("give fewer"));
    }

    #[test]
    fn cpus_are_shared_on_request() {
        let m = machine(1, 2, 1);
        let shared: Vec<String> = share(&m, 5).unwrap().iter().map(|p| p.cpus.to_list()).collect();
        assert_eq!(shared, ["0", "0", "0", "1", "1"]);
        assert_eq!(share(&m, 2), divide(&m, 2, None));
    }

    #[test]
    fn words() {
        for text in ["node", "cache", "cores=3"] {
            assert_eq!(text.parse::<By>().unwrap().to_string(), text);
        }
        for text in ["", "cores", "cores=0", "cores=x", "socket"] {
            assert!(text.parse::<By>().is_err(), "{text}");
        }
    }
}
