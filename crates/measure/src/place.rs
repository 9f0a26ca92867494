//! Where workers run and where their memory lies.

use ncpu_machine::{CpuSet, Topology};

/// Which CPUs workers get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Wherever the scheduler puts them.
    #[default]
    Free,
    /// As far apart as can be: each on another node, then package, then core, SMT threads last.
    Spread,
    /// As near as can be: SMT threads of a core first, then the cores of a package.
    Pack,
    /// The CPUs of a NUMA node, each worker on one.
    Node(u32),
    /// These CPUs, one worker on each in turn.
    Cpus(CpuSet),
}

/// Where the workers' memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// As the process's policy has it.
    #[default]
    Default,
    /// From the node of whoever touches it first.
    Local,
    /// From this node only.
    Node(u32),
    /// From all nodes in turn.
    Interleave,
}

/// A placement that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Not a known placement.
    #[error("--place {0}: give spread, pack, node:N or cpus:LIST (as in cpus:0-3,8)")]
    Place(String),
    /// Not a known placement.
    #[error("--mem {0}: give local, node:N or interleave")]
    Memory(String),
    /// CPUs that are not there or not allowed.
    #[error("CPUs {asked} are not all available to this process; expected CPUs of {usable}")]
    Cpus {
        /// The CPUs that were asked for.
        asked: String,
        /// The usable CPUs.
        usable: String,
    },
    /// A node without CPUs, or none at all.
    #[error("node {node} has no CPUs to use; nodes with CPUs are {nodes}")]
    Node {
        /// The node that was asked for.
        node: u32,
        /// Nodes that have CPUs.
        nodes: String,
    },
    /// A node without memory, or none at all.
    #[error("node {node} has no memory; nodes with memory are {nodes}")]
    NoMemory {
        /// The node that was asked for.
        node: u32,
        /// Nodes that have memory.
        nodes: String,
    },
    /// The kernel refused.
    #[error("{what}: {source}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl std::str::FromStr for Place {
    type Err = PlaceError;
    fn from_str(text: &str) -> Result<Place, PlaceError> {
        let wrong = || PlaceError::Place(text.into());
        Ok(match text.split_once(':') {
            None if text == "spread" => Place::Spread,
            None if text == "pack" => Place::Pack,
            Some(("node", n)) => Place::Node(n.parse().map_err(|_| wrong())?),
            Some(("cpus", list)) => {
                let cpus = CpuSet::parse_list(list).map_err(|_| wrong())?;
                if cpus.is_empty() {
                    return Err(wrong());
                }
                Place::Cpus(cpus)
            }
            _ => return Err(wrong()),
        })
    }
}

impl std::fmt::Display for Place {
    /// As it is parsed; nothing where the scheduler chooses.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Free => Ok(()),
            Place::Spread => f.write_str("spread"),
            Place::Pack => f.write_str("pack"),
            Place::Node(n) => write!(f, "node:{n}"),
            Place::Cpus(cpus) => write!(f, "cpus:{}", cpus.to_list()),
        }
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Memory::Default => f.write_str("default"),
            Memory::Local => f.write_str("local"),
            Memory::Node(n) => write!(f, "node:{n}"),
            Memory::Interleave => f.write_str("interleave"),
        }
    }
}

