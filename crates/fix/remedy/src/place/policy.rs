//! Where a program runs and where its memory comes from, chosen once.

use ncpu_machine::{CpuSet, Topology};

use crate::launch::{self, Step};
use crate::partition::parts::{last_level, nodes_of};

/// A policy in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The first N CPUs that are as far apart as can be: another node, then another cache, then another core; memory
    /// where it is touched. Without N a strand of each core.
    Spread(Option<usize>),
    /// N CPUs as near as can be: strands of a core, then the cores of a cache, then of a node.
    Pack(usize),
    /// The CPUs and the memory of a node; of the one with the most free memory without a number.
    Local(Option<u32>),
    /// Memory from these nodes in turn, from all without; any CPU.
    Interleave(Option<CpuSet>),
    /// Anywhere, as without `ncpu`.
    Any,
    /// These CPUs, and memory from these nodes only; from those of the CPUs without.
    Bind(CpuSet, Option<CpuSet>),
}

/// A policy that cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not a policy.
    #[error(
        "{0}: give spread[:N], pack:N, local[:NODE], interleave[:NODES], bind:CPUS[@NODES] (bind:0-3@0) or any"
    )]
    Words(String),
    /// CPUs that are not there or not ours.
    #[error("{asked} CPUs are asked for, but {usable} are there for us to use ({list})")]
    Count {
        /// How many.
        asked: usize,
        /// Number of usable CPUs.
        usable: usize,
        /// Which.
        list: String,
    },
    /// CPUs that are not there or not ours.
    #[error("CPUs {asked} are not all available to this process; expected CPUs of {usable}")]
    Cpus {
        /// Which.
        asked: String,
        /// Which may be used.
        usable: String,
    },
    /// Nodes without memory.
    #[error("nodes {asked} do not all have memory for us to use; those that do are {usable}")]
    Nodes {
        /// Which.
        asked: String,
        /// Which may be used.
        usable: String,
    },
}

impl std::str::FromStr for Policy {
    type Err = Error;
    fn from_str(text: &str) -> Result<Policy, Error> {
        let wrong = || Error::Words(text.into());
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        let count = |n: &str| n.parse::<usize>().ok().filter(|&n| n > 0).ok_or_else(wrong);
        let set = |list: &str| CpuSet::parse_list(list).ok().filter(|s| !s.is_empty()).ok_or_else(wrong);
        Ok(match (name, rest) {
            ("any", None) => Policy::Any,
            ("spread", n) => Policy::Spread(n.map(count).transpose()?),
            ("pack", Some(n)) => Policy::Pack(count(n)?),
            ("local", node) => Policy::Local(node.map(|n| n.parse().map_err(|_| wrong())).transpose()?),
            ("interleave", nodes) => Policy::Interleave(nodes.map(set).transpose()?),
            ("bind", Some(rest)) => {
                let (cpus, nodes) = rest.split_once('@').map_or((rest, None), |(c, n)| (c, Some(n)));
                Policy::Bind(set(cpus)?, nodes.map(set).transpose()?)
            }
            _ => return Err(wrong()),
        })
    }
}

/// A policy on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// CPUs; `None`: any.
    pub cpus: Option<CpuSet>,
    /// How memory is chosen among the nodes.
    pub memory: launch::Policy,
    /// The nodes; none where it is the toucher's.
    pub nodes: CpuSet,
    /// Why these.
    pub reason: String,
}

impl Choice {
    /// The program's steps to get it.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self.cpus.iter().map(Step::affinity).collect();
        steps.push(Step::memory(self.memory, &self.nodes));
        steps
    }
}

/// Node, cache, core and number of a CPU: near CPUs sort next to each other.
fn key(machine: &Topology, caches: &[CpuSet], cpu: u32) -> [u32; 4] {
    let first = |set: Option<&CpuSet>| set.and_then(CpuSet::first).unwrap_or(cpu);
    [
        machine.node_of(cpu).map_or(0, |n| n.id),
        first(caches.iter().find(|c| c.contains(cpu))),
        first(machine.core_of(cpu).map(|c| &c.cpus)),
        cpu,
    ]
}

/// Takes turns at each level: among nodes, in a node among caches, there among cores, strands last.
fn spread(keys: &[[u32; 4]], level: usize) -> Vec<u32> {
    if level == 4 {
        return keys.iter().map(|k| k[3]).collect();
    }
    let mut groups = std::collections::BTreeMap::<u32, Vec<[u32; 4]>>::new();
    for key in keys {
        groups.entry(key[level]).or_default().push(*key);
    }
    let mut rows: Vec<_> = groups.values().map(|g| spread(g, level + 1).into_iter()).collect();
    let mut out = Vec::with_capacity(keys.len());
    while out.len() < keys.len() {
        out.extend(rows.iter_mut().filter_map(Iterator::next));
    }
    out
}

impl Policy {
    /// Its meaning on this machine.
    ///
    /// # Errors
    /// The CPUs or nodes are not there.
    pub fn choose(&self, machine: &Topology) -> Result<Choice, Error> {
        let usable = machine.online.and(&machine.allowed);
        let with_memory: CpuSet = machine
            .nodes
            .iter()
            .filter(|n| n.total.unwrap_or(0) > 0)
            .map(|n| n.id)
            .filter(|&n| machine.allowed_nodes.is_empty() || machine.allowed_nodes.contains(n))
            .collect();
        let caches = last_level(machine);
        let mut keys: Vec<[u32; 4]> = usable.iter().map(|c| key(machine, &caches, c)).collect();
        keys.sort_unstable();
        let enough = |n: usize| match n <= usable.len() {
            true => Ok(n),
            false => Err(Error::Count { asked: n, usable: usable.len(), list: usable.to_list() }),
        };
        let nodes = |asked: &CpuSet| match asked.is_subset(&with_memory) {
            true => Ok(asked.clone()),
            false => Err(Error::Nodes { asked: asked.to_list(), usable: with_memory.to_list() }),
        };
        Ok(match self {
            Policy::Spread(n) => {
                let cores = keys.iter().map(|k| k[2]).collect::<std::collections::BTreeSet<_>>().len();
                let n = enough(n.unwrap_or(cores))?;
                let cpus: CpuSet = spread(&keys, 0).into_iter().take(n).collect();
                let of = machine.nodes.iter().filter(|x| x.cpus.intersects(&cpus)).count();
                Choice {
                    reason: format!("{n} CPUs over {of} nodes, a core each as far as they go"),
                    cpus: Some(cpus),
                    memory: launch::Policy::Local,
                    nodes: CpuSet::new(),
                }
            }
            Policy::Pack(n) => {
                let cpus: CpuSet = keys.iter().take(enough(*n)?).map(|k| k[3]).collect();
                let nodes = nodes_of(machine, &cpus);
                Choice {
                    reason: format!("{n} CPUs next to each other, on nodes {}", nodes.to_list()),
                    cpus: Some(cpus),
                    memory: launch::Policy::Local,
                    nodes,
                }
            }
            Policy::Local(node) => {
                let has = |id: u32| {
                    let node = machine.nodes.iter().find(|n| n.id == id)?;
                    let cpus = node.cpus.and(&usable);
                    (with_memory.contains(id) && !cpus.is_empty()).then_some((node, cpus))
                };
                let all = || machine.nodes.iter().filter_map(|n| has(n.id));
                let (found, reason) = match node {
                    Some(id) => (has(*id), "the node asked for".to_string()),
                    None => {
                        let most = all().max_by_key(|(n, _)| (n.free.unwrap_or(0), std::cmp::Reverse(n.id)));
                        let free = most.as_ref().and_then(|(n, _)| n.free).unwrap_or(0);
                        (most, format!("the node with the most free memory, {} MiB", free >> 20))
                    }
                };
                let (node, cpus) = found.ok_or_else(|| Error::Nodes {
                    asked: node.map_or("with CPUs".into(), |n| n.to_string()),
                    usable: all().map(|(n, _)| n.id).collect::<CpuSet>().to_list(),
                })?;
                let memory = launch::Policy::Preferred;
                Choice { cpus: Some(cpus), memory, nodes: [node.id].into_iter().collect(), reason }
            }
            Policy::Interleave(asked) => {
                let nodes = nodes(asked.as_ref().unwrap_or(&with_memory))?;
                let reason = format!("pages of {} nodes in turn, any CPU", nodes.len());
                Choice { cpus: None, memory: launch::Policy::Interleave, nodes, reason }
            }
            Policy::Any => Choice {
                cpus: None,
                memory: launch::Policy::Local,
                nodes: CpuSet::new(),
                reason: "wherever the kernel puts it".into(),
            },
            Policy::Bind(cpus, asked) => {
                if !cpus.is_subset(&usable) {
                    return Err(Error::Cpus { asked: cpus.to_list(), usable: usable.to_list() });
                }
                let nodes = match asked {
                    Some(asked) => nodes(asked)?,
                    None => nodes_of(machine, cpus),
                };
                let reason = "the CPUs and nodes asked for".to_string();
                Choice { cpus: Some(cpus.clone()), memory: launch::Policy::Bind, nodes, reason }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ncpu_machine_trees::generate::{Shape, write};

    fn choose(words: &str) -> Result<(String, String), String> {
        let dir = tempfile::tempdir().unwrap();
        // CPUs c and c + 8 are strands of core c; node n has cores 2n and 2n + 1.
        write(dir.path(), &Shape { nodes: 4, cores: 2, threads: 2 }).unwrap();
        let machine = Topology::read(dir.path()).unwrap();
        let policy: Policy = words.parse().map_err(|e: Error| e.to_string())?;
        let choice = policy.choose(&machine).map_err(|e| e.to_string())?;
        Ok((choice.cpus.map_or("any".into(), |c| c.to_list()), choice.nodes.to_list()))
    }

    #[test]
    fn policies() {
        let is = |cpus: &str, nodes: &str| Ok((cpus.to_string(), nodes.to_string()));
        assert_eq!(choose("spread"), is("0-7", ""));
        assert_eq!(choose("spread:3"), is("0,2,4", ""));
        assert_eq!(choose("spread:5"), is("0-2,4,6", ""));
        assert_eq!(choose("pack:2"), is("0,8", "0"));
        assert_eq!(choose("pack:5"), is("0-2,8-9", "0-1"));
        assert_eq!(choose("local:2"), is("4-5,12-13", "2"));
        assert_eq!(choose("interleave"), is("any", "0-3"));
        assert_eq!(choose("interleave:1,3"), is("any", "1,3"));
        assert_eq!(choose("bind:0-1"), is("0-1", "0"));
        assert_eq!(choose("bind:0-1@3"), is("0-1", "3"));
        assert_eq!(choose("any"), is("any", ""));
    }

    #[test]
    fn what_cannot_be_is_told() {
        for words in ["", "spread:0", "pack", "local:x", "bind", "bind:", "interleave:", "near", "bind:0@"] {
            assert!(choose(words).unwrap_err().contains("give spread[:N]"), "{words}");
        }
        assert!(choose("pack:17").unwrap_err().contains("17 CPUs are asked for, but 16"));
        assert!(choose("bind:16").unwrap_err().contains("not all available"));
        assert!(choose("local:9").unwrap_err().contains("nodes 9 do not"));
        assert!(choose("bind:0@4").unwrap_err().contains("nodes 4 do not"));
    }
}