impl std::str::FromStr for Memory {
    type Err = PlaceError;
    fn from_str(text: &str) -> Result<Memory, PlaceError> {
        let wrong = || PlaceError::Memory(text.into());
        Ok(match text.split_once(':') {
            None if text == "local" => Memory::Local,
            None if text == "interleave" => Memory::Interleave,
            Some(("node", n)) => Memory::Node(n.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        })
    }
}

impl Place {
    /// The CPUs to give to workers 0, 1, 2 … in turn; `None`: the scheduler's choice.
    ///
    /// # Errors
    /// The CPUs are not there, or not ours to use.
    pub fn order(&self, machine: &Topology) -> Result<Option<Vec<u32>>, PlaceError> {
        let usable = machine.online.and(&machine.allowed);
        let among = |want: &CpuSet| want.and(&usable).iter().collect::<Vec<u32>>();
        Ok(Some(match self {
            Place::Free => return Ok(None),
            Place::Spread => spread(machine, &usable),
            Place::Pack => {
                let mut cpus: Vec<u32> = usable.iter().collect();
                cpus.sort_by_key(|&c| key(machine, c));
                cpus
            }
            Place::Node(n) => {
                let node = machine.nodes.iter().find(|node| node.id == *n);
                let cpus = node.map(|node| among(&node.cpus)).unwrap_or_default();
                if cpus.is_empty() {
                    let nodes: Vec<String> = machine
                        .nodes
                        .iter()
                        .filter(|n| n.cpus.intersects(&usable))
                        .map(|n| n.id.to_string())
                        .collect();
                    return Err(PlaceError::Node { node: *n, nodes: nodes.join(",") });
                }
                cpus
            }
            Place::Cpus(want) => {
                if !want.is_subset(&usable) {
                    return Err(PlaceError::Cpus { asked: want.to_list(), usable: usable.to_list() });
                }
                want.iter().collect()
            }
        }))
    }
}

/// Node, package, core, CPU: near CPUs sort next to each other.
fn key(machine: &Topology, cpu: u32) -> (u32, u32, u32, u32) {
    (
        machine.node_of(cpu).map_or(0, |n| n.id),
        machine.package_of(cpu).and_then(|p| p.cpus.first()).unwrap_or(cpu),
        machine.core_of(cpu).and_then(|c| c.cpus.first()).unwrap_or(cpu),
        cpu,
    )
}

/// Takes turns at each level of the tree: among nodes, in a node among packages, there among cores.
fn spread(machine: &Topology, usable: &CpuSet) -> Vec<u32> {
    fn deal(mut groups: Vec<Vec<u32>>) -> Vec<u32> {
        let longest = groups.iter().map(Vec::len).max().unwrap_or(0);
        groups.iter_mut().for_each(|g| g.reverse());
        (0..longest).flat_map(|_| groups.iter_mut().filter_map(Vec::pop).collect::<Vec<_>>()).collect()
    }
    fn by(cpus: Vec<u32>, keys: &[&dyn Fn(u32) -> u32]) -> Vec<u32> {
        let Some((first, rest)) = keys.split_first() else { return cpus };
        let mut groups = std::collections::BTreeMap::<u32, Vec<u32>>::new();
        for cpu in cpus {
            groups.entry(first(cpu)).or_default().push(cpu);
        }
        deal(groups.into_values().map(|g| by(g, rest)).collect())
    }
    let node = |c: u32| key(machine, c).0;
    let package = |c: u32| key(machine, c).1;
    let core = |c: u32| key(machine, c).2;
    by(usable.iter().collect(), &[&node, &package, &core])
}

/// Puts the calling thread on a CPU.
///
/// # Errors
/// The kernel refuses.
pub fn bind(cpu: u32) -> Result<(), PlaceError> {
    bind_thread(0, &[cpu])
}

/// Lets a thread run on these CPUs only; thread 0 is the calling one.
///
/// # Errors
/// The kernel refuses.
pub fn bind_thread(thread: i32, cpus: &[u32]) -> Result<(), PlaceError> {
    let words = cpus.iter().max().map_or(1, |&c| c as usize / 64 + 1);
    let mut mask = vec![0u64; words];
    for &cpu in cpus {
        mask[cpu as usize / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the mask has the given length. Beyond CPU 1023 libc's cpu_set_t is too short.
    match unsafe { libc::syscall(libc::SYS_sched_setaffinity, thread, words * 8, mask.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PlaceError::Refused {
            what: "putting a thread on a CPU",
            source: std::io::Error::last_os_error(),
        }),
    }
}

impl Memory {
    /// Checks that the machine has it.
    ///
    /// # Errors
    /// The node has no memory.
    pub fn check(self, machine: &Topology) -> Result<(), PlaceError> {
        let with: Vec<u32> =
            machine.nodes.iter().filter(|n| n.total.unwrap_or(0) > 0).map(|n| n.id).collect();
        match self {
            Memory::Node(node) if !with.contains(&node) => Err(PlaceError::NoMemory {
                node,
                nodes: with.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            }),
            _ => Ok(()),
        }
    }

    /// Makes it the calling thread's policy; threads it starts inherit it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn apply(self, machine: &Topology) -> Result<(), PlaceError> {
        // linux/mempolicy.h
        const BIND: i32 = 2;
        const INTERLEAVE: i32 = 3;
        const LOCAL: i32 = 4;
        let (mode, nodes): (i32, Vec<u32>) = match self {
            Memory::Default => return Ok(()),
            Memory::Local => (LOCAL, vec![]),
            Memory::Node(n) => (BIND, vec![n]),
            Memory::Interleave => (
                INTERLEAVE,
                machine.nodes.iter().filter(|n| n.total.unwrap_or(0) > 0).map(|n| n.id).collect(),
            ),
        };
        let mut mask = [0u64; 16];
        for n in nodes {
            if let Some(word) = mask.get_mut(n as usize / 64) {
                *word |= 1 << (n % 64);
            }
        }
        let (at, bits) = if mode == LOCAL { (std::ptr::null(), 0) } else { (mask.as_ptr(), 1024) };
        // SAFETY: the mask has the bits told; the kernel only reads it.
        match unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, at, bits) } {
            0 => Ok(()),
            _ => Err(PlaceError::Refused {
                what: "setting the memory policy",
                source: std::io::Error::last_os_error(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::generate::{Shape, write};

    fn machine() -> Topology {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &Shape { nodes: 2, cores: 2, threads: 2 }).unwrap();
        Topology::read(dir.path()).unwrap()
    }

    fn order(place: &str) -> Vec<u32> {
        place.parse::<Place>().unwrap().order(&machine()).unwrap().unwrap()
    }

    #[test]
    fn near_and_far() {
        // Node 0 has CPUs 0,1,4,5 (cores 0+4, 1+5), node 1 has 2,3,6,7.
        assert_eq!(order("spread"), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(order("pack"), [0, 4, 1, 5, 2, 6, 3, 7]);
        assert_eq!(order("node:1"), [2, 3, 6, 7]);
        assert_eq!(order("cpus:5,1"), [1, 5]);
        assert_eq!(Place::Free.order(&machine()).unwrap(), None);
    }

    #[test]
    fn words_come_back_as_they_went() {
        for place in ["spread", "pack", "node:1", "cpus:0-2,5"] {
            assert_eq!(place.parse::<Place>().unwrap().to_string(), place);
        }
        for memory in ["local", "node:1", "interleave"] {
            assert_eq!(memory.parse::<Memory>().unwrap().to_string(), memory);
        }
    }

    #[test]
    fn what_is_not_there_is_told() {
        let e = |text: &str| match text.parse::<Place>() {
            Ok(place) => place.order(&machine()).unwrap_err().to_string(),
            Err(e) => e.to_string(),
        };
        assert_eq!(e("cpus:6-9"), "CPUs 6-9 are not all available to this process; expected CPUs of 0-7");
        assert_eq!(e("node:2"), "node 2 has no CPUs to use; nodes with CPUs are 0,1");
        for wrong in ["near", "cpus:", "cpus:x", "node:x", ""] {
            assert!(e(wrong).contains("give spread, pack, node:N or cpus:LIST"), "{wrong}");
        }
        assert!("node:".parse::<Memory>().is_err() && "far".parse::<Memory>().is_err());
    }

    #[test]
    fn a_bound_thread_is_on_its_cpu() {
        let cpu = ncpu_machine::online_cpus("/".as_ref()).unwrap().last().unwrap();
        std::thread::spawn(move || {
            bind(cpu).unwrap();
            // SAFETY: no arguments.
            assert_eq!(unsafe { libc::sched_getcpu() }, cpu as i32);
            assert!(bind(1 << 20).is_err());
        })
        .join()
        .unwrap();
    }
}
